//! Compression of the origin's uncompressed responses, if the route enables it. A stored, compressed response is
//! validated with the origin's own validator.

use super::front::{TestAccelerator, TestOrigin, response};

const GZIP: &str = "Accept-Encoding: gzip\r\n";

fn text() -> String {
    "a text that repeats itself\n".repeat(100)
}

/// An origin that answers 304 to the ETag of either form, the compressed and the uncompressed one.
fn front() -> TestAccelerator {
    let fields = "ETag: \"a\"\r\nVary: Cookie\r\nContent-Type: text/html\r\n";
    let origin = TestOrigin::with_response(move |request| match request.field("if-none-match") {
        Some("W/\"a\"" | "\"a\"") => {
            format!("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\n{fields}\r\n")
        }
        _ => response(
            "200 OK",
            &format!("Age: 61\r\nCache-Control: max-age=60\r\n{fields}"),
            &text(),
        ),
    });
    TestAccelerator::with_route_settings(origin, "compress = true\n")
}

#[test]
fn stored_compressed_response_is_validated_and_sent_only_to_clients_that_accept_it() {
    let front = front();
    let first = front.get("/", GZIP);
    assert_eq!(first.field("content-encoding"), Some("gzip"));
    assert_eq!(first.field("etag"), Some("W/\"a\""));
    let again = front.get("/", GZIP);
    let request = front.origin.requests().remove(1);
    assert_eq!(request.field("if-none-match"), Some("W/\"a\""));
    assert_eq!(again.status, 200);
    assert_eq!(again.field("content-encoding"), Some("gzip"));
    assert_eq!(again.body, first.body);
    // After validation the stored response is fresh.
    assert_eq!(front.get("/", GZIP).body, first.body);
    assert_eq!(front.origin.count(), 2);
    // The compressed response is sent only to clients that accept the coding, although the origin's Vary does not list
    // Accept-Encoding.
    let plain = front.get("/", "");
    assert_eq!(
        (plain.field("content-encoding"), plain.text()),
        (None, text())
    );
    assert_eq!(front.origin.count(), 3);
    // A range applies to the stored, compressed bytes.
    let part = front.get("/", &format!("{GZIP}Range: bytes=0-9\r\n"));
    assert_eq!((part.status, &part.body[..]), (206, &first.body[..10]));
    // The validator of the uncompressed form does not match in If-Range.
    let whole = front.get(
        "/",
        &format!("{GZIP}Range: bytes=0-9\r\nIf-Range: \"a\"\r\n"),
    );
    assert_eq!((whole.status, &whole.body), (200, &first.body));
}
