//! Streams a request's body to the handler while the response is generated, no faster than the handler reads it. A body
//! without a reader is received and dropped.

use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_http::fields::{FieldLines, ResponseFields};

use crate::client_pace::ClientPace;
use crate::stream::BodySender;

/// The queue of a body is full at this length; the last receive may exceed it.
pub(crate) const WAITING_LEN_MAX: usize = 64 * 1024;

/// A streamed body.
pub(crate) struct RequestBodyStream {
    /// None if the body has no reader: the rest is received and dropped.
    sender: Option<BodySender>,
    /// The queue is full: the handler has to read before more is received.
    pub full: bool,
    pub pace: ClientPace,
    /// Received bytes that are not yet returned to the client's flow-control window.
    pub unreturned: usize,
    received_len: u64,
    /// The longest body that the service accepts, in bytes. The protocol has another limit.
    pub len_max: u64,
}

impl RequestBodyStream {
    /// A body of which nothing was received yet.
    pub fn new(sender: BodySender, now_ms: u64) -> RequestBodyStream {
        RequestBodyStream {
            sender: Some(sender),
            full: false,
            pace: ClientPace::new(now_ms),
            unreturned: 0,
            received_len: 0,
            len_max: u64::MAX,
        }
    }

    /// Adds received bytes.
    pub fn data(&mut self, data: &[u8]) {
        self.received_len += data.len() as u64;
        let pushed = self
            .sender
            .as_ref()
            .map(|sender| sender.push(Bytes::copy_from_slice(data)));
        match pushed {
            Some(Ok(room)) => self.full = !room,
            // The reader was dropped: the rest of the body is discarded.
            Some(Err(_)) => self.sender = None,
            None => {}
        }
    }

    /// Ends the complete body, with these trailers.
    pub fn end(&mut self, trailers: &FieldLines<'_>) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        match trailers.is_empty() {
            true => sender.end(),
            false => sender.end_with(Some(Box::new(ResponseFields::from_trailers(
                trailers.clone(),
            )))),
        }
    }

    /// Whether more was received than the service accepts.
    pub fn is_too_long(&self) -> bool {
        self.received_len > self.len_max
    }

    /// Whether the body has a reader.
    pub fn has_reader(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether the reader was dropped; if not, the waker is called when it is dropped.
    pub fn is_reader_gone(&self, context: &mut Context<'_>) -> bool {
        let sender = self.sender.as_ref();
        sender.is_none_or(|sender| sender.poll_closed(context).is_ready())
    }

    /// Drops the rest of the body.
    pub fn drop_rest(&mut self) {
        self.sender = None;
        self.full = false;
    }

    /// Updates `full`. If the queue is full, the waker is called when it has room.
    pub fn poll_room(&mut self, context: &mut Context<'_>, now_ms: u64) {
        let Some(sender) = &self.sender else {
            self.full = false;
            return;
        };
        match sender.poll_room(context) {
            Poll::Ready(room) => {
                self.full = false;
                // The client was not the cause of this wait.
                self.pace.exclude_wait(now_ms);
                if room.is_err() {
                    self.sender = None;
                }
            }
            Poll::Pending => self.full = true,
        }
    }
}
