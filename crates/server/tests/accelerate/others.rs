//! Personal responses never reach other clients, even if the origin does not forbid caching.

use std::thread;
use std::time::Duration;

use lowroad_testkit::origin::OriginRequest;
use lowroad_testkit::wait_until;

use crate::front::{TestAccelerator, response};

/// A page for the user that the cookie names. The application sends no caching fields except a validator.
fn own_page(request: &OriginRequest, fields: &str) -> String {
    let who = request.field("cookie").unwrap_or("nobody");
    response("200 OK", &format!("ETag: \"{who}\"\r\n{fields}"), who)
}

#[test]
fn response_that_requires_validation_is_not_shared_with_followers() {
    for control in [
        "",
        "Cache-Control: no-cache\r\n",
        "Cache-Control: max-age=0\r\n",
    ] {
        let front = TestAccelerator::with_response(move |request| {
            // Time for other requests to arrive.
            thread::sleep(Duration::from_millis(200));
            let who = request.field("cookie").map(|who| format!("\"{who}\""));
            match request.field("if-none-match") == who.as_deref() {
                true => format!("HTTP/1.1 304 Not Modified\r\n{control}\r\n"),
                false => own_page(request, control),
            }
        });
        // In the first round the requests are misses, in the second one validations.
        for _ in 0..2 {
            thread::scope(|scope| {
                for who in ["a", "b", "c"] {
                    let mut client = front.connect();
                    scope.spawn(move || {
                        let got = client.get("/", &format!("Cookie: {who}\r\n"));
                        assert_eq!(got.text(), who, "{control}");
                    });
                }
            });
        }
    }
}

#[test]
fn response_without_freshness_is_not_served_stale_to_others() {
    let front = TestAccelerator::with_response(|request| match request.number {
        0 => own_page(request, ""),
        _ => response("503 Service Unavailable", "", "down"),
    });
    assert_eq!(front.get("/", "Cookie: a\r\n").text(), "a");
    for control in ["", "Cache-Control: stale-if-error=60, max-stale=60\r\n"] {
        let got = front.get("/", &format!("Cookie: b\r\n{control}"));
        assert_eq!((got.status, got.text().as_str()), (503, "down"));
    }
}

#[test]
fn vary_of_304_updates_the_stored_response() {
    let front = TestAccelerator::with_response(|request| match request.field("if-none-match") {
        Some("\"a\"") => {
            "HTTP/1.1 304 Not Modified\r\nVary: Cookie\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        _ if request.number == 0 => own_page(request, "Cache-Control: max-age=1\r\n"),
        _ => own_page(request, "Cache-Control: max-age=60\r\nVary: Cookie\r\n"),
    });
    let of = |who: &str| front.get("/", &format!("Cookie: {who}\r\n"));
    wait_until("a validation", || of("a").field("vary").map(drop));
    assert_eq!(of("b").text(), "b");
    assert_eq!(of("a").text(), "a");
}

#[test]
fn no_store_in_304_removes_stored_response() {
    let front = TestAccelerator::with_response(|request| match request.field("if-none-match") {
        Some(_) => "HTTP/1.1 304 Not Modified\r\nCache-Control: no-store\r\n\r\n".into(),
        None => response("200 OK", "Cache-Control: max-age=1\r\nETag: \"a\"\r\n", "a"),
    });
    wait_until("a validation", || {
        assert_eq!(front.get("/", "").text(), "a");
        (front.origin.count() == 2).then_some(())
    });
    assert_eq!(front.get("/", "").text(), "a");
    assert_eq!(front.origin.requests()[2].field("if-none-match"), None);
}

#[test]
fn background_validation_is_repeated_after_failure() {
    let front = TestAccelerator::with_response(|request| match request.number {
        1 => response(
            "500 Internal Server Error",
            "Cache-Control: no-store\r\n",
            "",
        ),
        _ => {
            let control =
                "Cache-Control: max-age=1, stale-while-revalidate=600, stale-if-error=0\r\n";
            response("200 OK", control, &request.number.to_string())
        }
    });
    wait_until("another refresh", || {
        (front.get("/", "").text() == "2").then_some(())
    });
}
