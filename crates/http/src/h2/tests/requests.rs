//! Requests and heads of responses. RFC 9113 §8.

use super::*;
use crate::fields::{FieldName, ResponseFields, StandardHeader};
use crate::h2::hpack::put_field;

#[test]
fn a_connection_begins_with_settings() {
    let mut talk = Talk::new(H2Settings::default());
    assert_eq!(talk.heard(), "settings 3, 0 window 65535");
    assert!(talk.server.is_new() && talk.server.awaits_acknowledgement());
    let mut input = PREFACE.to_vec();
    frame::put_settings(&[(4, 100)], &mut input);
    for byte in &input {
        assert_eq!(talk.tell(&[*byte]), "");
    }
    assert_eq!(talk.heard(), "settings ok");
    assert!(!talk.server.is_new() && talk.server.awaits_acknowledgement());
}

#[test]
fn a_request_and_its_response() {
    let mut talk = Talk::open(H2Settings::default());
    let heard = talk.tell(&get(1, "/a?b", &[("accept", "*/*")]));
    assert_eq!(heard, "1 Get /a?b h [accept: */*|host: h|]");
    talk.answer(1, 5);
    talk.send(16_384);
    assert_eq!(
        talk.heard(),
        "1 head :status=200 content-length=5, 1 data 5 end"
    );
    assert!(talk.server.is_idle() && !talk.server.is_finished());
    talk.tell(&headers(3, "HEAD", "/", &[], true));
    talk.answer(3, 5);
    assert_eq!(talk.heard(), "3 head :status=200 content-length=5 end");
}

#[test]
fn it_makes_no_difference_how_bytes_are_cut() {
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
        let mut talk = Talk::open(H2Settings::default());
        let words: Vec<String> = input.chunks(len).map(|part| talk.tell(part)).collect();
        let words: Vec<String> = words.into_iter().filter(|it| !it.is_empty()).collect();
        let mut words = words.join(", ");
        // Bodies come in any pieces.
        words = words
            .replace("data c, 3 data d", "data cd")
            .replace("data cd, 3 data e", "data cde");
        words = words
            .replace("data c, 3 data de", "data cde")
            .replace("data a, 3 data b", "data ab");
        assert_eq!(words, wanted, "{len}");
        assert_eq!(talk.heard(), "pong 12345678");
    }
}

#[test]
fn a_request_is_the_same_as_that_of_http_1() {
    // Handlers and caches must not need to know the version.
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
    let mut talk = Talk::open(H2Settings::default());
    let input = get(1, "/a/../b?c", &fields);
    let (mut words, mut place) = (Vec::new(), None);
    let mut turn = ConnectionTurn {
        now_ms: 1,
        settings: &talk.settings,
        out: &mut talk.out,
        counters: &mut talk.counters,
    };
    let step = talk.server.next(&input, &mut words, &mut place, &mut turn);
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
fn what_is_malformed_ends_its_stream_only() {
    // RFC 9113 §8.1.1: a malformed message is a stream error. Each case is an injection or a contradiction.
    let base = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    let cases = [
        // RFC 9113 §8.2.1: lower case only.
        with(&[("Upper", "a")]),
        with(&[("a b", "a")]),
        with(&[("", "a")]),
        // Would become a second field line in HTTP/1.
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
        // The stream ends without content.
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
    let mut talk = Talk::open(H2Settings::default());
    for (at, fields) in cases.iter().enumerate() {
        let id = at as u32 * 2 + 1;
        let input = frame_of(kind::HEADERS, 5, id, &block(fields));
        assert_eq!(talk.tell(&input), "", "{fields:?}");
        assert_eq!(
            talk.heard(),
            format!("{id} reset PROTOCOL_ERROR"),
            "{fields:?}"
        );
    }
    assert_eq!(talk.counters.malformed, cases.len() as u64);
    assert!(talk.server.is_idle());
    assert!(
        talk.tell(&get(1001, "/", &[("te", "trailers")]))
            .starts_with("1001 Get")
    );
}

#[test]
fn what_can_be_answered_is() {
    // Not malformed, so the client gets a status instead of a reset.
    let long = "a".repeat(9000);
    let mut talk = Talk::open(H2Settings::default());
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
        let heard = talk.tell(&frame_of(kind::HEADERS, 5, id, &payload));
        assert_eq!(heard, format!("{id} refused {wanted}"));
        talk.answer(id, 0);
        assert_eq!(
            talk.heard(),
            format!("{id} head :status=200 content-length=0 end")
        );
    }
    assert!(talk.server.is_idle());
}

#[test]
fn connect_is_a_tunnel_and_extended_connect_is_asked_for() {
    let mut talk = Talk::open(H2Settings::default());
    let connect = block(&[(":method", "CONNECT"), (":authority", "h:443")]);
    let heard = talk.tell(&frame_of(kind::HEADERS, 4, 1, &connect));
    assert_eq!(heard, "1 Connect h:443 h:443 [host: h:443|] body None");
    let settings = H2Settings {
        accepts_connect_protocol: true,
        ..H2Settings::default()
    };
    let mut talk = Talk::new(settings);
    assert_eq!(talk.heard(), "settings 4, 0 window 65535");
    let mut talk = Talk::open(settings);
    let heard = talk.tell(&headers(1, "CONNECT", "/chat", &[], false));
    assert_eq!(
        (heard.as_str(), talk.heard().as_str()),
        ("", "1 reset PROTOCOL_ERROR")
    );
    let mut fields = block(&[(":protocol", "websocket")]);
    let chat = headers(3, "CONNECT", "/chat", &[], false);
    fields.extend_from_slice(&chat[HEAD_LEN..]);
    let heard = talk.tell(&frame_of(kind::HEADERS, 4, 3, &fields));
    let upgrade = "connection: upgrade|upgrade: websocket|";
    assert_eq!(
        heard,
        format!("3 Get /chat h [host: h|{upgrade}] body None")
    );
    let stream = StreamId(3);
    let mut fields = ResponseFields::new();
    fields.push("Sec-WebSocket-Accept", b"x");
    fields.push("X-Own", b"1");
    let (server, out) = (&mut talk.server, &mut talk.out);
    assert!(server.open_tunnel(stream, &fields, &DATE, out));
    assert!(!server.open_tunnel(stream, &fields, &DATE, out), "twice");
    assert_eq!(talk.tell(&data(3, b"hello", false)), "3 data hello");
    assert_eq!(talk.server.body(stream, 3), Ok(true));
    talk.send(100);
    assert_eq!(talk.heard(), "3 head :status=200 x-own=1, 3 data 3");
    // A tunnel may carry more than a body.
    for _ in 0..100 {
        assert_eq!(talk.tell(&data(3, &[0; 16_384], false)), "3 data 16384");
        talk.server.release_capacity(stream, 16_384, &mut talk.out);
    }
}

/// A server where each odd stream up to `count` asks for a tunnel.
fn tunnels_asked(count: u32) -> Talk {
    let mut talk = Talk::open(H2Settings {
        accepts_connect_protocol: true,
        ..H2Settings::default()
    });
    for number in 0..count {
        let mut fields = block(&[(":protocol", "websocket")]);
        let chat = headers(1, "CONNECT", "/chat", &[], false);
        fields.extend_from_slice(&chat[HEAD_LEN..]);
        let id = 2 * number + 1;
        assert!(
            !talk
                .tell(&frame_of(kind::HEADERS, 4, id, &fields))
                .is_empty()
        );
    }
    talk
}

#[test]
fn no_response_but_a_tunnel_is_one() {
    // A 2xx to an extended CONNECT would open a tunnel that no handler serves.
    let mut talk = tunnels_asked(4);
    let (server, out) = (&mut talk.server, &mut talk.out);
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
    talk.send(100);
    let refused = "head :status=501 content-length=0 end";
    let other = "5 head :status=403 content-length=3, 5 data 3 end, 5 reset NO_ERROR";
    let wanted = format!("1 {refused}, 1 reset NO_ERROR, 3 {refused}, 3 reset NO_ERROR, {other}");
    assert_eq!(talk.heard(), wanted);
    // Data before the tunnel is accepted.
    assert_eq!(
        talk.tell(&data(7, b"hello", false)),
        "7 reset PROTOCOL_ERROR"
    );
    assert_eq!(talk.heard(), "7 reset PROTOCOL_ERROR");
}

#[test]
fn interim_responses_fields_and_trailers() {
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&post(1, &[("expect", "100-continue")]));
    let stream = StreamId(1);
    assert!(talk.server.expects_continue(stream));
    talk.server.interim(
        stream,
        StatusCode::CONTINUE,
        FieldLines::NONE,
        &mut talk.out,
    );
    assert!(!talk.server.expects_continue(stream));
    let hints = FieldLines::new(b"Link: </a>\r\nConnection: x\r\n");
    talk.server
        .interim(stream, StatusCode::EARLY_HINTS, hints, &mut talk.out);
    assert_eq!(
        talk.heard(),
        "1 head :status=100, 1 head :status=103 link=</a>"
    );
    assert_eq!(talk.tell(&data(1, b"a", true)), "1 data a, 1 end");
    let server = &mut talk.server;
    let begun = server.begin_head(stream, StatusCode::NOT_FOUND, &DATE, &mut talk.out);
    put_field(
        FieldName::Known(StandardHeader::Vary),
        b"Cookie",
        &mut talk.out,
    );
    put_field(FieldName::Other("X-Own"), b"1", &mut talk.out);
    let begun = begun.expect("it waits");
    assert!(server.finish_head(begun, BodyLen::Unknown, &mut talk.out));
    assert_eq!(server.body(stream, 3), Ok(true));
    assert_eq!(server.end(stream, FieldLines::new(b"x-sum: 2\r\n")), Ok(()));
    talk.send(2);
    let wanted = "1 head :status=404 vary=Cookie x-own=1, 1 data 2, 1 data 1, 1 head x-sum=2 end";
    assert_eq!(talk.heard(), wanted);
    assert!(talk.server.is_idle());
}

#[test]
fn a_block_is_made_once() {
    let fields = [(
        FieldName::Known(StandardHeader::ContentType),
        &b"text/html"[..],
    )];
    let block = FieldBlock::new(StatusCode::OK, fields, BodyLen::Known(7));
    let mut talk = Talk::open(H2Settings::default());
    for (id, aside) in [(1, ""), (3, ""), (5, "Age: 60\r\n")] {
        talk.tell(&get(id, "/", &[]));
        let (server, stream) = (&mut talk.server, StreamId(id));
        let set = (&DATE, FieldLines::new(aside.as_bytes()));
        assert!(server.respond_prebuilt(stream, &block, 7, set, &mut talk.out));
        assert!(talk.out.windows(29).any(|it| it == DATE));
        assert_eq!(server.body(stream, 7), Ok(true));
        assert_eq!(server.end(stream, FieldLines::NONE), Ok(()));
        talk.send(100);
        let age = if aside.is_empty() { "" } else { " age=60" };
        let head = format!("head :status=200 content-type=text/html content-length=7{age}");
        assert_eq!(talk.heard(), format!("{id} {head}, {id} data 7 end"));
    }
}

#[test]
fn a_block_is_made_of_what_came_first() {
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
fn a_table_that_became_smaller_is_acknowledged() {
    // RFC 7541 §4.2: the next block begins with a size update.
    let mut talk = Talk::open(H2Settings::default());
    let mut input = Vec::new();
    frame::put_settings(&[(id::HEADER_TABLE_SIZE, 0)], &mut input);
    talk.tell(&input);
    talk.tell(&get(1, "/", &[]));
    talk.heard();
    talk.answer(1, 0);
    assert_eq!(talk.out[HEAD_LEN..][..2], [0x20, 0x88]);
    assert_eq!(talk.heard(), "1 head :status=200 content-length=0 end");
    talk.tell(&get(3, "/", &[]));
    talk.answer(3, 0);
    assert_eq!(talk.out[HEAD_LEN], 0x88);
}

#[test]
fn an_idle_connection_is_small() {
    // Idle connections are kept in large numbers.
    // In addition to the fields in the client's dynamic table.
    const { assert!(size_of::<H2Server>() <= 512) }
}
