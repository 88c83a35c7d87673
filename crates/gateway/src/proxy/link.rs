//! A connection to an origin: writes bytes, and reads HTTP response events.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lowroad_engine::WorkerHandle;
use lowroad_engine::buffer::SendBuffer;
use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_handler::ResponseFields;
use lowroad_http::fields::FieldLines;
use lowroad_http::h1::{self, H1Client, H1ClientEvent, InputStep, ResponseFault};
use lowroad_http::limits::RequestLimits;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::status::StatusCode;
use lowroad_origin::{Connection, PoolConnector, UpstreamStream, UpstreamTransport};

use super::forwarding::{self, DateCache};

/// Bytes of the read buffer, and so the maximum of a head.
const READ_LEN: usize = 64 << 10;

/// Limits for responses; their bodies may have any length.
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
    stream: UpstreamStream,
    /// The state of the HTTP/1.1 protocol.
    pub http: H1Client,
    input: Box<[u8]>,
    /// `input[start..end]` is read but not yet parsed.
    start: usize,
    end: usize,
    /// Whether the origin has closed its sending direction.
    is_eof: bool,
    dates: DateCache,
    /// A reused buffer for the heads of requests.
    pub scratch: Vec<u8>,
}

/// Opens origin connections on sockets.
#[derive(Default)]
pub struct OriginConnector(pub UpstreamTransport);

/// An event of a response.
#[derive(Debug)]
pub enum ResponseEvent {
    /// The head of its response.
    Head(StatusCode, ResponseFields, Option<u64>),
    /// The head of an interim response (1xx), except 100, which answers this proxy's own request.
    Interim(StatusCode, ResponseFields),
    /// The head of a 101 response: the connection changes to the protocol of this name. The bytes that follow are
    /// `ResponseEvent::Data`, until the connection ends.
    Upgraded(Vec<u8>, ResponseFields),
    /// A part of the body.
    Data(Bytes),
    /// The end of the response, with its trailers.
    End(Option<Box<ResponseFields>>),
}

/// The fault of a connection: the text continues a sentence that begins with the origin's name.
#[derive(Debug)]
pub enum OriginFault {
    /// The origin closed it before the end of the response.
    Closed,
    /// The system's error.
    Failed(io::Error),
    /// The bytes are not HTTP, or not a response.
    Bad(&'static str),
}

impl PoolConnector for OriginConnector {
    /// Boxed, since leases are moved often.
    type PooledConnection = Box<OriginLink>;

    async fn open(&self, socket: UpstreamSocket, _: &WorkerHandle) -> io::Result<Box<OriginLink>> {
        Ok(Box::new(OriginLink {
            stream: self.0.begin(socket).await?,
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
    /// Avoids a system call if readiness already shows that there is no input.
    fn is_idle(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        // Unread input on an idle connection is a response without a request: the connection must not be reused.
        self.start == self.end
            && self.http.is_idle()
            && (self.stream.has_no_input() || self.poll_read(&mut context).is_pending())
    }

    fn socket(&mut self) -> &mut UpstreamSocket {
        self.stream.socket()
    }
}

impl OriginLink {
    /// Writes some of these pieces; returns the number of bytes.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_send(context, pieces)
    }

    /// Writes a prefix of a buffer that is not empty and must stay unchanged until it is sent; returns the number of
    /// bytes.
    pub fn poll_write_buffer(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut SendBuffer,
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_send_buffer(context, buffer)
    }

    /// Whether there is unparsed input.
    pub fn has_input(&self) -> bool {
        self.start < self.end
    }

    /// Waits for the next event.
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
            // The origin's end is handled only after all parsed input (some bodies are delimited by it).
            if self.is_eof {
                return Poll::Ready(self.handle_eof());
            }
            ready!(self.poll_read(context))?;
        }
    }

    /// Takes the whole rest of a response after its head, if the input already contains it.
    pub fn take_rest(&mut self) -> Option<Bytes> {
        let rest = self
            .http
            .take_remaining_body(&self.input[self.start..self.end])?;
        self.start += rest.len();
        Some(Bytes::copy_from_slice(rest))
    }

    /// Closes the sending direction.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_finish(context)
    }

    fn next_event(&mut self) -> Result<Option<ResponseEvent>, OriginFault> {
        loop {
            let input = &self.input[self.start..self.end];
            let InputStep { used, event } = self.http.next(input, &LIMITS)?;
            let response_event = match event {
                // Head with irregular line ends or spaces: accepted only if it has a single meaning.
                Some(H1ClientEvent::Irregular) => {
                    if !self.mend(h1::repair_head)? {
                        return Ok(None);
                    }
                    None
                }
                Some(H1ClientEvent::IrregularTrailers) => {
                    self.start += used;
                    if !self.mend(h1::repair_trailers)? {
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
                // 100 (Continue) answers this proxy's own Expect, and is not for the client.
                Some(H1ClientEvent::Data(data)) => {
                    Some(ResponseEvent::Data(Bytes::copy_from_slice(data)))
                }
                Some(H1ClientEvent::End { trailers }) => {
                    Some(ResponseEvent::End(forward_trailers(trailers)))
                }
                Some(H1ClientEvent::Interim(head)) if head.status == StatusCode::CONTINUE => None,
                Some(H1ClientEvent::Interim(head)) => Some(ResponseEvent::Interim(
                    head.status,
                    forward_fields(head.fields, &mut self.dates)?,
                )),
                // RFC 9110 §7.8: a 101 names exactly the protocols that it switches to; more than one line is
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

    /// Replaces irregular lines at the start of the input by regular ones; false if they are still incomplete.
    fn mend(&mut self, mend_lines: fn(&[u8]) -> Option<Vec<u8>>) -> Result<bool, OriginFault> {
        let input = &self.input[self.start..self.end];
        let Some(mended) = mend_lines(input) else {
            return Ok(false);
        };
        // The regular form may be longer than the irregular one, and must still fit the buffer.
        let room = self.input.get_mut(..mended.len());
        let room = room.ok_or(ResponseFault::Malformed(RequestRefusal::HeadTooLarge))?;
        room.copy_from_slice(&mended);
        (self.start, self.end) = (0, mended.len());
        Ok(true)
    }

    /// Interprets the end of the connection: some bodies end with it (RFC 9112 §6.3).
    fn handle_eof(&mut self) -> Result<ResponseEvent, OriginFault> {
        match self.http.handle_eof() {
            // A response without length ends with the connection; in every other state the end is a truncation.
            Ok(true) => Ok(ResponseEvent::End(None)),
            Ok(false) | Err(ResponseFault::Cut) => Err(OriginFault::Closed),
            Err(fault) => Err(fault.into()),
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OriginFault>> {
        // Compaction only when the buffer is full: moving bytes on each read would be quadratic.
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

/// The fields of a head for the client.
fn forward_fields(
    fields: FieldLines<'_>,
    dates: &mut DateCache,
) -> Result<ResponseFields, OriginFault> {
    let fields = forwarding::response_fields(fields, unix_s, dates);
    fields.ok_or(OriginFault::Bad("sent a malformed field"))
}

/// The trailers for the client.
fn forward_trailers(trailers: FieldLines<'_>) -> Option<Box<ResponseFields>> {
    (!trailers.is_empty()).then(|| Box::new(ResponseFields::from_trailers(trailers)))
}

fn is_upgrade(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"upgrade")
}

/// The current time, for dates with a two-digit year.
fn unix_s() -> u64 {
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
        }
    }
}
