//! Bodies and field blocks that are passed directly to the protocol code, so that other code does not add to the cost.

use lowroad_http::h1;
use lowroad_http::h2::{self, ConnectionTurn, GlitchCounters, H2Settings, PREFACE, frame};
use lowroad_http::limits::RequestLimits;

use super::sizes::repeated;

/// Lengths of a body and of an HTTP/2 frame, below their limits.
const BODY_LEN: usize = 64 << 10;
const FRAME_LEN: usize = 14 << 10;

/// Prepares an input of a length. The instructions of the returned function are counted.
pub(super) type ProtocolInput = fn(usize) -> Box<dyn FnMut()>;

pub(super) const INPUTS: &[(&str, usize, ProtocolInput)] = &[
    ("chunks", BODY_LEN, |len| {
        parse_chunked_body(&repeated("1\r\na\r\n", len))
    }),
    ("chunk extensions", BODY_LEN, |len| {
        parse_chunked_body(&repeated("1;a=\"b\\\"c\";d\r\na\r\n", len))
    }),
    ("HTTP/2: fields", FRAME_LEN, |len| {
        parse_field_block(repeated(
            "\x00\x03x-a\x40abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01",
            len,
        ))
    }),
    ("HTTP/2: fields for the table", FRAME_LEN, |len| {
        parse_field_block(repeated(
            "\x40\x03x-a\x40abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01",
            len,
        ))
    }),
    ("HTTP/2: one large field", FRAME_LEN, |len| {
        parse_field_block(field(b"\x00\x03x-a", "a".repeat(len).as_bytes()))
    }),
    ("HTTP/2: a field of the table", FRAME_LEN, |len| {
        let mut fields = field(b"\x40\x03x-a", "a".repeat(2000).as_bytes());
        fields.resize(fields.len() + len, 0xbe);
        parse_field_block(fields)
    }),
    ("HTTP/2: cookies", FRAME_LEN, |len| {
        parse_field_block(repeated("\x00\x06cookie\x03a=b", len))
    }),
    ("HTTP/2: sizes of the table", FRAME_LEN, |len| {
        parse_http2(head(
            &[&vec![0x20; len][..], b"\x82\x86\x41\x01a\x84"].concat(),
            5,
        ))
    }),
    ("HTTP/2: priorities", FRAME_LEN, |len| {
        parse_field_block(field(
            b"\x00\x08priority",
            repeated("aN=1,", len).as_bytes(),
        ))
    }),
    ("HTTP/2: frames of a body", FRAME_LEN, |len| {
        // Flags 4, END_HEADERS: the stream stays open for the DATA frames (RFC 9113 section 6.2).
        let mut input = head(b"\x83\x86\x41\x01a\x84", 4);
        for _ in 0..len / 10 {
            frame::put_head(frame::kind::DATA, 0, 1, 1, &mut input);
            input.push(b'a');
        }
        parse_http2(input)
    }),
];

/// Parses a request with a chunked body.
fn parse_chunked_body(chunks: &str) -> Box<dyn FnMut()> {
    let head = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let input = format!("{head}{chunks}0\r\n\r\n").into_bytes();
    Box::new(move || {
        let (mut server, limits) = (h1::H1Server::default(), RequestLimits::default());
        let mut rest = input.as_slice();
        loop {
            let mut place = None;
            let step = server.next(rest, &limits, &mut place).expect("it is sound");
            rest = &rest[step.used..];
            if let Some(h1::H1ServerEvent::End { .. }) = step.event {
                return;
            }
        }
    })
}

/// An HPACK literal field: the bytes that encode its name, and a value of 127 bytes or more.
fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = [name, &[0x7f]].concat();
    let mut rest = value.len() - 0x7f;
    while rest >= 0x80 {
        // An HPACK integer continues in groups of 7 bits, the lowest first (RFC 7541 §5.1).
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    [bytes.as_slice(), value].concat()
}

/// Parses a GET with these additional bytes in its field block.
fn parse_field_block(fields: impl AsRef<[u8]>) -> Box<dyn FnMut()> {
    // Flags 5, END_HEADERS and END_STREAM: the request has no body (RFC 9113 section 6.2).
    parse_http2(head(
        &[b"\x82\x86\x41\x01a\x84", fields.as_ref()].concat(),
        5,
    ))
}

fn head(block: &[u8], flags: u8) -> Vec<u8> {
    let mut input = PREFACE.to_vec();
    frame::put_settings(&[], &mut input);
    frame::put_head(frame::kind::HEADERS, flags, 1, block.len(), &mut input);
    input.extend_from_slice(block);
    input
}

/// Parses the input of an HTTP/2 connection.
fn parse_http2(input: Vec<u8>) -> Box<dyn FnMut()> {
    Box::new(move || {
        let (settings, mut counters) = (H2Settings::default(), GlitchCounters::default());
        let (mut out, mut text) = (Vec::new(), Vec::new());
        let mut turn = ConnectionTurn {
            now_ms: 1,
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        };
        let mut server = h2::H2Server::new(&mut turn);
        let mut rest = input.as_slice();
        loop {
            let mut place = None;
            match server.next(rest, &mut text, &mut place, &mut turn) {
                Ok(step) if step.event.is_some() || step.used > 0 => rest = &rest[step.used..],
                // All input was parsed, or the connection has ended.
                Ok(_) | Err(_) => return,
            }
        }
    })
}
