//! Fetches a page about the server's state, outside of the measured load.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Maximum time for the next bytes of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(100);
/// Maximum length of a response.
const RESPONSE_LEN_MAX: u64 = 64 << 20;

/// The body of the response to a GET.
///
/// # Errors
/// There is no response with status 200; the text gives the reason.
pub fn get(address: SocketAddr, target: &str) -> Result<Vec<u8>, String> {
    let answer = exchange(address, target).map_err(|error| format!("GET {target}: {error}"))?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.map_or(answer.len(), |end| end + 4));
    let head = String::from_utf8_lossy(head);
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(body.to_vec()),
        _ => Err(format!("GET {target}: {line}")),
    }
}

fn exchange(address: SocketAddr, target: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, READ_TIMEOUT)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    // HTTP/1.0: the body ends with the connection and is never chunked (RFC 9112 section 6.3).
    write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(RESPONSE_LEN_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}
