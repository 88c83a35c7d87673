//! Section 4.3: validation by the origin, and preconditions of clients.

use super::LONG_AGO;
use super::front::{OriginRequest, TestAccelerator, TestOrigin, response};

/// An accelerator with an origin that first sends a stale response with the fields `stored`, and then a 304 with the
/// fields `news`.
fn stale_then_304(stored: &'static str, news: &'static str) -> TestAccelerator {
    TestAccelerator::with_response(move |request| match request.number {
        0 => response(
            "200 OK",
            &format!("Age: 61\r\nCache-Control: max-age=60\r\n{stored}"),
            "body",
        ),
        _ => format!("HTTP/1.1 304 Not Modified\r\n{news}\r\n"),
    })
}

fn get_twice(
    front: &TestAccelerator,
    fields: &str,
) -> (lowroad_testkit::ClientResponse, OriginRequest) {
    assert_eq!(front.get("/", "").text(), "body");
    let got = front.get("/", fields);
    (got, front.origin.requests().remove(1))
}

#[test]
fn validation_sends_etag_and_last_modified() {
    let front = stale_then_304(
        "ETag: W/\"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "",
    );
    let (got, request) = get_twice(&front, "");
    assert_eq!((got.status, got.text().as_str()), (200, "body"));
    assert_eq!(request.field("if-none-match"), Some("W/\"a\""));
    assert_eq!(request.field("if-modified-since"), Some(LONG_AGO));
}

#[test]
fn validation_sends_the_only_validator() {
    let (_, request) = get_twice(&stale_then_304("ETag: \"a\"\r\n", ""), "");
    assert_eq!(
        (
            request.field("if-none-match"),
            request.field("if-modified-since")
        ),
        (Some("\"a\""), None)
    );
    let dated = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    let (_, request) = get_twice(&stale_then_304(dated, ""), "");
    assert_eq!(
        (
            request.field("if-none-match"),
            request.field("if-modified-since")
        ),
        (None, Some(LONG_AGO))
    );
}

#[test]
fn preconditions_of_client_are_not_forwarded_with_validation() {
    let front = stale_then_304("ETag: \"a\"\r\n", "");
    let (got, request) = get_twice(
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
            request.field("if-none-match"),
            request.field("if-modified-since")
        ),
        (Some("\"a\""), None)
    );
    assert_eq!(
        front.get("/", "If-None-Match: \"b\", \"a\"\r\n").status,
        304
    );
    let front = stale_then_304("ETag: \"a\"\r\n", "");
    assert_eq!(
        get_twice(&front, "If-None-Match: W/\"a\"\r\n").0.status,
        304
    );
}

#[test]
fn fields_of_304_update_stored_response_except_representation_fields() {
    let front = stale_then_304(
        "ETag: \"a\"\r\nX-Kept: 1\r\nX-New: 1\r\nContent-Type: text/plain\r\nX-Twice: 1\r\nX-Twice: 2\r\n",
        "ETag: \"a\"\r\nX-New: 2\r\nX-Twice: 3\r\nX-Added: 1\r\nContent-Length: 99\r\nContent-Encoding: gzip\r\n\
         Content-Range: bytes 0-1/2\r\nCache-Control: max-age=600\r\n",
    );
    get_twice(&front, "");
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
fn status_304_without_lifetime_restarts_stored_lifetime() {
    // The 304 has no Age, so the response is fresh for another 60 s.
    let front = stale_then_304("ETag: \"a\"\r\n", "");
    get_twice(&front, "");
    let got = front.get("/", "");
    assert_eq!((got.text().as_str(), front.origin.count()), ("body", 2));
    assert!(
        got.field("age")
            .is_some_and(|age| age.parse::<u64>().is_ok_and(|age| age < 30))
    );
}

#[test]
fn no_store_in_304_invalidates_stored_response() {
    let front = stale_then_304("ETag: \"a\"\r\n", "Cache-Control: no-store\r\n");
    assert_eq!(get_twice(&front, "").0.text(), "body");
    front.get("/", "");
    assert_eq!(
        front.origin.count(),
        3,
        "it is not used without the origin any more"
    );
}

#[test]
fn status_304_with_other_etag_causes_complete_fetch() {
    let front = TestAccelerator::with_response(|request| {
        match (request.number, request.field("if-none-match")) {
            (0, _) => response(
                "200 OK",
                "Age: 61\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\n",
                "old",
            ),
            (_, Some(_)) => {
                "HTTP/1.1 304 Not Modified\r\nETag: \"b\"\r\nCache-Control: max-age=60\r\n\r\n"
                    .into()
            }
            _ => response(
                "200 OK",
                "Cache-Control: max-age=60\r\nETag: \"b\"\r\n",
                "new",
            ),
        }
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
fn status_304_without_stored_response_is_not_shared() {
    let front = TestAccelerator::with_response(|request| match request.field("if-none-match") {
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
    // This response is not storable, so the client's preconditions are forwarded.
    let front = TestAccelerator::with_response(|request| match request.field("if-none-match") {
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
fn no_cache_response_is_validated_for_each_request() {
    let front = TestAccelerator::with_response(|request| match request.field("if-none-match") {
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
fn if_modified_since_is_compared_with_stored_last_modified() {
    let front = TestAccelerator::with_response(|_| {
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
fn status_304_has_required_fields() {
    let front = TestAccelerator::with_response(|_| {
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
fn if_match_is_forwarded() {
    let front = TestAccelerator::with_response(|request| match request.field("if-match") {
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
fn stored_get_answers_head() {
    let front = TestAccelerator::with_response(|_| {
        response(
            "200 OK",
            "Cache-Control: max-age=60\r\nETag: \"a\"\r\n",
            "body",
        )
    });
    front.get("/", "");
    let got = front.request("HEAD", "/", "");
    assert_eq!(
        (got.status, got.field("content-length"), got.field("etag")),
        (200, Some("4"), Some("\"a\""))
    );
    assert_eq!(
        front
            .request("HEAD", "/", "If-None-Match: \"a\"\r\n")
            .status,
        304
    );
    assert_eq!(front.origin.count(), 1);
}

/// An accelerator with `request_directives = true`.
fn front_with_request_directives(
    answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
) -> TestAccelerator {
    TestAccelerator::with_cache_settings(
        TestOrigin::with_response(answer),
        "request_directives = true",
    )
}

/// Sends a GET, a HEAD and a GET. The origin answers the HEAD with these fields, and later requests with the ETag
/// `"b"`.
fn gets_around_head(fields: &'static str) -> (String, lowroad_testkit::ClientResponse, usize) {
    let front = front_with_request_directives(move |request| {
        match (request.method.as_str(), request.number) {
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
        }
    });
    front.get("/", "");
    // The request's no-cache makes the cache forward the HEAD.
    let head = front.request("HEAD", "/", "Cache-Control: no-cache\r\n");
    assert_eq!(head.status, 200, "{fields}");
    let got = front.get("/", "");
    (got.text(), got, front.origin.count())
}

#[test]
fn different_head_response_invalidates_stored_get() {
    for fields in [
        "Content-Length: 4\r\nETag: \"b\"\r\n",
        "Content-Length: 9\r\nETag: \"a\"\r\n",
        "Content-Length: 9\r\n",
        "ETag: W/\"a\"\r\n",
        "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "ETag: \"a\"\r\nCache-Control: no-store\r\n",
    ] {
        let (text, _, count) = gets_around_head(fields);
        assert_eq!((&*text, count), ("different", 3), "{fields}");
    }
}

/// Some applications derive validators from the body, and so send none in responses to HEAD. The same Content-Length
/// does not prove that the version is the same.
#[test]
fn head_response_without_validator_changes_nothing() {
    for fields in [
        "Content-Length: 4\r\nX-A: 2\r\nCache-Control: max-age=90\r\n",
        "X-A: 2\r\nCache-Control: max-age=90\r\n",
        // A response with two ETags has no valid ETag.
        "ETag: \"a\"\r\nETag: \"b\"\r\nX-A: 2\r\nCache-Control: max-age=90\r\n",
    ] {
        let (text, got, count) = gets_around_head(fields);
        assert_eq!((&*text, count), ("body", 2), "{fields}");
        assert_eq!(got.field("x-a"), Some("1"), "{fields}");
        assert_eq!(got.field("cache-control"), Some("max-age=60"), "{fields}");
    }
}

#[test]
fn equal_head_response_freshens_stored_get() {
    for fields in [
        "Content-Length: 4\r\nETag: \"a\"\r\nX-A: 2\r\nX-B: 2\r\nCache-Control: max-age=90\r\n",
        "ETag: \"a\"\r\nX-A: 2\r\nX-B: 2\r\nCache-Control: max-age=90\r\n",
    ] {
        let (text, got, count) = gets_around_head(fields);
        assert_eq!((&*text, count), ("body", 2), "{fields}");
        assert_eq!(got.field("etag"), Some("\"a\""));
        assert_eq!(got.field("content-length"), Some("4"));
        assert_eq!((got.field("x-a"), got.field("x-b")), (Some("2"), Some("2")));
        assert_eq!(got.field("cache-control"), Some("max-age=90"));
    }
}

#[test]
fn head_response_other_than_200_changes_nothing() {
    let front = front_with_request_directives(|request| match request.method.as_str() {
        "HEAD" => "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nETag: \"b\"\r\n\r\n".into(),
        _ => response("200 OK", "Cache-Control: max-age=60\r\n", "body"),
    });
    front.get("/", "");
    let head = front.request("HEAD", "/", "Cache-Control: no-cache\r\n");
    assert_eq!(head.status, 404);
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn status_304_to_unconditional_request_is_502() {
    let front = TestAccelerator::with_response(|request| match request.target.as_str() {
        "/stale" if request.number == 0 => response(
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
        // These preconditions would apply to a stored response, but there is none.
        ("GET", "If-None-Match: \"a\"\r\n", 502),
        ("HEAD", "If-None-Match: \"a\"\r\n", 304),
    ] {
        let got = front.request(method, "/", fields);
        assert_eq!(got.status, status, "{method} {fields}");
    }
}

#[test]
fn forwarded_head_response_does_not_answer_get() {
    let front = TestAccelerator::with_response(|request| match request.method.as_str() {
        "HEAD" => {
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        _ => response("200 OK", "Cache-Control: max-age=60\r\n", "body"),
    });
    let got = front.request("HEAD", "/", "");
    assert_eq!((got.status, got.field("content-length")), (200, Some("4")));
    assert_eq!(front.get("/", "").text(), "body");
    assert_eq!(front.get("/", "").text(), "body");
}
