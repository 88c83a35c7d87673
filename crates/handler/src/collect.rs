//! Bodies on their way to programs. A program costs a process or a connection, so none is taken
//! before there is something to give it: all of the body, or a good piece of it. A body whose
//! length is not known is collected whole, as far as memory allows, since programs need to be told
//! it (RFC 3875 §4.1.2). It knows nothing of programs.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{Next, Receiver};
use lowroad_http::status::Status;

use crate::{Body, Failure};

/// Longer bodies must come with their length.
const LEN_MAX: usize = 1 << 20;
/// As much of a body with a length is waited for.
const START_LEN: usize = 64 << 10;

/// A body of which some is here.
pub struct Gathered {
    /// Its length in bytes, if there is one.
    pub len: Option<u64>,
    here: VecDeque<Bytes>,
    /// Where more comes from; `None` when that was all.
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

    /// The same as [`of`](Gathered::of), with leave to answer the request: while a body comes, slowly
    /// perhaps, others have it, and it is asked for `again`.
    ///
    /// # Errors
    /// As `of`, or no leave is to be had again.
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

    /// Waits for all of a body, or for a good piece of it.
    ///
    /// # Errors
    /// 411 if its length is not known and it is too long to be collected, 400 if it was cut.
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

    /// Whether there is no body; one without bytes is a body too.
    pub fn is_none(&self) -> bool {
        self.len.is_none()
    }

    /// What is next.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        match (self.here.pop_front(), &self.rest) {
            (Some(bytes), _) => Poll::Ready(Next::Bytes(bytes)),
            (None, Some(rest)) => rest.poll_next(context),
            (None, None) => Poll::Ready(Next::End),
        }
    }
}

/// Nobody reads the answer to a request that was cut.
pub fn cut() -> Failure {
    Failure::new(Status::BAD_REQUEST, "")
}
