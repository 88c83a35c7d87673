//! Graceful shutdown: requests in progress are answered, new connections are refused, and no request in between is
//! lost. `start` tests the start, `reload` tests new configurations.

mod hardening;
mod panics;
mod upgrade;
mod upgrade_changes;

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::{
    ClientResponse, TEST_TIMEOUT, TempFolder, TestClient, TestServer, wait_until,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_lowroad");
const LARGE: usize = 48 << 20;

fn site() -> TempFolder {
    let folder = TempFolder::new();
    folder.file("small", "hello");
    folder.file("medium", vec![b'm'; 100_000]);
    folder.file("large", vec![b'l'; 2 << 20]);
    folder
}

/// Starts a server for the folder, with these lines in `[server]`.
fn run(folder: &TempFolder, server: &str) -> TestServer {
    let root = folder.path().display();
    let config =
        format!("[server]\n{server}\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{root}\"\n");
    TestServer::run(PROGRAM, folder, &config)
}

/// A client that sends requests one after another until no server listens.
struct ClosedLoop {
    address: SocketAddr,
    keep_alive: bool,
}

/// The results of all closed loops.
#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    /// Requests on open connections that got no complete response.
    lost: AtomicUsize,
}

impl ClosedLoop {
    fn run(&self, tally: &Tally) {
        let start = Instant::now();
        while let Ok(stream) = TcpStream::connect(self.address) {
            assert!(start.elapsed() < TEST_TIMEOUT, "the server does not end");
            let mut client = TestClient::new(stream);
            while self.one(&mut client, tally) {}
        }
    }

    /// Sends one request. Returns whether the connection can be reused.
    fn one(&self, client: &mut TestClient, tally: &Tally) -> bool {
        let paths = [
            ("small", 5),
            ("medium", 100_000),
            ("missing", 0),
            ("large", 2 << 20),
        ];
        let (path, len) = paths[tally.answered.load(Relaxed) % paths.len()];
        let connection = if self.keep_alive {
            "keep-alive"
        } else {
            "close"
        };
        client.send(format!(
            "GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n"
        ));
        match client.whole_response() {
            Some(got) if got.body.len() == len || got.status == 404 => {
                tally.answered.fetch_add(1, Relaxed);
                got.field("connection") != Some("close")
            }
            _ => {
                tally.lost.fetch_add(1, Relaxed);
                false
            }
        }
    }
}

#[test]
fn drain_under_load_loses_no_request() {
    let folder = site();
    let mut server = run(&folder, "workers = 2");
    let tally = Tally::default();
    let address = server.address();
    thread::scope(|scope| {
        for number in 0..8 {
            let client = ClosedLoop {
                address,
                // Persistent connections test responses in progress, new connections test the closing of the listeners.
                keep_alive: number % 2 == 0,
            };
            let tally = &tally;
            scope.spawn(move || client.run(tally));
        }
        wait_until("some load", || {
            // Enough requests that all kinds are in progress when the signal arrives.
            (tally.answered.load(Relaxed) > 200).then_some(())
        });
        server.signal("TERM");
    });
    assert_eq!(tally.lost.load(Relaxed), 0);
    assert!(server.wait_for_end().success());
}

/// Receives the last response of a connection.
fn expect_last(client: &mut TestClient, len: usize) -> ClientResponse {
    let got = client.response();
    assert_eq!((got.status, got.body.len()), (200, len));
    assert_eq!(got.field("connection"), Some("close"));
    assert!(client.wait_for_close());
    got
}

#[test]
fn drain_completes_requests_in_progress() {
    let folder = site();
    folder.zeros("huge", LARGE as u64);
    let mut server = run(&folder, "workers = 1");
    let mut idle = server.connect();
    assert_eq!(idle.get("/small", "").text(), "hello");
    let mut halfway = server.connect();
    // The request has begun with an incomplete head, so it is answered.
    halfway.send("GET /small HTTP/1.1\r\nHost: a");
    let mut body = server.connect();
    // An incomplete body.
    body.send("GET /medium HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
    let mut slow = server.connect();
    slow.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(slow.receive_once());
    let mut pipelined = server.connect();
    pipelined.send("GET /medium HTTP/1.1\r\nHost: a\r\n\r\n".repeat(400));
    assert!(pipelined.receive_once());

    server.signal("TERM");
    server.wait_for_error_line("draining");
    // A connection that already had a response gets one more, because the client may have sent a request before the
    // drain.
    idle.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_last(&mut idle, 2 << 20);
    halfway.send("\r\n\r\n");
    expect_last(&mut halfway, 5);
    body.send("cde\r\n0\r\n\r\n");
    expect_last(&mut body, 100_000);
    // The head of this response was sent before the drain, so it has no `Connection: close`.
    let got = slow.response();
    assert!(got.body.len() == LARGE && got.body.iter().all(|b| *b == 0));
    // One of the later responses has `Connection: close`.
    let answers = (1..=400).find(|_| pipelined.response().field("connection").is_some());
    assert!(answers.is_some() && pipelined.wait_for_close());
    assert!(server.wait_for_end().success());
    // The listeners are closed, so new connections are refused.
    assert!(TcpStream::connect(server.address()).is_err());
}

#[test]
fn drain_closes_idle_connections_immediately() {
    let folder = site();
    let mut server = run(&folder, "drain_timeout = \"1h\"");
    let mut used = server.connect();
    assert_eq!(used.get("/small", "").status, 200);
    server.signal("INT");
    // Idle connections have no request in progress, so they do not wait for the long drain timeout.
    assert!(used.wait_for_close() && used.received.is_empty());
    assert!(server.wait_for_end().success());
}

/// A server with a client that does not read a long response.
fn stuck(server: &str) -> (TempFolder, TestServer, TestClient) {
    let folder = TempFolder::new();
    folder.zeros("huge", LARGE as u64);
    let server = run(&folder, server);
    let mut client = server.connect();
    client.send("GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_once());
    (folder, server, client)
}

#[test]
fn drain_timeout_ends_stuck_connections() {
    let (_folder, mut server, mut client) = stuck("drain_timeout = \"300ms\"");
    let start = Instant::now();
    server.signal("TERM");
    assert!(server.wait_for_end().success());
    // Not earlier than the timeout: until then, the client could still have read the response.
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(client.whole_response(), None);
}

#[test]
fn second_signal_ends_server_without_drain() {
    let (_folder, mut server, mut client) = stuck("drain_timeout = \"1h\"");
    server.signal("TERM");
    server.wait_for_error_line("draining: 1 connections, at most 3600000 ms");
    assert!(server.is_running());
    server.signal("TERM");
    server.wait_for_error_line("second signal");
    assert!(server.wait_for_end().success());
    assert_eq!(client.whole_response(), None);
}

/// The server's unreaped children, as folders in /proc.
fn children(server: &TestServer) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("/proc");
    let lists = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists = lists.collect::<Vec<_>>().join(" ");
    let folders = lists
        .split_whitespace()
        .map(|pid| format!("/proc/{pid}").into());
    folders.collect()
}

/// A supervisor kills processes that outlive the server, and reports them.
#[test]
fn child_processes_end_with_the_server() {
    let folder = TempFolder::new();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a mode");
    let script = folder.file(
        "cgi/say",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\nContent-Length: 3\\n\\ncgi'\n",
    );
    fs::set_permissions(script, Permissions::from_mode(0o755)).expect("a mode");
    let at = folder.path().display();
    let config = format!(
        "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{at}\"\n\
         [[site.route]]\npattern = \"/cgi/**\"\ncgi = \"{at}/cgi\"\n"
    );
    let mut server = TestServer::run(PROGRAM, &folder, &config);
    assert_eq!(server.get("/cgi/say").text(), "cgi");
    let children = children(&server);
    assert!(!children.is_empty(), "one starts CGI programs");
    server.signal("TERM");
    server.wait_for_end();
    for child in children {
        assert!(!child.exists(), "{}", child.display());
    }
}
