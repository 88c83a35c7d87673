//! Collects the start of a request's body for a program.
//!
//! A program costs a process or a connection, so it starts only after the whole body or a good part of it has arrived.
//! A body of unknown length is collected completely, within a limit, since programs need its length (RFC 3875 §4.1.2).

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_http::status::StatusCode;

use crate::{HandlerFailure, RequestBody};

/// The maximum of a body without a length, in bytes.
const LEN_MAX: usize = 1 << 20;
/// Bytes of a body with a length that must arrive before the program starts.
const START_LEN: usize = 64 << 10;

/// A body with a received start.
pub struct PartialBody {
    /// The length in bytes, if there is a body.
    pub len: Option<u64>,
    received: VecDeque<Bytes>,
    /// The rest; `None` if the body is complete.
    rest: Option<BodyReceiver>,
}

impl PartialBody {
    /// No body.
    pub fn none() -> PartialBody {
        PartialBody {
            len: None,
            received: VecDeque::new(),
            rest: None,
        }
    }

    /// Like [`new`](Gathered::of), but frees the request's permit while the body arrives, perhaps slowly, and acquires
    /// one `reacquire` afterwards. So slow uploads do not occupy the route's bound.
    ///
    /// # Errors
    /// As `new`, or no permit is free.
    pub async fn with_permit_released<P>(
        body: RequestBody,
        permit: P,
        reacquire: impl FnOnce() -> Result<P, HandlerFailure>,
    ) -> Result<(PartialBody, P), HandlerFailure> {
        // No wait follows, so the permit is kept.
        if body.stream.is_none() {
            return Ok((PartialBody::none(), permit));
        }
        // Freed while the client sends: a slow client must not hold a permit.
        drop(permit);
        Ok((PartialBody::new(body).await?, reacquire()?))
    }

    /// Waits for the whole body, or for a good part of it.
    ///
    /// # Errors
    /// 411 if its length is unknown and it is too long to be collected, 400 if it was truncated.
    pub async fn new(body: RequestBody) -> Result<PartialBody, HandlerFailure> {
        let Some(stream) = body.stream else {
            return Ok(PartialBody::none());
        };
        let (mut received, mut received_len) = (VecDeque::new(), 0);
        loop {
            // Of known length: the program can start with the first part.
            if body.len.is_some() && received_len >= START_LEN {
                return Ok(PartialBody {
                    len: body.len,
                    received,
                    rest: Some(stream),
                });
            }
            match stream.next().await {
                StreamItem::Bytes(bytes) => {
                    received_len += bytes.len();
                    received.push_back(bytes);
                }
                StreamItem::End => break,
                StreamItem::Cut => return Err(truncation_failure()),
            }
            // Only bodies of unknown length are bounded here: the others are passed on after START_LEN.
            if body.len.is_none() && received_len > LEN_MAX {
                // RFC 9110 §15.5.12: the client may repeat the request with a Content-Length.
                return Err(HandlerFailure::new(StatusCode::LENGTH_REQUIRED, ""));
            }
        }
        Ok(PartialBody {
            len: body.len.or(u64::try_from(received_len).ok()),
            received,
            rest: None,
        })
    }

    /// Whether there is no body; an empty one is a body.
    pub fn is_none(&self) -> bool {
        self.len.is_none()
    }

    /// The next piece.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        match (self.received.pop_front(), &self.rest) {
            (Some(bytes), _) => Poll::Ready(StreamItem::Bytes(bytes)),
            (None, Some(rest)) => rest.poll_next(context),
            (None, None) => Poll::Ready(StreamItem::End),
        }
    }
}

/// The failure for a truncated body; its client is gone, so it has no text.
pub fn truncation_failure() -> HandlerFailure {
    HandlerFailure::new(StatusCode::BAD_REQUEST, "")
}
