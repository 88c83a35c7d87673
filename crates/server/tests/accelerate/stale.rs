//! Stored responses that have become stale.

use lowroad_testkit::wait_until;

use crate::front::{TestAccelerator, numbered_response, response};

#[test]
fn fresh_response_is_not_fetched_again() {
    let front = TestAccelerator::with_response(|request| {
        numbered_response(request, "Cache-Control: max-age=60\r\n")
    });
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(front.get("/?a", "").text(), "1");
    assert_eq!(front.request("HEAD", "/", "").status, 200);
    assert_eq!(front.get("/", "Range: bytes=0-0\r\n").status, 206);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn validated_response_gets_the_fields_of_the_304() {
    let front = TestAccelerator::with_response(|request| match request.field("if-none-match") {
        Some("\"a\"") => {
            "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nX-New: 1\r\n\r\n".into()
        }
        _ => response(
            "200 OK",
            "Cache-Control: max-age=1\r\nETag: \"a\"\r\nX-Old: 1\r\n",
            "body",
        ),
    });
    assert_eq!(front.get("/", "").text(), "body");
    let renewed = wait_until("a validation", || {
        let got = front.get("/", "");
        assert_eq!((got.status, got.text().as_str()), (200, "body"));
        got.field("x-new").is_some().then_some(got)
    });
    assert_eq!(renewed.field("x-old"), Some("1"));
    assert_eq!(renewed.field("cache-control"), Some("max-age=60"));
    // The precondition of the client is evaluated for the stored response.
    assert_eq!(front.get("/", "If-None-Match: \"a\"\r\n").status, 304);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn validation_keeps_long_stored_body() {
    let front =
        TestAccelerator::with_response(|request| match request.field("if-modified-since") {
            Some("Sun, 06 Nov 1994 08:49:37 GMT") => {
                "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\n\r\n".into()
            }
            _ => response(
                "200 OK",
                "Cache-Control: max-age=1\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
                &"x".repeat(300_000),
            ),
        });
    wait_until("a validation", || {
        let got = front.get("/", "");
        assert_eq!(got.body, vec![b'x'; 300_000]);
        (front.origin.count() == 2).then_some(())
    });
    assert_eq!(front.get("/", "").body, vec![b'x'; 300_000]);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn changed_response_replaces_the_stored_one() {
    let front = TestAccelerator::with_response(|request| {
        let fields = format!(
            "Cache-Control: max-age=1\r\nETag: \"{}\"\r\n",
            request.number
        );
        numbered_response(request, &fields)
    });
    assert_eq!(front.get("/", "").text(), "0");
    wait_until("another", || {
        (front.get("/", "").text() == "1").then_some(())
    });
    let requests = front.origin.requests();
    assert_eq!(requests[1].field("if-none-match"), Some("\"0\""));
}

#[test]
fn cache_status_of_too_large_response_has_no_stored() {
    let front = TestAccelerator::with_response(|_| {
        response(
            "200 OK",
            "Cache-Control: max-age=60\r\n",
            &"x".repeat(5 << 20),
        )
    });
    for asked in 1..3 {
        let got = front.get("/", "");
        assert_eq!(got.body.len(), 5 << 20);
        assert_eq!(got.field("cache-status"), Some("lowroad; fwd=uri-miss"));
        assert_eq!(front.origin.count(), asked);
    }
}

#[test]
fn head_and_range_requests_revalidate_in_background() {
    for (method, fields, status) in [
        ("HEAD", "", 200),
        ("GET", "Range: bytes=0-0\r\n", 206),
        ("GET", "Range: bytes=0-0\r\nIf-Range: \"a\"\r\n", 206),
        ("GET", "If-None-Match: \"a\"\r\n", 304),
    ] {
        let front = TestAccelerator::with_response(|request| match request.number {
            0 => response(
                "200 OK",
                "Age: 61\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\n",
                "old",
            ),
            _ => numbered_response(request, "Cache-Control: max-age=60\r\nETag: \"b\"\r\n"),
        });
        front.get("/", "");
        assert_eq!(front.request(method, "/", fields).status, status);
        wait_until("another", || {
            (front.get("/", "").text() == "1").then_some(())
        });
        let request = front.origin.requests().remove(1);
        assert_eq!(request.method, "GET", "{method} {fields}");
        assert_eq!(request.field("if-none-match"), Some("\"a\""));
        assert_eq!(
            (request.field("range"), request.field("if-range")),
            (None, None)
        );
        assert_eq!(front.origin.count(), 2);
    }
}
