//! Requests and response heads. RFC 9113 §8.

use super::*;
use crate::fields::{FieldName, ResponseFields, StandardHeader};
use crate::h2::hpack::put_field;

#[test]
fn connection_starts_with_settings() {
    let mut harness = ServerHarness::new(H2Settings::default());
    assert_eq!(harness.take_output(), "settings 3, 0 window 65535");
    assert!(harness.server.is_new() && harness.server.awaits_acknowledgement());
    let mut input = PREFACE.to_vec();
    frame::put_settings(&[(4, 100)], &mut input);
    for byte in &input {
        assert_eq!(harness.receive(&[*byte]), "");
    }
    assert_eq!(harness.take_output(), "settings ok");
    assert!(!harness.server.is_new() && harness.server.awaits_acknowledgement());
}

#[test]
fn request_gets_its_response() {
    let mut harness = ServerHarness::open(H2Settings::default());
    let heard = harness.receive(&get(1, "/a?b", &[("accept", "*/*")]));
    assert_eq!(heard, "1 Get /a?b h [accept: */*|host: h|]");
    harness.respond(1, 5);
    harness.send(16_384);
    assert_eq!(
        harness.take_output(),
        "1 head :status=200 content-length=5, 1 data 5 end"
    );
    assert!(harness.server.is_idle() && !harness.server.is_finished());
    harness.receive(&headers(3, "HEAD", "/", &[], true));
    harness.respond(3, 5);
    assert_eq!(
        harness.take_output(),
        "3 head :status=200 content-length=5 end"
    );
}

#[test]
fn input_may_be_split_at_any_byte() {
    // TCP and TLS deliver frames in arbitrary pieces.
    let mut input = get(1, "/a", &[("cookie", "a"), ("cookie", "b"), ("x", "y")]);
    input.extend(post(3, &[("content-length", "5")]));
    input.extend(frame_of(kind::DATA, flag::PADDED, 3, b"\x02ab\0\0"));
    input.extend(data(3, b"cde", true));
    input.extend(headers(5, "PUT", "/p", &[], false));
    input.extend(data(5, b"", false));
    let trailers = block(&[("x-sum", "1")]);
    input.extend(frame_of(kind::HEADERS, 5, 5, &trailers));
    input.extend(frame_of(kind::PING, 0, 0, b"12345678"));
    let wanted = "1 Get /a h [cookie: a; b|x: y|host: h|], 3 Post /p h [content-length: 5|host: h|] body Some(5), \
        3 data ab, 3 data cde, 3 end, 5 Put /p h [host: h|] body None, 5 endx-sum=1";
    for len in [1000, 9, 8, 10, 50] {
        let mut harness = ServerHarness::open(H2Settings::default());
        let words: Vec<String> = input
            .chunks(len)
            .map(|part| harness.receive(part))
            .collect();
        let words: Vec<String> = words.into_iter().filter(|it| !it.is_empty()).collect();
        let mut words = words.join(", ");
        // The pieces of a body depend on how the input is split.
        words = words
            .replace("data c, 3 data d", "data cd")
            .replace("data cd, 3 data e", "data cde");
        words = words
            .replace("data c, 3 data de", "data cde")
            .replace("data a, 3 data b", "data ab");
        assert_eq!(words, wanted, "{len}");
        assert_eq!(harness.take_output(), "pong 12345678");
    }
}

#[test]
fn request_equals_the_same_request_in_http_1() {
    // Handlers and caches must not depend on the version.
    let fields = [
        ("user-agent", "u"),
        ("accept-encoding", "gzip"),
        ("if-none-match", "\"a\""),
        ("if-none-match", "\"b\""),
        ("range", "bytes=0-1"),
        ("referer", "r"),
        ("cookie", "a"),
        ("cache-control", "no-cache"),
        ("cookie", "b"),
        ("if-modified-since", "x"),
    ];
    let mut harness = ServerHarness::open(H2Settings::default());
    let input = get(1, "/a/../b?c", &fields);
    let (mut words, mut place) = (Vec::new(), None);
    let mut turn = ConnectionTurn {
        now_ms: 1,
        settings: &harness.settings,
        out: &mut harness.out,
        counters: &mut harness.counters,
    };
    let step = harness
        .server
        .next(&input, &mut words, &mut place, &mut turn);
    assert!(step.is_ok());
    let request = &place.as_ref().expect("a request").request;
    let mut h1 = String::from("GET /a/../b?c HTTP/1.1\r\n");
    for (name, value) in fields.iter().filter(|(name, _)| *name != "cookie") {
        h1 += &format!("{name}: {value}\r\n");
    }
    h1 += "host: h\r\ncookie: a; b\r\n\r\n";
    let limits = crate::RequestLimits::default();
    let head = crate::h1::parse(h1.as_bytes(), &limits).expect("good");
    let other = head.expect("whole").request;
    let seen = |it: &crate::Request<'_>| {
        let lists = [it.accept_encoding(), it.if_match(), it.if_none_match()];
        let lists = lists.map(|values| values.iter().map(text).collect::<Vec<_>>());
        let single = [
            it.range(),
            it.referer(),
            it.user_agent(),
            it.if_modified_since(),
        ];
        let rest = (it.method, it.target, it.authority, it.affects_caching());
        format!("{lists:?} {single:?} {rest:?} {}", text(it.lines()))
    };
    assert_eq!(seen(request), seen(&other));
}

#[test]
fn malformed_request_is_a_stream_error() {
    // RFC 9113 §8.1.1: a malformed message is a stream error. Each case is an injection or a contradiction.
    let base = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    let cases = [
        // RFC 9113 §8.2.1: names are in lower case.
        with(&[("Upper", "a")]),
        with(&[("a b", "a")]),
        with(&[("", "a")]),
        // In HTTP/1 this value would be a second field line.
        with(&[("a", "b\r\nc: d")]),
        with(&[("a", "b\0")]),
        with(&[("a", " b")]),
        with(&[("a", "b ")]),
        // RFC 9113 §8.2.2: connection-specific fields, up to `te`.
        with(&[("connection", "close")]),
        with(&[("keep-alive", "1")]),
        with(&[("proxy-connection", "a")]),
        with(&[("transfer-encoding", "chunked")]),
        with(&[("upgrade", "websocket")]),
        with(&[("te", "gzip")]),
        // The stream ends without the announced content.
        with(&[("content-length", "1")]),
        with(&[("content-length", "a")]),
        with(&[("content-length", "0"), ("content-length", "0")]),
        with(&[(":path", "/b")]),
        // A pseudo-header field of responses.
        with(&[(":status", "200")]),
        with(&[(":what", "a")]),
        // RFC 9113 §8.3: pseudo-header fields come first.
        with(&[("a", "b"), (":authority", "h")]),
        // RFC 9113 §8.3.1: they must not differ.
        with(&[(":authority", "h"), ("host", "i")]),
        with(&[("host", "h"), ("host", "h")]),
        with(&[(":protocol", "websocket")]),
        base[1..].to_vec(),
        base[..2].to_vec(),
        [base[0], base[2]].to_vec(),
        [(":method", "GET"), (":scheme", "http"), (":path", "")].to_vec(),
        [(":method", "GET"), (":scheme", "gopher"), (":path", "/")].to_vec(),
        [(":method", "G T"), (":scheme", "http"), (":path", "/")].to_vec(),
        [
            (":method", "CONNECT"),
            (":authority", "h:1"),
            (":path", "/"),
        ]
        .to_vec(),
        [(":method", "CONNECT")].to_vec(),
    ];
    let mut harness = ServerHarness::open(H2Settings::default());
    for (at, fields) in cases.iter().enumerate() {
        let id = at as u32 * 2 + 1;
        let input = frame_of(kind::HEADERS, 5, id, &block(fields));
        assert_eq!(harness.receive(&input), "", "{fields:?}");
        assert_eq!(
            harness.take_output(),
            format!("{id} reset PROTOCOL_ERROR"),
            "{fields:?}"
        );
    }
    assert_eq!(harness.counters.malformed, cases.len() as u64);
    assert!(harness.server.is_idle());
    assert!(
        harness
            .receive(&get(1001, "/", &[("te", "trailers")]))
            .starts_with("1001 Get")
    );
}

#[test]
fn refused_request_is_answered_with_a_status() {
    // These requests are refused but not malformed, so the client gets a status instead of a reset.
    let long = "a".repeat(9000);
    let mut harness = ServerHarness::open(H2Settings::default());
    let fields = |more: &[(&'static str, &str)]| {
        let base = [(":method", "GET"), (":scheme", "http")];
        let all = [&base[..], &[(":path", "/")], more].concat();
        block(&all)
    };
    let many: Vec<(&str, &str)> = (0..101).map(|_| ("a", "b")).collect();
    for (at, (payload, wanted)) in [
        (fields(&[]), "HostMissing"),
        (fields(&[("host", "a b")]), "HostInvalid"),
        (fields(&[(":authority", "a,b")]), "HostInvalid"),
        // Entries of the static table with empty values.
        (
            [fields(&[]), alloc::vec![0x80 | 38]].concat(),
            "HostInvalid",
        ),
        ([fields(&[]), alloc::vec![0x80 | 1]].concat(), "HostInvalid"),
        (
            fields(&[("host", "h"), ("expect", "x")]),
            "ExpectationUnknown",
        ),
        (fields(&many), "TooManyFields"),
        (
            block(&[(":method", "get"), (":scheme", "http"), (":path", "/")]),
            "MethodUnknown",
        ),
        (
            block(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "h"),
                (":path", "a"),
            ]),
            "TargetInvalid",
        ),
        (
            block(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":authority", "h"),
                (":path", &long),
            ]),
            "TargetTooLong",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let id = at as u32 * 2 + 1;
        let heard = harness.receive(&frame_of(kind::HEADERS, 5, id, &payload));
        assert_eq!(heard, format!("{id} refused {wanted}"));
        harness.respond(id, 0);
        assert_eq!(
            harness.take_output(),
            format!("{id} head :status=200 content-length=0 end")
        );
    }
    assert!(harness.server.is_idle());
}

#[test]
fn extended_connect_affects_caching_as_upgrade_does() {
    let settings = H2Settings {
        accepts_connect_protocol: true,
        ..H2Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    let mut fields = block(&[(":protocol", "websocket")]);
    let chat = headers(1, "CONNECT", "/chat", &[], false);
    fields.extend_from_slice(&chat[HEAD_LEN..]);
    let input = frame_of(kind::HEADERS, 4, 1, &fields);
    let (mut words, mut place) = (Vec::new(), None);
    let mut turn = ConnectionTurn {
        now_ms: 1,
        settings: &harness.settings,
        out: &mut harness.out,
        counters: &mut harness.counters,
    };
    let step = harness
        .server
        .next(&input, &mut words, &mut place, &mut turn);
    assert!(step.is_ok());
    let request = &place.as_ref().expect("a request").request;
    // Its response would otherwise answer a GET of the same URL.
    assert!(request.affects_caching());
}

#[test]
fn connect_opens_a_tunnel_and_extended_connect_is_an_upgrade() {
    let mut harness = ServerHarness::open(H2Settings::default());
    let connect = block(&[(":method", "CONNECT"), (":authority", "h:443")]);
    let heard = harness.receive(&frame_of(kind::HEADERS, 4, 1, &connect));
    assert_eq!(heard, "1 Connect h:443 h:443 [host: h:443|] body None");
    let settings = H2Settings {
        accepts_connect_protocol: true,
        ..H2Settings::default()
    };
    let mut harness = ServerHarness::new(settings);
    assert_eq!(harness.take_output(), "settings 4, 0 window 65535");
    let mut harness = ServerHarness::open(settings);
    let heard = harness.receive(&headers(1, "CONNECT", "/chat", &[], false));
    assert_eq!(
        (heard.as_str(), harness.take_output().as_str()),
        ("", "1 reset PROTOCOL_ERROR")
    );
    let mut fields = block(&[(":protocol", "websocket")]);
    let chat = headers(3, "CONNECT", "/chat", &[], false);
    fields.extend_from_slice(&chat[HEAD_LEN..]);
    let heard = harness.receive(&frame_of(kind::HEADERS, 4, 3, &fields));
    let upgrade = "connection: upgrade|upgrade: websocket|";
    assert_eq!(
        heard,
        format!("3 Get /chat h [host: h|{upgrade}] body None")
    );
    let stream = StreamId(3);
    let mut fields = ResponseFields::new();
    fields.push("Sec-WebSocket-Accept", b"x");
    fields.push("X-Own", b"1");
    let (server, out) = (&mut harness.server, &mut harness.out);
    assert!(server.open_tunnel(stream, &fields, &DATE, out));
    assert!(!server.open_tunnel(stream, &fields, &DATE, out), "twice");
    assert_eq!(harness.receive(&data(3, b"hello", false)), "3 data hello");
    assert_eq!(harness.server.body(stream, 3), Ok(true));
    harness.send(100);
    assert_eq!(
        harness.take_output(),
        "3 head :status=200 x-own=1, 3 data 3"
    );
    // A tunnel may carry more bytes than a body.
    for _ in 0..100 {
        assert_eq!(
            harness.receive(&data(3, &[0; 16_384], false)),
            "3 data 16384"
        );
        harness
            .server
            .release_capacity(stream, 16_384, &mut harness.out);
    }
}

/// A server on which each odd stream up to `count` has requested a tunnel.
fn server_with_tunnel_requests(count: u32) -> ServerHarness {
    let mut harness = ServerHarness::open(H2Settings {
        accepts_connect_protocol: true,
        ..H2Settings::default()
    });
    for number in 0..count {
        let mut fields = block(&[(":protocol", "websocket")]);
        let chat = headers(1, "CONNECT", "/chat", &[], false);
        fields.extend_from_slice(&chat[HEAD_LEN..]);
        let id = 2 * number + 1;
        assert!(
            !harness
                .receive(&frame_of(kind::HEADERS, 4, id, &fields))
                .is_empty()
        );
    }
    harness
}

#[test]
fn response_to_extended_connect_without_tunnel_is_501() {
    // A 2xx response to an extended CONNECT would open a tunnel that no handler serves.
    let mut harness = server_with_tunnel_requests(4);
    let (server, out) = (&mut harness.server, &mut harness.out);
    let known = BodyLen::Known(3);
    assert!(!server.respond(
        StreamId(1),
        StatusCode::OK,
        FieldLines::NONE,
        known,
        &DATE,
        out
    ));
    let block = FieldBlock::new(StatusCode::OK, [], known);
    let set = (&DATE, FieldLines::NONE);
    assert!(!server.respond_prebuilt(StreamId(3), &block, 3, set, out));
    let (status, lines) = (StatusCode::FORBIDDEN, FieldLines::NONE);
    assert!(server.respond(StreamId(5), status, lines, known, &DATE, out));
    assert_eq!(server.whole_body(StreamId(5), 3), Ok(true));
    harness.send(100);
    let refused = "head :status=501 content-length=0 end";
    let other = "5 head :status=403 content-length=3, 5 data 3 end, 5 reset NO_ERROR";
    let wanted = format!("1 {refused}, 1 reset NO_ERROR, 3 {refused}, 3 reset NO_ERROR, {other}");
    assert_eq!(harness.take_output(), wanted);
    // Data before the tunnel was accepted.
    assert_eq!(
        harness.receive(&data(7, b"hello", false)),
        "7 reset PROTOCOL_ERROR"
    );
    assert_eq!(harness.take_output(), "7 reset PROTOCOL_ERROR");
}

#[test]
fn interim_response_fields_and_trailers() {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&post(1, &[("expect", "100-continue")]));
    let stream = StreamId(1);
    assert!(harness.server.expects_continue(stream));
    harness.server.interim(
        stream,
        StatusCode::CONTINUE,
        FieldLines::NONE,
        &mut harness.out,
    );
    assert!(!harness.server.expects_continue(stream));
    let hints = FieldLines::new(b"Link: </a>\r\nConnection: x\r\n");
    harness
        .server
        .interim(stream, StatusCode::EARLY_HINTS, hints, &mut harness.out);
    assert_eq!(
        harness.take_output(),
        "1 head :status=100, 1 head :status=103 link=</a>"
    );
    assert_eq!(harness.receive(&data(1, b"a", true)), "1 data a, 1 end");
    let server = &mut harness.server;
    let begun = server.begin_head(stream, StatusCode::NOT_FOUND, &DATE, &mut harness.out);
    put_field(
        FieldName::Known(StandardHeader::Vary),
        b"Cookie",
        &mut harness.out,
    );
    put_field(FieldName::Other("X-Own"), b"1", &mut harness.out);
    let begun = begun.expect("it waits");
    assert!(server.finish_head(begun, BodyLen::Unknown, &mut harness.out));
    assert_eq!(server.body(stream, 3), Ok(true));
    assert_eq!(server.end(stream, FieldLines::new(b"x-sum: 2\r\n")), Ok(()));
    harness.send(2);
    let wanted = "1 head :status=404 vary=Cookie x-own=1, 1 data 2, 1 data 1, 1 head x-sum=2 end";
    assert_eq!(harness.take_output(), wanted);
    assert!(harness.server.is_idle());
}

#[test]
fn lazy_block_is_built_once() {
    let fields = [(
        FieldName::Known(StandardHeader::ContentType),
        &b"text/html"[..],
    )];
    let block = FieldBlock::new(StatusCode::OK, fields, BodyLen::Known(7));
    let mut harness = ServerHarness::open(H2Settings::default());
    for (id, aside) in [(1, ""), (3, ""), (5, "Age: 60\r\n")] {
        harness.receive(&get(id, "/", &[]));
        let (server, stream) = (&mut harness.server, StreamId(id));
        let set = (&DATE, FieldLines::new(aside.as_bytes()));
        assert!(server.respond_prebuilt(stream, &block, 7, set, &mut harness.out));
        assert!(harness.out.windows(29).any(|it| it == DATE));
        assert_eq!(server.body(stream, 7), Ok(true));
        assert_eq!(server.end(stream, FieldLines::NONE), Ok(()));
        harness.send(100);
        let age = if aside.is_empty() { "" } else { " age=60" };
        let head = format!("head :status=200 content-type=text/html content-length=7{age}");
        assert_eq!(
            harness.take_output(),
            format!("{id} {head}, {id} data 7 end")
        );
    }
}

#[test]
fn lazy_block_keeps_the_first_fields() {
    let lazy = LazyBlock::default();
    let made = lazy.encode_lines(StatusCode::OK, FieldLines::new(b"ETag: \"a\"\r\n"));
    let wanted = [(FieldName::Known(StandardHeader::Etag), &b"\"a\""[..])];
    assert_eq!(
        *made,
        FieldBlock::new(StatusCode::OK, wanted, BodyLen::None)
    );
    let again = lazy.encode_lines(StatusCode::OK, FieldLines::NONE);
    assert!(core::ptr::eq(made, again));
    assert_eq!(size_of::<LazyBlock>(), size_of::<usize>());
}

#[test]
fn reduced_table_size_is_acknowledged() {
    // RFC 7541 §4.2: the next block begins with a dynamic table size update.
    let mut harness = ServerHarness::open(H2Settings::default());
    let mut input = Vec::new();
    frame::put_settings(&[(id::HEADER_TABLE_SIZE, 0)], &mut input);
    harness.receive(&input);
    harness.receive(&get(1, "/", &[]));
    harness.take_output();
    harness.respond(1, 0);
    assert_eq!(harness.out[HEAD_LEN..][..2], [0x20, 0x88]);
    assert_eq!(
        harness.take_output(),
        "1 head :status=200 content-length=0 end"
    );
    harness.receive(&get(3, "/", &[]));
    harness.respond(3, 0);
    assert_eq!(harness.out[HEAD_LEN], 0x88);
}

#[test]
fn h2_server_is_at_most_512_bytes() {
    // Servers keep many idle connections. The limit excludes the fields in the client's dynamic table.
    const { assert!(size_of::<H2Server>() <= 512) }
}
