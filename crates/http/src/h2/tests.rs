//! Tests of `H2Server` with a client that writes frames by hand. `receive` passes bytes to the server and returns its
//! events, `take_output` returns its output, both as text.

mod bodies;
mod errors;
mod floods;
mod order;
mod requests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::frame::{self, FrameHead, HEAD_LEN, flag, kind};
use super::hpack::probe::DecoderProbe;
use super::hpack::{put_pseudo, put_unindexed};
use super::*;
use crate::fields::FieldLines;
use crate::h1::BodyLen;
use crate::protocol::ServerProtocol;
use crate::status::StatusCode;

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

/// A server and its output.
struct ServerHarness {
    server: H2Server,
    settings: H2Settings,
    counters: GlitchCounters,
    now_ms: u64,
    out: Vec<u8>,
    probe: DecoderProbe,
    /// Unconsumed input.
    rest: Vec<u8>,
}

impl ServerHarness {
    /// A new server.
    fn new(settings: H2Settings) -> ServerHarness {
        let (mut out, mut counters) = (Vec::new(), GlitchCounters::default());
        let server = H2Server::new(&mut ConnectionTurn {
            now_ms: 1,
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        });
        ServerHarness {
            server,
            settings,
            counters,
            now_ms: 1,
            out,
            probe: DecoderProbe::new(4096),
            rest: Vec::new(),
        }
    }

    /// A server after the exchange of settings.
    fn open(settings: H2Settings) -> ServerHarness {
        let mut harness = ServerHarness::new(settings);
        let mut input = PREFACE.to_vec();
        frame::put_settings(&[], &mut input);
        frame::put_settings_ack(&mut input);
        assert_eq!(harness.receive(&input), "");
        assert!(!harness.server.is_new() && !harness.server.awaits_acknowledgement());
        harness.out.clear();
        harness
    }

    /// Passes bytes to the server.
    fn receive(&mut self, bytes: &[u8]) -> String {
        let mut parts: Vec<String> = Vec::new();
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            let (mut text, mut place) = (Vec::new(), None);
            let mut turn = ConnectionTurn {
                now_ms: self.now_ms,
                settings: &self.settings,
                out: &mut self.out,
                counters: &mut self.counters,
            };
            let step = self
                .server
                .next(&self.rest[used..], &mut text, &mut place, &mut turn);
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    parts.push(format!("fault {}", fault.code.name()));
                    used = self.rest.len();
                    break;
                }
            };
            used += step.used;
            if step.event.is_none() && step.used == 0 {
                break;
            }
            parts.extend(step.event.map(|event| describe_event(&event)));
        }
        self.rest.drain(..used);
        parts.join(", ")
    }

    /// The output since the last call.
    fn take_output(&mut self) -> String {
        let mut out = core::mem::take(&mut self.out);
        let parts = describe_frames(&mut self.probe, &out);
        out.clear();
        self.out = out;
        parts
    }

    /// Sends data, in frames of at most `len_max` bytes.
    fn send(&mut self, len_max: usize) {
        while let Some(piece) = self.server.send(len_max, &mut self.out) {
            let len = self.out.len();
            self.out.resize(len + piece.len as usize, b'x');
        }
    }

    /// Answers a stream with a body of this length.
    fn respond(&mut self, stream: u32, len: u64) {
        let stream = StreamId(stream);
        let known = BodyLen::Known(len);
        let has_body = self.server.respond(
            stream,
            StatusCode::OK,
            FieldLines::NONE,
            known,
            &DATE,
            &mut self.out,
        );
        if has_body {
            assert_eq!(self.server.body(stream, len), Ok(true));
            assert_eq!(self.server.end(stream, FieldLines::NONE), Ok(()));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}

fn describe_event(event: &H2ServerEvent<'_, '_>) -> String {
    match event {
        H2ServerEvent::Request(head) => {
            let request = &head.request;
            let mut parts = format!(
                "{} {:?} {} {} [{}]",
                head.stream.0,
                request.method,
                text(request.raw_target()),
                text(request.authority.unwrap_or_default()),
                text(request.lines())
            );
            if head.has_body {
                parts += &format!(" body {:?}", head.body_len);
            }
            parts
        }
        H2ServerEvent::Data { stream, data } => match data.len() {
            ..20 => format!("{} data {}", stream.0, text(data)),
            len => format!("{} data {len}", stream.0),
        },
        H2ServerEvent::End { stream, trailers } => {
            let all = trailers
                .clone()
                .map(|(name, value)| [name, b"=", value].concat());
            let all: Vec<u8> = all.flatten().collect();
            format!("{} end{}", stream.0, text(&all))
        }
        H2ServerEvent::Refused {
            stream, refusal, ..
        } => format!("{} refused {refusal:?}", stream.0),
        H2ServerEvent::Reset { stream, code } => format!("{} reset {}", stream.0, code.name()),
    }
}

/// Frames as text.
fn describe_frames(probe: &mut DecoderProbe, mut bytes: &[u8]) -> String {
    let mut parts = Vec::new();
    while let Some(head) = bytes.first_chunk().map(FrameHead::parse) {
        let payload = &bytes[HEAD_LEN..][..head.len];
        bytes = &bytes[HEAD_LEN + head.len..];
        let id = head.stream;
        let end = if head.has(flag::END_STREAM) {
            " end"
        } else {
            ""
        };
        parts.push(match head.kind {
            kind::DATA => format!("{id} data {}{end}", head.len),
            kind::HEADERS => {
                let fields = probe.decode(payload).unwrap_or_default();
                let fields: Vec<String> = fields
                    .iter()
                    .filter(|(name, _)| name != b"date")
                    .map(|(name, value)| format!("{}={}", text(name), text(value)))
                    .collect();
                format!("{id} head {}{end}", fields.join(" "))
            }
            kind::RST_STREAM => format!("{id} reset {}", ErrorCode(frame::word(payload)).name()),
            kind::SETTINGS if head.has(flag::ACK) => "settings ok".into(),
            kind::SETTINGS => format!("settings {}", head.len / 6),
            kind::PING if head.has(flag::ACK) => format!("pong {}", text(payload)),
            kind::PING => format!("ping {}", text(payload)),
            kind::GOAWAY => {
                let code = ErrorCode(frame::word(&payload[4..]));
                format!("goaway {} {}", frame::word(payload), code.name())
            }
            kind::WINDOW_UPDATE => format!("{id} window {}", frame::word(payload)),
            other => format!("{id} frame {other}"),
        });
    }
    assert!(bytes.is_empty(), "whole frames");
    parts.join(", ")
}

/// A field block of names and values.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        put_unindexed(name.as_bytes(), value.as_bytes(), &mut block);
    }
    block
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put_head(kind, flags, stream, payload.len(), &mut out);
    out.extend_from_slice(payload);
    out
}

/// A GET of a path on host `h`, with other fields.
fn get(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    headers(stream, "GET", path, more, true)
}

fn post(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    headers(stream, "POST", "/p", more, false)
}

fn headers(stream: u32, method: &str, path: &str, more: &[(&str, &str)], is_end: bool) -> Vec<u8> {
    let mut fields = alloc::vec![
        (":method", method),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", path),
    ];
    fields.extend_from_slice(more);
    let flags = flag::END_HEADERS | u8::from(is_end);
    frame_of(kind::HEADERS, flags, stream, &block(&fields))
}

fn data(stream: u32, payload: &[u8], is_end: bool) -> Vec<u8> {
    frame_of(kind::DATA, u8::from(is_end), stream, payload)
}

fn window(stream: u32, increment: u32) -> Vec<u8> {
    frame_of(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn reset(stream: u32) -> Vec<u8> {
    frame_of(
        kind::RST_STREAM,
        0,
        stream,
        &ErrorCode::CANCEL.0.to_be_bytes(),
    )
}

#[test]
fn pseudo_headers_use_the_static_table() {
    let mut block = Vec::new();
    put_pseudo(4, b"/x", &mut block);
    let heard = DecoderProbe::new(0).decode(&block).expect("a field");
    assert_eq!(heard, [(b":path".to_vec(), b"/x".to_vec())]);
}
