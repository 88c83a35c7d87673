//! A request's body on its way to the program that answers: read while the answer is made, and no faster than the
//! program takes it. What nobody takes is read and dropped.

use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_http::fields::{FieldLines, ResponseFields};

use crate::client_pace::ClientPace;
use crate::stream::BodySender;

/// Bytes that may wait for a program; what one receive brings comes on top.
pub(crate) const WAITING_LEN_MAX: usize = 64 * 1024;

/// A body that streams in.
pub(crate) struct RequestBodyStream {
    /// None when nobody wants it: the rest is read and dropped.
    to: Option<BodySender>,
    /// The program has to take some before more is read.
    pub full: bool,
    pub pace: ClientPace,
    /// Bytes that the client may not yet send again.
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

    /// Some of it has come.
    pub fn data(&mut self, data: &[u8]) {
        let pushed = self
            .to
            .as_ref()
            .map(|to| to.push(Bytes::copy_from_slice(data)));
        match pushed {
            Some(Ok(room)) => self.full = !room,
            Some(Err(_)) => self.to = None,
            None => {}
        }
    }

    /// It has come whole, and these fields behind it.
    pub fn end(&mut self, trailers: &FieldLines<'_>) {
        let Some(to) = self.to.take() else { return };
        match trailers.is_empty() {
            true => to.end(),
            false => to.end_with(Some(Box::new(ResponseFields::from_trailers(
                trailers.clone(),
            )))),
        }
    }

    /// Whether it was not dropped.
    pub fn has_reader(&self) -> bool {
        self.to.is_some()
    }

    /// Whether nobody takes any more of it; if somebody does, the waker will tell.
    pub fn is_unwanted(&self, context: &mut Context<'_>) -> bool {
        let to = self.to.as_ref();
        to.is_none_or(|to| to.poll_closed(context).is_ready())
    }

    /// Nobody takes it: what still comes is dropped.
    pub fn drop_rest(&mut self) {
        self.to = None;
        self.full = false;
    }

    /// Asks whether there is room again; if not, the waker will tell.
    pub fn look_for_room(&mut self, context: &mut Context<'_>, now_ms: u64) {
        let Some(to) = &self.to else {
            self.full = false;
            return;
        };
        match to.poll_room(context) {
            Poll::Ready(room) => {
                self.full = false;
                // The wait was the program's.
                self.pace.excuse(now_ms);
                if room.is_err() {
                    self.to = None;
                }
            }
            Poll::Pending => self.full = true,
        }
    }
}
