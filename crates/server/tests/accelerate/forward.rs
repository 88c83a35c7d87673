//! Forwarding: fields and bodies of requests at the origin, and of responses at the client.

use lowroad_testkit::origin::TestOrigin;
use std::io::Write;

use crate::front::{TestAccelerator, response};

#[test]
fn forwarded_request_has_no_hop_by_hop_fields() {
    let front = TestAccelerator::with_response(|_| response("200 OK", "", "ok"));
    let fields = "Connection: close, X-Hop\r\nX-Hop: 1\r\nTE: gzip\r\nX-Kept: 1\r\nKeep-Alive: 5\r\n\
                  X-Forwarded-For: 192.0.2.9\r\nForwarded: for=192.0.2.9\r\nProxy-Authorization: a\r\nVia: 1.0 a\r\n";
    assert_eq!(front.get("/a//b?c=%41", fields).text(), "ok");
    let request = front.origin.requests().remove(0);
    assert_eq!(request.target, "/a//b?c=%41", "as it was written");
    for gone in [
        "connection",
        "x-hop",
        "te",
        "keep-alive",
        "forwarded",
        "proxy-authorization",
    ] {
        assert_eq!(request.field(gone), None, "{gone}");
    }
    assert_eq!(request.field("x-kept"), Some("1"));
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("via"), Some("1.0 a, 1.1 lowroad"));
    assert_eq!(request.field("host"), Some("test"));
}

#[test]
fn bodies_are_forwarded_with_length_and_chunked() {
    let front = TestAccelerator::with_response(|request| {
        let body = String::from_utf8_lossy(&request.body).to_uppercase();
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        )
    });
    let mut client = front.connect();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    assert!(client.response().text().contains("ABC"));
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n");
    assert!(client.response().text().contains("ABCD"));
    let requests = front.origin.requests();
    assert_eq!(requests[0].body, b"abc");
    assert_eq!(requests[1].body, b"abcd");
}

#[test]
fn content_length_0_is_sent_for_methods_that_expect_content() {
    let front = TestAccelerator::with_response(|_| response("200 OK", "", "ok"));
    let mut client = front.connect();
    for fields in ["Content-Length: 0\r\n", ""] {
        for method in ["POST", "PUT", "PATCH", "DELETE", "GET"] {
            client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
            assert_eq!(client.response().text(), "ok");
            let requests = front.origin.requests();
            let request = requests.last().expect("it was asked");
            let said = matches!(method, "POST" | "PUT" | "PATCH").then_some("0");
            assert_eq!(request.field("content-length"), said, "{method}");
            assert_eq!(request.field("transfer-encoding"), None);
        }
    }
}

#[test]
fn proxy_field_is_not_forwarded() {
    let front = TestAccelerator::with_response(|_| response("200 OK", "", "ok"));
    front.get("/", "Proxy: http://evil.example\r\n");
    assert_eq!(front.origin.requests()[0].field("proxy"), None);
}

#[test]
fn hop_by_hop_fields_of_response_are_not_forwarded() {
    let front = TestAccelerator::with_response(|_| {
        let fields = "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Kept: 1\r\nKeep-Alive: timeout=5\r\n\
                      Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: mine\r\n";
        response("200 OK", fields, "ok")
    });
    let got = front.get("/", "");
    assert_eq!((got.field("x-hop"), got.field("keep-alive")), (None, None));
    assert_eq!(got.field("x-kept"), Some("1"));
    assert_eq!(got.field("server"), Some("mine"));
    assert_eq!(got.field("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
}

#[test]
fn origin_connections_are_reused_and_closed_ones_replaced() {
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        let _ = stream.write_all(response("200 OK", "", "ok").as_bytes());
        // After every third response, closes the connection without having announced it.
        request.number % 3 != 2
    }));
    let mut client = front.connect();
    for _ in 0..12 {
        assert_eq!(client.get("/", "").text(), "ok");
    }
    assert_eq!(front.origin.count(), 12);
}

#[test]
fn body_max_option_allows_long_request_bodies() {
    let post = |options: &[&str]| {
        let front = TestAccelerator::with_arguments(|_| response("200 OK", "", "ok"), options);
        let mut client = front.connect();
        let body = "x".repeat(2 << 20);
        let len = body.len();
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n"
        ));
        match client.response().status {
            100 => {}
            status => return status,
        }
        client.send(body);
        client.response().status
    };
    assert_eq!(post(&[]), 413);
    assert_eq!(post(&["--body-max", "2M"]), 200);
}

#[test]
fn fields_with_underscores_are_not_forwarded() {
    let front = TestAccelerator::with_response(|_| response("200 OK", "", "ok"));
    let fields = "X_Forwarded_For: 192.0.2.9\r\nContent_Length: 5\r\nX-Kept: 1\r\n";
    assert_eq!(front.get("/", fields).text(), "ok");
    let request = front.origin.requests().remove(0);
    assert!(!request.head.contains('_'), "{}", request.head);
    assert_eq!(request.field("x-kept"), Some("1"));
}

#[test]
fn connection_field_of_origin_does_not_hide_cache_control() {
    let fields = "Connection: Cache-Control, Set-Cookie\r\nCache-Control: private\r\nExpires: Sun, 06 Nov 2094 08:49:37 GMT\r\n";
    let front = TestAccelerator::with_response(move |request| {
        response("200 OK", fields, &request.number.to_string())
    });
    assert_eq!(front.get("/", "").text(), "0");
    let second = front.get("/", "");
    assert_eq!(second.text(), "1", "it is private");
    assert_eq!(second.field("cache-control"), Some("private"));
}

#[test]
fn request_without_host_gets_the_origins_host() {
    let front = TestAccelerator::with_response(|_| response("200 OK", "", "ok"));
    let host = front.origin.url().trim_start_matches("http://").to_string();
    for method in ["GET", "OPTIONS", "POST"] {
        let mut client = front.connect();
        client.send(format!("{method} / HTTP/1.0\r\n\r\n"));
        assert_eq!(client.response().text(), "ok");
        let request = front.origin.requests().pop().expect("one");
        assert_eq!(request.field("host"), Some(host.as_str()), "{method}");
        assert_eq!(request.field("x-forwarded-host"), None, "{method}");
    }
}

#[test]
fn trailer_field_is_forwarded_with_trailers() {
    let front = TestAccelerator::new(TestOrigin::start(|_, stream| {
        let fields = "Trailer: X-Sum\r\nTransfer-Encoding: chunked";
        let response =
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n");
        stream.write_all(response.as_bytes()).is_ok()
    }));
    let mut client = front.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-Hash\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nX-Hash: 7\r\n\r\n",
    );
    let got = client.response();
    assert_eq!(got.field("trailer"), Some("X-Sum"));
    let request = front.origin.requests().pop().expect("one");
    assert_eq!(request.field("trailer"), Some("X-Hash"));
    assert!(request.trailers.contains("X-Hash: 7"), "{request:?}");
}

#[test]
fn no_websocket_key_is_added_to_request_without_key() {
    let front = TestAccelerator::with_response(|_| response("400 Bad Request", "", "no key"));
    let mut client = front.connect();
    client.send(
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    assert_eq!(client.response().status, 400);
    let request = front.origin.requests().pop().expect("one");
    assert_eq!(request.field("sec-websocket-key"), None);
}
