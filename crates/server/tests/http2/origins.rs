//! HTTP/2 to origins: exchanges through the server, with a scripted origin and with Go's.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use lowroad_http::h2::frame::{self, kind};
use lowroad_http::h2::{ErrorCode, id};
use lowroad_testkit::{TempFolder, TestServer, wait_until};

use crate::h2_origin::{H2Origin, OriginConnection, ReceivedFrame};
use crate::peer::Peer;
use crate::place::PROGRAM;

/// A server in front of an origin with this URL, with these lines of the route.
pub fn front_of(url: &str, folder: &TempFolder, lines: &str) -> TestServer {
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\n\
         origin = \"{url}\"\n{lines}\n"
    );
    TestServer::run(PROGRAM, folder, &config)
}

/// A script that answers complete requests with the path.
fn echo_path(connection: &mut OriginConnection, frame: &ReceivedFrame) -> bool {
    if let (kind::HEADERS, Some(path)) = (frame.head.kind, frame.field(":path")) {
        connection.respond(frame.head.stream, path);
    }
    true
}

#[test]
fn requests_share_one_connection() {
    let origin = H2Origin::start(&[], echo_path);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut client = front.connect();
    for path in ["/a", "/b?c=%41"] {
        let response = client.get(
            path,
            "TE: trailers\r\nConnection: TE, X-Hop\r\nX-Hop: 1\r\nX-Kept: K\r\n",
        );
        assert_eq!((response.status, response.text().as_str()), (200, path));
    }
    assert_eq!(origin.connections(), 1);
    let request = &origin.requests()[0];
    assert_eq!(request.field(":authority"), Some("test"));
    assert_eq!(request.field(":scheme"), Some("http"));
    assert_eq!(request.field("x-kept"), Some("K"));
    assert_eq!(request.field("te"), Some("trailers"));
    assert_eq!(request.field("via"), Some("1.1 lowroad"));
    for forbidden in ["host", "connection", "x-hop", "keep-alive", "upgrade"] {
        assert_eq!(request.field(forbidden), None, "{forbidden}");
    }
    // A request without a body ends with its head.
    assert!(request.ends_request());
}

/// All requests have to be in progress at the same time before any is answered.
#[test]
fn concurrent_requests_are_multiplexed_up_to_the_origins_limit() {
    for (streams_max, connections) in [(100, 1), (2, 4)] {
        let pending = Arc::new(Barrier::new(8));
        let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
            if frame.head.kind == kind::HEADERS {
                let (pending, stream) = (pending.clone(), frame.head.stream);
                let clone = connection.stream.try_clone().expect("a clone");
                let number = connection.number;
                std::thread::spawn(move || {
                    pending.wait();
                    let mut connection = OriginConnection {
                        stream: clone,
                        number,
                    };
                    connection.headers(stream, &[(":status", "204")], true);
                });
            }
            true
        };
        let settings = [(id::MAX_CONCURRENT_STREAMS, streams_max)];
        let origin = H2Origin::start(&settings, script);
        let folder = TempFolder::new();
        let front = front_of(&origin.url(), &folder, "");
        let mut clients: Vec<_> = (0..8).map(|_| front.connect()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status, 204);
        }
        // Until the settings are known, a connection may get more requests than they allow, which then wait.
        assert!(
            (1..=8).contains(&origin.connections()) && origin.connections() >= connections.min(2),
            "{streams_max}: {}",
            origin.connections()
        );
    }
}

#[test]
fn request_waits_for_a_stream_if_no_connection_may_be_opened() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS {
            // The origin sees one request at a time, otherwise it would refuse.
            assert_eq!(count.fetch_add(1, SeqCst) % 2, 0);
            count.fetch_add(1, SeqCst);
            connection.respond(frame.head.stream, "ok");
        }
        true
    };
    let origin = H2Origin::start(&[(id::MAX_CONCURRENT_STREAMS, 1)], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "connections = 1");
    let mut first = front.connect();
    assert_eq!(first.get("/", "").status, 200);
    let mut clients: Vec<_> = (0..5).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!((origin.connections(), requests.load(SeqCst)), (1, 12));
}

#[test]
fn bodies_and_trailers_pass_in_both_directions() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        let stream = frame.head.stream;
        match frame.head.kind {
            kind::HEADERS if frame.field(":method").is_some() => {
                connection.headers(stream, &[(":status", "200"), ("grpc-a", "1")], false);
            }
            kind::DATA => connection.data(stream, &frame.payload, false),
            _ => {}
        }
        // The trailers of the request become trailers of the response.
        if frame.head.kind == kind::HEADERS && frame.field("x-sum").is_some() {
            let fields = [
                ("grpc-status", "0"),
                ("x-sum", frame.field("x-sum").expect("it is there")),
            ];
            connection.headers(stream, &fields, true);
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut peer = Peer::connect(front.address());
    let stream = peer.begin_post("/s", b"te: trailers\r\n");
    // Each message is answered before the next is sent, so none is buffered.
    for (round, message) in ["one", "two", "three"].iter().enumerate() {
        peer.send_in_tunnel(stream, message.as_bytes());
        let len: usize = ["one", "two", "three"][..=round]
            .iter()
            .map(|it| it.len())
            .sum();
        peer.read_until("an answer", |it| it.got[&stream].body.len() >= len);
    }
    peer.end_with(stream, b"x-sum: 7\r\n");
    let response = peer.receive_response(stream);
    assert_eq!(
        (response.status, &response.body[..]),
        (200, &b"onetwothree"[..])
    );
    assert!(response.lines.contains("grpc-a: 1\n"), "{}", response.lines);
    assert!(
        response.lines.ends_with("grpc-status: 0\nx-sum: 7\n"),
        "{}",
        response.lines
    );
}

#[test]
fn response_that_is_only_a_head_ends_with_it() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.ends_request() {
            let fields = [
                (":status", "200"),
                ("content-type", "application/grpc"),
                ("grpc-status", "12"),
            ];
            connection.headers(frame.head.stream, &fields, true);
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut peer = Peer::connect(front.address());
    let stream = peer.begin_post("/s", b"content-type: application/grpc\r\nte: trailers\r\n");
    peer.end_tunnel(stream);
    let response = peer.receive_response(stream);
    assert!(response.lines.contains("grpc-status: 12\n"));
    // gRPC clients take the fields for trailers only if END_STREAM is with them.
    assert!(response.ended_with_head, "{response:?}");
}

#[test]
fn slow_client_stops_the_origin_but_no_other_client() {
    const LEN: usize = 8 << 20;
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        let stream = frame.head.stream;
        match frame.field(":path") {
            Some("/large") => {
                connection.headers(stream, &[(":status", "200")], false);
                connection.data(stream, &[b'x'; 65_535], false);
            }
            Some(path) => connection.respond(stream, path),
            None => {}
        }
        // One frame for each window update of a stream: the origin obeys its windows.
        if frame.head.kind == kind::WINDOW_UPDATE && stream != 0 {
            let increment = frame.payload[..4]
                .iter()
                .fold(0, |sum, byte| sum * 256 + usize::from(*byte));
            connection.data(stream, &vec![b'x'; increment.min(LEN)], false);
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "response_buffering = false");
    let mut slow: Vec<Peer> = (0..4).map(|_| Peer::connect(front.address())).collect();
    for peer in &mut slow {
        let stream = peer.get("/large");
        peer.unread.insert(stream);
        peer.read_until("the first window", |it| {
            it.got[&stream].body.len() == 65_535
        });
    }
    // Four streams with full windows hold more than the connection's initial window.
    let mut other = front.connect();
    assert_eq!(other.get("/small", "").text(), "/small");
    assert_eq!(origin.connections(), 1);
    let granted: usize = origin
        .frames()
        .iter()
        .filter(|frame| frame.head.kind == kind::WINDOW_UPDATE && frame.head.stream != 0)
        .map(|frame| {
            frame.payload[..4]
                .iter()
                .fold(0, |sum, byte| sum * 256 + usize::from(*byte))
        })
        .sum();
    assert!(granted <= 4 * (512 << 10), "{granted}");
}

#[test]
fn slow_origin_stops_the_client() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        // The origin never returns the window of the body.
        if frame.head.kind == kind::DATA && frame.head.stream == 3 {
            connection.respond(3, "never");
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut peer = Peer::connect(front.address());
    let stream = peer.begin_post("/", b"");
    peer.send_in_tunnel(stream, &vec![b'x'; 4 << 20]);
    wait_until("the window to be full", || {
        let sent: usize = origin
            .frames()
            .iter()
            .filter(|it| it.head.kind == kind::DATA)
            .map(|it| it.head.len)
            .sum();
        (sent == 65_535).then_some(())
    });
    // The server has returned only the window of the part that it holds.
    peer.send_and_poll(&[]);
    assert!(peer.unsent_len(stream) > 3 << 20);
}

#[test]
fn request_that_was_not_processed_is_repeated_whatever_its_method() {
    for is_goaway in [false, true] {
        let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
            let stream = frame.head.stream;
            if frame.head.kind != kind::HEADERS {
                return true;
            }
            match (frame.field(":path"), connection.number) {
                (Some("/first"), _) => connection.respond(stream, "ok"),
                (_, 0) if is_goaway => {
                    connection.goaway(stream - 2, ErrorCode::NO_ERROR);
                }
                (_, 0) if stream == 3 => connection.reset(stream, ErrorCode::REFUSED_STREAM),
                _ => connection.respond(stream, "repeated"),
            }
            true
        };
        let origin = H2Origin::start(&[], script);
        let folder = TempFolder::new();
        let front = front_of(&origin.url(), &folder, "");
        let mut client = front.connect();
        assert_eq!(client.get("/first", "").text(), "ok");
        client.send("POST /second HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
        let response = client.response();
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "repeated"),
            "{is_goaway}"
        );
        let bodies = origin.frames();
        let last = bodies.iter().rfind(|it| it.head.kind == kind::DATA);
        assert_eq!(last.map(|it| &it.payload[..]), Some(&b"abc"[..]));
    }
}

#[test]
fn processed_request_is_not_repeated_unless_idempotent() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS {
            connection.reset(frame.head.stream, ErrorCode::INTERNAL_ERROR);
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut client = front.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 502);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn client_that_disconnects_cancels_its_stream_only() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.field(":path") == Some("/fast") {
            connection.respond(frame.head.stream, "fast");
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut peer = Peer::connect(front.address());
    let stream = peer.get("/never");
    wait_until("the request", || {
        (!origin.requests().is_empty()).then_some(())
    });
    let mut out = Vec::new();
    peer.put_reset(stream, &mut out);
    peer.send(&out);
    wait_until("RST_STREAM", || {
        let frames = origin.frames();
        let reset = frames
            .iter()
            .find(|frame| frame.head.kind == kind::RST_STREAM)?;
        assert_eq!(reset.payload, [0, 0, 0, 8], "CANCEL");
        Some(())
    });
    assert_eq!(front.connect().get("/fast", "").text(), "fast");
    assert_eq!(origin.connections(), 1);
}

/// The sides of a stream may be silent for longer than the timeout of a request body, and send less than its minimum rate,
/// once the response has begun.
#[test]
fn stream_may_be_silent_after_its_response_has_begun() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        let stream = frame.head.stream;
        match frame.head.kind {
            kind::HEADERS if frame.field(":path") == Some("/talk") => {
                connection.headers(stream, &[(":status", "200")], false);
            }
            kind::DATA => connection.data(stream, &frame.payload, frame.ends_request()),
            _ => {}
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n[limits]\nbody_timeout = \"1s\"\nrate_grace = \"1s\"\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{}\"\n",
        origin.url()
    );
    let front = TestServer::run(PROGRAM, &folder, &config);
    let mut peer = Peer::connect(front.address());
    let talk = peer.begin_post("/talk", b"");
    peer.read_until("the head", |it| it.got[&talk].status == 200);
    // Two uploads without a response are ended for their silence, one after the other.
    for _ in 0..2 {
        let upload = peer.begin_post("/upload", b"");
        let response = peer.receive_response(upload);
        assert!(
            response.status == 408 || response.reset.is_some(),
            "{response:?}"
        );
    }
    peer.send_in_tunnel(talk, b"still here");
    peer.end_tunnel(talk);
    let response = peer.receive_response(talk);
    assert_eq!(
        (&response.body[..], response.reset),
        (&b"still here"[..], None)
    );
}

#[test]
fn silent_connection_is_replaced_and_closed() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS && connection.number > 0 {
            connection.respond(frame.head.stream, "alive");
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let url = origin.url();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n\
         [[site.route]]\npattern = \"/silent\"\norigin = \"{url}\"\ntimeout = \"200ms\"\n\
         [[site.route]]\npattern = \"/**\"\norigin = \"{url}\"\n"
    );
    let front = TestServer::run(PROGRAM, &folder, &config);
    assert_eq!(front.connect().get("/silent", "").status, 504);
    wait_until("a PING", || {
        let frames = origin.frames();
        frames
            .iter()
            .any(|frame| frame.head.kind == kind::PING)
            .then_some(())
    });
    assert_eq!(front.connect().get("/", "").text(), "alive");
    assert_eq!(origin.connections(), 2);
    wait_until("the end of the silent connection", || {
        (origin.ended_connections() == 1).then_some(())
    });
}

#[test]
fn health_checks_use_http2() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS {
            connection.respond(frame.head.stream, "ok");
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n[[site]]\nlisten = \"127.0.0.1:0\"\n[[site.route]]\npattern = \"/**\"\norigin = \"o\"\n\
         [[origin]]\nname = \"o\"\nservers = \"{}\"\ncheck = {{ path = \"/health\", interval = \"100ms\" }}\n",
        origin.url()
    );
    let front = TestServer::run(PROGRAM, &folder, &config);
    wait_until("two checks", || {
        let requests = origin.requests();
        (requests
            .iter()
            .filter(|it| it.field(":path") == Some("/health"))
            .count()
            >= 2)
            .then_some(())
    });
    assert_eq!(front.connect().get("/", "").status, 200);
}

#[test]
fn explanation_names_the_protocol() {
    let origin = H2Origin::start(&[], echo_path);
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"admin.sock\"\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \".\"\n\
         [[site.route]]\npattern = \"/a/**\"\norigin = \"{}\"\nstrip_prefix = \"/a\"\n",
        origin.url()
    );
    let front = TestServer::run(PROGRAM, &folder, &config);
    let url = format!("http://{}/a/x", front.address());
    let explained = std::process::Command::new(PROGRAM)
        .args(["explain", &url, "--admin"])
        .arg(folder.path().join("admin.sock"))
        .output()
        .expect("the program starts");
    let explained = String::from_utf8_lossy(&explained.stdout);
    for text in ["over HTTP/2", "GET /x HTTP/2", ":authority: "] {
        assert!(explained.contains(text), "{text}: {explained}");
    }
}

/// SETTINGS that allow no streams.
fn no_streams() -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_settings(&[(id::MAX_CONCURRENT_STREAMS, 0)], &mut out);
    out
}

#[test]
fn connection_that_allows_no_streams_gets_no_request() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if let (kind::HEADERS, Some(path)) = (frame.head.kind, frame.field(":path")) {
            // The settings precede the response, so that the next request finds them in force.
            if path == "/first" {
                connection.raw(&no_streams());
            }
            connection.respond(frame.head.stream, path);
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "timeout = \"5s\"");
    let mut client = front.connect();
    for path in ["/first", "/second", "/third"] {
        let response = client.get(path, "");
        assert_eq!((response.status, response.text().as_str()), (200, path));
    }
    assert_eq!(origin.connections(), 2);
}

/// The only connection that the origin may have is busy with a stream, and allows no other one.
#[test]
fn request_without_a_stream_fails_after_the_connect_timeout_or_tries_the_next_server() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS {
            connection.raw(&no_streams());
            connection.headers(frame.head.stream, &[(":status", "200")], false);
        }
        true
    };
    let (origin, second) = (
        H2Origin::start(&[], script),
        H2Origin::start(&[], echo_path),
    );
    let folder = TempFolder::new();
    let config = format!(
        "[server]\nworkers = 1\n\
         [[origin]]\nname = \"one\"\nservers = \"{0}\"\nconnections = 1\nconnect_timeout = \"300ms\"\n\
         [[origin]]\nname = \"two\"\nservers = [\"{0}\", {{ url = \"{1}\", backup = true }}]\n\
         connections = 1\nconnect_timeout = \"300ms\"\n\
         [[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"{2}\"\n\
         [[site.route]]\npattern = \"/one/**\"\norigin = \"one\"\n\
         [[site.route]]\npattern = \"/two/**\"\norigin = \"two\"\n",
        origin.url(),
        second.url(),
        folder.path().display(),
    );
    let front = TestServer::run(PROGRAM, &folder, &config);
    for (path, status) in [("/one/b", 504), ("/two/b", 200)] {
        let mut busy = Peer::connect(front.address());
        let stream = busy.get(&format!("{}a", &path[..5]));
        busy.read_until("the head", |it| {
            it.got.get(&stream).is_some_and(|it| it.status == 200)
        });
        assert_eq!(front.connect().get(path, "").status, status, "{path}");
        front.wait_for_error_line("allows no requests on its connection");
    }
    assert!(
        second
            .requests()
            .iter()
            .all(|it| it.field(":path") == Some("/two/b"))
    );
}

#[test]
fn calls_of_grpc_get_errors_as_a_status() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let folder = TempFolder::new();
    let front = front_of(&url, &folder, "");
    let mut peer = Peer::connect(front.address());
    for (content_type, status) in [("application/grpc", 200), ("application/json", 502)] {
        let lines = format!("content-type: {content_type}\r\nte: trailers\r\n");
        let stream = peer.begin_post("/s", lines.as_bytes());
        peer.end_tunnel(stream);
        let response = peer.receive_response(stream);
        assert_eq!(response.status, status, "{response:?}");
        let is_grpc = status == 200;
        assert_eq!(response.lines.contains("grpc-status: 14\n"), is_grpc);
        assert_eq!(
            response.lines.contains("grpc-message: This is fault"),
            is_grpc
        );
        assert_eq!(response.ended_with_head, is_grpc, "{response:?}");
    }
}
