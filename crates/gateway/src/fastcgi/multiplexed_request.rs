//! A request on a multiplexed connection.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lowroad_engine::stream::StreamItem;
use lowroad_engine::upstream_tries::TryEnd;
use lowroad_handler::HandlerFailure;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_http::status::StatusCode;
use lowroad_limits::Permit;

use super::exclusive_request::convert_end;
use super::multiplexed_link::RequestTicket;
use super::record::CONTENT_LEN_MAX;
use super::server::FastCgiServer;
use crate::script::exchange::{FeedOutcome, ProgramLink, ProgramOutput};

/// A request in progress. Dropping it sends FCGI_ABORT_REQUEST.
pub struct MultiplexedRequest {
    ticket: RequestTicket,
    server: Arc<FastCgiServer>,
    /// The worker that polls this request; the connection may belong to another worker.
    worker: usize,
    idempotent: bool,
    has_received: bool,
    _permit: Arc<Permit>,
    _recorded_end: Option<TryEnd>,
}

impl MultiplexedRequest {
    /// Creates a request; `out` contains FCGI_BEGIN_REQUEST and FCGI_PARAMS.
    pub fn new(
        ticket: RequestTicket,
        server: Arc<FastCgiServer>,
        worker: usize,
        out: Vec<u8>,
        idempotent: bool,
        permit: Arc<Permit>,
        recorded_end: Option<TryEnd>,
    ) -> MultiplexedRequest {
        if let Some(input) = &ticket.input {
            // `push` fails only if the connection is lost, which the output reports as well.
            let _ = input.push(out.into());
        }
        MultiplexedRequest {
            ticket,
            server,
            worker,
            idempotent,
            has_received: false,
            _permit: permit,
            _recorded_end: recorded_end,
        }
    }
}

impl ProgramLink for MultiplexedRequest {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<FeedOutcome> {
        let Some(input) = &self.ticket.input else {
            return Poll::Ready(FeedOutcome::Closed);
        };
        // Backpressure: the connection's task sends the records of all requests in turn.
        if ready!(input.poll_room(context)).is_err() {
            return Poll::Ready(FeedOutcome::Closed);
        }
        // Each piece becomes one record, which limits its length.
        let content = bytes.split_to(bytes.len().min(CONTENT_LEN_MAX));
        Poll::Ready(match input.push(content) {
            Ok(_) => FeedOutcome::Some,
            Err(_) => FeedOutcome::Closed,
        })
    }

    fn poll_feed_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        if let Some(input) = self.ticket.input.take() {
            input.end();
        }
        Poll::Ready(())
    }

    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<ProgramOutput, HandlerFailure>> {
        let next = ready!(self.ticket.output.poll_next(context));
        Poll::Ready(match (next, self.ticket.end_status()) {
            (StreamItem::Bytes(bytes), _) => {
                self.has_received = true;
                output.extend_from_slice(&bytes);
                Ok(ProgramOutput::Output)
            }
            (StreamItem::End, Some(end_status)) => convert_end(end_status, self.server.name()),
            // If the stream was truncated, output is missing, even if FCGI_END_REQUEST has arrived.
            _ => {
                let detail = format!("{} lost a request in progress", self.server.name());
                Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail))
            }
        })
    }

    fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Worker(self.server.pool.worker_handle(self.worker).clone())
    }

    fn is_unused(&self) -> bool {
        // The method is idempotent and there was no output, so the request may be repeated although bytes were sent.
        !self.has_received && self.idempotent && self.ticket.end_status().is_none()
    }

    fn finish(self, _: bool) {}
}
