//! Section 4.2.4 and RFC 5861: use of stale responses.

use std::io::Write;

use super::ScriptedCache;
use super::front::{TestAccelerator, TestOrigin, numbered_response, response, wait_until};

/// A response that is stale on arrival.
const STALE: &str = "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60";

#[test]
fn stale_response_requires_validation() {
    let told = ScriptedCache::new();
    told.assert_none_stored(&[
        STALE,
        "200 OK|Age: 90|ETag: \"a\"|Cache-Control: max-age=60, stale-while-revalidate=30",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, must-revalidate, stale-while-revalidate=600",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, proxy-revalidate, stale-while-revalidate=600",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, no-cache, stale-while-revalidate=600",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, stale-while-revalidate=x",
    ]);
}

#[test]
fn stale_while_revalidate_serves_stale_response() {
    let front = TestAccelerator::with_response(|request| match request.number {
        0 => numbered_response(
            request,
            "Age: 61\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\n",
        ),
        _ => numbered_response(request, "Cache-Control: max-age=60\r\n"),
    });
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(front.get("/", "").text(), "0", "the old one is the answer");
    wait_until("the new one", || {
        (front.get("/", "").text() == "1").then_some(())
    });
    assert_eq!(front.origin.count(), 2, "it was asked once");
}

/// The status that the client gets for a stale response with this Cache-Control, if the origin's second response is
/// `second`.
fn status_after_second_response(control: &str, second: &'static str) -> u16 {
    let first = response(
        "200 OK",
        &format!("Age: 61\r\nETag: \"a\"\r\nCache-Control: {control}\r\n"),
        "x",
    );
    let front = TestAccelerator::new(TestOrigin::start(move |request, stream| {
        match request.number {
            0 => stream.write_all(first.as_bytes()).is_ok(),
            _ => stream.write_all(second.as_bytes()).is_ok() && !second.is_empty(),
        }
    }));
    assert_eq!(front.get("/", "").status, 200);
    front.get("/", "").status
}

const FAILED: &str = "HTTP/1.1 503 A\r\nContent-Length: 0\r\n\r\n";

#[test]
fn stale_if_error_serves_stale_response() {
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=600", FAILED),
        200
    );
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=600", ""),
        200
    );
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=600", "garbage\r\n\r\n"),
        200
    );
    assert_eq!(
        status_after_second_response("max-age=60", FAILED),
        200,
        "by default for an hour"
    );
    assert_eq!(
        status_after_second_response("s-maxage=60, stale-if-error=600", FAILED),
        200
    );
}

#[test]
fn directives_that_forbid_stale_if_error() {
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=1", FAILED),
        503,
        "it is over"
    );
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=0", FAILED),
        503
    );
    assert_eq!(
        status_after_second_response("max-age=60, must-revalidate, stale-if-error=600", FAILED),
        503
    );
    assert_eq!(
        status_after_second_response("max-age=60, must-revalidate", ""),
        502
    );
    assert_eq!(
        status_after_second_response("max-age=60, proxy-revalidate", FAILED),
        503
    );
    assert_eq!(
        status_after_second_response("s-maxage=60", FAILED),
        503,
        "it implies proxy-revalidate (§5.2.2.10)"
    );
    assert_eq!(status_after_second_response("no-cache", FAILED), 503);
}

#[test]
fn client_error_is_not_replaced_by_stale_response() {
    const GONE: &str = "HTTP/1.1 404 A\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=600", GONE),
        404
    );
    const REFUSED: &str = "HTTP/1.1 401 A\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        status_after_second_response("max-age=60, stale-if-error=600", REFUSED),
        401
    );
}

#[test]
fn stale_if_error_applies_to_head_and_range() {
    let front = TestAccelerator::with_response(|request| match request.number {
        0 => response(
            "200 OK",
            "Age: 61\r\nETag: \"a\"\r\nCache-Control: max-age=60\r\n",
            "body",
        ),
        _ => FAILED.into(),
    });
    front.get("/", "");
    assert_eq!(front.get("/", "").status, 200);
    assert_eq!(front.get("/", "Range: bytes=1-2\r\n").status, 206);
    assert_eq!(front.request("HEAD", "/", "").status, 200);
}
