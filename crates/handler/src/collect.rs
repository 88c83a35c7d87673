//! Collects the start of a request's body for a program.
//!
//! A program costs a process or a connection, so it starts only after the whole body or a good part of it has arrived.
//! A body of unknown length is collected completely, within a limit, since programs need its length (RFC 3875 §4.1.2).

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{Next, Receiver};
use lowroad_http::status::Status;

use crate::{Body, Failure};

/// The maximum of a body without a length, in bytes.
const LEN_MAX: usize = 1 << 20;
/// Bytes of a body with a length that must arrive before the program starts.
const START_LEN: usize = 64 << 10;

/// A body whose start was received.
pub struct Gathered {
    /// The length in bytes, if there is a body.
    pub len: Option<u64>,
    here: VecDeque<Bytes>,
    /// The rest; `None` if the body is complete.
    rest: Option<Receiver>,
}

impl Gathered {
    /// No body.
    pub fn none() -> Gathered {
        Gathered {
            len: None,
            here: VecDeque::new(),
            rest: None,
        }
    }

    /// Like [`of`](Gathered::of), but frees the request's permit while the body arrives, perhaps slowly, and acquires
    /// one `again` afterwards. So slow uploads do not occupy the route's bound.
    ///
    /// # Errors
    /// As `of`, or no permit is free.
    pub async fn with_leave<P>(
        body: Body,
        permit: P,
        again: impl FnOnce() -> Result<P, Failure>,
    ) -> Result<(Gathered, P), Failure> {
        if body.stream.is_none() {
            return Ok((Gathered::none(), permit));
        }
        drop(permit);
        Ok((Gathered::of(body).await?, again()?))
    }

    /// Waits for the whole body, or for a good part of it.
    ///
    /// # Errors
    /// 411 if its length is unknown and it is too long to be collected, 400 if it was truncated.
    pub async fn of(body: Body) -> Result<Gathered, Failure> {
        let Some(stream) = body.stream else {
            return Ok(Gathered::none());
        };
        let (mut here, mut here_len) = (VecDeque::new(), 0);
        loop {
            if body.len.is_some() && here_len >= START_LEN {
                return Ok(Gathered {
                    len: body.len,
                    here,
                    rest: Some(stream),
                });
            }
            match stream.next().await {
                Next::Bytes(bytes) => {
                    here_len += bytes.len();
                    here.push_back(bytes);
                }
                Next::End => break,
                Next::Cut => return Err(cut()),
            }
            if body.len.is_none() && here_len > LEN_MAX {
                return Err(Failure::new(Status::LENGTH_REQUIRED, ""));
            }
        }
        Ok(Gathered {
            len: body.len.or(u64::try_from(here_len).ok()),
            here,
            rest: None,
        })
    }

    /// Whether there is no body; an empty one is a body.
    pub fn is_none(&self) -> bool {
        self.len.is_none()
    }

    /// The next piece.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        match (self.here.pop_front(), &self.rest) {
            (Some(bytes), _) => Poll::Ready(Next::Bytes(bytes)),
            (None, Some(rest)) => rest.poll_next(context),
            (None, None) => Poll::Ready(Next::End),
        }
    }
}

/// The failure for a truncated body; its client is gone, so it has no text.
pub fn cut() -> Failure {
    Failure::new(Status::BAD_REQUEST, "")
}
