//! Requests that servers parse differently, requests that proxies change, and bytes that are not requests. They are the
//! input for comparing a server with and without workers. Most are from the suites `bad_input`, `bad_requests`,
//! `bad_framing`, `bad_bodies` and `bad_targets`, changed to `/0-2000.bin` or `/upload` where possible.

use lowroad_testkit::net::servers::UPLOAD;
use lowroad_testkit::net::site::content;

/// Length of an upload that exceeds the default limit of a Lowroad server.
pub const LONG_LEN: usize = 2_000_000;

/// A name, and the bytes to send.
pub type OddRequest = (String, Vec<u8>);

/// All odd requests.
pub fn all() -> Vec<OddRequest> {
    [lines(), fields(), bodies(), targets()].concat()
}

fn odd(name: &str, bytes: impl AsRef<[u8]>) -> OddRequest {
    (name.to_owned(), bytes.as_ref().to_vec())
}

/// A GET with these field lines.
fn get(fields: &str) -> String {
    format!("GET /0-2000.bin HTTP/1.1\r\n{fields}\r\n")
}

/// A request with this request line and a Host.
fn line(line: &str) -> OddRequest {
    odd(line, format!("{line}\r\nHost: test\r\n\r\n"))
}

fn lines() -> Vec<OddRequest> {
    let mut all: Vec<OddRequest> = [
        "GET /0-2000.bin HTTP/2.0",
        "GET /0-2000.bin HTTP/1.2",
        "GET /0-2000.bin HTTP/1.10",
        "GET /0-2000.bin HTTP/1",
        "GET /0-2000.bin http/1.1",
        "GET  /0-2000.bin HTTP/1.1",
        "GET /0-2000.bin  HTTP/1.1",
        "GET\t/0-2000.bin HTTP/1.1",
        "GET /0-2000.bin HTTP/1.1 x",
        "get /0-2000.bin HTTP/1.1",
        "G@T /0-2000.bin HTTP/1.1",
        "BREW /0-2000.bin HTTP/1.1",
        "PURGE /0-2000.bin HTTP/1.1",
        "TRACE /0-2000.bin HTTP/1.1",
        "PROPFIND /0-2000.bin HTTP/1.1",
        "VERSION-CONTROL-OF-A-COLLECTION /0-2000.bin HTTP/1.1",
        "DELETE /0-2000.bin HTTP/1.1",
        "OPTIONS /0-2000.bin HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET * HTTP/1.1",
        "CONNECT test:80 HTTP/1.1",
        "HEAD /0-2000.bin HTTP/1.1",
    ]
    .into_iter()
    .map(line)
    .collect();
    all.extend([
        odd("HTTP/0.9", b"GET /0-2000.bin\r\n\r\n"),
        odd("HTTP/1.0 without Host", b"GET /0-2000.bin HTTP/1.0\r\n\r\n"),
        odd(
            "HTTP/1.0 that stays",
            b"GET /0-2000.bin HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        ),
        odd(
            "an empty line first",
            format!("\r\n{}", get("Host: test\r\n")),
        ),
        odd(
            "two empty lines first",
            format!("\r\n\r\n{}", get("Host: test\r\n")),
        ),
        odd("bare LF", b"GET /0-2000.bin HTTP/1.1\nHost: test\n\n"),
        odd(
            "a bare CR",
            b"GET /0-2000.bin HTTP/1.1\r\nHost: te\rst\r\n\r\n",
        ),
        odd(
            "NUL",
            b"GET /0-2000.bin HTTP/1.1\r\nHost: test\r\nX: \0\r\n\r\n",
        ),
        odd(
            "a TLS hello",
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n\r\n",
        ),
        odd("an SSH banner", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        odd(
            "HTTP/2 by prior knowledge",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        ),
    ]);
    all
}

fn fields() -> Vec<OddRequest> {
    let long = format!("Host: test\r\nX: {}\r\n", "x".repeat(20_000));
    let many = format!("Host: test\r\n{}", "X: y\r\n".repeat(150));
    [
        ("no Host", ""),
        ("two Hosts", "Host: test\r\nHost: test\r\n"),
        ("a list of Hosts", "Host: a, b\r\n"),
        ("an empty Host", "Host: \r\n"),
        ("another Host", "Host: elsewhere\r\n"),
        ("a folded line", "Host: test\r\nX: a\r\n b\r\n"),
        ("a space before the colon", "Host: test\r\nX : a\r\n"),
        ("a line without a colon", "Host: test\r\nX\r\n"),
        ("UTF-8 in a value", "Host: test\r\nX: \u{fc}\r\n"),
        ("an underscore", "Host: test\r\nX_Y: z\r\n"),
        ("a long field", &long),
        ("many fields", &many),
        ("an unknown expectation", "Host: test\r\nExpect: x\r\n"),
        (
            "an upgrade",
            "Host: test\r\nConnection: upgrade\r\nUpgrade: x\r\n",
        ),
        (
            "a field for the next hop",
            "Host: test\r\nConnection: keep-alive, x\r\nX: y\r\n",
        ),
        (
            "a method in a field",
            "Host: test\r\nX-HTTP-Method-Override: DELETE\r\n",
        ),
    ]
    .into_iter()
    .map(|(name, fields)| odd(name, get(fields)))
    .collect()
}

/// An upload with these field lines and this body.
fn post(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("POST {UPLOAD} HTTP/1.1\r\nHost: test\r\n{fields}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// An upload with `Expect: 100-continue`.
pub fn expected() -> OddRequest {
    let fields = format!("Content-Length: {LONG_LEN}\r\nExpect: 100-continue");
    odd(
        "a long body that is expected",
        post(&fields, &content(3, 4, LONG_LEN)),
    )
}

fn bodies() -> Vec<OddRequest> {
    let long = content(3, 4, LONG_LEN);
    let chunks: Vec<u8> = long
        .chunks(70_000)
        .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
        .chain(*b"0\r\n\r\n")
        .collect();
    let length = format!("Content-Length: {LONG_LEN}");
    let chunked = |body: &[u8]| post("Transfer-Encoding: chunked", body);
    vec![
        odd("a long body", post(&length, &long)),
        odd("a long body in chunks", chunked(&chunks)),
        odd("an expected body", {
            let head = get("Host: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n");
            [head.as_bytes(), b"abc"].concat()
        }),
        odd("a short body", post("Content-Length: 3", b"abc")),
        odd("an empty body", post("Content-Length: 0", b"")),
        odd("chunks", chunked(b"3\r\nabc\r\n0\r\n\r\n")),
        odd(
            "chunks with trailers",
            chunked(b"3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
        ),
        odd("a chunk extension", chunked(b"3;a=b\r\nabc\r\n0\r\n\r\n")),
        odd(
            "a chunk size with a sign",
            chunked(b"+3\r\nabc\r\n0\r\n\r\n"),
        ),
        odd(
            "a chunk size that is none",
            chunked(b"x\r\nabc\r\n0\r\n\r\n"),
        ),
        odd(
            "a chunk longer than its size",
            chunked(b"2\r\nabc\r\n0\r\n\r\n"),
        ),
        odd("a length with a sign", post("Content-Length: +3", b"abc")),
        odd(
            "two lengths",
            post("Content-Length: 3\r\nContent-Length: 3", b"abc"),
        ),
        odd(
            "lengths that differ",
            post("Content-Length: 3\r\nContent-Length: 4", b"abcd"),
        ),
        odd("length and chunks", {
            post(
                "Content-Length: 3\r\nTransfer-Encoding: chunked",
                b"0\r\n\r\n",
            )
        }),
        odd("another coding", post("Transfer-Encoding: gzip", b"abc")),
        odd("identity", post("Transfer-Encoding: identity", b"")),
        odd(
            "chunked twice",
            post("Transfer-Encoding: chunked, chunked", b"0\r\n\r\n"),
        ),
        odd("a GET with a body", {
            let head = get("Host: test\r\nContent-Length: 3\r\n");
            [head.as_bytes(), b"abc"].concat()
        }),
    ]
}

fn targets() -> Vec<OddRequest> {
    let long = format!("/{}", "x".repeat(9_000));
    [
        "/a/../0-2000.bin",
        "/../0-2000.bin",
        "/./0-2000.bin",
        "/%2e/0-2000.bin",
        "//0-2000.bin",
        "/0-2000.bin/",
        "/a\\b",
        "/a%5cb",
        "/a%2fb",
        "/%00",
        "/%zz",
        "/\u{fc}",
        "/0-2000.bin#x",
        "/0-2000.bin?a=\u{fc}",
        "/0-2000.bin?%zz",
        "/%250-2000.bin",
        "/0-2000.bin;x",
        "0-2000.bin",
        "http://test/0-2000.bin",
        "https://test/0-2000.bin",
        "http://other/0-2000.bin",
        "ftp://test/0-2000.bin",
        &long,
    ]
    .into_iter()
    .map(|target| {
        odd(
            target,
            format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n"),
        )
    })
    .collect()
}
