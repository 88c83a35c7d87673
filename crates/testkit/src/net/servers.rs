//! Servers of a [`Site`] in a namespace: nginx, Apache, and a sink that says what was uploaded to it.
//! Knows no mangler and no client.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;

use super::namespace::{Namespace, NetError, Program};
use super::site::Site;
use crate::{PATIENCE, wait_until};

/// Where the sink listens within the server's namespace.
const SINK_PORT: u16 = 8079;

/// Where Debian's Apache has its modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// Apache's own file of errors: as nobody it can't open the standard one.
const APACHE_LOG: &str = "run/error.log";

/// Uploads above this are refused.
const UPLOAD_LEN_MAX: usize = 64 << 20;

/// Where uploads go. What comes back is what [`receipt`] says.
pub const UPLOAD: &str = "/upload";

/// The answer to an upload of this content.
pub fn receipt(content: &[u8]) -> String {
    format!("{} {:08x}\n", content.len(), crc32fast::hash(content))
}

/// A web server, one process, that serves a [`Site`] at a port of all addresses of a namespace.
/// Uploads to [`UPLOAD`] go to a sink, content is never compressed.
pub struct WebServer {
    /// Killed at the end.
    pub program: Program,
}

impl WebServer {
    /// Starts nginx (Debian: `nginx-core`) and waits until it takes connections. `directives` go
    /// into its `server` block.
    pub fn nginx(
        namespace: &Namespace,
        site: &Site,
        port: u16,
        directives: &str,
    ) -> Result<WebServer, NetError> {
        let config = nginx_config(site, port, directives);
        let path = site.folder().file("nginx.conf", config);
        let mut command = Command::new("nginx");
        command.arg("-c").arg(path);
        command.arg("-p").arg(site.folder().path());
        WebServer::start(namespace, site, command, port)
    }

    /// Starts Apache (Debian: `apache2-bin`) and waits until it takes connections. `directives` go
    /// to the end of its configuration.
    pub fn apache(
        namespace: &Namespace,
        site: &Site,
        port: u16,
        directives: &str,
    ) -> Result<WebServer, NetError> {
        namespace.set("ipv4/ip_unprivileged_port_start", "0")?;
        let run = site.folder().path().join("run");
        let made = std::fs::create_dir_all(&run)
            .and_then(|()| std::fs::set_permissions(&run, Permissions::from_mode(0o777)));
        made.map_err(|error| NetError::Setting(run.display().to_string(), error))?;
        let config = apache_config(site, port, directives);
        let path = site.folder().file("apache.conf", config);
        // Apache does not serve as root, and a process that drops root by itself is no longer
        // ended with its parent; so it never is root.
        let mut command = Command::new("setpriv");
        let user = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
        command.args(user).args(["--pdeathsig", "KILL"]);
        command.args(["apache2", "-X", "-f"]).arg(path);
        WebServer::start(namespace, site, command, port)
    }

    fn start(
        namespace: &Namespace,
        site: &Site,
        mut command: Command,
        port: u16,
    ) -> Result<WebServer, NetError> {
        start_sink(namespace).map_err(|error| NetError::Start("the sink".to_owned(), error))?;
        command.stdin(Stdio::null());
        let mut program = namespace.spawn(command)?;
        wait_until("the web server", || {
            let status = program.child().try_wait().expect("a child of ours");
            let said = || std::fs::read_to_string(site.folder().path().join(APACHE_LOG));
            assert_eq!(status, None, "it ended; see above, and {:?}", said());
            namespace.enter(|| answers(port)).ok()
        });
        Ok(WebServer { program })
    }
}

/// A listening socket does not tell: a server may find fault with its configuration after that.
fn answers(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /ready-yet HTTP/1.0\r\n\r\n")?;
    stream.read_exact(&mut [0])
}

fn nginx_config(site: &Site, port: u16, directives: &str) -> String {
    let (folder, root) = (site.folder().path().display(), site.root());
    let root = root.display();
    // One process, so that none outlives the one that is killed.
    format!(
        "daemon off;
master_process off;
user root;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  log_not_found off;
  default_type application/octet-stream;
  sendfile on;
  client_max_body_size {UPLOAD_LEN_MAX};
  keepalive_requests 100000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen {port} backlog=4096;
    listen [::]:{port} backlog=4096;
    root {root};
    {directives}
    location {UPLOAD} {{ proxy_pass http://127.0.0.1:{SINK_PORT}; }}
  }}
}}
"
    )
}

fn apache_config(site: &Site, port: u16, directives: &str) -> String {
    let (folder, root) = (site.folder().path().display(), site.root());
    let root = root.display();
    let modules = ["mpm_event", "authz_core", "env", "proxy", "proxy_http"];
    let load = |name| format!("LoadModule {name}_module {APACHE_MODULES}/mod_{name}.so\n");
    let modules: String = modules.into_iter().map(load).collect();
    format!(
        "{modules}ServerRoot {folder}
DefaultRuntimeDir {folder}/run
PidFile {folder}/run/apache.pid
ServerName test
ErrorLog {folder}/{APACHE_LOG}
LogLevel crit
Listen {port}
ListenBacklog 4096
ServerLimit 1
ThreadsPerChild 64
MaxRequestWorkers 64
MaxKeepAliveRequests 0
KeepAliveTimeout 60
LimitRequestBody {UPLOAD_LEN_MAX}
DocumentRoot {root}
<Directory {root}>
  Require all granted
</Directory>
ProxyPass {UPLOAD} http://127.0.0.1:{SINK_PORT}{UPLOAD}
SetEnv proxy-sendcl 1
{directives}
"
    )
}

/// Answers each request with the [`receipt`] of its body, one a connection. The thread that
/// listens ends with the process; its namespace stays until then.
fn start_sink(namespace: &Namespace) -> std::io::Result<()> {
    let listener = namespace.enter(|| TcpListener::bind(("127.0.0.1", SINK_PORT)))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A proxy that gives up is the client's finding, not ours.
            thread::spawn(move || sink(&stream));
        }
    });
    Ok(())
}

fn sink(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut len = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let lower = line.trim_end().to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            len = value.trim().parse().unwrap_or(0);
        }
        if lower.is_empty() {
            break;
        }
    }
    let mut body = vec![0; len.min(UPLOAD_LEN_MAX)];
    reader.read_exact(&mut body)?;
    let receipt = receipt(&body);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{receipt}",
        receipt.len()
    )
}
