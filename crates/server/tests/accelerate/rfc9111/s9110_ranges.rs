//! RFC 9110 §14: ranges of stored complete responses, and stored parts that can't be completed.

use lowroad_testkit::ClientResponse;

use super::front::{TestAccelerator, response};

const BODY: &str = "0123456789";

fn front() -> TestAccelerator {
    TestAccelerator::with_response(|request| {
        let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        match request.field("range") {
            Some("bytes=2-4") => response(
                "206 Partial Content",
                &format!("{fields}Content-Range: bytes 2-4/10\r\n"),
                "234",
            ),
            _ => response("200 OK", fields, BODY),
        }
    })
}

fn part(got: &ClientResponse) -> (u16, Option<&str>, String) {
    (got.status, got.field("content-range"), got.text())
}

#[test]
fn range_of_stored_response() {
    let front = front();
    front.get("/", "");
    for (range, of, text) in [
        ("bytes=2-4", "bytes 2-4/10", "234"),
        ("bytes=8-", "bytes 8-9/10", "89"),
        ("bytes=-3", "bytes 7-9/10", "789"),
        ("bytes=5-99", "bytes 5-9/10", "56789"),
        ("bytes=-99", "bytes 0-9/10", BODY),
        ("bytes=0-0", "bytes 0-0/10", "0"),
    ] {
        let got = front.get("/", &format!("Range: {range}\r\n"));
        assert_eq!(part(&got), (206, Some(of), text.into()), "{range}");
    }
    let beyond = front.get("/", "Range: bytes=10-\r\n");
    assert_eq!(
        (beyond.status, beyond.field("content-range")),
        (416, Some("bytes */10"))
    );
    for not in ["bytes=4-2", "lines=1-2", "bytes=a-b", "bytes 1-2"] {
        let got = front.get("/", &format!("Range: {not}\r\n"));
        assert_eq!((got.status, got.text().as_str()), (200, BODY), "{not}");
    }
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn if_range_selects_part_or_complete_response() {
    let front = front();
    front.get("/", "");
    for (validator, status) in [
        ("\"a\"", 206),
        ("\"b\"", 200),
        ("W/\"a\"", 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 206),
        ("Sun, 06 Nov 1994 08:49:38 GMT", 200),
        ("nonsense", 200),
    ] {
        let got = front.get(
            "/",
            &format!("Range: bytes=2-4\r\nIf-Range: {validator}\r\n"),
        );
        assert_eq!(got.status, status, "{validator}");
    }
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn preconditions_precede_range_and_head_ignores_range() {
    let front = front();
    front.get("/", "");
    assert_eq!(
        front
            .get("/", "Range: bytes=2-4\r\nIf-None-Match: \"a\"\r\n")
            .status,
        304
    );
    let head = front.request("HEAD", "/", "Range: bytes=2-4\r\n");
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("10"))
    );
}

#[test]
fn stored_part_does_not_answer_get() {
    let front = front();
    assert_eq!(front.get("/", "Range: bytes=2-4\r\n").status, 206);
    let got = front.get("/", "");
    assert_eq!((got.status, got.text().as_str()), (200, BODY));
    let requests = front.origin.requests();
    assert_eq!(
        (requests[0].field("range"), requests[1].field("range")),
        (Some("bytes=2-4"), None)
    );
}

#[test]
fn status_206_without_range_request_is_not_stored() {
    let front = TestAccelerator::with_response(|_| {
        response(
            "206 Partial Content",
            "Cache-Control: max-age=60\r\nContent-Range: bytes 2-4/10\r\n",
            "234",
        )
    });
    front.get("/", "");
    front.get("/", "");
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn parts_are_combined() {
    let front = TestAccelerator::with_response(|request| {
        let (from, to) = match request.field("range") {
            Some("bytes=0-4") => (0, 4),
            _ => (5, 9),
        };
        let fields = format!(
            "Cache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Range: bytes {from}-{to}/10\r\n"
        );
        response("206 Partial Content", &fields, &BODY[from..=to])
    });
    front.get("/", "Range: bytes=0-4\r\n");
    front.get("/", "Range: bytes=5-9\r\n");
    assert_eq!(front.get("/", "").text(), BODY);
    assert_eq!(front.origin.count(), 2);
}
