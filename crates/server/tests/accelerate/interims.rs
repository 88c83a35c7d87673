//! Interim responses, and trailer sections.

use std::io::Write;
use std::sync::mpsc::channel;

use lowroad_testkit::origin::TestOrigin;

use crate::front::{TestAccelerator, response};

#[test]
fn interim_responses_are_forwarded_immediately() {
    let (go, may_go) = channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    let front = TestAccelerator::new(TestOrigin::start(move |_, stream| {
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n";
        let first = format!("HTTP/1.1 100 Continue\r\n\r\n{hints}");
        let _ = stream.write_all(first.as_bytes());
        let _ = may_go.lock().expect("no panic").recv();
        let last = response("200 OK", "", "ok");
        let _ = stream.write_all(format!("HTTP/1.1 110 Stale\r\n\r\n{last}").as_bytes());
        true
    }));
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let hints = client.response();
    assert_eq!(hints.status, 103, "100 is for the one who asked");
    assert_eq!(hints.field("link"), Some("</a.css>; rel=preload"));
    assert_eq!(hints.field("x-hop"), None);
    go.send(()).expect("it waits");
    assert_eq!(client.response().status, 110);
    assert_eq!(client.response().text(), "ok");
}

#[test]
fn too_many_interim_responses_are_502() {
    let front = TestAccelerator::new(TestOrigin::start(|_, stream| {
        let interims = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100);
        let _ = stream.write_all(interims.as_bytes());
        let _ = stream.write_all(response("200 OK", "", "ok").as_bytes());
        true
    }));
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut count = 0;
    let last = loop {
        match client.response() {
            interim if interim.status == 103 => count += 1,
            last => break last,
        }
    };
    assert_eq!((last.status, count), (502, 16));
}

#[test]
fn response_trailers_are_forwarded_except_header_fields() {
    let front = TestAccelerator::with_response(|_| {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\n\
         X-Sum: 1\r\nSet-Cookie: a=b\r\n\r\n"
            .into()
    });
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    while !client.received.ends_with(b"\r\n\r\n") || !has(&client.received, "\r\n0\r\n") {
        assert!(client.receive_once());
    }
    assert!(has(&client.received, "\r\n0\r\nX-Sum: 1\r\n\r\n"));
    assert!(has(&client.received, "\r\nTrailer: X-Sum\r\n"));
    let request = front.origin.requests().remove(0);
    assert_eq!(
        (request.field("te"), request.field("connection")),
        (Some("trailers"), Some("TE"))
    );
    let request = {
        front.get("/b", "");
        front.origin.requests().remove(1)
    };
    assert_eq!(
        (request.field("te"), request.field("connection")),
        (None, None)
    );
}

#[test]
fn header_rules_remove_trailers() {
    let origin = TestOrigin::with_response(|_| {
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
         X-Rem: 1\r\nX-SET: 2\r\nX-App: 3\r\nX-Def: 4\r\nx-rem: 5\r\nX-Sum: 6\r\n\r\n"
            .into()
    });
    let rules = "[[site.header]]\nset = { X-Set = \"own\" }\nappend = { X-App = \"own\" }\n\
                 default = { X-Def = \"own\" }\nremove = \"X-Rem\"\n\
                 [[site.header]]\npattern = \"/none\"\nremove = [\"X-App\", \"X-Def\", \"X-Sum\"]\n";
    let front = TestAccelerator::with_route_settings(origin, rules);
    for (path, trailers) in [("/", "X-App: 3\r\nX-Def: 4\r\nX-Sum: 6\r\n"), ("/none", "")] {
        let mut client = front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        while !client.received.ends_with(b"\r\n\r\n") || !has(&client.received, "\r\n0\r\n") {
            assert!(client.receive_once());
        }
        let end = format!("\r\n0\r\n{trailers}\r\n");
        let received = client.received.escape_ascii().to_string();
        assert!(client.received.ends_with(end.as_bytes()), "{received}");
    }
}

/// A stored response has no trailer section, so it has no Trailer field either (RFC 9110 §6.6.2).
#[test]
fn stored_response_has_no_trailer_field() {
    let front = TestAccelerator::with_response(|_| {
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\
         Trailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"
            .into()
    });
    assert_eq!(front.get("/", "").field("trailer"), None);
    let stored = front.get("/", "");
    assert_eq!(
        (stored.text().as_str(), stored.field("trailer")),
        ("ok", None)
    );
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn request_trailers_are_forwarded_except_host() {
    let front = TestAccelerator::with_response(|_| response("200 OK", "", "ok"));
    let mut client = front.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\n");
    assert_eq!(client.response().text(), "ok");
    let request = front.origin.requests().remove(0);
    assert_eq!(request.trailers, "X-Sum: 1\r\n");
    assert_eq!(request.field("trailer"), Some("X-Sum"));
    assert_eq!(request.body, b"ab");
}

fn has(received: &[u8], text: &str) -> bool {
    received.windows(text.len()).any(|it| it == text.as_bytes())
}
