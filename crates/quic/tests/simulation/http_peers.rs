//! HTTP/3 on connections: a server that answers each request with a body of `x`, and a client.

use std::collections::BTreeMap;

use bytes::Bytes;
use lowroad_http::StatusCode;
use lowroad_http::fields::{FieldLines, FieldName};
use lowroad_http::h1::BodyLen;
use lowroad_http::h3::frames::{H3FrameHead, kind, put_frame};
use lowroad_http::h3::qpack::{put_field, put_prefix};
use lowroad_http::h3::{GlitchCounters, H3Server, H3ServerEvent, H3Settings, H3Turn, StreamBytes};
use lowroad_quic::{ConnectionKey, QuicEvent};

use crate::network::{Application, TestEndpoint};

const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

/// The server's side of a connection.
struct ServerConnection {
    server: H3Server,
    settings: H3Settings,
    counters: GlitchCounters,
    control: Vec<u8>,
    decoder: Vec<u8>,
    /// Bytes that QUIC has not taken, and whether the stream ends after them.
    unsent: BTreeMap<u64, (Vec<Bytes>, bool)>,
}

impl ServerConnection {
    fn new() -> ServerConnection {
        let settings = H3Settings::default();
        let (mut control, mut decoder) = (Vec::new(), Vec::new());
        let mut counters = GlitchCounters::default();
        let server = H3Server::new(&mut H3Turn {
            now_ms: 1,
            settings: &settings,
            control: &mut control,
            decoder: &mut decoder,
            counters: &mut counters,
        });
        ServerConnection {
            server,
            settings,
            counters,
            control,
            decoder,
            unsent: BTreeMap::new(),
        }
    }

    fn input(&mut self, stream: u64, bytes: &[u8], is_end: bool, body_len: u64) {
        // Each call of `next` may consume a part.
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
            let input = StreamBytes {
                bytes: &bytes[used..],
                is_end,
            };
            let step = self
                .server
                .next(stream, input, &mut text, &mut head_slot, &mut turn)
                .expect("a correct client");
            used += step.used;
            match step.event {
                None if step.used == 0 => break,
                Some(H3ServerEvent::Request(head)) => {
                    let (id, mut out) = (head.stream, Vec::new());
                    let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
                    let len = BodyLen::Known(body_len);
                    assert!(self.server.respond(id, ok, lines, len, &DATE, &mut out));
                    assert_eq!(self.server.whole_body(id, body_len), Ok(true));
                    self.unsent.entry(stream).or_default().0.push(out.into());
                }
                Some(H3ServerEvent::Reset { .. } | H3ServerEvent::Refused { .. }) => {
                    panic!("{:?}", step.event)
                }
                _ => {}
            }
        }
        // Without a dynamic table, no section waits.
        assert_eq!(used, bytes.len());
    }

    /// Selects bodies by their priorities.
    fn send(&mut self) {
        let mut out = Vec::new();
        while let Some(piece) = self.server.send(16_384, &mut out) {
            let stream = u64::from(piece.stream.0) << 2;
            let (parts, is_end) = self.unsent.entry(stream).or_default();
            parts.push(std::mem::take(&mut out).into());
            parts.push(vec![b'x'; piece.len as usize].into());
            *is_end |= piece.is_last;
        }
    }

    /// Writes what QUIC takes; the rest waits for `QuicEvent::Writable`.
    fn flush(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey) {
        for (stream, (parts, is_end)) in &mut self.unsent {
            // Written at once even if QUIC takes a part only.
            endpoint.write(key, *stream, parts).expect("open");
            // QUIC leaves the part that it has not taken.
            parts.retain(|part| !part.is_empty());
            if parts.is_empty() && std::mem::take(is_end) {
                assert_eq!(endpoint.finish(key, *stream), Ok(()));
            }
        }
        self.unsent
            .retain(|_, (parts, is_end)| !parts.is_empty() || *is_end);
    }
}

/// A server of HTTP/3.
pub struct HttpServer {
    pub body_len: u64,
    connections: BTreeMap<ConnectionKey, ServerConnection>,
}

impl HttpServer {
    pub fn new(body_len: u64) -> HttpServer {
        HttpServer {
            body_len,
            connections: BTreeMap::new(),
        }
    }
}

impl Application for HttpServer {
    fn event(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent) {
        if let QuicEvent::Opened = event {
            let mut http = ServerConnection::new();
            for bytes in [&mut http.control, &mut http.decoder] {
                let stream = endpoint.open(key, false).expect("a stream");
                let bytes = Bytes::from(std::mem::take(bytes));
                http.unsent.insert(stream, (vec![bytes], false));
            }
            self.connections.insert(key, http);
        }
        let Some(http) = self.connections.get_mut(&key) else {
            return;
        };
        match event {
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } => http.input(stream, &bytes, is_end, self.body_len),
            QuicEvent::Over(_) => {
                self.connections.remove(&key);
                return;
            }
            _ => {}
        }
        http.send();
        http.flush(endpoint, key);
    }
}

/// A client that sends requests once its connection is open, and as many as the server allows at the same time.
#[derive(Default)]
pub struct HttpClient {
    pub requests: u64,
    pub sent: u64,
    /// The most requests at the same time.
    pub open_max: u64,
    /// The bytes of each response, and whether it has ended.
    pub responses: BTreeMap<u64, (Vec<u8>, bool)>,
}

impl HttpClient {
    pub fn new(requests: u64) -> HttpClient {
        HttpClient {
            requests,
            ..HttpClient::default()
        }
    }

    /// Complete responses.
    pub fn done(&self) -> u64 {
        self.responses
            .values()
            .filter(|(_, is_end)| *is_end)
            .count() as u64
    }

    pub fn is_done(&self) -> bool {
        self.done() == self.requests
    }

    /// The length of each body.
    pub fn body_lens(&self) -> Vec<u64> {
        self.responses
            .values()
            .map(|(bytes, _)| body_len(bytes))
            .collect()
    }

    fn request(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey) {
        // The server allows more once it has seen these.
        while self.sent < self.requests
            && let Some(stream) = endpoint.open(key, true)
        {
            let frame = request();
            let len = frame.len();
            assert_eq!(endpoint.write(key, stream, &mut [frame.into()]), Ok(len));
            assert_eq!(endpoint.finish(key, stream), Ok(()));
            self.sent += 1;
        }
        self.open_max = self.open_max.max(self.sent - self.done());
    }
}

impl Application for HttpClient {
    fn event(&mut self, endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent) {
        match event {
            QuicEvent::Opened => {
                // RFC 9114 §6.2.1: each side begins a control stream with SETTINGS.
                let control = endpoint.open(key, false).expect("a stream");
                let settings = &mut [Bytes::from_static(&[0, 4, 0])];
                assert_eq!(endpoint.write(key, control, settings), Ok(3));
            }
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } if stream & 3 == 0 => {
                let response = self.responses.entry(stream).or_default();
                // Frames are examined at the end.
                response.0.extend_from_slice(&bytes);
                response.1 |= is_end;
            }
            QuicEvent::Reset { .. } | QuicEvent::Over(_) => panic!("{event:?}"),
            _ => {}
        }
        self.request(endpoint, key);
    }
}

/// HEADERS of GET https://h/ with entries of the static table.
pub fn request() -> Vec<u8> {
    let (mut section, mut frame) = (Vec::new(), Vec::new());
    put_prefix(&mut section);
    // GET, https and / (RFC 9204, appendix A).
    section.extend_from_slice(&[0xd1, 0xd7, 0xc1]);
    put_field(FieldName::Other(":authority"), b"h", &mut section);
    put_frame(kind::HEADERS, &section, &mut frame);
    frame
}

fn body_len(mut bytes: &[u8]) -> u64 {
    let mut sum = 0;
    while let Some((head, len)) = H3FrameHead::decode(bytes) {
        let (payload, rest) = bytes[len..].split_at(head.len as usize);
        if head.kind == kind::DATA {
            assert!(payload.iter().all(|byte| *byte == b'x'));
            sum += head.len;
        }
        bytes = rest;
    }
    assert!(bytes.is_empty());
    sum
}
