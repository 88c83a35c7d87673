//! Upgraded connections, especially WebSockets. Also other fields of forwarded requests that concern proxies.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use lowroad_testkit::origin::TestOrigin;
use lowroad_testkit::{TestServer, skip};

use crate::front::{PROGRAM, TestAccelerator, response};

const ASKS: &str = "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\nX: 1\r\n\r\n";

/// An origin that switches to a protocol "echo", until the client closes its side.
fn echo() -> TestOrigin {
    TestOrigin::start(|request, stream| {
        if request.field("upgrade") != Some("echo")
            || request.field("connection") != Some("upgrade")
        {
            return stream
                .write_all(response("200 OK", "", "as ever").as_bytes())
                .is_ok();
        }
        let _ = stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\nX-Kept: 1\r\n\r\nhello");
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            let _ = stream.write_all(&piece[..len]);
        }
        let _ = stream.write_all(b"bye");
        false
    })
}

#[test]
fn upgraded_connection_forwards_bytes_and_half_close() {
    let front = TestAccelerator::new(echo());
    let mut client = front.connect();
    client.send(ASKS);
    client.send("early");
    let switched = client.response();
    assert_eq!(switched.status, 101);
    assert_eq!(switched.field("upgrade"), Some("echo"));
    assert_eq!(switched.field("connection"), Some("upgrade"));
    assert_eq!(switched.field("x-kept"), Some("1"));
    let much = vec![b'x'; 1 << 20];
    let mut sending = client.stream().try_clone().expect("a descriptor");
    let sender = std::thread::spawn(move || {
        sending.write_all(&much).expect("sent");
        sending.shutdown(std::net::Shutdown::Write).expect("ended");
    });
    assert!(client.wait_for_close(), "in order");
    sender.join().expect("no panic");
    assert_eq!(client.received.len(), "helloearlybye".len() + (1 << 20));
    assert!(client.received.starts_with(b"helloearly") && client.received.ends_with(b"xbye"));
}

#[test]
fn upgrade_is_not_forwarded_without_complete_request() {
    let front = TestAccelerator::new(echo());
    assert_eq!(front.get("/a", "Upgrade: echo\r\n").text(), "as ever");
    assert_eq!(front.get("/b", "Connection: upgrade\r\n").text(), "as ever");
    let mut client = front.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\nContent-Length: 1\r\n\r\na");
    assert_eq!(client.response().text(), "as ever");
    for asked in front.origin.requests() {
        assert_eq!(
            (asked.field("upgrade"), asked.field("connection")),
            (None, None)
        );
    }
}

#[test]
fn connection_is_reused_after_refused_upgrade() {
    let front = TestAccelerator::with_response(|request| {
        response(
            "426 Upgrade Required",
            "Upgrade: other\r\n",
            &request.target,
        )
    });
    let mut client = front.connect();
    client.send(ASKS);
    let refused = client.response();
    assert_eq!((refused.status, refused.text()), (426, "/chat".into()));
    assert_eq!(client.get("/next", "").text(), "/next");
}

#[test]
fn status_101_without_upgrade_field_is_502() {
    let front = TestAccelerator::new(TestOrigin::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n")
            .is_ok()
    }));
    let mut client = front.connect();
    client.send(ASKS);
    assert_eq!(client.response().status, 502);
}

#[test]
fn lost_origin_closes_the_upgraded_client_connection() {
    let front = TestAccelerator::new(TestOrigin::start(|_, stream| {
        let _ = stream.write_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
        );
        // If unread bytes remained, closing the connection would reset it.
        let mut peek = [0];
        let _ = stream.peek(&mut peek);
        false
    }));
    let mut client = front.connect();
    client.send(ASKS);
    assert_eq!(client.response().status, 101);
    client.send("bytes that nobody reads");
    client.wait_for_close();
}

/// An accelerator with these lines of its route.
fn with_route(origin: TestOrigin, lines: &str) -> TestAccelerator {
    TestAccelerator::with_route_settings(origin, lines)
}

#[test]
fn tunnels_do_not_count_against_concurrency() {
    let front = with_route(echo(), "concurrency = 1\nconnections = 2");
    let mut open: Vec<_> = (0..3)
        .map(|_| {
            let mut client = front.connect();
            client.send(ASKS);
            assert_eq!(client.response().status, 101);
            client
        })
        .collect();
    assert_eq!(front.get("/", "").text(), "as ever");
    assert!(front.run_command(&["status"]).contains("3 tunnels,"));
    let mut last = open.pop().expect("three");
    last.send("still here");
    last.finish();
    assert!(last.wait_for_close(), "in order");
    assert_eq!(last.received, b"hellostill herebye");
}

#[test]
fn tunnels_limit_refuses_further_upgrades() {
    let front = with_route(echo(), "tunnels = 2\nclient_share = 100");
    let open = |front: &TestAccelerator| {
        let mut client = front.connect();
        client.send(ASKS);
        (client.response().status, client)
    };
    let (one, two, three) = (open(&front), open(&front), open(&front));
    assert_eq!((one.0, two.0, three.0), (101, 101, 503));
    assert_eq!(front.get("/", "").text(), "as ever");
    assert!(
        front
            .run_command(&["status"])
            .contains("2 tunnels, 0 refused by concurrency, 1 by tunnels")
    );
    let mut one = one.1;
    one.finish();
    one.wait_for_close();
    lowroad_testkit::wait_until("room", || (open(&front).0 == 101).then_some(()));
}

/// A WebSocket server that answers each message in capitals. It uses node's HTTP parser and handwritten frames.
const WEBSOCKET_SERVER: &str = include_str!("../websocket_server.js");

/// A client that sends two words and prints the replies.
const WEBSOCKET_CLIENT: &str = r#"
const socket = new WebSocket(process.argv[1]);
let count = 0;
socket.onopen = () => { socket.send('one'); socket.send('two'); };
socket.onmessage = event => { console.log(event.data); if (++count === 2) socket.close(1000, 'done'); };
socket.onclose = event => { console.log('closed', event.code, event.wasClean); };
socket.onerror = event => { console.log('error', event.message); };
"#;

#[test]
fn websocket_between_node_client_and_server() {
    let has_websocket = Command::new("node")
        .args([
            "--experimental-websocket",
            "-e",
            "new WebSocket('ws://127.0.0.1:1').onerror = () => {}",
        ])
        .output();
    if !has_websocket.is_ok_and(|output| output.status.success()) {
        return skip(
            "websocket_between_node_client_and_server",
            "there is no node with WebSocket",
        );
    }
    let mut server = Command::new("node")
        .args(["-e", WEBSOCKET_SERVER])
        .stdout(Stdio::piped())
        .spawn()
        .expect("node");
    let mut port = String::new();
    let stdout = server.stdout.take().expect("piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut port).expect("a port");
    let url = format!("http://127.0.0.1:{}", port.trim());
    let front = TestServer::start(
        PROGRAM,
        &[
            "accelerate",
            &url,
            "--listen",
            "127.0.0.1:0",
            "--workers",
            "1",
        ],
    );
    assert_eq!(front.get("/").text(), "no priority");
    let url = format!("ws://{}/chat", front.address());
    let client = Command::new("node")
        .args(["--experimental-websocket", "-e", WEBSOCKET_CLIENT, &url])
        .output()
        .expect("node");
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(
        String::from_utf8_lossy(&client.stdout),
        "ONE\nTWO\nclosed 1000 true\n"
    );
}

#[test]
fn upgrade_to_http_or_tls_is_not_forwarded() {
    // An origin that accepts any protocol.
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        let answer = match request.field("upgrade") {
            Some(_) => {
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
                    .into()
            }
            None => response("200 OK", "", "as ever"),
        };
        stream.write_all(answer.as_bytes()).is_ok()
    }));
    for protocols in [
        "h2c",
        "H2C",
        "websocket, h2c",
        "HTTP/2.0",
        "TLS/1.2, HTTP/1.1",
    ] {
        let mut client = front.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\
             Upgrade: {protocols}\r\n\r\n"
        ));
        let got = client.response();
        assert_eq!(
            (got.status, got.text().as_str()),
            (200, "as ever"),
            "{protocols}"
        );
    }
}

#[test]
fn request_with_body_is_not_upgraded() {
    let front = TestAccelerator::new(echo());
    for framing in [
        "Content-Length: 3\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        let mut client = front.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n{framing}"
        ));
        assert_eq!(client.response().text(), "as ever");
        let request = front.origin.requests().pop().expect("it was asked");
        assert_eq!(request.body, b"abc");
        assert_eq!(request.field("upgrade"), None);
    }
}

#[test]
fn websocket_key_is_forwarded_and_never_added() {
    let front = TestAccelerator::with_response(|request| {
        let key = request.field("sec-websocket-key").unwrap_or("none");
        response("400 Bad Request", "", key)
    });
    for (fields, key) in [("", "none"), ("Sec-WebSocket-Key: abc\r\n", "abc")] {
        let mut client = front.connect();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{fields}\r\n"
        ));
        assert_eq!(client.response().text(), key);
    }
}

#[test]
fn max_forwards_is_decremented_for_options() {
    let front = TestAccelerator::with_response(|request| {
        let left = request.field("max-forwards").unwrap_or("none");
        response("200 OK", "", left)
    });
    for (method, sent, seen) in [
        ("OPTIONS", "Max-Forwards: 10\r\n", "9"),
        ("OPTIONS", "max-forwards: 1\r\n", "0"),
        ("OPTIONS", "Max-Forwards: 0\r\n", ""),
        ("OPTIONS", "", "none"),
        ("GET", "Max-Forwards: 0\r\n", "0"),
    ] {
        let got = front.request(method, "/", sent);
        assert_eq!(
            (got.status, got.text().as_str()),
            (200, seen),
            "{method} {sent}"
        );
    }
}
