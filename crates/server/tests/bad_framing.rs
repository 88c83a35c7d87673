//! Bodies with ambiguous lengths: the responses to them, and that no request hidden in or after a body is answered.
//!
//! docs/bad-input.md has the table for operators. See RFC 9112 §6, §7.1 and §11.2.

use lowroad_testkit::hostile::{HIDDEN, HostileSite, chunked, get};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
fn all_refused(status: u16, says: &str, cases: &[(&str, String)]) {
    HostileSite::new(LOWROAD).refuses(status, says, cases);
}

#[test]
fn malformed_content_length_is_refused() {
    let length = |value: &str| get(&format!("Content-Length: {value}\r\n"), "hello");
    all_refused(
        400,
        "Content-Length is not a number",
        &[
            ("nothing", length("")),
            ("a sign", length("+5")),
            ("negative", length("-5")),
            ("hexadecimal", length("0x5")),
            ("a fraction", length("5.0")),
            ("two words", length("5 5")),
            ("a word", length("five")),
            // Exceeds 64 bits: a parser without overflow checks would read 0.
            ("2^64", length("18446744073709551616")),
        ],
    );
    all_refused(
        400,
        "Content-Length is repeated",
        &[
            ("a list of different ones", length("5, 6")),
            // RFC 9112 §6.3 permits a list of equal values, but other parsers may read it differently, so it is
            // refused.
            ("a list of equal ones", length("5,5")),
            (
                "different lines",
                get("Content-Length: 5\r\nContent-Length: 0\r\n", "hello"),
            ),
            (
                "equal lines",
                get("Content-Length: 5\r\ncontent-length: 5\r\n", "hello"),
            ),
        ],
    );
}

#[test]
fn transfer_coding_other_than_chunked_is_refused() {
    let coded = |value: &str| get(&format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n");
    all_refused(
        501,
        "the transfer coding is not implemented",
        &[
            ("gzip", coded("gzip")),
            ("gzip, then chunked", coded("gzip, chunked")),
            ("identity", coded("identity")),
            ("nearly chunked", coded("xchunked")),
            ("chunked in quotes", coded("\"chunked\"")),
            ("chunked with a parameter", coded("chunked;q=1")),
            (
                "two lines",
                get(
                    "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
                    "0\r\n\r\n",
                ),
            ),
        ],
    );
    all_refused(
        400,
        "the transfer codings do not end in one chunked",
        &[
            ("chunked twice", coded("chunked, chunked")),
            ("chunked not last", coded("chunked, gzip")),
            ("an empty one", coded(", chunked")),
            (
                "chunked in two lines",
                get(
                    "Transfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                    "0\r\n\r\n",
                ),
            ),
        ],
    );
}

#[test]
fn content_length_with_transfer_encoding_is_refused() {
    all_refused(
        400,
        "both Content-Length and Transfer-Encoding",
        &[
            (
                "the length hides a request from who believes it",
                get(
                    "Content-Length: 45\r\nTransfer-Encoding: chunked\r\n",
                    &format!("0\r\n\r\n{HIDDEN}"),
                ),
            ),
            (
                "the chunks hide a request from who believes them",
                get(
                    "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
                    &format!("28\r\n{HIDDEN}\r\n0\r\n\r\n"),
                ),
            ),
        ],
    );
    all_refused(
        400,
        "Transfer-Encoding in an HTTP/1.0 request",
        &[(
            "an old proxy would not know it",
            format!(
                "GET /good.txt HTTP/1.0\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\
                 Connection: keep-alive\r\n\r\n0\r\n\r\n{HIDDEN}"
            ),
        )],
    );
}

#[test]
fn malformed_chunks_are_refused() {
    all_refused(
        400,
        "a chunk size is malformed",
        &[
            ("no size", chunked("\r\nhello\r\n0\r\n\r\n")),
            ("no digit", chunked("g\r\nhello\r\n0\r\n\r\n")),
            ("a sign", chunked("+5\r\nhello\r\n0\r\n\r\n")),
            ("negative", chunked("-5\r\nhello\r\n0\r\n\r\n")),
            ("0x", chunked("0x5\r\nhello\r\n0\r\n\r\n")),
            ("a space in front", chunked(" 5\r\nhello\r\n0\r\n\r\n")),
            ("a bare LF", chunked("5\nhello\r\n0\r\n\r\n")),
            (
                "17 digits",
                chunked("00000000000000005\r\nhello\r\n0\r\n\r\n"),
            ),
            (
                "an underscore",
                chunked("1_0\r\n0123456789abcdef\r\n0\r\n\r\n"),
            ),
        ],
    );
    all_refused(
        400,
        "a chunk does not end where its size says",
        &[
            ("too much data", chunked("5\r\nhello!\r\n0\r\n\r\n")),
            ("too little data", chunked("5\r\nhell\r\n0\r\n\r\n")),
            ("a bare LF", chunked("5\r\nhello\n0\r\n\r\n")),
            ("a bare CR", chunked("5\r\nhello\r0\r\n\r\n")),
        ],
    );
    let extended = |extension: &str| chunked(&format!("5;{extension}\r\nhello\r\n0\r\n\r\n"));
    all_refused(
        400,
        "a chunk extension is too long",
        &[
            ("257 bytes", extended(&"x".repeat(256))),
            (
                "without end",
                chunked(&format!("5;{}", "x".repeat(100_000))),
            ),
            (
                "of the last chunk",
                chunked(&format!("0;{}\r\n\r\n", "x".repeat(300))),
            ),
        ],
    );
    all_refused(
        400,
        "a chunk extension is malformed",
        &[
            ("a bare LF", extended("x\ny")),
            ("a bare LF in quotes", extended("x=\"\n\"")),
            ("a NUL", extended("x\0")),
            ("none", extended("")),
            ("no value", extended("x=")),
            ("a bracket", extended("x[=y")),
            (
                "a space behind the size",
                chunked("5 \r\nhello\r\n0\r\n\r\n"),
            ),
        ],
    );
}

#[test]
fn malformed_trailers_are_refused() {
    let trailed = |trailers: &str| chunked(&format!("5\r\nhello\r\n0\r\n{trailers}\r\n"));
    all_refused(
        400,
        "a trailer field is malformed",
        &[
            ("no colon", trailed("x\r\n")),
            ("a space before the colon", trailed("x : y\r\n")),
            ("folded", trailed("x: y\r\n z\r\n")),
            ("a bare LF", trailed("x: y\n")),
            ("a NUL", trailed("x: \0\r\n")),
        ],
    );
    all_refused(
        431,
        "the trailer section is too large",
        &[
            (
                "one long line",
                trailed(&format!("x: {}\r\n", "y".repeat(5000))),
            ),
            ("many lines", trailed(&"x: y\r\n".repeat(1000))),
            (
                "a line without end",
                chunked(&format!("0\r\nx: {}", "y".repeat(9000))),
            ),
        ],
    );
}
