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
    stderr_lines: StderrLines,
    /// Encoded bytes to write before more of the body.
    out: Vec<u8>,
    out_written: usize,
    /// Bytes of the body that are missing in the record begun last.
    stdin_remaining: usize,
    stdin_ended: bool,
    /// Whether writing has failed. Output that was already received can still be read.
    write_failed: bool,
    has_written: bool,
    has_received: bool,
    /// Whether the response is complete, so that a lost connection does no harm.
    output_ended: bool,
    end_status: Option<FastCgiEnd>,
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
        stderr_lines: StderrLines,
        permit: Arc<Permit>,
    ) -> ExclusiveRequest {
        ExclusiveRequest {
            lease,
            server,
            idempotent: terms.is_idempotent,
            keeps_connection: terms.keeps_connection,
            stderr_lines,
            out,
            out_written: 0,
            stdin_remaining: 0,
            stdin_ended: false,
            write_failed: false,
            has_written: false,
            has_received: false,
            output_ended: false,
            end_status: None,
            _permit: permit,
        }
    }

    /// Writes pending bytes, and `extra` after them; returns how many bytes of `extra` were written. Ready when
    /// none are pending, or the server does not read any more.
    fn poll_write(&mut self, context: &mut Context<'_>, extra: &[u8]) -> Poll<usize> {
        loop {
            let pending = &self.out[self.out_written..];
            if self.write_failed || pending.is_empty() && extra.is_empty() {
                return Poll::Ready(0);
            }
            // Pending bytes and the piece in one system call (writev).
            match ready!(self.lease.connection.poll_write(context, pending, extra)) {
                Ok(len @ 1..) => {
                    self.has_written = true;
                    let extra_len = len.saturating_sub(pending.len());
                    self.out_written += len - extra_len;
                    if extra_len > 0 {
                        return Poll::Ready(extra_len);
                    }
                }
                // The server has stopped reading; its response may still be in the socket.
                _ => self.write_failed = true,
            }
        }
    }

    fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        // Reuses the buffer instead of growing it.
        if self.out_written == self.out.len() {
            self.out.clear();
            self.out_written = 0;
        }
        encode(&mut self.out);
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
                    self.stderr_lines.push(&bytes[range]);
                    part = part.or(Some(ProgramOutput::Other));
                }
                FastCgiEvent::End(ID, end_status) => {
                    self.end_status = Some(end_status);
                    // Bytes after END_REQUEST belong to no request; `is_quiet` rejects the connection then.
                    return Ok(part.or(Some(ProgramOutput::Other)));
                }
                other => {
                    let message = format!("sent an unexpected record: {other:?}");
                    return Err(FastCgiFault::Bad(record::BadRecord(message)));
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
            self.has_received = true;
            self.lease.mark_proven();
        }
    }
}

impl ProgramLink for ExclusiveRequest {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<FeedOutcome> {
        // One record per piece; a piece that is not accepted completely continues the same record.
        if self.stdin_remaining == 0 {
            self.stdin_remaining = bytes.len().min(CONTENT_LEN_MAX);
            let len = self.stdin_remaining;
            self.append(|out| record::write_stdin_header(out, ID, len));
        }
        let piece = bytes.slice(..self.stdin_remaining.min(bytes.len()));
        match ready!(self.poll_write(context, &piece)) {
            0 => Poll::Ready(FeedOutcome::Closed),
            len => {
                self.stdin_remaining -= len;
                bytes.advance(len);
                Poll::Ready(FeedOutcome::Some)
            }
        }
    }

    fn poll_feed_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.stdin_ended {
            self.stdin_ended = true;
            self.append(|out| record::write_stdin_header(out, ID, 0));
        }
        self.poll_write(context, &[]).map(drop)
    }

    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        if let Some(end_status) = self.end_status {
            self.stderr_lines.end_line();
            return Poll::Ready(convert_end(end_status, self.server.name()));
        }
        // The server may wait for pending bytes; a failure shows in the read.
        let _ = self.poll_write(context, &[]);
        Poll::Ready(match ready!(self.read(context, output)) {
            // FastCGI 1.0 §5.1: the empty FCGI_STDOUT record has completed the response.
            Err(_) if self.output_ended => {
                self.keeps_connection = false;
                self.end_status = Some(FastCgiEnd::Complete);
                // `Output`, since output may have been appended before the fault was found.
                Ok(ProgramOutput::Output)
            }
            Err(fault) => {
                let detail = format!("{} {fault}", self.server.name());
                Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail))
            }
            Ok(part) => Ok(part),
        })
    }

    fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Worker(self.server.pool.worker_handle(self.lease.worker).clone())
    }

    fn is_unused(&self) -> bool {
        // A stale connection: the server closed it while it was idle (RFC 9112 §9.3.1 has the same rule for HTTP).
        self.lease.is_reused
            && !self.has_received
            && self.end_status.is_none()
            && (self.idempotent || !self.has_written)
    }

    fn finish(self, fed: bool) {
        // Only after a response, so that an unreachable server is not asked.
        self.server.probe_once(self.lease.worker);
        // A connection with unsent bytes is unusable: the server would read them as the next record.
        let is_sent = fed && !self.write_failed && self.out_written == self.out.len();
        if self.keeps_connection && is_sent {
            self.server.pool.release(self.lease);
        }
    }
}

/// Converts the end of a request.
///
/// # Errors
/// The server refused the request.
pub fn convert_end(end_status: FastCgiEnd, server: &str) -> Result<ProgramOutput, HandlerFailure> {
    let (status, reason) = match end_status {
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
    Err(HandlerFailure::new(status, format!("{server} {reason}")))
}
