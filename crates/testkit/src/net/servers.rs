//! Servers of a test site in a namespace: nginx, Apache, and a sink that acknowledges uploads.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;

use super::namespace::{NamespaceProgram, NetError, NetNamespace};
use super::site::TestSite;
use crate::{TEST_TIMEOUT, wait_until};

/// The port of the sink in the server's namespace.
const SINK_PORT: u16 = 8079;

/// Debian's folder of Apache's modules.
const APACHE_MODULES: &str = "/usr/lib/apache2/modules";

/// Apache's error log, as its unprivileged user can't open the default one.
const APACHE_LOG: &str = "run/error.log";

/// The longest accepted upload.
const UPLOAD_LEN_MAX: usize = 64 << 20;

/// The path for uploads; the response is the [`receipt`] of the upload.
pub const UPLOAD: &str = "/upload";

/// The response to an upload of this content.
pub fn receipt(content: &[u8]) -> String {
    format!("{} {:08x}\n", content.len(), crc32fast::hash(content))
}

/// A single-process web server for a test site, on all addresses of a namespace. Uploads to [`UPLOAD`] are forwarded to
/// a sink; content is never compressed.
pub struct WebServer {
    /// Killed on drop.
    pub program: NamespaceProgram,
}

impl WebServer {
    /// Starts nginx (Debian: `nginx-core`) and waits until it accepts connections. `directives` go into its `server`
    /// block.
    pub fn nginx(
        namespace: &NetNamespace,
        site: &TestSite,
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

    /// Starts Apache (Debian: `apache2-bin`) and waits until it accepts connections. `directives` go to the end of its
    /// configuration.
    pub fn apache(
        namespace: &NetNamespace,
        site: &TestSite,
        port: u16,
        directives: &str,
    ) -> Result<WebServer, NetError> {
        // Apache runs without root rights, and may need a privileged port.
        namespace.set("ipv4/ip_unprivileged_port_start", "0")?;
        let run = site.folder().path().join("run");
        let created = std::fs::create_dir_all(&run)
            .and_then(|()| std::fs::set_permissions(&run, Permissions::from_mode(0o777)));
        created.map_err(|error| NetError::Setting(run.display().to_string(), error))?;
        let config = apache_config(site, port, directives);
        let path = site.folder().file("apache.conf", config);
        // Apache does not serve as root. A process that drops root rights itself loses its parent-death signal, so
        // `setpriv` drops them before the start.
        let mut command = Command::new("setpriv");
        let user = ["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"];
        command.args(user).args(["--pdeathsig", "KILL"]);
        command.args(["apache2", "-X", "-f"]).arg(path);
        WebServer::start(namespace, site, command, port)
    }

    fn start(
        namespace: &NetNamespace,
        site: &TestSite,
        mut command: Command,
        port: u16,
    ) -> Result<WebServer, NetError> {
        start_sink(namespace).map_err(|error| NetError::Start("the sink".to_owned(), error))?;
        command.stdin(Stdio::null());
        let mut program = namespace.spawn(command)?;
        wait_until("the web server", || {
            let status = program.child().try_wait().expect("a child of ours");
            // A server with an invalid configuration has ended by now.
            let error_log = || std::fs::read_to_string(site.folder().path().join(APACHE_LOG));
            assert_eq!(status, None, "it ended; see above, and {:?}", error_log());
            namespace.enter(|| probe(port)).ok()
        });
        Ok(WebServer { program })
    }
}

/// Makes a request. A successful connect is not sufficient, as a server may reject its configuration after it listens.
fn probe(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.write_all(b"GET /ready-yet HTTP/1.0\r\n\r\n")?;
    stream.read_exact(&mut [0])
}

fn nginx_config(site: &TestSite, port: u16, directives: &str) -> String {
    let (folder, root) = (site.folder().path().display(), site.root());
    let root = root.display();
    // nginx runs as a single process, so that killing it leaves no others.
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

fn apache_config(site: &TestSite, port: u16, directives: &str) -> String {
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

/// Answers each request with the [`receipt`] of its body, one per connection. The listening thread runs until the
/// process ends, and keeps its namespace alive.
fn start_sink(namespace: &NetNamespace) -> std::io::Result<()> {
    let listener = namespace.enter(|| TcpListener::bind(("127.0.0.1", SINK_PORT)))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Errors are ignored here: if a proxy fails, the client detects it.
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
        // Only Content-Length is needed: both proxies send it for chunked uploads too.
        let lower = line.trim_end().to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            len = value.trim().parse().unwrap_or(0);
        }
        if lower.is_empty() {
            break;
        }
    }
    // Limited, so that a wrong length can't exhaust the memory.
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
