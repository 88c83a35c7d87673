//! An exchange on a connection, as seen by its owner.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use lowroad_engine::tasks::DrainHold;
use lowroad_http::fields::FieldLines;
use lowroad_http::h2::ErrorCode;
use lowroad_origin::MultiplexedConnection;

use super::UPLOAD_LEN_MAX;
use super::link::{H2Link, LinkPhase};
use crate::proxy::link::{OriginFault, ResponseEvent};

/// A request in progress and its response. Dropping it early resets the stream.
pub struct H2Exchange {
    link: Arc<H2Link>,
    key: u64,
    /// Whether the connection has served other requests, so that the origin may have closed it in the meantime.
    pub is_reused: bool,
    /// Whether the origin has certainly not processed the request.
    pub is_unprocessed: bool,
    /// Whether the request was given up before it was sent, for lack of a stream.
    pub is_unsent: bool,
    /// Whether the origin has ended the stream, and so has seen the request.
    pub is_reset: bool,
    /// During shutdown, keeps the worker of the connection's task alive.
    _hold: DrainHold,
}

impl H2Exchange {
    pub(super) fn new(link: Arc<H2Link>, key: u64, is_reused: bool) -> H2Exchange {
        H2Exchange {
            _hold: link.tasks.hold(),
            link,
            key,
            is_reused,
            is_unprocessed: false,
            is_unsent: false,
            is_reset: false,
        }
    }

    /// Whether the request waits for a free stream.
    pub fn is_waiting(&self) -> bool {
        let mut state = self.link.lock();
        let slot = state.slots.get(self.key);
        slot.is_some_and(|slot| slot.stream.is_none() && !slot.is_ended)
    }

    /// Waits until the request has a stream, or has failed.
    pub fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.link.lock();
        match state.slots.get(self.key) {
            Some(slot) if slot.stream.is_none() && !slot.is_ended => {
                store_waker(&mut slot.response_waker, context);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Gives up waiting for a stream. Returns whether the origin allows no streams at all; if so, the connection is
    /// closed, since it would only occupy the place of a useful one.
    pub fn abandon(&mut self) -> bool {
        self.is_unsent = true;
        // Asked again, since the settings may have changed while the exchange gave up.
        let is_useless = !self.link.allows_requests();
        if is_useless {
            self.link.close_soon();
        }
        is_useless
    }

    /// Whether the connection's origin allows streams at present.
    pub fn allows_requests(&self) -> bool {
        self.link.allows_requests()
    }

    /// Waits for the next event of the response.
    ///
    /// # Errors
    /// The exchange has failed.
    pub fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, OriginFault>> {
        let mut state = self.link.lock();
        let state = &mut *state;
        let Some(slot) = state.slots.get(self.key) else {
            return Poll::Ready(Err(OriginFault::Closed));
        };
        if let Some(event) = slot.events.pop_front() {
            if let (ResponseEvent::Data(data), Some(stream)) = (&event, slot.stream) {
                let unsent_len = state.out.len();
                let len = data.len();
                state.http.release_capacity(stream, len, &mut state.out);
                // Window updates are written only from time to time.
                if state.out.len() > unsent_len {
                    state.driver.wake_by_ref();
                }
            }
            return Poll::Ready(Ok(event));
        }
        if let Some(fault) = slot.take_fault() {
            self.is_unprocessed = matches!(fault, OriginFault::Unprocessed(_));
            self.is_reset = matches!(fault, OriginFault::Reset(_));
            return Poll::Ready(Err(fault));
        }
        store_waker(&mut slot.response_waker, context);
        Poll::Pending
    }

    /// Ready with true when a part of the request body is accepted, with false if the origin needs no more.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.link.lock();
        let Some(slot) = state.slots.get(self.key) else {
            return Poll::Ready(false);
        };
        if slot.upload_end.is_some() {
            return Poll::Ready(false);
        }
        if slot.upload_len < UPLOAD_LEN_MAX {
            return Poll::Ready(true);
        }
        store_waker(&mut slot.upload_waker, context);
        Poll::Pending
    }

    /// Sends a part of the request body. Returns false if it is longer than announced.
    pub fn send(&mut self, piece: Bytes) -> bool {
        let mut state = self.link.lock();
        let state = &mut *state;
        let Some(slot) = state.slots.get(self.key) else {
            return true;
        };
        // The origin may have ended the exchange since `poll_room`.
        if slot.upload_end.is_some() || piece.is_empty() {
            return true;
        }
        let len = piece.len();
        slot.upload.push_back(piece);
        slot.upload_len += len;
        state.driver.wake_by_ref();
        match slot.stream {
            Some(stream) => state.http.body(stream, len as u64).is_ok(),
            // Announced when the request is sent.
            None => true,
        }
    }

    /// Ends the request body, with these trailer lines. Returns false if it is shorter than announced.
    pub fn end(&mut self, trailers: Vec<u8>) -> bool {
        let mut state = self.link.lock();
        let state = &mut *state;
        let Some(slot) = state.slots.get(self.key) else {
            return true;
        };
        if slot.upload_end.is_some() {
            return true;
        }
        state.driver.wake_by_ref();
        let ended = match slot.stream {
            Some(stream) => state.http.end(stream, FieldLines::new(&trailers)).is_ok(),
            None => true,
        };
        slot.upload_end = Some(trailers);
        ended
    }

    /// Sends a PING after a timeout: if it is not answered either, the connection is closed. Until then it gets no new
    /// requests.
    pub fn check_liveness(&mut self) {
        let now_ms = self.link.timers.now_ms();
        let mut state = self.link.lock();
        let state = &mut *state;
        if state.phase != LinkPhase::Closed && state.ping_ms.is_none() {
            state.http.ping(&mut state.out);
            state.ping_ms = Some(now_ms);
            state.driver.wake_by_ref();
        }
    }
}

impl Drop for H2Exchange {
    fn drop(&mut self) {
        let now_ms = self.link.timers.now_ms();
        let mut state = self.link.lock();
        let state = &mut *state;
        let Some(slot) = state.slots.remove(self.key) else {
            return;
        };
        if state.slots.len() == 0 {
            state.idle_since_ms = now_ms;
        }
        let unsent_len = state.out.len();
        // If both messages are complete, the last frame of the request is sent without the exchange.
        let is_complete = slot.is_ended && slot.upload_end.is_some() && slot.upload_len == 0;
        if let Some(stream) = slot.stream.filter(|_| !is_complete) {
            let code = match slot.is_ended {
                // The response is complete, and the rest of the request is not needed (RFC 9113 §8.1).
                true => ErrorCode::NO_ERROR,
                false => ErrorCode::CANCEL,
            };
            // Without effect if the stream is closed already.
            state.http.reset(stream, code, &mut state.out);
        }
        // The stream may be free for a waiting request.
        let has_work = state.out.len() > unsent_len || !state.slots.waiting.is_empty();
        if has_work || state.phase == LinkPhase::Leaving {
            state.driver.wake_by_ref();
        }
    }
}

fn store_waker(stored: &mut Option<Waker>, context: &Context<'_>) {
    match stored {
        Some(waker) => waker.clone_from(context.waker()),
        None => *stored = Some(context.waker().clone()),
    }
}
