//! HTTP/3 on one connection. A GET of /N is answered with N bytes, an upload with the number of its bytes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lowroad_http::StatusCode;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h3::{
    ClientAbort, GlitchCounters, H3Error, H3Server, H3ServerEvent, H3Settings, H3Turn, StreamBytes,
    StreamId,
};
use lowroad_quic::{ConnectionKey, QuicEndpoint, QuicEvent};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";
/// Bytes of a body that are written at once, so that priorities decide about the rest.
const PIECE_LEN: usize = 16_384;

/// Bytes that QUIC has not taken.
#[derive(Default)]
struct UnsentOutput {
    parts: Vec<Bytes>,
    /// The stream ends after them.
    is_end: bool,
}

/// The state of a connection.
pub struct HttpConnection {
    server: H3Server,
    settings: H3Settings,
    counters: GlitchCounters,
    /// Output of the control and the decoder stream, and their identifiers.
    control: Vec<u8>,
    decoder: Vec<u8>,
    own_streams: Option<[u64; 2]>,
    unsent: BTreeMap<u64, UnsentOutput>,
    /// The received bytes of uploads.
    uploads: BTreeMap<u32, u64>,
    /// Streams that have ended with a field section that waits for the dynamic table.
    ended: BTreeSet<u64>,
}

/// An event of HTTP/3 without its borrowed bytes.
enum HttpAction {
    None,
    Respond(StreamId, StatusCode, u64),
    Abort(u64, u64),
    StopReading(u64, u64),
}

impl HttpConnection {
    pub fn new() -> HttpConnection {
        let settings = H3Settings::default();
        let (mut control, mut decoder) = (Vec::new(), Vec::new());
        let mut counters = GlitchCounters::default();
        let server = H3Server::new(&mut H3Turn {
            now_ms: 0,
            settings: &settings,
            control: &mut control,
            decoder: &mut decoder,
            counters: &mut counters,
        });
        HttpConnection {
            server,
            settings,
            counters,
            control,
            decoder,
            own_streams: None,
            unsent: BTreeMap::new(),
            uploads: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// Processes an event of QUIC.
    pub fn process(&mut self, endpoint: &mut QuicEndpoint, key: ConnectionKey, event: QuicEvent) {
        let processed = match event {
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } => self.input(endpoint, key, stream, bytes, is_end),
            QuicEvent::Reset { stream, .. } => {
                self.abort(endpoint, key, stream, ClientAbort::ResetStream)
            }
            QuicEvent::Stopped { stream, .. } => {
                self.abort(endpoint, key, stream, ClientAbort::StopSending)
            }
            QuicEvent::Writable { stream } if stream & 3 == 0 => {
                self.server
                    .set_blocked(StreamId((stream >> 2) as u32), false);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(fault) = processed.and_then(|()| self.unblock(endpoint, key)) {
            endpoint.close(key, fault.code.0, fault.reason, endpoint.now_us());
            return;
        }
        self.output(endpoint, key);
    }

    /// Continues streams after the dynamic table received the entries that their field sections need.
    fn unblock(&mut self, endpoint: &mut QuicEndpoint, key: ConnectionKey) -> Result<(), H3Error> {
        while let Some(stream) = self.server.next_unblocked() {
            let is_end = self.ended.remove(&stream);
            // The section itself is in the server; bytes behind it were put back.
            self.input(endpoint, key, stream, Bytes::new(), is_end)?;
            endpoint.resume_reading(key, stream);
        }
        Ok(())
    }

    fn input(
        &mut self,
        endpoint: &mut QuicEndpoint,
        key: ConnectionKey,
        stream: u64,
        bytes: Bytes,
        is_end: bool,
    ) -> Result<(), H3Error> {
        // Each call of `next` may consume a part.
        let mut used = 0;
        loop {
            let (mut text, mut head_slot) = (Vec::new(), None);
            let mut turn = H3Turn {
                now_ms: endpoint.now_us() / 1000,
                settings: &self.settings,
                control: &mut self.control,
                decoder: &mut self.decoder,
                counters: &mut self.counters,
            };
            let input = StreamBytes {
                bytes: &bytes[used..],
                is_end,
            };
            let step = self
                .server
                .next(stream, input, &mut text, &mut head_slot, &mut turn)?;
            used += step.used;
            if step.used == 0 && step.event.is_none() {
                break;
            }
            let action = step
                .event
                .map_or(HttpAction::None, |event| action(event, &mut self.uploads));
            self.act(endpoint, key, action);
        }
        // A field section waits for the dynamic table.
        if used < bytes.len() {
            endpoint.put_back(key, stream, bytes.slice(used..), is_end);
        } else if is_end
            && stream & 3 == 0
            && !self
                .server
                .has_whole_request(StreamId((stream >> 2) as u32))
        {
            self.ended.insert(stream);
        }
        Ok(())
    }

    fn abort(
        &mut self,
        endpoint: &mut QuicEndpoint,
        key: ConnectionKey,
        stream: u64,
        abort: ClientAbort,
    ) -> Result<(), H3Error> {
        let mut turn = H3Turn {
            now_ms: endpoint.now_us() / 1000,
            settings: &self.settings,
            control: &mut self.control,
            decoder: &mut self.decoder,
            counters: &mut self.counters,
        };
        if let Some(event) = self.server.handle_abort(stream, abort, &mut turn)? {
            let action = action(event, &mut self.uploads);
            self.act(endpoint, key, action);
        }
        Ok(())
    }

    fn act(&mut self, endpoint: &mut QuicEndpoint, key: ConnectionKey, action: HttpAction) {
        match action {
            HttpAction::None => {}
            HttpAction::Respond(stream, status, len) => {
                let mut head = Vec::new();
                let body_len = BodyLen::Known(len);
                let lines = FieldLines::NONE;
                let has_body = self
                    .server
                    .respond(stream, status, lines, body_len, &DATE, &mut head);
                let unsent = self.unsent.entry(u64::from(stream.0) << 2).or_default();
                unsent.parts.push(head.into());
                match has_body {
                    true => _ = self.server.whole_body(stream, len),
                    false => unsent.is_end = true,
                }
                // A refused upload is not read to its end.
                self.server.discard_body(stream);
            }
            HttpAction::Abort(stream, code) => {
                self.unsent.remove(&stream);
                self.server
                    .release_reset_stream(StreamId((stream >> 2) as u32));
                // A direction that is closed already needs no abort.
                _ = endpoint.reset(key, stream, code);
                _ = endpoint.stop_reading(key, stream, code);
            }
            HttpAction::StopReading(stream, code) => _ = endpoint.stop_reading(key, stream, code),
        }
    }

    /// Selects bodies by their priorities, and writes what QUIC takes.
    fn output(&mut self, endpoint: &mut QuicEndpoint, key: ConnectionKey) {
        self.flush(endpoint, key);
        // The header belongs to the stream that `send` selects.
        let mut head = Vec::new();
        while let Some(piece) = self.server.send(PIECE_LEN, &mut head) {
            let stream = u64::from(piece.stream.0) << 2;
            let unsent = self.unsent.entry(stream).or_default();
            unsent.parts.push(std::mem::take(&mut head).into());
            unsent.parts.push(vec![b'x'; piece.len as usize].into());
            unsent.is_end |= piece.is_last;
            self.flush(endpoint, key);
        }
        let mut turn = H3Turn {
            now_ms: endpoint.now_us() / 1000,
            settings: &self.settings,
            control: &mut self.control,
            decoder: &mut self.decoder,
            counters: &mut self.counters,
        };
        while let Some((stream, code)) = self.server.next_stopped(&mut turn) {
            _ = endpoint.stop_reading(key, u64::from(stream.0) << 2, code.0);
        }
        self.queue_own_streams(endpoint, key);
        self.flush(endpoint, key);
    }

    fn queue_own_streams(&mut self, endpoint: &mut QuicEndpoint, key: ConnectionKey) {
        // The client allows streams of the server with its first parameters.
        if self.own_streams.is_none() {
            let streams = [endpoint.open(key, false), endpoint.open(key, false)];
            self.own_streams = streams[0].zip(streams[1]).map(|(one, two)| [one, two]);
        }
        let Some(streams) = self.own_streams else {
            return;
        };
        for (stream, bytes) in streams
            .into_iter()
            .zip([&mut self.control, &mut self.decoder])
        {
            if !bytes.is_empty() {
                // Their order within a stream matters, the order of the streams does not.
                let unsent = self.unsent.entry(stream).or_default();
                unsent.parts.push(std::mem::take(bytes).into());
            }
        }
    }

    fn flush(&mut self, endpoint: &mut QuicEndpoint, key: ConnectionKey) {
        let server = &mut self.server;
        self.unsent.retain(|stream, unsent| {
            // A closed stream needs no output.
            if endpoint.write(key, *stream, &mut unsent.parts).is_err() {
                return false;
            }
            unsent.parts.retain(|part| !part.is_empty());
            let is_blocked = !unsent.parts.is_empty();
            if is_blocked && stream & 3 == 0 {
                server.set_blocked(StreamId((stream >> 2) as u32), true);
            }
            if !is_blocked && unsent.is_end {
                _ = endpoint.finish(key, *stream);
            }
            is_blocked
        });
    }
}

fn action(event: H3ServerEvent<'_, '_>, uploads: &mut BTreeMap<u32, u64>) -> HttpAction {
    match event {
        H3ServerEvent::Request(head) if head.has_body => {
            uploads.insert(head.stream.0, 0);
            HttpAction::None
        }
        H3ServerEvent::Request(head) => {
            let path = head.request.raw_target();
            let digits = path
                .strip_prefix(b"/")
                .and_then(|path| str::from_utf8(path).ok());
            let len = digits
                .and_then(|digits| digits.parse().ok())
                .unwrap_or(1000);
            HttpAction::Respond(head.stream, StatusCode::OK, len)
        }
        H3ServerEvent::Data { stream, data } => {
            *uploads.entry(stream.0).or_default() += data.len() as u64;
            HttpAction::None
        }
        H3ServerEvent::End { stream, .. } => {
            let len = uploads.remove(&stream.0).unwrap_or_default();
            println!("an upload of {len} bytes");
            HttpAction::Respond(stream, StatusCode::OK, 10)
        }
        H3ServerEvent::Refused {
            stream, refusal, ..
        } => HttpAction::Respond(stream, refusal.status(), 0),
        H3ServerEvent::Reset { stream, code } => {
            uploads.remove(&stream.0);
            HttpAction::Abort(u64::from(stream.0) << 2, code.0)
        }
        H3ServerEvent::StopReading { stream_id, code } => {
            HttpAction::StopReading(stream_id, code.0)
        }
        H3ServerEvent::Cut { .. } | H3ServerEvent::PriorityUpdate { .. } => HttpAction::None,
    }
}
