//! The limits of connections and streams to origins: those of the configuration, and those of the origin.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use lowroad_http::h2::frame::{kind, put_settings};
use lowroad_http::h2::{ErrorCode, id};
use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::status::scrape;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};

use crate::h2_origin::{H2Origin, OriginConnection, ReceivedFrame};
use crate::peer::Peer;
use crate::place::PROGRAM;

/// A configuration with two origins at `url`, for paths below `/a/` and `/b/`.
fn two_origins(url: &str, a: &str, b: &str) -> String {
    format!(
        "[server]\nworkers = 1\nadmin = \"admin.sock\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \".\"\n\
         [[site.route]]\npattern = \"/a/**\"\norigin = \"a\"\n[[site.route]]\npattern = \"/b/**\"\norigin = \"b\"\n\
         [[origin]]\nname = \"a\"\nservers = \"{url}\"\n{a}\n[[origin]]\nname = \"b\"\nservers = \"{url}\"\n{b}\n"
    )
}

/// The value of a metric of the origin `name`.
fn metric(folder: &TempFolder, metric: &str, name: &str) -> u64 {
    let text = scrape(&folder.path().join("admin.sock"));
    let label = format!("origin=\"{name}\"");
    let lines = text.lines().filter(|line| line.starts_with(metric));
    let line = lines.into_iter().find(|line| line.contains(&label));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("no {metric} of {name} in {text}"))
}

/// A script that answers requests, except those that contain `held`.
fn answer_unless_held(connection: &mut OriginConnection, frame: &ReceivedFrame) -> bool {
    if let (kind::HEADERS, Some(path)) = (frame.head.kind, frame.field(":path"))
        && !path.contains("held")
    {
        connection.respond(frame.head.stream, path);
    }
    true
}

/// An origin that answers a request for each message.
fn holding_origin() -> (TestOrigin, Sender<()>) {
    let (release, messages) = channel();
    let messages = Mutex::new(messages);
    let origin = TestOrigin::start(move |_, stream| {
        let message = messages.lock().expect("no panic").recv();
        let response = b"HTTP/1.1 204 No Content\r\n\r\n";
        message.is_ok() && stream.write_all(response).is_ok()
    });
    (origin, release)
}

/// Sends a request without waiting for the response.
fn send_get(front: &TestServer, path: &str) -> TestClient {
    let mut client = front.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    client
}

#[test]
fn origins_with_the_same_server_have_their_own_connections() {
    let origin = H2Origin::start(&[], answer_unless_held);
    let folder = TempFolder::new();
    let config = two_origins(&origin.url(), "connections = 1", "connections = 1");
    let front = TestServer::run(PROGRAM, &folder, &config);
    let _held = send_get(&front, "/a/held");
    wait_until("the first request", || {
        (origin.requests().len() == 1).then_some(())
    });
    assert_eq!(front.get("/b/x").text(), "/b/x");
    assert_eq!(front.get("/a/x").text(), "/a/x");
    assert_eq!(origin.connections(), 2);
    for name in ["a", "b"] {
        let opened = metric(&folder, "lowroad_upstream_connections_opened_total", name);
        assert_eq!(opened, 1, "{name}");
    }
}

#[test]
fn limit_of_one_origin_is_not_raised_by_another() {
    let (origin, release) = holding_origin();
    let folder = TempFolder::new();
    let config = two_origins(&origin.url(), "connections = 1", "connections = 2");
    let front = TestServer::run(PROGRAM, &folder, &config);
    let waiting = |name| metric(&folder, "lowroad_upstream_waiting_requests", name);
    let mut clients = vec![send_get(&front, "/a/first")];
    wait_until("the first request", || (origin.count() == 1).then_some(()));
    clients.push(send_get(&front, "/a/second"));
    wait_until("a request to wait", || (waiting("a") == 1).then_some(()));
    clients.extend(["/b/first", "/b/second"].map(|path| send_get(&front, path)));
    wait_until("both requests", || (origin.count() == 3).then_some(()));
    assert_eq!(waiting("b"), 0);
    for _ in &clients {
        release.send(()).expect("the origin waits");
    }
    for mut client in clients {
        assert_eq!(client.response().status, 204);
    }
}

/// The limit of the new configuration holds, be it larger or smaller.
#[test]
fn reload_changes_the_limit_of_connections() {
    let (origin, release) = holding_origin();
    let folder = TempFolder::new();
    let config = |connections| {
        let limit = format!("connections = {connections}");
        two_origins(&origin.url(), &limit, &limit)
    };
    let front = TestServer::run(PROGRAM, &folder, &config(1));
    let waiting = || metric(&folder, "lowroad_upstream_waiting_requests", "a");
    let reload = |connections| {
        folder.file("lowroad.toml", config(connections));
        front.signal("HUP");
        front.wait_for_error_line("is in force");
    };
    // Sends two requests, and returns whether one of them waits.
    let one_waits = || {
        let count = origin.count();
        let clients = ["/a/first", "/a/second"].map(|path| send_get(&front, path));
        let sum = || origin.count() - count + waiting() as usize;
        wait_until("both requests", || (sum() == 2).then_some(()));
        let one_waits = waiting() == 1;
        for _ in &clients {
            release.send(()).expect("the origin waits");
        }
        for mut client in clients {
            assert_eq!(client.response().status, 204);
        }
        one_waits
    };
    assert!(one_waits());
    for (connections, waits) in [(2, false), (1, true)] {
        reload(connections);
        // The previous configuration is dropped a moment after the reload.
        wait_until("the limit", || (one_waits() == waits).then_some(()));
    }
}

/// A stream of the configuration before a reload may last for hours.
#[test]
fn connection_is_shared_with_the_configuration_before_a_reload() {
    let origin = H2Origin::start(&[], answer_unless_held);
    let folder = TempFolder::new();
    let config = two_origins(&origin.url(), "connections = 1", "");
    let front = TestServer::run(PROGRAM, &folder, &config);
    let _held = send_get(&front, "/a/held");
    wait_until("the first request", || {
        (origin.requests().len() == 1).then_some(())
    });
    folder.file(
        "lowroad.toml",
        config.replace("connections = 1", "connections = 1\ntries = 1"),
    );
    front.signal("HUP");
    front.wait_for_error_line("is in force");
    assert_eq!(front.get("/a/x").text(), "/a/x");
    assert_eq!(origin.connections(), 1);
    let opened = metric(&folder, "lowroad_upstream_connections_opened_total", "a");
    assert_eq!(opened, 1);
}

/// The origin allows no requests from the start, and has connections left: no request is sent, and none waits for longer
/// than the connect timeout.
#[test]
fn origin_that_never_allows_requests_fails_within_the_connect_timeout() {
    let origin = H2Origin::start(&[(id::MAX_CONCURRENT_STREAMS, 0)], |_, _| true);
    let folder = TempFolder::new();
    let config = two_origins(
        &origin.url(),
        "connections = 2\nconnect_timeout = \"300ms\"\ntimeout = \"1h\"",
        "",
    );
    let front = TestServer::run(PROGRAM, &folder, &config);
    for _ in 0..3 {
        assert_eq!(front.get("/a/x").status, 504);
    }
    front.wait_for_error_line("allows no requests on its connection");
    assert_eq!(origin.requests().len(), 0);
}

/// The first requests arrive at once, before the origin's settings.
#[test]
fn burst_of_unsafe_requests_on_a_new_connection_loses_none() {
    let busy: Mutex<HashMap<usize, u32>> = Mutex::default();
    let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        let stream = frame.head.stream;
        let mut busy = busy.lock().expect("no panic");
        match frame.head.kind {
            // One stream at a time (RFC 9113 §5.1.2).
            kind::HEADERS if busy.contains_key(&connection.number) => {
                connection.reset(stream, ErrorCode::REFUSED_STREAM);
            }
            kind::HEADERS => drop(busy.insert(connection.number, stream)),
            kind::DATA if frame.ends_request() && busy.get(&connection.number) == Some(&stream) => {
                busy.remove(&connection.number);
                connection.respond(stream, "done");
            }
            _ => {}
        }
        true
    };
    let origin = H2Origin::start(&[(id::MAX_CONCURRENT_STREAMS, 1)], script);
    let folder = TempFolder::new();
    let config = two_origins(&origin.url(), "connections = 3", "");
    let front = TestServer::run(PROGRAM, &folder, &config);
    let mut peer = Peer::connect(front.address());
    let streams: Vec<u32> = (0..12).map(|_| peer.begin_post("/a/x", b"")).collect();
    for stream in &streams {
        peer.send_in_tunnel(*stream, b"body");
        peer.end_tunnel(*stream);
    }
    for stream in streams {
        assert_eq!(peer.receive_response(stream).status, 200);
    }
    assert_eq!(origin.requests().len(), 12);
}

/// A server may send its SETTINGS together with its first response only.
#[test]
fn origin_gets_requests_before_its_settings() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS {
            let mut settings = Vec::new();
            put_settings(&[], &mut settings);
            connection.raw(&settings);
        }
        answer_unless_held(connection, frame)
    };
    let origin = H2Origin::with_first_bytes(Vec::new(), script);
    let folder = TempFolder::new();
    let config = two_origins(&origin.url(), "connections = 1", "");
    let front = TestServer::run(PROGRAM, &folder, &config);
    let mut clients = ["/a/1", "/a/2"].map(|path| send_get(&front, path));
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(origin.connections(), 1);
}
