//! Stored responses after they become stale.

use lowroad_testkit::wait_until;

use crate::front::{TestFront, numbered, response};

#[test]
fn what_is_fresh_is_not_asked_for_again() {
    let front = TestFront::saying(|asked| numbered(asked, "Cache-Control: max-age=60\r\n"));
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(front.get("/", "").text(), "0");
    assert_eq!(front.get("/?a", "").text(), "1");
    assert_eq!(front.ask("HEAD", "/", "").status, 200);
    assert_eq!(front.get("/", "Range: bytes=0-0\r\n").status, 206);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn what_is_stale_is_validated_and_holds_with_new_fields() {
    let front = TestFront::saying(|asked| match asked.field("if-none-match") {
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
    // The client's condition applies to the stored response.
    assert_eq!(front.get("/", "If-None-Match: \"a\"\r\n").status, 304);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn a_long_body_that_holds_stays_where_it_is() {
    let front = TestFront::saying(|asked| match asked.field("if-modified-since") {
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
fn what_has_changed_takes_its_place() {
    let front = TestFront::saying(|asked| {
        let fields = format!("Cache-Control: max-age=1\r\nETag: \"{}\"\r\n", asked.number);
        numbered(asked, &fields)
    });
    assert_eq!(front.get("/", "").text(), "0");
    wait_until("another", || {
        (front.get("/", "").text() == "1").then_some(())
    });
    let asked = front.origin.requests();
    assert_eq!(asked[1].field("if-none-match"), Some("\"0\""));
}

#[test]
fn what_is_too_large_for_the_store_is_not_said_to_be_stored() {
    let front = TestFront::saying(|_| {
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
fn a_head_or_a_range_has_what_is_stale_made_anew() {
    for (method, fields, status) in [
        ("HEAD", "", 200),
        ("GET", "Range: bytes=0-0\r\n", 206),
        ("GET", "Range: bytes=0-0\r\nIf-Range: \"a\"\r\n", 206),
        ("GET", "If-None-Match: \"a\"\r\n", 304),
    ] {
        let front = TestFront::saying(|asked| match asked.number {
            0 => response(
                "200 OK",
                "Age: 61\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\nETag: \"a\"\r\n",
                "old",
            ),
            _ => numbered(asked, "Cache-Control: max-age=60\r\nETag: \"b\"\r\n"),
        });
        front.get("/", "");
        assert_eq!(front.ask(method, "/", fields).status, status);
        wait_until("another", || {
            (front.get("/", "").text() == "1").then_some(())
        });
        let asked = front.origin.requests().remove(1);
        assert_eq!(asked.method, "GET", "{method} {fields}");
        assert_eq!(asked.field("if-none-match"), Some("\"a\""));
        assert_eq!(
            (asked.field("range"), asked.field("if-range")),
            (None, None)
        );
        assert_eq!(front.origin.count(), 2);
    }
}
