//! Requests, bodies and responses. RFC 9114 §4.

use super::*;
use crate::fields::{FieldName, ResponseFields, StandardHeader};

#[test]
fn request_gets_its_response() {
    let mut harness = ServerHarness::open(H3Settings::default());
    let events = harness.finish(0, &get("/a?b", &[("accept", "*/*")]));
    assert_eq!(events, "0 Get /a?b h [accept: */*|host: h|]");
    assert!(harness.respond(0, 5));
    assert_eq!(harness.send(16_384), "0 5 end");
    let output = harness.take_output(0);
    assert_eq!(output, "head :status=200 content-length=5, data 5");
    assert!(harness.server.is_idle() && !harness.server.is_finished());
    let events = harness.finish(4, &request("HEAD", "/", &[]));
    assert_eq!(events, "1 Head / h [host: h|]");
    assert!(!harness.respond(1, 5), "no body");
    let output = harness.take_output(1);
    assert_eq!(output, "head :status=200 content-length=5");
    assert!(harness.server.is_idle());
}

#[test]
fn body_and_trailers_are_passed_on() {
    let mut harness = ServerHarness::open(H3Settings::default());
    let head = post(&[("content-length", "5"), ("expect", "100-continue")]);
    let heard = harness.receive(0, &head);
    assert!(heard.ends_with("body Some(5)"), "{heard}");
    assert!(harness.server.expects_continue(StreamId(0)));
    let out = harness.responses.entry(0).or_default();
    harness
        .server
        .interim(StreamId(0), StatusCode::CONTINUE, FieldLines::NONE, out);
    assert_eq!(harness.take_output(0), "head :status=100");
    assert!(!harness.server.expects_continue(StreamId(0)));
    assert_eq!(harness.receive(0, &data(b"ab")), "0 data ab");
    let trailers = frame_of(kind::HEADERS, &section(&[("x-sum", "1")]));
    let rest = [data(b"cde"), frame_of(0x21, b"grease"), trailers].concat();
    assert_eq!(harness.receive(0, &rest), "0 data cde, 0 endx-sum=1");
    assert!(harness.server.has_whole_request(StreamId(0)));
    assert_eq!(harness.finish(0, &[]), "");
    assert!(!harness.server.is_idle());
    assert!(!harness.respond(0, 0));
    assert!(harness.server.is_idle());
}

#[test]
fn end_may_follow_its_request() {
    // The end of a stream may be in another packet than its last byte.
    let mut harness = ServerHarness::open(H3Settings::default());
    let events = harness.receive(0, &get("/", &[]));
    assert_eq!(events, "0 Get / h [host: h|] body None");
    assert_eq!(harness.finish(0, &[]), "0 end");
    assert!(harness.server.has_whole_request(StreamId(0)));
}

#[test]
fn cookies_are_joined() {
    // RFC 9114 §4.2.1.
    let mut harness = ServerHarness::open(H3Settings::default());
    let fields = [
        ("cookie", "a"),
        ("cookie", "b"),
        ("x", "y"),
        ("cookie", "c"),
    ];
    let events = harness.finish(0, &get("/", &fields));
    assert_eq!(events, "0 Get / h [x: y|host: h|cookie: a; b; c|]");
}

#[test]
fn refused_request_is_answered_with_a_status() {
    let settings = H3Settings {
        limits: crate::RequestLimits {
            body_len_max: 3,
            fields_max: 2,
            ..crate::RequestLimits::default()
        },
        ..H3Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    let many = [("a", "b"), ("a", "b"), ("a", "b")];
    assert_eq!(
        harness.finish(0, &get("/", &many)),
        "0 refused TooManyFields"
    );
    assert_eq!(harness.finish(4, &get("a", &[])), "1 refused TargetInvalid");
    assert_eq!(
        harness.finish(8, &request("get", "/", &[])),
        "2 refused MethodUnknown"
    );
    for number in 0..3 {
        assert!(!harness.respond(number, 0));
        let output = harness.take_output(number);
        assert_eq!(output, "head :status=200 content-length=0");
    }
    // A body that is too long: the response is sent while the client still sends.
    let events = harness.receive(12, &[post(&[]), data(b"abcd")].concat());
    let refused = "3 Post /p h [host: h|] body None, 3 refused BodyTooLarge";
    assert_eq!(events, refused);
    assert!(!harness.respond(3, 0));
    // RFC 9114 §4.1: STOP_SENDING follows the response.
    harness.decoder.clear();
    assert_eq!(harness.stopped(), ["3 stopped NO_ERROR"]);
    assert_eq!(harness.decoder, [0x40 | 12], "a cancellation");
    assert_eq!(harness.receive(12, &data(b"more")), "");
    assert!(harness.server.is_idle());
}

#[test]
fn discarded_body_is_not_passed_on() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.receive(0, &[post(&[]), data(b"ab")].concat());
    harness.server.discard_body(StreamId(0));
    assert_eq!(harness.receive(0, &data(b"cd")), "");
    assert_eq!(harness.finish(0, &[]), "");
    assert!(!harness.respond(0, 0));
    assert!(harness.stopped().is_empty() && harness.server.is_idle());
}

#[test]
fn unwanted_body_may_end_early() {
    let mut harness = ServerHarness::open(H3Settings::default());
    let head = post(&[("content-length", "9")]);
    harness.receive(0, &[head, data(b"ab")].concat());
    harness.server.discard_body(StreamId(0));
    assert!(harness.respond(0, 5));
    assert_eq!(harness.finish(0, &[]), "");
    assert_eq!(harness.send(9), "0 5 end");
    assert!(harness.server.is_idle());
}

#[test]
fn short_body_of_an_answered_request_ends_only_its_reader() {
    let mut harness = ServerHarness::open(H3Settings::default());
    let head = post(&[("content-length", "9")]);
    harness.receive(0, &[&head[..], &data(b"ab")].concat());
    assert!(harness.respond(0, 5));
    assert_eq!(harness.finish(0, &[]), "0 cut");
    assert_eq!(harness.send(9), "0 5 end");
    assert!(harness.server.is_idle());
    // Before the response, the request is malformed.
    harness.receive(4, &[&head[..], &data(b"ab")].concat());
    assert_eq!(harness.finish(4, &[]), "1 reset MESSAGE_ERROR");
}

#[test]
fn connect_opens_a_tunnel_and_extended_connect_is_an_upgrade() {
    let settings = H3Settings {
        accepts_connect_protocol: true,
        ..H3Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    let connect = section(&[(":method", "CONNECT"), (":authority", "h:443")]);
    let events = harness.receive(0, &frame_of(kind::HEADERS, &connect));
    assert_eq!(events, "0 Connect h:443 h:443 [host: h:443|] body None");
    // RFC 9220.
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "h"),
        (":path", "/chat"),
    ];
    let events = harness.receive(4, &frame_of(kind::HEADERS, &section(&fields)));
    let upgrade = "connection: upgrade|upgrade: websocket|";
    let wanted = format!("1 Get /chat h [host: h|{upgrade}] body None");
    assert_eq!(events, wanted);
    let mut fields = ResponseFields::new();
    fields.push("Sec-WebSocket-Accept", b"x");
    fields.push("X-Own", b"1");
    let (server, stream) = (&mut harness.server, StreamId(1));
    let out = harness.responses.entry(1).or_default();
    assert!(server.open_tunnel(stream, &fields, &DATE, out));
    assert!(!server.open_tunnel(stream, &fields, &DATE, out), "twice");
    assert_eq!(server.body(stream, 3), Ok(true));
    assert_eq!(harness.receive(4, &data(b"hello")), "1 data hello");
    assert_eq!(harness.send(100), "1 3");
    let output = harness.take_output(1);
    assert_eq!(output, "head :status=200 x-own=1, data 3");
    // A response to a CONNECT that does not open a tunnel.
    assert!(!harness.respond(0, 5));
    let output = harness.take_output(0);
    assert_eq!(output, "head :status=501 content-length=0");
    assert_eq!(harness.stopped(), ["0 stopped NO_ERROR"]);
}

#[test]
fn prebuilt_head_equals_a_written_one() {
    let fields = [
        (
            FieldName::Known(StandardHeader::ContentType),
            &b"text/css"[..],
        ),
        (FieldName::Known(StandardHeader::Connection), b"close"),
        (FieldName::Other("X-Own"), b"1"),
    ];
    for status in [StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::FOUND] {
        let section = FieldSection::new(status, fields, BodyLen::Known(7));
        let mut harness = ServerHarness::open(H3Settings::default());
        harness.finish(0, &get("/", &[]));
        let out = harness.responses.entry(0).or_default();
        let lines = FieldLines::new(b"Age: 5\r\n");
        let stream = StreamId(0);
        assert!(
            harness
                .server
                .respond_prebuilt(stream, &section, 7, &DATE, lines.clone(), out)
        );
        let date_at = 3 + qpack::date_offset(status);
        assert_eq!(out[date_at..date_at + 29], DATE);
        assert!(!harness.server.respond_prebuilt(
            stream,
            &section,
            7,
            &DATE,
            lines,
            &mut Vec::new()
        ));
        let wanted = format!(
            "head :status={} content-type=text/css x-own=1 content-length=7 age=5",
            status.code()
        );
        assert_eq!(harness.take_output(0), wanted);
    }
}

#[test]
fn long_heads_have_a_longer_length() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.finish(0, &get("/", &[]));
    let lines = format!("X: {}\r\n", "a".repeat(20_000));
    let (stream, out) = (StreamId(0), harness.responses.entry(0).or_default());
    let lines = FieldLines::new(lines.as_bytes());
    let (ok, len) = (StatusCode::OK, BodyLen::Known(0));
    assert!(!harness.server.respond(stream, ok, lines, len, &DATE, out));
    assert!(harness.take_output(0).len() > 20_000);
}
