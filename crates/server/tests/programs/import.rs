//! `lowroad import nginx` and `lowroad compare`: nginx and a server with the translated configuration answer the same
//! requests over the same folder.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, skip, wait_until};

use crate::fpm::Fpm;
use crate::host::PROGRAM;

/// `DIR` is the folder, `PORT` nginx' port, `ORIGIN` the URL of an origin.
const NGINX: &str = r#"
user root;
worker_processes 1;
pid DIR/nginx.pid;
error_log DIR/nginx-error.log;
events { worker_connections 64; }

http {
    include /etc/nginx/mime.types;
    charset utf-8;
    access_log off;
    client_body_temp_path DIR/temp;
    proxy_temp_path DIR/temp;
    fastcgi_temp_path DIR/temp;
    uwsgi_temp_path DIR/temp;
    scgi_temp_path DIR/temp;

    server {
        listen 127.0.0.1:PORT default_server;
        server_name site.example;
        root DIR/root;
        index index.html index.php;
        error_page 404 /404.html;
        add_header X-Site "yes" always;

        location / {
            try_files $uri $uri/ =404;
        }

        location = /exact.html { add_header X-Exact "1"; }

        location ~* \.(css|png)$ {
            expires 30d;
            add_header Cache-Control "public";
        }

        location ~ /\. { deny all; }
        location = /404.html { internal; }

        location /app/ {
            try_files $uri /app/index.html;
        }

        location /old/ { return 301 /docs/; }
        location = /away { return 302 https://other.example/x?y=1; }
        rewrite ^/item/([0-9]+)$ /shop?id=$1 permanent;
        rewrite ^/alias-of-page$ /page.html last;

        location ^~ /other/ { alias DIR/elsewhere/; }
        location /denied/ { deny all; }
        location /local/ { allow 127.0.0.1; deny all; }

        location /private/ {
            auth_basic "Private";
            auth_basic_user_file DIR/passwords;
        }

        location /api/ {
            proxy_pass ORIGIN;
            proxy_set_header Host $host;
            proxy_hide_header X-Secret;
        }

        location ~ \.php$ {
            try_files $uri =404;
            fastcgi_pass unix:DIR/fpm.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_param COLOUR blue;
        }
    }

    server {
        listen 127.0.0.1:PORT;
        server_name front.example;
        location / { try_files $uri /index.php?from=$uri; root DIR/front; }
        location /api/ { proxy_pass ORIGIN; }
        location ~ \.php$ {
            root DIR/front;
            fastcgi_pass unix:DIR/fpm.sock;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        }
    }

    server {
        listen 127.0.0.1:PORT;
        server_name proxy.example;
        root DIR/root;
        location / { proxy_pass ORIGIN; proxy_set_header Host $host; }
        location /assets/ { expires 1h; }
        location ~ \.txt$ { add_header X-Text "1"; }
    }
}
"#;

/// The requests that both servers answer alike.
const REQUESTS: &str = "\
GET /
HEAD /
GET /index.html
GET /page.html
GET /page.html?a=b
GET /exact.html
GET /missing
GET /docs
GET /docs/
GET /docs/missing.html
GET /assets/app.css
GET /.env
GET /docs/.git/config
GET /app/a.js
GET /app/route/of/app
GET /old/a/b
GET /away
GET /item/17
GET /item/x
GET /alias-of-page
GET /other/b.txt
GET /other/missing
GET /denied/x
GET /local/l.txt
GET /private/x.txt
GET /api/a?b=c
POST /api/a
GET /api/cookie
GET /script.php?a=1
GET http://front.example/f.txt
GET http://front.example/made/up?x=1
GET http://front.example/api/a
GET http://proxy.example/a/b?c=d
GET http://proxy.example/assets/app.css
GET http://proxy.example/assets/missing.css
GET http://proxy.example/a.txt
GET http://proxy.example/docs/deep.txt
";

/// nginx in front of a folder.
pub struct Nginx(Child);

impl Nginx {
    /// Starts nginx with the configuration `nginx.conf` of the folder.
    pub fn start(folder: &TempFolder, address: SocketAddr) -> Option<Nginx> {
        let mut command = Command::new("/usr/sbin/nginx");
        command
            .arg("-p")
            .arg(folder.path())
            .args(["-g", "daemon off;", "-c"]);
        command.arg(folder.path().join("nginx.conf"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut nginx = Nginx(command.spawn().ok()?);
        wait_until("nginx", || {
            let has_ended = nginx.0.try_wait().ok().flatten();
            assert!(has_ended.is_none(), "nginx ended: {has_ended:?}");
            TcpStream::connect(address).ok()
        });
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM also ends its worker.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

fn fill(folder: &TempFolder) {
    for name in [
        "root/index.html",
        "root/page.html",
        "root/exact.html",
        "root/404.html",
        "root/docs/index.html",
        "root/docs/deep.txt",
        "root/docs/.git/config",
        "root/.env",
        "root/a.txt",
        "root/assets/app.css",
        "root/app/index.html",
        "root/app/a.js",
        "root/denied/x",
        "root/local/l.txt",
        "root/private/x.txt",
        "elsewhere/b.txt",
        "front/f.txt",
    ] {
        folder.file(name, format!("the content of {name}\n"));
    }
    let php = "<?php header('Content-Type: text/plain'); echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ',\
               $_SERVER['QUERY_STRING'], ' ', $_SERVER['COLOUR'] ?? '', ' ', $_SERVER['SERVER_NAME'];";
    folder.file("root/script.php", php);
    folder.file(
        "front/index.php",
        "<?php echo $_SERVER['REQUEST_URI'], ' ', $_GET['from'] ?? '';",
    );
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    folder.file("passwords", format!("ann:{hash}\n"));
}

/// An origin that returns the request.
pub fn origin() -> TestOrigin {
    TestOrigin::with_response(|request| {
        let host = request.field("host").unwrap_or_default().to_string();
        let body = format!("{} {} host={host}", request.method, request.target);
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nX-Secret: s\r\nSet-Cookie: a=b\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    })
}

/// Runs the program.
pub fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn translated_configuration_answers_as_nginx_does() {
    let folder = TempFolder::new();
    if !std::path::Path::new("/usr/sbin/nginx").exists() {
        skip(
            "translated_configuration_answers_as_nginx_does",
            "nginx is not installed",
        );
        return;
    }
    let Some(_fpm) = Fpm::start(&folder) else {
        skip(
            "translated_configuration_answers_as_nginx_does",
            "php-fpm is not installed",
        );
        return;
    };
    fill(&folder);
    let origin = origin();
    // nginx can't report a port that the kernel chooses, so a free one is looked for.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let nginx_address = free.local_addr().expect("an address");
    drop(free);
    let path = folder.path().display().to_string();
    let config = NGINX
        .replace("DIR", &path)
        .replace("PORT", &nginx_address.port().to_string())
        .replace("ORIGIN", &origin.url());
    let config_file = folder.file("nginx.conf", config).display().to_string();
    let _nginx = Nginx::start(&folder, nginx_address).expect("nginx starts");

    let output = format!("{path}/imported.toml");
    let import = run(&["import", "nginx", &config_file, "-o", &output]);
    assert!(import.status.success(), "{}", text(&import.stderr));
    let again = run(&["import", "nginx", &config_file, "-o", &output]);
    assert!(
        text(&again.stderr).contains("exists already"),
        "{}",
        text(&again.stderr)
    );
    let imported = std::fs::read_to_string(&output).expect("the configuration");
    let imported = imported
        .replace(&nginx_address.to_string(), "127.0.0.1:0")
        .replacen(
            "[server]\n",
            &format!("[server]\nadmin = \"{path}/admin.sock\"\n"),
            1,
        );
    let server = TestServer::run(PROGRAM, &folder, &imported);

    let (from, to) = (
        format!("http://{nginx_address}"),
        format!("http://{}", server.address()),
    );
    let list = folder.file("requests", REQUESTS).display().to_string();
    let servers = [
        "--from",
        &from,
        "--to",
        &to,
        "--host",
        "site.example",
        "--rate",
        "1000",
    ];
    let compared = run(&[&["compare", &list], &servers[..]].concat());
    let differences = text(&compared.stdout);
    assert!(
        compared.status.success(),
        "{differences}\n{}\n{imported}",
        text(&compared.stderr)
    );

    // With a password the private file is sent.
    let list = folder
        .file("private", "GET /private/x.txt\n")
        .display()
        .to_string();
    let authorization = format!(
        "Authorization: Basic {}",
        BASE64_STANDARD.encode("ann:secret")
    );
    let compared = run(&[&["compare", &list, "-H", &authorization], &servers[..]].concat());
    assert!(compared.status.success(), "{}", text(&compared.stdout));
}

/// Sites that move in from nginx, by the script that also asks WordPress.
#[test]
fn moved_sites_answer_as_behind_nginx() {
    const NAME: &str = "moved_sites_answer_as_behind_nginx";
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/moved_sites.py");
    let mut command = Command::new("python3");
    command.args([
        script,
        "--lowroad",
        PROGRAM,
        "nextcloud",
        "laravel",
        "spa",
        "many",
    ]);
    let Ok(output) = command.output() else {
        skip(NAME, "python3 is not installed");
        return;
    };
    let printed = text(&output.stdout);
    assert!(
        output.status.success(),
        "{printed}\n{}",
        text(&output.stderr)
    );
    if let Some(reason) = printed.lines().find(|line| line.contains(": skipped: ")) {
        skip(NAME, reason);
    }
}

#[test]
fn comparison_prints_differences_and_fails() {
    let folder = TempFolder::new();
    folder.file("a.txt", "one");
    let other = TempFolder::new();
    other.file("a.txt", "two!");
    other.file("b.txt", "b");
    let one = TestServer::serve(PROGRAM, &folder, &[]);
    let two = TestServer::serve(PROGRAM, &other, &[]);
    let list = folder
        .file("list", "/a.txt\n/b.txt\n/c\nnonsense here too\n")
        .display()
        .to_string();
    let (from, to) = (
        format!("http://{}", one.address()),
        format!("http://{}", two.address()),
    );
    let compared = run(&["compare", &list, "--from", &from, "--to", &to]);
    assert_eq!(compared.status.code(), Some(1));
    let printed = text(&compared.stdout);
    assert!(
        printed.contains(&format!(
            "GET {}/a.txt\n  body: 3 bytes | 4 bytes, different from byte 0\n",
            one.address()
        )),
        "{printed}"
    );
    assert!(
        printed.contains("/b.txt\n  status: 404 | 200\n"),
        "{printed}"
    );
    assert!(
        printed.ends_with("3 requests: 1 equal, 2 different, 0 failed; 1 lines skipped\n"),
        "{printed}"
    );
    let same = run(&["compare", &list, "--from", &from, "--to", &from]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
}

#[test]
fn sites_with_tls_are_compared_by_the_name_of_the_request() {
    let folder = TempFolder::new();
    folder.file("root/a.txt", "one");
    let config = "[[site]]\nnames = \"site.example\"\nroot = \"root\"\n[site.tls]\nlisten = \"127.0.0.1:0\"\n\
                  local = true\nstrict_sni = true\n";
    let file = folder.file("lowroad.toml", config);
    let mut command = Command::new(PROGRAM);
    // The local authority creates its files there.
    command.env("XDG_DATA_HOME", folder.path());
    command.args(["run", "-c"]).arg(file).stdin(Stdio::null());
    let server = TestServer::spawn(command);
    let url = format!("https://{}", server.address());
    let list = folder.file("list", "/a.txt\n/b\n").display().to_string();
    let arguments = ["compare", &list, "--from", &url, "--to", &url, "--host"];
    let same = run(&[&arguments[..], &["site.example"]].concat());
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    // The handshake for another name is refused.
    let other = run(&[&arguments[..], &["other.example"]].concat());
    assert!(
        text(&other.stdout).contains("0 equal, 0 different, 2 failed"),
        "{}",
        text(&other.stdout)
    );
}

#[test]
fn import_of_a_mistake_writes_nothing() {
    let folder = TempFolder::new();
    let file = folder
        .file("nginx.conf", "http {\n  server { listen 80 }\n}\n")
        .display()
        .to_string();
    let output = folder.path().join("out.toml");
    let import = run(&[
        "import",
        "nginx",
        &file,
        "-o",
        &output.display().to_string(),
    ]);
    assert_eq!(import.status.code(), Some(1));
    assert!(
        text(&import.stderr).contains("nginx.conf:2:22: listen has no ; before this }"),
        "{}",
        text(&import.stderr)
    );
    assert!(!output.exists());
}
