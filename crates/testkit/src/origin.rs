//! A scripted HTTP origin: a closure writes the response byte for byte, and all requests are recorded. Independent of
//! the client, and accepts any request.

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
    /// Request line and field lines with their line ends, without the empty line.
    pub head: String,
    /// The body, without chunked framing.
    pub body: Vec<u8>,
    /// The trailer section of a chunked body.
    pub trailers: String,
}

/// The origin. Its threads end when it is dropped.
pub struct TestOrigin {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<OriginRequest>>>,
    ended: Arc<AtomicBool>,
}

/// The script for a request: writes a response, a part of one, or none. The connection is kept if it returns true.
pub type TestScript = dyn Fn(&OriginRequest, &mut TcpStream) -> bool + Send + Sync;

impl OriginRequest {
    /// Takes a complete request from the start of the received bytes.
    pub fn take(input: &mut Vec<u8>) -> Option<OriginRequest> {
        // Keeps the line end of the last field, and drops the empty line.
        let head_len = find(input, b"\r\n\r\n")? + 2;
        let head = String::from_utf8_lossy(&input[..head_len]).into_owned();
        let mut words = head.split(' ');
        let mut asked = OriginRequest {
            number: 0,
            method: words.next()?.to_string(),
            target: words.next()?.to_string(),
            head: head.clone(),
            body: Vec::new(),
            trailers: String::new(),
        };
        let rest = &input[head_len + 2..];
        // Transfer-Encoding has precedence over Content-Length (RFC 9112 §6.3).
        let body_len = if asked.field("transfer-encoding").is_some() {
            let (body, trailers, len) = chunks(rest)?;
            (asked.body, asked.trailers) = (body, trailers);
            len
        } else {
            let len = asked
                .field("content-length")
                .map_or(Ok(0), str::parse)
                .ok()?;
            asked.body = rest.get(..len)?.to_vec();
            len
        };
        input.drain(..head_len + 2 + body_len);
        Some(asked)
    }

    /// Numbers the request, and appends it to the others.
    pub fn keep(mut self, all: &mut Vec<OriginRequest>) -> OriginRequest {
        self.number = all.len();
        all.push(self.clone());
        self
    }

    /// The first value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl TestOrigin {
    /// An origin that answers each request with the text from `answer`, and keeps connections.
    pub fn saying(answer: impl Fn(&OriginRequest) -> String + Send + Sync + 'static) -> TestOrigin {
        TestOrigin::start(move |asked, stream| stream.write_all(answer(asked).as_bytes()).is_ok())
    }

    /// An origin that runs the script for each request.
    pub fn start(
        script: impl Fn(&OriginRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> TestOrigin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (asked, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let origin = TestOrigin {
            address,
            asked: Arc::clone(&asked),
            ended: ended.clone(),
        };
        let script: Arc<TestScript> = Arc::new(script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(SeqCst) {
                    return;
                }
                let (asked, script) = (asked.clone(), script.clone());
                thread::spawn(move || serve(stream.ok()?, &asked, &*script));
            }
        });
        origin
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<OriginRequest> {
        lock(&self.asked).clone()
    }

    /// The number of requests.
    pub fn count(&self) -> usize {
        lock(&self.asked).len()
    }
}

impl Drop for TestOrigin {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        // The connection wakes the listener, which then sees the flag.
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves one connection.
fn serve(
    mut stream: TcpStream,
    all: &Mutex<Vec<OriginRequest>>,
    script: &TestScript,
) -> Option<()> {
    // Without Nagle's algorithm, separately written heads and bodies become separate segments.
    stream.set_nodelay(true).ok()?;
    let mut input = Vec::new();
    loop {
        // Recorded before the script runs, so that the script can count requests.
        let asked = next(&mut stream, &mut input)?.keep(&mut lock(all));
        if !script(&asked, &mut stream) {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
    }
}

/// Receives a request; `None` at the end of the connection.
fn next(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<OriginRequest> {
    loop {
        if let Some(asked) = OriginRequest::take(input) {
            return Some(asked);
        }
        let mut piece = [0; 16 << 10];
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return None,
        }
    }
}

/// The chunked body, its trailer section, and their length in bytes.
pub fn chunks(input: &[u8]) -> Option<(Vec<u8>, String, usize)> {
    let (mut body, mut trailers, mut at) = (Vec::new(), String::new(), 0);
    loop {
        let line = find(&input[at..], b"\r\n")?;
        let size = String::from_utf8_lossy(&input[at..at + line]).into_owned();
        // Chunk extensions after `;` are ignored (RFC 9112 §7.1.1).
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        at += line + 2;
        if size == 0 {
            break;
        }
        body.extend_from_slice(input.get(at..at + size)?);
        input.get(at + size..at + size + 2)?;
        at += size + 2;
    }
    // Trailers, and the empty line.
    loop {
        let line = find(&input[at..], b"\r\n")?;
        let bytes = &input[at..at + line + 2];
        at += line + 2;
        if line == 0 {
            return Some((body, trailers, at));
        }
        trailers.push_str(&String::from_utf8_lossy(bytes));
    }
}

fn find(input: &[u8], what: &[u8]) -> Option<usize> {
    input.windows(what.len()).position(|window| window == what)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
