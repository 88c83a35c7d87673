//! `lowroad import caddy`: Caddy and a server with the translated configuration answer the same requests.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TempFolder, TestServer, skip, wait_until};

use crate::fpm::Fpm;
use crate::host::PROGRAM;

/// `DIR` is the folder, `PORT` Caddy's port, `ORIGIN` and `OTHER` are addresses of origins.
const CADDYFILE: &str = r#"
{
    auto_https off
    admin off
}

(common) {
    header X-Site {args.0}
}

http://site.example:PORT {
    bind 127.0.0.1
    import common yes
    root * DIR/root
    redir /old/* /docs/ permanent
    redir /away https://other.example/x?y=1
    redir /item /docs/page.html 308
    rewrite /alias /page.html
    header /assets/* Cache-Control "public, max-age=60"
    @secret path /secret/* *.key
    respond @secret "no" 403
    respond /health "ok" 200
    error /gone 410
    @blocked {
        path /blocked/*
        not remote_ip 127.0.0.1
    }
    respond @blocked 403
    handle_path /other/* {
        root * DIR/elsewhere
        file_server
    }
    handle /api/* {
        @write method POST PUT
        reverse_proxy @write OTHER
        reverse_proxy ORIGIN {
            header_up X-Extra "{http.request.header.X-In}"
            header_up Host inner.example
        }
    }
    handle_path /cut/* {
        reverse_proxy ORIGIN
    }
    file_server
}

http://app.example:PORT {
    bind 127.0.0.1
    handle /api/* {
        reverse_proxy ORIGIN
    }
    handle {
        root * DIR/app
        try_files {path} /index.html
        file_server
    }
}

http://php.example:PORT {
    bind 127.0.0.1
    root * DIR/front
    php_fastcgi unix/DIR/fpm.sock {
        env COLOUR blue
    }
    file_server
}

http://proxy.example:PORT {
    bind 127.0.0.1
    @static {
        path /assets/*
        file
    }
    root * DIR/root
    file_server @static
    @local path /local/*
    respond @local "local" 200
    reverse_proxy ORIGIN
}
"#;

/// The requests that both servers answer alike.
const REQUESTS: &str = "\
GET /
HEAD /
GET /index.html?a=b
GET /page.html
GET /missing
GET /docs/
GET /docs/page.html
GET /assets/app.css
GET /old/a/b
GET /away
GET /item
GET /alias
GET /secret/a
GET /SECRET/a
GET /docs/a.key
GET /health
GET /gone
GET /blocked/b.txt
GET /other/b.txt
GET /other/missing
GET /api/a?b=c
POST /api/a
DELETE /api/a
GET /cut/a/b?c=d
GET http://app.example/
GET http://app.example/a.js
GET http://app.example/route/of/app?x=1
GET http://app.example/api/x
GET http://php.example/
GET http://php.example/f.txt
GET http://php.example/made/up?x=1
GET http://php.example/script.php?a=1
GET http://php.example/script.php/more?a=1
GET http://proxy.example/assets/app.css
GET http://proxy.example/assets/other
GET http://proxy.example/x
GET http://proxy.example/local/x
";

struct Caddy(Child);

impl Caddy {
    fn start(folder: &TempFolder, address: SocketAddr) -> Option<Caddy> {
        let mut command = Command::new("/usr/bin/caddy");
        command.args(["run", "--adapter", "caddyfile", "--config"]);
        command.arg(folder.path().join("Caddyfile"));
        // Its folders for certificates and the last configuration.
        command.env("HOME", folder.path());
        command.env("XDG_DATA_HOME", folder.path());
        command.env("XDG_CONFIG_HOME", folder.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut caddy = Caddy(command.spawn().ok()?);
        wait_until("caddy", || {
            let has_ended = caddy.0.try_wait().ok().flatten();
            assert!(has_ended.is_none(), "caddy ended: {has_ended:?}");
            TcpStream::connect(address).ok()
        });
        Some(caddy)
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fill(folder: &TempFolder) {
    for name in [
        "root/index.html",
        "root/page.html",
        "root/docs/index.html",
        "root/docs/page.html",
        "root/docs/a.key",
        "root/assets/app.css",
        "root/secret/a",
        "root/blocked/b.txt",
        "elsewhere/b.txt",
        "app/index.html",
        "app/a.js",
        "front/f.txt",
    ] {
        folder.file(name, format!("the content of {name}\n"));
    }
    let php = "<?php header('Content-Type: text/plain'); echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ',\
               $_SERVER['QUERY_STRING'], ' ', $_SERVER['COLOUR'] ?? '', ' ', $_SERVER['PATH_INFO'] ?? '';";
    folder.file("front/script.php", php);
    folder.file(
        "front/index.php",
        "<?php echo 'front ', $_SERVER['REQUEST_URI'];",
    );
}

fn origin(name: &'static str) -> TestOrigin {
    TestOrigin::with_response(move |request| {
        let host = request.field("host").unwrap_or_default().to_string();
        let extra = request.field("x-extra").unwrap_or_default().to_string();
        let body = format!(
            "{name}: {} {} host={host} extra={extra}",
            request.method, request.target
        );
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    })
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn translated_caddyfile_answers_as_caddy_does() {
    const NAME: &str = "translated_caddyfile_answers_as_caddy_does";
    if !Path::new("/usr/bin/caddy").exists() {
        skip(NAME, "caddy is not installed");
        return;
    }
    let folder = TempFolder::new();
    let Some(_fpm) = Fpm::start(&folder) else {
        skip(NAME, "php-fpm is not installed");
        return;
    };
    fill(&folder);
    let (first, other) = (origin("first"), origin("other"));
    // Caddy can't report a port that the kernel chooses, so a free one is looked for.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let path = folder.path().display().to_string();
    let config = CADDYFILE
        .replace("DIR", &path)
        .replace("PORT", &address.port().to_string())
        .replace("ORIGIN", first.url().trim_start_matches("http://"))
        .replace("OTHER", other.url().trim_start_matches("http://"));
    let caddyfile = folder.file("Caddyfile", config).display().to_string();
    let _caddy = Caddy::start(&folder, address).expect("caddy starts");

    let output = format!("{path}/imported.toml");
    let import = run(&["import", "caddy", &caddyfile, "-o", &output]);
    assert!(import.status.success(), "{}", text(&import.stderr));
    let imported = std::fs::read_to_string(&output).expect("the configuration");
    let imported = imported.replace(&address.to_string(), "127.0.0.1:0");
    let imported = format!("[server]\nadmin = \"{path}/admin.sock\"\n{imported}");
    let server = TestServer::run(PROGRAM, &folder, &imported);
    let list = folder.file("requests", REQUESTS).display().to_string();
    let (from, to) = (
        format!("http://{address}"),
        format!("http://{}", server.address()),
    );
    let compared = run(&[
        "compare",
        &list,
        "--from",
        &from,
        "--to",
        &to,
        "--host",
        "site.example",
        "--rate",
        "1000",
        "-H",
        "X-In: inside",
    ]);
    assert!(
        compared.status.success(),
        "{}\n{}\n{imported}",
        text(&compared.stdout),
        text(&compared.stderr)
    );
}
