//! Receives the body of an operator's request on the event loop: a slow client occupies no helper thread.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use lowroad_engine::service::ExchangeId;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_engine::worker::MailboxMessage;

use super::call::AdminCall;
use super::service::{AdminEvent, AdminMailbox};

/// A request with an incomplete body. The connection's limits bound its length and its time.
pub struct ReceivedBody {
    call: Box<AdminCall>,
    body: BodyReceiver,
    waker: Waker,
}

/// The progress of a body.
pub enum BodyReception {
    /// More bytes are expected; an [`AdminEvent::BodyReady`] follows.
    Waiting(ReceivedBody),
    /// The request is complete.
    Complete(Box<AdminCall>),
    /// The body has ended too early.
    Cut(Box<AdminCall>),
}

impl ReceivedBody {
    /// The request of the exchange `id`, and its body.
    pub fn new(
        call: Box<AdminCall>,
        body: BodyReceiver,
        id: ExchangeId,
        mailbox: &AdminMailbox,
    ) -> ReceivedBody {
        let waker = BodyWaker {
            id,
            mailbox: mailbox.clone(),
        };
        ReceivedBody {
            call,
            body,
            waker: Arc::new(waker).into(),
        }
    }

    /// The request, without its body.
    pub fn call(&self) -> &AdminCall {
        &self.call
    }

    /// Takes the bytes that have arrived.
    pub fn receive(mut self) -> BodyReception {
        loop {
            match self.body.poll_next(&mut Context::from_waker(&self.waker)) {
                // The connection's limit of bodies bounds the length.
                Poll::Ready(StreamItem::Bytes(bytes)) => self.call.body.extend_from_slice(&bytes),
                Poll::Ready(StreamItem::End) => return BodyReception::Complete(self.call),
                Poll::Ready(StreamItem::Cut) => return BodyReception::Cut(self.call),
                Poll::Pending => return BodyReception::Waiting(self),
            }
        }
    }
}

/// Resumes the exchange when bytes have arrived.
struct BodyWaker {
    id: ExchangeId,
    mailbox: AdminMailbox,
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        // Called by the event loop itself when it has received bytes; the message is read in its next turn.
        self.mailbox
            .post(MailboxMessage::Outcome(self.id, AdminEvent::BodyReady));
    }
}
