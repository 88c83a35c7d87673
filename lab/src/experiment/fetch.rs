//! One request beside a measurement: a page that says something of the server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer's next bytes may take.
const PATIENCE: Duration = Duration::from_secs(100);
/// Longest answer.
const ANSWER_BYTES: u64 = 64 << 20;

/// The body of the answer to a GET.
///
/// # Errors
/// There is none with status 200; says what happened.
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
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(answer)
}
