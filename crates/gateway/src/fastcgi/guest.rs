//! One request on a multiplexed connection.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lowroad_engine::stream::Next;
use lowroad_handler::Failure;
use lowroad_handler::executor::Executor;
use lowroad_http::status::Status;
use lowroad_limits::Permit;

use super::lone::end;
use super::multiplexed::Ticket;
use super::record::CONTENT_LEN_MAX;
use super::server::Server;
use crate::script::talk::{Fed, Part, Program};

/// A request in progress. Dropping it sends FCGI_ABORT_REQUEST.
pub struct Guest {
    ticket: Ticket,
    server: Arc<Server>,
    /// The worker that polls it; its connection may belong to another worker.
    worker: usize,
    idempotent: bool,
    heard: bool,
    _permit: Arc<Permit>,
}

impl Guest {
    /// A request; `out` contains FCGI_BEGIN_REQUEST and FCGI_PARAMS.
    pub fn new(
        ticket: Ticket,
        server: Arc<Server>,
        worker: usize,
        out: Vec<u8>,
        idempotent: bool,
        permit: Arc<Permit>,
    ) -> Guest {
        if let Some(input) = &ticket.input {
            // An error means that the connection is lost, which the output reports too.
            let _ = input.push(out.into());
        }
        Guest {
            ticket,
            server,
            worker,
            idempotent,
            heard: false,
            _permit: permit,
        }
    }
}

impl Program for Guest {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Fed> {
        let Some(input) = &self.ticket.input else {
            return Poll::Ready(Fed::Closed);
        };
        if ready!(input.poll_room(context)).is_err() {
            return Poll::Ready(Fed::Closed);
        }
        // One piece becomes one record, so it must not exceed a record's length.
        let content = bytes.split_to(bytes.len().min(CONTENT_LEN_MAX));
        Poll::Ready(match input.push(content) {
            Ok(_) => Fed::Some,
            Err(_) => Fed::Closed,
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
    ) -> Poll<Result<Part, Failure>> {
        let next = ready!(self.ticket.output.poll_next(context));
        Poll::Ready(match (next, self.ticket.ended()) {
            (Next::Bytes(bytes), _) => {
                self.heard = true;
                output.extend_from_slice(&bytes);
                Ok(Part::Output)
            }
            (Next::End, Some(ended)) => end(ended, self.server.name()),
            // A truncated stream is a failure even if END_REQUEST has arrived: some output was discarded.
            _ => {
                let detail = format!("{} lost a request that it had begun", self.server.name());
                Err(Failure::new(Status::BAD_GATEWAY, detail))
            }
        })
    }

    fn executor(&self) -> Executor {
        Executor::Worker(self.server.pool.local(self.worker).clone())
    }

    fn is_unused(&self) -> bool {
        !self.heard && self.idempotent && self.ticket.ended().is_none()
    }

    fn finish(self, _: bool) {}
}
