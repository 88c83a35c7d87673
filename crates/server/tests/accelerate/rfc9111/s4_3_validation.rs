//! Section 4.3: validation at the origin, and conditions of clients.

use super::LONG_AGO;
use super::front::{OriginRequest, TestFront, TestOrigin, response};

/// An origin that sends a response without a remaining lifetime, and then 304 with these fields.
fn holding(stored: &'static str, news: &'static str) -> TestFront {
    TestFront::saying(move |asked| match asked.number {
        0 => response(
            "200 OK",
            &format!("Age: 61\r\nCache-Control: max-age=60\r\n{stored}"),
            "body",
        ),
        _ => format!("HTTP/1.1 304 Not Modified\r\n{news}\r\n"),
    })
}

fn second(front: &TestFront, fields: &str) -> (lowroad_testkit::ClientResponse, OriginRequest) {
    assert_eq!(front.get("/", "").text(), "body");
    let got = front.get("/", fields);
    (got, front.origin.requests().remove(1))
}

#[test]
fn both_validators_are_sent() {
    let front = holding(
        "ETag: W/\"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "",
    );
    let (got, asked) = second(&front, "");
    assert_eq!((got.status, got.text().as_str()), (200, "body"));
    assert_eq!(asked.field("if-none-match"), Some("W/\"a\""));
    assert_eq!(asked.field("if-modified-since"), Some(LONG_AGO));
}

#[test]
fn what_there_is_is_sent() {
    let (_, asked) = second(&holding("ETag: \"a\"\r\n", ""), "");
    assert_eq!(
        (
            asked.field("if-none-match"),
            asked.field("if-modified-since")
        ),
        (Some("\"a\""), None)
    );
    let dated = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let (_, asked) = second(&holding(dated, ""), "");
    assert_eq!(
        (
            asked.field("if-none-match"),
            asked.field("if-modified-since")
        ),
        (None, Some(LONG_AGO))
    );
}

#[test]
fn the_client_s_conditions_are_not_the_origin_s() {
    let front = holding("ETag: \"a\"\r\n", "");
    let (got, asked) = second(
        &front,
        "If-None-Match: \"b\", \"c\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    );
    assert_eq!(
        (got.status, got.text().as_str()),
        (200, "body"),
        "it has another one"
    );
    assert_eq!(
        (
            asked.field("if-none-match"),
            asked.field("if-modified-since")
        ),
        (Some("\"a\""), None)
    );
    assert_eq!(
        front.get("/", "If-None-Match: \"b\", \"a\"\r\n").status,
        304
    );
    let front = holding("ETag: \"a\"\r\n", "");
    assert_eq!(second(&front, "If-None-Match: W/\"a\"\r\n").0.status, 304);
}

#[test]
fn a_304_updates_the_fields_but_not_those_of_the_bytes() {
    let front = holding(
        "ETag: \"a\"\r\nX-Kept: 1\r\nX-New: 1\r\nContent-Type: text/plain\r\nX-Twice: 1\r\nX-Twice: 2\r\n",
        "ETag: \"a\"\r\nX-New: 2\r\nX-Twice: 3\r\nX-Added: 1\r\nContent-Length: 99\r\nContent-Encoding: gzip\r\n\
         Content-Range: bytes 0-1/2\r\nCache-Control: max-age=600\r\n",
    );
    second(&front, "");
    let got = front.get("/", "");
    assert_eq!((front.origin.count(), got.text().as_str()), (2, "body"));
    let fields = [
        "x-kept",
        "x-new",
        "x-twice",
        "x-added",
        "content-length",
        "content-encoding",
        "content-range",
        "content-type",
    ];
    let got: Vec<_> = fields.iter().map(|name| got.field(name)).collect();
    let expected = [
        Some("1"),
        Some("2"),
        Some("3"),
        Some("1"),
        Some("4"),
        None,
        None,
        Some("text/plain"),
    ];
    assert_eq!(got, expected);
}

#[test]
fn a_304_without_a_lifetime_renews_that_of_the_stored() {
    // Without an Age in the 304, the response is fresh for another 60 s.
    let front = holding("ETag: \"a\"\r\n", "");
    second(&front, "");
    let got = front.get("/", "");
    assert_eq!((got.text().as_str(), front.origin.count()), ("body", 2));
    assert!(
        got.field("age")
            .is_some_and(|age| age.parse::<u64>().is_ok_and(|age| age < 30))
    );
}

#[test]
fn a_304_that_forbids_storing_ends_it() {
    let front = holding("ETag: \"a\"\r\n", "Cache-Control: no-store\r\n");
    assert_eq!(second(&front, "").0.text(), "body");
    front.get("/", "");
    assert_eq!(
        front.origin.count(),
        3,
        "it is not used without the origin any more"
    );
}

#[test]
fn a_304_with_another_tag_is_about_something_else() {
    let front = TestFront::saying(|asked| match (asked.number, asked.field("if-none-match")) {
        (0, _) => response(
            "200 OK",
            "Age: 61\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n",
            "old",
        ),
        (_, Some(_)) => {
            "HTTP/1.1 304 Not Modified\r\nETag: \"b\"\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        _ => response(
            "200 OK",
            "Cache-Control: max-age=60\r\nETag: \"b\"\r\n",
            "new",
        ),
    });
    front.get("/", "");
    let got = front.get("/", "");
    assert_eq!(
        (got.field("etag"), got.text().as_str()),
        (Some("\"b\""), "new")
    );
    assert_eq!(front.get("/", "").text(), "new");
    assert_eq!(front.origin.count(), 3);
}

#[test]
fn a_304_for_nothing_stored_is_only_for_who_asked() {
    let front = TestFront::saying(|asked| match asked.field("if-none-match") {
        Some(_) => {
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        None => response(
            "200 OK",
            "ETag: \"a\"\r\nCache-Control: max-age=60\r\n",
            "body",
        ),
    });
    assert_eq!(front.get("/", "If-None-Match: \"a\"\r\n").status, 304);
    assert_eq!(front.get("/", "").text(), "body");
    // Not storable, so that the client's conditions go to the origin.
    let front = TestFront::saying(|asked| match asked.field("if-none-match") {
        Some(_) => {
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        None => response(
            "200 OK",
            "ETag: \"a\"\r\nCache-Control: no-store\r\n",
            "body",
        ),
    });
    for _ in 0..3 {
        assert_eq!(front.get("/", "").text(), "body");
        assert_eq!(front.get("/", "If-None-Match: \"a\"\r\n").status, 304);
    }
}

#[test]
fn no_cache_is_validated_each_time() {
    let front = TestFront::saying(|asked| match asked.field("if-none-match") {
        Some("\"a\"") => "HTTP/1.1 304 Not Modified\r\n\r\n".into(),
        _ => response(
            "200 OK",
            "Cache-Control: no-cache\r\nETag: \"a\"\r\n",
            "body",
        ),
    });
    for count in 1..5 {
        assert_eq!(front.get("/", "").text(), "body");
        assert_eq!(front.origin.count(), count);
    }
}

#[test]
fn a_client_s_date_is_judged_by_what_is_stored() {
    let front = TestFront::saying(|_| {
        response(
            "200 OK",
            "Cache-Control: max-age=60\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            "body",
        )
    });
    front.get("/", "");
    let status = |since: &str| {
        front
            .get("/", &format!("If-Modified-Since: {since}\r\n"))
            .status
    };
    assert_eq!(status(LONG_AGO), 304);
    assert_eq!(status("Sun, 06 Nov 1994 08:49:38 GMT"), 304);
    assert_eq!(status("Sun, 06 Nov 1994 08:49:36 GMT"), 200);
    assert_eq!(status("nonsense"), 200);
    // If-None-Match takes precedence, and the representation has no ETag.
    let fields = "If-None-Match: \"a\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    assert_eq!(front.get("/", fields).status, 200);
    assert_eq!(front.get("/", "If-None-Match: *\r\n").status, 304);
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn a_304_to_a_client_has_what_it_needs() {
    let front = TestFront::saying(|_| {
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nVary: X-Kind\r\nContent-Type: text/plain\r\n\
                      Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\nContent-Location: /x\r\n";
        response("200 OK", fields, "body")
    });
    front.get("/", "");
    let got = front.get("/", "If-None-Match: \"a\"\r\n");
    assert_eq!(got.status, 304);
    for name in [
        "cache-control",
        "etag",
        "vary",
        "expires",
        "content-location",
        "date",
        "age",
    ] {
        assert!(got.field(name).is_some(), "{name} (RFC 9110 §15.4.5)");
    }
    assert_eq!(got.field("content-type"), None);
}

#[test]
fn preconditions_that_are_the_origin_s_go_there() {
    let front = TestFront::saying(|asked| match asked.field("if-match") {
        Some("\"b\"") => response(
            "412 Precondition Failed",
            "Cache-Control: max-age=60\r\n",
            "",
        ),
        _ => response(
            "200 OK",
            "Cache-Control: max-age=60\r\nETag: \"a\"\r\n",
            "body",
        ),
    });
    front.get("/", "");
    assert_eq!(front.get("/", "If-Match: \"b\"\r\n").status, 412);
    assert_eq!(front.get("/", "").text(), "body", "412 is not stored");
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn a_head_is_answered_from_a_get() {
    let front = TestFront::saying(|_| {
        response(
            "200 OK",
            "Cache-Control: max-age=60\r\nETag: \"a\"\r\n",
            "body",
        )
    });
    front.get("/", "");
    let got = front.ask("HEAD", "/", "");
    assert_eq!(
        (got.status, got.field("content-length"), got.field("etag")),
        (200, Some("4"), Some("\"a\""))
    );
    assert_eq!(
        front.ask("HEAD", "/", "If-None-Match: \"a\"\r\n").status,
        304
    );
    assert_eq!(front.origin.count(), 1);
}

/// An accelerator that honours the clients' request directives.
fn honouring(answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static) -> TestFront {
    TestFront::caching(
        TestOrigin::with_response(answer),
        "request_directives = true",
    )
}

/// The results of two GETs around a HEAD that the origin answers with these fields; it has `"b"` from then on.
fn around_a_head(fields: &'static str) -> (String, lowroad_testkit::ClientResponse, usize) {
    let front = honouring(move |asked| match (asked.method.as_str(), asked.number) {
        ("HEAD", _) => format!("HTTP/1.1 200 OK\r\n{fields}\r\n"),
        (_, 0) => response(
            "200 OK",
            "Cache-Control: max-age=60\r\nETag: \"a\"\r\nX-A: 1\r\n",
            "body",
        ),
        _ => response(
            "200 OK",
            "Cache-Control: max-age=60\r\nETag: \"b\"\r\n",
            "different",
        ),
    });
    front.get("/", "");
    // The request's no-cache forwards it.
    let head = front.ask("HEAD", "/", "Cache-Control: no-cache\r\n");
    assert_eq!(head.status, 200, "{fields}");
    let got = front.get("/", "");
    (got.text(), got, front.origin.count())
}

#[test]
fn a_head_that_differs_ends_what_is_stored() {
    for fields in [
        "Content-Length: 4\r\nETag: \"b\"\r\n",
        "Content-Length: 9\r\nETag: \"a\"\r\n",
        "Content-Length: 9\r\n",
        "ETag: W/\"a\"\r\n",
        "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "ETag: \"a\"\r\nCache-Control: no-store\r\n",
    ] {
        let (text, _, count) = around_a_head(fields);
        assert_eq!((&*text, count), ("different", 3), "{fields}");
    }
}

/// Some applications derive validators from the body, and so send none for HEAD. Another version may have the same
/// length.
#[test]
fn a_head_without_the_validator_says_nothing_of_what_is_stored() {
    for fields in [
        "Content-Length: 4\r\nX-A: 2\r\nCache-Control: max-age=90\r\n",
        "X-A: 2\r\nCache-Control: max-age=90\r\n",
        // Two ETags are invalid.
        "ETag: \"a\"\r\nETag: \"b\"\r\nX-A: 2\r\nCache-Control: max-age=90\r\n",
    ] {
        let (text, got, count) = around_a_head(fields);
        assert_eq!((&*text, count), ("body", 2), "{fields}");
        assert_eq!(got.field("x-a"), Some("1"), "{fields}");
        assert_eq!(got.field("cache-control"), Some("max-age=60"), "{fields}");
    }
}

#[test]
fn a_head_that_is_the_same_freshens_what_is_stored() {
    for fields in [
        "Content-Length: 4\r\nETag: \"a\"\r\nX-A: 2\r\nX-B: 2\r\nCache-Control: max-age=90\r\n",
        "ETag: \"a\"\r\nX-A: 2\r\nX-B: 2\r\nCache-Control: max-age=90\r\n",
    ] {
        let (text, got, count) = around_a_head(fields);
        assert_eq!((&*text, count), ("body", 2), "{fields}");
        assert_eq!(got.field("etag"), Some("\"a\""));
        assert_eq!(got.field("content-length"), Some("4"));
        assert_eq!((got.field("x-a"), got.field("x-b")), (Some("2"), Some("2")));
        assert_eq!(got.field("cache-control"), Some("max-age=90"));
    }
}

#[test]
fn a_head_that_is_no_200_says_nothing_of_what_is_stored() {
    let front = honouring(|asked| match asked.method.as_str() {
        "HEAD" => "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nETag: \"b\"\r\n\r\n".into(),
        _ => response("200 OK", "Cache-Control: max-age=60\r\n", "body"),
    });
    front.get("/", "");
    let head = front.ask("HEAD", "/", "Cache-Control: no-cache\r\n");
    assert_eq!(head.status, 404);
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn a_304_that_no_condition_asked_for_is_the_origin_s_fault() {
    let front = TestFront::saying(|asked| match asked.target.as_str() {
        "/stale" if asked.number == 0 => response(
            "200 OK",
            "Age: 61\r\nCache-Control: max-age=60, stale-if-error=60\r\n",
            "body",
        ),
        _ => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".into(),
    });
    front.get("/stale", "");
    let stands_in = front.get("/stale", "");
    assert_eq!((stands_in.status, &*stands_in.text()), (200, "body"));
    for (method, fields, status) in [
        ("GET", "", 502),
        ("HEAD", "", 502),
        ("GET", "Range: bytes=0-1\r\n", 502),
        // These conditions apply to a stored response, and there is none.
        ("GET", "If-None-Match: \"a\"\r\n", 502),
        ("HEAD", "If-None-Match: \"a\"\r\n", 304),
    ] {
        let got = front.ask(method, "/", fields);
        assert_eq!(got.status, status, "{method} {fields}");
    }
}

#[test]
fn a_head_that_is_forwarded_spoils_nothing() {
    let front = TestFront::saying(|asked| match asked.method.as_str() {
        "HEAD" => {
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        _ => response("200 OK", "Cache-Control: max-age=60\r\n", "body"),
    });
    let got = front.ask("HEAD", "/", "");
    assert_eq!((got.status, got.field("content-length")), (200, Some("4")));
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(front.get("/", "").text(), "body");
}
