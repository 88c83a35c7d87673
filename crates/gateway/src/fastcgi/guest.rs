//! One request on a connection that it shares with others. It knows nothing of how a response comes
//! of its output.

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

/// A request under way. Dropped, it is aborted.
pub struct Guest {
    ticket: Ticket,
    server: Arc<Server>,
    /// Where it is polled; its connection may be another's.
    worker: usize,
    idempotent: bool,
    heard: bool,
    _permit: Arc<Permit>,
}

impl Guest {
    /// A request whose begin and parameters are in `out`.
    pub fn new(
        ticket: Ticket,
        server: Arc<Server>,
        worker: usize,
        out: Vec<u8>,
        idempotent: bool,
        permit: Arc<Permit>,
    ) -> Guest {
        if let Some(input) = &ticket.input {
            // If the connection is lost already, the output says so.
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
        // The connection's owner makes a record of it.
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
            // Also if the server has ended it meanwhile: what was taken from it is not all.
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
