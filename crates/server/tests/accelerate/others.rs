//! Personal responses never reach other clients, even if the origin does not forbid caching.

use std::thread;
use std::time::Duration;

use lowroad_testkit::origin::OriginRequest;
use lowroad_testkit::wait_until;

use crate::front::{TestFront, response};

/// A page for the cookie's user, from an application without caching fields: only a validator.
fn own_page(asked: &OriginRequest, fields: &str) -> String {
    let who = asked.field("cookie").unwrap_or("nobody");
    response("200 OK", &format!("ETag: \"{who}\"\r\n{fields}"), who)
}

#[test]
fn what_has_to_be_validated_is_not_shared_by_those_who_wait() {
    for control in [
        "",
        "Cache-Control: no-cache\r\n",
        "Cache-Control: max-age=0\r\n",
    ] {
        let front = TestFront::saying(move |asked| {
            // Time for other requests to arrive.
            thread::sleep(Duration::from_millis(200));
            let who = asked.field("cookie").map(|who| format!("\"{who}\""));
            match asked.field("if-none-match") == who.as_deref() {
                true => format!("HTTP/1.1 304 Not Modified\r\n{control}\r\n"),
                false => own_page(asked, control),
            }
        });
        // The first requests miss, the second ones validate.
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
fn what_was_never_fresh_does_not_stand_in_for_others() {
    let front = TestFront::saying(|asked| match asked.number {
        0 => own_page(asked, ""),
        _ => response("503 Service Unavailable", "", "down"),
    });
    assert_eq!(front.get("/", "Cookie: a\r\n").text(), "a");
    for control in ["", "Cache-Control: stale-if-error=60, max-stale=60\r\n"] {
        let got = front.get("/", &format!("Cookie: b\r\n{control}"));
        assert_eq!((got.status, got.text().as_str()), (503, "down"));
    }
}

#[test]
fn a_304_that_names_more_in_vary_counts() {
    let front = TestFront::saying(|asked| match asked.field("if-none-match") {
        Some("\"a\"") => {
            "HTTP/1.1 304 Not Modified\r\nVary: Cookie\r\nCache-Control: max-age=60\r\n\r\n".into()
        }
        _ if asked.number == 0 => own_page(asked, "Cache-Control: max-age=1\r\n"),
        _ => own_page(asked, "Cache-Control: max-age=60\r\nVary: Cookie\r\n"),
    });
    let of = |who: &str| front.get("/", &format!("Cookie: {who}\r\n"));
    wait_until("a validation", || of("a").field("vary").map(drop));
    assert_eq!(of("b").text(), "b");
    assert_eq!(of("a").text(), "a");
}

#[test]
fn a_304_that_forbids_to_store_ends_what_is_stored() {
    let front = TestFront::saying(|asked| match asked.field("if-none-match") {
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
fn a_failed_refresh_is_not_the_last() {
    let front = TestFront::saying(|asked| match asked.number {
        1 => response(
            "500 Internal Server Error",
            "Cache-Control: no-store\r\n",
            "",
        ),
        _ => {
            let control =
                "Cache-Control: max-age=1, stale-while-revalidate=600, stale-if-error=0\r\n";
            response("200 OK", control, &asked.number.to_string())
        }
    });
    wait_until("another refresh", || {
        (front.get("/", "").text() == "2").then_some(())
    });
}
