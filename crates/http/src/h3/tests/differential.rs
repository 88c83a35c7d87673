//! The same requests over HTTP/2 and HTTP/3 give the same head, refusal or fault.

use super::*;
use crate::h2;

/// The head of a request as text.
fn describe_head(head: &StreamRequestHead<'_>) -> String {
    let request = &head.request;
    let lists = [
        request.accept_encoding(),
        request.if_match(),
        request.if_none_match(),
    ];
    let lists = lists.map(|values| values.iter().map(text).collect::<Vec<_>>());
    let single = [request.range(), request.referer(), request.user_agent()];
    format!(
        "{:?} {:?} {:?} {:?} {lists:?} {single:?} {} {:?}",
        request.method,
        request.target,
        request.authority,
        text(request.lines()),
        request.affects_caching(),
        (
            head.has_body,
            head.body_len,
            head.expect_continue,
            head.protocol,
            head.is_https,
            head.priority
        )
    )
}

fn over_h2(fields: &[(&str, &str)], settings: &h2::H2Settings) -> String {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        put_plain(name.as_bytes(), 7, 0, &mut block);
        put_plain(value.as_bytes(), 7, 0, &mut block);
    }
    let mut input = h2::PREFACE.to_vec();
    h2::frame::put_settings(&[], &mut input);
    h2::frame::put_head(h2::frame::kind::HEADERS, 5, 1, block.len(), &mut input);
    input.extend_from_slice(&block);
    let mut turn = h2::ConnectionTurn {
        now_ms: 1,
        settings,
        out: &mut Vec::new(),
        counters: &mut GlitchCounters::default(),
    };
    let mut server = h2::H2Server::new(&mut turn);
    let (mut text, mut head_slot) = (Vec::new(), None);
    let step = server.next(&input, &mut text, &mut head_slot, &mut turn);
    match step.expect("no connection error").event {
        Some(h2::H2ServerEvent::Request(head)) => describe_head(head),
        Some(h2::H2ServerEvent::Refused { refusal, .. }) => format!("{refusal:?}"),
        _ => String::from("malformed"),
    }
}

fn over_h3(fields: &[(&str, &str)], settings: H3Settings) -> String {
    let mut harness = ServerHarness::open(settings);
    let input = frame_of(kind::HEADERS, &section(fields));
    let (mut text, mut head_slot) = (Vec::new(), None);
    let (server, mut turn) = harness.turn();
    let input = StreamBytes {
        bytes: &input,
        is_end: true,
    };
    let step = server.next(0, input, &mut text, &mut head_slot, &mut turn);
    match step.expect("no connection error").event {
        Some(H3ServerEvent::Request(head)) => describe_head(head),
        Some(H3ServerEvent::Refused { refusal, .. }) => format!("{refusal:?}"),
        Some(H3ServerEvent::Reset { code, .. }) => {
            assert_eq!(code, H3ErrorCode::MESSAGE_ERROR);
            String::from("malformed")
        }
        other => panic!("{other:?}"),
    }
}

/// Fields of which requests are made; the first ones are those that a request needs.
const FIELDS: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "h"),
    (":path", "/a?b"),
    (":method", "CONNECT"),
    (":method", "G T"),
    (":protocol", "websocket"),
    (":scheme", "gopher"),
    (":authority", "a b"),
    (":path", ""),
    (":path", "a"),
    (":status", "200"),
    (":other", "a"),
    ("host", "h"),
    ("host", "i"),
    ("host", ""),
    ("cookie", "a=1"),
    ("cookie", "b=2"),
    ("content-length", "5"),
    ("content-length", "0"),
    ("content-length", "x"),
    ("expect", "100-continue"),
    ("expect", "other"),
    ("te", "trailers"),
    ("te", "gzip"),
    ("connection", "close"),
    ("transfer-encoding", "chunked"),
    ("priority", "u=1, i"),
    ("accept-encoding", "gzip"),
    ("accept-encoding", "br"),
    ("if-none-match", "\"a\""),
    ("range", "bytes=0-1"),
    ("authorization", "x"),
    ("user-agent", "u"),
    ("Upper", "a"),
    ("x", " a"),
    ("x", "a\r\nb: c"),
    ("x y", "a"),
    ("", "a"),
    (
        "x-long",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
];

#[test]
fn requests_are_equal_over_http2_and_http3() {
    let limits = crate::RequestLimits {
        fields_max: 5,
        target_len_max: 30,
        ..crate::RequestLimits::default()
    };
    let h2_settings = h2::H2Settings {
        limits,
        section_len_max: 400,
        accepts_connect_protocol: true,
        ..h2::H2Settings::default()
    };
    let settings = H3Settings {
        limits,
        section_len_max: 400,
        accepts_connect_protocol: true,
        ..H3Settings::default()
    };
    let (mut seed, mut heads) = (0x2545_f491_4f6c_dd1d_u64, 0);
    let mut below = |bound: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as usize % bound
    };
    for _ in 0..4000 {
        let mut fields: Vec<(&str, &str)> = FIELDS[..4].to_vec();
        if below(6) == 0 {
            fields.remove(below(4));
        }
        for _ in 0..below(6) {
            // Mostly valid fields, after the pseudo-header fields.
            let first = if below(4) == 0 { 0 } else { 13 };
            let field = FIELDS[first + below(FIELDS.len() - first)];
            match below(8) {
                0 => fields.insert(below(fields.len() + 1), field),
                _ => fields.push(field),
            }
        }
        let mut wanted = over_h2(&fields, &h2_settings);
        heads += usize::from(wanted.contains("Get"));
        // RFC 9114 §4.3.1: HTTP/2 answers with 400.
        if wanted == "HostMissing" {
            wanted = String::from("malformed");
        }
        assert_eq!(over_h3(&fields, settings), wanted, "{fields:?}");
    }
    assert!(heads > 500, "{heads} valid requests");
}
