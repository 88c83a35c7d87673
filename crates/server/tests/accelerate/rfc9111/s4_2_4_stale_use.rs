//! Section 4.2.4 and RFC 5861: how a stale response is used.

use std::io::Write;

use super::Told;
use super::front::{TestFront, TestOrigin, numbered, response, wait_until};

/// A response that is stale on arrival.
const STALE: &str = "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60";

#[test]
fn what_is_stale_is_not_used_without_a_word() {
    let told = Told::new();
    told.none_stored(&[
        STALE,
        "200 OK|Age: 90|ETag: \"a\"|Cache-Control: max-age=60, stale-while-revalidate=30",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, must-revalidate, stale-while-revalidate=600",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, proxy-revalidate, stale-while-revalidate=600",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, no-cache, stale-while-revalidate=600",
        "200 OK|Age: 61|ETag: \"a\"|Cache-Control: max-age=60, stale-while-revalidate=x",
    ]);
}

#[test]
fn while_it_is_validated_it_is_the_answer() {
    let front = TestFront::saying(|asked| match asked.number {
        0 => numbered(
            asked,
            "Age: 61\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\n",
        ),
        _ => numbered(asked, "Cache-Control: max-age=60\r\n"),
    });
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(front.get("/", "").text(), "0", "the old one is the answer");
    wait_until("the new one", || {
        (front.get("/", "").text() == "1").then_some(())
    });
    assert_eq!(front.origin.count(), 2, "it was asked once");
}

/// The client's status for a stale response if the origin's second response is this one.
fn on_error(control: &str, second: &'static str) -> u16 {
    let first = response(
        "200 OK",
        &format!("Age: 61\r\nETag: \"a\"\r\nCache-Control: {control}\r\n"),
        "x",
    );
    let front = TestFront::new(TestOrigin::start(move |asked, stream| match asked.number {
        0 => stream.write_all(first.as_bytes()).is_ok(),
        _ => stream.write_all(second.as_bytes()).is_ok() && !second.is_empty(),
    }));
    assert_eq!(front.get("/", "").status, 200);
    front.get("/", "").status
}

const FAILED: &str = "HTTP/1.1 503 A\r\nContent-Length: 0\r\n\r\n";

#[test]
fn if_the_origin_fails_it_is_the_answer() {
    assert_eq!(on_error("max-age=60, stale-if-error=600", FAILED), 200);
    assert_eq!(on_error("max-age=60, stale-if-error=600", ""), 200);
    assert_eq!(
        on_error("max-age=60, stale-if-error=600", "garbage\r\n\r\n"),
        200
    );
    assert_eq!(
        on_error("max-age=60", FAILED),
        200,
        "by default for an hour"
    );
    assert_eq!(on_error("s-maxage=60, stale-if-error=600", FAILED), 200);
}

#[test]
fn if_the_origin_fails_it_may_not_be_the_answer() {
    assert_eq!(
        on_error("max-age=60, stale-if-error=1", FAILED),
        503,
        "it is over"
    );
    assert_eq!(on_error("max-age=60, stale-if-error=0", FAILED), 503);
    assert_eq!(
        on_error("max-age=60, must-revalidate, stale-if-error=600", FAILED),
        503
    );
    assert_eq!(on_error("max-age=60, must-revalidate", ""), 502);
    assert_eq!(on_error("max-age=60, proxy-revalidate", FAILED), 503);
    assert_eq!(
        on_error("s-maxage=60", FAILED),
        503,
        "it implies proxy-revalidate (§5.2.2.10)"
    );
    assert_eq!(on_error("no-cache", FAILED), 503);
}

#[test]
fn an_answer_that_is_no_failure_counts() {
    const GONE: &str = "HTTP/1.1 404 A\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(on_error("max-age=60, stale-if-error=600", GONE), 404);
    const REFUSED: &str = "HTTP/1.1 401 A\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(on_error("max-age=60, stale-if-error=600", REFUSED), 401);
}

#[test]
fn a_head_or_a_range_gets_it_too_if_the_origin_fails() {
    let front = TestFront::saying(|asked| match asked.number {
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
    assert_eq!(front.ask("HEAD", "/", "").status, 200);
}
