//! Asks the origin for a response, as a shared cache would. It knows nothing of what is stored.
//!
//! Connections are kept and used again; the caller makes them, to the address that the key names, since
//! they may need a certain source address. Everything that the origin sends is bounded and checked: what could be read in two ways
//! is an error, and the connection is given up. Read RFC 9112 §6.3, §7.1 and §9.3.

pub mod asker;
mod receiving;
pub mod recognition;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lowroad_wire::key::KeyParts;

use self::receiving::Response;
use crate::response::FetchError;
use crate::response::fetched::{Fetched, Validators};

/// Bytes read at once.
const READ_LEN: usize = 8 << 10;
/// Connections kept for later, whatever the number of addresses.
const POOL_MAX: usize = 4;

/// How long and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the head of a response. Default 16 KiB.
    pub head_len_max: usize,
    /// Bytes of a body. Default 64 KiB; more is given up.
    pub body_len_max: usize,
    /// For each wait for the origin. Default 2000.
    pub wait_ms: u64,
    /// For the whole fetch, connecting apart. Default 5000.
    pub total_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_len_max: 16 << 10,
            body_len_max: 64 << 10,
            wait_ms: 2000,
            total_ms: 5000,
        }
    }
}

/// Fetches one response at a time over connections that it keeps. `connect` makes one to an address of
/// the origin, within a time of its own; `AddrNotAvailable` says that there is no such address.
#[derive(Debug)]
pub struct Fetcher<C> {
    connect: C,
    limits: Limits,
    /// Connections on which nothing is under way, with where they lead; the latest last.
    pool: Vec<(SocketAddr, TcpStream)>,
}

impl<C: Fn(SocketAddr) -> io::Result<TcpStream>> Fetcher<C> {
    /// Without connections yet.
    pub fn new(connect: C, limits: Limits) -> Fetcher<C> {
        Fetcher {
            connect,
            limits,
            pool: Vec::new(),
        }
    }

    /// Asks for what the key names, with a GET; `validators` make the request conditional where the
    /// key does not.
    ///
    /// # Errors
    /// There is no whole response that is certain.
    pub fn fetch(
        &mut self,
        key: &KeyParts<'_>,
        validators: &Validators,
    ) -> Result<Fetched, FetchError> {
        let deadline = Instant::now() + Duration::from_millis(self.limits.total_ms);
        let local = key.local();
        if let Some(stream) = self.take_pooled(local) {
            match self.exchange(stream, key, validators, deadline) {
                // It may have been closed while the request was on its way; a GET may be repeated.
                Err(FetchError::Closed | FetchError::Broken(_)) => {}
                result => return result,
            }
        }
        let stream = (self.connect)(local).map_err(|error| match error.kind() {
            ErrorKind::AddrNotAvailable => FetchError::AddressGone(key.address),
            kind => FetchError::Connect(kind),
        })?;
        // The request is one write; the answer's acknowledgement need not wait for more.
        stream.set_nodelay(true).map_err(broken)?;
        self.exchange(stream, key, validators, deadline)
    }

    fn exchange(
        &mut self,
        stream: TcpStream,
        key: &KeyParts<'_>,
        validators: &Validators,
        deadline: Instant,
    ) -> Result<Fetched, FetchError> {
        let mut input = Input {
            stream,
            limits: self.limits,
            deadline,
            bytes: Vec::new(),
        };
        let mut request = Vec::new();
        let lines = lines(key, validators);
        let mut response = Response::to_get(key.target, &lines, self.limits, &mut request);
        input.send(&request)?;
        while !response.take(&mut input.bytes)? {
            if input.receive()? == 0 {
                return Err(FetchError::Closed);
            }
        }
        if response.keeps_connection() && input.bytes.is_empty() {
            self.keep(key.local(), input.stream);
        }
        Ok(response.fetched(unix_secs()))
    }

    /// A kept connection on which nothing has come meanwhile.
    fn take_pooled(&mut self, local: SocketAddr) -> Option<TcpStream> {
        while let Some(at) = self.pool.iter().rposition(|(to, _)| *to == local) {
            let (_, stream) = self.pool.remove(at);
            if is_quiet(&stream).unwrap_or(false) {
                return Some(stream);
            }
        }
        None
    }

    fn keep(&mut self, local: SocketAddr, stream: TcpStream) {
        if self.pool.len() == POOL_MAX {
            self.pool.remove(0);
        }
        self.pool.push((local, stream));
    }
}

/// Neither closed nor with bytes that nobody asked for.
fn is_quiet(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(peeked.is_err_and(|e| e.kind() == ErrorKind::WouldBlock))
}

fn unix_secs() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Who asks, by the field of that name: a server of ours tells the level below what it must not keep.
/// Anybody can say so; the server looks where the connection comes from, too.
pub const USER_AGENT: &[u8] = b"lowroad";

/// A whole response that came in one piece.
///
/// # Errors
/// It is malformed, or not whole.
pub fn read(bytes: &[u8]) -> Result<Fetched, FetchError> {
    let limits = Limits {
        body_len_max: bytes.len(),
        ..Limits::default()
    };
    let mut response = Response::to_get(b"/", b"", limits, &mut Vec::new());
    let mut bytes = bytes.to_vec();
    match response.take(&mut bytes) {
        Ok(true) if bytes.is_empty() => Ok(response.fetched(unix_secs())),
        // What it announces is longer than all that there is.
        Ok(_) | Err(FetchError::TooLong { .. }) => Err(FetchError::Closed),
        Err(error) => Err(error),
    }
}

/// The bytes to send. The key's values hold no byte that ends a line.
#[must_use]
pub fn request(key: &KeyParts<'_>, validators: &Validators) -> Vec<u8> {
    let mut out = Vec::new();
    let lines = lines(key, validators);
    Response::to_get(key.target, &lines, Limits::default(), &mut out);
    out
}

/// The field lines of a request.
fn lines(key: &KeyParts<'_>, validators: &Validators) -> Vec<u8> {
    let (etag, modified) = if key.is_conditional() {
        (key.if_none_match, key.if_modified_since)
    } else {
        (
            validators.etag.as_deref(),
            validators.last_modified.as_deref(),
        )
    };
    let mut out = Vec::new();
    for (name, value) in [
        ("Host", Some(key.host)),
        ("User-Agent", Some(USER_AGENT)),
        ("Accept", Some(b"*/*".as_slice())),
        ("Accept-Encoding", key.accept_encoding),
        ("If-None-Match", etag),
        ("If-Modified-Since", modified),
    ] {
        let Some(value) = value else { continue };
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// What comes from one connection.
struct Input {
    stream: TcpStream,
    limits: Limits,
    deadline: Instant,
    /// Received and not yet used.
    bytes: Vec<u8>,
}

impl Input {
    fn send(&mut self, request: &[u8]) -> Result<(), FetchError> {
        let wait = self.wait()?;
        self.stream.set_write_timeout(Some(wait)).map_err(broken)?;
        self.stream.write_all(request).map_err(broken)
    }

    /// Waits for more; 0 means that the origin has closed.
    fn receive(&mut self) -> Result<usize, FetchError> {
        let mut piece = [0; READ_LEN];
        loop {
            let wait = self.wait()?;
            self.stream.set_read_timeout(Some(wait)).map_err(broken)?;
            match self.stream.read(&mut piece) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(broken(e)),
                Ok(len) => {
                    self.bytes.extend_from_slice(&piece[..len]);
                    return Ok(len);
                }
            }
        }
    }

    /// How long the next call may wait.
    fn wait(&self) -> Result<Duration, FetchError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let wait = left.min(Duration::from_millis(self.limits.wait_ms));
        // A timeout of 0 would mean none.
        if wait.is_zero() {
            return Err(FetchError::TimedOut);
        }
        Ok(wait)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
fn broken(error: io::Error) -> FetchError {
    match error.kind() {
        // The first is what the kernel says when a timeout is over.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => FetchError::TimedOut,
        kind => FetchError::Broken(kind),
    }
}
