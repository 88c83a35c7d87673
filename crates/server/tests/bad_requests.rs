//! Unsupported versions and methods, requests at and beyond the size limits, and unusual but valid requests: the
//! responses to them, and whether the connection stays open.
//!
//! docs/bad-input.md has the table for operators. See RFC 9110 §2.5, §9.1 and §15.5, RFC 6585 §5.

use lowroad_testkit::hostile::{GOOD, HostileSite};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");

fn all_refused(status: u16, says: &str, cases: &[(&str, &[u8])]) {
    HostileSite::new(LOWROAD).refuses(status, says, cases);
}

fn all_kept(status: u16, says: &str, cases: &[(&str, &[u8])]) {
    HostileSite::new(LOWROAD).accepts(status, says, cases);
}

/// A GET with these field lines.
fn get(fields: &str) -> Vec<u8> {
    format!("GET /good.txt HTTP/1.1\r\n{fields}\r\n").into_bytes()
}

#[test]
fn unsupported_versions_and_methods_are_refused() {
    all_refused(
        505,
        "the HTTP version is not supported",
        &[
            ("2.0", b"GET /good.txt HTTP/2.0\r\nHost: test\r\n\r\n"),
            ("3.0", b"GET /good.txt HTTP/3.0\r\nHost: test\r\n\r\n"),
            ("0.9 by name", b"GET /good.txt HTTP/0.9\r\n\r\n"),
        ],
    );
    all_refused(
        501,
        "the method is not implemented",
        &[
            (
                "longer than any",
                b"VERSION-CONTROL-OF-A-COLLECTION /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "lower case",
                b"get /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
        ],
    );
}

#[test]
fn status_405_has_allow() {
    let site = HostileSite::new(LOWROAD);
    for method in [
        "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "M-SEARCH", "BREW", "brew",
    ] {
        let sent = format!("{method} /good.txt HTTP/1.1\r\nHost: test\r\n\r\n");
        let says = "This page can only be read (GET, HEAD).";
        site.accepts(405, says, &[(method, &sent)]);
        let with_body =
            format!("{method} /good.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
        site.refuses(405, says, &[(method, with_body)]);
        let mut client = site.server.connect();
        client.send(&sent);
        let response = client.response();
        assert_eq!(response.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
}

#[test]
fn unusual_valid_requests_are_answered() {
    all_kept(
        200,
        GOOD.1,
        &[
            (
                "one empty line in front",
                b"\r\nGET /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "1.2 is understood as 1.1",
                b"GET /good.txt HTTP/1.2\r\nHost: test\r\n\r\n",
            ),
            ("a Host with a port", &get("Host: test:8080\r\n")),
            ("an IPv6 address", &get("Host: [::1]:80\r\n")),
            ("spaces around a value", &get("Host: \t test \t \r\n")),
            ("an empty value", &get("Host: test\r\nX:\r\n")),
            (
                "bytes beyond ASCII in a value",
                &get("Host: test\r\nX: ä\r\n"),
            ),
            ("any case of a name", &get("hOsT: test\r\n")),
        ],
    );
    let site = HostileSite::new(LOWROAD);
    let mut client = site.server.connect();
    client.send("GET /good.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().text(), GOOD.1, "1.0 needs no Host");
    assert!(client.wait_for_close(), "and closes");
}

#[test]
fn heads_above_their_limits_are_refused() {
    let long = |len: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: test\r\n\r\n",
            "a".repeat(len - 1)
        )
    };
    let many = |count: usize| get(&format!("Host: test\r\n{}", "X: y\r\n".repeat(count - 1)));
    let large = |len: usize| {
        let rest = len - get("Host: test\r\nX: \r\n").len();
        get(&format!("Host: test\r\nX: {}\r\n", "y".repeat(rest)))
    };
    all_kept(
        200,
        GOOD.1,
        &[
            ("100 fields", &many(100)),
            ("a head of 16384 bytes", &large(16_384)),
        ],
    );
    all_kept(
        404,
        "",
        &[("a target of 8192 bytes", long(8192).as_bytes())],
    );
    all_refused(
        414,
        "the request target is too long",
        &[
            ("a target of 8193 bytes", long(8193).as_bytes()),
            (
                "a target without end",
                format!("GET /{}", "a".repeat(20_000)).as_bytes(),
            ),
            (
                "a query without end",
                format!("GET /?{}", "a".repeat(20_000)).as_bytes(),
            ),
        ],
    );
    all_refused(
        431,
        "the request head is too large",
        &[
            ("a head of 16385 bytes", &large(16_385)),
            ("a value without end", &get(&"y".repeat(20_000))[..18_000]),
            ("a method without end", "A".repeat(17_000).as_bytes()),
        ],
    );
    all_refused(
        431,
        "too many fields in the request head",
        &[("101 fields", &many(101)), ("thousands", &many(3000))],
    );
}

#[test]
fn refusal_of_head_request_has_no_content() {
    let site = HostileSite::new(LOWROAD);
    let long = "a".repeat(20_000);
    for (status, sent) in [
        (400, "HEAD /good.txt HTTP/1.1\r\n\r\n".to_string()),
        (
            400,
            "\r\nHEAD /good.txt HTTP/1.1\r\nA b: c\r\n\r\n".to_string(),
        ),
        (414, format!("HEAD /{long} HTTP/1.1\r\nHost: test\r\n\r\n")),
        (
            417,
            "HEAD /good.txt HTTP/1.1\r\nHost: test\r\nExpect: x\r\n\r\n".to_string(),
        ),
        (
            431,
            format!("HEAD / HTTP/1.1\r\nHost: test\r\nX: {long}\r\n\r\n"),
        ),
        (
            505,
            "HEAD /good.txt HTTP/2.0\r\nHost: test\r\n\r\n".to_string(),
        ),
    ] {
        let mut client = site.server.connect();
        client.send(&sent);
        assert!(client.wait_for_close(), "{status}");
        let got = String::from_utf8_lossy(&client.received);
        assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
        assert!(
            got.ends_with("\r\n\r\n") && got.contains("\r\nContent-Length: "),
            "{got}"
        );
        assert_eq!(got.matches("\r\n\r\n").count(), 1, "{got}");
    }
}
