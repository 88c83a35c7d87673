//! A scripted HTTP origin server: a closure writes the bytes of each response, and all requests are recorded. It
//! accepts any request.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A request that the origin received.
#[derive(Clone, Debug)]
pub struct OriginRequest {
    /// The number of the request, from 0.
    pub number: usize,
    /// The method.
    pub method: String,
    /// The target as received.
    pub target: String,
    /// Request line and field lines, each with CRLF, without the empty line.
    pub head: String,
    /// The body, without chunked framing.
    pub body: Vec<u8>,
    /// The trailer section of a chunked body.
    pub trailers: String,
}

/// An origin server. Its threads end when it is dropped.
pub struct TestOrigin {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<OriginRequest>>>,
    is_stopped: Arc<AtomicBool>,
}

/// The script for a request: writes a response, part of one, or nothing. The connection stays open if the script
/// returns true.
pub type TestScript = dyn Fn(&OriginRequest, &mut TcpStream) -> bool + Send + Sync;

impl OriginRequest {
    /// Takes a complete request from the start of `input`, if there is one.
    pub fn take(input: &mut Vec<u8>) -> Option<OriginRequest> {
        // Includes the CRLF of the last field line, but not the empty line.
        let head_len = find(input, b"\r\n\r\n")? + 2;
        let head = String::from_utf8_lossy(&input[..head_len]).into_owned();
        let mut words = head.split(' ');
        let mut request = OriginRequest {
            number: 0,
            method: words.next()?.to_string(),
            target: words.next()?.to_string(),
            head: head.clone(),
            body: Vec::new(),
            trailers: String::new(),
        };
        let rest = &input[head_len + 2..];
        // Transfer-Encoding has precedence over Content-Length (RFC 9112 §6.3).
        let body_len = if request.field("transfer-encoding").is_some() {
            let (body, trailers, len) = chunks(rest)?;
            (request.body, request.trailers) = (body, trailers);
            len
        } else {
            let len = request
                .field("content-length")
                .map_or(Ok(0), str::parse)
                .ok()?;
            request.body = rest.get(..len)?.to_vec();
            len
        };
        input.drain(..head_len + 2 + body_len);
        Some(request)
    }

    /// Numbers the request, and appends it to `all`.
    pub fn record(mut self, all: &mut Vec<OriginRequest>) -> OriginRequest {
        self.number = all.len();
        all.push(self.clone());
        self
    }

    /// The first value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (field_name, value) = line.split_once(':')?;
            field_name.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl TestOrigin {
    /// An origin that answers each request with the text that `answer` returns, and keeps connections open.
    pub fn with_response(
        answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static,
    ) -> TestOrigin {
        TestOrigin::start(move |request, stream| {
            stream.write_all(answer(request).as_bytes()).is_ok()
        })
    }

    /// An origin that runs the script for each request.
    pub fn start(
        script: impl Fn(&OriginRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> TestOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (requests, is_stopped) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let origin = TestOrigin {
            address,
            requests: Arc::clone(&requests),
            is_stopped: is_stopped.clone(),
        };
        let script: Arc<TestScript> = Arc::new(script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if is_stopped.load(SeqCst) {
                    return;
                }
                let (requests, script) = (requests.clone(), script.clone());
                thread::spawn(move || serve(stream.ok()?, &requests, &*script));
            }
        });
        origin
    }

    /// The origin's URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<OriginRequest> {
        lock(&self.requests).clone()
    }

    /// The number of requests.
    pub fn count(&self) -> usize {
        lock(&self.requests).len()
    }
}

impl Drop for TestOrigin {
    fn drop(&mut self) {
        self.is_stopped.store(true, SeqCst);
        // The connection wakes the listening thread, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves one connection.
fn serve(
    mut stream: TcpStream,
    all: &Mutex<Vec<OriginRequest>>,
    script: &TestScript,
) -> Option<()> {
    // Without Nagle's algorithm, each write becomes a segment of its own.
    stream.set_nodelay(true).ok()?;
    let mut input = Vec::new();
    loop {
        // Recorded before the script runs, so that a count in the script includes this request.
        let request = next(&mut stream, &mut input)?.record(&mut lock(all));
        if !script(&request, &mut stream) {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
    }
}

/// Receives a request; `None` at the end of the connection.
fn next(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<OriginRequest> {
    loop {
        if let Some(request) = OriginRequest::take(input) {
            return Some(request);
        }
        let mut piece = [0; 16 << 10];
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return None,
        }
    }
}

/// Decodes a chunked body: its content, its trailer section, and the encoded length. `None` if it is incomplete.
pub fn chunks(input: &[u8]) -> Option<(Vec<u8>, String, usize)> {
    let (mut body, mut trailers, mut offset) = (Vec::new(), String::new(), 0);
    loop {
        let line = find(&input[offset..], b"\r\n")?;
        let size = String::from_utf8_lossy(&input[offset..offset + line]).into_owned();
        // Chunk extensions after `;` are ignored (RFC 9112 §7.1.1).
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        offset += line + 2;
        if size == 0 {
            break;
        }
        body.extend_from_slice(input.get(offset..offset + size)?);
        input.get(offset + size..offset + size + 2)?;
        offset += size + 2;
    }
    // Trailers, and the empty line.
    loop {
        let line = find(&input[offset..], b"\r\n")?;
        let bytes = &input[offset..offset + line + 2];
        offset += line + 2;
        if line == 0 {
            return Some((body, trailers, offset));
        }
        trailers.push_str(&String::from_utf8_lossy(bytes));
    }
}

fn find(input: &[u8], needle: &[u8]) -> Option<usize> {
    input
        .windows(needle.len())
        .position(|window| window == needle)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
