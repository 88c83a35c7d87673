//! Tables of request fields and validators, with the expected outcome.

use alloc::string::String;

use super::*;
use crate::h1::parse;
use crate::limits::RequestLimits;
use PreconditionOutcome::{Failed, NotModified, Proceed};

/// Sunday, 6 November 1994.
const MODIFIED: u64 = 784_111_777;
const NOW: u64 = MODIFIED + 1000;
const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

const STRONG: Validators<'static> = Validators {
    etag: b"\"v1\"",
    last_modified: Some(MODIFIED),
};
const WEAK: Validators<'static> = Validators {
    etag: b"W/\"v1\"",
    last_modified: Some(MODIFIED),
};
const NONE: Validators<'static> = Validators {
    etag: b"",
    last_modified: None,
};

fn with_request<T>(method: &str, fields: &str, ask: impl FnOnce(&Request<'_>) -> T) -> T {
    let head = String::from(method) + " / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
    match parse(head.as_bytes(), &RequestLimits::default()) {
        Ok(Some(head)) => ask(&head.request),
        other => panic!("{head:?}: {other:?}"),
    }
}

#[track_caller]
fn assert_outcome(method: &str, fields: &str, own: &Validators<'_>, due: PreconditionOutcome) {
    let found = with_request(method, fields, |req| evaluate(req, own, NOW));
    assert_eq!(found, due, "{method} {fields:?} {own:?}");
}

#[track_caller]
fn assert_get(fields: &str, due: PreconditionOutcome) {
    assert_outcome("GET", fields, &STRONG, due);
}

#[test]
fn request_without_preconditions_proceeds() {
    assert_get("", Proceed);
    assert_get("Range: bytes=0-1\r\nIf-Range: \"other\"\r\n", Proceed);
}

#[test]
fn if_match_compares_strongly() {
    // RFC 9110 §13.1.1: a weak match would not prevent lost updates.
    assert_get("If-Match: \"v1\"\r\n", Proceed);
    assert_get("If-Match: \"v2\", \"v1\"\r\n", Proceed);
    assert_get("If-Match: \"v2\"\r\nX: y\r\nIF-MATCH: \"v1\"\r\n", Proceed);
    assert_get("If-Match: *\r\n", Proceed);
    assert_get("If-Match: \"v2\"\r\n", Failed);
    assert_get("If-Match: W/\"v1\"\r\n", Failed);
    assert_get("If-Match: v1\r\n", Failed);
    assert_get("If-Match: \r\n", Failed);
    assert_outcome("GET", "If-Match: W/\"v1\"\r\n", &WEAK, Failed);
    assert_outcome("GET", "If-Match: \"v1\"\r\n", &WEAK, Failed);
    assert_outcome("GET", "If-Match: \"\"\r\n", &NONE, Failed);
    assert_outcome("GET", "If-Match: *\r\n", &NONE, Proceed);
}

#[test]
fn if_none_match_compares_weakly() {
    // RFC 9110 §13.1.2: 304 for GET and HEAD, 412 for other methods.
    for own in [&STRONG, &WEAK] {
        assert_outcome("GET", "If-None-Match: \"v1\"\r\n", own, NotModified);
        assert_outcome("HEAD", "If-None-Match: W/\"v1\"\r\n", own, NotModified);
        assert_outcome("POST", "If-None-Match: \"v1\"\r\n", own, Failed);
        assert_outcome("GET", "If-None-Match: \"v2\"\r\n", own, Proceed);
    }
    assert_get("If-None-Match: *\r\n", NotModified);
    assert_outcome("PUT", "If-None-Match: *\r\n", &STRONG, Failed);
    assert_outcome("GET", "If-None-Match: \"\"\r\n", &NONE, Proceed);
}

#[test]
fn malformed_and_unusual_tag_lists() {
    assert_get("If-None-Match: \"a,b\", \"v1\"\r\n", NotModified);
    assert_get("If-None-Match: ,, \"a\"\t,W/\"v1\",\r\n", NotModified);
    assert_get(
        "If-None-Match: \"x\"\r\nIf-None-Match: \"y\"\r\nIf-None-Match: \"v1\"\r\n",
        NotModified,
    );
    // A tag within another tag does not count.
    assert_get("If-None-Match: \"a, \"v1\", b\"\r\n", Proceed);
    // A malformed list matches nothing.
    assert_get("If-None-Match: \"v1\" garbage\r\n", Proceed);
    assert_get("If-None-Match: \"v1\", garbage\r\n", Proceed);
    assert_outcome("PUT", "If-Match: \"v1\" garbage\r\n", &STRONG, Failed);
    assert_get("If-None-Match: \"a\" \"v1\"\r\n", Proceed);
    assert_get("If-None-Match: a, \"v1\"\r\n", Proceed);
    assert_get("If-None-Match: \"v1\r\n", Proceed);
    // RFC 9110 §8.8.3: `W/` is case-sensitive.
    assert_get("If-None-Match: w/\"v1\"\r\n", Proceed);
    assert_get("If-None-Match: \"v 1\"\r\n", Proceed);
    // `*` is valid only as the whole value.
    assert_get("If-None-Match: \"v2\", *\r\n", Proceed);
}

#[test]
fn if_modified_since_applies_to_get_and_head() {
    // RFC 9110 §13.1.3.
    for (date, due) in [
        (SAME, NotModified),
        (AFTER, NotModified),
        (BEFORE, Proceed),
        ("today", Proceed),
    ] {
        let field = String::from("If-Modified-Since: ") + date + "\r\n";
        assert_get(&field, due);
        assert_outcome("HEAD", &field, &STRONG, due);
        assert_outcome("POST", &field, &STRONG, Proceed);
        assert_outcome("GET", &field, &NONE, Proceed);
    }
    assert_get(
        "If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT\r\n",
        NotModified,
    );
    assert_get(
        "If-Modified-Since: Sun Nov  6 08:49:37 1994\r\n",
        NotModified,
    );
}

#[test]
fn if_unmodified_since_fails_with_412() {
    // RFC 9110 §13.1.4.
    for (date, due) in [
        (SAME, Proceed),
        (AFTER, Proceed),
        (BEFORE, Failed),
        ("0", Proceed),
    ] {
        let field = String::from("If-Unmodified-Since: ") + date + "\r\n";
        assert_get(&field, due);
        assert_outcome("DELETE", &field, &STRONG, due);
        assert_outcome("GET", &field, &NONE, Proceed);
    }
}

#[test]
fn entity_tags_take_precedence_over_dates() {
    // RFC 9110 §13.2.2.
    let since = String::from("If-Modified-Since: ") + SAME + "\r\n";
    assert_get(&(since.clone() + "If-None-Match: \"v2\"\r\n"), Proceed);
    assert_get(&(since.clone() + "If-None-Match: \r\n"), Proceed);
    let unmodified = String::from("If-Unmodified-Since: ") + BEFORE + "\r\n";
    assert_get(&(unmodified.clone() + "If-Match: \"v1\"\r\n"), Proceed);
    assert_get(&(unmodified + "If-None-Match: \"v1\"\r\n"), Failed);
    assert_get("If-Match: \"v2\"\r\nIf-None-Match: \"v1\"\r\n", Failed);
    assert_get("If-Match: \"v1\"\r\nIf-None-Match: \"v1\"\r\n", NotModified);
}

#[test]
fn repeated_date_field_is_ignored() {
    // The field permits one value only.
    let since = String::from("If-Modified-Since: ") + SAME + "\r\n";
    assert_get(&(since.clone() + &since), Proceed);
}

#[track_caller]
fn assert_if_range(value: &str, own: &Validators<'_>, holds: bool) {
    let fields = String::from("Range: bytes=0-1\r\nIf-Range: ") + value + "\r\n";
    let found = with_request("GET", &fields, |req| if_range_holds(req, own, NOW));
    assert_eq!(found, holds, "{value:?} {own:?}");
}

#[test]
fn if_range_requires_a_strong_match() {
    // RFC 9110 §13.1.5: parts of different representations must not be combined.
    assert_if_range("\"v1\"", &STRONG, true);
    assert_if_range("\"v2\"", &STRONG, false);
    assert_if_range("W/\"v1\"", &STRONG, false);
    assert_if_range("W/\"v1\"", &WEAK, false);
    assert_if_range("\"v1\"", &WEAK, false);
    assert_if_range("\"v1\", \"v2\"", &STRONG, false);
    assert_if_range("*", &STRONG, false);
    assert_if_range("", &STRONG, false);
    assert_if_range("\"", &STRONG, false);
    assert_if_range("\"\"", &NONE, false);
    assert_if_range(SAME, &STRONG, true);
    assert_if_range(BEFORE, &STRONG, false);
    assert_if_range(AFTER, &STRONG, false);
    assert_if_range(SAME, &NONE, false);
    assert!(with_request("GET", "", |req| if_range_holds(
        req, &NONE, NOW
    )));
}

#[test]
fn if_range_date_is_weak_within_the_second_of_modification() {
    // RFC 9110 §8.8.2.2.
    let fields = String::from("Range: bytes=0-1\r\nIf-Range: ") + SAME + "\r\n";
    with_request("GET", &fields, |req| {
        assert!(!if_range_holds(req, &STRONG, MODIFIED));
        assert!(if_range_holds(req, &STRONG, MODIFIED + 1));
    });
}
