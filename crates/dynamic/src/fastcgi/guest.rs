//! One request on a connection that it shares with others. It knows nothing of how a response comes
//! of its output.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use lowroad_engine::stream::Next;
use lowroad_engine::tasks::Tasks;
use lowroad_http::status::Status;
use tokio::sync::OwnedSemaphorePermit;

use super::lone::end;
use super::record::{self, CONTENT_LEN_MAX};
use super::shared::Ticket;
use crate::Failure;
use crate::script::talk::{Fed, Part, Program};

/// A request under way. Dropped, it is aborted.
pub struct Guest {
    ticket: Ticket,
    server: String,
    tasks: Tasks,
    idempotent: bool,
    heard: bool,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Guest {
    /// A request whose begin and parameters are in `out`.
    pub fn new(
        ticket: Ticket,
        server: String,
        tasks: Tasks,
        out: Vec<u8>,
        idempotent: bool,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Guest {
        if let Some(input) = &ticket.input {
            // If the connection is lost already, the output says so.
            let _ = input.push(out.into());
        }
        Guest {
            ticket,
            server,
            tasks,
            idempotent,
            heard: false,
            _permit: permit,
        }
    }

    /// Puts a record in with this content, when there is room.
    fn poll_put(&self, context: &mut Context<'_>, content: &[u8]) -> Poll<Fed> {
        let Some(input) = &self.ticket.input else {
            return Poll::Ready(Fed::Closed);
        };
        if ready!(input.poll_room(context)).is_err() {
            return Poll::Ready(Fed::Closed);
        }
        let mut record = Vec::with_capacity(record::HEADER_LEN + content.len());
        record::put_stdin(&mut record, self.ticket.id, content.len());
        record.extend_from_slice(content);
        Poll::Ready(match input.push(record.into()) {
            Ok(_) => Fed::Some,
            Err(_) => Fed::Closed,
        })
    }
}

impl Program for Guest {
    fn poll_feed(&mut self, context: &mut Context<'_>, bytes: &mut Bytes) -> Poll<Fed> {
        let len = bytes.len().min(CONTENT_LEN_MAX);
        let fed = ready!(self.poll_put(context, &bytes[..len]));
        bytes.advance(len);
        Poll::Ready(fed)
    }

    fn poll_feed_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let _ = ready!(self.poll_put(context, &[]));
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
            (_, Some(ended)) => end(ended, &self.server),
            (_, None) => {
                let detail = format!("{} lost a request that it had begun", self.server);
                Err(Failure::new(Status::BAD_GATEWAY, detail))
            }
        })
    }

    fn tasks(&self) -> Option<&Tasks> {
        Some(&self.tasks)
    }

    fn is_unused(&self) -> bool {
        !self.heard && self.idempotent && self.ticket.ended().is_none()
    }

    fn finish(self, _: bool) {}
}
