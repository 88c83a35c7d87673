//! Lines, fields and hosts that two parsers could read differently: each gets 400, and no later request on its
//! connection is answered.
//!
//! docs/bad-input.md has the table for operators. Versions, methods and sizes are tested in `bad_requests`, bodies in
//! `bad_framing` and `bad_bodies`, paths in `bad_targets` and `bad_files`, timing and numbers of connections in
//! `slow_and_many` and `crowd`. See RFC 9112 §2 to §5.

use lowroad_testkit::hostile::HostileSite;

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");

fn all_refused(says: &str, cases: &[(&str, &[u8])]) {
    HostileSite::new(LOWROAD).refuses(400, says, cases);
}

/// A GET with these field lines.
fn get(fields: &str) -> Vec<u8> {
    format!("GET /good.txt HTTP/1.1\r\n{fields}\r\n").into_bytes()
}

#[test]
fn malformed_request_line_is_refused() {
    all_refused(
        "the request line is malformed",
        &[
            ("a word", b"hello\r\n\r\n"),
            ("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
            ("HTTP/0.9", b"GET /good.txt\r\n\r\n"),
            ("no target", b"GET\r\nHost: test\r\n\r\n"),
            ("no target either", b"GET HTTP/1.1\r\nHost: test\r\n\r\n"),
            (
                "space in front",
                b" GET /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "two spaces",
                b"GET  /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "two spaces later",
                b"GET /good.txt  HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            ("a tab", b"GET\t/good.txt HTTP/1.1\r\nHost: test\r\n\r\n"),
            (
                "space at the end",
                b"GET /good.txt HTTP/1.1 \r\nHost: test\r\n\r\n",
            ),
            (
                "a fourth word",
                b"GET /good.txt HTTP/1.1 x\r\nHost: test\r\n\r\n",
            ),
            (
                "a space in the target",
                b"GET /good .txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "method is no token",
                b"G@T /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "method is quoted",
                b"\"GET\" /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "lower-case version",
                b"GET /good.txt http/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "two-digit version",
                b"GET /good.txt HTTP/1.10\r\nHost: test\r\n\r\n",
            ),
            (
                "half a version",
                b"GET /good.txt HTTP/1\r\nHost: test\r\n\r\n",
            ),
            (
                "another protocol",
                b"GET /good.txt FTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "two empty lines in front",
                b"\r\n\r\nGET /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "a TLS hello",
                b"\x16\x03\x01\x00\x31\x01\x00\x00\x2d\x03\x03\x5f\x8a\x00\x00\r\n\r\n",
            ),
        ],
    );
}

#[test]
fn bare_cr_and_lf_are_refused() {
    all_refused(
        "a line feed without a carriage return",
        &[
            (
                "after the request line",
                b"GET /good.txt HTTP/1.1\nHost: test\r\n\r\n",
            ),
            (
                "after a method",
                b"GET\n/good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "after a field",
                b"GET /good.txt HTTP/1.1\r\nHost: test\nX: y\r\n\r\n",
            ),
            (
                "within a field name",
                b"GET /good.txt HTTP/1.1\r\nHost: test\r\nX\nY: z\r\n\r\n",
            ),
            ("everywhere", b"GET /good.txt HTTP/1.1\nHost: test\n\n"),
            (
                "as the empty line",
                b"GET /good.txt HTTP/1.1\r\nHost: test\r\n\n",
            ),
            (
                "in front",
                b"\nGET /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
        ],
    );
    all_refused(
        "a carriage return without a line feed",
        &[
            (
                "after the request line",
                b"GET /good.txt HTTP/1.1\rHost: test\r\n\r\n",
            ),
            (
                "in a value",
                b"GET /good.txt HTTP/1.1\r\nHost: te\rst\r\n\r\n",
            ),
            (
                "in a name",
                b"GET /good.txt HTTP/1.1\r\nHost: test\r\nX\rY: z\r\n\r\n",
            ),
            ("two", b"GET /good.txt HTTP/1.1\r\nHost: test\r\r\n\r\n"),
            (
                "as the empty line",
                b"GET /good.txt HTTP/1.1\r\nHost: test\r\n\rX",
            ),
        ],
    );
    all_refused(
        "a NUL byte in the request head",
        &[
            (
                "in a value",
                b"GET /good.txt HTTP/1.1\r\nHost: te\0st\r\n\r\n",
            ),
            (
                "in a name",
                b"GET /good.txt HTTP/1.1\r\nHost: test\r\nX\0: y\r\n\r\n",
            ),
            (
                "in the target",
                b"GET /good\0.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
            (
                "in front",
                b"\0GET /good.txt HTTP/1.1\r\nHost: test\r\n\r\n",
            ),
        ],
    );
}

#[test]
fn ambiguous_field_lines_are_refused() {
    all_refused(
        "a folded field line",
        &[
            ("a space", &get("Host: test\r\nX: a\r\n b\r\n")),
            ("a tab", &get("Host: test\r\nX: a\r\n\tb\r\n")),
            (
                "a folded field of framing",
                &get("Host: test\r\nContent-Length: 5\r\n 5\r\n"),
            ),
            ("the first line", &get(" Host: test\r\n")),
            ("nothing but space", &get("Host: test\r\n  \r\n")),
        ],
    );
    all_refused(
        "whitespace before the colon of a field",
        &[
            ("Host", &get("Host : test\r\n")),
            ("a tab", &get("Host: test\r\nX\t: y\r\n")),
            (
                "Content-Length",
                &get("Host: test\r\nContent-Length : 5\r\n"),
            ),
            (
                "Transfer-Encoding",
                &get("Host: test\r\nTransfer-Encoding : chunked\r\n"),
            ),
        ],
    );
    all_refused(
        "a field name is not a token",
        &[
            ("no name", &get("Host: test\r\n: x\r\n")),
            ("no colon", &get("Host: test\r\nX\r\n")),
            ("two words", &get("Host: test\r\nX Y: z\r\n")),
            ("a bracket", &get("Host: test\r\nX(: y\r\n")),
            ("not ASCII", &get("Host: test\r\nÄ: y\r\n")),
            (
                "a second request line",
                &get("GET / HTTP/1.1\r\nHost: test\r\n"),
            ),
        ],
    );
    all_refused(
        "a control character in a field value",
        &[
            ("SOH", &get("Host: test\r\nX: a\u{1}b\r\n")),
            ("DEL", &get("Host: test\r\nX: \u{7f}\r\n")),
            (
                "a vertical tab before a coding",
                &get("Host: test\r\nTransfer-Encoding: \u{b}chunked\r\n"),
            ),
        ],
    );
}

#[test]
fn missing_duplicate_and_malformed_host_is_refused() {
    all_refused(
        "the Host field is missing",
        &[
            ("none", &get("")),
            ("another field", &get("Hosts: test\r\n")),
            (
                "in absolute-form, too",
                b"GET http://test/good.txt HTTP/1.1\r\n\r\n",
            ),
        ],
    );
    all_refused(
        "the Host field is repeated",
        &[
            ("different", &get("Host: test\r\nHost: other\r\n")),
            ("equal", &get("Host: test\r\nX: y\r\nhOST: test\r\n")),
            (
                "in HTTP/1.0",
                b"GET /good.txt HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
            ),
        ],
    );
    all_refused(
        "the host name is invalid",
        &[
            ("a list", &get("Host: a, b\r\n")),
            ("a path", &get("Host: a/b\r\n")),
            ("dots", &get("Host: ..\r\n")),
            ("an escape", &get("Host: te%73t\r\n")),
            ("a user", &get("Host: user@test\r\n")),
            ("a space", &get("Host: te st\r\n")),
            ("a large port", &get("Host: test:65536\r\n")),
            ("a port of letters", &get("Host: test:http\r\n")),
            ("half an address", &get("Host: [::1\r\n")),
            ("a zone", &get("Host: [fe80::1%25eth0]\r\n")),
            ("not ASCII", &get("Host: tëst\r\n")),
            (
                "beside a good one in the target",
                b"GET http://test/good.txt HTTP/1.1\r\nHost: a b\r\n\r\n",
            ),
        ],
    );
}
