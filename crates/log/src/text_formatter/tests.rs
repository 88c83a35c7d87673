//! Tests of formats that operators define.

use super::*;
use crate::format::EscapeMode;
use crate::{LineFormat, LineFormatter};

fn entry() -> AccessEntry<'static> {
    AccessEntry {
        peer: [192, 0, 2, 7].into(),
        user: b"ann lee",
        unix_ms: 784_111_777_042,
        line: b"GET /a/b?c=d&e HTTP/1.1",
        host: b"Example.com:8080",
        status: 200,
        body_bytes: 5,
        whole: true,
        referer: b"",
        user_agent: b"curl/8 \"x\"",
        duration_us: 12_034_567,
        outcome: "hit",
        level: "worker",
        tls: "TLSv1.3",
    }
}

fn line(format: TextFormat, entry: &AccessEntry<'_>) -> String {
    let details = EntryDetails {
        peer_port: 4711,
        scheme: "https",
        site: "example.com",
        route: "",
        values: ValueTexts {
            bytes: b"skipped1.2.3.4, 5.6.7.8\n",
            bounds: &[7, 23, 24],
        },
        head_len: 100,
        request_id: Some([0x0f; 16]),
        trace: Some(([0xab; 16], [1; 8])),
        upstream: UpstreamTexts {
            address: b"10.0.0.1:80, unix:/run/a b",
            status: b"502, 200",
            connect_time: b"-, 0.001",
            header_time: b"-, 0.002",
            response_time: b"0.500, 0.003",
        },
        tls: TlsTexts {
            cipher: "TLS_AES_128_GCM_SHA256",
            server_name: "a.example",
            session_reused: "r",
            client_verify: "SUCCESS",
            client_subject: "CN=Ann \"x\",O=B",
            client_issuer: "CN=ca",
            client_serial: "2A",
        },
        connection: 77,
        connection_requests: 3,
        process: LogProcess {
            hostname: "web1",
            pid: 4711,
        },
    };
    let mut out = Vec::new();
    TextFormatter::new(Arc::new(format)).append(entry, &details, &mut out);
    String::from_utf8(out).expect("UTF-8")
}

fn text(format: &str, entry: &AccessEntry<'_>) -> String {
    line(
        TextFormat::parse(format, EscapeMode::Hex).expect("a format"),
        entry,
    )
}

#[test]
fn combined_format_of_nginx_equals_the_built_in_one() {
    let nginx = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
                 \"$http_referer\" \"$http_user_agent\"";
    let mut built_in = Vec::new();
    LineFormatter::new(LineFormat::Combined).append(&entry(), &mut built_in);
    assert_eq!(text(nginx, &entry()).as_bytes(), built_in);
}

#[test]
fn every_variable_has_its_value() {
    let mut tested = Vec::new();
    for (name, expected) in [
        ("remote_addr", "192.0.2.7"),
        ("remote_port", "4711"),
        ("remote_user", "ann\\x20lee"),
        ("time_local", "06/Nov/1994:08:49:37 +0000"),
        ("time_iso8601", "1994-11-06T08:49:37+00:00"),
        ("msec", "784111777.042"),
        ("request", "GET\\x20/a/b?c=d&e\\x20HTTP/1.1"),
        ("request_method", "GET"),
        ("request_uri", "/a/b?c=d&e"),
        ("uri", "/a/b"),
        ("args", "c=d&e"),
        ("query_string", "c=d&e"),
        ("server_protocol", "HTTP/1.1"),
        ("scheme", "https"),
        ("host", "example.com"),
        ("http_host", "Example.com:8080"),
        ("http_referer", "-"),
        ("http_user_agent", "curl/8\\x20\\x22x\\x22"),
        ("http_x_forwarded_for", "1.2.3.4,\\x205.6.7.8"),
        ("status", "200"),
        ("body_bytes_sent", "5"),
        ("request_time", "12.034"),
        ("request_time_us", "12034567"),
        ("request_completion", "OK"),
        ("site", "example.com"),
        ("server_name", "example.com"),
        ("route", "-"),
        ("level", "worker"),
        ("outcome", "hit"),
        ("ssl_protocol", "TLSv1.3"),
        ("ssl_cipher", "TLS_AES_128_GCM_SHA256"),
        ("ssl_server_name", "a.example"),
        ("ssl_session_reused", "r"),
        ("ssl_client_verify", "SUCCESS"),
        ("ssl_client_s_dn", "CN=Ann\\x20\\x22x\\x22,O=B"),
        ("ssl_client_i_dn", "CN=ca"),
        ("ssl_client_serial", "2A"),
        ("request_id", "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"),
        ("trace_id", "abababababababababababababababab"),
        ("span_id", "0101010101010101"),
        ("upstream_addr", "10.0.0.1:80, unix:/run/a\\x20b"),
        ("upstream_status", "502, 200"),
        ("upstream_connect_time", "-, 0.001"),
        ("upstream_header_time", "-, 0.002"),
        ("upstream_response_time", "0.500, 0.003"),
        ("bytes_sent", "105"),
        ("sent_http_x_a", "1.2.3.4,\\x205.6.7.8"),
        ("cookie_a", "1.2.3.4,\\x205.6.7.8"),
        ("arg_c", "d"),
        ("arg_e", "-"),
        ("connection", "77"),
        ("connection_requests", "3"),
        ("hostname", "web1"),
        ("pid", "4711"),
    ] {
        tested.push(name);
        assert_eq!(text(&format!("${name}"), &entry()), format!("{expected}\n"));
        // In JSON the same value, with other escapes.
        let json = line(TextFormat::json([name]).expect("a format"), &entry());
        let object = member_value(&json, name);
        let expected = expected.replace("\\x20", " ").replace("\\x22", "\\\"");
        let expected = if expected == "-" { "" } else { &expected };
        assert_eq!(object, expected, "{json}");
    }
    for (name, _) in crate::variable::NAMES {
        assert!(tested.contains(&name), "{name}");
    }
}

/// The value of the only member of an object, without its quotes.
fn member_value<'j>(json: &'j str, name: &str) -> &'j str {
    let value = json
        .trim_end()
        .strip_prefix(&format!("{{\"{name}\":"))
        .and_then(|rest| rest.strip_suffix('}'))
        .expect(json);
    let inner = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(value)
}

#[test]
fn missing_identifiers_and_upstreams_are_dashes() {
    let format = "$request_id|$trace_id|$span_id|$upstream_addr|$ssl_cipher|$connection";
    let format = TextFormat::parse(format, EscapeMode::Hex).expect("a format");
    let mut out = Vec::new();
    let details = EntryDetails::default();
    TextFormatter::new(Arc::new(format)).append(&entry(), &details, &mut out);
    assert_eq!(String::from_utf8_lossy(&out), "-|-|-|-|-|0\n");
}

#[test]
fn targets_of_all_forms_have_a_path() {
    for (request, expected) in [
        ("GET http://a.example/x?y HTTP/1.1", "/x|y|GET"),
        ("OPTIONS * HTTP/1.1", "*|-|OPTIONS"),
        ("CONNECT a.example:443 HTTP/1.1", "-|-|CONNECT"),
        ("\u{16}\u{3}", "-|-|-"),
        ("GET /a b HTTP/1.1", "-|-|-"),
    ] {
        let entry = AccessEntry {
            line: request.as_bytes(),
            ..entry()
        };
        let text = text("$uri|$args|$request_method", &entry);
        assert_eq!(text.trim_end(), expected, "{request}");
    }
}

#[test]
fn client_bytes_stay_in_their_field() {
    for byte in 0..=255 {
        let field = [b'a', byte, b'z'];
        let entry = AccessEntry {
            user: &field,
            host: &field,
            user_agent: &field,
            ..entry()
        };
        let text = text("$remote_user|$http_host \"$http_user_agent\" $host", &entry);
        let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
        assert!(
            text.trim_end_matches('\n')
                .as_bytes()
                .iter()
                .all(is_printable)
        );
        assert_eq!(text.matches('|').count(), 1 + 3 * usize::from(byte == b'|'));
        assert_eq!(text.matches('"').count(), 2);
        let (before, after) = text.split_once('"').expect("a quote");
        assert_eq!(before.matches(' ').count(), 1, "{text}");
        let (_, last) = after.split_once('"').expect("a quote");
        assert_eq!(last.matches(' ').count(), 1, "{text}");
    }
}

#[test]
fn json_has_the_chosen_members() {
    let names = [
        "client=remote_addr",
        "$status",
        "request_time",
        "http_a",
        "http_b",
        "ua=http_user_agent",
    ];
    let format = TextFormat::json(names).expect("a format");
    assert_eq!(
        line(format, &entry()),
        "{\"client\":\"192.0.2.7\",\"status\":200,\"request_time\":12.034,\"http_a\":\"1.2.3.4, 5.6.7.8\",\
         \"http_b\":\"\\u000a\",\"ua\":\"curl/8 \\\"x\\\"\"}\n"
    );
}

#[test]
fn long_target_is_truncated_within_a_message() {
    let request = [&b"GET /"[..], &[b'"'; 20_000], b"?q HTTP/1.1"].concat();
    let entry = AccessEntry {
        line: &request,
        ..entry()
    };
    let format = TextFormat::parse("$request_method $uri $uri $status", EscapeMode::Hex);
    let mut out = Vec::new();
    TextFormatter::new(Arc::new(format.expect("a format")))
        .with_limit(LineLimit::MESSAGE)
        .append(&entry, &EntryDetails::default(), &mut out);
    let uri = format!("/{}", "\\x22".repeat(2047));
    let expected = format!("GET {uri} {uri} 200\n");
    assert!(String::from_utf8_lossy(&out) == expected, "{}", out.len());
}
