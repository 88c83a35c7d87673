//! The hosted image on a tap device responds like the server.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use lowroad_testkit::net::{self, NetNamespace};
use lowroad_testkit::{ClientResponse, TempFolder, TestClient, TestServer, skip};

use crate::place::{PROGRAM, RunningCommand};

/// The value of `--ip`.
pub const IP: &str = "198.18.0.2/24,198.18.0.1";
/// The image's address.
pub const IMAGE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2)), 80);

/// A running hosted image in a new network namespace.
pub struct Hosted {
    /// The namespace, in which this host has the address 198.18.0.1.
    pub namespace: NetNamespace,
    running: RunningCommand,
}

impl Hosted {
    /// Starts the image and waits until it has its address.
    pub fn start(site: &TempFolder, more: &[&str]) -> Hosted {
        let namespace = NetNamespace::new("hosted").expect("root may");
        let mut command = Command::new(PROGRAM);
        command.args(["image", "run", "--hosted", "tap0", "--ip", IP]);
        command.args(more).arg(site.path());
        namespace.prepare(&mut command);
        let running = RunningCommand::start(command);
        running.wait_for("http://198.18.0.2/");
        Hosted { namespace, running }
    }

    /// Stops the image and waits for its end.
    pub fn stop(self) -> ExitStatus {
        self.running.stop()
    }

    /// Connects to the image.
    pub fn connect(&self) -> TestClient {
        self.namespace.enter(|| TestClient::connect(IMAGE))
    }
}

/// Whether this system can run such tests; if not, reports a skip.
pub fn can_run(test: &str) -> bool {
    let reason = net::missing_requirement().or_else(|| {
        let tun = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun");
        tun.err().map(|error| format!("/dev/net/tun: {error}"))
    });
    if let Some(reason) = &reason {
        skip(test, reason);
    }
    reason.is_none()
}

/// The parts of a response that must be equal: status, fields in order except Date, and body.
fn comparable_response(response: &ClientResponse) -> (u16, String, Vec<u8>) {
    (
        response.status,
        response.dateless_head(),
        response.body.clone(),
    )
}

#[test]
fn hosted_image_responds_like_the_server() {
    if !can_run("hosted_image_responds_like_the_server") {
        return;
    }
    let site = TempFolder::new();
    site.file("index.html", "<p>text that repeats itself</p>".repeat(300));
    site.file("a b/index.html", "short");
    site.file(
        "long.bin",
        (0..3_000_000u32)
            .map(|at| (at >> 8) as u8)
            .collect::<Vec<u8>>(),
    );
    site.file("empty/x.css", "p { color: red }");
    site.file("404.html", "nothing here");
    let hosted = Hosted::start(&site, &[]);
    // The server derives ETags from contents, as the image does.
    let config = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\netag = \"content\"\n\
         [site.error_pages]\n404 = \"/404.html\"\n",
        site.path().display()
    );
    let server = TestServer::run(PROGRAM, &TempFolder::new(), &config);
    let mut of_image = hosted.connect();
    let mut of_server = server.connect();
    for (path, fields) in [
        ("/", ""),
        ("/", "Accept-Encoding: br\r\n"),
        ("/", "Accept-Encoding: gzip\r\n"),
        ("/", "Accept-Encoding: gzip;q=0\r\n"),
        ("/", "Range: bytes=5-100\r\n"),
        ("/", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"),
        ("/", "If-None-Match: *\r\n"),
        ("/index.html", ""),
        ("/a%20b/", ""),
        ("/a%20b", ""),
        ("/a%20b?x=y", ""),
        ("/long.bin", ""),
        ("/long.bin", "Range: bytes=-70000\r\n"),
        ("/empty/x.css", ""),
        ("/empty/", ""),
        ("/none", ""),
        ("/.hidden", ""),
    ] {
        let (image, server) = (of_image.get(path, fields), of_server.get(path, fields));
        assert_eq!(
            comparable_response(&image),
            comparable_response(&server),
            "{path} {fields}"
        );
    }
    assert!(hosted.stop().success());
}

/// Sends bytes and a plain request. Returns all responses until the connection closes, without Date.
fn responses_until_close(mut stream: TcpStream, request: &str) -> String {
    let end = "GET /x.css HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).expect("a socket");
    stream
        .write_all(format!("{request}{end}").as_bytes())
        .expect("it is read");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the end");
    let text = String::from_utf8(bytes).expect("text");
    let lines = text.split_inclusive("\r\n");
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

#[test]
fn hosted_image_answers_odd_requests_like_the_server() {
    if !can_run("hosted_image_answers_odd_requests_like_the_server") {
        return;
    }
    let site = TempFolder::new();
    site.file("x.css", "p { color: red }");
    let hosted = Hosted::start(&site, &[]);
    let config = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{}\"\netag = \"content\"\n",
        site.path().display()
    );
    let server = TestServer::run(PROGRAM, &TempFolder::new(), &config);
    let mut requests = Vec::new();
    for method in ["GET", "HEAD", "OPTIONS", "POST"] {
        let slashes = "/".repeat(5000) + "x.css";
        let encoded = "/".to_owned() + &"%61".repeat(1000);
        let long = "/".to_owned() + &"a".repeat(8192);
        for target in [
            "/%", "/%zz", "/%00", "/%2f", "/a\\b", "/../x", "/%2e%2e/", "/x#y", "/a b", "*",
            "ftp://a/", "http://", "a:443", "", &slashes, &encoded, &long,
        ] {
            requests.push(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        }
        for version in ["HTTP/1.0", "HTTP/1.2", "HTTP/3.0", "http/1.1"] {
            requests.push(format!("{method} /x.css {version}\r\nHost: a\r\n\r\n"));
        }
        for fields in [
            "",
            "Host: a\r\nHost: b\r\n",
            "Host: a\r\nX : y\r\n",
            "Host: a\r\nExpect: x\r\n",
        ] {
            requests.push(format!("{method} /x.css HTTP/1.1\r\n{fields}\r\n"));
        }
    }
    for method in ["GET", "HEAD"] {
        for (fields, body) in [
            ("Content-Length: 5", "hello"),
            ("Content-Length: +5", "hello"),
            ("Content-Length: 2000000", ""),
            ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
            ("Transfer-Encoding: chunked", "zz\r\n"),
            ("Transfer-Encoding: gzip", ""),
        ] {
            for path in ["/x.css", "/none"] {
                requests.push(format!(
                    "{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}"
                ));
            }
        }
    }
    for method in ["CONNECT", "TRACE", "PUT"] {
        requests.push(format!("{method} a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"));
        requests.push(format!("{method} /x.css HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    let mut different = Vec::new();
    for request in &requests {
        let image = hosted.namespace.enter(|| TcpStream::connect(IMAGE));
        let image = responses_until_close(image.expect("a connection"), request);
        let server = TcpStream::connect(server.address()).expect("a connection");
        let server = responses_until_close(server, request);
        if image != server {
            let begin = |text: &str| text.chars().take(400).collect::<String>();
            different.push(format!(
                "{}\nimage: {}\nserver: {}",
                begin(request),
                begin(&image),
                begin(&server)
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n\n"));
    assert!(hosted.stop().success());
}

#[test]
fn failure_to_create_tap_device_is_reported() {
    let site = TempFolder::new();
    let site = site.path().display().to_string();
    let refused = crate::place::image(&["run", "--hosted", "no/name", &site]);
    let refused = refused.expect_err("no name");
    assert!(
        refused.contains("not the name of a network device"),
        "{refused}"
    );
}
