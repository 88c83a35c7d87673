//! Irregular but unambiguous responses are forwarded in normal form (RFC 9112 §2.2, §5, §6.3).

use std::io::Write;

use crate::front::{TestAccelerator, TestOrigin};

/// An origin's bytes, and the body that the client receives.
const RESPONSES: &[(&str, &str)] = &[
    ("HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
    (
        "HTTP/1.1 200 OK\r\nX-A \t: b\r\nContent-Length : 2\r\n\r\nok",
        "ok",
    ),
    (
        "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2, 2\r\n\r\nok",
        "ok",
    ),
    (
        "HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "ok",
    ),
    (
        "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nok\r\n0 \r\n\r\n",
        "ok",
    ),
    (
        "HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: , chunked\r\n\r\n2\r\nok\r\n0\r\nX-T : a\r\n b\n\n",
        "ok",
    ),
    ("HTTP/1.1 200 OK\nX-A: b\nContent-Length: 2\n\nok", "ok"),
    (
        "HTTP/1.1 200 OK\r\nX-A: b\r\n  \tc\r\nContent-Length: 2\r\n\r\nok",
        "ok",
    ),
    (
        "HTTP/1.1 103 Early\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "ok",
    ),
];

#[test]
fn irregular_responses_are_normalised() {
    let front = TestAccelerator::new(TestOrigin::start(|request, stream| {
        let number: usize = request
            .field("x-number")
            .expect("a number")
            .parse()
            .expect("a number");
        let len: usize = request
            .field("x-piece")
            .expect("a length")
            .parse()
            .expect("a length");
        let response = RESPONSES[number].0.as_bytes();
        response
            .chunks(len)
            .all(|piece| stream.write_all(piece).is_ok())
    }));
    for (number, (response, body)) in RESPONSES.iter().enumerate() {
        for piece in [1, 1000] {
            let mut client = front.connect();
            client.send(format!(
                "GET / HTTP/1.0\r\nX-Number: {number}\r\nX-Piece: {piece}\r\n\r\n"
            ));
            assert!(client.wait_for_close(), "{response:?}");
            let got = String::from_utf8_lossy(&client.received);
            let (head, got_body) = got.split_once("\r\n\r\n").expect(response);
            assert!(
                head.starts_with("HTTP/1.1 200 OK\r\n"),
                "{response:?}: {head}"
            );
            assert_eq!(got_body, *body, "{response:?}");
            let expected = match response.contains("  \tc") {
                true => Some("X-A: b c"),
                false => response.contains("X-A").then_some("X-A: b"),
            };
            let lines: Vec<&str> = head.split("\r\n").collect();
            let named = lines.iter().find(|line| line.starts_with("X-A"));
            assert_eq!(named.copied(), expected, "{response:?}");
            assert!(!head.contains('\t') && !head.replace("\r\n", "").contains(['\r', '\n']));
        }
    }
}

#[test]
fn error_message_names_the_response() {
    let front = TestAccelerator::new(TestOrigin::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        false
    }));
    assert_eq!(front.get("/", "").status, 502);
    front
        .server
        .wait_for_error_line("Transfer-Encoding in an HTTP/1.0 response");
}
