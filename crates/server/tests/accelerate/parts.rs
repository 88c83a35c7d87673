//! Partial responses are stored, combined and completed (RFC 9111 §3.3, §3.4). Some origins and clients misbehave.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lowroad_testkit::origin::{OriginRequest, TestOrigin};
use lowroad_testkit::{ClientResponse, TestClient};

use crate::front::{TestAccelerator, response, wait_until};

const TEXT: &str = "0123456789abcdefghij";
const MINUTE: &str = "Cache-Control: max-age=60\r\n";

/// The range that a request asks for in a representation of `len` bytes; `None` without a range.
fn requested_range(request: &OriginRequest, len: usize) -> Option<(usize, usize)> {
    let range = request.field("range")?.strip_prefix("bytes=")?;
    let (first, last) = range.split_once('-')?;
    let number = |digits: &str| digits.parse().ok();
    let last_of_all = len - 1;
    Some(match (number(first), number(last)) {
        (Some(first), Some(last)) => (first, last_of_all.min(last)),
        (Some(first), None) => (first, last_of_all),
        (None, Some(suffix)) => (len - suffix.min(len), last_of_all),
        (None, None) => return None,
    })
}

/// The response of a correct origin to a request, with or without a range.
fn correct_response(request: &OriginRequest, text: &str, tag: &str, fields: &str) -> String {
    let fields = format!("ETag: {tag}\r\n{fields}");
    let holds = request.field("if-range").is_none_or(|of| of == tag);
    match requested_range(request, text.len()).filter(|_| holds) {
        Some((first, last)) => part((first, last, text.len()), &fields, &text[first..=last]),
        None => response("200 OK", &fields, text),
    }
}

fn part((first, last, len): (usize, usize, usize), fields: &str, text: &str) -> String {
    let fields = format!("{fields}Content-Range: bytes {first}-{last}/{len}\r\n");
    response("206 Partial Content", &fields, text)
}

fn front() -> TestAccelerator {
    let fields = format!("{MINUTE}Content-Type: text/x-a\r\n");
    TestAccelerator::with_response(move |request| correct_response(request, TEXT, "\"a\"", &fields))
}

fn range(front: &TestAccelerator, range: &str) -> ClientResponse {
    front.get("/", &format!("Range: bytes={range}\r\n"))
}

/// The status, Content-Range and body of a response.
fn status_range_and_body(got: &ClientResponse) -> (u16, String, String) {
    let of = got.field("content-range").unwrap_or_default();
    (got.status, of.to_string(), got.text())
}

fn bytes(first: usize, last: usize) -> (u16, String, String) {
    let of = format!("bytes {first}-{last}/{}", TEXT.len());
    (206, of, TEXT[first..=last].to_string())
}

#[test]
fn range_within_stored_part_is_a_hit() {
    let front = front();
    assert_eq!(status_range_and_body(&range(&front, "5-14")), bytes(5, 14));
    for (asked, first, last) in [
        ("5-14", 5, 14),
        ("7-9", 7, 9),
        ("5-5", 5, 5),
        ("14-14", 14, 14),
    ] {
        let got = range(&front, asked);
        assert_eq!(status_range_and_body(&got), bytes(first, last), "{asked}");
        assert_eq!(got.field("content-type"), Some("text/x-a"));
        assert_eq!(got.field("etag"), Some("\"a\""));
        assert!(got.field("age").is_some());
        let status = got.field("cache-status").unwrap_or_default();
        assert!(status.starts_with("lowroad; hit; ttl="), "{status}");
    }
    let got = front.get("/", "Range: bytes=5-6, 9-10\r\n");
    assert_eq!(got.status, 206);
    assert!(got.text().contains("\r\n\r\n56\r\n") && got.text().contains("\r\n\r\n9a\r\n"));
    let got = front.get("/", "Range: bytes=5-6\r\nIf-Range: \"a\"\r\n");
    assert_eq!(status_range_and_body(&got), bytes(5, 6));
    let got = front.get("/", "Range: bytes=5-6\r\nIf-None-Match: \"a\"\r\n");
    assert_eq!(got.status, 304);
    let got = range(&front, "20-");
    assert_eq!(
        (got.status, got.field("content-range")),
        (416, Some("bytes */20"))
    );
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn range_that_is_not_completely_stored_is_forwarded() {
    let front = front();
    range(&front, "5-14");
    for (asked, first, last) in [("4-6", 4, 6), ("14-15", 14, 15), ("-5", 15, 19)] {
        assert_eq!(
            status_range_and_body(&range(&front, asked)),
            bytes(first, last),
            "{asked}"
        );
        let last = front.origin.requests().pop().expect("it was asked");
        assert_eq!(last.field("range"), Some(&*format!("bytes={asked}")));
    }
    assert_eq!(front.origin.count(), 4);
    // The client has parts of another version, so it gets the whole representation.
    let got = front.get("/", "Range: bytes=5-6\r\nIf-Range: \"b\"\r\n");
    assert_eq!((got.status, &*got.text()), (200, TEXT));
}

#[test]
fn stored_part_does_not_answer_head_get_or_no_cache() {
    let front = TestAccelerator::with_cache_settings(
        TestOrigin::with_response(|request| correct_response(request, TEXT, "\"a\"", MINUTE)),
        "request_directives = true",
    );
    range(&front, "5-14");
    for (fields, status) in [
        ("", 504),
        ("Range: bytes=0-5\r\n", 504),
        ("Range: bytes=6-7\r\n", 206),
    ] {
        let got = front.get("/", &format!("Cache-Control: only-if-cached\r\n{fields}"));
        assert_eq!(got.status, status, "{fields}");
    }
    assert_eq!(front.origin.count(), 1);
    let head = front.request("HEAD", "/", "");
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("20"))
    );
    range(&front, "6-7\r\nCache-Control: no-cache");
    assert_eq!(front.origin.count(), 3);
}

#[test]
fn adjacent_and_overlapping_parts_are_combined() {
    let front = front();
    for asked in ["2-4", "5-7", "6-9", "12-14"] {
        range(&front, asked);
    }
    assert_eq!(front.origin.count(), 4);
    assert_eq!(status_range_and_body(&range(&front, "2-9")), bytes(2, 9));
    assert_eq!(
        status_range_and_body(&range(&front, "12-14")),
        bytes(12, 14)
    );
    assert_eq!(front.origin.count(), 4);
    assert_eq!(
        status_range_and_body(&range(&front, "2-14")),
        bytes(2, 14),
        "it had a gap"
    );
    assert_eq!(status_range_and_body(&range(&front, "2-13")), bytes(2, 13));
    assert_eq!(front.origin.count(), 5);
}

#[test]
fn fields_of_combined_parts_are_merged() {
    let front = TestAccelerator::with_response(|request| {
        let number = request.number;
        let more = ["X-Old: 1\r\n", ""][number.min(1)];
        correct_response(
            request,
            TEXT,
            "\"a\"",
            &format!("{MINUTE}X-New: {number}\r\n{more}"),
        )
    });
    range(&front, "0-9");
    range(&front, "8-12");
    let got = range(&front, "0-12");
    assert_eq!(status_range_and_body(&got), bytes(0, 12));
    assert_eq!(
        (got.field("x-old"), got.field("x-new")),
        (Some("1"), Some("1"))
    );
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn complete_set_of_parts_answers_get_and_head() {
    let front = front();
    for asked in ["0-4", "5-14", "-5"] {
        range(&front, asked);
    }
    let got = front.get("/", "");
    assert_eq!((got.status, &*got.text()), (200, TEXT));
    assert_eq!(got.field("content-range"), None);
    assert_eq!(
        front.request("HEAD", "/", "").field("content-length"),
        Some("20")
    );
    assert_eq!(front.origin.count(), 3);
    // A single part may be the whole representation.
    let front = self::front();
    assert_eq!(status_range_and_body(&range(&front, "0-")), bytes(0, 19));
    assert_eq!(front.get("/", "").text(), TEXT);
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn get_fetches_only_a_single_missing_part() {
    for (stored, gap) in [
        ("0-9", "bytes=10-19"),
        ("15-", "bytes=0-14"),
        ("0-3 8-", "bytes=4-7"),
    ] {
        let front = front();
        let parts: Vec<&str> = stored.split(' ').collect();
        parts.iter().for_each(|part| drop(range(&front, part)));
        let got = front.get("/", "If-None-Match: \"b\"\r\n");
        assert_eq!((got.status, &*got.text()), (200, TEXT), "{stored}");
        assert_eq!(got.field("content-range"), None);
        let last = front.origin.requests().pop().expect("it was asked");
        assert_eq!(last.field("range"), Some(gap));
        assert_eq!(last.field("if-range"), Some("\"a\""));
        assert_eq!(last.field("if-none-match"), None);
        assert_eq!(front.get("/", "").text(), TEXT);
        assert_eq!(front.origin.count(), parts.len() + 1);
    }
    // If two parts are missing, the whole representation is requested.
    let front = front();
    range(&front, "5-9");
    assert_eq!(front.get("/", "").text(), TEXT);
    assert_eq!(front.origin.requests()[1].field("range"), None);
    assert_eq!(status_range_and_body(&range(&front, "0-19")), bytes(0, 19));
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn long_parts_are_stored_and_combined() {
    let text: String = (0..100_000).map(|number| format!("{number:08},")).collect();
    let (own, len) = (text.clone(), text.len());
    let chunked = |head: &str, body: &str| {
        let body: String = body
            .as_bytes()
            .chunks(50_000)
            .map(|piece| {
                format!(
                    "{:x}\r\n{}\r\n",
                    piece.len(),
                    String::from_utf8_lossy(piece)
                )
            })
            .collect();
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n")
    };
    let front = TestAccelerator::with_response(move |request| {
        match requested_range(request, len) {
            Some((first, last)) => {
                let head = format!(
                    "HTTP/1.1 206 A\r\n{MINUTE}ETag: \"a\"\r\nContent-Range: bytes {first}-{last}/{len}\r\n"
                );
                match first {
                    300_000 => part(
                        (first, last, len),
                        &format!("{MINUTE}ETag: \"a\"\r\n"),
                        &own[first..=last],
                    ),
                    _ => chunked(&head, &own[first..=last]),
                }
            }
            None => response("200 OK", MINUTE, &own),
        }
    });
    let check = |first: usize, last: usize| {
        let got = range(&front, &format!("{first}-{last}"));
        assert_eq!(got.status, 206);
        assert!(got.body == text.as_bytes()[first..=last], "{first}-{last}");
    };
    // An HTTP/1.0 client gets the body without a length.
    let mut client = front.connect();
    client.send("GET / HTTP/1.0\r\nHost: test\r\nRange: bytes=0-299999\r\n\r\n");
    assert!(client.wait_for_close());
    assert!(client.received.ends_with(&text.as_bytes()[..300_000]));
    check(300_000, 599_999);
    check(100_000, 400_000);
    assert_eq!(front.origin.count(), 2);
    let got = front.get("/", "");
    assert!(got.body == text.as_bytes());
    let last = front.origin.requests().pop().expect("it was asked");
    assert_eq!(last.field("range"), Some("bytes=600000-899999"));
    assert!(front.get("/", "").body == text.as_bytes());
    check(1, 899_999);
    assert_eq!(front.origin.count(), 3);
}

/// The number of requests that reach the origin for two equal range requests, if it sends this response.
fn origin_requests_for_two_gets(
    say: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
    fields: &str,
) -> usize {
    let front = TestAccelerator::with_response(say);
    for _ in 0..2 {
        front.get("/", &format!("Range: bytes=5-9\r\n{fields}"));
    }
    front.origin.count()
}

#[test]
fn only_storable_parts_are_stored() {
    for (fields, count) in [
        ("ETag: \"a\"\r\nCache-Control: max-age=60\r\n", 1),
        (
            "ETag: \"a\"\r\nETag: \"b\"\r\nCache-Control: max-age=60\r\n",
            2,
        ),
        ("Cache-Control: private, max-age=60\r\n", 2),
        ("ETag: \"a\"\r\nCache-Control: private, max-age=60\r\n", 2),
        ("ETag: \"a\"\r\nCache-Control: no-store\r\n", 2),
        (
            "ETag: \"a\"\r\nCache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            2,
        ),
        ("ETag: \"a\"\r\nCache-Control: max-age=60\r\nVary: *\r\n", 2),
        ("ETag: \"a\"\r\n", 2),
    ] {
        let say = move |_: &OriginRequest| part((5, 9, 20), fields, &TEXT[5..10]);
        assert_eq!(origin_requests_for_two_gets(say, ""), count, "{fields}");
    }
    let good = |_: &OriginRequest| {
        part(
            (5, 9, 20),
            &format!("ETag: \"a\"\r\n{MINUTE}"),
            &TEXT[5..10],
        )
    };
    assert_eq!(
        origin_requests_for_two_gets(good, "Authorization: Basic YTpi\r\n"),
        2
    );
    assert_eq!(
        origin_requests_for_two_gets(good, "Cache-Control: no-store\r\n"),
        2
    );
    // With If-Range, the 206 may omit fields that the client already has (RFC 9110 §15.3.7), so it is not stored.
    assert_eq!(origin_requests_for_two_gets(good, "If-Range: \"a\"\r\n"), 2);
}

/// Validators that do not prove that two parts belong to the same version.
const WITHOUT_STRONG_TAG: [&str; 4] = [
    "",
    "ETag: W/\"a\"\r\n",
    "ETag: a\r\n",
    "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
];

/// An accelerator with an origin that sends these fields with ranges and with complete responses.
fn front_without_strong_tag(fields: &'static str) -> TestAccelerator {
    TestAccelerator::with_response(move |request| {
        let fields = format!("{fields}{MINUTE}");
        match requested_range(request, TEXT.len()) {
            Some((first, last)) => part((first, last, TEXT.len()), &fields, &TEXT[first..=last]),
            None => response("200 OK", &fields, TEXT),
        }
    })
}

#[test]
fn part_without_strong_etag_answers_its_ranges() {
    for fields in WITHOUT_STRONG_TAG {
        let front = front_without_strong_tag(fields);
        for (asked, first, last) in [("5-14", 5, 14), ("5-14", 5, 14), ("7-9", 7, 9)] {
            assert_eq!(
                status_range_and_body(&range(&front, asked)),
                bytes(first, last),
                "{fields}"
            );
        }
        let got = front.get("/", "Range: bytes=5-6, 9-10\r\n");
        assert_eq!(got.status, 206);
        let got = range(&front, "20-");
        let unsatisfied = (got.status, got.field("content-range"));
        assert_eq!(unsatisfied, (416, Some("bytes */20")));
        assert_eq!(front.origin.count(), 1, "{fields}");
        // Without a strong ETag, the stored part may belong to another version than the client's.
        for tag in ["W/\"a\"", "\"a\""] {
            let fields = format!("Range: bytes=5-6\r\nIf-Range: {tag}\r\n");
            front.get("/", &fields);
        }
        assert_eq!(front.origin.count(), 3, "{fields}");
    }
}

#[test]
fn part_without_strong_etag_is_not_combined() {
    for fields in WITHOUT_STRONG_TAG {
        let front = front_without_strong_tag(fields);
        for (asked, first, last, count) in [
            ("0-9", 0, 9, 1),
            ("10-19", 10, 19, 2),
            ("12-13", 12, 13, 2),
            ("0-9", 0, 9, 3),
            ("8-12", 8, 12, 4),
            ("0-12", 0, 12, 5),
        ] {
            assert_eq!(
                status_range_and_body(&range(&front, asked)),
                bytes(first, last),
                "{asked}"
            );
            assert_eq!(front.origin.count(), count, "{fields}{asked}");
        }
        // The parts are not combined for a GET either.
        let got = front.get("/", "");
        assert_eq!((got.status, &*got.text()), (200, TEXT));
        let last = front.origin.requests().pop().expect("it was asked");
        assert_eq!((last.field("range"), last.field("if-range")), (None, None));
    }
}

#[test]
fn parts_with_and_without_strong_etag_are_not_combined() {
    for tagged_first in [true, false] {
        let front = TestAccelerator::with_response(move |request| {
            let (first, last) = requested_range(request, TEXT.len()).unwrap_or((0, TEXT.len() - 1));
            let (fields, text) = match (request.number == 0) == tagged_first {
                true => ("ETag: \"a\"\r\n", TEXT),
                false => ("", OTHER),
            };
            let fields = format!("{fields}{MINUTE}");
            match request.field("range") {
                Some(_) => part((first, last, text.len()), &fields, &text[first..=last]),
                None => response("200 OK", &fields, text),
            }
        });
        let texts = [TEXT, OTHER];
        let (one, two) = match tagged_first {
            true => (texts[0], texts[1]),
            false => (texts[1], texts[0]),
        };
        assert_eq!(range(&front, "0-9").text(), one[0..10]);
        assert_eq!(range(&front, "10-19").text(), two[10..20]);
        assert_eq!(range(&front, "8-11").text(), two[8..12]);
        assert_eq!(front.get("/", "").text(), two);
    }
}

#[test]
fn part_without_strong_etag_does_not_replace_complete_response() {
    let front = TestAccelerator::with_cache_settings(
        TestOrigin::with_response(|request| match request.field("range") {
            Some(_) => part((2, 3, 20), MINUTE, &OTHER[2..4]),
            None => response("200 OK", &format!("ETag: \"a\"\r\n{MINUTE}"), TEXT),
        }),
        "request_directives = true",
    );
    front.get("/", "");
    let anew = range(&front, "2-3\r\nCache-Control: no-cache");
    assert_eq!(anew.text(), OTHER[2..4]);
    assert_eq!(front.get("/", "").text(), TEXT);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn part_with_wrong_content_range_is_not_stored() {
    let five = &TEXT[5..10];
    for (range, text) in [
        ("bytes 5-10/20", five),
        ("bytes 5-8/20", five),
        ("bytes 4-8/20", five),
        ("bytes 6-10/20", five),
        ("bytes 0-4/20", five),
        ("bytes 15-19/20", five),
        ("bytes 5-9/9", five),
        ("bytes 5-9/*", five),
        ("bytes 9-5/20", five),
        ("bytes */20", five),
        ("bytes 5-9/20\r\nContent-Range: bytes 5-9/20", five),
        ("bytes 5-9/18446744073709551616", five),
        ("bytes 5-18446744073709551615/20", five),
        ("lines 5-9/20", five),
    ] {
        let say = move |_: &OriginRequest| {
            let fields = format!("ETag: \"a\"\r\n{MINUTE}Content-Range: {range}\r\n");
            response("206 Partial Content", &fields, text)
        };
        assert_eq!(origin_requests_for_two_gets(say, ""), 2, "{range}");
    }
    let without = |_: &OriginRequest| response("206 A", &format!("ETag: \"a\"\r\n{MINUTE}"), five);
    assert_eq!(origin_requests_for_two_gets(without, ""), 2);
}

#[test]
fn incomplete_part_is_not_stored() {
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        let said = correct_response(request, TEXT, "\"a\"", MINUTE);
        let len = match request.number {
            0 => said.len() - 2,
            _ => said.len(),
        };
        let _ = stream.write_all(&said.as_bytes()[..len]);
        request.number > 0
    }));
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\nRange: bytes=5-9\r\n\r\n");
    let cut = client.whole_response();
    assert!(cut.is_none_or(|got| got.status == 502));
    assert_eq!(status_range_and_body(&range(&front, "5-9")), bytes(5, 9));
    assert_eq!(front.origin.count(), 2);
}

/// An origin with a text and an ETag that the test can change.
struct Changing(Arc<Mutex<(String, &'static str)>>);

impl Changing {
    fn new() -> Changing {
        Changing(Arc::new(Mutex::new((TEXT.into(), "\"a\""))))
    }

    fn front(&self, more: &[&str]) -> TestAccelerator {
        let state = self.0.clone();
        let say = move |request: &OriginRequest| {
            let (text, tag) = state.lock().expect("not poisoned").clone();
            correct_response(request, &text, tag, &format!("{MINUTE}Vary: X-Kind\r\n"))
        };
        TestAccelerator::with_arguments(say, more)
    }

    fn set(&self, text: &str, tag: &'static str) {
        *self.0.lock().expect("not poisoned") = (text.into(), tag);
    }
}

const OTHER: &str = "ABCDEFGHIJKLMNOPQRST";

#[test]
fn parts_of_different_versions_are_not_combined() {
    let origin = Changing::new();
    let front = origin.front(&[]);
    range(&front, "0-9");
    origin.set(OTHER, "\"b\"");
    assert_eq!(range(&front, "10-14").text(), OTHER[10..15]);
    // No part of the first version remains.
    assert_eq!(range(&front, "8-12").text(), OTHER[8..13]);
    assert_eq!(range(&front, "8-14").text(), OTHER[8..15]);
    assert_eq!(front.origin.count(), 3);
    assert_eq!(front.get("/", "").text(), OTHER);
    assert_eq!(front.get("/", "").text(), OTHER);
    assert_eq!(front.origin.count(), 4);
}

#[test]
fn get_after_change_returns_the_new_version() {
    let origin = Changing::new();
    let front = origin.front(&[]);
    range(&front, "0-9");
    origin.set(OTHER, "\"b\"");
    assert_eq!(front.get("/", "").text(), OTHER);
    assert_eq!(range(&front, "0-9").text(), OTHER[0..10]);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn contradictory_parts_with_same_etag_are_not_combined() {
    // Two texts have the same ETag.
    let origin = Changing::new();
    let front = origin.front(&[]);
    range(&front, "0-9");
    origin.set(OTHER, "\"a\"");
    assert_eq!(range(&front, "9-14").text(), OTHER[9..15]);
    assert_eq!(range(&front, "0-9").text(), OTHER[0..10]);
    assert_eq!(range(&front, "0-14").text(), OTHER[0..15]);
    assert_eq!(front.origin.count(), 3);
    // Two lengths have the same ETag.
    let origin = Changing::new();
    let front = origin.front(&[]);
    range(&front, "0-9");
    origin.set(&OTHER[..15], "\"a\"");
    assert_eq!(range(&front, "12-").text(), OTHER[12..15]);
    assert_eq!(range(&front, "0-9").text(), OTHER[0..10]);
    assert_eq!(front.origin.count(), 3);
}

#[test]
fn wrong_response_for_missing_part_causes_complete_fetch() {
    let tagged = format!("ETag: \"a\"\r\n{MINUTE}");
    let wrong_responses: [String; 8] = [
        response("200 OK", &tagged, &TEXT[10..20]),
        part((10, 18, 20), &tagged, &TEXT[10..19]),
        part((9, 19, 20), &tagged, &TEXT[9..20]),
        part(
            (10, 19, 20),
            &format!("ETag: \"b\"\r\n{MINUTE}"),
            &OTHER[10..20],
        ),
        part(
            (10, 19, 20),
            &format!("ETag: W/\"a\"\r\n{MINUTE}"),
            &OTHER[10..20],
        ),
        part((10, 19, 30), &tagged, &OTHER[10..20]),
        part((10, 19, 20), &tagged, &OTHER[10..19]),
        response("416 A", "Content-Range: bytes */5\r\n", ""),
    ];
    for wrong_response in wrong_responses {
        let said = wrong_response.clone();
        let front = TestAccelerator::with_response(move |request| match request.number {
            1 => wrong_response.clone(),
            _ => correct_response(request, TEXT, "\"a\"", MINUTE),
        });
        range(&front, "0-9");
        let got = front.get("/", "");
        assert_eq!((got.status, &*got.text()), (200, TEXT), "{said}");
        assert_eq!(front.origin.requests()[2].field("range"), None, "{said}");
        assert_eq!(front.get("/", "").text(), TEXT);
        assert_eq!(front.origin.count(), 3);
    }
}

#[test]
fn incomplete_missing_part_ends_the_response_and_is_not_stored() {
    let text = TEXT.repeat(20_000);
    let own = text.clone();
    let front = TestAccelerator::new(TestOrigin::start(move |request, stream| {
        let said = correct_response(request, &own, "\"a\"", MINUTE);
        let len = match request.number {
            1 => said.len() - 100_000,
            _ => said.len(),
        };
        let _ = stream.write_all(&said.as_bytes()[..len]);
        request.number != 1
    }));
    range(&front, "0-99999");
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.whole_response().is_none(), "it is not whole");
    assert!(front.get("/", "").body == text.as_bytes());
    assert!(front.get("/", "").body == text.as_bytes());
}

#[test]
fn part_freshens_or_invalidates_stored_complete_response() {
    let lying = Arc::new(AtomicUsize::new(0));
    let state = lying.clone();
    let front = TestAccelerator::with_cache_settings(
        TestOrigin::with_response(move |request| match (request.number, state.load(SeqCst)) {
            (0, _) => correct_response(request, TEXT, "\"a\"", &format!("{MINUTE}X: 1\r\n")),
            (_, 0) => correct_response(request, TEXT, "\"a\"", &format!("{MINUTE}X: 2\r\n")),
            (_, 1) => correct_response(request, OTHER, "\"a\"", MINUTE),
            _ => correct_response(request, OTHER, "\"b\"", MINUTE),
        }),
        "request_directives = true",
    );
    let fetch_range_again = || range(&front, "2-3\r\nCache-Control: no-cache");
    front.get("/", "");
    assert_eq!(fetch_range_again().text(), "23");
    let got = front.get("/", "");
    assert_eq!((&*got.text(), got.field("x")), (TEXT, Some("2")));
    assert_eq!(front.origin.count(), 2);
    // The same ETag with other bytes: the stored parts are dropped.
    lying.store(1, SeqCst);
    fetch_range_again();
    assert_eq!(front.get("/", "").text(), OTHER);
    assert_eq!(front.origin.count(), 4);
    // Another ETag: the stored parts are dropped.
    lying.store(2, SeqCst);
    fetch_range_again();
    let got = front.get("/", "");
    assert_eq!((&*got.text(), got.field("etag")), (OTHER, Some("\"b\"")));
    assert_eq!(front.origin.count(), 6);
}

#[test]
fn stale_part_is_served_on_error_within_its_range() {
    let front = TestAccelerator::with_response(|request| match request.number {
        0 => {
            let fields = "Age: 61\r\nCache-Control: max-age=60, stale-if-error=600\r\n";
            correct_response(request, TEXT, "\"a\"", fields)
        }
        _ => response("503 A", "", ""),
    });
    range(&front, "5-14");
    assert_eq!(status_range_and_body(&range(&front, "6-7")), bytes(6, 7));
    assert_eq!(range(&front, "4-7").status, 503);
    assert_eq!(front.get("/", "").status, 503);
    assert_eq!(status_range_and_body(&range(&front, "6-7")), bytes(6, 7));
    assert_eq!(front.origin.count(), 5);
}

#[test]
fn stale_part_is_freshened_by_range_response() {
    let front = TestAccelerator::with_response(|request| {
        let age = [61, 0][request.number.min(1)];
        let fields =
            format!("Age: {age}\r\nCache-Control: max-age=60, stale-while-revalidate=600\r\n");
        correct_response(request, TEXT, "\"a\"", &fields)
    });
    range(&front, "5-14");
    // No client has requested the whole representation, so the background validation does not fetch it either.
    assert_eq!(status_range_and_body(&range(&front, "6-7")), bytes(6, 7));
    assert_eq!(front.origin.requests()[1].field("range"), Some("bytes=6-7"));
    assert_eq!(status_range_and_body(&range(&front, "5-14")), bytes(5, 14));
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn number_of_stored_parts_is_limited() {
    let front = front();
    for place in (0..20).step_by(2).chain(1..20) {
        let got = range(&front, &format!("{place}-{place}"));
        assert_eq!(status_range_and_body(&got), bytes(place, place));
    }
    assert_eq!(front.get("/", "").text(), TEXT);
    // Requests more parts than are stored separately.
    let text: String = (0..1000).map(|number| format!("{number:04}")).collect();
    let own = text.clone();
    let front = TestAccelerator::with_response(move |request| {
        correct_response(request, &own, "\"a\"", MINUTE)
    });
    for place in (0..400).step_by(2) {
        range(&front, &format!("{place}-{place}"));
    }
    let memory = front.run_command(&["status"]);
    assert!(memory.contains("lowroad"), "{memory}");
    for first in (0..390).step_by(7) {
        let got = range(&front, &format!("{first}-{}", first + 9));
        assert_eq!(got.text(), text[first..first + 10]);
    }
}

#[test]
fn parts_are_stored_per_variant() {
    let front = TestAccelerator::with_response(|request| {
        let (text, tag) = match request.field("x-kind") {
            Some("b") => (OTHER, "\"b\""),
            _ => (TEXT, "\"a\""),
        };
        correct_response(request, text, tag, &format!("{MINUTE}Vary: X-Kind\r\n"))
    });
    for _ in 0..2 {
        for (kind, text) in [("a", TEXT), ("b", OTHER)] {
            let got = range(&front, &format!("5-9\r\nX-Kind: {kind}"));
            assert_eq!(got.text(), text[5..10]);
        }
    }
    assert_eq!(front.origin.count(), 2);
    for (kind, text) in [("a", TEXT), ("b", OTHER)] {
        range(&front, &format!("0-4\r\nX-Kind: {kind}"));
        assert_eq!(front.get("/", &format!("X-Kind: {kind}\r\n")).text(), text);
    }
    let ranges: Vec<_> = front.origin.requests();
    let ranges = ranges.iter().map(|request| request.field("range"));
    assert_eq!(ranges.skip(2).step_by(2).next(), Some(Some("bytes=0-4")));
    assert_eq!(front.origin.count(), 6);
}

#[test]
fn parts_before_and_after_invalidation_are_not_combined() {
    for end in ["PURGE", "POST", "DELETE", "PROPPATCH"] {
        // The ETag does not change, so only the invalidation of the first part shows the change.
        let origin = Changing::new();
        let front = origin.front(&["--purge-from", "127.0.0.0/8"]);
        range(&front, "0-9");
        origin.set(OTHER, "\"a\"");
        front.request(end, "/", "");
        let before = front.origin.count();
        assert_eq!(range(&front, "10-14").text(), OTHER[10..15], "{end}");
        assert_eq!(range(&front, "0-9").text(), OTHER[0..10], "{end}");
        assert_eq!(range(&front, "0-14").text(), OTHER[0..15], "{end}");
        assert_eq!(front.origin.count(), before + 2);
    }
}

#[test]
fn part_requested_before_purge_is_not_stored() {
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = Mutex::new(opened);
    let front = TestAccelerator::with_arguments(
        move |request| {
            if request.number == 0 {
                let _ = opened.lock().expect("not poisoned").recv();
            }
            correct_response(request, TEXT, "\"a\"", MINUTE)
        },
        &["--purge-from", "127.0.0.0/8"],
    );
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\nRange: bytes=0-9\r\n\r\n");
    lowroad_testkit::wait_until("a request", || (front.origin.count() == 1).then_some(()));
    front.request("PURGE", "/", "");
    gate.send(()).expect("the origin waits");
    assert_eq!(client.response().status, 206);
    range(&front, "0-9");
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn random_range_requests_get_bytes_of_one_version() {
    // A small generator of pseudorandom numbers, so that each run has the same history.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let version = Arc::new(AtomicUsize::new(0));
    let text_of = |version: usize| -> String {
        let letter = char::from(b'a' + (version % 26) as u8);
        (0..200)
            .map(|at| {
                if at % 10 == 0 {
                    letter
                } else {
                    char::from(b'0' + (at % 10) as u8)
                }
            })
            .collect()
    };
    let now = version.clone();
    let front = TestAccelerator::with_response(move |request| {
        let version = now.load(SeqCst);
        correct_response(
            request,
            &text_of(version),
            &format!("\"{version}\""),
            MINUTE,
        )
    });
    let mut client = front.connect();
    for step in 0..600 {
        if random(40) == 0 {
            version.fetch_add(1, SeqCst);
        }
        let (first, len) = (random(200) as usize, random(60) as usize);
        let last = (first + len).min(199);
        let got = match random(12) {
            0 => client.get("/", ""),
            _ => client.get("/", &format!("Range: bytes={first}-{last}\r\n")),
        };
        let tag = got.field("etag").expect("a tag").trim_matches('"');
        let text = text_of(tag.parse().expect("a number"));
        match got.status {
            206 => assert_eq!(got.text(), text[first..=last], "step {step}"),
            _ => assert_eq!((got.status, got.text()), (200, text), "step {step}"),
        }
    }
    assert!(front.origin.count() < 500, "{}", front.origin.count());
}

#[test]
fn complete_response_to_range_request_is_stored() {
    let front = TestAccelerator::with_response(|request| {
        let number = request.number;
        let fields = format!("ETag: \"a\"\r\nX-Asked: {number}\r\nCache-Control: max-age=60\r\n");
        response("200 OK", &fields, "0123456789")
    });
    for (range, status, text) in [
        ("bytes=0-3", None, None),
        ("bytes=0-3", Some(206), Some("0123")),
        ("bytes=0-", Some(206), Some("0123456789")),
        ("bytes=-3", Some(206), Some("789")),
    ] {
        let got = front.get("/v.mp4", &format!("Range: {range}\r\n"));
        assert!(status.is_none_or(|status| status == got.status), "{range}");
        assert!(text.is_none_or(|text| text == got.text()), "{range}");
        assert_eq!(got.field("x-asked"), Some("0"), "{range}");
    }
    assert_eq!(front.get("/v.mp4", "").text(), "0123456789");
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn concurrent_ranges_share_one_complete_response() {
    let (answer, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let front = TestAccelerator::new(TestOrigin::start(move |_, stream| {
        // Waits until the channel is closed.
        let _ = gate.lock().expect("no panic").recv();
        let fields = format!("ETag: \"a\"\r\n{MINUTE}");
        let answer = response("200 OK", &fields, TEXT);
        stream.write_all(answer.as_bytes()).is_ok()
    }));
    let mut clients = send_concurrent_ranges(&front);
    let waiting = || {
        front
            .run_command(&["status"])
            .contains(" 9 by another request's call")
    };
    wait_until("nine that wait for the first", || waiting().then_some(()));
    drop(answer);
    for (number, client) in clients.iter_mut().enumerate() {
        assert_range_or_complete(number, &client.response());
    }
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn concurrent_ranges_are_forwarded_to_origin_with_range_support() {
    let fields = "Cache-Control: no-store\r\n";
    let front = TestAccelerator::with_response(move |request| {
        correct_response(request, TEXT, "\"a\"", fields)
    });
    for round in 1..4 {
        let mut clients = send_concurrent_ranges(&front);
        for (number, client) in clients.iter_mut().enumerate() {
            let got = client.response();
            assert_eq!(got.status, 206);
            assert_range_or_complete(number, &got);
        }
        assert_eq!(front.origin.count(), 10 * round);
    }
}

/// Sends ten requests for different ranges concurrently, each on a new connection.
fn send_concurrent_ranges(front: &TestAccelerator) -> Vec<TestClient> {
    let send = |first: usize| {
        let mut client = front.connect();
        let range = format!("bytes={first}-{}", first + 4);
        client.send(format!(
            "GET /v.mp4 HTTP/1.1\r\nHost: test\r\nRange: {range}\r\n\r\n"
        ));
        client
    };
    (0..10).map(send).collect()
}

/// Asserts that a response has the requested range or the whole representation (RFC 9110 §14.2).
fn assert_range_or_complete(number: usize, got: &ClientResponse) {
    match got.status {
        200 => assert_eq!(got.text(), TEXT),
        _ => assert_eq!(status_range_and_body(got), bytes(number, number + 4)),
    }
}
