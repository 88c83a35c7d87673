//! Request bodies: gathered before their program is asked, so that it is not held by who sends
//! slowly. How slowly that may be is the worker's affair. Knows programs as [`Handler`]s only.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{Next, Receiver, Sender, stream};
use lowroad_http::status::Status;

use super::Spools;
use super::account::one;
use super::file::TempFile;
use crate::collect::cut;
use crate::{Begun, Body, Failure, Handler, Request, Response};

/// How much of what comes quickly is written at a time.
pub(super) const BATCH_LEN_MAX: usize = 64 << 10;
/// How much of a body waits for its program on the way out of a file.
const WAITING_LEN_MAX: usize = 64 << 10;

/// A handler that is asked once all of a request's body is there.
pub struct Buffered {
    inner: Arc<dyn Handler>,
    spools: Arc<Spools>,
    /// Bodies whose lengths are known are not waited for.
    only_without_length: bool,
}

impl Buffered {
    /// One in front of `inner`.
    pub fn new(inner: Arc<dyn Handler>, spools: Arc<Spools>) -> Buffered {
        Buffered {
            inner,
            spools,
            only_without_length: false,
        }
    }

    /// One for a program that follows bodies, but has to be told their lengths: those that come without wait until all is
    /// there.
    pub fn without_length(inner: Arc<dyn Handler>, spools: Arc<Spools>) -> Buffered {
        Buffered {
            only_without_length: true,
            ..Buffered::new(inner, spools)
        }
    }

    async fn answer(
        self: Arc<Self>,
        worker: usize,
        mut request: Request,
        stream: Receiver,
    ) -> Result<Response, Failure> {
        request.body = self.spools.gather(stream).await?;
        self.inner.clone().begin(worker, request).answer().await
    }
}

impl Handler for Buffered {
    fn within(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, mut request: Request) -> Begun {
        if self.only_without_length && request.body.len.is_some() {
            return self.inner.clone().begin(worker, request);
        }
        let Some(stream) = request.body.stream.take() else {
            return self.inner.clone().begin(worker, request);
        };
        // Most bodies come with their heads.
        if let Some(len) = stream.len_of_rest() {
            request.body = Body {
                len: Some(len as u64),
                stream: Some(stream),
            };
            return self.inner.clone().begin(worker, request);
        }
        Begun::Here(Box::pin(self.answer(worker, request, stream)))
    }
}

impl Spools {
    /// Waits for all of a body.
    async fn gather(self: &Arc<Self>, from: Receiver) -> Result<Body, Failure> {
        let (mut held, mut file) = (Vec::new(), None);
        let len_max = self.request_len();
        loop {
            let len = len_max..=BATCH_LEN_MAX;
            match poll_fn(|context| poll_take(&from, &mut held, len.clone(), context)).await {
                Taken::Enough => self.put_away(&mut file, &mut held).await?,
                Taken::End => break,
                Taken::Cut => return Err(cut()),
            }
            held.shrink_to(len_max);
        }
        let len = file.as_ref().map_or(0, TempFile::len) + held.len() as u64;
        let trailers = from.take_trailers();
        let (to, stream) = stream(WAITING_LEN_MAX);
        // Known from the start: who passes the body on may have to frame it so that they can follow.
        to.announce(trailers);
        match file {
            Some(file) => drop(tokio::spawn(hand_out(file, held.into(), to))),
            None => {
                to.push(held.into()).expect("the receiver is here");
                to.end();
            }
        }
        Ok(Body {
            len: Some(len),
            stream: Some(stream),
        })
    }

    async fn put_away(
        self: &Arc<Self>,
        file: &mut Option<TempFile>,
        held: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let put = async {
            let file = match file {
                Some(file) => file,
                None => {
                    one(&self.account.requests);
                    file.insert(TempFile::open(self).await?)
                }
            };
            file.append(held).await
        };
        put.await.map_err(|trouble: super::Trouble| {
            let failure = trouble.failure(self);
            if failure.status == Status::SERVICE_UNAVAILABLE {
                one(&self.account.refused);
            }
            failure
        })
    }
}

/// Gives a program what is in a file, and then what was held besides, as fast as it takes it.
async fn hand_out(file: TempFile, held: Bytes, to: Sender) {
    let mut at = 0;
    while at < file.len() {
        // What can't be read is cut.
        let Ok(piece) = file.read(at).await else {
            return;
        };
        at += piece.len() as u64;
        if to.send(piece).await.is_err() {
            return;
        }
    }
    drop(file);
    if to.send(held).await.is_ok() {
        to.end();
    }
}

/// What was taken from a stream.
pub(super) enum Taken {
    /// As much as is to be put into a file.
    Enough,
    /// The last of it.
    End,
    /// The last of it, though that was not all.
    Cut,
}

/// Takes what is there, until so many bytes are held. Ready with enough, with more if it comes at
/// once, and at the end.
pub(super) fn poll_take(
    from: &Receiver,
    held: &mut Vec<u8>,
    len: RangeInclusive<usize>,
    context: &mut Context<'_>,
) -> Poll<Taken> {
    let (enough, most) = (*len.start(), *len.end().max(len.start()));
    while held.len() < most {
        match from.poll_next(context) {
            Poll::Ready(Next::Bytes(bytes)) => held.extend_from_slice(&bytes),
            Poll::Ready(Next::End) => return Poll::Ready(Taken::End),
            Poll::Ready(Next::Cut) => return Poll::Ready(Taken::Cut),
            Poll::Pending if held.len() >= enough => break,
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Taken::Enough)
}
