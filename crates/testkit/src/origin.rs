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
        let asked = next(&mut stream, &mut input, all)?;
        if !script(&asked, &mut stream) {
            let _ = stream.shutdown(Shutdown::Both);
            return None;
        }
    }
}

/// Reads one request with its body.
fn next(stream: &mut TcpStream, input: &mut Vec<u8>, all: &Mutex<Vec<Asked>>) -> Option<Asked> {
    let head_len = until(stream, input, |input| find(input, b"\r\n\r\n"))? + 2;
    let head = String::from_utf8_lossy(&input[..head_len]).into_owned();
    input.drain(..head_len + 2);
    let mut words = head.split(' ');
    let mut asked = Asked {
        number: 0,
        method: words.next()?.to_string(),
        target: words.next()?.to_string(),
        head: head.clone(),
        body: Vec::new(),
        trailers: String::new(),
    };
    if asked.field("transfer-encoding").is_some() {
        (asked.body, asked.trailers) = chunks(stream, input)?;
    } else if let Some(len) = asked.field("content-length") {
        let len: usize = len.parse().ok()?;
        until(stream, input, |input| (input.len() >= len).then_some(()))?;
        asked.body = input.drain(..len).collect();
    }
    let mut all = lock(all);
    asked.number = all.len();
    all.push(asked.clone());
    Some(asked)
}

/// A body, and the lines behind it.
fn chunks(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<(Vec<u8>, String)> {
    let (mut body, mut trailers) = (Vec::new(), String::new());
    loop {
        let line = until(stream, input, |input| find(input, b"\r\n"))?;
        let size = String::from_utf8_lossy(&input[..line]).into_owned();
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        input.drain(..line + 2);
        if size == 0 {
            // Trailers, and the empty line.
            loop {
                let line = until(stream, input, |input| find(input, b"\r\n"))?;
                let bytes: Vec<u8> = input.drain(..line + 2).collect();
                if line == 0 {
                    return Some((body, trailers));
                }
                trailers.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        until(stream, input, |input| {
            (input.len() >= size + 2).then_some(())
        })?;
        body.extend(input.drain(..size));
        input.drain(..2);
    }
}

/// Receives until there is what is looked for; `None` at the end of the connection.
fn until<T>(
    stream: &mut TcpStream,
    input: &mut Vec<u8>,
    look: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    loop {
        if let Some(found) = look(input) {
            return Some(found);
        }
        let mut piece = [0; 16 << 10];
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return None,
        }
    }
}

fn find(input: &[u8], what: &[u8]) -> Option<usize> {
    input.windows(what.len()).position(|window| window == what)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
