//! A blocking HTTP/1.1 client for export requests, on one persistent connection. `lowroad_http` parses the responses.

use std::io;
use std::time::{Duration, Instant};

use lowroad_config::{TracesConfig, TracesEndpoint};
use lowroad_http::h1::{BodyLen, H1Client, H1ClientEvent};
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_traces::export_policy::ExportOutcome;
use lowroad_traces::otlp::{self, MEDIA_TYPE};

use super::collector_stream::{CollectorConnector, CollectorStream};

/// Maximum bytes of one read.
const READ_LEN: usize = 16 * 1024;
/// Maximum length of a response; it contains at most a message.
const RESPONSE_LEN_MAX: usize = 256 * 1024;
/// Statuses that request a retry (OTLP 1.8, "Retryable Response Codes").
const RETRYABLE: [u16; 4] = [429, 502, 503, 504];

/// Sends export requests to one collector.
pub struct CollectorClient {
    endpoint: TracesEndpoint,
    connector: CollectorConnector,
    /// The field lines of each request.
    lines: Vec<u8>,
    timeout: Duration,
    /// The connection, while it can be used again.
    connection: Option<CollectorConnection>,
}

struct CollectorConnection {
    stream: CollectorStream,
    http: H1Client,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
}

/// A response as far as it has arrived.
#[derive(Default)]
struct CollectorResponse {
    status: u16,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl CollectorClient {
    /// A client for the configured collector, with these additional fields.
    ///
    /// # Errors
    /// TLS can't be set up: a message with a remedy.
    pub fn new(
        config: &TracesConfig,
        headers: &[(String, String)],
        timeout: Duration,
    ) -> Result<CollectorClient, String> {
        let authority = config.endpoint.server.authority();
        let version = env!("CARGO_PKG_VERSION");
        let mut lines = format!(
            "Host: {authority}\r\nUser-Agent: OTLP-Exporter-Lowroad/{version}\r\nContent-Type: {MEDIA_TYPE}\r\n"
        );
        for (name, value) in headers {
            lines.push_str(&format!("{name}: {value}\r\n"));
        }
        Ok(CollectorClient {
            endpoint: config.endpoint.clone(),
            connector: CollectorConnector::new(config)?,
            lines: lines.into_bytes(),
            timeout,
            connection: None,
        })
    }

    /// The collector's URL.
    pub fn endpoint(&self) -> &TracesEndpoint {
        &self.endpoint
    }

    /// Sends an export request. Takes at most the timeout, and not longer than until `end`.
    pub fn post(&mut self, body: &[u8], end: Option<Instant>) -> ExportOutcome {
        let timeout_end = Instant::now() + self.timeout;
        let deadline = end.map_or(timeout_end, |end| end.min(timeout_end));
        // The collector may have closed the idle connection; the request is then repeated on a new one.
        let is_reused = self.connection.is_some();
        let mut result = self.exchange(body, deadline);
        if is_reused && result.as_ref().is_err_and(is_stale) {
            result = self.exchange(body, deadline);
        }
        match result {
            Ok(response) => response.outcome(),
            Err(error) => ExportOutcome::Unavailable {
                reason: describe(&error),
                retry_after: None,
            },
        }
    }

    fn exchange(&mut self, body: &[u8], deadline: Instant) -> io::Result<CollectorResponse> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => CollectorConnection {
                stream: self.connector.connect(deadline)?,
                http: H1Client::default(),
                input: Vec::new(),
            },
        };
        let response = connection.exchange(&self.endpoint.target, &self.lines, body, deadline)?;
        // Bytes after the response belong to no request.
        if connection.http.is_idle() && connection.input.is_empty() {
            self.connection = Some(connection);
        }
        Ok(response)
    }
}

impl CollectorConnection {
    fn exchange(
        &mut self,
        target: &str,
        lines: &[u8],
        body: &[u8],
        deadline: Instant,
    ) -> io::Result<CollectorResponse> {
        let mut request = Vec::with_capacity(lines.len() + body.len() + 256);
        let len = BodyLen::Known(body.len() as u64);
        let unusable = |_| invalid("the connection can't be used");
        self.http
            .request(Method::Post, target.as_bytes(), lines, len, &mut request)
            .map_err(unusable)?;
        self.http
            .data(body.len() as u64, &mut request)
            .map_err(unusable)?;
        request.extend_from_slice(body);
        self.http.end(b"", &mut request).map_err(unusable)?;
        self.stream.send(&request, deadline)?;
        let mut response = CollectorResponse::default();
        let mut chunk = [0; READ_LEN];
        while !self.parse(&mut response)? {
            let len = self.stream.receive(&mut chunk, deadline)?;
            if len == 0 {
                // Only a body without a length may end with the connection.
                return match self.http.handle_eof() {
                    Ok(true) => Ok(response),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            self.input.extend_from_slice(&chunk[..len]);
            if response.body.len() + self.input.len() > RESPONSE_LEN_MAX {
                return Err(invalid("the response is too long"));
            }
        }
        Ok(response)
    }

    /// Consumes complete parts of the input; returns whether the response has ended.
    fn parse(&mut self, response: &mut CollectorResponse) -> io::Result<bool> {
        let limits = RequestLimits::default();
        let mut used = 0;
        let mut has_ended = false;
        while !has_ended {
            let step = self.http.next(&self.input[used..], &limits);
            let step = step.map_err(|_| invalid("the response is not HTTP"))?;
            let is_waiting = step.used == 0 && step.event.is_none();
            used += step.used;
            match step.event {
                Some(H1ClientEvent::Response(head)) => {
                    response.status = head.status.code();
                    let mut fields = head.fields;
                    let retry_after =
                        fields.find(|(name, _)| name.eq_ignore_ascii_case(b"retry-after"));
                    response.retry_after = retry_after.and_then(|(_, value)| seconds(value));
                }
                Some(H1ClientEvent::Data(data)) => response.body.extend_from_slice(data),
                Some(H1ClientEvent::End { .. }) => has_ended = true,
                Some(H1ClientEvent::Interim(_)) => {}
                Some(_) => return Err(invalid("the response is malformed")),
                None if is_waiting => break,
                None => {}
            }
        }
        // A rest, such as the first half of a line, is parsed again together with the next bytes.
        self.input.drain(..used);
        Ok(has_ended)
    }
}

impl CollectorResponse {
    fn outcome(self) -> ExportOutcome {
        match self.status {
            200..=299 => {
                ExportOutcome::Accepted(otlp::decode_response(&self.body).unwrap_or_default())
            }
            status if RETRYABLE.contains(&status) => ExportOutcome::Unavailable {
                reason: format!("status {status}"),
                retry_after: self.retry_after,
            },
            status => ExportOutcome::Refused(format!("status {status}{}", self.message())),
        }
    }

    /// The start of an error's body: protobuf with a message, or text.
    fn message(&self) -> String {
        let text = otlp::printable(&String::from_utf8_lossy(&self.body));
        let text = text.trim();
        match text.is_empty() {
            true => String::new(),
            false => format!(": {}", text.chars().take(200).collect::<String>()),
        }
    }
}

/// A delay in seconds; dates are ignored.
fn seconds(value: &[u8]) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

fn is_stale(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        // The system calls report a timeout as one of these.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no response in time".into(),
        io::ErrorKind::UnexpectedEof => "the connection was closed before the response".into(),
        _ => error.to_string(),
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
