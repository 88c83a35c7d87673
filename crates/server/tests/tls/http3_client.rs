//! A client of HTTP/3 with `lowroad-quic`, on a socket of the loopback.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lowroad_http::fields::FieldName;
use lowroad_http::h3::frames::{H3FrameHead, kind, put_frame};
use lowroad_http::h3::qpack::probe::SectionProbe;
use lowroad_http::h3::qpack::{put_field, put_prefix};
use lowroad_quic::{
    Admission, CloseReason, ConnectionKey, EcnBits, IncomingDatagram, ProcessWorker, QuicCipher,
    QuicClientCipher, QuicEndpoint, QuicEndpointConfig, QuicEvent, QuicKeys, QuicLimits,
    QuicSettings, UsedTokens, random_bytes,
};
use lowroad_tls::{ClientConnector, ServerTrust, TlsClock};

use super::support::{Place, read, unix_s};

/// The longest time for a test's condition.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time between packets of a client with a new port.
const REBOUND_PING: Duration = Duration::from_millis(500);

/// A response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    bytes: Vec<u8>,
    is_complete: bool,
    /// The code of a reset.
    pub reset: Option<u64>,
}

/// A client that trusts the authority, and keeps up to `sessions_max` sessions.
pub fn connector(place: &Place, sessions_max: usize) -> ClientConnector {
    let trust = ServerTrust::from_pem(&read(place.ca())).expect("a certificate");
    let clock = TlsClock::new(unix_s());
    ClientConnector::new(&trust, &["h3"], None, sessions_max, clock).expect("a connector")
}

/// A connection to a server.
pub struct Http3Client {
    socket: UdpSocket,
    server: SocketAddr,
    endpoint: QuicEndpoint,
    key: ConnectionKey,
    epoch: Instant,
    is_open: bool,
    /// When the last PING after a change of the port was sent; `None` before there was one.
    rebound: Option<Instant>,
    /// The datagrams sent before the end of the handshake.
    pub first_datagrams: Vec<Vec<u8>>,
    pub end: Option<CloseReason>,
    responses: BTreeMap<u64, Response>,
    /// The streams of complete responses, in this order.
    pub completed: Vec<u64>,
    /// The bytes of the server's unidirectional streams.
    server_streams: BTreeMap<u64, Vec<u8>>,
    /// Uploads that QUIC has not taken.
    unsent: BTreeMap<u64, Vec<Bytes>>,
}

impl Http3Client {
    /// Connects, and waits for the end of the handshake.
    pub fn connect(place: &Place, server: SocketAddr) -> Http3Client {
        let cipher = QuicClientCipher::tls(connector(place, 0).for_quic());
        let mut client = Http3Client::start(&cipher, server);
        client.wait_for_handshake();
        client
    }

    /// Waits for the end of the handshake.
    pub fn wait_for_handshake(&mut self) {
        self.wait(|client| client.is_open || client.end.is_some());
    }

    /// Begins a connection, and sends nothing yet.
    pub fn start(cipher: &QuicClientCipher, server: SocketAddr) -> Http3Client {
        let clock = TlsClock::new(unix_s());
        let secret = || random_bytes().expect("random bytes");
        let config = QuicEndpointConfig {
            cipher: QuicCipher::null(),
            keys: QuicKeys::new(&secret()),
            place: ProcessWorker {
                generation: 0,
                worker: 0,
            },
            seed: secret(),
            settings: QuicSettings::default(),
            limits: QuicLimits::default(),
            clock,
            used_tokens: Arc::new(UsedTokens::default()),
        };
        let epoch = Instant::now();
        let mut endpoint: QuicEndpoint = QuicEndpoint::client(&config, epoch);
        endpoint.advance(0);
        // Replaced by the identifier that the server chooses.
        let mut first_id = [0; 8];
        first_id.copy_from_slice(&secret()[..8]);
        let key = endpoint
            .connect(cipher, &config.settings, first_id, server, "a.example", ())
            .expect("an address");
        Http3Client {
            socket: UdpSocket::bind("127.0.0.1:0").expect("a port"),
            server,
            endpoint,
            key,
            epoch,
            is_open: false,
            rebound: None,
            first_datagrams: Vec::new(),
            end: None,
            responses: BTreeMap::new(),
            completed: Vec::new(),
            server_streams: BTreeMap::new(),
            unsent: BTreeMap::new(),
        }
    }

    /// Continues from another port, as after a change of the address by a router. Datagrams to the old port are lost.
    pub fn rebind(&mut self) {
        self.socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        // The server learns the port from a packet.
        self.endpoint.keep_alive(self.key);
        self.rebound = Some(Instant::now());
    }

    /// Sends a request with a body, and returns its stream.
    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> u64 {
        self.request_with(method, path, &[], body)
    }

    /// As `request`, with further fields.
    pub fn request_with(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> u64 {
        let (mut section, mut bytes) = (Vec::new(), Vec::new());
        put_prefix(&mut section);
        let head = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "a.example"),
            (":path", path),
        ];
        for (name, value) in head.iter().chain(fields) {
            put_field(FieldName::Other(name), value.as_bytes(), &mut section);
        }
        put_frame(kind::HEADERS, &section, &mut bytes);
        // One frame, however long the body is.
        if !body.is_empty() {
            put_frame(kind::DATA, body, &mut bytes);
        }
        let stream = self.endpoint.open(self.key, true).expect("a stream");
        self.unsent.insert(stream, vec![bytes.into()]);
        self.responses.insert(stream, Response::default());
        self.write();
        stream
    }

    /// Sends a POST with this length and the start of its body, and returns its stream.
    pub fn begin_upload(&mut self, path: &str, len: usize, start: &[u8]) -> u64 {
        let len = len.to_string();
        let (mut section, mut bytes) = (Vec::new(), Vec::new());
        put_prefix(&mut section);
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "a.example"),
            (":path", path),
            ("content-length", &len),
        ] {
            put_field(FieldName::Other(name), value.as_bytes(), &mut section);
        }
        put_frame(kind::HEADERS, &section, &mut bytes);
        put_frame(kind::DATA, start, &mut bytes);
        let stream = self.endpoint.open(self.key, true).expect("a stream");
        self.responses.insert(stream, Response::default());
        let written = bytes.len();
        let taken = self.endpoint.write(self.key, stream, &mut [bytes.into()]);
        assert_eq!(taken, Ok(written));
        stream
    }

    /// Ends an upload, however much of it was sent.
    pub fn end_upload(&mut self, stream: u64) {
        _ = self.endpoint.finish(self.key, stream);
    }

    /// Opens a stream and sends bytes that do not end it.
    pub fn begin(&mut self, bytes: &'static [u8]) {
        let stream = self.endpoint.open(self.key, true).expect("a stream");
        let written = self.endpoint.write(self.key, stream, &mut [bytes.into()]);
        assert_eq!(written, Ok(bytes.len()));
    }

    /// Opens all streams that the server allows. Returns their number.
    pub fn open_all(&mut self) -> usize {
        std::iter::from_fn(|| self.endpoint.open(self.key, true)).count()
    }

    /// Waits for a response.
    pub fn response(&mut self, stream: u64) -> Response {
        self.wait(|client| {
            let response = &client.responses[&stream];
            response.is_complete || response.reset.is_some() || client.end.is_some()
        });
        // The end of the connection would be mistaken for a late response.
        assert_eq!(self.end, None);
        self.take(stream)
    }

    /// Whether a response is complete.
    pub fn is_complete(&self, stream: u64) -> bool {
        self.responses[&stream].is_complete
    }

    /// Takes the part of a response that has arrived.
    pub fn take(&mut self, stream: u64) -> Response {
        self.responses.remove(&stream).expect("a request")
    }

    /// The response to a GET.
    pub fn get(&mut self, path: &str) -> Response {
        let stream = self.request("GET", path, b"");
        self.response(stream)
    }

    /// Aborts a request.
    pub fn cancel(&mut self, stream: u64) {
        _ = self.endpoint.reset(self.key, stream, 0x10c);
        _ = self.endpoint.stop_reading(self.key, stream, 0x10c);
        self.turn();
    }

    /// The first stream that the server does not process, once it has announced the end of the connection (RFC 9114 §5.2).
    pub fn goaway(&self) -> Option<u64> {
        // The control stream begins with the type 0.
        let mut controls = self
            .server_streams
            .values()
            .filter(|it| it.first() == Some(&0));
        let mut rest = controls.next()?.get(1..)?;
        let mut goaway = None;
        while let Some((head, len)) = H3FrameHead::decode(rest) {
            let payload = rest[len..].get(..head.len as usize)?;
            rest = &rest[len + payload.len()..];
            if head.kind == kind::GOAWAY {
                let mut id = payload
                    .iter()
                    .fold(0, |id, byte| id << 8 | u64::from(*byte));
                // A variable-length integer (RFC 9000 §16).
                id &= u64::MAX >> (64 - 8 * payload.len() + 2);
                goaway = Some(id);
            }
        }
        goaway
    }

    /// Whether a reset or GOAWAY excludes that the server processes a request, so that it may be repeated.
    pub fn is_unprocessed(&self, stream: u64) -> bool {
        // H3_REQUEST_REJECTED
        self.responses[&stream].reset == Some(0x10b)
            || self.end.is_some() && self.goaway().is_some_and(|first| stream >= first)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.endpoint.close(self.key, 0x100, "", self.now_us());
        self.send();
    }

    /// The number of bytes of a response that have arrived.
    pub fn len(&self, stream: u64) -> usize {
        self.responses[&stream].bytes.len()
    }

    /// Whether bytes of a response have arrived.
    pub fn has_begun(&self, stream: u64) -> bool {
        !self.responses[&stream].bytes.is_empty()
    }

    /// Handles datagrams and timers until `is_done`.
    pub fn wait(&mut self, is_done: impl Fn(&Http3Client) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_done(self) {
            assert!(Instant::now() < end, "{:?}", self.end);
            self.turn();
        }
    }

    fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    fn turn(&mut self) {
        // If the check of the new path takes too long on a busy machine, the server returns to the old port, until it gets
        // another packet; this client may have none to send.
        if let Some(sent) = &mut self.rebound
            && sent.elapsed() > REBOUND_PING
        {
            *sent = Instant::now();
            self.endpoint.keep_alive(self.key);
        }
        self.send();
        let due_us = self.endpoint.due_us().unwrap_or(u64::MAX);
        let wait_us = due_us.saturating_sub(self.now_us()).clamp(1, 50_000);
        let wait = Some(Duration::from_micros(wait_us));
        self.socket.set_read_timeout(wait).expect("a time");
        // Path MTU discovery tries datagrams up to 1,452 bytes.
        let mut buffer = [0; 2048];
        if let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let datagram = IncomingDatagram {
                from,
                local_ip: None,
                ecn: EcnBits::default(),
                bytes: BytesMut::from(&buffer[..len]),
            };
            self.endpoint
                .take(datagram, self.now_us(), |_| Admission::Refuse);
        }
        self.endpoint.advance(self.now_us());
        self.send();
    }

    fn send(&mut self) {
        let mut out = Vec::new();
        while let Some(key) = self.endpoint.next_touched() {
            while let Some(event) = self.endpoint.next_event(key) {
                self.handle(event);
            }
            while let Some(train) = self.endpoint.emit(key, self.now_us(), 10, &mut out) {
                for datagram in out[..train.len].chunks(train.segment_len) {
                    if !self.is_open {
                        self.first_datagrams.push(datagram.to_vec());
                    }
                    // Datagrams may be lost.
                    _ = self.socket.send_to(datagram, self.server);
                }
            }
        }
    }

    fn handle(&mut self, event: QuicEvent) {
        match event {
            QuicEvent::Opened => {
                self.is_open = true;
                // RFC 9114 §6.2.1: each side begins a control stream with SETTINGS.
                let control = self.endpoint.open(self.key, false).expect("a stream");
                let settings = &mut [Bytes::from_static(&[0, 4, 0])];
                assert_eq!(self.endpoint.write(self.key, control, settings), Ok(3));
            }
            QuicEvent::Bytes {
                stream,
                bytes,
                is_end,
            } => {
                if let Some(response) = self.responses.get_mut(&stream) {
                    response.bytes.extend_from_slice(&bytes);
                    response.is_complete |= is_end;
                    if is_end {
                        self.completed.push(stream);
                    }
                } else if stream % 4 == 3 {
                    let known = self.server_streams.entry(stream).or_default();
                    known.extend_from_slice(&bytes);
                }
            }
            QuicEvent::Reset { stream, code } => {
                if let Some(response) = self.responses.get_mut(&stream) {
                    response.reset = Some(code);
                }
            }
            // The response is complete without the body.
            QuicEvent::Stopped { stream, .. } => _ = self.unsent.remove(&stream),
            QuicEvent::Writable { .. } => self.write(),
            QuicEvent::Over(reason) => self.end = Some(reason),
        }
    }

    fn write(&mut self) {
        let (endpoint, key) = (&mut self.endpoint, self.key);
        self.unsent.retain(|stream, parts| {
            if endpoint.write(key, *stream, parts).is_err() {
                return false;
            }
            parts.retain(|part| !part.is_empty());
            if parts.is_empty() {
                _ = endpoint.finish(key, *stream);
            }
            !parts.is_empty()
        });
    }
}

impl Response {
    fn frames(&self, wanted: u64) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        let all = std::iter::from_fn(move || {
            let (head, len) = H3FrameHead::decode(rest)?;
            let payload = rest[len..].get(..head.len as usize)?;
            rest = &rest[len + payload.len()..];
            Some((head.kind, payload))
        });
        all.filter(move |(kind, _)| *kind == wanted)
            .map(|(_, payload)| payload)
    }

    /// The fields of all heads, and the trailers.
    pub fn fields(&self) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let sections = self.frames(kind::HEADERS).map(|section| {
            let fields = SectionProbe::new(0).decode(section).expect("a section");
            fields.expect("no dynamic table")
        });
        sections
            .flatten()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    /// The values of a field.
    pub fn values(&self, name: &str) -> Vec<String> {
        let fields = self.fields().into_iter();
        let values = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.map(|(_, value)| value).collect()
    }

    /// The statuses of all heads.
    pub fn status(&self) -> String {
        self.values(":status").join(" ")
    }

    pub fn body(&self) -> Vec<u8> {
        assert!(self.is_complete, "the response was reset: {:?}", self.reset);
        self.frames(kind::DATA).flatten().copied().collect()
    }
}
