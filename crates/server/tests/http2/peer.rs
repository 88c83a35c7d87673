//! An HTTP/2 client on a blocking socket. It can leave the bodies of some streams unread.

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::{self, ErrorCode, H2ClientEvent, OutgoingRequest, StreamId};
use lowroad_http::method::Method;
use lowroad_limits::{CellRate, RequestRate};

/// Timeout of all operations.
const PATIENCE: Duration = Duration::from_secs(60);

/// The received parts of a stream's response.
#[derive(Default, Debug)]
pub struct ReceivedResponse {
    pub status: u16,
    pub body: Vec<u8>,
    /// The field lines of head and trailers.
    pub lines: String,
    pub is_ended: bool,
    /// Whether END_STREAM came with the head.
    pub ended_with_head: bool,
    pub reset: Option<ErrorCode>,
}

/// An HTTP/2 client with one connection.
pub struct Peer {
    stream: TcpStream,
    http: h2::H2Client,
    settings: h2::H2Settings,
    counters: h2::GlitchCounters,
    text: Vec<u8>,
    input: Vec<u8>,
    /// Data that flow control holds back, by stream.
    unsent: HashMap<u32, Vec<u8>>,
    /// Streams for which the client sends no WINDOW_UPDATE.
    pub unread: HashSet<u32>,
    pub got: HashMap<u32, ReceivedResponse>,
    /// The server's last GOAWAY: the last stream, and the code.
    pub goaway: Option<(u32, ErrorCode)>,
    /// Whether the connection has ended.
    pub is_over: bool,
}

impl Peer {
    /// Connects, and sends the preface.
    pub fn connect(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).expect("a connection");
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        // The client itself has no limits, since only the server's behaviour is tested.
        let all = CellRate::new(RequestRate {
            requests: 1,
            period_ms: 1000,
            burst: u32::MAX.into(),
        });
        let settings = h2::H2Settings {
            resets: all,
            glitches: all,
            ..Default::default()
        };
        let mut counters = h2::GlitchCounters::default();
        let mut out = Vec::new();
        let http = h2::H2Client::new(&mut h2::ConnectionTurn {
            now_ms: 1,
            settings: &settings,
            out: &mut out,
            counters: &mut counters,
        });
        let mut peer = Peer {
            stream,
            http,
            settings,
            counters,
            text: Vec::new(),
            input: Vec::new(),
            unsent: HashMap::new(),
            unread: HashSet::new(),
            got: HashMap::new(),
            goaway: None,
            is_over: false,
        };
        peer.send(&out);
        peer
    }

    /// Sends raw bytes. A closed connection is not an error.
    pub fn send(&mut self, bytes: &[u8]) {
        self.is_over |= self.stream.write_all(bytes).is_err();
    }

    /// Appends the frames of a request without a body to `out`; returns its stream.
    pub fn put_get(&mut self, path: &str, out: &mut Vec<u8>) -> u32 {
        self.put_head((path, FieldLines::NONE), Method::Get, BodyLen::None, out)
    }

    /// Appends the head of a request with a body of this length to `out`; returns its stream.
    pub fn put_post(&mut self, path: &str, len: u64, out: &mut Vec<u8>) -> u32 {
        let request = (path, FieldLines::NONE);
        self.put_head(request, Method::Post, BodyLen::Known(len), out)
    }

    /// Opens a WebSocket tunnel in a stream (RFC 8441).
    pub fn open_tunnel(&mut self, path: &str) -> u32 {
        self.read_until("the server's settings", |it| {
            it.http.accepts_connect_protocol()
        });
        let ask = OutgoingRequest {
            method: Method::Connect,
            is_https: false,
            authority: b"test",
            path: path.as_bytes(),
            protocol: Some(b"websocket"),
        };
        let lines = FieldLines::new(b"sec-websocket-version: 13\r\n");
        let mut out = Vec::new();
        let stream = self.http.request(&ask, lines, BodyLen::Unknown, &mut out);
        let stream = stream.expect("room for a stream").0;
        self.got.insert(stream, ReceivedResponse::default());
        self.send(&out);
        stream
    }

    /// Sends bytes in a tunnel, as far as flow control permits.
    pub fn send_in_tunnel(&mut self, stream: u32, bytes: &[u8]) {
        let ready = self.http.body(StreamId(stream), bytes.len() as u64);
        assert_eq!(ready, Ok(true));
        self.unsent
            .entry(stream)
            .or_default()
            .extend_from_slice(bytes);
        self.tell_on();
    }

    /// Ends a request body with these trailers.
    pub fn end_with(&mut self, stream: u32, trailers: &[u8]) {
        let ended = self.http.end(StreamId(stream), FieldLines::new(trailers));
        assert!(ended.is_ok());
        self.tell_on();
    }

    /// The number of bytes of a stream that flow control holds back.
    pub fn unsent_len(&self, stream: u32) -> usize {
        self.unsent.get(&stream).map_or(0, Vec::len)
    }

    /// Ends the client's side of a tunnel.
    pub fn end_tunnel(&mut self, stream: u32) {
        let ended = self.http.end(StreamId(stream), FieldLines::NONE);
        assert!(ended.is_ok());
        self.tell_on();
    }

    fn tell_on(&mut self) {
        let mut out = Vec::new();
        while let Some(piece) = self.http.send(16_384, &mut out) {
            let unsent = self.unsent.entry(piece.stream.0).or_default();
            out.extend(unsent.drain(..piece.len as usize));
        }
        self.send(&out);
    }

    fn put_head(
        &mut self,
        (path, lines): (&str, FieldLines<'_>),
        method: Method,
        len: BodyLen,
        out: &mut Vec<u8>,
    ) -> u32 {
        let ask = OutgoingRequest {
            method,
            is_https: false,
            authority: b"test",
            path: path.as_bytes(),
            protocol: None,
        };
        let stream = self.http.request(&ask, lines, len, out);
        let stream = stream.expect("room for a stream").0;
        self.got.insert(stream, ReceivedResponse::default());
        stream
    }

    /// Sends the head of a request with a body of unknown length; returns its stream.
    pub fn begin_post(&mut self, path: &str, lines: &[u8]) -> u32 {
        let mut out = Vec::new();
        let request = (path, FieldLines::new(lines));
        let stream = self.put_head(request, Method::Post, BodyLen::Unknown, &mut out);
        self.send(&out);
        stream
    }

    /// Resets a stream.
    pub fn put_reset(&mut self, stream: u32, out: &mut Vec<u8>) {
        self.http.reset(StreamId(stream), ErrorCode::CANCEL, out);
    }

    /// Sends a request for a path with these field lines.
    pub fn get_with(&mut self, path: &str, lines: &[u8]) -> u32 {
        let mut out = Vec::new();
        let request = (path, FieldLines::new(lines));
        let stream = self.put_head(request, Method::Get, BodyLen::None, &mut out);
        self.send(&out);
        stream
    }

    /// Sends a request for a path.
    pub fn get(&mut self, path: &str) -> u32 {
        let mut out = Vec::new();
        let stream = self.put_get(path, &mut out);
        self.send(&out);
        stream
    }

    /// Sends bytes, and then reads the available data without blocking.
    pub fn send_and_poll(&mut self, bytes: &[u8]) {
        self.send(bytes);
        self.stream.set_nonblocking(true).expect("an option");
        let mut piece = vec![0; 1 << 16];
        while let Ok(len @ 1..) = self.stream.read(&mut piece) {
            self.input.extend_from_slice(&piece[..len]);
        }
        self.stream.set_nonblocking(false).expect("an option");
        self.take();
    }

    /// Reads until a condition holds, or the connection has ended.
    pub fn read_until(&mut self, what: &str, has_come: impl Fn(&Peer) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !has_come(self) && !self.is_over {
            assert!(Instant::now() < end, "waited in vain for {what}");
            self.read();
        }
        assert!(
            has_come(self),
            "{what}: {:?}, over: {}",
            self.goaway,
            self.is_over
        );
    }

    /// Reads until a stream has ended; returns its response.
    pub fn receive_response(&mut self, stream: u32) -> &ReceivedResponse {
        self.read_until("a response", |it| {
            let got = &it.got[&stream];
            got.is_ended || got.reset.is_some()
        });
        &self.got[&stream]
    }

    /// Reads until the connection has ended.
    pub fn read_until_closed(&mut self) {
        self.read_until("the end", |it| it.is_over);
    }

    /// Reads once.
    fn read(&mut self) {
        let mut piece = vec![0; 1 << 16];
        match self.stream.read(&mut piece) {
            Ok(0) => self.is_over = true,
            Ok(len) => self.input.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => self.is_over = true,
        }
        self.take();
    }

    /// Processes the received data.
    fn take(&mut self) {
        let (mut out, mut used) = (Vec::new(), 0);
        let mut text = std::mem::take(&mut self.text);
        let input = std::mem::take(&mut self.input);
        loop {
            let mut turn = h2::ConnectionTurn {
                now_ms: 1,
                settings: &self.settings,
                out: &mut out,
                counters: &mut self.counters,
            };
            let step = self.http.next(&input[used..], &mut text, &mut turn);
            let step = step.expect("the server keeps to the protocol");
            used += step.used;
            match step.event {
                None if step.used == 0 => break,
                None | Some(H2ClientEvent::Interim(_)) => {}
                Some(H2ClientEvent::Response(head)) => {
                    let got = self.got.entry(head.stream.0).or_default();
                    (got.status, got.is_ended) = (head.status.code(), !head.has_body);
                    got.ended_with_head = !head.has_body;
                    put_lines(head.fields, &mut got.lines);
                }
                Some(H2ClientEvent::Data { stream, data }) => {
                    let got = self.got.entry(stream.0).or_default();
                    got.body.extend_from_slice(data);
                    if !self.unread.contains(&stream.0) {
                        self.http.release_capacity(stream, data.len(), &mut out);
                    }
                }
                Some(H2ClientEvent::End { stream, trailers }) => {
                    let got = self.got.entry(stream.0).or_default();
                    got.is_ended = true;
                    put_lines(trailers, &mut got.lines);
                }
                Some(H2ClientEvent::Reset { stream, code }) => {
                    self.got.entry(stream.0).or_default().reset = Some(code);
                }
                Some(H2ClientEvent::GoneAway { last, code }) => {
                    self.goaway = Some((last.0, code));
                }
            }
        }
        self.input = input[used..].to_vec();
        self.text = text;
        if !out.is_empty() {
            self.send(&out);
        }
        self.tell_on();
    }
}

fn put_lines(lines: FieldLines<'_>, out: &mut String) {
    for (name, value) in lines {
        let (name, value) = (
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        );
        out.push_str(&format!("{name}: {value}\n"));
    }
}
