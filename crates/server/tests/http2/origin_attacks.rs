//! Origins that break HTTP/2, and requests that try to smuggle others: each gets a clear 502, and a broken connection is
//! never used again.

use lowroad_http::h2::ErrorCode;
use lowroad_http::h2::frame::{self, flag, kind};
use lowroad_testkit::TempFolder;

use crate::h2_origin::{H2Origin, OriginConnection, ReceivedFrame, headers, put_literal};
use crate::origins::front_of;
use crate::peer::Peer;

/// Sends a request to an origin that answers the first request on its first connection with `bytes`, and others
/// properly. The request must get 502 and a line in the error log with `text`, and the next one a new connection if `is_fatal`.
fn attack(
    what: &str,
    is_fatal: bool,
    text: &str,
    bytes: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
) {
    let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.head.kind == kind::HEADERS {
            match frame.field(":path") {
                Some("/bad") => connection.raw(&bytes(frame.head.stream)),
                _ => connection.respond(frame.head.stream, "good"),
            }
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "timeout = \"20s\"");
    let mut client = front.connect();
    // POST is not repeated.
    client.send("POST /bad HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    let mut status = client.response().status;
    while status < 200 {
        status = client.response().status;
    }
    assert_eq!(status, 502, "{what}");
    let good = front.connect().get("/good", "");
    assert_eq!(good.text(), "good", "{what}");
    assert_eq!(origin.connections(), 1 + usize::from(is_fatal), "{what}");
    front.wait_for_error_line(text);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_head(kind, flags, stream, payload.len(), &mut out);
    out.extend_from_slice(payload);
    out
}

#[test]
fn violations_end_the_connection() {
    type Bytes = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;
    let attacks: [(&str, Bytes); 11] = [
        (
            "a frame that is too large",
            Box::new(|stream| {
                let mut out = Vec::new();
                frame::put_head(kind::DATA, 0, stream, 1 << 20, &mut out);
                out
            }),
        ),
        (
            "HTTP/1.1",
            Box::new(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()),
        ),
        (
            "PUSH_PROMISE",
            Box::new(|stream| frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, &[0, 0, 0, 2])),
        ),
        (
            "a stream that was not opened",
            Box::new(|stream| headers(stream + 2, &[(":status", "200")], true)),
        ),
        (
            "a stream of a server",
            Box::new(|_| headers(2, &[(":status", "200")], true)),
        ),
        (
            "an HPACK index out of range",
            Box::new(|stream| {
                frame(
                    kind::HEADERS,
                    flag::END_HEADERS,
                    stream,
                    &[0xff, 0xff, 0x0f],
                )
            }),
        ),
        (
            "a frame within a block",
            Box::new(|stream| {
                let mut out = frame(kind::HEADERS, 0, stream, &[0x88]);
                frame::put_ping(false, [0; 8], &mut out);
                out
            }),
        ),
        (
            "a CONTINUATION flood",
            Box::new(|stream| {
                let mut out = frame(kind::HEADERS, 0, stream, &[0x88]);
                (0..100).for_each(|_| out.extend(frame(kind::CONTINUATION, 0, stream, b"")));
                out
            }),
        ),
        (
            "a PING flood",
            Box::new(|_| {
                let mut out = Vec::new();
                (0..200_000).for_each(|_| frame::put_ping(false, [0; 8], &mut out));
                out
            }),
        ),
        (
            "a SETTINGS flood",
            Box::new(move |_| {
                let mut out = Vec::new();
                (0..200_000).for_each(|_| out.extend(frame(kind::SETTINGS, 0, 0, b"")));
                out
            }),
        ),
        (
            "a flood of interim responses",
            Box::new(move |stream| {
                let mut out = Vec::new();
                (0..200_000)
                    .for_each(|_| out.extend(headers(stream, &[(":status", "103")], false)));
                out
            }),
        ),
    ];
    for (what, bytes) in attacks {
        attack(what, true, "sent an invalid response", bytes);
    }
}

#[test]
fn malformed_responses_fail_one_request() {
    type Fields = &'static [(&'static str, &'static str)];
    let attacks: [(&str, Fields); 8] = [
        ("no status", &[("a", "b")]),
        ("two statuses", &[(":status", "200"), (":status", "200")]),
        ("a status after a field", &[("a", "b"), (":status", "200")]),
        (
            "an unknown pseudo-header",
            &[(":status", "200"), (":x", "y")],
        ),
        (
            "line ends in a value",
            &[(":status", "200"), ("a", "b\r\nSet-Cookie: c=d")],
        ),
        ("an upper-case name", &[(":status", "200"), ("A", "b")]),
        (
            "a connection-specific field",
            &[(":status", "200"), ("transfer-encoding", "chunked")],
        ),
        ("a 101", &[(":status", "101")]),
    ];
    for (what, fields) in attacks {
        attack(what, false, "sent an invalid response", move |stream| {
            headers(stream, fields, true)
        });
    }
    attack(
        "a bomb of indexed fields",
        false,
        "sent an invalid response",
        |stream| {
            // A field of 4 KB in the dynamic table, and 15,000 references to it: 60 MB of fields.
            let mut block = vec![0x88, 0x40];
            let mut literal = Vec::new();
            put_literal(b"a", &[b'b'; 4000], &mut literal);
            block.extend_from_slice(&literal[1..]);
            block.resize(16_000, 0xbe);
            frame(
                kind::HEADERS,
                flag::END_HEADERS | flag::END_STREAM,
                stream,
                &block,
            )
        },
    );
    attack(
        "data before the head",
        false,
        "sent an invalid response",
        |stream| frame(kind::DATA, 0, stream, &[b'x'; 16_384]),
    );
    attack(
        "a length that is too large",
        false,
        "sent an invalid response",
        |stream| headers(stream, &[(":status", "200"), ("content-length", "5")], true),
    );
    attack(
        "interim responses that end the stream",
        false,
        "sent an invalid response",
        |stream| headers(stream, &[(":status", "103")], true),
    );
}

/// A body of another length than announced must not look complete.
#[test]
fn body_of_wrong_length_is_cut() {
    for (len, body) in [("5", "abc"), ("2", "abc")] {
        let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
            if frame.head.kind == kind::HEADERS {
                let stream = frame.head.stream;
                connection.headers(
                    stream,
                    &[(":status", "200"), ("content-length", len)],
                    false,
                );
                // The head reaches the client before the body.
                std::thread::sleep(std::time::Duration::from_millis(50));
                connection.data(stream, body.as_bytes(), true);
            }
            true
        };
        let origin = H2Origin::start(&[], script);
        let folder = TempFolder::new();
        let front = front_of(&origin.url(), &folder, "");
        let mut peer = Peer::connect(front.address());
        let stream = peer.get("/");
        let response = peer.receive_response(stream);
        assert!(
            response.status == 502 || response.reset.is_some() && !response.is_ended,
            "{response:?}"
        );
    }
}

#[test]
fn connection_that_ends_fails_its_requests() {
    for is_goaway in [false, true] {
        let script = move |connection: &mut OriginConnection, frame: &ReceivedFrame| {
            if frame.field(":path") == Some("/second") {
                return false;
            }
            if frame.field(":path") == Some("/last") {
                // The stream is among the processed ones, and gets no response.
                connection.goaway(frame.head.stream, ErrorCode::INTERNAL_ERROR);
                return false;
            }
            if frame.head.kind == kind::HEADERS {
                connection.respond(frame.head.stream, "ok");
            }
            true
        };
        let origin = H2Origin::start(&[], script);
        let folder = TempFolder::new();
        let front = front_of(&origin.url(), &folder, "");
        let mut client = front.connect();
        assert_eq!(client.get("/", "").status, 200);
        let path = if is_goaway { "/last" } else { "/second" };
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(client.response().status, 502);
        let seen = origin.requests();
        assert_eq!(
            seen.iter()
                .filter(|it| it.field(":path") == Some(path))
                .count(),
            1
        );
        assert_eq!(client.get("/", "").status, 200);
    }
}

/// HTTP/1.1 to HTTP/2: the framing of the client never reaches the origin.
#[test]
fn requests_cannot_smuggle_fields_to_the_origin() {
    let script = |connection: &mut OriginConnection, frame: &ReceivedFrame| {
        if frame.ends_request() {
            connection.respond(frame.head.stream, "ok");
        }
        true
    };
    let origin = H2Origin::start(&[], script);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    for (head, status) in [
        ("GET /a HTTP/1.1\r\nHost: h\r\n:path: /admin\r\n\r\n", 400),
        (
            "GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("GET /a HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", 400),
        (
            "GET /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nTE: gzip\r\n\r\n3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n",
            200,
        ),
        (
            "GET /w HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            200,
        ),
    ] {
        let mut client = front.connect();
        client.send(head);
        assert_eq!(client.response().status, status, "{head}");
    }
    let requests = origin.requests();
    let paths: Vec<_> = requests.iter().filter_map(|it| it.field(":path")).collect();
    assert_eq!(paths, ["/b", "/w"]);
    for request in &requests {
        for forbidden in [
            "connection",
            "upgrade",
            "transfer-encoding",
            "keep-alive",
            "proxy-connection",
            "te",
            "http2-settings",
            "host",
            "content-length",
        ] {
            assert_eq!(
                request.field(forbidden),
                None,
                "{forbidden}: {}",
                request.fields
            );
        }
        let names = request
            .fields
            .lines()
            .map(|line| line.split(": ").next().expect("a name"));
        let regular = names.skip_while(|name| name.starts_with(':'));
        assert!(
            regular.clone().all(|name| !name.starts_with(':')),
            "pseudo-header fields come first"
        );
        assert!(
            regular
                .clone()
                .all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase()))
        );
    }
}

/// A request body that is cut must not look complete to the origin.
#[test]
fn cut_upload_resets_the_stream() {
    let origin = H2Origin::start(&[], |_, _| true);
    let folder = TempFolder::new();
    let front = front_of(&origin.url(), &folder, "");
    let mut client = front.connect();
    client.send("POST /cut HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
    lowroad_testkit::wait_until("the body", || {
        origin
            .frames()
            .iter()
            .find(|it| it.head.kind == kind::DATA)
            .map(drop)
    });
    drop(client);
    lowroad_testkit::wait_until("RST_STREAM", || {
        origin
            .frames()
            .iter()
            .find(|it| it.head.kind == kind::RST_STREAM)
            .map(drop)
    });
    assert!(origin.frames().iter().all(|frame| !frame.ends_request()));
}
