//! Fuzz target: HTTP/3 connections. The input is the bytes that a server receives on its streams, frames that are built
//! from it, or the operations of a correct client and the server.
//!
//! Checks beside "no panic": a server parses and sends the same regardless of the reads; it sends whole frames; with a
//! correct client it finds no fault, with any operations; and our decoder reads the encoder's sections back.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use lowroad_http::fields::{FieldLines, FieldName};
use lowroad_http::h1::BodyLen;
use lowroad_http::h3::frames::{self, H3FrameHead};
use lowroad_http::h3::qpack::probe::SectionProbe;
use lowroad_http::h3::qpack::{put_field, put_field_short, put_prefix};
use lowroad_http::h3::{
    ClientAbort, GlitchCounters, H3Error, H3Server, H3ServerEvent, H3Settings, H3Turn, StreamBytes,
    StreamId, varint,
};
use lowroad_http::{StatusCode, host};
use lowroad_limits::{CellRate, RequestRate};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
const CONTROL: u64 = 2;
const ENCODER: u64 = 6;
const DECODER: u64 = 10;

fuzz_target!(|input: &[u8]| {
    let Some((mode, input)) = input.split_first() else {
        return;
    };
    match mode % 4 {
        0 => cut_alike(&raw_parts(input)),
        1 => cut_alike(&framed_parts(input)),
        2 => code_again(input),
        _ => talk(input),
    }
});

/// Bytes that arrive on a stream.
struct Part {
    stream_id: u64,
    bytes: Vec<u8>,
    is_end: bool,
    is_abort: bool,
}

impl Part {
    fn new(stream_id: u64, bytes: &[u8], flags: u8) -> Part {
        Part {
            stream_id,
            bytes: bytes.to_vec(),
            is_end: flags & 0x80 != 0,
            is_abort: flags & 0x60 == 0x60,
        }
    }
}

/// For each part, two bytes of the input give stream and length.
fn raw_parts(mut input: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some(([stream, len], rest)) = input.split_first_chunk() {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        // The first streams of the client, in both directions.
        let stream_id = u64::from(stream & 7) << 2 | u64::from(stream & 8) >> 2;
        parts.push(Part::new(stream_id, bytes, *stream));
        input = rest;
    }
    parts
}

/// Frames with valid headers, after the start of the client's streams: for each, three bytes of the input give type,
/// stream and length.
fn framed_parts(mut input: &[u8]) -> Vec<Part> {
    let mut parts = vec![
        Part::new(CONTROL, &[0, 4, 0], 0),
        Part::new(ENCODER, &[2, 0x3f, 0xe1, 0x1f], 0),
        Part::new(DECODER, &[3], 0),
    ];
    while let Some(([kind, stream, len], rest)) = input.split_first_chunk() {
        let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        input = rest;
        let mut bytes = Vec::new();
        let stream_id = match stream & 15 {
            // Instructions have no frames.
            14 => {
                bytes.extend_from_slice(payload);
                ENCODER
            }
            number => {
                let kind = match kind % 16 {
                    14 => frames::kind::PRIORITY_UPDATE_REQUEST,
                    15 => 0x21,
                    kind => u64::from(kind),
                };
                frames::put_frame(kind, payload, &mut bytes);
                match number {
                    15 => CONTROL,
                    number => u64::from(number & 7) << 2,
                }
            }
        };
        parts.push(Part::new(stream_id, &bytes, stream & 0xe0));
    }
    parts
}

fn cut_alike(parts: &[Part]) {
    let whole = serve(parts, usize::MAX);
    for read_len in [1, 2, 3, 7, 64] {
        assert_eq!(serve(parts, read_len), whole, "reads of {read_len}");
    }
}

/// A server, with its output and the input that it has not consumed.
struct Peer {
    server: H3Server,
    settings: H3Settings,
    counters: GlitchCounters,
    control: Vec<u8>,
    decoder: Vec<u8>,
    responses: BTreeMap<u32, Vec<u8>>,
    rests: BTreeMap<u64, (Vec<u8>, bool)>,
    events: Vec<String>,
}

impl Peer {
    fn new(settings: H3Settings) -> Peer {
        let (mut control, mut decoder) = (Vec::new(), Vec::new());
        let mut counters = GlitchCounters::default();
        let server = H3Server::new(&mut H3Turn {
            now_ms: 1,
            settings: &settings,
            control: &mut control,
            decoder: &mut decoder,
            counters: &mut counters,
        });
        Peer {
            server,
            settings,
            counters,
            control,
            decoder,
            responses: BTreeMap::new(),
            rests: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Passes a part of a stream, and the rests of the streams that it unblocks.
    fn receive(&mut self, stream_id: u64, bytes: &[u8], is_end: bool) -> Result<(), H3Error> {
        let rest = self.rests.entry(stream_id).or_default();
        // QUIC delivers nothing after the end of a stream.
        if rest.1 {
            return Ok(());
        }
        rest.0.extend_from_slice(bytes);
        rest.1 |= is_end;
        self.process(stream_id)?;
        while let Some(unblocked) = self.server.next_unblocked() {
            self.process(unblocked)?;
        }
        Ok(())
    }

    fn process(&mut self, stream_id: u64) -> Result<(), H3Error> {
        let (rest, is_end) = self.rests.remove(&stream_id).unwrap_or_default();
        let mut used = 0;
        loop {
            let (mut text, mut head_slot) = (Vec::new(), None);
            let mut turn = H3Turn {
                now_ms: 1,
                settings: &self.settings,
                control: &mut self.control,
                decoder: &mut self.decoder,
                counters: &mut self.counters,
            };
            let bytes = &rest[used..];
            let input = StreamBytes { bytes, is_end };
            let step = self
                .server
                .next(stream_id, input, &mut text, &mut head_slot, &mut turn)?;
            used += step.used;
            assert!(used <= rest.len());
            match step.event {
                None if step.used == 0 => break,
                None => {}
                Some(event) => {
                    let reset = match &event {
                        H3ServerEvent::Reset { stream, .. } => Some(*stream),
                        _ => None,
                    };
                    let response = describe(&event, &mut self.events);
                    if let Some((stream, status)) = response {
                        let out = self.responses.entry(stream.0).or_default();
                        let (lines, len) = (FieldLines::NONE, BodyLen::Known(5));
                        if self.server.respond(stream, status, lines, len, &DATE, out) {
                            assert_eq!(self.server.whole_body(stream, 5), Ok(true));
                        }
                    }
                    if let Some(stream) = reset {
                        self.server.release_reset_stream(stream);
                    }
                }
            }
        }
        self.rests
            .insert(stream_id, (rest[used..].to_vec(), is_end));
        Ok(())
    }

    fn abort(&mut self, stream_id: u64, abort: ClientAbort) -> Result<(), H3Error> {
        let mut turn = H3Turn {
            now_ms: 1,
            settings: &self.settings,
            control: &mut self.control,
            decoder: &mut self.decoder,
            counters: &mut self.counters,
        };
        if let Some(event) = self.server.handle_abort(stream_id, abort, &mut turn)? {
            describe(&event, &mut self.events);
            self.server
                .release_reset_stream(StreamId((stream_id >> 2) as u32));
        }
        Ok(())
    }

    /// Sends bodies, and checks that all output consists of whole frames.
    fn send(&mut self, len_max: usize) {
        let mut out = Vec::new();
        while let Some(piece) = self.server.send(len_max, &mut out) {
            let response = self.responses.entry(piece.stream.0).or_default();
            response.append(&mut out);
            response.resize(response.len() + piece.len as usize, b'x');
        }
        let mut turn = H3Turn {
            now_ms: 1,
            settings: &self.settings,
            control: &mut self.control,
            decoder: &mut self.decoder,
            counters: &mut self.counters,
        };
        while let Some((stream, _)) = self.server.next_stopped(&mut turn) {
            // The caller passes no more input.
            self.rests.remove(&(u64::from(stream.0) << 2));
        }
    }
}

/// Adds an event as text; consecutive data is joined. Returns a response that is to be sent immediately.
fn describe(
    event: &H3ServerEvent<'_, '_>,
    events: &mut Vec<String>,
) -> Option<(StreamId, StatusCode)> {
    match event {
        H3ServerEvent::Request(head) => {
            let request = &head.request;
            let hosts = request.fields().filter(|(name, _)| *name == b"host");
            assert!(hosts.count() <= 1);
            let fields: Vec<_> = request.fields().collect();
            let text = format!("{} {:?} {fields:?}", head.stream.0, request.target);
            events.push(format!("{text} {:?}", head.has_body));
            // Every other stream gets its response at once, the rest later or never.
            return (head.stream.0 % 2 == 0).then_some((head.stream, StatusCode::OK));
        }
        H3ServerEvent::Data { stream, data } => {
            assert!(!data.is_empty());
            let start = format!("{} data ", stream.0);
            let text: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
            match events.last_mut() {
                Some(last) if last.starts_with(&start) => last.push_str(&text),
                _ => events.push(start + &text),
            }
        }
        H3ServerEvent::End { stream, trailers } => {
            events.push(format!("{} end {}", stream.0, trailers.clone().count()));
        }
        H3ServerEvent::Cut { stream } => events.push(format!("{} cut", stream.0)),
        H3ServerEvent::Refused {
            stream,
            refusal,
            request,
        } => {
            let authority = request.as_ref().and_then(|request| request.authority);
            assert!(authority.is_none_or(host::is_valid));
            events.push(format!("{} {refusal:?}", stream.0));
            return Some((*stream, refusal.status()));
        }
        H3ServerEvent::Reset { stream, code } => {
            events.push(format!("{} reset {}", stream.0, code.0));
        }
        H3ServerEvent::StopReading { stream_id, code } => {
            events.push(format!("stop {stream_id} {code:?}"));
        }
        H3ServerEvent::PriorityUpdate { stream, priority } => {
            events.push(format!("{} {priority:?}", stream.0));
        }
    }
    None
}

/// The events, and the responses that were sent.
fn serve(parts: &[Part], read_len: usize) -> (Vec<String>, BTreeMap<u32, Vec<u8>>) {
    let mut peer = Peer::new(H3Settings {
        accepts_connect_protocol: parts.len().is_multiple_of(2),
        ..H3Settings::default()
    });
    for part in parts {
        if let Err(fault) = serve_part(&mut peer, part, read_len) {
            assert!(peer.server.is_finished());
            peer.events.push(format!("{fault:?}"));
            break;
        }
    }
    peer.send(100);
    for response in peer.responses.values() {
        whole_frames(response);
    }
    (peer.events, peer.responses)
}

fn serve_part(peer: &mut Peer, part: &Part, read_len: usize) -> Result<(), H3Error> {
    if part.is_abort {
        peer.abort(part.stream_id, ClientAbort::ResetStream)?;
        // Nothing follows RESET_STREAM.
        peer.rests.insert(part.stream_id, (Vec::new(), true));
        return Ok(());
    }
    // Bytes of the encoder stream between two reads may evict entries that a stream waits for.
    let read_len = match part.stream_id & 2 {
        0 => read_len.min(part.bytes.len().max(1)),
        _ => part.bytes.len().max(1),
    };
    let count = part.bytes.chunks(read_len).count();
    for (at, bytes) in part.bytes.chunks(read_len).enumerate() {
        peer.receive(part.stream_id, bytes, part.is_end && at + 1 == count)?;
    }
    match count {
        0 => peer.receive(part.stream_id, &[], part.is_end),
        _ => Ok(()),
    }
}

fn whole_frames(mut bytes: &[u8]) {
    while let Some((head, len)) = H3FrameHead::decode(bytes) {
        bytes = &bytes[len + head.len as usize..];
    }
    assert!(bytes.is_empty());
}

/// The input is instructions and a section, each with a byte for its length; decoded fields are encoded and decoded.
fn code_again(mut input: &[u8]) {
    let mut probe = SectionProbe::new(1024);
    let mut is_section = false;
    while let Some((len, rest)) = input.split_first() {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        input = rest;
        is_section = !is_section;
        if !is_section {
            if probe.instructions(bytes).is_err() {
                return;
            }
            continue;
        }
        let Ok(Some(fields)) = probe.decode(bytes) else {
            continue;
        };
        let (mut plain, mut short, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        put_prefix(&mut plain);
        put_prefix(&mut short);
        for (name, value) in &fields {
            // The encoder takes names as text.
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            put_field(FieldName::Other(name), value, &mut plain);
            put_field_short(FieldName::Other(name), value, &mut short);
            wanted.push((name.to_ascii_lowercase().into_bytes(), value.clone()));
        }
        for section in [plain, short] {
            assert_eq!(
                SectionProbe::new(0).decode(&section),
                Ok(Some(wanted.clone()))
            );
        }
    }
}

/// A client and the server perform the operations of the input, two bytes for each.
fn talk(input: &[u8]) {
    // An unlimited rate: a long input may open and abort more streams than a server tolerates.
    let patient = CellRate::new(RequestRate {
        requests: 1,
        period_ms: 1000,
        burst: u32::MAX.into(),
    });
    let mut peer = Peer::new(H3Settings {
        streams_max: 32_767,
        blocked_streams_max: 32_767,
        resets: patient,
        glitches: patient,
        ..H3Settings::default()
    });
    let mut result = Ok(());
    for (stream_id, bytes) in [
        (CONTROL, &[0, 4, 0][..]),
        (ENCODER, &[2, 0x3f, 0xe1, 0x1f]),
        (DECODER, &[3]),
    ] {
        result = result.and(peer.receive(stream_id, bytes, false));
    }
    let (mut opened, mut inserted) = (0_u64, 0_u8);
    // Bodies that the client has announced and not sent, and streams that it has aborted.
    let mut bodies: BTreeMap<u64, usize> = BTreeMap::new();
    for pair in input.chunks_exact(2) {
        let (operation, number) = (pair[0] % 12, pair[1]);
        // One of the last streams.
        let some = opened.saturating_sub(u64::from(number & 7) + 1);
        let (stream, stream_id) = (StreamId(some as u32), some << 2);
        let step = match operation {
            0 | 1 => {
                let len = usize::from(number) * usize::from(operation);
                let bytes = request(len, None);
                opened += 1;
                if len > 0 {
                    bodies.insert(opened - 1, len);
                }
                peer.receive((opened - 1) << 2, &bytes, len == 0)
            }
            // A request that waits for an insertion, which arrives now or later.
            2 => {
                inserted = (inserted + 1).min(60);
                opened += 1;
                peer.receive((opened - 1) << 2, &request(0, Some(inserted)), true)
            }
            3 => {
                let insertion = b"\x41x\x01y".repeat(usize::from(std::mem::take(&mut inserted)));
                let step = peer.receive(ENCODER, &insertion, false);
                // The numbers of entries are those of a new connection.
                if step.is_ok() && !insertion.is_empty() {
                    return finish(peer);
                }
                step
            }
            4 => match bodies.remove(&some) {
                Some(len) => {
                    let part = len.min(usize::from(number) + 1);
                    if len > part {
                        bodies.insert(some, len - part);
                    }
                    let mut bytes = Vec::new();
                    frames::put_frame(frames::kind::DATA, &vec![b'b'; part], &mut bytes);
                    peer.receive(stream_id, &bytes, len == part)
                }
                None => Ok(()),
            },
            5 if opened > 0 => {
                bodies.remove(&some);
                peer.rests.remove(&stream_id);
                let abort = match number & 0x80 {
                    0 => ClientAbort::ResetStream,
                    _ => ClientAbort::StopSending,
                };
                peer.abort(stream_id, abort)
            }
            6 if opened > 0 => {
                // The server aborts a stream; its caller passes no more input.
                bodies.remove(&some);
                peer.rests.remove(&stream_id);
                peer.server.reset(stream, &mut peer.decoder);
                Ok(())
            }
            7 => {
                peer.server.discard_body(stream);
                Ok(())
            }
            8 => {
                peer.server.set_blocked(stream, number & 0x80 != 0);
                Ok(())
            }
            9 => {
                let (mut payload, mut bytes) = (Vec::new(), Vec::new());
                varint::put(stream_id, &mut payload);
                payload.extend_from_slice(&[b'u', b'=', b'0' + number % 8]);
                let kind = frames::kind::PRIORITY_UPDATE_REQUEST;
                frames::put_frame(kind, &payload, &mut bytes);
                peer.receive(CONTROL, &bytes, false)
            }
            10 => {
                let len = u64::from(number) * 300;
                let out = peer.responses.entry(stream.0).or_default();
                let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
                let server = &mut peer.server;
                if server.respond(stream, ok, lines, BodyLen::Unknown, &DATE, out) {
                    assert_eq!(server.body(stream, len), Ok(true));
                    let trailers = FieldLines::new(b"x: y\r\n");
                    assert_eq!(server.end_body(stream, trailers), Ok(()));
                }
                Ok(())
            }
            _ => {
                peer.send(1 + usize::from(number) * 10);
                Ok(())
            }
        };
        result = result.and(step);
    }
    // No correct operation may end a connection.
    assert_eq!(result, Ok(()));
    finish(peer);
}

fn finish(mut peer: Peer) {
    assert_eq!((peer.counters.ended, peer.counters.malformed), (0, 0));
    peer.send(1000);
}

/// A request with a body of this length, or one with a field that requires as many insertions.
fn request(len: usize, required: Option<u8>) -> Vec<u8> {
    let mut section = match required {
        // The newest entry that the count covers.
        Some(required) => vec![required + 1, 0, 0xd1, 0xd7, 0xc1],
        // POST, https and the path /.
        None => vec![0, 0, 0xd4, 0xd7, 0xc1],
    };
    put_field(FieldName::Other(":authority"), b"h", &mut section);
    if required.is_some() {
        section.push(0x80);
    }
    if len > 0 {
        let text = len.to_string();
        put_field(
            FieldName::Other("content-length"),
            text.as_bytes(),
            &mut section,
        );
    }
    let mut bytes = Vec::new();
    frames::put_frame(frames::kind::HEADERS, &section, &mut bytes);
    bytes
}
