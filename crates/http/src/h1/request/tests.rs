//! Tables of request heads with their expected meaning or refusal. `tests/differential.rs` splits and mutates heads.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::field_values::FieldLineValues;
use crate::method::Method;
use crate::request::{OwnedRequest, RequestTarget};

/// Parses bytes that must be exactly one complete head.
#[track_caller]
fn parse_complete(head: &str) -> H1RequestHead<'_> {
    match parse(head.as_bytes(), &RequestLimits::default()) {
        Ok(Some(parsed)) => {
            assert_eq!(parsed.len, head.len());
            parsed
        }
        other => panic!("{head:?}: {other:?}"),
    }
}

#[track_caller]
fn request(head: &str) -> Request<'_> {
    parse_complete(head).request
}

fn refusal(head: impl AsRef<[u8]>, limits: &RequestLimits) -> Option<RequestRefusal> {
    parse(head.as_ref(), limits).err()
}

#[track_caller]
fn assert_refused(head: impl AsRef<[u8]>, expected: RequestRefusal) {
    let found = refusal(head.as_ref(), &RequestLimits::default());
    let text = String::from_utf8_lossy(head.as_ref());
    assert_eq!(found, Some(expected), "{text:?}");
}

/// A head with this request line and a Host field.
fn with_line(line: &str) -> String {
    String::from(line) + "\r\nHost: a\r\n\r\n"
}

/// A head with these field lines, each with its CRLF, after a Host field.
fn with_fields(fields: &str) -> String {
    String::from("GET / HTTP/1.1\r\nHost: a\r\n") + fields + "\r\n"
}

#[track_caller]
fn is_partial(head: &[u8]) -> bool {
    matches!(parse(head, &RequestLimits::default()), Ok(None))
}

#[test]
fn ordinary_request_is_parsed() {
    let head = "GET /a/b.html?c=d HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x/1 (y; z)\r\n\
        Accept: */*\r\nReferer: http://r/\r\n\r\n";
    let parsed = parse_complete(head);
    let request = &parsed.request;
    assert_eq!(request.method, Method::Get);
    assert_eq!(parsed.version, HttpVersion::Http11);
    let target = RequestTarget::Origin {
        path: b"/a/b.html",
        query: Some(b"c=d"),
        // The path needs no decoding.
        plain: true,
    };
    assert_eq!(request.target, target);
    assert_eq!(request.authority, Some(b"example.com:8080".as_slice()));
    assert_eq!(parsed.framing, BodyFraming::None);
    assert!(parsed.keep_alive && !parsed.expect_continue);
    assert_eq!(request.user_agent(), Some(b"x/1 (y; z)".as_slice()));
    assert_eq!(request.referer(), Some(b"http://r/".as_slice()));
    assert_eq!(request.range(), None);
    assert!(request.accept_encoding().is_empty());
    assert_eq!(parsed.line(), b"GET /a/b.html?c=d HTTP/1.1");
    assert_eq!(request.raw_target(), b"/a/b.html?c=d");
    let names: Vec<&[u8]> = request.fields().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Host"[..], b"User-Agent", b"Accept", b"Referer"]);
}

#[test]
fn bytes_after_the_head_are_not_parsed() {
    // Bytes after the head must not become part of it: they are the body or a pipelined request.
    let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for after in [
        "x",
        "\r\n",
        "\n",
        "\0",
        "GET /2 HTTP/1.1\r\nHost: b\r\n\r\n",
        "Accept-Encoding: gzip\r\n\r\n",
    ] {
        let bytes = String::from(head) + after;
        match parse(bytes.as_bytes(), &RequestLimits::default()) {
            Ok(Some(parsed)) => {
                assert_eq!(parsed.len, head.len());
                assert_eq!(parsed.request.fields().count(), 1);
                assert!(parsed.request.accept_encoding().is_empty());
            }
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
}

#[test]
fn one_empty_line_before_the_request_is_skipped() {
    // RFC 9112 §2.2.
    let found = parse_complete("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(found.line(), b"GET / HTTP/1.1");
    assert_refused(
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::RequestLine,
    );
    assert_refused(
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::BareLf,
    );
    assert_refused(
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::BareCr,
    );
    assert!(is_partial(b"\r"));
    assert!(is_partial(b"\r\n"));
}

#[test]
fn standard_methods_are_parsed() {
    for name in [
        "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS",
    ] {
        let head = with_line(&(String::from(name) + " / HTTP/1.1"));
        assert_eq!(request(&head).method.as_str(), name);
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    // Because RFC 9112 §3 permits lenient parsing of whitespace, two programs could find different targets in these
    // lines.
    for line in [
        "GET",
        "GET ",
        "GET /",
        "GET / ",
        // A parser that splits at each space finds an empty target between the two spaces.
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        // RFC 9112 §3: some lenient parsers split at any whitespace.
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET HTTP/1.1",
        // A space in the target: programs disagree about which part is the version.
        "GET / x HTTP/1.1",
        "G@T / HTTP/1.1",
        "GET / http/1.1",
        "GET / HTTP/1",
        "GET / HTTP/1.",
        "GET / HTTP/11.1",
        "GET / HTTP/1.10",
        "GET / HTTP/1.x",
        "GET / HTTP/x.1",
        "GET / HTTP/2",
        "GET / HTTPS/1.1",
        "GET / HTTP 1.1",
        "GET / HTTP/1,1",
        // The protocol name of Shoutcast.
        "GET / ICY/1.1",
        "",
    ] {
        assert_refused(with_line(line), RequestRefusal::RequestLine);
    }
}

#[test]
fn garbage_is_refused_before_the_line_is_complete() {
    // The first case is a TLS ClientHello on a plain port: it is answered immediately, not after a timeout.
    assert_refused(b"\x16\x03\x01\x02\x00", RequestRefusal::RequestLine);
    assert_refused(b"\x80", RequestRefusal::RequestLine);
    assert_refused(b"\0", RequestRefusal::Nul);
    assert_refused(b"\n", RequestRefusal::BareLf);
    assert_refused(b"GET\n", RequestRefusal::BareLf);
    assert_refused(b"GET / HTTP/1.1\n", RequestRefusal::BareLf);
    assert_refused(b"GET / HTTP/1.1\rX", RequestRefusal::BareCr);
    assert_refused(b"GET / HTTPX1.1", RequestRefusal::RequestLine);
    assert_refused(b"GET / HTTP/1.1\r\n x", RequestRefusal::ObsFold);
}

#[test]
fn line_ends_and_nul_in_the_request_line_are_refused() {
    // A lenient logger or proxy would see two lines.
    assert_refused(
        "GET /\n HTTP/1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::BareLf,
    );
    assert_refused(
        "GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::BareCr,
    );
    assert_refused(
        "GE\rT / HTTP/1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::BareCr,
    );
    assert_refused(
        "GET / HTTP/\r1.1\r\nHost: a\r\n\r\n",
        RequestRefusal::BareCr,
    );
    assert_refused("GET / HTTP/1\n\r\nHost: a\r\n\r\n", RequestRefusal::BareLf);
    assert_refused("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", RequestRefusal::Nul);
    assert_refused("GET / HTTP\0/1.1\r\nHost: a\r\n\r\n", RequestRefusal::Nul);
    assert_refused("GET /\r\n\r\n", RequestRefusal::RequestLine);
}

#[test]
fn http_version_is_parsed_or_refused() {
    // RFC 9110 §2.5: minor versions are compatible, major versions are not.
    for (version, expected) in [
        ("HTTP/1.0", Ok(HttpVersion::Http10)),
        ("HTTP/1.1", Ok(HttpVersion::Http11)),
        ("HTTP/1.2", Ok(HttpVersion::Http11)),
        ("HTTP/1.9", Ok(HttpVersion::Http11)),
        ("HTTP/0.9", Err(RequestRefusal::Version)),
        ("HTTP/2.0", Err(RequestRefusal::Version)),
        ("HTTP/9.9", Err(RequestRefusal::Version)),
    ] {
        let head = with_line(&(String::from("GET / ") + version));
        match expected {
            Ok(version) => assert_eq!(parse_complete(&head).version, version),
            Err(refusal) => assert_refused(&head, refusal),
        }
    }
    // The HTTP/2 preface on an HTTP/1 connection.
    assert_refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RequestRefusal::Version);
}

#[test]
fn refusal_precedence_is_syntax_version_method_target() {
    let long = alloc::format!("{} / HTTP/1.1", "A".repeat(31));
    assert_refused(with_line(&long), RequestRefusal::MethodUnknown);
    assert_refused(with_line("get / HTTP/1.1"), RequestRefusal::MethodUnknown);
    assert_refused(with_line("BREW / HTTP/3.0"), RequestRefusal::Version);
    assert_refused(with_line("BREW / HTTP/x"), RequestRefusal::RequestLine);
    assert_refused(with_line("get x HTTP/1.1"), RequestRefusal::MethodUnknown);
    assert_refused(with_line("BREW x HTTP/1.1"), RequestRefusal::TargetInvalid);
    assert_refused(with_line("BREW * HTTP/1.1"), RequestRefusal::TargetInvalid);
    assert!(is_partial(b"BREW / HTTP/1.1"));
    let brew = with_line("BREW /a HTTP/1.1");
    assert_eq!(parse_complete(&brew).request.method.as_str(), "BREW");
}

#[test]
fn origin_form_targets_are_parsed() {
    // `plain` must be false for each target that needs decoding or normalization.
    for (raw, path, query, plain) in [
        ("/", "/", None, true),
        ("/a.b-c_d~e/f", "/a.b-c_d~e/f", None, true),
        ("/!$&'()*+,;=:@", "/!$&'()*+,;=:@", None, true),
        ("/?", "/", Some(""), true),
        ("/a?b?c/../%", "/a", Some("b?c/../%"), true),
        // Escapes need decoding.
        ("/%41", "/%41", None, false),
        // Slashes are merged.
        ("//", "//", None, false),
        ("/a//b", "/a//b", None, false),
        // Not a dot segment, but it begins like one.
        ("/.a", "/.a", None, false),
        ("/a/..", "/a/..", None, false),
        ("/a\\b", "/a\\b", None, false),
        ("/a|b\"<>{}^`", "/a|b\"<>{}^`", None, false),
        ("/0123456789abcdef/g.h", "/0123456789abcdef/g.h", None, true),
    ] {
        let head = with_line(&(String::from("GET ") + raw + " HTTP/1.1"));
        let target = RequestTarget::Origin {
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
            plain,
        };
        assert_eq!(request(&head).target, target, "{raw}");
    }
}

#[test]
fn decoding_leaves_a_plain_path_unchanged() {
    // Each byte is tried between two copies of each start.
    for start in ["/", "/a", "/a/", "/."] {
        for byte in (0x21..0x7f).filter(|b| *b != b'#' && *b != b'?') {
            let raw = alloc::format!("{start}{}{start}", char::from(byte));
            let head = with_line(&alloc::format!("GET {raw} HTTP/1.1"));
            let RequestTarget::Origin { path, plain, .. } = request(&head).target else {
                panic!("{raw}");
            };
            assert_eq!(path, raw.as_bytes());
            let mut scratch = [0; 16];
            let decoded = crate::target::decode(path, &mut scratch);
            assert!(!plain || decoded == Ok(path), "{raw}");
        }
    }
}

#[test]
fn absolute_form_targets_are_parsed() {
    // RFC 9112 §3.2.2: a server must accept the absolute-form, even from clients that are not proxies.
    for (raw, host, path, query) in [
        ("http://b", "b", "/", None),
        ("http://b/", "b", "/", None),
        ("HTTP://b:80/c", "b:80", "/c", None),
        ("https://b.example/c?d", "b.example", "/c", Some("d")),
        ("http://b?d", "b", "/", Some("d")),
        ("http://[::1]:8/c/http://x", "[::1]:8", "/c/http://x", None),
    ] {
        let head = with_line(&(String::from("GET ") + raw + " HTTP/1.1"));
        let request = request(&head);
        // The authority of the target overrides Host.
        assert_eq!(request.authority, Some(host.as_bytes()), "{raw}");
        let RequestTarget::Origin {
            path: found,
            query: found_query,
            plain,
        } = request.target
        else {
            panic!("{raw}");
        };
        assert_eq!(
            (found, found_query),
            (path.as_bytes(), query.map(str::as_bytes)),
            "{raw}"
        );
        assert_eq!(plain, !path.contains("//"), "{raw}");
    }
    // Host is required even if the target overrides it.
    assert_refused(
        "GET http://b/ HTTP/1.1\r\n\r\n",
        RequestRefusal::HostMissing,
    );
}

#[test]
fn invalid_targets_are_refused() {
    for target in [
        "a", "a/b", "?a", "ftp://a/", "http:/a", "http:a", "http:", "*a", "*/", "a:80", "://",
        "mailto:a",
    ] {
        assert_refused(
            with_line(&alloc::format!("GET {target} HTTP/1.1")),
            RequestRefusal::TargetInvalid,
        );
    }
    for target in [
        "/a#b",
        "/#",
        "/?#",
        // RFC 3986 §2: URIs are ASCII.
        "/caf\u{e9}",
        "/\u{7f}",
        "/a\x01",
        "http://a/#",
    ] {
        assert_refused(
            with_line(&alloc::format!("GET {target} HTTP/1.1")),
            RequestRefusal::TargetInvalid,
        );
    }
    for target in [
        "http://",
        "http:///a",
        "http://?a",
        // RFC 9110 §4.2.4: userinfo is deprecated, and used for phishing.
        "http://u@a/",
        "http://u:p@a/",
        "http://a b",
        "http://a:x/",
    ] {
        let found = refusal(
            with_line(&alloc::format!("GET {target} HTTP/1.1")),
            &RequestLimits::default(),
        );
        let expected = [
            Some(RequestRefusal::HostInvalid),
            Some(RequestRefusal::RequestLine),
        ];
        assert!(expected.contains(&found), "{target}: {found:?}");
    }
}

#[test]
fn asterisk_form_is_accepted_for_options_only() {
    // RFC 9112 §3.2.4.
    assert_eq!(
        request(&with_line("OPTIONS * HTTP/1.1")).target,
        RequestTarget::Asterisk
    );
    let absolute = with_line("OPTIONS http://b HTTP/1.1");
    assert_eq!(request(&absolute).target, RequestTarget::Asterisk);
    assert_eq!(request(&absolute).authority, Some(b"b".as_slice()));
    let head = with_line("OPTIONS http://b/ HTTP/1.1");
    assert!(matches!(
        request(&head).target,
        RequestTarget::Origin { path: b"/", .. }
    ));
    assert_refused(with_line("GET * HTTP/1.1"), RequestRefusal::TargetInvalid);
    assert_refused(
        with_line("OPTIONS ** HTTP/1.1"),
        RequestRefusal::TargetInvalid,
    );
}

#[test]
fn authority_form_is_accepted_for_connect_only() {
    // RFC 9112 §3.2.3: host and port, both required.
    let head = with_line("CONNECT b:443 HTTP/1.1");
    assert_eq!(request(&head).target, RequestTarget::Authority(b"b:443"));
    assert_eq!(request(&head).authority, Some(b"b:443".as_slice()));
    for target in [
        "/",
        "*",
        "b",
        "b:",
        ":443",
        "http://b:443/",
        "b:443/",
        // Above the highest port.
        "b:99999",
    ] {
        let line = alloc::format!("CONNECT {target} HTTP/1.1");
        assert_refused(with_line(&line), RequestRefusal::TargetInvalid);
    }
}

#[test]
fn missing_repeated_or_invalid_host_is_refused() {
    // RFC 9112 §3.2: the response to a missing, repeated or invalid Host is 400.
    assert_refused("GET / HTTP/1.1\r\n\r\n", RequestRefusal::HostMissing);
    assert_refused(
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        RequestRefusal::HostRepeated,
    );
    assert_refused(
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhOST: b\r\n\r\n",
        RequestRefusal::HostRepeated,
    );
    assert_refused(
        "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
        RequestRefusal::HostRepeated,
    );
    for host in [
        "", "a b", "a,b", "a/", "u@a", "a:b", "a:65536", "..", "[::1",
    ] {
        assert_refused(
            alloc::format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            RequestRefusal::HostInvalid,
        );
        assert_refused(
            alloc::format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n"),
            RequestRefusal::HostInvalid,
        );
    }
    assert_refused(
        "GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n",
        RequestRefusal::HostInvalid,
    );
    assert_eq!(request("GET / HTTP/1.0\r\n\r\n").authority, None);
    assert_eq!(
        request("GET / HTTP/1.0\r\nHost: a\r\n\r\n").authority,
        Some(b"a".as_slice())
    );
}

#[test]
fn whitespace_around_field_values_is_removed() {
    // RFC 9112 §5.1: whitespace around a value is not part of it.
    for value in ["b", " b", "\tb", "  \t b", "b ", "b\t ", " b\t"] {
        let head = with_fields(&alloc::format!("Referer:{value}\r\n"));
        assert_eq!(request(&head).referer(), Some(b"b".as_slice()), "{value:?}");
    }
    for value in ["", " ", "\t", " \t "] {
        let head = with_fields(&alloc::format!("Referer:{value}\r\n"));
        assert_eq!(request(&head).referer(), Some(b"".as_slice()), "{value:?}");
    }
    let head = with_fields("Referer: a \t b\r\n");
    assert_eq!(request(&head).referer(), Some(b"a \t b".as_slice()));
}

/// RFC 9110 §5.6.3: optional whitespace is SP and HTAB, also in fields for framing and routing.
#[test]
fn whitespace_around_framing_and_host_values_is_removed() {
    for before in ["", " ", "\t", " \t "] {
        for after in ["", " ", "\t", "\t \t"] {
            let field = |name: &str, value: &str| format!("{name}:{before}{value}{after}\r\n");
            let start = String::from("POST / HTTP/1.1\r\n") + &field("Host", "a:80");
            let sized = start.clone()
                + &field("Content-Length", "3")
                + &field("Connection", "close")
                + &field("Expect", "100-continue")
                + "\r\n";
            let head = parse_complete(&sized);
            assert_eq!(head.request.authority, Some(b"a:80".as_slice()));
            assert_eq!(head.framing, BodyFraming::Length(3));
            assert!(!head.keep_alive && head.expect_continue);
            let chunked = start + &field("Transfer-Encoding", "chunked") + "\r\n";
            assert_eq!(parse_complete(&chunked).framing, BodyFraming::Chunked);
        }
    }
}

#[test]
fn field_values_of_every_length_end_at_their_crlf() {
    // The scanner processes 8 and 16 bytes at a time, so each length is tested.
    for len in 0..70 {
        let value = "v".repeat(len);
        let head = with_fields(&alloc::format!(
            "Referer: {value}\r\nUser-Agent: {value}\r\n"
        ));
        let request = request(&head);
        assert_eq!(request.referer(), Some(value.as_bytes()));
        assert_eq!(request.user_agent(), Some(value.as_bytes()));
    }
}

#[test]
fn control_characters_in_field_values_are_refused() {
    // RFC 9110 §5.5.
    for byte in 0..=255_u8 {
        let mut head = Vec::from("GET / HTTP/1.1\r\nHost: a\r\nReferer: x");
        head.push(byte);
        head.extend_from_slice(b"y\r\n\r\n");
        let expected = match byte {
            0 => Some(RequestRefusal::Nul),
            b'\r' => Some(RequestRefusal::BareCr),
            b'\n' => Some(RequestRefusal::BareLf),
            b'\t' | b' '..=b'~' | 0x80.. => None,
            _ => Some(RequestRefusal::FieldValue),
        };
        assert_eq!(
            refusal(&head, &RequestLimits::default()),
            expected,
            "{byte}"
        );
    }
}

#[test]
fn non_token_bytes_in_field_names_are_refused() {
    // RFC 9110 §5.6.2: names are tokens.
    for byte in 0..=255_u8 {
        let mut head = Vec::from("GET / HTTP/1.1\r\nHost: a\r\nx");
        head.push(byte);
        head.extend_from_slice(b"y: z\r\n\r\n");
        let expected = match byte {
            0 => Some(RequestRefusal::Nul),
            b'\r' => Some(RequestRefusal::BareCr),
            b'\n' => Some(RequestRefusal::BareLf),
            // `x:y: z` is the field `x`.
            b':' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => None,
            _ if b"!#$%&'*+-.^_`|~".contains(&byte) => None,
            _ => Some(RequestRefusal::FieldName),
        };
        assert_eq!(
            refusal(&head, &RequestLimits::default()),
            expected,
            "{byte}"
        );
    }
}

#[test]
fn malformed_field_lines_are_refused() {
    for (lines, expected) in [
        (" X: y\r\n", RequestRefusal::ObsFold),
        ("\tX: y\r\n", RequestRefusal::ObsFold),
        ("X: y\r\n z\r\n", RequestRefusal::ObsFold),
        (" \r\n", RequestRefusal::ObsFold),
        ("X : y\r\n", RequestRefusal::SpaceBeforeColon),
        ("X\t: y\r\n", RequestRefusal::SpaceBeforeColon),
        // RFC 9112 §5.1: a proxy that accepts this line expects a body; a proxy that ignores it takes the body for a
        // request.
        ("Content-Length : 5\r\n", RequestRefusal::SpaceBeforeColon),
        ("X y: z\r\n", RequestRefusal::FieldName),
        (": y\r\n", RequestRefusal::FieldName),
        ("X\r\n", RequestRefusal::FieldName),
        ("X\r\nY: z\r\n", RequestRefusal::FieldName),
        ("X(: y\r\n", RequestRefusal::FieldName),
        ("X: y\nZ: a\r\n", RequestRefusal::BareLf),
        ("X: y\rZ: a\r\n", RequestRefusal::BareCr),
        ("X: y\r\r\n", RequestRefusal::BareCr),
        ("\rX: y\r\n", RequestRefusal::BareCr),
        ("\nX: y\r\n", RequestRefusal::BareLf),
        ("X\n: y\r\n", RequestRefusal::BareLf),
        ("X: \0\r\n", RequestRefusal::Nul),
        ("Content\rLength: 5\r\n", RequestRefusal::BareCr),
        // Vertical tabs, which some parsers treat as whitespace, have been used for request smuggling.
        (
            "Transfer-Encoding\x0b: chunked\r\n",
            RequestRefusal::FieldName,
        ),
        (
            "Transfer-Encoding:\x0bchunked\r\n",
            RequestRefusal::FieldValue,
        ),
    ] {
        assert_refused(with_fields(lines), expected);
    }
    assert_refused("GET / HTTP/1.1\r\nHost: a\n\n", RequestRefusal::BareLf);
    assert_refused("GET / HTTP/1.1\r\nHost: a\r\n\n", RequestRefusal::BareLf);
    assert_refused(
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        RequestRefusal::ObsFold,
    );
}

#[test]
fn content_length_must_be_one_decimal_number() {
    // RFC 9110 §8.6: digits only. Programs interpret signs, separators and overflows differently.
    for (value, len) in [
        ("0", 0),
        ("5", 5),
        ("0005", 5),
        ("18446744073709551615", u64::MAX),
    ] {
        let head = with_fields(&alloc::format!("Content-Length: {value}\r\n"));
        assert_eq!(parse_complete(&head).framing, BodyFraming::Length(len));
    }
    for value in [
        "",
        "-1",
        "+1",
        "1.0",
        "0x1",
        "1 1",
        "1;",
        "five",
        "18446744073709551616",
        // An Arabic digit, which Unicode-aware parsers accept.
        "\u{665}",
    ] {
        let head = with_fields(&alloc::format!("Content-Length: {value}\r\n"));
        assert_refused(head, RequestRefusal::LengthInvalid);
    }
    assert_refused(
        with_fields("Content-Length: 5, 5\r\n"),
        RequestRefusal::LengthRepeated,
    );
    assert_refused(
        with_fields("Content-Length: 5,6\r\n"),
        RequestRefusal::LengthRepeated,
    );
    for second in ["5", "6"] {
        let lines = alloc::format!("Content-Length: 5\r\nX: y\r\nContent-length: {second}\r\n");
        assert_refused(with_fields(&lines), RequestRefusal::LengthRepeated);
    }
}

#[test]
fn transfer_encoding_must_be_one_chunked() {
    // RFC 9112 §6.1: `chunked` is applied once and last.
    for value in ["chunked", "Chunked", "CHUNKED", " chunked\t"] {
        let head = with_fields(&alloc::format!("Transfer-Encoding:{value}\r\n"));
        assert_eq!(
            parse_complete(&head).framing,
            BodyFraming::Chunked,
            "{value:?}"
        );
    }
    for value in [
        "gzip",
        "gzip, chunked",
        // Removed from HTTP/1.1 by RFC 7230.
        "identity",
        "xchunked",
        "chunkedx",
        // RFC 9112 §7.1: chunked has no parameters.
        "chunked;a=b",
        "\"chunked\"",
        // A no-break space is whitespace to Unicode-aware parsers.
        "chunked\u{a0}",
    ] {
        let head = with_fields(&alloc::format!("Transfer-Encoding: {value}\r\n"));
        assert_refused(head, RequestRefusal::CodingUnknown);
    }
    for value in [
        "chunked, chunked",
        "chunked, gzip",
        "",
        ",",
        ",chunked",
        "chunked,",
        "gzip,,chunked",
    ] {
        let head = with_fields(&alloc::format!("Transfer-Encoding: {value}\r\n"));
        assert_refused(head, RequestRefusal::CodingNotLast);
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_refused(with_fields(twice), RequestRefusal::CodingNotLast);
    let split = "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n";
    assert_refused(with_fields(split), RequestRefusal::CodingUnknown);
}

#[test]
fn content_length_with_transfer_encoding_is_refused() {
    // RFC 9112 §6.3: with both fields, one program would frame by length and another by chunks.
    let coding = "Transfer-Encoding: chunked\r\n";
    let length = "Content-Length: 5\r\n";
    assert_refused(
        with_fields(&(String::from(coding) + length)),
        RequestRefusal::LengthAndCoding,
    );
    assert_refused(
        with_fields(&(String::from(length) + coding)),
        RequestRefusal::LengthAndCoding,
    );
    let gzip = "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n";
    assert_refused(with_fields(gzip), RequestRefusal::LengthAndCoding);
    let old = String::from("POST / HTTP/1.0\r\n") + coding + "\r\n";
    assert_refused(old, RequestRefusal::TransferCodingInHttp10);
    let old = String::from("POST / HTTP/1.0\r\n") + length + "\r\n";
    assert_eq!(parse_complete(&old).framing, BodyFraming::Length(5));
}

#[test]
fn connection_options_and_version_determine_persistence() {
    // RFC 9112 §9.3.
    for (version, lines, keep) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: upgrade, close\r\n", false),
        ("1.1", "Connection: close,keep-alive\r\n", false),
        (
            "1.1",
            "Connection: keep-alive\r\nConnection: x\t,\tclose\r\n",
            false,
        ),
        (
            "1.1",
            "Connection: close\r\nConnection: keep-alive\r\n",
            false,
        ),
        // An option other than `close`.
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: \r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: Keep-Alive, x\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Connection: keep-alives\r\n", false),
        // The Keep-Alive field has no meaning without the connection option.
        ("1.0", "Keep-Alive: 5\r\n", false),
        ("1.2", "", true),
    ] {
        let head = alloc::format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(
            parse_complete(&head).keep_alive,
            keep,
            "{version} {lines:?}"
        );
    }
}

#[test]
fn expect_100_continue_is_parsed_and_other_expectations_refused() {
    // RFC 9110 §10.1.1.
    let body = "Content-Length: 5\r\n";
    for value in ["100-continue", "100-Continue"] {
        let lines = alloc::format!("Expect: {value}\r\n{body}");
        assert!(parse_complete(&with_fields(&lines)).expect_continue);
        let chunked = alloc::format!("Transfer-Encoding: chunked\r\nExpect: {value}\r\n");
        assert!(parse_complete(&with_fields(&chunked)).expect_continue);
    }
    let twice = alloc::format!("Expect: 100-continue\r\nExpect: 100-continue\r\n{body}");
    assert!(parse_complete(&with_fields(&twice)).expect_continue);
    // Without a body, the client does not wait for 100 (Continue).
    assert!(!parse_complete(&with_fields("Expect: 100-continue\r\n")).expect_continue);
    let empty = "Expect: 100-continue\r\nContent-Length: 0\r\n";
    assert!(!parse_complete(&with_fields(empty)).expect_continue);
    for value in ["", "200-ok", "100-continue, x", "100-continue;a"] {
        assert_refused(
            with_fields(&alloc::format!("Expect: {value}\r\n")),
            RequestRefusal::ExpectationUnknown,
        );
    }
    let mixed = "Expect: 100-continue\r\nExpect: x\r\n";
    assert_refused(with_fields(mixed), RequestRefusal::ExpectationUnknown);
    let old = "POST / HTTP/1.0\r\nExpect: x\r\nContent-Length: 5\r\n\r\n";
    assert!(!parse_complete(old).expect_continue);
}

#[test]
fn repeated_single_value_fields_are_ignored() {
    // These fields are not lists, so neither of two values can be preferred.
    let lines = "Range: r\r\nIf-Modified-Since: m\r\nIf-Unmodified-Since: u\r\nReferer: f\r\nUser-Agent: a\r\n";
    let once = with_fields(lines);
    let once = request(&once);
    assert_eq!(once.range(), Some(b"r".as_slice()));
    assert_eq!(once.if_modified_since(), Some(b"m".as_slice()));
    assert_eq!(once.if_unmodified_since(), Some(b"u".as_slice()));
    assert_eq!(once.referer(), Some(b"f".as_slice()));
    assert_eq!(once.user_agent(), Some(b"a".as_slice()));
    let twice = with_fields(&(String::from(lines) + lines));
    let twice = request(&twice);
    for field in [
        twice.range(),
        twice.if_modified_since(),
        twice.if_unmodified_since(),
        twice.referer(),
        twice.user_agent(),
    ] {
        assert_eq!(field, None);
    }
}

#[test]
fn repeated_if_range_disables_range() {
    let head = with_fields("Range: r\r\nIf-Range: a\r\n");
    assert_eq!(request(&head).range(), Some(b"r".as_slice()));
    assert_eq!(request(&head).if_range(), Some(b"a".as_slice()));
    let head = with_fields("If-Range: a\r\nRange: r\r\nIf-Range: b\r\n");
    assert_eq!(
        (request(&head).range(), request(&head).if_range()),
        (None, None)
    );
}

#[test]
fn list_fields_on_several_lines_are_combined() {
    // RFC 9110 §5.3: several lines of a list form one list.
    let lines = "Accept-Encoding: a\r\nIf-Match: m\r\nACCEPT-ENCODING:\tb, c \r\nIf-None-Match: n\r\n\
        If-Match: o\r\nAccept-Encoding-X: x\r\naccept-encoding:\r\n";
    let head = with_fields(lines) + "Accept-Encoding: body\r\n\r\n";
    let Ok(Some(parsed)) = parse(head.as_bytes(), &RequestLimits::default()) else {
        panic!("not complete");
    };
    let request = parsed.request;
    let all =
        |values: &FieldLineValues<'_>| -> Vec<Vec<u8>> { values.iter().map(Vec::from).collect() };
    assert_eq!(all(&request.accept_encoding()), [&b"a"[..], b"b, c", b""]);
    assert_eq!(all(&request.if_match()), [b"m", b"o"]);
    assert_eq!(all(&request.if_none_match()), [b"n"]);
    assert_eq!(all(&FieldLineValues::NONE), Vec::<Vec<u8>>::new());
    assert_eq!(all(&FieldLineValues::from_value(b"x")), [b"x"]);
}

#[test]
fn fields_iterates_over_trimmed_lines() {
    let head = with_fields("A:\r\nB: c : d \r\nb:\te\t\r\n");
    let found: Vec<(&[u8], &[u8])> = request(&head).fields().collect();
    assert_eq!(
        found,
        [
            (&b"Host"[..], &b"a"[..]),
            (b"A", b""),
            (b"B", b"c : d"),
            (b"b", b"e"),
        ]
    );
}

#[test]
fn head_length_limit_is_inclusive() {
    let head = with_fields("X: 0123456789\r\n");
    let limits = |head_len_max| RequestLimits {
        head_len_max,
        ..RequestLimits::default()
    };
    assert_eq!(refusal(&head, &limits(head.len())), None);
    assert_eq!(
        refusal(&head, &limits(head.len() - 1)),
        Some(RequestRefusal::HeadTooLarge)
    );
    // Bytes after the head do not count.
    assert_eq!(refusal(head.clone() + "body", &limits(head.len())), None);
    // An incomplete head is refused when it can no longer become complete within the limit.
    let part = &head[..head.len() - 1];
    assert_eq!(refusal(part, &limits(head.len())), None);
    assert_eq!(
        refusal(part, &limits(part.len())),
        Some(RequestRefusal::HeadTooLarge)
    );
    // A skipped empty line counts.
    let late = String::from("\r\n") + &head;
    assert_eq!(
        refusal(&late, &limits(head.len())),
        Some(RequestRefusal::HeadTooLarge)
    );
}

#[test]
fn target_length_limit_is_inclusive() {
    let limits = RequestLimits {
        target_len_max: 8,
        ..RequestLimits::default()
    };
    for (target, expected) in [
        ("/1234567", None),
        ("/12345678", Some(RequestRefusal::TargetTooLong)),
        ("/123?567", None),
        ("/123?5678", Some(RequestRefusal::TargetTooLong)),
        ("http://a/", Some(RequestRefusal::TargetTooLong)),
    ] {
        let head = with_line(&alloc::format!("GET {target} HTTP/1.1"));
        assert_eq!(refusal(&head, &limits), expected, "{target}");
    }
    assert_eq!(refusal("GET /1234567", &limits), None);
    assert_eq!(
        refusal("GET /12345678", &limits),
        Some(RequestRefusal::TargetTooLong)
    );
}

#[test]
fn field_count_limit_is_inclusive() {
    let limits = RequestLimits {
        fields_max: 3,
        ..RequestLimits::default()
    };
    assert_eq!(refusal(with_fields("A: b\r\nC: d\r\n"), &limits), None);
    let four = with_fields("A: b\r\nC: d\r\nE: f\r\n");
    assert_eq!(refusal(&four, &limits), Some(RequestRefusal::TooManyFields));
}

#[test]
fn head_complete_finds_the_end_at_every_split() {
    // An empty line that ends with a bare LF counts as the end, too, so that `parse` refuses it immediately.
    let head = with_fields("X: y\r\n");
    for from in 0..head.len() {
        assert!(head_complete(head.as_bytes(), from), "{from}");
        assert!(
            !head_complete(&head.as_bytes()[..head.len() - 1], from),
            "{from}"
        );
    }
    assert!(head_complete(b"GET / HTTP/1.1\n\n", 15));
    assert!(head_complete(b"GET / HTTP/1.1\r\n\n", 16));
    assert!(head_complete(b"GET / HTTP/1.1\n\r\n", 16));
    assert!(!head_complete(b"GET / HTTP/1.1\r\nA: b\r\n", 0));
    assert!(!head_complete(b"", 0));
    assert!(!head_complete(b"ab", 5));
}

#[test]
fn first_line_of_partial_and_malformed_heads() {
    for (bytes, line) in [
        ("", ""),
        ("GET", "GET"),
        ("GET / HTTP/1.1\r\nHost: a", "GET / HTTP/1.1"),
        ("\r\nGET /\nx", "GET /"),
        ("a\rb", "a"),
        ("\r\n\r\n", ""),
    ] {
        assert_eq!(first_line(bytes.as_bytes()), line.as_bytes(), "{bytes:?}");
    }
}

#[test]
fn affects_caching_detects_authorization_directives_and_overrides() {
    // A cache has to forward requests with these fields: authorization, cache directives, method overrides,
    // preconditions on changes, and connection options that name a field.
    for fields in [
        "Authorization: x\r\n",
        "cache-control:\r\n",
        "Pragma: no-cache\r\n",
        "X-HTTP-Method: DELETE\r\n",
        "x-http-method-override: DELETE\r\n",
        "X-Method-Override: DELETE\r\n",
        "If-Match: *\r\n",
        "If-Unmodified-Since: x\r\n",
        "Connection: close, X-Own\r\n",
        "Connection: close\r\nConnection: Cookie\r\n",
    ] {
        let head = with_fields(fields);
        assert!(request(&head).affects_caching(), "{fields:?}");
        assert!(
            OwnedRequest::from_request(&request(&head))
                .get()
                .affects_caching()
        );
    }
    for fields in [
        "",
        "Connection: Keep-Alive\r\n",
        "Connection: close, , keep-alive\r\n",
        "If-None-Match: *\r\nIf-Modified-Since: x\r\nRange: x\r\nCookie: y\r\n",
    ] {
        assert!(
            !request(&with_fields(fields)).affects_caching(),
            "{fields:?}"
        );
    }
}
