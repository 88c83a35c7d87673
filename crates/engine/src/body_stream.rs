//! A request's body on its way to the handler: read while the response is made, and no faster than the handler reads
//! it. An unwanted body is read and dropped.

use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_http::fields::{FieldLines, ResponseFields};

use crate::client_pace::ClientPace;
use crate::stream::BodySender;

/// Bytes that may wait for a handler; those of one receive may be added on top.
pub(crate) const WAITING_LEN_MAX: usize = 64 * 1024;

/// A streamed body.
pub(crate) struct RequestBodyStream {
    /// None if it has no reader: the rest is read and dropped.
    to: Option<BodySender>,
    /// The queue is full: the handler has to read before more is received.
    pub full: bool,
    pub pace: ClientPace,
    /// Received bytes that are not yet returned to the client's flow-control window.
    pub untaken: usize,
}

impl RequestBodyStream {
    /// A body that has just begun.
    pub fn new(to: BodySender, now_ms: u64) -> RequestBodyStream {
        RequestBodyStream {
            to: Some(to),
            full: false,
            pace: ClientPace::new(now_ms),
            untaken: 0,
        }
    }

    /// Adds received bytes.
    pub fn data(&mut self, data: &[u8]) {
        let pushed = self
            .to
            .as_ref()
            .map(|to| to.push(Bytes::copy_from_slice(data)));
        match pushed {
            Some(Ok(room)) => self.full = !room,
            // The reader was dropped: the rest of the body is discarded.
            Some(Err(_)) => self.to = None,
            None => {}
        }
    }

    /// Ends the complete body, with these trailers.
    pub fn end(&mut self, trailers: &FieldLines<'_>) {
        let Some(to) = self.to.take() else { return };
        match trailers.is_empty() {
            true => to.end(),
            false => to.end_with(Some(Box::new(ResponseFields::from_trailers(
                trailers.clone(),
            )))),
        }
    }

    /// Whether it has a reader.
    pub fn has_reader(&self) -> bool {
        self.to.is_some()
    }

    /// Whether its reader is gone; if not, the waker is called when it goes.
    pub fn is_unwanted(&self, context: &mut Context<'_>) -> bool {
        let to = self.to.as_ref();
        to.is_none_or(|to| to.poll_closed(context).is_ready())
    }

    /// Drops the rest of the body.
    pub fn drop_rest(&mut self) {
        self.to = None;
        self.full = false;
    }

    /// Checks for room; if there is none, the waker is called later.
    pub fn look_for_room(&mut self, context: &mut Context<'_>, now_ms: u64) {
        let Some(to) = &self.to else {
            self.full = false;
            return;
        };
        match to.poll_room(context) {
            Poll::Ready(room) => {
                self.full = false;
                // The client was not the cause of this wait.
                self.pace.excuse(now_ms);
                if room.is_err() {
                    self.to = None;
                }
            }
            Poll::Pending => self.full = true,
        }
    }
}
