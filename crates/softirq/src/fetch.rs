//! Fetches a response from the origin with the request that a shared cache would send. Independent of storage.
//!
//! Connections are pooled. The caller's `connect` opens them to the address that the key names, since a connection may
//! need a certain source address. Everything that the origin sends is bounded and checked: ambiguous framing is an
//! error and closes the connection. See RFC 9112 §6.3, §7.1 and §9.3.

pub mod address_fetcher;
mod incoming_response;
pub mod recognition;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lowroad_wire::key::KeyParts;

use self::incoming_response::IncomingResponse;
use crate::response::FetchError;
use crate::response::fetched_response::{FetchedResponse, RevalidationFields};

/// Maximum number of bytes per read.
const READ_LEN: usize = 8 << 10;
/// Maximum number of idle connections, over all addresses.
const POOL_MAX: usize = 4;

/// Limits of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Maximum bytes of a response's head. Default 16 KiB.
    pub head_len_max: usize,
    /// Maximum bytes of a body. Default 64 KiB; a longer one ends the fetch.
    pub body_len_max: usize,
    /// Timeout of each read or write. Default 2000.
    pub wait_ms: u64,
    /// Timeout of the whole fetch, not counting the connect. Default 5000.
    pub total_ms: u64,
}

impl Default for FetchLimits {
    fn default() -> FetchLimits {
        FetchLimits {
            head_len_max: 16 << 10,
            body_len_max: 64 << 10,
            wait_ms: 2000,
            total_ms: 5000,
        }
    }
}

/// Fetches one response at a time over pooled connections. `connect` opens a connection to an address of the origin,
/// with a timeout of its own; its error `AddrNotAvailable` means that the address does not exist.
#[derive(Debug)]
pub struct ResponseFetcher<C> {
    connect: C,
    limits: FetchLimits,
    /// Idle connections with their destination; the most recently used connection is the last.
    pool: Vec<(SocketAddr, TcpStream)>,
}

impl<C: Fn(SocketAddr) -> io::Result<TcpStream>> ResponseFetcher<C> {
    /// Starts without connections.
    pub fn new(connect: C, limits: FetchLimits) -> ResponseFetcher<C> {
        ResponseFetcher {
            connect,
            limits,
            pool: Vec::new(),
        }
    }

    /// Sends a GET for the key. `validators` make the request conditional, unless the key is conditional itself.
    ///
    /// # Errors
    /// If the origin sends no complete and unambiguous response.
    pub fn fetch(
        &mut self,
        key: &KeyParts<'_>,
        validators: &RevalidationFields,
    ) -> Result<FetchedResponse, FetchError> {
        // The first attempt and the retry share one deadline.
        let deadline = Instant::now() + Duration::from_millis(self.limits.total_ms);
        let local = key.local();
        if let Some(stream) = self.take_pooled(local) {
            match self.exchange(stream, key, validators, deadline) {
                // The origin may have closed the connection while the request was in flight; a GET may be repeated (RFC
                // 9112 §9.3.1).
                Err(FetchError::Closed | FetchError::Broken(_)) => {}
                result => return result,
            }
        }
        let stream = (self.connect)(local).map_err(|error| match error.kind() {
            ErrorKind::AddrNotAvailable => FetchError::AddressGone(key.address),
            kind => FetchError::Connect(kind),
        })?;
        // The request is a single write, so Nagle's algorithm could only delay it.
        stream.set_nodelay(true).map_err(broken)?;
        self.exchange(stream, key, validators, deadline)
    }

    fn exchange(
        &mut self,
        stream: TcpStream,
        key: &KeyParts<'_>,
        validators: &RevalidationFields,
        deadline: Instant,
    ) -> Result<FetchedResponse, FetchError> {
        let mut input = FetchInput {
            stream,
            limits: self.limits,
            deadline,
            bytes: Vec::new(),
        };
        let mut request = Vec::new();
        let lines = lines(key, validators);
        let mut response = IncomingResponse::to_get(key.target, &lines, self.limits, &mut request);
        input.send(&request)?;
        while !response.take(&mut input.bytes)? {
            if input.receive()? == 0 {
                return Err(FetchError::Closed);
            }
        }
        // Leftover bytes could be taken for a part of the next response.
        if response.keeps_connection() && input.bytes.is_empty() {
            self.return_to_pool(key.local(), input.stream);
        }
        Ok(response.fetched(unix_secs()))
    }

    /// Takes a pooled connection that is still open and has no pending bytes.
    fn take_pooled(&mut self, local: SocketAddr) -> Option<TcpStream> {
        while let Some(at) = self.pool.iter().rposition(|(to, _)| *to == local) {
            let (_, stream) = self.pool.remove(at);
            if is_quiet(&stream).unwrap_or(false) {
                return Some(stream);
            }
        }
        None
    }

    fn return_to_pool(&mut self, local: SocketAddr, stream: TcpStream) {
        // The connection idle for longest is the one that the origin will most likely close next.
        if self.pool.len() == POOL_MAX {
            self.pool.remove(0);
        }
        self.pool.push((local, stream));
    }
}

/// Whether the connection is open and no unsolicited bytes have arrived.
fn is_quiet(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    // A successful peek means that the connection is closed (no byte) or has unsolicited bytes.
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(peeked.is_err_and(|e| e.kind() == ErrorKind::WouldBlock))
}

fn unix_secs() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// The daemon's User-Agent. Lowroad as a server recognizes the daemon's requests by this field together with their
/// source address, since any client can send the field.
pub const USER_AGENT: &[u8] = b"lowroad";

/// Parses a complete response.
///
/// # Errors
/// If the response is malformed or incomplete.
pub fn read(bytes: &[u8]) -> Result<FetchedResponse, FetchError> {
    let limits = FetchLimits {
        body_len_max: bytes.len(),
        ..FetchLimits::default()
    };
    let mut response = IncomingResponse::to_get(b"/", b"", limits, &mut Vec::new());
    let mut bytes = bytes.to_vec();
    match response.take(&mut bytes) {
        Ok(true) if bytes.is_empty() => Ok(response.fetched(unix_secs())),
        // `TooLong` means that the announced length exceeds the number of bytes.
        Ok(_) | Err(FetchError::TooLong { .. }) => Err(FetchError::Closed),
        Err(error) => Err(error),
    }
}

/// Serializes the request. The key's values contain no line terminator.
#[must_use]
pub fn request(key: &KeyParts<'_>, validators: &RevalidationFields) -> Vec<u8> {
    let mut out = Vec::new();
    let lines = lines(key, validators);
    IncomingResponse::to_get(key.target, &lines, FetchLimits::default(), &mut out);
    out
}

/// The field lines of a request.
fn lines(key: &KeyParts<'_>, validators: &RevalidationFields) -> Vec<u8> {
    let (etag, modified) = if key.is_conditional() {
        (key.if_none_match, key.if_modified_since)
    } else {
        (
            validators.etag.as_deref(),
            validators.last_modified.as_deref(),
        )
    };
    let mut out = Vec::new();
    // Only fields of the key and constant fields are sent, since the response must suit all requests with this key.
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

/// The receiving side of a connection.
struct FetchInput {
    stream: TcpStream,
    limits: FetchLimits,
    deadline: Instant,
    /// Received bytes that are not consumed yet.
    bytes: Vec<u8>,
}

impl FetchInput {
    fn send(&mut self, request: &[u8]) -> Result<(), FetchError> {
        // Writing has a timeout, since the origin may not read.
        let wait = self.wait()?;
        self.stream.set_write_timeout(Some(wait)).map_err(broken)?;
        self.stream.write_all(request).map_err(broken)
    }

    /// Waits for more bytes; returns 0 once the origin has closed the connection.
    fn receive(&mut self) -> Result<usize, FetchError> {
        let mut piece = [0; READ_LEN];
        loop {
            // The timeout is set anew for each read, since the deadline may come before the read timeout.
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

    /// Timeout of the next read or write; it ends at the deadline at the latest.
    fn wait(&self) -> Result<Duration, FetchError> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        let wait = remaining.min(Duration::from_millis(self.limits.wait_ms));
        // A socket timeout of 0 would mean no timeout.
        if wait.is_zero() {
            return Err(FetchError::TimedOut);
        }
        Ok(wait)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "made for map_err")]
fn broken(error: io::Error) -> FetchError {
    match error.kind() {
        // The kernel reports an expired socket timeout as WouldBlock.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => FetchError::TimedOut,
        kind => FetchError::Broken(kind),
    }
}
