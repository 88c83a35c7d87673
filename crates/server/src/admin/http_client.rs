//! A blocking HTTP/1.1 client that sends one request to an admin socket. `lowroad_http` parses the response.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lowroad_http::h1::{BodyLen, H1Client, H1ClientEvent};
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;

/// Maximum bytes of one read.
const READ_LEN: usize = 16 * 1024;
/// Maximum length of a response; explanations and counters are far shorter.
const RESPONSE_LEN_MAX: usize = 64 << 20;

/// A response of the admin service.
#[derive(Debug)]
pub struct AdminResponse {
    /// The status.
    pub status: StatusCode,
    /// The body, UTF-8.
    pub body: String,
    /// Whether the whole body was received; false if the server ended earlier.
    pub is_complete: bool,
}

impl AdminResponse {
    /// The body of a successful response.
    ///
    /// # Errors
    /// The `detail` of the problem that the server reports.
    pub fn into_text(self) -> Result<String, String> {
        if matches!(self.status, StatusCode::OK | StatusCode::CREATED) {
            return Ok(self.body);
        }
        let problem: Option<serde_json::Value> = serde_json::from_str(&self.body).ok();
        let detail = problem
            .as_ref()
            .and_then(|problem| problem.get("detail")?.as_str());
        Err(match detail {
            Some(detail) => detail.to_owned(),
            None => format!("the server answered with status {}", self.status.code()),
        })
    }
}

/// Sends a request without a body and waits for the response. `timeout` bounds each wait for bytes.
///
/// # Errors
/// No server listens at the socket, it does not answer in time, or its response is not HTTP.
pub fn call(
    socket: &Path,
    method: Method,
    target: &str,
    timeout: Option<Duration>,
) -> io::Result<AdminResponse> {
    call_with(socket, method, target, None, timeout)
}

/// Sends a request, with a JSON body if there is one, and waits for the response; as [`call`].
///
/// # Errors
/// As [`call`].
pub fn call_with(
    socket: &Path,
    method: Method,
    target: &str,
    json: Option<&str>,
    timeout: Option<Duration>,
) -> io::Result<AdminResponse> {
    let (mut stream, mut reader) = send(socket, method, target, json, timeout)?;
    while reader.receive(&mut stream)? == ReadProgress::More {}
    Ok(AdminResponse {
        status: reader
            .status
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?,
        body: String::from_utf8_lossy(&reader.body).into_owned(),
        is_complete: reader.is_complete,
    })
}

/// Reads the server-sent events of a response.
pub struct EventReader {
    stream: UnixStream,
    response: ResponseReader,
}

impl EventReader {
    /// Sends the request for the events. `timeout` bounds each wait for bytes.
    ///
    /// # Errors
    /// As [`call`].
    pub fn open(socket: &Path, target: &str, timeout: Duration) -> io::Result<EventReader> {
        let (stream, response) = send(socket, Method::Get, target, None, Some(timeout))?;
        Ok(EventReader { stream, response })
    }

    /// Waits for the next event and returns its data.
    ///
    /// # Errors
    /// The response has ended, is a refusal, or no bytes arrive in time.
    pub fn next_event(&mut self) -> io::Result<String> {
        loop {
            if let Some(event) = self.response.take_event() {
                return Ok(event);
            }
            if self.response.receive(&mut self.stream)? == ReadProgress::Ended {
                return match self.response.status {
                    Some(StatusCode::OK) | None => Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(_) => Err(invalid("the server refuses to send events")),
                };
            }
        }
    }
}

/// Sends a request, with a JSON body if there is one.
fn send(
    socket: &Path,
    method: Method,
    target: &str,
    json: Option<&str>,
    timeout: Option<Duration>,
) -> io::Result<(UnixStream, ResponseReader)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(timeout)?;
    let mut client = H1Client::default();
    let mut request = Vec::new();
    // The connection carries only one request, so the server need not keep it open.
    let mut lines = "Host: admin\r\nConnection: close\r\n".to_owned();
    let len = match json {
        Some(json) => {
            lines += "Content-Type: application/json\r\n";
            BodyLen::Known(json.len() as u64)
        }
        None => BodyLen::None,
    };
    let (target, lines) = (target.as_bytes(), lines.as_bytes());
    client
        .request(method, target, lines, len, &mut request)
        .map_err(|_| invalid("the request could not be written"))?;
    if let Some(json) = json {
        // A known length needs no framing around the bytes.
        let len = json.len() as u64;
        let framed = client.data(len, &mut request);
        request.extend_from_slice(json.as_bytes());
        framed
            .and_then(|()| client.end(b"", &mut request))
            .map_err(|_| invalid("the request could not be written"))?;
    }
    stream.write_all(&request)?;
    let reader = ResponseReader {
        client,
        status: None,
        input: Vec::new(),
        body: Vec::new(),
        is_complete: false,
    };
    Ok((stream, reader))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Whether more of a response is expected.
#[derive(Debug, PartialEq, Eq)]
enum ReadProgress {
    More,
    Ended,
}

/// The response as far as it has arrived.
struct ResponseReader {
    client: H1Client,
    status: Option<StatusCode>,
    /// Bytes that are not parsed yet.
    input: Vec<u8>,
    /// The body, without the events that were taken.
    body: Vec<u8>,
    /// Whether the whole body has arrived.
    is_complete: bool,
}

impl ResponseReader {
    /// Waits for bytes and parses them.
    fn receive(&mut self, stream: &mut UnixStream) -> io::Result<ReadProgress> {
        let mut chunk = [0; READ_LEN];
        let len = stream.read(&mut chunk)?;
        if len == 0 {
            // Only a body without a length may end with the connection; any other response is incomplete.
            self.is_complete = self.client.handle_eof().unwrap_or(false);
            return Ok(ReadProgress::Ended);
        }
        self.input.extend_from_slice(&chunk[..len]);
        let mut input = std::mem::take(&mut self.input);
        self.is_complete = self.take(&mut input)?;
        self.input = input;
        if self.is_complete {
            return Ok(ReadProgress::Ended);
        }
        // Any process may listen at a path that the user names, so its response must not take all memory.
        if self.body.len() + self.input.len() > RESPONSE_LEN_MAX {
            return Err(invalid("the response is too long"));
        }
        Ok(ReadProgress::More)
    }

    /// Removes the first complete event from the body; returns its data.
    fn take_event(&mut self) -> Option<String> {
        let end = self.body.windows(2).position(|it| it == b"\n\n")?;
        let event: Vec<u8> = self.body.drain(..end + 2).collect();
        let event = String::from_utf8_lossy(&event);
        let lines = event.lines().filter_map(|line| line.strip_prefix("data: "));
        Some(lines.collect())
    }

    /// Consumes complete parts of the input; returns whether the response has ended.
    fn take(&mut self, input: &mut Vec<u8>) -> io::Result<bool> {
        let limits = RequestLimits::default();
        let mut used = 0;
        loop {
            let step = self.client.next(&input[used..], &limits);
            let step = step.map_err(|_| invalid("the response is not HTTP"))?;
            let is_waiting = step.used == 0 && step.event.is_none();
            used += step.used;
            match step.event {
                Some(H1ClientEvent::Response(head)) => self.status = Some(head.status),
                Some(H1ClientEvent::Data(data)) => self.body.extend_from_slice(data),
                Some(H1ClientEvent::End { .. }) => return Ok(true),
                Some(_) => return Err(invalid("the response is not a simple one")),
                None if is_waiting => break,
                None => {}
            }
        }
        // A rest, such as the first half of a line, is parsed again together with the next bytes.
        input.drain(..used);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a response that the server sends in these pieces before it closes the connection.
    fn read(pieces: &[&[u8]]) -> io::Result<AdminResponse> {
        let folder = lowroad_testkit::TempFolder::new();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path)?;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut head = [0; 1000];
                let _ = stream.read(&mut head);
                for piece in pieces {
                    // The client may have closed the connection.
                    let _ = stream.write_all(piece);
                }
            });
            call(&path, Method::Get, "/v1/status", None)
        })
    }

    #[test]
    fn content_length_and_chunked_bodies_are_read_completely() {
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for text in [&long[..], chunks] {
            let response = read(&[text]).expect("a response");
            assert!(response.is_complete);
            assert_eq!(response.into_text().as_deref(), Ok("abc"));
        }
    }

    #[test]
    fn response_is_incomplete_if_server_closes_early() {
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        let response = read(&[text]).expect("a head");
        assert!(!response.is_complete);
        assert_eq!(response.body, "abc");
        assert!(read(&[b"HTTP/1.1 200 OK\r\n"]).is_err());
        assert!(read(&[]).is_err());
    }

    #[test]
    fn response_that_is_not_http_is_an_error() {
        // Lowroad's earlier line protocol.
        assert!(read(&[b"this server does not know that question\n"]).is_err());
    }

    #[test]
    fn problem_response_becomes_its_detail() {
        let body = "{\"status\":404,\"detail\":\"no such site\"}";
        let head = format!(
            "HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let response = read(&[head.as_bytes(), body.as_bytes()]).expect("a response");
        assert_eq!(response.into_text(), Err("no such site".into()));
        let bare = read(&[b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"]).expect("a response");
        assert!(bare.into_text().expect_err("a problem").contains("503"));
    }
}
