//! One request on an exclusive connection.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use lowroad_handler::HandlerFailure;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_http::status::StatusCode;
use lowroad_limits::Permit;

use super::link::FastCgiFault;
use super::record::{self, CONTENT_LEN_MAX, FastCgiEnd, FastCgiEvent};
use super::server::{FastCgiLease, FastCgiServer};
use crate::cgi::stderr::StderrLines;
use crate::script::exchange::{FeedOutcome, ProgramLink, ProgramOutput};

/// The request number on exclusive connections.
pub const ID: u16 = 1;

/// A request in progress. Dropping it closes the connection, which cancels it at the server.
pub struct ExclusiveRequest {
    lease: FastCgiLease,
    server: Arc<FastCgiServer>,
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    idempotent: bool,
    /// Whether the connection is kept after the request.
    keeps_connection: bool,
    complaints: StderrLines,
    /// Encoded bytes to write before more of the body.
    out: Vec<u8>,
    out_written: usize,
    /// Bytes of the body that are missing in the record begun last.
    stdin_left: usize,
    stdin_ended: bool,
    /// Whether writing has failed. Output that was already received can still be read.
    deaf: bool,
    wrote: bool,
    heard: bool,
    /// Whether the response is complete, so that a lost connection does no harm.
    output_ended: bool,
    ended: Option<FastCgiEnd>,
    _permit: Arc<Permit>,
}

/// Properties of a request.
#[derive(Clone, Copy)]
pub struct LoneTerms {
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Whether the connection is kept after the request.
    pub keeps_connection: bool,
}

impl ExclusiveRequest {
    /// A request; `out` contains FCGI_BEGIN_REQUEST and FCGI_PARAMS.
    pub fn new(
        lease: FastCgiLease,
        server: Arc<FastCgiServer>,
        out: Vec<u8>,
        terms: LoneTerms,
        complaints: StderrLines,
        permit: Arc<Permit>,
    ) -> ExclusiveRequest {
        ExclusiveRequest {
            lease,
            server,
            idempotent: terms.is_idempotent,
            keeps_connection: terms.keeps_connection,
            complaints,
            out,
            out_written: 0,
            stdin_left: 0,
            stdin_ended: false,
            deaf: false,
            wrote: false,
            heard: false,
            output_ended: false,
            ended: None,
            _permit: permit,
        }
    }

    /// Writes pending bytes, and `more` after them; returns how many bytes of `more` were written. Ready when
    /// none are pending, or the server does not read any more.
    fn poll_write(&mut self, context: &mut Context<'_>, more: &[u8]) -> Poll<usize> {
        loop {
            let waiting = &self.out[self.out_written..];
            if self.deaf || waiting.is_empty() && more.is_empty() {
                return Poll::Ready(0);
            }
            // Pending bytes and the piece in one system call (writev).
            match ready!(self.lease.connection.poll_write(context, waiting, more)) {
                Ok(len @ 1..) => {
                    self.wrote = true;
                    let more_len = len.saturating_sub(waiting.len());
                    self.out_written += len - more_len;
                    if more_len > 0 {
                        return Poll::Ready(more_len);
                    }
                }
                // The server has stopped reading; its response may still be in the socket.
                _ => self.deaf = true,
            }
        }
    }

    fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        // Reuses the buffer instead of growing it.
        if self.out_written == self.out.len() {
            self.out.clear();
            self.out_written = 0;
        }
        put(&mut self.out);
    }

    /// Decodes all input. Returns the kind of progress, if any.
    fn decode(&mut self, output: &mut Vec<u8>) -> Result<Option<ProgramOutput>, FastCgiFault> {
        let mut part = None;
        while let Some((event, bytes)) = self.lease.connection.event()? {
            match event {
                FastCgiEvent::Output(ID, range) => {
                    output.extend_from_slice(&bytes[range]);
                    // More output follows an empty record, so the response was not complete.
                    self.output_ended = false;
                    part = Some(ProgramOutput::Output);
                }
                FastCgiEvent::OutputEnd(ID) => self.output_ended = true,
                FastCgiEvent::Complaint(ID, range) => {
                    self.complaints.take(&bytes[range]);
                    part = part.or(Some(ProgramOutput::Other));
                }
                FastCgiEvent::End(ID, ended) => {
                    self.ended = Some(ended);
                    // Bytes after END_REQUEST belong to no request; `is_quiet` rejects the connection then.
                    return Ok(part.or(Some(ProgramOutput::Other)));
                }
                other => {
                    let bad = format!("sent an unexpected record: {other:?}");
                    return Err(FastCgiFault::Bad(record::BadRecord(bad)));
                }
            }
        }
        Ok(part)
    }

    fn read(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, FastCgiFault>> {
        loop {
            if let Some(part) = self.decode(output)? {
                return Poll::Ready(Ok(part));
            }
            ready!(self.lease.connection.poll_read(context))?;
            self.heard = true;
            self.lease.heard();
        }
    }
}

impl ProgramLink for ExclusiveRequest {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<FeedOutcome> {
        // One record per piece; a piece that is not accepted completely continues the same record.
        if self.stdin_left == 0 {
            self.stdin_left = bytes.len().min(CONTENT_LEN_MAX);
            let len = self.stdin_left;
            self.put(|out| record::put_stdin(out, ID, len));
        }
        let piece = bytes.slice(..self.stdin_left.min(bytes.len()));
        match ready!(self.poll_write(context, &piece)) {
            0 => Poll::Ready(FeedOutcome::Closed),
            len => {
                self.stdin_left -= len;
                bytes.advance(len);
                Poll::Ready(FeedOutcome::Some)
            }
        }
    }

    fn poll_feed_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.stdin_ended {
            self.stdin_ended = true;
            self.put(|out| record::put_stdin(out, ID, 0));
        }
        self.poll_write(context, &[]).map(drop)
    }

    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        if let Some(ended) = self.ended {
            self.complaints.end_line();
            return Poll::Ready(end(ended, self.server.name()));
        }
        // The server may wait for pending bytes; a failure shows in the read.
        let _ = self.poll_write(context, &[]);
        Poll::Ready(match ready!(self.read(context, output)) {
            // FastCGI 1.0 §5.1: the empty FCGI_STDOUT record has completed the response.
            Err(_) if self.output_ended => {
                self.keeps_connection = false;
                self.ended = Some(FastCgiEnd::Complete);
                // `Output`, since output may have been appended before the fault was found.
                Ok(ProgramOutput::Output)
            }
            Err(broken) => {
                let detail = format!("{} {broken}", self.server.name());
                Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail))
            }
            Ok(part) => Ok(part),
        })
    }

    fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Worker(self.server.pool.local(self.lease.worker).clone())
    }

    fn is_unused(&self) -> bool {
        // A stale connection: the server closed it while it was idle (RFC 9112 §9.3.1 has the same rule for HTTP).
        self.lease.kept && !self.heard && self.ended.is_none() && (self.idempotent || !self.wrote)
    }

    fn finish(self, fed: bool) {
        // Only after a response, so that an unreachable server is not asked.
        self.server.ask_once(self.lease.worker);
        // A connection with unsent bytes is unusable: the server would read them as the next record.
        let is_sent = fed && !self.deaf && self.out_written == self.out.len();
        if self.keeps_connection && is_sent {
            self.server.pool.give_back(self.lease);
        }
    }
}

/// Converts the end of a request.
///
/// # Errors
/// The server refused the request.
pub fn end(ended: FastCgiEnd, server: &str) -> Result<ProgramOutput, HandlerFailure> {
    let (status, why) = match ended {
        FastCgiEnd::Complete => return Ok(ProgramOutput::End),
        FastCgiEnd::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "is overloaded"),
        FastCgiEnd::CannotMultiplex => (
            StatusCode::BAD_GATEWAY,
            "announced several requests a connection, but refuses them",
        ),
        FastCgiEnd::UnknownRole => (
            StatusCode::BAD_GATEWAY,
            "does not support the responder role",
        ),
    };
    Err(HandlerFailure::new(status, format!("{server} {why}")))
}
