//! A scripted HTTP origin: a closure says what it answers, byte for byte, and all that it was asked is kept. Knows nothing
//! of who asks, and is strict with nobody.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What an origin was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The number of the request, from 0.
    pub number: usize,
    /// The method.
    pub method: String,
    /// The target as it came.
    pub target: String,
    /// Request line and field lines with their line ends, without the empty line.
    pub head: String,
    /// The body, with its chunks taken away.
    pub body: Vec<u8>,
    /// The field lines behind a body in chunks.
    pub trailers: String,
}

/// The origin. Its threads end with it.
pub struct Origin {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    ended: Arc<AtomicBool>,
}

/// What it does with a request: writes an answer, or part of one, or nothing. The connection is kept if this is true.
pub type Script = dyn Fn(&Asked, &mut TcpStream) -> bool + Send + Sync;

impl Asked {
    /// Takes a request from the start of what was received, if it is whole.
    pub fn take(input: &mut Vec<u8>) -> Option<Asked> {
        let head_len = find(input, b"\r\n\r\n")? + 2;
        let head = String::from_utf8_lossy(&input[..head_len]).into_owned();
        let mut words = head.split(' ');
        let mut asked = Asked {
            number: 0,
            method: words.next()?.to_string(),
            target: words.next()?.to_string(),
            head: head.clone(),
            body: Vec::new(),
            trailers: String::new(),
        };
        let rest = &input[head_len + 2..];
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

    /// Gives it its number, and puts it among those that were there before.
    pub fn keep(mut self, all: &mut Vec<Asked>) -> Asked {
        self.number = all.len();
        all.push(self.clone());
        self
    }

    /// The value of a field, if it came: the first.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Origin {
    /// An origin that answers each request with the text that `answer` gives, and keeps connections.
    pub fn saying(answer: impl Fn(&Asked) -> String + Send + Sync + 'static) -> Origin {
        Origin::start(move |asked, stream| stream.write_all(answer(asked).as_bytes()).is_ok())
    }

    /// An origin that does with each request as the script says.
    pub fn start(
        script: impl Fn(&Asked, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (asked, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let origin = Origin {
            address,
            asked: Arc::clone(&asked),
            ended: ended.clone(),
        };
        let script: Arc<Script> = Arc::new(script);
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

    /// All that it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }

    /// How often it was asked.
    pub fn count(&self) -> usize {
        lock(&self.asked).len()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        // Its listener hears of the end by a connection.
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves one connection.
fn serve(mut stream: TcpStream, all: &Mutex<Vec<Asked>>, script: &Script) -> Option<()> {
    // Heads and bodies that are written apart go out apart, and at once.
    stream.set_nodelay(true).ok()?;
    let mut input = Vec::new();
    loop {
        let asked = next(&mut stream, &mut input)?.keep(&mut lock(all));
        if !script(&asked, &mut stream) {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
    }
}

/// Receives until there is a request; `None` at the end of the connection.
fn next(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Asked> {
    loop {
        if let Some(asked) = Asked::take(input) {
            return Some(asked);
        }
        let mut piece = [0; 16 << 10];
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return None,
        }
    }
}

/// A body in chunks, the lines behind it, and how many bytes all that takes.
pub fn chunks(input: &[u8]) -> Option<(Vec<u8>, String, usize)> {
    let (mut body, mut trailers, mut at) = (Vec::new(), String::new(), 0);
    loop {
        let line = find(&input[at..], b"\r\n")?;
        let size = String::from_utf8_lossy(&input[at..at + line]).into_owned();
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
