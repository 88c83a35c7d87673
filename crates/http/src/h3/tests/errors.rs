//! Errors that a client can make on request streams, with their error codes, and the cases of h3spec.

use super::*;
use crate::field_coding::test_text::bytes;

/// The input of one stream, and whether the stream ends with it.
pub(super) type Input = (u64, Vec<u8>, bool);

/// The events and errors of a server with open streams of the client after these inputs, whole and byte by byte.
pub(super) fn outcome(inputs: &[Input]) -> String {
    let whole = outcome_in_parts(inputs, usize::MAX);
    assert_eq!(outcome_in_parts(inputs, 1), whole, "byte by byte");
    whole
}

fn outcome_in_parts(inputs: &[Input], len_max: usize) -> String {
    let mut harness = ServerHarness::open(H3Settings::default());
    let mut events = Vec::new();
    for (stream_id, bytes, is_end) in inputs {
        let count = bytes.chunks(len_max.min(bytes.len().max(1))).count();
        for (at, part) in bytes.chunks(len_max.min(bytes.len().max(1))).enumerate() {
            events.extend(harness.deliver(*stream_id, part, *is_end && at + 1 == count));
        }
        if bytes.is_empty() {
            events.extend(harness.deliver(*stream_id, &[], *is_end));
        }
    }
    let is_fault = |event: &&String| event.contains("error") || event.contains("reset");
    let fault = events.iter().find(is_fault).cloned().unwrap_or_default();
    // After a connection error, nothing is processed.
    if fault.starts_with("error") {
        assert!(harness.server.is_finished());
        assert_eq!(harness.finish(400, &get("/", &[])), "");
        assert_eq!(harness.abort(400), "");
    }
    fault
}

pub(super) fn request_stream(input: Vec<u8>) -> Vec<Input> {
    alloc::vec![(0, input, true)]
}

pub(super) fn control_stream(input: Vec<u8>) -> Vec<Input> {
    alloc::vec![(CONTROL, input, false)]
}

/// A request with these fields, and no other ones.
fn fields(fields: &[(&str, &str)]) -> Vec<Input> {
    request_stream(frame_of(kind::HEADERS, &section(fields)))
}

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "https");
const AUTHORITY: (&str, &str) = (":authority", "h");
const PATH: (&str, &str) = (":path", "/");

pub(super) fn check(cases: Vec<(&str, Vec<Input>, &str)>) {
    for (name, inputs, wanted) in cases {
        assert_eq!(outcome(&inputs), wanted, "{name}");
    }
}

#[test]
fn h3spec_cases() {
    // The cases of h3spec about HTTP/3 and QPACK, by their names.
    let fresh = |input: Vec<u8>| {
        let mut harness = ServerHarness::new(H3Settings::default());
        harness.receive(CONTROL, &input)
    };
    let first = [&[0], &data(b"")[..]].concat();
    assert_eq!(
        fresh(first),
        "error MISSING_SETTINGS",
        "MUST send H3_MISSING_SETTINGS if the first control frame is not SETTINGS [HTTP/3 6.2.1]"
    );
    let http2_settings = [&[0], &frame_of(kind::SETTINGS, &[4, 1])[..]].concat();
    assert_eq!(
        fresh(http2_settings),
        "error SETTINGS_ERROR",
        "MUST send H3_SETTINGS_ERROR if HTTP/2 settings are included [HTTP/3 7.2.4.1]"
    );
    check(alloc::vec![
        (
            "MUST send H3_FRAME_UNEXPECTED if DATA is received before HEADERS [HTTP/3 4.1]",
            request_stream([data(b""), get("/", &[])].concat()),
            "error FRAME_UNEXPECTED",
        ),
        (
            "MUST send H3_MESSAGE_ERROR if a pseudo-header is duplicated [HTTP/3 4.1.1]",
            fields(&[METHOD, SCHEME, AUTHORITY, PATH, PATH]),
            "0 reset MESSAGE_ERROR",
        ),
        (
            "MUST send H3_MESSAGE_ERROR if mandatory pseudo-header fields are absent [HTTP/3 4.1.3]",
            fields(&[METHOD, SCHEME, AUTHORITY]),
            "0 reset MESSAGE_ERROR",
        ),
        (
            "MUST send H3_MESSAGE_ERROR if prohibited pseudo-header fields are present [HTTP/3 4.1.3]",
            fields(&[METHOD, SCHEME, AUTHORITY, PATH, (":foo", "bar")]),
            "0 reset MESSAGE_ERROR",
        ),
        (
            "MUST send H3_MESSAGE_ERROR if pseudo-header fields exist after fields [HTTP/3 4.1.3]",
            fields(&[METHOD, SCHEME, AUTHORITY, ("a", "b"), PATH]),
            "0 reset MESSAGE_ERROR",
        ),
        (
            "MUST send H3_FRAME_UNEXPECTED if a DATA frame is received on a control stream [HTTP/3 7.2.1]",
            control_stream(data(b"")),
            "error FRAME_UNEXPECTED",
        ),
        (
            "MUST send H3_FRAME_UNEXPECTED if a HEADERS frame is received on a control stream [HTTP/3 7.2.2]",
            control_stream(frame_of(kind::HEADERS, b"")),
            "error FRAME_UNEXPECTED",
        ),
        (
            "MUST send H3_FRAME_UNEXPECTED if a second SETTINGS frame is received [HTTP/3 7.2.4]",
            control_stream(frame_of(kind::SETTINGS, b"")),
            "error FRAME_UNEXPECTED",
        ),
        (
            "MUST send H3_FRAME_UNEXPECTED if CANCEL_PUSH is received in a request stream [HTTP/3 7.2.5]",
            request_stream(frame_of(kind::CANCEL_PUSH, b"")),
            "error FRAME_UNEXPECTED",
        ),
        (
            "MUST send QPACK_DECOMPRESSION_FAILED if an invalid static table index exists in a field line \
             representation [QPACK 3.1]",
            request_stream(frame_of(kind::HEADERS, &bytes("0000 ff24"))),
            "error QPACK_DECOMPRESSION_FAILED",
        ),
        (
            "MUST send QPACK_ENCODER_STREAM_ERROR if a new dynamic table capacity value exceeds the limit \
             [QPACK 4.1.3]",
            alloc::vec![(ENCODER, bytes("3fe21f"), false)],
            "error QPACK_ENCODER_STREAM_ERROR",
        ),
        (
            "MUST send H3_CLOSED_CRITICAL_STREAM if a control stream is closed [QPACK 4.2]",
            alloc::vec![(CONTROL, Vec::new(), true)],
            "error CLOSED_CRITICAL_STREAM",
        ),
        (
            "MUST send QPACK_DECODER_STREAM_ERROR if Insert Count Increment is 0 [QPACK 4.4.3]",
            alloc::vec![(DECODER, bytes("00"), false)],
            "error QPACK_DECODER_STREAM_ERROR",
        ),
    ]);
}

#[test]
fn frames_on_request_streams() {
    let unexpected = "error FRAME_UNEXPECTED";
    let trailers = || frame_of(kind::HEADERS, &section(&[("a", "b")]));
    let connect = section(&[(":method", "CONNECT"), (":authority", "h:1")]);
    let tunnel = |next: Vec<u8>| [frame_of(kind::HEADERS, &connect), next].concat();
    let after_head = |kind: u64| request_stream([get("/", &[]), frame_of(kind, &[0])].concat());
    check(alloc::vec![
        (
            "4.1 a frame after trailers",
            request_stream([post(&[]), trailers(), data(b"a")].concat()),
            unexpected
        ),
        (
            "4.1 HEADERS after trailers",
            request_stream([post(&[]), trailers(), trailers()].concat()),
            unexpected
        ),
        (
            "4.4 HEADERS in a tunnel",
            request_stream(tunnel(trailers())),
            unexpected
        ),
        (
            "7.2.3 CANCEL_PUSH",
            after_head(kind::CANCEL_PUSH),
            unexpected
        ),
        ("7.2.4 SETTINGS", after_head(kind::SETTINGS), unexpected),
        (
            "7.2.4 SETTINGS first",
            request_stream(frame_of(kind::SETTINGS, b"")),
            unexpected
        ),
        (
            "7.2.5 PUSH_PROMISE",
            after_head(kind::PUSH_PROMISE),
            unexpected
        ),
        ("7.2.6 GOAWAY", after_head(kind::GOAWAY), unexpected),
        (
            "7.2.7 MAX_PUSH_ID",
            after_head(kind::MAX_PUSH_ID),
            unexpected
        ),
        ("7.2.8 PRIORITY of HTTP/2", after_head(2), unexpected),
        ("7.2.8 PING of HTTP/2", after_head(6), unexpected),
        ("7.2.8 WINDOW_UPDATE of HTTP/2", after_head(8), unexpected),
        ("7.2.8 CONTINUATION of HTTP/2", after_head(9), unexpected),
        (
            "RFC 9218 7.2 PRIORITY_UPDATE",
            after_head(kind::PRIORITY_UPDATE_REQUEST),
            unexpected
        ),
        (
            "RFC 9218 7.2 PRIORITY_UPDATE of a push",
            after_head(kind::PRIORITY_UPDATE_PUSH),
            unexpected
        ),
        (
            "7.1 an end within a frame header",
            request_stream(bytes("01")),
            "error FRAME_ERROR"
        ),
        (
            "7.1 an end within HEADERS",
            request_stream(bytes("0105 0000")),
            "error FRAME_ERROR"
        ),
        (
            "7.1 an end within DATA",
            request_stream([post(&[]), bytes("0005 61")].concat()),
            "error FRAME_ERROR"
        ),
        (
            "7.1 an end within an unknown frame",
            request_stream([post(&[]), bytes("2105 61")].concat()),
            "error FRAME_ERROR"
        ),
        (
            "4.1 an end without a request",
            request_stream(Vec::new()),
            "0 reset REQUEST_INCOMPLETE"
        ),
        (
            "4.1 an unknown frame alone",
            request_stream(bytes("2101 61")),
            "0 reset REQUEST_INCOMPLETE"
        ),
    ]);
}

#[test]
fn malformed_messages() {
    let with = |more: &[(&'static str, &'static str)]| {
        fields(&[&[METHOD, SCHEME, AUTHORITY, PATH], more].concat())
    };
    let mut cases = alloc::vec![
        (
            "4.1.2 more content",
            request_stream([post(&[("content-length", "1")]), data(b"ab")].concat())
        ),
        (
            "4.1.2 less content",
            request_stream([post(&[("content-length", "3")]), data(b"ab")].concat())
        ),
        ("4.1.2 no content", with(&[("content-length", "1")])),
        (
            "4.1.2 two lengths",
            with(&[("content-length", "0"), ("content-length", "0")])
        ),
        (
            "4.1.2 a length that is no number",
            with(&[("content-length", "a")])
        ),
        ("4.2 an upper-case name", with(&[("Upper", "a")])),
        ("4.2 a name that is no token", with(&[("a b", "a")])),
        ("4.2 an empty name", with(&[("", "a")])),
        ("4.2 Connection", with(&[("connection", "close")])),
        ("4.2 Keep-Alive", with(&[("keep-alive", "1")])),
        ("4.2 Proxy-Connection", with(&[("proxy-connection", "a")])),
        (
            "4.2 Transfer-Encoding",
            with(&[("transfer-encoding", "chunked")])
        ),
        ("4.2 Upgrade", with(&[("upgrade", "websocket")])),
        ("4.2 TE", with(&[("te", "gzip")])),
        ("10.3 a line end", with(&[("a", "b\r\nc: d")])),
        ("10.3 NUL", with(&[("a", "b\0")])),
        (
            "4.3 a pseudo-header of responses",
            with(&[(":status", "200")])
        ),
        (
            "4.3 a pseudo-header after a field",
            with(&[("a", "b"), (":path", "/")])
        ),
        ("4.3.1 a repeated pseudo-header", with(&[PATH])),
        ("4.3.1 Host that differs", with(&[("host", "i")])),
        ("4.3.1 no method", fields(&[SCHEME, AUTHORITY, PATH])),
        ("4.3.1 no scheme", fields(&[METHOD, AUTHORITY, PATH])),
        ("4.3.1 no path", fields(&[METHOD, SCHEME, AUTHORITY])),
        (
            "4.3.1 an empty path",
            fields(&[METHOD, SCHEME, AUTHORITY, (":path", "")])
        ),
        (
            "4.3.1 neither authority nor Host",
            fields(&[METHOD, SCHEME, PATH])
        ),
        (
            "4.4 CONNECT with a path",
            fields(&[(":method", "CONNECT"), AUTHORITY, PATH])
        ),
        (
            "4.4 CONNECT with a scheme",
            fields(&[(":method", "CONNECT"), AUTHORITY, SCHEME])
        ),
        (
            "4.4 CONNECT without an authority",
            fields(&[(":method", "CONNECT")])
        ),
        (
            "RFC 9220 :protocol without the setting",
            with(&[(":protocol", "websocket")])
        ),
    ];
    for trailer in [
        (":path", "/"),
        ("Upper", "a"),
        ("connection", "close"),
        ("a", "b\r\n"),
    ] {
        let trailers = frame_of(kind::HEADERS, &section(&[trailer]));
        cases.push((
            "4.3 trailers",
            request_stream([post(&[]), trailers].concat()),
        ));
    }
    let short = [
        post(&[("content-length", "3")]),
        frame_of(kind::HEADERS, &section(&[])),
    ];
    cases.push((
        "4.1.2 less content before trailers",
        request_stream(short.concat()),
    ));
    check(
        cases
            .into_iter()
            .map(|(name, inputs)| (name, inputs, "0 reset MESSAGE_ERROR"))
            .collect(),
    );
}

#[test]
fn malformed_request_is_counted_and_leaves_the_connection_open() {
    let mut harness = ServerHarness::open(H3Settings::default());
    assert_eq!(
        harness.finish(0, &get("/", &[("Upper", "a")])),
        "0 reset MESSAGE_ERROR"
    );
    assert_eq!(
        (harness.counters.malformed, harness.counters.faults),
        (1, 1)
    );
    assert!(harness.server.is_idle() && !harness.server.is_finished());
    assert!(
        harness
            .finish(4, &get("/", &[("te", "trailers")]))
            .starts_with("1 Get")
    );
}
