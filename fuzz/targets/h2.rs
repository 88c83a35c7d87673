//! Fuzz target: HTTP/2 connections. The input is the bytes that a server or client receives, frames that are built
//! from it, or the operations of both ends.
//!
//! Checks beside "no panic": a server parses and sends the same regardless of the reads; it sends whole frames; and two
//! correct ends find no fault in each other, with any operations.

#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::frame::{self, FrameHead, HEAD_LEN};
use lowroad_http::h2::{
    ConnectionTurn, ErrorCode, GlitchCounters, H2Client, H2ClientEvent, H2Server, H2ServerEvent,
    H2Settings, OutgoingRequest, PREFACE, Priority, StreamId,
};
use lowroad_http::protocol::ServerProtocol;
use lowroad_http::{Method, StatusCode, host};
use lowroad_limits::{CellRate, RequestRate};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

fuzz_target!(|input: &[u8]| {
    let Some((mode, input)) = input.split_first() else {
        return;
    };
    match mode % 4 {
        0 => cut_alike(&[PREFACE, input].concat()),
        1 => cut_alike(&framed(input)),
        2 => visit(input),
        _ => talk(input),
    }
});

/// Frames with valid headers: for each, five bytes of the input give type, flags, stream and length.
fn framed(mut input: &[u8]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame::put_settings(&[], &mut bytes);
    while let Some(([kind, flags, stream, len, how], rest)) = input.split_first_chunk() {
        let len = usize::from(*len).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        let stream = match how & 3 {
            0 => 0,
            _ => u32::from(stream & 15),
        };
        frame::put_head(kind % 18, *flags, stream, len, &mut bytes);
        bytes.extend_from_slice(payload);
        input = rest;
    }
    bytes
}

fn cut_alike(input: &[u8]) {
    let at_once = serve(input, input.len());
    for read_len in [1, 2, 3, 7, 10, 64] {
        assert_eq!(serve(input, read_len), at_once, "reads of {read_len}");
    }
}

/// The parsed events as text, and the bytes that were sent.
fn serve(input: &[u8], read_len: usize) -> (Vec<String>, Vec<u8>) {
    let settings = H2Settings {
        accepts_connect_protocol: input.len().is_multiple_of(2),
        ..H2Settings::default()
    };
    let (mut out, mut counters, mut words) = (Vec::new(), GlitchCounters::default(), Vec::new());
    let mut turn = ConnectionTurn {
        now_ms: 1,
        settings: &settings,
        out: &mut out,
        counters: &mut counters,
    };
    let mut server = H2Server::new(&mut turn);
    let (mut used, mut come) = (0, 0);
    loop {
        let (mut text, mut place) = (Vec::new(), None);
        let step = match server.next(&input[used..come], &mut text, &mut place, &mut turn) {
            Ok(step) => step,
            Err(fault) => {
                words.push(format!("{fault:?}"));
                assert!(server.is_finished());
                break;
            }
        };
        used += step.used;
        assert!(used <= come);
        match step.event {
            None if step.used > 0 => {}
            None if come == input.len() => break,
            None => come = input.len().min(come + read_len.max(1)),
            Some(H2ServerEvent::Request(head)) => {
                let request = &head.request;
                assert!(
                    request
                        .fields()
                        .filter(|(name, _)| *name == b"host")
                        .count()
                        <= 1
                );
                let fields: Vec<_> = request.fields().collect();
                words.push(format!("{:?} {:?} {fields:?}", head.stream, request.target));
                // Every other stream gets its response at once, the rest later or never.
                if head.stream.0 % 4 == 1 {
                    let len = BodyLen::Known(5);
                    if server.respond(
                        head.stream,
                        StatusCode::OK,
                        FieldLines::NONE,
                        len,
                        &DATE,
                        turn.out,
                    ) {
                        assert_eq!(server.body(head.stream, 5), Ok(true));
                        assert_eq!(server.end(head.stream, FieldLines::NONE), Ok(()));
                    }
                }
            }
            Some(H2ServerEvent::Data { stream, data }) => {
                assert!(!data.is_empty());
                add_data(&mut words, stream, data);
            }
            Some(H2ServerEvent::End { stream, trailers }) => {
                words.push(format!("{stream:?} end {}", trailers.count()));
            }
            Some(H2ServerEvent::Refused {
                stream,
                refusal,
                request,
            }) => {
                let authority = request.and_then(|request| request.authority);
                assert!(authority.is_none_or(host::is_valid));
                words.push(format!("{stream:?} {refusal:?}"));
                server.respond(
                    stream,
                    refusal.status(),
                    FieldLines::NONE,
                    BodyLen::None,
                    &DATE,
                    turn.out,
                );
            }
            Some(H2ServerEvent::Reset { stream, code }) => {
                words.push(format!("{stream:?} {code:?}"));
                server.release_reset_stream(stream, turn.out);
            }
        }
    }
    while let Some(piece) = server.send(100, turn.out) {
        turn.out.resize(turn.out.len() + piece.len as usize, b'x');
    }
    whole_frames(&out);
    (words, out)
}

fn whole_frames(mut bytes: &[u8]) {
    while let Some(head) = bytes.first_chunk().map(FrameHead::parse) {
        assert!(head.check().is_ok());
        bytes = &bytes[HEAD_LEN + head.len..];
    }
    assert!(bytes.is_empty());
}

fn add_data(words: &mut Vec<String>, stream: StreamId, data: &[u8]) {
    let start = format!("{stream:?} data ");
    let text: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    match words.last_mut() {
        Some(last) if last.starts_with(&start) => last.push_str(&text),
        _ => words.push(start + &text),
    }
}

/// A client with three pending requests receives the input.
fn visit(input: &[u8]) {
    let (settings, mut counters, mut out) =
        (H2Settings::default(), GlitchCounters::default(), Vec::new());
    let mut turn = ConnectionTurn {
        now_ms: 1,
        settings: &settings,
        out: &mut out,
        counters: &mut counters,
    };
    let mut client = H2Client::new(&mut turn);
    for method in [Method::Get, Method::Head, Method::Post] {
        let len = if method == Method::Post {
            BodyLen::Unknown
        } else {
            BodyLen::None
        };
        ask(&mut client, method, len, turn.out);
    }
    let mut bytes = Vec::new();
    frame::put_settings(&[], &mut bytes);
    bytes.extend_from_slice(&framed(input)[PREFACE.len() + HEAD_LEN..]);
    let mut used = 0;
    loop {
        let mut text = Vec::new();
        let Ok(step) = client.next(&bytes[used..], &mut text, &mut turn) else {
            break;
        };
        used += step.used;
        if step.event.is_none() && step.used == 0 {
            break;
        }
        if let Some(H2ClientEvent::Data { stream, data }) = step.event {
            client.release_capacity(stream, data.len(), turn.out);
        }
    }
    whole_frames(&out[PREFACE.len()..]);
}

fn ask(client: &mut H2Client, method: Method, len: BodyLen, out: &mut Vec<u8>) -> Option<StreamId> {
    let ask = OutgoingRequest {
        method,
        is_https: true,
        authority: b"h",
        path: b"/a",
        protocol: None,
    };
    client
        .request(&ask, FieldLines::new(b"Accept: */*\r\n"), len, out)
        .ok()
}

/// The requests and events of both ends.
#[derive(Default)]
struct StandardHeader {
    /// Bytes of bodies still to arrive, by stream: of requests, and of responses.
    requests: HashMap<StreamId, u64>,
    responses: HashMap<StreamId, u64>,
    heard: HashMap<StreamId, u64>,
}

/// Both ends perform the operations of the input, two bytes for each.
fn talk(input: &[u8]) {
    // An unlimited rate: a long input may open and reset more streams than a server tolerates.
    let patient = CellRate::new(RequestRate {
        requests: 1,
        period_ms: 1000,
        burst: u32::MAX.into(),
    });
    let settings = H2Settings {
        streams_max: 5,
        resets: patient,
        glitches: patient,
        ..H2Settings::default()
    };
    let mut counters = GlitchCounters::default();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    macro_rules! turn {
        ($out:expr) => {
            &mut ConnectionTurn {
                now_ms: 1,
                settings: &settings,
                out: $out,
                counters: &mut counters,
            }
        };
    }
    let (mut client, mut server) = (
        H2Client::new(turn!(&mut up)),
        H2Server::new(turn!(&mut down)),
    );
    let (mut known, mut last) = (StandardHeader::default(), StreamId(1));
    for pair in input.chunks_exact(2) {
        let (operation, number) = (pair[0] % 10, pair[1]);
        // One of the last streams; those of clients have odd numbers (RFC 9113 §5.1.1).
        let some = StreamId(last.0.saturating_sub(u32::from(number & 6)) | 1);
        match operation {
            0 | 1 => {
                let len = if operation == 0 {
                    BodyLen::None
                } else {
                    BodyLen::Known(u64::from(number) * 100 + 1)
                };
                if let Some(stream) = ask(&mut client, Method::Post, len, &mut up) {
                    last = stream;
                    if let BodyLen::Known(len) = len {
                        assert_eq!(client.body(stream, len), Ok(true));
                        assert_eq!(client.end(stream, FieldLines::new(b"x: y\r\n")), Ok(()));
                        known.requests.insert(stream, len);
                    }
                }
            }
            2 | 3 => {
                let len = u64::from(number) * 300;
                if server.respond(
                    some,
                    StatusCode::OK,
                    FieldLines::NONE,
                    BodyLen::Unknown,
                    &DATE,
                    &mut down,
                ) {
                    assert_eq!(server.body(some, len), Ok(true));
                    assert_eq!(server.end(some, FieldLines::NONE), Ok(()));
                    known.responses.insert(some, len);
                }
            }
            4 => {
                client.reset(some, ErrorCode::CANCEL, &mut up);
                // A reset response ends early.
                known.heard.remove(&some);
            }
            5 => server.reset(some, ErrorCode::INTERNAL_ERROR, &mut down),
            6 => server.discard_body(some, &mut down),
            7 => frame::put_priority_update(some.0, &[b'u', b'=', b'0' + number % 8], &mut up),
            8 => frame::put_ping(
                false,
                [number; 8],
                if number & 1 == 0 { &mut up } else { &mut down },
            ),
            _ => {
                // Shorter pieces for a stream that is reset would count as a flood.
                let len_max = 300 + usize::from(number) * 10;
                while let Some(piece) = client.send(len_max, &mut up) {
                    up.resize(up.len() + piece.len as usize, b'x');
                }
                while let Some(piece) = server.send(len_max, &mut down) {
                    down.resize(down.len() + piece.len as usize, b'x');
                }
                let bytes = std::mem::take(&mut up);
                hear_server(&mut server, &bytes, turn!(&mut down));
                let bytes = std::mem::take(&mut down);
                hear_client(&mut client, &bytes, &mut known, turn!(&mut up));
            }
        }
    }
    // No correct operation may end a connection.
    assert_eq!((counters.ended, counters.malformed), (0, 0));
    let _ = Priority::parse(input);
}

fn hear_server(server: &mut H2Server, bytes: &[u8], turn: &mut ConnectionTurn<'_>) {
    let mut used = 0;
    loop {
        let (mut text, mut place) = (Vec::new(), None);
        let step = server.next(&bytes[used..], &mut text, &mut place, turn);
        let step = step.expect("a client that is right");
        used += step.used;
        match step.event {
            None if step.used == 0 => break,
            Some(H2ServerEvent::Data { stream, data }) => {
                server.release_capacity(stream, data.len(), turn.out)
            }
            Some(H2ServerEvent::Reset { stream, code }) => {
                // The client resets streams with this code only.
                assert_eq!(code, ErrorCode::CANCEL);
                server.release_reset_stream(stream, turn.out);
            }
            Some(H2ServerEvent::Refused { refusal, .. }) => panic!("{refusal:?}"),
            _ => {}
        }
    }
    assert_eq!(used, bytes.len());
}

fn hear_client(
    client: &mut H2Client,
    bytes: &[u8],
    known: &mut StandardHeader,
    turn: &mut ConnectionTurn<'_>,
) {
    let mut used = 0;
    loop {
        let mut text = Vec::new();
        let step = client.next(&bytes[used..], &mut text, turn);
        let step = step.expect("a server that is right");
        used += step.used;
        match step.event {
            None if step.used == 0 => break,
            Some(H2ClientEvent::Data { stream, data }) => {
                *known.heard.entry(stream).or_default() += data.len() as u64;
                client.release_capacity(stream, data.len(), turn.out);
            }
            Some(H2ClientEvent::End { stream, .. }) => {
                let heard = known.heard.remove(&stream).unwrap_or(0);
                // A response that ended has all of its bytes.
                assert_eq!(Some(heard), known.responses.get(&stream).copied());
            }
            _ => {}
        }
    }
    assert_eq!(used, bytes.len());
}
