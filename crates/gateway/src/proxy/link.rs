//! A connection to an origin: writes bytes, and reads HTTP response events.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lowroad_engine::Local;
use lowroad_engine::buffer::Buffer;
use lowroad_engine::outgoing::Outgoing;
use lowroad_handler::Fields;
use lowroad_http::fields::Lines;
use lowroad_http::h1::{self, Client, ClientEvent, Fault, Step};
use lowroad_http::limits::Limits;
use lowroad_http::refusal::Refusal;
use lowroad_http::status::Status;
use lowroad_origin::{Connection, Open, Stream, Transport};

use super::forward::{self, Dates};

/// Bytes of the read buffer, and so the maximum of a head.
const READ_LEN: usize = 64 << 10;

/// Limits for responses; their bodies may have any length.
const LIMITS: Limits = Limits {
    head_len_max: READ_LEN,
    target_len_max: 0,
    fields_max: 512,
    body_len_max: u64::MAX,
    chunk_extension_len_max: 1024,
    trailers_len_max: 16 << 10,
};

/// A connection to an origin.
pub struct Link {
    stream: Stream,
    /// The state of the HTTP/1.1 protocol.
    pub http: Client,
    input: Box<[u8]>,
    /// `input[start..end]` is read but not yet parsed.
    start: usize,
    end: usize,
    /// Whether the origin has closed its sending direction.
    is_over: bool,
    dates: Dates,
    /// A reused buffer for the heads of requests.
    pub scratch: Vec<u8>,
}

/// Opens origin connections on sockets.
#[derive(Default)]
pub struct Links(pub Transport);

/// An event of a response.
#[derive(Debug)]
pub enum Said {
    /// The head of its response.
    Head(Status, Fields, Option<u64>),
    /// The head of an interim response (1xx), except 100, which answers this proxy's own request.
    Interim(Status, Fields),
    /// The head of a 101 response: the connection changes to the protocol of this name. The bytes that follow are
    /// `ResponseEvent::Data`, until the connection ends.
    Upgraded(Vec<u8>, Fields),
    /// A part of the body.
    Data(Bytes),
    /// The end of the response, with its trailers.
    End(Option<Box<Fields>>),
}

/// The fault of a connection: the text continues a sentence that begins with the origin's name.
#[derive(Debug)]
pub enum Broken {
    /// The origin closed it before the end of the response.
    Closed,
    /// The system's error.
    Failed(io::Error),
    /// The bytes are not HTTP, or not a response.
    Bad(&'static str),
}

impl Open for Links {
    /// Boxed, since leases are moved often.
    type Connection = Box<Link>;

    async fn open(&self, socket: Outgoing, _: &Local) -> io::Result<Box<Link>> {
        Ok(Box::new(Link {
            stream: self.0.begin(socket).await?,
            http: Client::default(),
            input: vec![0; READ_LEN].into(),
            start: 0,
            end: 0,
            is_over: false,
            dates: Dates::default(),
            scratch: Vec::new(),
        }))
    }
}

impl Connection for Box<Link> {
    /// Avoids a system call if readiness already shows that there is no input.
    fn is_idle(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.start == self.end
            && self.http.is_idle()
            && (self.stream.heard_nothing() || self.poll_read(&mut context).is_pending())
    }

    fn socket(&mut self) -> &mut Outgoing {
        self.stream.socket()
    }
}

impl Link {
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
        buffer: &mut Buffer,
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
    pub fn poll_said(&mut self, context: &mut Context<'_>) -> Poll<Result<Said, Broken>> {
        loop {
            if let Some(said) = self.said()? {
                return Poll::Ready(Ok(said));
            }
            if self.is_over {
                return Poll::Ready(self.ended());
            }
            ready!(self.poll_read(context))?;
        }
    }

    /// Takes the whole rest of a response after its head, if the input already contains it.
    pub fn take_rest(&mut self) -> Option<Bytes> {
        let rest = self.http.take_rest(&self.input[self.start..self.end])?;
        self.start += rest.len();
        Some(Bytes::copy_from_slice(rest))
    }

    /// Closes the sending direction.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_finish(context)
    }

    fn said(&mut self) -> Result<Option<Said>, Broken> {
        loop {
            let input = &self.input[self.start..self.end];
            let Step { used, event } = self.http.next(input, &LIMITS)?;
            let said = match event {
                Some(ClientEvent::Irregular) => {
                    if !self.mend(h1::mend_head)? {
                        return Ok(None);
                    }
                    None
                }
                Some(ClientEvent::IrregularTrailers) => {
                    self.start += used;
                    if !self.mend(h1::mend_trailers)? {
                        return Ok(None);
                    }
                    continue;
                }
                Some(ClientEvent::Response(head)) => {
                    let len = head.content_len();
                    Some(Said::Head(
                        head.status,
                        passed_on(head.fields, &mut self.dates)?,
                        len,
                    ))
                }
                Some(ClientEvent::Data(data)) => Some(Said::Data(Bytes::copy_from_slice(data))),
                Some(ClientEvent::End { trailers }) => Some(Said::End(behind(trailers))),
                Some(ClientEvent::Interim(head)) if head.status == Status::CONTINUE => None,
                Some(ClientEvent::Interim(head)) => Some(Said::Interim(
                    head.status,
                    passed_on(head.fields, &mut self.dates)?,
                )),
                Some(ClientEvent::Upgraded(head)) => {
                    let mut named = head.fields.clone().filter(is_upgrade);
                    let (Some((_, protocol)), None) = (named.next(), named.next()) else {
                        return Err(Broken::Bad("changed to a protocol that it does not name"));
                    };
                    let protocol = protocol.to_vec();
                    Some(Said::Upgraded(
                        protocol,
                        passed_on(head.fields, &mut self.dates)?,
                    ))
                }
                None => {
                    self.start += used;
                    return Ok(None);
                }
            };
            self.start += used;
            if said.is_some() {
                return Ok(said);
            }
        }
    }

    /// Replaces irregular lines at the start of the input by regular ones; false if they are still incomplete.
    fn mend(&mut self, mended: fn(&[u8]) -> Option<Vec<u8>>) -> Result<bool, Broken> {
        let input = &self.input[self.start..self.end];
        let Some(mended) = mended(input) else {
            return Ok(false);
        };
        let room = self.input.get_mut(..mended.len());
        let room = room.ok_or(Fault::Malformed(Refusal::HeadTooLarge))?;
        room.copy_from_slice(&mended);
        (self.start, self.end) = (0, mended.len());
        Ok(true)
    }

    /// Interprets the end of the connection: some bodies end with it (RFC 9112 §6.3).
    fn ended(&mut self) -> Result<Said, Broken> {
        match self.http.ended() {
            Ok(true) => Ok(Said::End(None)),
            Ok(false) | Err(Fault::Cut) => Err(Broken::Closed),
            Err(fault) => Err(fault.into()),
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
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
            Ok(0) => self.is_over = true,
            Ok(len) => self.end += len,
            Err(error) => return Poll::Ready(Err(Broken::Failed(error))),
        }
        Poll::Ready(Ok(()))
    }
}

/// The fields of a head for the client.
fn passed_on(fields: Lines<'_>, dates: &mut Dates) -> Result<Fields, Broken> {
    let fields = forward::response_fields(fields, unix_s, dates);
    fields.ok_or(Broken::Bad("sent a field that is none"))
}

/// The trailers for the client.
fn behind(trailers: Lines<'_>) -> Option<Box<Fields>> {
    (!trailers.is_empty()).then(|| Box::new(Fields::of_trailers(trailers)))
}

fn is_upgrade((name, _): &(&[u8], &[u8])) -> bool {
    name.eq_ignore_ascii_case(b"upgrade")
}

/// The current time, for dates with a two-digit year.
fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Broken {
        Broken::Bad(fault.as_str())
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Closed => to.write_str("closed the connection before its response was whole"),
            Broken::Failed(error) => write!(to, "was lost: {error}"),
            Broken::Bad(what) => write!(to, "sent what is no response: {what}"),
        }
    }
}
