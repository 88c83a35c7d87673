//! A connection to an origin: writes bytes, and reads the events of HTTP responses.

use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll, Waker, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lowroad_config::OriginProtocol;
use lowroad_engine::WorkerHandle;
use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_handler::ResponseFields;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::{self, H1Client, H1ClientEvent, InputStep, ResponseFault};
use lowroad_http::h2::ErrorCode;
use lowroad_http::limits::RequestLimits;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::status::StatusCode;
use lowroad_origin::{Connection, PoolConnector, UpstreamStream, UpstreamTransport};

use super::forwarding::{self, DateCache};

/// The size of the read buffer, and therefore the maximum length of a head.
const READ_LEN: usize = 64 << 10;

/// Limits for responses. The length of their bodies is unlimited.
const LIMITS: RequestLimits = RequestLimits {
    head_len_max: READ_LEN,
    target_len_max: 0,
    fields_max: 512,
    body_len_max: u64::MAX,
    chunk_extension_len_max: 1024,
    trailers_len_max: 16 << 10,
};

/// A connection to an origin.
pub struct OriginLink {
    pub(super) stream: UpstreamStream,
    /// Whether the connection speaks HTTP/2; if so, `http` is not used.
    pub is_h2: bool,
    /// The HTTP/1.1 protocol state.
    pub http: H1Client,
    input: Box<[u8]>,
    /// `input[start..end]` has been read but not parsed.
    start: usize,
    end: usize,
    /// Whether the origin has closed its sending direction.
    is_eof: bool,
    dates: DateCache,
    /// A reusable buffer for request heads.
    pub scratch: Vec<u8>,
}

/// Opens origin connections on sockets.
#[derive(Default)]
pub struct OriginConnector {
    /// The transport, which offers the protocols of `protocol`.
    pub transport: UpstreamTransport,
    /// The protocols.
    pub protocol: OriginProtocol,
}

impl OriginConnector {
    /// Whether a new connection speaks HTTP/2.
    fn is_h2(&self, stream: &UpstreamStream) -> io::Result<bool> {
        let has_tls = !matches!(self.transport, UpstreamTransport::Plain);
        match self.protocol {
            OriginProtocol::Http1 => Ok(false),
            // Prior knowledge (RFC 9113 §3.3).
            OriginProtocol::H2 if !has_tls => Ok(true),
            OriginProtocol::Auto => Ok(stream.negotiated_protocol() == Some(b"h2")),
            OriginProtocol::H2 => match stream.negotiated_protocol() {
                Some(b"h2") => Ok(true),
                // Over TLS, HTTP/2 has to be negotiated (RFC 9113 §3.2).
                _ => Err(io::Error::new(ErrorKind::InvalidData, NO_H2)),
            },
        }
    }
}

const NO_H2: &str = "the server does not offer HTTP/2 by ALPN: configure it there, or use protocol = \"auto\" or \"http/1.1\"";

/// An event of a response.
#[derive(Debug)]
pub enum ResponseEvent {
    /// The head of the final response, and the content length if known.
    Head(StatusCode, ResponseFields, Option<u64>),
    /// The head of an interim response (1xx) other than 100, which answers this proxy's own Expect.
    Interim(StatusCode, ResponseFields),
    /// The head of a 101 response: the connection switches to the named protocol. All following bytes are
    /// `ResponseEvent::Data`.
    Upgraded(Vec<u8>, ResponseFields),
    /// A part of the body.
    Data(Bytes),
    /// The end of the response, and its trailers.
    End(Option<Box<ResponseFields>>),
}

/// The reason why a connection became unusable. Continues a sentence that begins with the origin's name.
#[derive(Debug)]
pub enum OriginFault {
    /// The origin closed the connection before the end of the response.
    Closed,
    /// A system error.
    Failed(io::Error),
    /// The bytes are not HTTP, or not a response.
    Bad(&'static str),
    /// HTTP/2: the origin ended the stream of the request with this code.
    Reset(ErrorCode),
    /// HTTP/2: the origin has certainly not processed the request, and gave this code.
    Unprocessed(ErrorCode),
    /// HTTP/2: the origin did not answer a PING.
    Silent,
}

impl PoolConnector for OriginConnector {
    /// The connection is boxed, because leases are moved often.
    type PooledConnection = Box<OriginLink>;

    async fn open(&self, socket: UpstreamSocket, _: &WorkerHandle) -> io::Result<Box<OriginLink>> {
        let stream = self.transport.begin(socket).await?;
        Ok(Box::new(OriginLink {
            is_h2: self.is_h2(&stream)?,
            stream,
            http: H1Client::default(),
            input: vec![0; READ_LEN].into(),
            start: 0,
            end: 0,
            is_eof: false,
            dates: DateCache::default(),
            scratch: Vec::new(),
        }))
    }
}

impl Connection for Box<OriginLink> {
    /// Makes no system call if readiness already shows that there is no input.
    fn is_idle(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // Input on an idle connection would be a response without a request: such a connection must not be reused.
        self.start == self.end
            && self.http.is_idle()
            && (self.stream.has_no_input() || self.poll_read(&mut context).is_pending())
    }

    fn socket(&mut self) -> &mut UpstreamSocket {
        self.stream.socket()
    }
}

impl OriginLink {
    /// Writes some of the pieces; returns the number of bytes written.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_send(context, pieces)
    }

    /// Writes the beginning of a buffer, which must not be empty and must not change until it is sent. Returns the
    /// number of bytes written.
    pub fn poll_write_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut SendBuffer,
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_send_buffer(context, buffer)
    }

    /// Whether there is received but unparsed input.
    pub fn has_input(&self) -> bool {
        self.start < self.end
    }

    /// The received and unparsed input.
    pub(super) fn input(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// Removes parsed input.
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Whether the origin has closed its sending direction.
    pub(super) fn is_eof(&self) -> bool {
        self.is_eof
    }

    /// Waits for the next event of the response.
    ///
    /// # Errors
    /// The connection is unusable.
    pub fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, OriginFault>> {
        loop {
            if let Some(event) = self.next_event()? {
                return Poll::Ready(Ok(event));
            }
            // The end of the connection is handled only after all input was parsed: some bodies end with it.
            if self.is_eof {
                return Poll::Ready(self.handle_eof());
            }
            ready!(self.poll_read(context))?;
        }
    }

    /// Returns the whole body, if it was received together with the head.
    pub fn take_rest(&mut self) -> Option<Bytes> {
        let rest = self
            .http
            .take_remaining_body(&self.input[self.start..self.end])?;
        self.start += rest.len();
        Some(Bytes::copy_from_slice(rest))
    }

    /// Closes the sending direction of the connection.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_finish(context)
    }

    fn next_event(&mut self) -> Result<Option<ResponseEvent>, OriginFault> {
        loop {
            let input = &self.input[self.start..self.end];
            let InputStep { used, event } = self.http.next(input, &LIMITS)?;
            let response_event = match event {
                // A head with irregular line ends or whitespace is repaired if it has only one meaning.
                Some(H1ClientEvent::RepairableHead) => {
                    if !self.repair_lines(h1::repair_head)? {
                        return Ok(None);
                    }
                    None
                }
                Some(H1ClientEvent::RepairableTrailers) => {
                    self.start += used;
                    if !self.repair_lines(h1::repair_trailers)? {
                        return Ok(None);
                    }
                    continue;
                }
                Some(H1ClientEvent::Response(head)) => {
                    let len = head.content_len();
                    Some(ResponseEvent::Head(
                        head.status,
                        forward_fields(head.fields, &mut self.dates)?,
                        len,
                    ))
                }
                // Copied, because the input buffer is reused for the next read.
                Some(H1ClientEvent::Data(data)) => {
                    Some(ResponseEvent::Data(Bytes::copy_from_slice(data)))
                }
                Some(H1ClientEvent::End { trailers }) => {
                    Some(ResponseEvent::End(forward_trailers(trailers)))
                }
                // 100 (Continue) answers this proxy's own Expect; it is not for the client.
                Some(H1ClientEvent::Interim(head)) if head.status == StatusCode::CONTINUE => None,
                Some(H1ClientEvent::Interim(head)) => Some(ResponseEvent::Interim(
                    head.status,
                    forward_fields(head.fields, &mut self.dates)?,
                )),
                // A 101 names the protocols to which it switches (RFC 9110 §7.8); more than one Upgrade line is
                // ambiguous.
                Some(H1ClientEvent::Upgraded(head)) => {
                    let mut upgrades = head.fields.clone().filter(|(name, _)| is_upgrade(name));
                    let (Some((_, protocol)), None) = (upgrades.next(), upgrades.next()) else {
                        return Err(OriginFault::Bad("switched to a protocol without naming it"));
                    };
                    let protocol = protocol.to_vec();
                    Some(ResponseEvent::Upgraded(
                        protocol,
                        forward_fields(head.fields, &mut self.dates)?,
                    ))
                }
                None => {
                    self.start += used;
                    return Ok(None);
                }
            };
            self.start += used;
            if response_event.is_some() {
                return Ok(response_event);
            }
        }
    }

    /// Replaces irregular lines at the start of the input by their repaired form. Returns false if they are incomplete.
    fn repair_lines(&mut self, repair: fn(&[u8]) -> Option<Vec<u8>>) -> Result<bool, OriginFault> {
        let input = &self.input[self.start..self.end];
        let Some(repaired) = repair(input) else {
            return Ok(false);
        };
        // The repaired form may be longer than the original, and must still fit in the buffer.
        let room = self.input.get_mut(..repaired.len());
        let room = room.ok_or(ResponseFault::Malformed(RequestRefusal::HeadTooLarge))?;
        room.copy_from_slice(&repaired);
        (self.start, self.end) = (0, repaired.len());
        Ok(true)
    }

    /// Handles the end of the connection, which ends some bodies (RFC 9112 §6.3).
    fn handle_eof(&mut self) -> Result<ResponseEvent, OriginFault> {
        match self.http.handle_eof() {
            // A response without a length ends with the connection; any other response is truncated.
            Ok(true) => Ok(ResponseEvent::End(None)),
            Ok(false) | Err(ResponseFault::Truncated) => Err(OriginFault::Closed),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Receives more input.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OriginFault>> {
        // The input is moved only if the buffer is full: moving it for each read would take quadratic time.
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let read = ready!(self.stream.poll_recv(context, &mut self.input[self.end..]));
        match read {
            Ok(0) => self.is_eof = true,
            Ok(len) => self.end += len,
            Err(error) => return Poll::Ready(Err(OriginFault::Failed(error))),
        }
        Poll::Ready(Ok(()))
    }
}

/// Converts the fields of a head for the client.
pub(super) fn forward_fields(
    fields: FieldLines<'_>,
    dates: &mut DateCache,
) -> Result<ResponseFields, OriginFault> {
    let fields = forwarding::response_fields(fields, unix_s, dates);
    fields.ok_or(OriginFault::Bad("sent a malformed field"))
}

/// Converts the trailers for the client.
pub(super) fn forward_trailers(trailers: FieldLines<'_>) -> Option<Box<ResponseFields>> {
    (!trailers.is_empty()).then(|| Box::new(ResponseFields::from_trailers(trailers)))
}

fn is_upgrade(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"upgrade")
}

/// The time of the wall clock in seconds.
pub(super) fn unix_s() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |elapsed| elapsed.as_secs())
}

impl From<ResponseFault> for OriginFault {
    fn from(fault: ResponseFault) -> OriginFault {
        OriginFault::Bad(fault.as_str())
    }
}

impl std::fmt::Display for OriginFault {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OriginFault::Closed => {
                to.write_str("closed the connection before its response was complete")
            }
            OriginFault::Failed(error) => write!(to, "was lost: {error}"),
            OriginFault::Bad(problem) => write!(to, "sent an invalid response: {problem}"),
            OriginFault::Reset(code) => write!(to, "reset the request's stream ({code:?})"),
            OriginFault::Unprocessed(ErrorCode::NO_ERROR) => {
                to.write_str("closed the connection before it processed the request")
            }
            OriginFault::Unprocessed(code) => write!(to, "did not process the request ({code:?})"),
            OriginFault::Silent => to.write_str("did not answer a PING"),
        }
    }
}
