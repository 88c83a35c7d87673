//! Bodies that are too large, unwanted or ignored: the responses to them, and that no request hidden in a body is
//! answered.
//!
//! docs/bad-input.md has the table for operators. See RFC 9110 §6.5, §10.1.1 and §15.5.14, RFC 9112 §8 and §9.6.

use lowroad_testkit::hostile::{GOOD, HIDDEN, HostileSite, chunked, get, responses_to_end};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
fn all_refused(status: u16, says: &str, cases: &[(&str, String)]) {
    HostileSite::new(LOWROAD).refuses(status, says, cases);
}

fn all_kept(cases: &[(&str, String)]) {
    HostileSite::new(LOWROAD).accepts(200, GOOD.1, cases);
}

#[test]
fn bodies_above_the_limit_are_413() {
    const MIB: usize = 1 << 20;
    let body = "x".repeat(MIB);
    all_kept(&[
        ("1 MiB", get(&format!("Content-Length: {MIB}\r\n"), &body)),
        (
            "1 MiB in a chunk",
            chunked(&format!("100000\r\n{body}\r\n0\r\n\r\n")),
        ),
    ]);
    all_refused(
        413,
        "the request body is too large",
        &[
            (
                "a length of 1 MiB and 1",
                get(&format!("Content-Length: {}\r\n", MIB + 1), "x"),
            ),
            (
                "2^64 - 1",
                get("Content-Length: 18446744073709551615\r\n", "x"),
            ),
            ("a chunk of 1 MiB and 1", chunked("100001\r\nx")),
            ("a chunk of 2^64 - 1", chunked("ffffffffffffffff\r\nx")),
            (
                "two chunks",
                chunked(&format!("100000\r\n{body}\r\n1\r\nx\r\n0\r\n\r\n")),
            ),
        ],
    );
}

#[test]
fn unused_bodies_are_read_and_connection_is_kept() {
    let hidden_len = HIDDEN.len();
    all_kept(&[
        ("none, by a length", get("Content-Length: 0\r\n", "")),
        ("none, in chunks", chunked("0\r\n\r\n")),
        ("a body", get("Content-Length: 5\r\n", "hello")),
        (
            "spaces around the length",
            get("Content-Length: \t5 \r\n", "hello"),
        ),
        ("zeros in front", get("Content-Length: 0005\r\n", "hello")),
        (
            "a request in it",
            get(&format!("Content-Length: {hidden_len}\r\n"), HIDDEN),
        ),
        (
            "a request in a chunk",
            chunked(&format!("{hidden_len:x}\r\n{HIDDEN}\r\n0\r\n\r\n")),
        ),
        (
            "capital digits, zeros in front",
            chunked("000A\r\n0123456789\r\n0000\r\n\r\n"),
        ),
        (
            "CHUNKED",
            get("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n"),
        ),
        (
            "extensions",
            chunked("5;a;b=c;d=\"e;\\\"f\"\r\nhello\r\n0;g\r\n\r\n"),
        ),
        (
            "256 bytes of extension",
            chunked(&format!("0;{}\r\n\r\n", "x".repeat(255))),
        ),
        (
            "trailers, whatever they say",
            chunked("0\r\nHost: other\r\nContent-Length: 40\r\nConnection: close\r\n\r\n"),
        ),
    ]);
}

#[test]
fn content_length_0_does_not_delay_the_response() {
    let site = HostileSite::new(LOWROAD);
    for framing in [
        "Content-Length: 0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let mut client = site.server.connect();
        client.send(format!("GET /good.txt HTTP/1.1\r\nHost: test\r\n{framing}"));
        assert_eq!(client.response().text(), GOOD.1, "{framing:?}");
    }
}

#[test]
fn body_of_refused_request_is_not_read() {
    let site = HostileSite::new(LOWROAD);
    let says = "This page can only be read (GET, HEAD).";
    for (what, sent) in [
        (
            "a request in it",
            format!("Content-Length: {}\r\n\r\n{HIDDEN}", HIDDEN.len()),
        ),
        (
            "more than 1 MiB",
            "Content-Length: 999999999\r\n\r\nx".into(),
        ),
        (
            "bad chunks",
            "Transfer-Encoding: chunked\r\n\r\nzzz\r\n".into(),
        ),
        (
            "announced, and permission asked",
            "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n".into(),
        ),
    ] {
        let sent = format!("POST /good.txt HTTP/1.1\r\nHost: test\r\n{sent}");
        site.refuses(405, says, &[(what, sent)]);
    }
    let sent = "POST /good.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n";
    site.accepts(405, says, &[("an empty one is no body", sent)]);
}

#[test]
fn refusal_arrives_while_client_sends_its_body() {
    let site = HostileSite::new(LOWROAD);
    for _ in 0..5 {
        let mut client = site.server.connect();
        client.send("PUT /good.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 9000000\r\n\r\n");
        let piece = [b'x'; 65536];
        (0..40).for_each(|_| client.send(piece));
        let responses = responses_to_end(&mut client);
        assert_eq!(responses.len(), 1);
        assert_eq!(responses[0].status, 405);
    }
}

#[test]
fn expect_100_continue_gets_100_or_final_status() {
    let site = HostileSite::new(LOWROAD);
    let mut client = site.server.connect();
    client.send(get("Content-Length: 5\r\nExpect: 100-continue\r\n", ""));
    let response = client.response();
    assert_eq!(response.head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.response().text(), GOOD.1);

    client.send(get(
        "Content-Length: 5\r\nExpect: 100-continue\r\n",
        "hello",
    ));
    assert_eq!(
        client.response().status,
        200,
        "who did not wait is not told"
    );

    client.send(get(
        "Content-Length: 9999999\r\nExpect: 100-continue\r\n",
        "",
    ));
    assert_eq!(client.response().status, 413, "the answer is no");
    assert!(client.wait_for_close() && client.received.is_empty());

    let mut client = site.server.connect();
    client.send("GET /good.txt HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.response().status, 200, "1.0 has no 100");

    all_kept(&[
        ("without a body", get("Expect: 100-continue\r\n", "")),
        (
            "with an empty body",
            get("Expect: 100-CONTINUE\r\nContent-Length: 0\r\n", ""),
        ),
    ]);
    all_refused(
        417,
        "the expectation is not supported",
        &[
            ("unknown", get("Expect: 200-ok\r\n", "")),
            (
                "one more",
                get("Expect: 100-continue, x\r\nContent-Length: 5\r\n", "hello"),
            ),
            (
                "a second line",
                get("Expect: 100-continue\r\nExpect: x\r\n", ""),
            ),
        ],
    );
}

#[test]
fn incomplete_body_ends_the_connection() {
    let site = HostileSite::new(LOWROAD);
    for sent in [
        get("Content-Length: 5\r\n", "hell"),
        chunked("5\r\nhello\r\n"),
        chunked("5\r\nhello\r\n0\r\nx: y\r\n"),
        "GET /good.txt HTTP/1.1\r\nHost: test\r\n".into(),
        "GE".into(),
    ] {
        let mut client = site.server.connect();
        client.send(&sent);
        client.finish();
        assert!(client.wait_for_close(), "{sent:?}");
        assert!(client.received.is_empty(), "{sent:?}");
    }
}
