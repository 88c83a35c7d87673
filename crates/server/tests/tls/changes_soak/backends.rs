//! The servers behind the server of the soak: an HTTP origin that fails now and then, and a FastCGI server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use lowroad_testkit::origin::TestOrigin;

/// The length of the origin's responses.
pub const ORIGIN_LEN: usize = 5_000;
/// The length of the FastCGI server's responses.
pub const FASTCGI_LEN: usize = 700;
/// Requests on a connection of the FastCGI server, which then closes it.
const FASTCGI_REQUESTS: usize = 7;

/// An origin with responses that are stored below `/kept/`.
pub fn origin(is_failing: Arc<AtomicBool>) -> TestOrigin {
    TestOrigin::start(move |request, stream| {
        if is_failing.load(Relaxed) {
            return false;
        }
        let caching = match request.target.starts_with("/kept/") {
            true => "max-age=600",
            false => "no-store",
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {caching}\r\nContent-Length: {ORIGIN_LEN}\r\n\r\n"
        );
        stream
            .write_all((head + &"o".repeat(ORIGIN_LEN)).as_bytes())
            .is_ok()
    })
}

/// A FastCGI server, which answers any request, until the end of the process.
pub struct FastCgiServer {
    pub address: SocketAddr,
    /// The requests that it has answered.
    pub answered: Arc<AtomicUsize>,
}

impl FastCgiServer {
    pub fn start() -> FastCgiServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = FastCgiServer {
            address: listener.local_addr().expect("an address"),
            answered: Arc::default(),
        };
        let answered = server.answered.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answered = answered.clone();
                // The other side may close the connection at any time.
                thread::spawn(move || drop(serve(stream, &answered)));
            }
        });
        server
    }
}

/// The types of records (FastCGI 1.0, section 8).
mod kind {
    pub const BEGIN_REQUEST: u8 = 1;
    pub const END_REQUEST: u8 = 3;
    pub const STDIN: u8 = 5;
    pub const STDOUT: u8 = 6;
}

fn serve(mut stream: TcpStream, answered: &AtomicUsize) -> io::Result<()> {
    let mut keeps_connection = true;
    let mut count = 0;
    while keeps_connection && count < FASTCGI_REQUESTS {
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let [
            _,
            record,
            id_high,
            id_low,
            len_high,
            len_low,
            padding_len,
            _,
        ] = head;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let mut content = vec![0; len + usize::from(padding_len)];
        stream.read_exact(&mut content)?;
        match record {
            // The flag FCGI_KEEP_CONN.
            kind::BEGIN_REQUEST => keeps_connection = content[2] & 1 == 1,
            kind::STDIN if len == 0 => {
                answer(&mut stream, [id_high, id_low])?;
                answered.fetch_add(1, Relaxed);
                count += 1;
            }
            _ => {}
        }
    }
    Ok(())
}

fn answer(stream: &mut TcpStream, id: [u8; 2]) -> io::Result<()> {
    let output = format!(
        "Content-Type: text/plain\r\nContent-Length: {FASTCGI_LEN}\r\n\r\n{}",
        "f".repeat(FASTCGI_LEN)
    );
    let mut records = record(kind::STDOUT, id, output.as_bytes());
    records.extend(record(kind::STDOUT, id, b""));
    records.extend(record(kind::END_REQUEST, id, &[0; 8]));
    stream.write_all(&records)
}

fn record(kind: u8, [id_high, id_low]: [u8; 2], content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("a short record");
    let [len_high, len_low] = len.to_be_bytes();
    let mut record = vec![1, kind, id_high, id_low, len_high, len_low, 0, 0];
    record.extend(content);
    record
}
