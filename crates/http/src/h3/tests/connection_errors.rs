//! Errors that a client can make on its other streams, and floods, with their error codes.

use super::errors::{check, control_stream, request_stream};
use super::*;
use crate::field_coding::test_text::bytes;

#[test]
fn frames_on_the_control_stream() {
    let (unexpected, layout, id) = (
        "error FRAME_UNEXPECTED",
        "error FRAME_ERROR",
        "error ID_ERROR",
    );
    let of = |kind: u64, payload: &[u8]| control_stream(frame_of(kind, payload));
    let two = |kind: u64, first: &[u8], second: &[u8]| {
        control_stream([frame_of(kind, first), frame_of(kind, second)].concat())
    };
    check(alloc::vec![
        (
            "7.2.5 PUSH_PROMISE",
            of(kind::PUSH_PROMISE, &[0]),
            unexpected
        ),
        ("7.2.8 PRIORITY of HTTP/2", of(2, &[0]), unexpected),
        ("7.2.8 PING of HTTP/2", of(6, &[0]), unexpected),
        ("7.2.8 WINDOW_UPDATE of HTTP/2", of(8, &[0]), unexpected),
        ("7.2.8 CONTINUATION of HTTP/2", of(9, &[0]), unexpected),
        (
            "7.2.3 CANCEL_PUSH of no push",
            of(kind::CANCEL_PUSH, &[0]),
            id
        ),
        (
            "7.2.6 GOAWAY that increases",
            two(kind::GOAWAY, &[4], &[8]),
            id
        ),
        (
            "7.2.6 GOAWAY that does not",
            two(kind::GOAWAY, &[8], &[8]),
            ""
        ),
        (
            "7.2.7 MAX_PUSH_ID that decreases",
            two(kind::MAX_PUSH_ID, &[4], &[3]),
            id
        ),
        (
            "7.2.7 MAX_PUSH_ID that does not",
            two(kind::MAX_PUSH_ID, &[4], &[4]),
            ""
        ),
        (
            "RFC 9218 7.2 PRIORITY_UPDATE of no request",
            of(kind::PRIORITY_UPDATE_REQUEST, &[2]),
            id
        ),
        (
            "RFC 9218 7.2 PRIORITY_UPDATE of no push",
            of(kind::PRIORITY_UPDATE_PUSH, &[0]),
            id
        ),
        (
            "7.1 GOAWAY without an identifier",
            of(kind::GOAWAY, &[]),
            layout
        ),
        (
            "7.1 GOAWAY with more bytes",
            of(kind::GOAWAY, &[0, 0]),
            layout
        ),
        (
            "7.1 MAX_PUSH_ID that is cut off",
            of(kind::MAX_PUSH_ID, &[0x40]),
            layout
        ),
        (
            "7.1 MAX_PUSH_ID with more bytes",
            of(kind::MAX_PUSH_ID, &[0, 0]),
            layout
        ),
        (
            "7.1 CANCEL_PUSH without an identifier",
            of(kind::CANCEL_PUSH, &[]),
            layout
        ),
        (
            "7.1 PRIORITY_UPDATE without an identifier",
            of(kind::PRIORITY_UPDATE_REQUEST, &[]),
            layout
        ),
        (
            "a long PRIORITY_UPDATE",
            of(kind::PRIORITY_UPDATE_REQUEST, &[0; 1025]),
            "error EXCESSIVE_LOAD"
        ),
        ("9 an unknown frame of any length", of(0x21, &[0; 5000]), ""),
    ]);
}

#[test]
fn settings_of_the_client() {
    let outcome = |payload: &[u8]| {
        let mut harness = ServerHarness::new(H3Settings::default());
        harness.receive(
            CONTROL,
            &[&[0], &frame_of(kind::SETTINGS, payload)[..]].concat(),
        )
    };
    for id in [0, 2, 3, 4, 5] {
        assert_eq!(outcome(&[id, 0]), "error SETTINGS_ERROR", "7.2.4.1: {id}");
    }
    assert_eq!(
        outcome(&[1, 0, 6, 9, 1, 0]),
        "error SETTINGS_ERROR",
        "7.2.4: repeated"
    );
    assert_eq!(outcome(&[8, 2]), "error SETTINGS_ERROR", "RFC 9220 3");
    assert_eq!(outcome(&[6]), "error FRAME_ERROR", "7.1");
    assert_eq!(outcome(&[6, 0x40]), "error FRAME_ERROR", "7.1");
    assert_eq!(
        outcome(&[0x21, 9, 1, 0, 7, 0, 6, 1, 8, 1, 0x33, 1]),
        "",
        "9: unknown ones"
    );
    let many: Vec<u8> = (0..33)
        .flat_map(|id| [integer(100 + id), integer(0)].concat())
        .collect();
    assert_eq!(outcome(&many), "error EXCESSIVE_LOAD");
}

#[test]
fn unidirectional_streams() {
    let creation = "error STREAM_CREATION_ERROR";
    let critical = "error CLOSED_CRITICAL_STREAM";
    let on =
        |stream_id: u64, input: &str, is_end: bool| alloc::vec![(stream_id, bytes(input), is_end)];
    check(alloc::vec![
        (
            "6.2.1 a second control stream",
            on(14, "00", false),
            creation
        ),
        (
            "RFC 9204 4.2 a second encoder stream",
            on(14, "02", false),
            creation
        ),
        (
            "RFC 9204 4.2 a second decoder stream",
            on(14, "03", false),
            creation
        ),
        (
            "6.2.2 a push stream of a client",
            on(14, "01", false),
            creation
        ),
        (
            "6.2.1 the end of the control stream",
            on(CONTROL, "2100", true),
            critical
        ),
        (
            "RFC 9204 4.2 the end of the encoder stream",
            on(ENCODER, "", true),
            critical
        ),
        (
            "RFC 9204 4.2 the end of the decoder stream",
            on(DECODER, "48", true),
            critical
        ),
        ("6.2 the end before the type", on(14, "40", true), ""),
        (
            "RFC 9204 4.3.2 a static index of the encoder stream",
            on(ENCODER, "3fbd01 ff24 0161", false),
            "error QPACK_ENCODER_STREAM_ERROR"
        ),
        (
            "RFC 9204 3.2.2 an entry that is too large",
            on(ENCODER, "c00161", false),
            "error QPACK_ENCODER_STREAM_ERROR"
        ),
        (
            "RFC 9204 4.4.1 an acknowledgement of no section",
            on(DECODER, "80", false),
            "error QPACK_DECODER_STREAM_ERROR"
        ),
        (
            "RFC 9204 4.4.3 an increment beyond the insertions",
            on(DECODER, "01", false),
            "error QPACK_DECODER_STREAM_ERROR"
        ),
    ]);
    for stream_id in [CONTROL, ENCODER, DECODER, 3, 7] {
        let mut harness = ServerHarness::open(H3Settings::default());
        assert_eq!(harness.abort(stream_id), critical, "{stream_id}");
    }
    // RFC 9114 §6.2: unknown types are not errors; their bytes are ignored.
    let mut harness = ServerHarness::open(H3Settings::default());
    assert_eq!(harness.receive(18, &bytes("40")), "");
    assert_eq!(
        harness.receive(18, &bytes("54 0102")),
        "stop 18 STREAM_CREATION_ERROR"
    );
    assert_eq!(harness.receive(18, &bytes("00 02")), "");
    assert_eq!(harness.finish(18, &[]), "");
    assert_eq!(harness.abort(14), "", "before its type");
    assert_eq!(harness.receive(14, &bytes("00")), "");
    // Streams of the server can't have input.
    assert_eq!(harness.receive(3, &bytes("00")), "");
    assert_eq!(harness.receive(1, &bytes("00")), "");
    assert_eq!(harness.abort(1), "");
    let typeless = harness.receive(2 + 4 * 50, &bytes("40"));
    assert_eq!(typeless, "error EXCESSIVE_LOAD");
}

#[test]
fn undecodable_sections() {
    let failed = "error QPACK_DECOMPRESSION_FAILED";
    let of = |section: &str| request_stream(frame_of(kind::HEADERS, &bytes(section)));
    let trailers = [post(&[]), frame_of(kind::HEADERS, &bytes("0000 ff24"))].concat();
    check(alloc::vec![
        ("RFC 9204 2.2 an empty section", of(""), failed),
        (
            "RFC 9204 2.2.1 a dynamic index without insertions",
            of("0000 80"),
            failed
        ),
        (
            "RFC 9204 4.5.1.1 an impossible count",
            of("ff8002 00"),
            failed
        ),
        ("RFC 9204 4.5.1.2 a base below 0", of("0282 80"), failed),
        (
            "RFC 9204 4.1.2 a string that is cut off",
            of("0000 51 05 61"),
            failed
        ),
        ("RFC 9204 4.1.2 a Huffman code", of("0000 51 81 00"), failed),
        ("RFC 9204 2.2 trailers", request_stream(trailers), failed),
    ]);
}

#[test]
fn floods_end_the_connection() {
    let load = "error EXCESSIVE_LOAD";
    // Rapid reset.
    let mut harness = ServerHarness::open(H3Settings::default());
    let mut outcome = String::new();
    for number in 0..1100 {
        harness.receive(number * 4, &get("/", &[]));
        outcome = harness.abort(number * 4);
        harness.server.release_reset_stream(StreamId(number as u32));
        if outcome == load {
            break;
        }
    }
    assert_eq!(outcome, load);
    // Stream errors that the client provokes.
    let mut harness = ServerHarness::open(H3Settings::default());
    let bad = get("/", &[("Upper", "a")]);
    let last = (0..1100)
        .map(|number| harness.finish(number * 4, &bad))
        .find(|it| it == load);
    assert!(last.is_some());
    // Frames of little use.
    for frame in [frame_of(0x21, b""), data(b"")] {
        let mut harness = ServerHarness::open(H3Settings::default());
        let input = [post(&[]), frame.repeat(10_100)].concat();
        let heard = harness.receive(0, &input);
        assert!(heard.ends_with(load), "{heard}");
    }
    for kind in [
        0x21,
        kind::MAX_PUSH_ID,
        kind::GOAWAY,
        kind::PRIORITY_UPDATE_REQUEST,
    ] {
        let mut harness = ServerHarness::open(H3Settings::default());
        let input = frame_of(kind, &[0]).repeat(10_100);
        assert_eq!(harness.receive(CONTROL, &input), load);
    }
    // Streams of unknown types.
    let mut harness = ServerHarness::open(H3Settings::default());
    let last = (4..11_000)
        .map(|number| harness.finish(number * 4 + 2, &[0x21]))
        .find(|it| it == load);
    assert!(last.is_some());
}
