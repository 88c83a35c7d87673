//! Request buffering: collects a request's body before its program starts, so that a slow client does not occupy the
//! program. The minimum rate of clients is enforced by the worker.

use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem, stream};
use lowroad_http::status::StatusCode;

use super::SpoolLimits;
use super::account::increment;
use super::file::TempFile;
use crate::request_body::truncation_failure;
use crate::{Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, RequestBody};

/// The most bytes of quickly arriving data in one write.
pub(super) const BATCH_LEN_MAX: usize = 64 << 10;
/// Bytes that are buffered for the program while a file is read.
const WAITING_LEN_MAX: usize = 64 << 10;

/// A handler that starts once the whole body of a request has arrived.
pub struct BufferingHandler {
    inner: Arc<dyn Handler>,
    spools: Arc<SpoolLimits>,
    /// Whether only bodies of unknown length are collected.
    only_without_length: bool,
}

impl BufferingHandler {
    /// A buffering handler in front of `inner`.
    pub fn new(inner: Arc<dyn Handler>, spools: Arc<SpoolLimits>) -> BufferingHandler {
        BufferingHandler {
            inner,
            spools,
            only_without_length: false,
        }
    }

    /// A buffering handler for a program that can read a body as it arrives, but needs its length: bodies of unknown
    /// length are collected.
    pub fn without_length(inner: Arc<dyn Handler>, spools: Arc<SpoolLimits>) -> BufferingHandler {
        BufferingHandler {
            only_without_length: true,
            ..BufferingHandler::new(inner, spools)
        }
    }

    async fn answer(
        self: Arc<Self>,
        worker: usize,
        mut request: HandlerRequest,
        stream: BodyReceiver,
    ) -> Result<HandlerResponse, HandlerFailure> {
        request.body = self.spools.gather(stream).await?;
        self.inner.clone().begin(worker, request).answer().await
    }
}

impl Handler for BufferingHandler {
    fn inner_handler(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, mut request: HandlerRequest) -> HandlerResult {
        // The program can take a body with a known length as it arrives.
        if self.only_without_length && request.body.len.is_some() {
            return self.inner.clone().begin(worker, request);
        }
        let Some(stream) = request.body.stream.take() else {
            return self.inner.clone().begin(worker, request);
        };
        // Fast path: most bodies arrive together with their heads.
        // The stream contains the whole body already, so its length is known too.
        if let Some(len) = stream.remaining_len() {
            request.body = RequestBody {
                len: Some(len as u64),
                stream: Some(stream),
            };
            return self.inner.clone().begin(worker, request);
        }
        HandlerResult::OnWorker(Box::pin(self.answer(worker, request, stream)))
    }
}

impl SpoolLimits {
    /// Waits for the whole body.
    async fn gather(self: &Arc<Self>, from: BodyReceiver) -> Result<RequestBody, HandlerFailure> {
        let (mut buffered, mut file) = (Vec::new(), None);
        let len_max = self.request_len();
        loop {
            // At least the memory's share, so that small bodies need no file; more if it is there, for fewer writes.
            let len = len_max..=BATCH_LEN_MAX;
            match poll_fn(|context| poll_take(&from, &mut buffered, len.clone(), context)).await {
                StreamChunk::Enough => self.spill_to_file(&mut file, &mut buffered).await?,
                StreamChunk::End => break,
                StreamChunk::Cut => return Err(truncation_failure()),
            }
            // Otherwise a client that pauses would occupy the memory of the largest batch.
            buffered.shrink_to(len_max);
        }
        let len = file.as_ref().map_or(0, TempFile::len) + buffered.len() as u64;
        let trailers = from.take_trailers();
        let (to, stream) = stream(WAITING_LEN_MAX);
        // Announced before the body: a handler that forwards it must choose a framing with room for trailers.
        to.announce(trailers);
        match file {
            // A file is read while the program runs, so that its content is never in memory as a whole.
            Some(file) => drop(tokio::spawn(send_spooled(file, buffered.into(), to))),
            None => {
                to.push(buffered.into()).expect("the receiver is here");
                to.end();
            }
        }
        Ok(RequestBody {
            len: Some(len),
            stream: Some(stream),
        })
    }

    async fn spill_to_file(
        self: &Arc<Self>,
        file: &mut Option<TempFile>,
        buffered: &mut Vec<u8>,
    ) -> Result<(), HandlerFailure> {
        let spill = async {
            let file = match file {
                Some(file) => file,
                None => {
                    increment(&self.account.requests);
                    file.insert(TempFile::open(self).await?)
                }
            };
            file.append(buffered).await
        };
        spill.await.map_err(|error: super::SpoolFailure| {
            let failure = error.failure(self);
            // 507 and 500 are failures of the file system, which the account counts separately.
            if failure.status == StatusCode::SERVICE_UNAVAILABLE {
                increment(&self.account.refused);
            }
            failure
        })
    }
}

/// Passes the file's content and then the bytes held in memory to a program, as fast as it accepts them.
async fn send_spooled(file: TempFile, buffered: Bytes, to: BodySender) {
    let mut at = 0;
    while at < file.len() {
        // A read error truncates the body.
        let Ok(piece) = file.read(at).await else {
            return;
        };
        at += piece.len() as u64;
        if to.send(piece).await.is_err() {
            return;
        }
    }
    // The file is closed before the last bytes: its space is free while the program still reads them.
    drop(file);
    if to.send(buffered).await.is_ok() {
        to.end();
    }
}

/// The result of reading from a stream.
pub(super) enum StreamChunk {
    /// Enough bytes for a write to the file.
    Enough,
    /// The end of the body.
    End,
    /// The end of a truncated body.
    Cut,
}

/// Reads available bytes into `buffered`, up to `len`. Ready with at least the range's start, with more if it is available
/// immediately, and at the end.
pub(super) fn poll_take(
    from: &BodyReceiver,
    buffered: &mut Vec<u8>,
    len: RangeInclusive<usize>,
    context: &mut Context<'_>,
) -> Poll<StreamChunk> {
    let (len_min, len_max) = (*len.start(), *len.end().max(len.start()));
    while buffered.len() < len_max {
        match from.poll_next(context) {
            Poll::Ready(StreamItem::Bytes(bytes)) => buffered.extend_from_slice(&bytes),
            Poll::Ready(StreamItem::End) => return Poll::Ready(StreamChunk::End),
            Poll::Ready(StreamItem::Cut) => return Poll::Ready(StreamChunk::Cut),
            // Enough is held, and waiting for a full batch could take as long as the client likes.
            Poll::Pending if buffered.len() >= len_min => break,
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(StreamChunk::Enough)
}
