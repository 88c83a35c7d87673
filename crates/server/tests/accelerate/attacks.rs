//! Published attacks on caches: no client can make other clients receive a response that was meant only for its own
//! request.

use std::io::Write;

use lowroad_testkit::origin::{OriginRequest, TestOrigin};

use crate::front::{TestAccelerator, numbered_response, response};

const STORED: &str = "Cache-Control: max-age=60\r\n";

/// An accelerator with an origin that sends only storable responses.
fn front_with_storable_responses() -> TestAccelerator {
    TestAccelerator::with_response(|request| numbered_response(request, STORED))
}

/// Whether a later plain GET of the path gets the response to this request.
fn is_shared(front: &TestAccelerator, path: &str, request: &str) -> bool {
    let mut client = front.connect();
    client.send(request);
    let got = client.response();
    front.get(path, "").body == got.body
}

#[test]
fn forwarded_fields_of_clients_do_not_reach_the_origin() {
    let front = front_with_storable_responses();
    for name in [
        "Forwarded",
        "Front-End-Https",
        "X-Forwarded",
        "X-Forwarded-By",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Path",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "X-Forwarded-Proto",
        "X-Forwarded-Protocol",
        "X-Forwarded-Scheme",
        "X-Forwarded-Server",
        "X-Forwarded-Ssl",
        "X-HTTP-Host-Override",
        "X-Host",
        "X-Original-Host",
        "X-Original-URL",
        "X-Real-IP",
        "X-Rewrite-URL",
        "X-Scheme",
        "X-Url-Scheme",
    ] {
        front.get(&format!("/{name}"), &format!("{name}: evil\r\n"));
        let request = front.origin.requests().pop().expect("it was asked");
        // Unkeyed fields of clients must not reach an origin that could put them into a stored response.
        assert!(!request.head.contains("evil"), "{}", request.head);
    }
}

#[test]
fn method_override_field_does_not_poison_the_cache() {
    let front = front_with_storable_responses();
    for name in [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
    ] {
        let path = format!("/{name}");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{name}: DELETE\r\n\r\n");
        assert!(!is_shared(&front, &path, &request), "{name}");
    }
}

#[test]
fn response_to_get_with_body_is_not_shared() {
    let front = front_with_storable_responses();
    let bodies = [
        "Content-Length: 3\r\n\r\na=b",
        "Transfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n",
    ];
    for (at, body) in bodies.iter().enumerate() {
        let path = format!("/{at}");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{body}");
        assert!(!is_shared(&front, &path, &request), "{body}");
        // A stored response must not answer such a request either.
        let before = front.origin.count();
        let mut client = front.connect();
        client.send(request);
        client.response();
        let asked = front.origin.requests().remove(before);
        assert_eq!(asked.body, b"a=b");
    }
    assert!(is_shared(
        &front,
        "/0",
        "GET /0 HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n"
    ));
}

/// Asserts that each target gets its own response, and that the origin receives the target unchanged. Targets may also
/// be refused.
fn assert_distinct_responses(targets: &[&str]) {
    let front =
        TestAccelerator::with_response(|request| response("200 OK", STORED, &request.target));
    for _ in 0..2 {
        for target in targets {
            let got = front.get(target, "");
            assert!(
                got.text() == *target || got.status == 400,
                "{target}: {} {}",
                got.status,
                got.text()
            );
        }
    }
}

#[test]
fn queries_are_not_normalised() {
    assert_distinct_responses(&[
        "/?a=1&b=2",
        "/?a=1;b=2",
        "/?a=1%26b=2",
        "/?a=1%3bb=2",
        "/?b=2&a=1",
        "/?a=1&a=2",
        "/?a=2&a=1",
        "/?a=1&b=2&",
        "/?a=1&&b=2",
        "/?a=1?b=2",
        "/?A=1&b=2",
        "/?a=1&b=2%00",
        "/?a=1&b=2%20",
        "/?a=1&b=+2",
        "/?a=1&b=%32",
        "/?a[]=1",
        "/?utm_source=1",
        "/?_=1",
        "/?",
        "/",
        "/;a=1",
        "/%3fa=1",
    ]);
}

#[test]
fn paths_are_not_normalised() {
    assert_distinct_responses(&[
        "/a/b",
        "/a%2fb",
        "/a%2Fb",
        "//a/b",
        "/a//b",
        "/./a/b",
        "/x/../a/b",
        "/a/b/",
        "/a/b/.",
        "/A/b",
        "/a%5cb",
        "/a\\b",
        "/%61/b",
        "/a/b;x",
        "/a/b%00",
        "/a/b%0d%0a",
        "/a/b%23",
        "/a/b#c",
        "/a/b%3f",
        "/..%2fa/b",
        "/%2e%2e/a/b",
        "/a/b%20",
    ]);
}

#[test]
fn cache_key_has_the_host_that_the_origin_gets() {
    let front = TestAccelerator::with_response(|request| {
        response("200 OK", STORED, request.field("host").unwrap_or(""))
    });
    for _ in 0..2 {
        for host in [
            "test",
            "other",
            "TeSt",
            "test.",
            "test:80",
            "test:8080",
            "test:",
            "[::1]",
            "127.0.0.1",
        ] {
            let mut client = front.connect();
            client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            let got = client.response();
            assert!(
                got.status == 400 || got.text() == host,
                "{host}: {} {}",
                got.status,
                got.text()
            );
        }
    }
    // The absolute target takes precedence over Host (RFC 9112 §3.2.2).
    let mut client = front.connect();
    client.send("GET http://evil/x HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.response().text(), "evil");
    assert_eq!(front.get("/x", "").text(), "test");
}

#[test]
fn missing_or_ambiguous_host_is_refused() {
    let front = TestAccelerator::with_response(|request| {
        response("200 OK", STORED, request.field("host").unwrap_or(""))
    });
    for hosts in [
        "",
        "Host: test\r\nHost: evil\r\n",
        "Host: a b\r\n",
        "Host: test/x\r\n",
        "Host: a@test\r\n",
        "Host : test\r\n",
    ] {
        let mut client = front.connect();
        client.send(format!("GET / HTTP/1.1\r\n{hosts}\r\n"));
        assert_eq!(client.response().status, 400, "{hosts:?}");
    }
    let mut client = front.connect();
    // HTTP/1.0 does not require Host, but the response must not be stored under another request's key.
    client.send("GET / HTTP/1.0\r\n\r\n");
    let old = client.response();
    assert_ne!((old.status, old.text().as_str()), (200, "test"));
    assert_eq!(
        front.get("/", "").text(),
        "test",
        "it did not get what the one without a Host got"
    );
}

#[test]
fn static_file_suffix_does_not_make_a_page_storable() {
    let page = |request: &OriginRequest| {
        response(
            "200 OK",
            "Set-Cookie: id=1\r\nContent-Type: text/html\r\n",
            &request.number.to_string(),
        )
    };
    let front = TestAccelerator::with_response(page);
    for path in [
        "/account/x.css",
        "/account%2fx.css",
        "/account;x.css",
        "/account%3bx.js",
        "/account%00x.png",
        "/account/..%2fstatic/x.js",
    ] {
        let one = front.get(path, "Cookie: id=1\r\n");
        let two = front.get(path, "");
        // Web cache deception: a personal page under a path with the suffix of a static file.
        assert!(one.status == 400 || one.body != two.body, "{path}");
    }
    let plain = TestAccelerator::with_response(|request| {
        numbered_response(request, "Content-Type: text/html\r\n")
    });
    assert_ne!(
        plain.get("/a/x.css", "").body,
        plain.get("/a/x.css", "").body
    );
}

#[test]
fn request_with_hop_by_hop_fields_does_not_poison_the_cache() {
    let front = front_with_storable_responses();
    // Fields that Connection lists are hop-by-hop and are removed (RFC 9110 §7.6.1); here they would change the
    // response.
    let request = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close, X-Auth, Cookie\r\nX-Auth: 1\r\nCookie: a=b\r\n\r\n";
    assert!(!is_shared(&front, "/", request));
    let asked = front.origin.requests().remove(0);
    assert_eq!((asked.field("x-auth"), asked.field("cookie")), (None, None));
    let mut client = front.connect();
    // Host must be forwarded, even if Connection names it.
    client.send("GET /x HTTP/1.1\r\nHost: test\r\nConnection: Host\r\n\r\n");
    client.response();
    assert_eq!(
        front
            .origin
            .requests()
            .pop()
            .and_then(|asked| asked.field("host").map(str::to_string)),
        Some("test".into())
    );
}

#[test]
fn response_splitting_is_refused() {
    for line in [
        "X-A: a\rSet-Cookie: b",
        "X-A: a\0b",
        "X-A\r\n: a",
        "X A: a",
        "X-A: a\u{7f}\u{1}",
    ] {
        let said = response(
            "200 OK",
            &format!("Cache-Control: max-age=60\r\n{line}\r\n"),
            "x",
        );
        let front = TestAccelerator::new(TestOrigin::start(move |_, stream| {
            stream.write_all(said.as_bytes()).is_ok()
        }));
        for _ in 0..2 {
            assert_eq!(front.get("/", "").status, 502, "{line:?}");
        }
    }
}

#[test]
fn ambiguous_request_is_not_forwarded() {
    let front = front_with_storable_responses();
    for line in [
        "X-A: a\u{7}b",
        "X-A: a\0b",
        "X-A: a\rb",
        "X-A: a\nX-B: c\u{b}",
        "X A: b",
        "X-A : b",
        " X-A: b",
        "\u{1}X: a",
        ": a",
    ] {
        let mut client = front.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: test\r\n{line}\r\n\r\n"));
        assert_eq!(client.response().status, 400, "{line:?}");
    }
    assert_eq!(front.origin.count(), 0);
}

#[test]
fn refusal_of_oversized_request_is_not_stored() {
    let front = TestAccelerator::with_response(|request| match request.head.len() {
        ..2000 => numbered_response(request, STORED),
        _ => response(
            "400 Bad Request",
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            "too much",
        ),
    });
    // Cache-poisoned denial of service: some lengths are accepted by the accelerator but not by the origin, others by
    // neither.
    for len in [3000, 7000, 15_000, 40_000, 200_000] {
        let got = front.get("/", &format!("X-Big: {}\r\n", "x".repeat(len)));
        assert!((400..500).contains(&got.status), "{len}: {}", got.status);
        assert_eq!(front.get("/other", "").status, 200);
    }
    assert_eq!(front.get("/", "").status, 200);
}

#[test]
fn errors_without_lifetime_are_not_shared() {
    let front = TestAccelerator::with_response(|request| match request.field("x-bad") {
        Some(status) => response(&format!("{status} A"), "ETag: \"e\"\r\n", "bad"),
        None => numbered_response(request, STORED),
    });
    for status in [
        400, 401, 403, 404, 405, 406, 408, 410, 411, 413, 414, 415, 417, 421, 426, 429, 431, 500,
        501, 502, 503, 504,
    ] {
        let path = format!("/{status}");
        assert_eq!(
            front.get(&path, &format!("X-Bad: {status}\r\n")).status,
            status
        );
        assert_eq!(front.get(&path, "").status, 200, "{status}");
        // The converse: a malformed request does not remove a stored response.
        let kept = front.get(&path, "").body;
        assert_eq!(front.get(&path, &format!("X-Bad: {status}\r\n")).body, kept);
    }
}

#[test]
fn range_requests_do_not_poison_the_cache() {
    let front = TestAccelerator::with_response(|request| match request.field("range") {
        Some("bytes=0-1") => response(
            "206 A",
            &format!("{STORED}Content-Range: bytes 0-1/10\r\n"),
            "01",
        ),
        // An origin without range support: 200 with the whole representation (RFC 9110 §14.2).
        Some("bytes=0-2") => response("200 OK", STORED, "0123456789"),
        Some(_) => response(
            "416 A",
            &format!("{STORED}Content-Range: bytes */10\r\n"),
            "",
        ),
        None => response("200 OK", STORED, "0123456789"),
    });
    for (at, fields) in [
        "Range: bytes=0-1\r\n",
        "Range: bytes=0-2\r\n",
        "Range: bytes=99-\r\n",
        "Range: cows=0-1\r\n",
        "Range: bytes=0-1\r\nIf-Range: \"x\"\r\n",
        "Range: bytes=0-1\r\nRange: bytes=0-2\r\n",
        "If-Range: \"x\"\r\n",
    ]
    .iter()
    .enumerate()
    {
        let path = format!("/{at}");
        front.get(&path, fields);
        let got = front.get(&path, "");
        assert_eq!(
            (got.status, got.text().as_str()),
            (200, "0123456789"),
            "{fields}"
        );
    }
}

#[test]
fn surplus_response_does_not_answer_the_next_request() {
    // After the first response, the origin sends another one, which must not answer the next request.
    let two = format!(
        "{}{}",
        response("200 OK", STORED, "first"),
        response("200 OK", STORED, "smuggled")
    );
    let front = TestAccelerator::new(TestOrigin::start(move |request, stream| {
        match request.number {
            0 => stream.write_all(two.as_bytes()).is_ok(),
            _ => stream
                .write_all(numbered_response(request, STORED).as_bytes())
                .is_ok(),
        }
    }));
    let mut client = front.connect();
    assert_eq!(client.get("/a", "").text(), "first");
    for path in ["/b", "/c", "/d"] {
        assert_ne!(client.get(path, "").text(), "smuggled");
    }
}
