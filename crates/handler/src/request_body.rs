//! Collects the start of a request's body before an application is called.
//!
//! A call occupies a process or a connection, so it begins only after the whole body or a sufficient part has arrived.
//! A body of unknown length is collected completely, within a limit, since CGI needs the length (RFC 3875 §4.1.2).

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_http::status::StatusCode;

use crate::{HandlerFailure, RequestBody};

/// The maximum length of a body of unknown length, in bytes.
const LEN_MAX: usize = 1 << 20;
/// How many bytes of a body of known length must arrive before the application is called.
const START_LEN: usize = 64 << 10;

/// A body, the start of which has been received.
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

    /// Like [`new`](PartialBody::new), but frees the request's permit while the body arrives, perhaps slowly, and
    /// acquires another one by `reacquire` afterwards. So slow uploads do not use up the route's concurrency limit.
    ///
    /// # Errors
    /// As `new`, or no permit is free.
    pub async fn with_permit_released<P>(
        body: RequestBody,
        permit: P,
        reacquire: impl FnOnce() -> Result<P, HandlerFailure>,
    ) -> Result<(PartialBody, P), HandlerFailure> {
        // Without a body, there is nothing to wait for, so the permit is kept.
        if body.stream.is_none() {
            return Ok((PartialBody::none(), permit));
        }
        // Freed while the client sends, since a slow client must not occupy a permit.
        drop(permit);
        Ok((PartialBody::new(body).await?, reacquire()?))
    }

    /// Waits for the whole body, or for its first `START_LEN` bytes.
    ///
    /// # Errors
    /// 411 if the length is unknown and the body is too long to be collected, 400 if it was truncated.
    pub async fn new(body: RequestBody) -> Result<PartialBody, HandlerFailure> {
        let Some(stream) = body.stream else {
            return Ok(PartialBody::none());
        };
        let (mut received, mut received_len) = (VecDeque::new(), 0);
        loop {
            // If the length is known, the application can be called with the first part.
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
            // Only bodies of unknown length are limited here: others are passed on after START_LEN.
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

    /// Whether the request has no body. An empty body is a body.
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

/// The failure for a truncated body, without a detail, since the client has disconnected.
pub fn truncation_failure() -> HandlerFailure {
    HandlerFailure::new(StatusCode::BAD_REQUEST, "")
}
