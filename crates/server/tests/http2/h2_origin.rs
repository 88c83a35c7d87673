//! An origin that speaks HTTP/2 in clear text: a script answers its frames, with any bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use lowroad_http::h2::frame::{self, FrameHead, HEAD_LEN, kind};
use lowroad_http::h2::hpack::probe::DecoderProbe;
use lowroad_http::h2::{ErrorCode, PREFACE};

/// A frame that the origin received.
#[derive(Clone, Debug)]
pub struct ReceivedFrame {
    pub head: FrameHead,
    pub payload: Vec<u8>,
    /// The fields of HEADERS: `name: value` lines.
    pub fields: String,
}

impl ReceivedFrame {
    /// Whether this is the last frame of a request.
    pub fn ends_request(&self) -> bool {
        matches!(self.head.kind, kind::HEADERS | kind::DATA)
            && self.head.has(frame::flag::END_STREAM)
    }

    /// The value of a field of HEADERS.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.fields.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A connection of the origin, to which the script writes.
pub struct OriginConnection {
    pub stream: TcpStream,
    pub number: usize,
}

impl OriginConnection {
    /// Sends any bytes. A closed connection is no error.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends HEADERS.
    pub fn headers(&mut self, stream: u32, fields: &[(&str, &str)], is_end: bool) {
        self.raw(&headers(stream, fields, is_end));
    }

    /// Sends DATA in frames of the usual size.
    pub fn data(&mut self, stream: u32, bytes: &[u8], is_end: bool) {
        let mut out = Vec::new();
        let count = bytes.chunks(16_384).count().max(1);
        for (at, chunk) in bytes.chunks(16_384).enumerate() {
            let flags = u8::from(is_end && at + 1 == count);
            frame::put_head(kind::DATA, flags, stream, chunk.len(), &mut out);
            out.extend_from_slice(chunk);
        }
        if bytes.is_empty() {
            frame::put_head(kind::DATA, u8::from(is_end), stream, 0, &mut out);
        }
        self.raw(&out);
    }

    /// Sends a 200 response with this short body, in one piece.
    pub fn respond(&mut self, stream: u32, body: &str) {
        let len = body.len().to_string();
        let fields = [(":status", "200"), ("content-length", &*len)];
        let mut out = headers(stream, &fields, false);
        frame::put_head(kind::DATA, 1, stream, body.len(), &mut out);
        out.extend_from_slice(body.as_bytes());
        self.raw(&out);
    }

    /// Sends RST_STREAM.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        let mut out = Vec::new();
        frame::put_reset(stream, code, &mut out);
        self.raw(&out);
    }

    /// Sends GOAWAY.
    pub fn goaway(&mut self, last: u32, code: ErrorCode) {
        let mut out = Vec::new();
        frame::put_goaway(last, code, "", &mut out);
        self.raw(&out);
    }
}

/// A HEADERS frame.
pub fn headers(stream: u32, fields: &[(&str, &str)], is_end: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        put_literal(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let flags = frame::flag::END_HEADERS | u8::from(is_end);
    let mut out = Vec::new();
    frame::put_head(kind::HEADERS, flags, stream, block.len(), &mut out);
    out.extend_from_slice(&block);
    out
}

/// A literal field without indexing (RFC 7541 §6.2.2), with any bytes.
pub fn put_literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        let Some(mut rest) = text.len().checked_sub(127) else {
            out.push(text.len() as u8);
            out.extend_from_slice(text);
            continue;
        };
        out.push(127);
        while rest >= 128 {
            out.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        out.push(rest as u8);
        out.extend_from_slice(text);
    }
}

/// An origin server.
pub struct H2Origin {
    address: SocketAddr,
    frames: Arc<Mutex<Vec<ReceivedFrame>>>,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl H2Origin {
    /// An origin with these settings and a script that is called for each frame. If the script returns false, the
    /// connection is closed.
    pub fn start(
        settings: &[(u16, u32)],
        script: impl Fn(&mut OriginConnection, &ReceivedFrame) -> bool + Send + Sync + 'static,
    ) -> H2Origin {
        let mut first = Vec::new();
        frame::put_settings(settings, &mut first);
        H2Origin::with_first_bytes(first, script)
    }

    /// An origin that sends these bytes first on each connection.
    pub fn with_first_bytes(
        first: Vec<u8>,
        script: impl Fn(&mut OriginConnection, &ReceivedFrame) -> bool + Send + Sync + 'static,
    ) -> H2Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let origin = H2Origin {
            address: listener.local_addr().expect("an address"),
            frames: Arc::default(),
            connections: Arc::default(),
            ended: Arc::default(),
        };
        let (frames, connections) = (origin.frames.clone(), origin.connections.clone());
        let ended = origin.ended.clone();
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let number = connections.fetch_add(1, SeqCst);
                let (frames, script, first) = (frames.clone(), script.clone(), first.clone());
                let ended = ended.clone();
                let _ = stream.set_nodelay(true);
                let mut connection = OriginConnection { stream, number };
                std::thread::spawn(move || {
                    serve(&mut connection, &first, &frames, &*script);
                    ended.fetch_add(1, SeqCst);
                });
            }
        });
        origin
    }

    /// The URL with the scheme `h2c`.
    pub fn url(&self) -> String {
        format!("h2c://{}", self.address)
    }

    /// All frames so far.
    pub fn frames(&self) -> Vec<ReceivedFrame> {
        let frames = self.frames.lock();
        frames.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ReceivedFrame> {
        let mut frames = self.frames();
        frames.retain(|frame| frame.head.kind == kind::HEADERS && frame.field(":method").is_some());
        frames
    }

    /// The number of connections that have ended.
    pub fn ended_connections(&self) -> usize {
        self.ended.load(SeqCst)
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }
}

fn serve(
    connection: &mut OriginConnection,
    first: &[u8],
    frames: &Mutex<Vec<ReceivedFrame>>,
    script: &(dyn Fn(&mut OriginConnection, &ReceivedFrame) -> bool + Send + Sync),
) -> Option<()> {
    let mut preface = [0; PREFACE.len()];
    connection.stream.read_exact(&mut preface).ok()?;
    assert_eq!(&preface, PREFACE);
    connection.raw(first);
    let mut decoder = DecoderProbe::new(4096);
    loop {
        let mut head = [0; HEAD_LEN];
        connection.stream.read_exact(&mut head).ok()?;
        let head = FrameHead::parse(&head);
        let mut payload = vec![0; head.len];
        connection.stream.read_exact(&mut payload).ok()?;
        let mut fields = String::new();
        if head.kind == kind::HEADERS {
            for (name, value) in decoder.decode(&payload).expect("a valid block") {
                let (name, value) = (
                    String::from_utf8_lossy(&name),
                    String::from_utf8_lossy(&value),
                );
                fields.push_str(&format!("{name}: {value}\n"));
            }
        }
        let frame = ReceivedFrame {
            head,
            payload,
            fields,
        };
        frames
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(frame.clone());
        if !script(connection, &frame) {
            return None;
        }
    }
}
