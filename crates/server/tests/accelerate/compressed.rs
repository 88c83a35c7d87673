//! Compression of uncompressed origin responses, if the route enables it. A stored, compressed response is validated
//! with the origin's own validator.

use super::front::{TestFront, TestOrigin, response};

const GZIP: &str = "Accept-Encoding: gzip\r\n";

fn text() -> String {
    "a text that repeats itself\n".repeat(100)
}

/// An origin that answers 304 to its own ETag, for the compressed and the plain form.
fn front() -> TestFront {
    let fields = "ETag: \"a\"\r\nVary: Cookie\r\nContent-Type: text/html\r\n";
    let origin = TestOrigin::with_response(move |asked| match asked.field("if-none-match") {
        Some("W/\"a\"" | "\"a\"") => {
            format!("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\n{fields}\r\n")
        }
        _ => response(
            "200 OK",
            &format!("Age: 61\r\nCache-Control: max-age=60\r\n{fields}"),
            &text(),
        ),
    });
    TestFront::routing(origin, "compress = true\n")
}

#[test]
fn what_is_stored_compressed_is_validated_and_stays_for_who_accepts_it() {
    let front = front();
    let first = front.get("/", GZIP);
    assert_eq!(first.field("content-encoding"), Some("gzip"));
    assert_eq!(first.field("etag"), Some("W/\"a\""));
    let again = front.get("/", GZIP);
    let asked = front.origin.requests().remove(1);
    assert_eq!(asked.field("if-none-match"), Some("W/\"a\""));
    assert_eq!(again.status, 200);
    assert_eq!(again.field("content-encoding"), Some("gzip"));
    assert_eq!(again.body, first.body);
    // After validation the stored response is fresh.
    assert_eq!(front.get("/", GZIP).body, first.body);
    assert_eq!(front.origin.count(), 2);
    // Only for clients that accept the coding, though the origin's Vary does not name Accept-Encoding.
    let plain = front.get("/", "");
    assert_eq!(
        (plain.field("content-encoding"), plain.text()),
        (None, text())
    );
    assert_eq!(front.origin.count(), 3);
    // Ranges apply to the stored, compressed form.
    let part = front.get("/", &format!("{GZIP}Range: bytes=0-9\r\n"));
    assert_eq!((part.status, &part.body[..]), (206, &first.body[..10]));
    // A validator of the other form does not select a range of this one.
    let whole = front.get(
        "/",
        &format!("{GZIP}Range: bytes=0-9\r\nIf-Range: \"a\"\r\n"),
    );
    assert_eq!((whole.status, &whole.body), (200, &first.body));
}
