//! The server's end of a connection: requests of field blocks, and which streams begin. Responses are in `respond`. See the
//! module for the order of things.

use alloc::vec::Vec;

use super::connection::{Connection, Fragment, Going, Got, Phase};
use super::error::{Code, Fault};
use super::head::{Fields, Head, Seen, Wrong};
use super::section::{Ignored, Others};
use super::sending::Piece;
use super::streams::{Input, Output, UNKNOWN};
use super::{StreamId, Turn};
use crate::fields::Lines;
use crate::h1::{Broken, Step};
use crate::method::Method;
use crate::refusal::Refusal;
use crate::request::PartialRequest;

/// What came from the client.
#[derive(Debug)]
pub enum Event<'h, 'b> {
    /// A whole head. If it has a body, that follows as [`Event::Data`], and then an [`Event::End`].
    Request(&'h Head<'b>),
    /// Some of a body, not empty. [`Server::taken`] makes room for more.
    Data {
        /// Its stream.
        stream: StreamId,
        /// The bytes.
        data: &'b [u8],
    },
    /// A request with a body is whole.
    End {
        /// Its stream.
        stream: StreamId,
        /// Validated.
        trailers: Lines<'b>,
    },
    /// A stream without a request that could be answered as asked, or with a body that is too long. It can be answered with
    /// the refusal's status; nothing more comes of it.
    Refused {
        /// Its stream.
        stream: StreamId,
        /// Why.
        refusal: Refusal,
        /// The parts of its request; `None` if that was an event before.
        request: Option<PartialRequest<'b>>,
    },
    /// A stream has ended before its time, by the client or for its fault. It counts as one under way until the work for it
    /// has ended: [`Server::done`].
    Reset {
        /// Its stream.
        stream: StreamId,
        /// Why.
        code: Code,
    },
}

/// One connection.
#[derive(Debug)]
pub struct Server {
    pub(super) http: Connection,
}

impl Server {
    /// A connection on which the client has said nothing, or the start of its preface. Our settings are written.
    #[must_use]
    pub fn new(turn: &mut Turn<'_>) -> Server {
        let mut http = Connection::new(true);
        http.greet(turn);
        Server { http }
    }

    /// Looks at the start of what was received and not used yet. Fields are decoded into `text`, and a head is put into
    /// `place`. To be called again as long as there is an event, or something was used; the end of a body may be told without
    /// any input.
    ///
    /// # Errors
    /// It is not HTTP/2, or against its rules: the connection closes once what was written has left.
    #[inline]
    pub fn next<'h, 'b>(
        &mut self,
        input: &'b [u8],
        text: &'b mut Vec<u8>,
        place: &'h mut Option<Head<'b>>,
        turn: &mut Turn<'_>,
    ) -> Result<Step<Event<'h, 'b>>, Fault> {
        let step = self.step(input, text, place, turn);
        if let Err(fault) = step {
            self.http.fail(fault, turn);
        }
        step
    }

    #[inline]
    fn step<'h, 'b>(
        &mut self,
        input: &'b [u8],
        text: &'b mut Vec<u8>,
        place: &'h mut Option<Head<'b>>,
        turn: &mut Turn<'_>,
    ) -> Result<Step<Event<'h, 'b>>, Fault> {
        let (used, got) = self.http.step(input, turn)?;
        let event = match got {
            Got::Nothing => None,
            Got::Block {
                stream,
                is_end,
                block,
            } => self.block(stream, is_end, &block, text, place, turn)?,
            Got::Data { stream, data } => Some(Event::Data {
                stream: StreamId(stream),
                data,
            }),
            other => told(other, Lines::NONE),
        };
        Ok(Step { used, event })
    }

    /// A field block has come: a request, or trailers.
    #[inline]
    fn block<'h, 'b>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &Fragment<'_>,
        text: &'b mut Vec<u8>,
        place: &'h mut Option<Head<'b>>,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Event<'h, 'b>>, Fault> {
        if id.is_multiple_of(2) {
            return Err(Fault::protocol("a stream that no client begins"));
        }
        if id <= self.http.last_id {
            return self.later_block(id, is_end, block, text, turn);
        }
        let http = &mut self.http;
        if http.going == Going::Gone {
            http.decoder.decode(block.bytes(), &mut Ignored(text))?;
            return Ok(None);
        }
        http.last_id = id;
        if http.streams.len() >= usize::from(turn.settings.streams_max) {
            http.decoder.decode(block.bytes(), &mut Ignored(text))?;
            return http
                .fail_stream(id, Code::REFUSED_STREAM, turn)
                .map(|_| None);
        }
        let mut seen = Seen::default();
        let mut fields = Fields::new(text, turn.settings, &mut seen);
        http.decoder.decode(block.bytes(), &mut fields)?;
        let method = match fields.finish(is_end) {
            Ok(method) => method,
            Err(Wrong::Refused(refusal)) => {
                return Ok(Some(self.refused(id, is_end, refusal, seen.partial(text))));
            }
            Err(Wrong::Malformed(_)) => {
                turn.counters.malformed += 1;
                return http
                    .fail_stream(id, Code::PROTOCOL_ERROR, turn)
                    .map(|_| None);
            }
        };
        let text: &'b [u8] = text;
        let head = match seen.head(text, StreamId(id), method, is_end, turn.settings) {
            Ok(head) => place.insert(head),
            Err(refusal) => {
                return Ok(Some(self.refused(id, is_end, refusal, seen.partial(text))));
            }
        };
        let mut priority = seen.priority;
        if !http.early.is_empty()
            && let Some(at) = http.early.iter().position(|(early, _)| *early == id)
        {
            (_, priority) = http.early.swap_remove(at);
        }
        let input = if is_end { Input::Ended } else { Input::Open };
        let slot = http.begin(id, input, Output::Head, priority);
        let stream = http.streams.get(slot);
        stream.is_head = method == Method::Head;
        stream.expects = head.expect_continue;
        stream.is_tunnel = method == Method::Connect || head.protocol.is_some();
        stream.to_come = match stream.is_tunnel {
            true => UNKNOWN,
            false => seen.content_len.unwrap_or(UNKNOWN),
        };
        Ok(Some(Event::Request(head)))
    }

    /// Opens a stream whose request is refused. The response to HEAD has no content (RFC 9110 §9.3.2).
    fn refused<'h, 'b>(
        &mut self,
        id: u32,
        is_end: bool,
        refusal: Refusal,
        request: PartialRequest<'b>,
    ) -> Event<'h, 'b> {
        let input = if is_end {
            Input::Ended
        } else {
            Input::Unwanted
        };
        let priority = super::Priority::default();
        let slot = self.http.begin(id, input, Output::Head, priority);
        self.http.streams.get(slot).is_head = request.method == b"HEAD";
        Event::Refused {
            stream: StreamId(id),
            refusal,
            request: Some(request),
        }
    }

    /// A field block of a stream that has begun: trailers, if anything.
    fn later_block<'h, 'b>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &Fragment<'_>,
        text: &'b mut Vec<u8>,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Event<'h, 'b>>, Fault> {
        let http = &mut self.http;
        let mut fields = Others::trailers(text, turn.settings.limits.trailers_len_max);
        http.decoder.decode(block.bytes(), &mut fields)?;
        let is_wrong = fields.wrong().is_some() || !is_end;
        let Some(stream) = http.streams.by_id(id) else {
            http.check_closed(id)?;
            http.glitch(1, turn)?;
            return Ok(None);
        };
        let got = match stream.input {
            _ if stream.is_dead => Got::Nothing,
            Input::Ended => http.fail_stream(id, Code::STREAM_CLOSED, turn)?,
            _ if is_wrong => {
                turn.counters.malformed += 1;
                http.fail_stream(id, Code::PROTOCOL_ERROR, turn)?
            }
            _ => http.input_ended(id, turn)?,
        };
        let text: &'b [u8] = text;
        Ok(told(got, Lines::of(text)))
    }

    /// So many bytes of a request's body were taken, and more may come.
    pub fn taken(&mut self, stream: StreamId, len: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.http.give_back(stream.0, len, out);
    }

    /// Resets streams whose clients still send an unwanted body 5 s after the response. To be called about once a second
    /// while the connection is not idle.
    pub fn reset_lingering(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        self.http.reset_lingering(now_ms, out);
    }

    /// The work for a stream that was reset has ended.
    pub fn done(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let is_dead = |it: &mut super::streams::Stream| it.is_dead;
        if self.http.streams.by_id(stream.0).is_some_and(is_dead) {
            self.http.forget(stream.0, out);
        }
    }

    /// Ends a stream before its time: its work has ended.
    pub fn reset(&mut self, stream: StreamId, code: Code, out: &mut Vec<u8>) {
        if let Some(it) = self.http.streams.by_id(stream.0) {
            if !it.is_dead {
                super::frame::put_reset(stream.0, code, out);
                self.http.forgotten.add(stream.0);
            }
            self.http.forget(stream.0, out);
        }
    }

    /// More of a response's body is ready to be sent; [`Server::send`] says when. Whether it is to be sent at all: not where
    /// the client expects none, or has gone.
    ///
    /// # Errors
    /// More than was announced: the stream is to be reset.
    pub fn body(&mut self, stream: StreamId, len: u64) -> Result<bool, Broken> {
        self.http.ready(stream.0, len)
    }

    /// As [`Server::body`] and [`Server::end`], for a body that is ready as a whole.
    ///
    /// # Errors
    /// More or less than was announced: the stream is to be reset.
    #[inline]
    pub fn whole_body(&mut self, stream: StreamId, len: u64) -> Result<bool, Broken> {
        self.http.ready_whole(stream.0, len)
    }

    /// All of a response's body is ready. Its trailers are field lines.
    ///
    /// # Errors
    /// Less than was announced: the stream is to be reset.
    pub fn end(&mut self, stream: StreamId, trailers: Lines<'_>) -> Result<(), Broken> {
        let mut block = Vec::new();
        super::respond::put_lines(trailers, &mut block);
        self.http.complete(stream.0, block)
    }

    /// Writes the head of the next DATA frame of any stream, of at most `len_max` bytes, which are to follow at once; or what
    /// ends a stream. `None`: nothing is ready, or no window is open. To be called when all input has been looked at, so that
    /// what is urgent comes first, and again when there is room.
    #[inline]
    pub fn send(&mut self, len_max: usize, out: &mut Vec<u8>) -> Option<Piece> {
        self.http.send(len_max, out)
    }

    /// Whether bodies are ready that no window lets out: who takes nothing for long is to be given up.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.http.is_blocked()
    }

    /// No stream begins any more; those under way go on.
    pub fn leave(&mut self, out: &mut Vec<u8>) {
        self.http.leave(out);
    }

    /// Ends the connection with what is under way.
    pub fn give_up(&mut self, code: Code, why: &str, out: &mut Vec<u8>) {
        self.http.end(code, why, out);
    }

    /// Streams under way.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.http.streams.len()
    }

    /// Whether the preface or the settings that begin a connection are due.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(self.http.phase, Phase::Preface | Phase::Settings)
    }

    /// Whether our settings have not been acknowledged: after too long the connection is to be given up with
    /// [`Code::SETTINGS_TIMEOUT`].
    #[must_use]
    pub fn awaits_acknowledgement(&self) -> bool {
        self.http.unacknowledged > 0
    }

    /// Gives back memory that an idle connection does not need.
    pub fn trim(&mut self) {
        self.http.streams.trim();
    }
}

/// What is told of what the connection gave.
fn told<'h, 'b>(got: Got<'_>, trailers: Lines<'b>) -> Option<Event<'h, 'b>> {
    Some(match got {
        Got::End { stream } => Event::End {
            stream: StreamId(stream),
            trailers,
        },
        Got::Refused { stream, refusal } => Event::Refused {
            stream: StreamId(stream),
            refusal,
            request: None,
        },
        Got::Reset { stream, code } => Event::Reset {
            stream: StreamId(stream),
            code,
        },
        Got::Nothing | Got::Block { .. } | Got::Data { .. } | Got::GoneAway { .. } => return None,
    })
}
