//! The origin server for proxies under measurement. It runs on the host's side of a guest's network, so that its
//! instructions are not counted. Each response has the length that the target's name gives, is not cacheable, and keeps
//! the connection open. It supports only the lab's own requests: bodies with Content-Length, without pipelining.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_http::date;

/// The origin's port in the configurations of the proxies.
pub const PORT: u16 = 8080;
/// Maximum length of a request with its body.
const READ_LEN: usize = 64 << 10;

/// A running origin server. Dropping it ends the server.
pub struct GuestOrigin {
    address: SocketAddr,
    shared: Arc<OriginState>,
}

#[derive(Default)]
struct OriginState {
    ended: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
}

impl OriginState {
    fn connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuestOrigin {
    /// Starts an origin server at this address; the network must exist already.
    ///
    /// # Errors
    /// With a text for the user.
    pub fn start(host: Ipv4Addr) -> Result<GuestOrigin, String> {
        GuestOrigin::listen_at((host, PORT).into())
    }

    fn listen_at(address: SocketAddr) -> Result<GuestOrigin, String> {
        let bind_error = |error: io::Error| format!("an origin at {address}: {error}");
        let listener = TcpListener::bind(address).map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        let shared = Arc::new(OriginState::default());
        let accepting = shared.clone();
        thread::spawn(move || accept(&listener, &accepting));
        Ok(GuestOrigin { address, shared })
    }
}

impl Drop for GuestOrigin {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        // A connection wakes the accepting thread, which then checks the flag; the thread may have ended already.
        let _ = TcpStream::connect(self.address);
        for connection in self.shared.connections().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<OriginState>) {
    for connection in listener.incoming() {
        // The list is locked before the flag is read. Dropping the server sets the flag first, so it closes every
        // connection that is added here.
        let mut connections = shared.connections();
        if shared.ended.load(SeqCst) {
            return;
        }
        let Ok(mut connection) = connection else {
            return;
        };
        // Each response is written completely, so Nagle's algorithm would only delay it.
        let _ = connection.set_nodelay(true);
        connections.extend(connection.try_clone());
        drop(connections);
        thread::spawn(move || {
            let _ = answer_all(&mut connection);
        });
    }
}

/// Answers requests until the client closes or sends an invalid request.
fn answer_all(connection: &mut TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; READ_LEN];
    let (mut len, mut cached_response) = (0, Vec::new());
    loop {
        // If a request fills the buffer, the read returns 0, which ends the connection.
        let read = connection.read(&mut buffer[len..])?;
        if read == 0 {
            return Ok(());
        }
        len += read;
        let Some((request_len, size)) = requested_size(&buffer[..len]) else {
            continue;
        };
        if request_len > len {
            continue;
        }
        // A response is reused, since the requests of a measurement are alike.
        if cached_response.is_empty() || response_len(&cached_response) != size {
            cached_response = response(size);
        }
        connection.write_all(&cached_response)?;
        // The start of the next request may already be in the buffer.
        buffer.copy_within(request_len..len, 0);
        len -= request_len;
    }
}

/// Returns the length of a request with its body, if its head is complete, and the length of the response that it
/// requests.
fn requested_size(request: &[u8]) -> Option<(usize, usize)> {
    let head_len = memchr::memmem::find(request, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&request[..head_len]).ok()?;
    let number = |text: &str| {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        text[..digits].parse().unwrap_or(0)
    };
    let size = head.split_once('/').map_or(0, |(_, name)| number(name));
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| number(value.trim()))
    };
    let body_len = head.lines().find_map(field).unwrap_or(0);
    Some((head_len + body_len, size))
}

fn response(size: usize) -> Vec<u8> {
    // An origin server with a clock must send Date (RFC 9110 section 6.6.1); otherwise a proxy may add it.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let date = date::format(since_epoch.map_or(0, |duration| duration.as_secs()));
    let mut text = b"HTTP/1.1 200 OK\r\nServer: origin\r\nDate: ".to_vec();
    text.extend(date);
    let header_end = format!(
        "\r\nContent-Type: text/html\r\nContent-Length: {size}\r\nCache-Control: no-store\r\n\r\n"
    );
    text.extend(header_end.into_bytes());
    text.resize(text.len() + size, b'x');
    text
}

/// The body length of a [`response`].
fn response_len(response: &[u8]) -> usize {
    let head = memchr::memmem::find(response, b"\r\n\r\n").map_or(0, |head_end| head_end + 4);
    response.len() - head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_size_is_parsed_from_the_target() {
        let get = b"GET /1024.html HTTP/1.1\r\nHost: h\r\n\r\n";
        assert_eq!(requested_size(get), Some((get.len(), 1024)));
        assert_eq!(requested_size(&get[..get.len() - 1]), None);
        let post = b"POST /7.html HTTP/1.1\r\ncontent-length: 10\r\n\r\n01234";
        assert_eq!(requested_size(post), Some((post.len() + 5, 7)));
        assert_eq!(response_len(&response(1024)), 1024);
    }

    #[test]
    fn origin_answers_on_a_persistent_connection() {
        let origin = GuestOrigin::listen_at(([127, 0, 0, 1], 0).into()).expect("a free port");
        let mut client = TcpStream::connect(origin.address).expect("it listens");
        for size in [3, 1024] {
            let request = format!("GET /{size}.html HTTP/1.1\r\n\r\n");
            client.write_all(request.as_bytes()).expect("it reads");
            let expected = response(size);
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).expect("it answers");
            assert!(got.ends_with(&vec![b'x'; size]) && got.starts_with(b"HTTP/1.1 200"));
        }
        drop(origin);
        assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0, "it has ended");
    }
}
