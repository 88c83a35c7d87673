//! The disk cache: responses that do not fit into memory are stored completely and correctly. They survive a stop or a
//! kill of the server.

mod copies;
mod faults;
mod kills;
mod late;
mod purges;
mod sizes;
mod variants;

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{ClientResponse, TempFolder, TestServer, wait_until};

use crate::front::PROGRAM;

/// More than an object in memory may have with `cache = "1M"`.
const LEN: usize = 3_000_000;

/// A server with a disk cache, which can be restarted.
struct Host {
    folder: TempFolder,
    origin: TestOrigin,
    /// Additional configuration lines of the site.
    site: String,
    /// The size of its memory cache.
    cache: &'static str,
    server: Option<TestServer>,
}

impl Host {
    fn new(origin: TestOrigin) -> Host {
        Host::with(origin, "1M", "")
    }

    /// Starts a server with this memory cache and these lines in its site.
    fn with(origin: TestOrigin, cache: &'static str, site: &str) -> Host {
        let mut host = Host {
            folder: TempFolder::new(),
            origin,
            site: site.into(),
            cache,
            server: None,
        };
        host.start();
        host
    }

    /// Starts the server. Kills it first if it runs.
    fn start(&mut self) {
        self.server = None;
        let admin = self.folder.path().join("admin.sock");
        let _ = std::fs::remove_file(&admin);
        let config = format!(
            "[server]\nworkers = 1\ncache = {:?}\ndisk_cache = \"cache\"\ndisk_cache_max = \"64M\"\nadmin = {admin:?}\n\
             [[site]]\nlisten = \"127.0.0.1:0\"\n{}\n[[site.route]]\npattern = \"/**\"\norigin = {:?}\n",
            self.cache,
            self.site,
            self.origin.url(),
        );
        self.server = Some(TestServer::run(PROGRAM, &self.folder, &config));
    }

    fn server(&self) -> &TestServer {
        self.server.as_ref().expect("it runs")
    }

    fn get(&self, path: &str, fields: &str) -> ClientResponse {
        self.server().connect().get(path, fields)
    }

    /// Sends a request without a body on a new connection.
    fn request(&self, method: &str, path: &str, fields: &str) -> ClientResponse {
        let mut client = self.server().connect();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        match method {
            "HEAD" => client.response_to_head(),
            _ => client.response(),
        }
    }

    fn run_command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("--admin");
        let said = command.arg(self.folder.path().join("admin.sock")).output();
        let said = said.expect("the command");
        String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr)
    }

    fn status(&self) -> StatusClient {
        StatusClient::new(PROGRAM, self.folder.path().join("admin.sock"))
    }

    /// Sends a GET, and waits until the disk has this many objects.
    fn get_until_stored(&self, path: &str, objects: u64) -> ClientResponse {
        let got = self.get(path, "");
        self.status().wait_for("disk_objects", objects);
        got
    }
}

/// A long body derived from the path and a number.
fn body(path: &str, number: usize, len: usize) -> Vec<u8> {
    let unit = format!("{path} {number} ");
    let mut body = unit.repeat(len / unit.len() + 1).into_bytes();
    body.truncate(len);
    body
}

/// An origin that sends these fields and a long body, which is derived from the path and the number of the request.
fn long(fields: &'static str) -> TestOrigin {
    TestOrigin::start(move |request, stream| {
        let body = body(&request.target, request.number, LEN);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n{fields}\r\n");
        stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
    })
}

#[test]
fn long_response_is_found_on_disk_after_kill() {
    let mut host = Host::new(long(
        "Cache-Control: max-age=600\r\nETag: \"e\"\r\nX-Own: 1\r\n",
    ));
    let first = body("/a", 0, LEN);
    assert_eq!(host.get_until_stored("/a", 1).body, first);
    assert_eq!(host.get("/a", "").body, first);
    for _ in 0..2 {
        host.start();
        let said = host.run_command(&["explain", &format!("http://{}/a", host.server().address())]);
        // The command purged the resource under another Host than the test's requests have.
        assert!(said.contains("not requested recently"), "{said}");
        let got = host.get("/a", "");
        assert_eq!((got.status, got.field("x-own")), (200, Some("1")));
        assert!(got.field("age").is_some(), "{}", got.dateless_head());
        let said = got.field("cache-status").unwrap_or_default();
        assert!(said.ends_with("detail=disk"), "{said}");
        assert_eq!(got.field("content-length"), Some("3000000"));
        assert!(got.body == first);
        let part = host.get("/a", "Range: bytes=1000000-1000999\r\n");
        assert_eq!(part.status, 206);
        assert!(part.body == first[1_000_000..1_001_000]);
        let parts = host.get("/a", "Range: bytes=0-9,2999990-\r\n");
        assert_eq!(parts.status, 206);
        assert_eq!(host.get("/a", "If-None-Match: \"e\"\r\n").status, 304);
        assert_eq!(host.origin.count(), 1);
    }
}

#[test]
fn explain_shows_memory_or_disk() {
    let host = Host::new(long("Cache-Control: max-age=600\r\n"));
    let authority = host.server().address().to_string();
    let ask = || {
        let mut client = host.server().connect();
        client.send(format!("GET /a HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        client.response();
        host.status().wait_for("disk_objects", 1);
        host.run_command(&["explain", &format!("http://{authority}/a")])
    };
    let said = ask();
    assert!(said.contains("on the disk, 3000000 bytes"), "{said}");
    let said = ask();
    assert!(said.contains("its head in memory"), "{said}");
}

#[test]
fn body_without_length_is_stored_and_incomplete_body_is_not() {
    let origin = TestOrigin::start(|request, stream| {
        let head =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nCache-Control: max-age=600\r\n\r\n";
        let body = body(&request.target, 0, LEN);
        let chunk = format!("{LEN:x}\r\n");
        let end: &[u8] = if request.target == "/cut" {
            b""
        } else {
            b"\r\n0\r\n\r\n"
        };
        let all = [head.as_bytes(), chunk.as_bytes(), &body, end].concat();
        stream.write_all(&all).is_ok() && !end.is_empty()
    });
    let mut host = Host::new(origin);
    for path in ["/a", "/cut"] {
        // HTTP/1.0 clients find the end of the body by the end of the connection.
        let mut client = host.server().connect();
        client.send(format!("GET {path} HTTP/1.0\r\nHost: test\r\n\r\n"));
        client.wait_for_close();
    }
    host.status().wait_for("disk_stored", 1);
    host.status().wait_for("disk_abandoned", 1);
    host.start();
    assert_eq!(host.get("/a", "").body, body("/a", 0, LEN));
    assert_eq!(host.status().value("disk_objects"), 1);
    assert_eq!(host.origin.count(), 2);
}

#[test]
fn incomplete_body_is_not_found_after_kill() {
    let sent = Arc::new(AtomicUsize::new(0));
    let told = sent.clone();
    let origin = TestOrigin::start(move |request: &OriginRequest, stream| {
        let body = body(&request.target, request.number, LEN);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nCache-Control: max-age=600\r\n\r\n"
        );
        let len = if request.number == 0 { LEN - 1 } else { LEN };
        let is_sent = stream.write_all(&[head.as_bytes(), &body[..len]].concat());
        told.fetch_add(1, SeqCst);
        // The first response is never completed.
        is_sent.is_ok()
    });
    let mut host = Host::new(origin);
    let mut client = host.server().connect();
    client.send("GET /a HTTP/1.1\r\nHost: test\r\n\r\n");
    wait_until("nearly all", || (sent.load(SeqCst) == 1).then_some(()));
    wait_until("some on the disk", || {
        (host.status().value("disk_bytes") > 0).then_some(())
    });
    host.start();
    assert_eq!(host.status().value("disk_objects"), 0);
    assert_eq!(host.get("/a", "").body, body("/a", 1, LEN));
}

#[test]
fn purged_response_is_not_found_after_restart() {
    let mut host = Host::new(long("Cache-Control: max-age=600\r\nCache-Tag: news\r\n"));
    for (number, what) in ["http://test/a", "tag:news", "all", "http://test/*"]
        .iter()
        .enumerate()
    {
        assert_eq!(
            host.get_until_stored("/a", 1).body,
            body("/a", number, LEN),
            "{what}"
        );
        assert_eq!(host.get("/a", "").body, body("/a", number, LEN), "{what}");
        host.run_command(&["purge", what]);
        if number % 2 == 0 {
            host.start();
        }
    }
    assert_eq!(host.get("/a", "").body, body("/a", 4, LEN));
    assert_eq!(host.origin.count(), 5);
}

#[test]
fn unsafe_method_invalidates_response_on_disk() {
    let mut host = Host::new(long("Cache-Control: max-age=600\r\n"));
    host.get_until_stored("/a", 1);
    host.start();
    let mut client = host.server().connect();
    client.send("POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(host.get("/a", "").body, body("/a", 2, LEN));
}

#[test]
fn disk_keeps_variants_apart() {
    let origin = TestOrigin::start(|request, stream| {
        let kind = request.field("x-kind").unwrap_or("none").to_string();
        let body = body(&kind, 0, LEN);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nVary: X-Kind\r\nCache-Control: max-age=600\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
    });
    let mut host = Host::new(origin);
    let kinds = ["a", "b"];
    for (at, kind) in kinds.iter().enumerate() {
        host.get("/", &format!("X-Kind: {kind}\r\n"));
        // Each resource has an additional object that records its Vary.
        host.status().wait_for("disk_objects", at as u64 + 2);
    }
    host.start();
    for kind in kinds {
        let got = host.get("/", &format!("X-Kind: {kind}\r\n"));
        assert_eq!(got.body, body(kind, 0, LEN));
    }
    assert_eq!(host.origin.count(), 2);
    assert_eq!(host.get("/", "").body, body("none", 0, LEN));
    assert_eq!(host.origin.count(), 3);
}

#[test]
fn stale_response_on_disk_is_validated() {
    let origin = TestOrigin::start(|request, stream| match request.field("if-none-match") {
        Some("\"e\"") => {
            let head =
                "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\nX-New: 1\r\n\r\n";
            stream.write_all(head.as_bytes()).is_ok()
        }
        _ => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nETag: \"e\"\r\nCache-Control: no-cache\r\n\r\n"
            );
            let body = body("/", 0, LEN);
            stream.write_all(&[head.as_bytes(), &body].concat()).is_ok()
        }
    });
    let mut host = Host::new(origin);
    host.get_until_stored("/", 1);
    host.start();
    for _ in 0..2 {
        let got = host.get("/", "");
        assert_eq!((got.status, got.field("x-new")), (200, Some("1")));
        assert!(got.body == body("/", 0, LEN));
    }
    assert_eq!(host.origin.count(), 2);
    // The stored fields also survive a restart.
    host.status().wait_for("disk_objects", 2);
    host.start();
    let got = host.get("/", "");
    assert_eq!((got.status, got.field("x-new")), (200, Some("1")));
    assert!(got.body == body("/", 0, LEN));
    assert_eq!(host.origin.count(), 2);
    host.run_command(&["purge", "all"]);
    host.start();
    assert!(host.get("/", "").body == body("/", 0, LEN));
    assert_eq!(host.origin.requests()[2].field("if-none-match"), None);
}

#[test]
fn other_configuration_does_not_use_stored_responses() {
    let mut host = Host::new(long("Cache-Control: max-age=600\r\n"));
    host.get_until_stored("/a", 1);
    host.site = "[[site.header]]\nset = { X-Own = \"1\" }".into();
    host.start();
    let got = host.get("/a", "");
    assert_eq!(got.field("x-own"), Some("1"));
    assert!(got.body == body("/a", 1, LEN));
}

#[test]
fn disk_cache_keeps_its_size_limit() {
    let host = Host::new(long("Cache-Control: max-age=600\r\n"));
    for number in 0..40 {
        let path = format!("/{number}");
        assert!(host.get(&path, "").body == body(&path, number, LEN));
    }
    let status = host.status();
    wait_until("all written", || {
        (status.value("disk_stored") == 40).then_some(())
    });
    assert!(status.value("disk_bytes") <= 64 << 20);
    assert!(status.value("disk_evicted") > 0);
    assert!(host.get("/39", "").body == body("/39", 39, LEN));
    assert_eq!(host.origin.count(), 40);
}

#[test]
fn folder_belongs_to_one_server() {
    let host = Host::new(long(""));
    let folder = host.folder.path().join("cache").display().to_string();
    let said = Command::new(PROGRAM)
        .args([
            "accelerate",
            "http://127.0.0.1:1",
            "--listen",
            "127.0.0.1:0",
        ])
        .args(["--disk-cache", &folder])
        .output()
        .expect("the command");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success());
    assert!(text.contains("in use by another process"), "{text}");
}
