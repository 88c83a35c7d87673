//! Tests of `H3Server` with a client that writes frames by hand. `receive` passes bytes of a stream to the server and
//! returns its events, `take_output` returns the output of a stream, both as text.

mod connection_errors;
mod differential;
mod errors;
mod parts;
mod qpack_streams;
mod requests;
mod sending;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::frames::{H3FrameHead, kind, put_frame, stream_type};
use super::qpack::probe::SectionProbe;
use super::*;
use crate::field_coding::string::put_plain;
use crate::fields::FieldLines;
use crate::h1::BodyLen;
use crate::status::StatusCode;

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
/// The client's control, encoder and decoder stream.
const CONTROL: u64 = 2;
const ENCODER: u64 = 6;
const DECODER: u64 = 10;

/// A server, the input that it has not consumed, and its output.
struct ServerHarness {
    server: H3Server,
    settings: H3Settings,
    counters: GlitchCounters,
    control: Vec<u8>,
    decoder: Vec<u8>,
    /// The output of each request stream.
    responses: BTreeMap<u32, Vec<u8>>,
    /// Unconsumed input by stream, and whether the stream ends with it.
    rests: BTreeMap<u64, (Vec<u8>, bool)>,
}

impl ServerHarness {
    /// A new server.
    fn new(settings: H3Settings) -> ServerHarness {
        let (mut control, mut decoder) = (Vec::new(), Vec::new());
        let mut counters = GlitchCounters::default();
        let server = H3Server::new(&mut H3Turn {
            now_ms: 1,
            settings: &settings,
            control: &mut control,
            decoder: &mut decoder,
            counters: &mut counters,
        });
        ServerHarness {
            server,
            settings,
            counters,
            control,
            decoder,
            responses: BTreeMap::new(),
            rests: BTreeMap::new(),
        }
    }

    /// A server with the three unidirectional streams of its client.
    fn open(settings: H3Settings) -> ServerHarness {
        let mut harness = ServerHarness::new(settings);
        assert_eq!(harness.receive(CONTROL, &control(&[])), "");
        assert_eq!(harness.receive(ENCODER, &[2]), "");
        assert_eq!(harness.receive(DECODER, &[3]), "");
        harness.control.clear();
        harness.decoder.clear();
        harness
    }

    fn turn(&mut self) -> (&mut H3Server, H3Turn<'_>) {
        let turn = H3Turn {
            now_ms: 1,
            settings: &self.settings,
            control: &mut self.control,
            decoder: &mut self.decoder,
            counters: &mut self.counters,
        };
        (&mut self.server, turn)
    }

    /// Passes bytes of a stream that continues.
    fn receive(&mut self, stream_id: u64, bytes: &[u8]) -> String {
        self.deliver(stream_id, bytes, false).join(", ")
    }

    /// Passes the last bytes of a stream.
    fn finish(&mut self, stream_id: u64, bytes: &[u8]) -> String {
        self.deliver(stream_id, bytes, true).join(", ")
    }

    fn deliver(&mut self, stream_id: u64, bytes: &[u8], is_end: bool) -> Vec<String> {
        let mut events = Vec::new();
        let rest = self.rests.entry(stream_id).or_default();
        rest.0.extend_from_slice(bytes);
        rest.1 |= is_end;
        self.process(stream_id, &mut events);
        while let Some(unblocked) = self.server.next_unblocked() {
            self.process(unblocked, &mut events);
        }
        events.extend(self.stopped());
        events
    }

    fn process(&mut self, stream_id: u64, events: &mut Vec<String>) {
        let (rest, is_end) = self.rests.remove(&stream_id).unwrap_or_default();
        let mut used = 0;
        loop {
            let (mut text, mut head_slot) = (Vec::new(), None);
            let (server, mut turn) = self.turn();
            let bytes = &rest[used..];
            let input = StreamBytes { bytes, is_end };
            match server.next(stream_id, input, &mut text, &mut head_slot, &mut turn) {
                Err(fault) => {
                    assert_eq!(fault.scope, ErrorScope::Connection);
                    events.push(format!("error {}", fault.code.name()));
                    used = rest.len();
                    break;
                }
                Ok(step) if step.event.is_none() && step.used == 0 => break,
                Ok(step) => {
                    used += step.used;
                    events.extend(step.event.map(|event| describe_event(&event)));
                }
            }
        }
        let rest = rest[used..].to_vec();
        self.rests.insert(stream_id, (rest, is_end));
    }

    /// The client aborts its direction of a stream.
    fn abort(&mut self, stream_id: u64) -> String {
        self.handle_abort(stream_id, ClientAbort::ResetStream)
    }

    fn handle_abort(&mut self, stream_id: u64, abort: ClientAbort) -> String {
        let (server, mut turn) = self.turn();
        match server.handle_abort(stream_id, abort, &mut turn) {
            Ok(event) => event.map_or(String::new(), |event| describe_event(&event)),
            Err(fault) => format!("error {}", fault.code.name()),
        }
    }

    fn stopped(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let (server, mut turn) = self.turn();
            let Some((stream, code)) = server.next_stopped(&mut turn) else {
                return all;
            };
            all.push(format!("{} stopped {}", stream.0, code.name()));
        }
    }

    /// Answers a request with a body of this length.
    fn respond(&mut self, number: u32, len: u64) -> bool {
        let (stream, known) = (StreamId(number), BodyLen::Known(len));
        let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
        let out = self.responses.entry(number).or_default();
        let has_body = self.server.respond(stream, ok, lines, known, &DATE, out);
        if has_body {
            assert_eq!(self.server.whole_body(stream, len), Ok(true));
        }
        has_body
    }

    /// Sends bodies, in parts of at most `len_max` bytes. Returns the order of the parts.
    fn send(&mut self, len_max: usize) -> String {
        let mut parts = Vec::new();
        let mut out = Vec::new();
        while let Some(part) = self.server.send(len_max, &mut out) {
            let number = part.stream.0;
            let response = self.responses.entry(number).or_default();
            response.append(&mut out);
            response.resize(response.len() + part.len as usize, b'x');
            let end = if part.is_last { " end" } else { "" };
            parts.push(format!("{number} {}{end}", part.len));
        }
        parts.join(", ")
    }

    /// The output of a request stream since the last call.
    fn take_output(&mut self, number: u32) -> String {
        let bytes = self.responses.remove(&number).unwrap_or_default();
        describe_frames(&bytes)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}

fn describe_event(event: &H3ServerEvent<'_, '_>) -> String {
    match event {
        H3ServerEvent::Request(head) => {
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
        H3ServerEvent::Data { stream, data } => match data.len() {
            ..20 => format!("{} data {}", stream.0, text(data)),
            len => format!("{} data {len}", stream.0),
        },
        H3ServerEvent::End { stream, trailers } => {
            let all = trailers
                .clone()
                .map(|(name, value)| [name, b"=", value].concat());
            let all: Vec<u8> = all.flatten().collect();
            format!("{} end{}", stream.0, text(&all))
        }
        H3ServerEvent::Cut { stream } => format!("{} cut", stream.0),
        H3ServerEvent::Refused {
            stream, refusal, ..
        } => format!("{} refused {refusal:?}", stream.0),
        H3ServerEvent::Reset { stream, code } => format!("{} reset {}", stream.0, code.name()),
        H3ServerEvent::StopReading { stream_id, code } => {
            format!("stop {stream_id} {}", code.name())
        }
        H3ServerEvent::PriorityUpdate { stream, priority } => {
            let (urgency, is_incremental) = (priority.urgency, priority.is_incremental);
            format!("{} priority {urgency} {is_incremental}", stream.0)
        }
    }
}

/// Frames as text.
fn describe_frames(mut bytes: &[u8]) -> String {
    let mut parts = Vec::new();
    while let Some((head, len)) = H3FrameHead::decode(bytes) {
        let (payload, rest) = bytes[len..].split_at(head.len as usize);
        bytes = rest;
        parts.push(match head.kind {
            kind::DATA => format!("data {}", head.len),
            kind::HEADERS => {
                let fields = SectionProbe::new(0).decode(payload);
                let fields = fields.expect("a section").expect("not blocked");
                let fields: Vec<String> = fields
                    .iter()
                    .filter(|(name, _)| name != b"date")
                    .map(|(name, value)| format!("{}={}", text(name), text(value)))
                    .collect();
                format!("head {}", fields.join(" "))
            }
            kind::GOAWAY => format!("goaway {:?}", varint::decode(payload).map(|(id, _)| id)),
            other => format!("frame {other}"),
        });
    }
    assert!(bytes.is_empty(), "whole frames");
    parts.join(", ")
}

/// A field section of names and values.
fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = Vec::new();
    qpack::put_prefix(&mut section);
    for (name, value) in fields {
        put_plain(name.as_bytes(), 3, 0x20, &mut section);
        put_plain(value.as_bytes(), 7, 0, &mut section);
    }
    section
}

fn frame_of(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(kind, payload, &mut out);
    out
}

fn integer(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(value, &mut out);
    out
}

/// The start of a control stream: its type, SETTINGS, and other frames.
fn control(more: &[u8]) -> Vec<u8> {
    [&[0], &frame_of(kind::SETTINGS, &[])[..], more].concat()
}

/// A GET of a path on host `h`, with other fields.
fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    request("GET", path, more)
}

fn post(more: &[(&str, &str)]) -> Vec<u8> {
    request("POST", "/p", more)
}

fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = alloc::vec![
        (":method", method),
        (":scheme", "https"),
        (":authority", "h"),
        (":path", path),
    ];
    fields.extend_from_slice(more);
    frame_of(kind::HEADERS, &section(&fields))
}

fn data(payload: &[u8]) -> Vec<u8> {
    frame_of(kind::DATA, payload)
}

#[test]
fn connection_starts_with_settings() {
    let harness = ServerHarness::new(H3Settings::default());
    let (stream_type, frame) = harness.control.split_first().expect("a stream type");
    assert_eq!(u64::from(*stream_type), stream_type::CONTROL);
    let settings = [
        (setting::MAX_FIELD_SECTION_SIZE, 64 << 10),
        (setting::QPACK_MAX_TABLE_CAPACITY, 4096),
        (setting::QPACK_BLOCKED_STREAMS, 16),
    ];
    let payload = settings.map(|(id, value)| [integer(id), integer(value)].concat());
    assert_eq!(frame, frame_of(kind::SETTINGS, &payload.concat()));
    assert_eq!(harness.decoder, [3]);
    // Without a dynamic table there is no decoder stream.
    let harness = ServerHarness::new(H3Settings {
        table_len_max: 0,
        accepts_connect_protocol: true,
        ..H3Settings::default()
    });
    let payload = [&integer(6)[..], &integer(64 << 10), &[8, 1]].concat();
    assert_eq!(harness.control[1..], frame_of(kind::SETTINGS, &payload));
    assert_eq!(harness.decoder, []);
}
