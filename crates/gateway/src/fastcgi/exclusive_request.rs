//! A request on a connection that carries one request at a time.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use lowroad_engine::upstream_tries::TryEnd;
use lowroad_handler::HandlerFailure;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_http::status::StatusCode;
use lowroad_limits::Permit;

use super::link::FastCgiFault;
use super::record::{self, CONTENT_LEN_MAX, FastCgiEnd, FastCgiEvent};
use super::server::{FastCgiLease, FastCgiServer};
use crate::cgi::stderr::StderrLines;
use crate::script::exchange::{FeedOutcome, ProgramLink, ProgramOutput};

/// The FastCGI request ID on exclusive connections.
pub const ID: u16 = 1;

/// A request in progress. Dropping it closes the connection, which cancels the request at the server.
pub struct ExclusiveRequest {
    lease: FastCgiLease,
    server: Arc<FastCgiServer>,
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    idempotent: bool,
    /// Whether the connection is kept after the request.
    keeps_connection: bool,
    stderr_lines: StderrLines,
    /// Encoded records to write before more of the body.
    out: Vec<u8>,
    out_written: usize,
    /// The number of body bytes missing in the current FCGI_STDIN record.
    stdin_remaining: usize,
    stdin_ended: bool,
    /// Whether a write has failed. Output that was already received can still be read.
    write_failed: bool,
    has_written: bool,
    has_received: bool,
    /// Whether the response is complete, so that losing the connection does no harm.
    output_ended: bool,
    end_status: Option<FastCgiEnd>,
    _permit: Arc<Permit>,
    _recorded_end: Option<TryEnd>,
}

/// Parameters of a request on an exclusive connection.
pub struct ExclusiveTerms {
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Whether the connection is kept after the request.
    pub keeps_connection: bool,
    /// Records the end of the request for the access log.
    pub recorded_end: Option<TryEnd>,
}

impl ExclusiveRequest {
    /// Creates a request; `out` contains FCGI_BEGIN_REQUEST and FCGI_PARAMS.
    pub fn new(
        lease: FastCgiLease,
        server: Arc<FastCgiServer>,
        out: Vec<u8>,
        terms: ExclusiveTerms,
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
            _recorded_end: terms.recorded_end,
        }
    }

    /// Writes the pending bytes, then `extra`; returns the number of bytes of `extra` that were written. Ready when no
    /// bytes are pending, or when the server stopped reading.
    fn poll_write(&mut self, context: &mut Context<'_>, extra: &[u8]) -> Poll<usize> {
        loop {
            let pending = &self.out[self.out_written..];
            if self.write_failed || pending.is_empty() && extra.is_empty() {
                return Poll::Ready(0);
            }
            // Pending bytes and `extra` are written by one system call (writev).
            match ready!(self.lease.connection.poll_write(context, pending, extra)) {
                Ok(len @ 1..) => {
                    self.has_written = true;
                    let extra_len = len.saturating_sub(pending.len());
                    self.out_written += len - extra_len;
                    if extra_len > 0 {
                        return Poll::Ready(extra_len);
                    }
                }
                // The server stopped reading; its response may still be in the socket.
                _ => self.write_failed = true,
            }
        }
    }

    fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        // If all bytes are written, the buffer is reused instead of grown.
        if self.out_written == self.out.len() {
            self.out.clear();
            self.out_written = 0;
        }
        encode(&mut self.out);
    }

    /// Decodes all received records. Returns the kind of progress, if any.
    fn decode(&mut self, output: &mut Vec<u8>) -> Result<Option<ProgramOutput>, FastCgiFault> {
        let mut part = None;
        while let Some((event, bytes)) = self.lease.connection.event()? {
            match event {
                FastCgiEvent::Output(ID, range) => {
                    output.extend_from_slice(&bytes[range]);
                    // More output shows that an earlier empty FCGI_STDOUT record did not end the response.
                    self.output_ended = false;
                    part = Some(ProgramOutput::Output);
                }
                FastCgiEvent::OutputEnd(ID) => self.output_ended = true,
                FastCgiEvent::Stderr(ID, range) => {
                    self.stderr_lines.push(&bytes[range]);
                    part = part.or(Some(ProgramOutput::Other));
                }
                FastCgiEvent::End(ID, end_status) => {
                    self.end_status = Some(end_status);
                    // Bytes after FCGI_END_REQUEST belong to no request; `is_quiet` then rejects the connection.
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
        // Each piece becomes one record; if the server accepts only a part of it, the next call continues the record.
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
        // The server may be waiting for pending bytes. A failed write becomes visible when reading.
        let _ = self.poll_write(context, &[]);
        Poll::Ready(match ready!(self.read(context, output)) {
            // The empty FCGI_STDOUT record has completed the response (FastCGI 1.0 §5.1).
            Err(_) if self.output_ended => {
                self.keeps_connection = false;
                self.end_status = Some(FastCgiEnd::Complete);
                // `Output`, since output may have been appended before the error occurred.
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
        // Stale connection: the server closed it while it was idle (for HTTP, RFC 9112 §9.3.1 has the same rule).
        self.lease.is_reused
            && !self.has_received
            && self.end_status.is_none()
            && (self.idempotent || !self.has_written)
    }

    fn finish(self, fed: bool) {
        // The server is probed only after a response, so that an unreachable server is not probed.
        self.server.probe_once(self.lease.worker);
        // With unsent bytes the connection is unusable: the server would read the next request as a part of this one.
        let is_sent = fed && !self.write_failed && self.out_written == self.out.len();
        if self.keeps_connection && is_sent {
            self.server.pool.release(self.lease);
        }
    }
}

/// Converts the protocol status at the end of a request.
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
