//! Every error of RFC 9113 and RFC 9218 that a client can make, with its error code.

use super::*;

fn put_settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_settings(settings, &mut out);
    out
}

/// A server with four streams: 1 has a complete request, 3 an incomplete body, 5 is closed, 7 was reset by the server.
fn prepared() -> ServerHarness {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(
        &[
            get(1, "/", &[]),
            post(3, &[]),
            get(5, "/", &[]),
            post(7, &[]),
        ]
        .concat(),
    );
    harness.respond(5, 0);
    harness
        .server
        .reset(StreamId(7), ErrorCode::CANCEL, &mut harness.out);
    harness.take_output();
    harness
}

#[test]
fn connection_errors_end_the_connection() {
    let raw = |kind, flags, stream, payload: &[u8]| frame_of(kind, flags, stream, payload);
    let large = alloc::vec![0; 16_385];
    let bad_block = raw(kind::HEADERS, 5, 9, &[0x80]);
    let begun = raw(kind::HEADERS, 0, 9, &block(&[(":method", "GET")]));
    let after = |next: Vec<u8>| [begun.clone(), next].concat();
    for (section, input, code) in [
        (
            "4.2 size",
            raw(kind::DATA, 0, 3, &large),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "4.2 size of any",
            raw(99, 0, 3, &large),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        ("4.3 block", bad_block, ErrorCode::COMPRESSION_ERROR),
        (
            "4.3 block of trailers",
            raw(kind::HEADERS, 5, 3, &[0xff]),
            ErrorCode::COMPRESSION_ERROR,
        ),
        (
            "4.3 block of a closed stream",
            raw(kind::HEADERS, 5, 7, &[0x80]),
            ErrorCode::COMPRESSION_ERROR,
        ),
        (
            "5.1 idle DATA",
            data(9, b"a", false),
            ErrorCode::PROTOCOL_ERROR,
        ),
        ("5.1 idle RST_STREAM", reset(9), ErrorCode::PROTOCOL_ERROR),
        (
            "5.1 idle WINDOW_UPDATE",
            window(9, 1),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "5.1 closed DATA",
            data(5, b"a", false),
            ErrorCode::STREAM_CLOSED,
        ),
        (
            "5.1 closed HEADERS",
            get(5, "/", &[]),
            ErrorCode::STREAM_CLOSED,
        ),
        (
            "5.1.1 even stream",
            get(2, "/", &[]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "5.1.1 even DATA",
            data(2, b"", true),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "5.5 unknown frame in a block",
            after(raw(99, 0, 9, b"")),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.1 DATA of no stream",
            data(0, b"a", false),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.1 padding",
            raw(kind::DATA, flag::PADDED, 3, b"\x03ab"),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.1 no padding's length",
            raw(kind::DATA, flag::PADDED, 3, b""),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "6.2 HEADERS of no stream",
            raw(kind::HEADERS, 5, 0, &[0x82]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.2 padding",
            raw(kind::HEADERS, 5 | flag::PADDED, 9, &[9, 0x82]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.2 another block within",
            after(get(11, "/", &[])),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.2 DATA within",
            after(data(3, b"a", false)),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.3 PRIORITY of no stream",
            raw(kind::PRIORITY, 0, 0, &[0; 5]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.3 size",
            raw(kind::PRIORITY, 0, 3, &[0; 4]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "6.4 RST_STREAM of no stream",
            reset(0),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.4 size",
            raw(kind::RST_STREAM, 0, 3, &[0; 3]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "6.5 ACK with settings",
            raw(kind::SETTINGS, 1, 0, &[0; 6]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "6.5 of a stream",
            raw(kind::SETTINGS, 0, 1, &[]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.5 size",
            raw(kind::SETTINGS, 0, 0, &[0; 5]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "6.5.2 ENABLE_PUSH",
            put_settings(&[(id::ENABLE_PUSH, 2)]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.5.2 INITIAL_WINDOW_SIZE",
            put_settings(&[(id::INITIAL_WINDOW_SIZE, 1 << 31)]),
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "6.5.2 MAX_FRAME_SIZE",
            put_settings(&[(id::MAX_FRAME_SIZE, 16_383)]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.6 PUSH_PROMISE",
            raw(kind::PUSH_PROMISE, 4, 1, &[0; 5]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.7 PING of a stream",
            raw(kind::PING, 0, 1, &[0; 8]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.7 size",
            raw(kind::PING, 0, 0, &[0; 9]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        (
            "6.8 GOAWAY of a stream",
            raw(kind::GOAWAY, 0, 1, &[0; 8]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.9 size",
            raw(kind::WINDOW_UPDATE, 0, 0, &[0; 5]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
        ("6.9 nothing", window(0, 0), ErrorCode::PROTOCOL_ERROR),
        (
            "6.9.1 too large",
            window(0, 0x7fff_ffff),
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "6.9.2 too large by settings",
            [
                window(1, 1),
                put_settings(&[(id::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]),
            ]
            .concat(),
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "6.10 CONTINUATION alone",
            raw(kind::CONTINUATION, 4, 3, &[]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "6.10 of another stream",
            after(raw(kind::CONTINUATION, 4, 11, &[])),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "9218 7.1 of a stream",
            raw(kind::PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "9218 7.1 of none",
            raw(kind::PRIORITY_UPDATE, 0, 0, &[0; 4]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "9218 7.1 size",
            raw(kind::PRIORITY_UPDATE, 0, 0, &[0; 3]),
            ErrorCode::FRAME_SIZE_ERROR,
        ),
    ] {
        let mut harness = prepared();
        let heard = harness.receive(&input);
        assert_eq!(heard, format!("fault {}", code.name()), "{section}");
        let said = harness.take_output();
        let last = said.rsplit(", ").next().unwrap_or_default();
        assert!(
            last.starts_with("goaway ") && last.ends_with(code.name()),
            "{section}: {said}"
        );
        assert!(harness.server.is_finished());
        assert_eq!(harness.counters.ended, 1);
        assert_eq!(
            harness.receive(&get(99, "/", &[])),
            "",
            "nothing is read any more"
        );
        assert_eq!(harness.take_output(), "");
    }
}

#[test]
fn stream_errors_reset_the_stream() {
    let trailers = |flags| frame_of(kind::HEADERS, flags, 3, &block(&[("a", "b")]));
    let pseudo = frame_of(kind::HEADERS, 5, 3, &block(&[(":path", "/")]));
    for (section, id, input, code) in [
        (
            "5.1 half-closed DATA",
            1,
            data(1, b"a", false),
            ErrorCode::STREAM_CLOSED,
        ),
        (
            "5.1 half-closed HEADERS",
            1,
            get(1, "/", &[]),
            ErrorCode::STREAM_CLOSED,
        ),
        ("6.9 nothing", 1, window(1, 0), ErrorCode::PROTOCOL_ERROR),
        (
            "6.9.1 too large",
            1,
            window(1, 0x7fff_ffff),
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (
            "8.1 trailers without an end",
            3,
            trailers(4),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "8.1 pseudo-headers in trailers",
            3,
            pseudo,
            ErrorCode::PROTOCOL_ERROR,
        ),
    ] {
        let mut harness = prepared();
        assert_eq!(
            harness.receive(&input),
            format!("{id} reset {}", code.name()),
            "{section}"
        );
        assert_eq!(
            harness.take_output(),
            format!("{id} reset {}", code.name()),
            "{section}"
        );
        assert_eq!(harness.server.streams(), 2, "its work goes on");
        harness
            .server
            .release_reset_stream(StreamId(id), &mut harness.out);
        assert_eq!(harness.server.streams(), 1);
        assert!(!harness.server.is_finished());
    }
}

#[test]
fn unknown_and_late_frames_are_ignored() {
    // RFC 9113 requires or permits that these frames are ignored.
    let unknown = frame_of(99, 0xff, 77, b"abc");
    let priority = frame_of(kind::PRIORITY, 0, 9, &[0, 0, 0, 1, 16]);
    let update = frame_of(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x0bu=1");
    let pushes = put_settings(&[(id::ENABLE_PUSH, 1)]);
    let mut harness = prepared();
    assert_eq!(
        (harness.receive(&pushes), harness.take_output()),
        (String::new(), "settings ok".into()),
        "ENABLE_PUSH of a client"
    );
    for (what, input) in [
        ("unknown frames", unknown),
        ("PRIORITY of any stream", priority),
        ("PRIORITY_UPDATE of one to come", update),
        ("WINDOW_UPDATE after the end", window(5, 1)),
        ("RST_STREAM after the end", reset(5)),
        ("DATA after our RST_STREAM", data(7, b"abc", true)),
        (
            "trailers after our RST_STREAM",
            frame_of(kind::HEADERS, 5, 7, &block(&[("a", "b")])),
        ),
        ("PONG of nothing", frame_of(kind::PING, 1, 0, &[7; 8])),
    ] {
        let mut harness = prepared();
        assert_eq!(harness.receive(&input), "", "{what}");
        assert_eq!(harness.take_output(), "", "{what}");
        let heard = harness.receive(&get(11, "/", &[]));
        assert!(heard.starts_with("11 Get"), "{what}: {heard}");
    }
}

#[test]
fn invalid_preface_is_a_connection_error() {
    // RFC 9113 §3.4: a client sends the preface, then SETTINGS.
    for input in [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx".to_vec(),
        [&PREFACE[..], &get(1, "/", &[])].concat(),
        [&PREFACE[..], &frame_of(kind::SETTINGS, flag::ACK, 0, &[])].concat(),
    ] {
        let mut harness = ServerHarness::new(H2Settings::default());
        assert_eq!(harness.receive(&input), "fault PROTOCOL_ERROR");
        assert_eq!(
            harness.take_output(),
            "settings 3, 0 window 65535, goaway 0 PROTOCOL_ERROR"
        );
    }
}

#[test]
fn drain_sends_goaway_twice() {
    // RFC 9113 §6.8: requests sent before the client receives GOAWAY are still answered.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&get(1, "/", &[]));
    harness.server.drain(&mut harness.out);
    assert_eq!(
        harness.take_output(),
        "goaway 2147483647 NO_ERROR, ping leaving."
    );
    assert!(
        harness.receive(&get(3, "/", &[])).starts_with("3 Get"),
        "it was on its way"
    );
    harness.receive(&frame_of(kind::PING, flag::ACK, 0, b"leaving."));
    assert_eq!(harness.take_output(), "goaway 3 NO_ERROR");
    let late = [post(5, &[]), data(5, b"abc", true), reset(7)].concat();
    assert_eq!(
        harness.receive(&late[..late.len() - 13]),
        "",
        "the client will ask elsewhere"
    );
    assert!(!harness.server.is_finished());
    harness.respond(1, 0);
    harness.respond(3, 0);
    assert!(harness.server.is_finished());
}

#[test]
fn goaway_of_the_client() {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&get(1, "/", &[]));
    assert_eq!(harness.receive(&frame_of(kind::GOAWAY, 0, 0, &[0; 8])), "");
    assert!(!harness.server.is_finished());
    harness.respond(1, 0);
    assert!(harness.server.is_finished());
    harness
        .server
        .end_with_error(ErrorCode::NO_ERROR, "", &mut harness.out);
    assert!(harness.take_output().ends_with("goaway 1 NO_ERROR"));
}
