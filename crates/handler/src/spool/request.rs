//! Request buffering: collects a request's body before the application is called, so that a slow client does not occupy
//! the application. The worker enforces the minimum rate of clients.

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

/// The maximum number of bytes that are written to a file in one batch.
pub(super) const BATCH_LEN_MAX: usize = 64 << 10;
/// The maximum number of bytes that are buffered for the application while a file is read.
const WAITING_LEN_MAX: usize = 64 << 10;

/// Calls a handler only when the whole body of a request has arrived.
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

    /// A buffering handler for an application that can read a body while it arrives, but needs the length: only bodies
    /// of unknown length are collected.
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
        request.body = self.spools.collect_body(stream).await?;
        self.inner.clone().begin(worker, request).answer().await
    }
}

impl Handler for BufferingHandler {
    fn inner_handler(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, mut request: HandlerRequest) -> HandlerResult {
        // The application can read a body of known length while it arrives.
        if self.only_without_length && request.body.len.is_some() {
            return self.inner.clone().begin(worker, request);
        }
        let Some(stream) = request.body.stream.take() else {
            return self.inner.clone().begin(worker, request);
        };
        // Fast path: most bodies arrive together with their heads. The stream contains the whole body already, so the
        // length is known.
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
    /// Collects the whole body.
    async fn collect_body(
        self: &Arc<Self>,
        from: BodyReceiver,
    ) -> Result<RequestBody, HandlerFailure> {
        let (mut buffered, mut file) = (Vec::new(), None);
        let len_max = self.request_len();
        loop {
            // A batch has at least the length that may be buffered in memory, so that small bodies need no file, and
            // more if that is available immediately, so that fewer writes are needed.
            let len = len_max..=BATCH_LEN_MAX;
            match poll_fn(|context| poll_take(&from, &mut buffered, len.clone(), context)).await {
                StreamChunk::Enough => self.spill_to_file(&mut file, &mut buffered).await?,
                StreamChunk::End => break,
                StreamChunk::Cut => return Err(truncation_failure()),
            }
            // Otherwise a pausing client would occupy the memory of a whole batch.
            buffered.shrink_to(len_max);
        }
        let len = file.as_ref().map_or(0, TempFile::len) + buffered.len() as u64;
        let trailers = from.take_trailers();
        let (to, stream) = stream(WAITING_LEN_MAX);
        // The trailers are announced before the body: a handler that forwards the body must choose a framing for them.
        to.announce(trailers);
        match file {
            // The file is read while the application runs, so that the body is never completely in memory.
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

/// Sends the content of the file, and then the bytes in memory, to an application, as fast as it accepts them.
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
    // The file is closed before the last bytes are sent, so that its space is freed early.
    drop(file);
    if to.send(buffered).await.is_ok() {
        to.end();
    }
}

/// The result of [`poll_take`].
pub(super) enum StreamChunk {
    /// There are enough bytes for a write to the file.
    Enough,
    /// The end of the body.
    End,
    /// The end of a truncated body.
    Cut,
}

/// Reads available bytes into `buffered`. Ready when `buffered` has at least the start of the range `len`, with more up
/// to the end of the range if that is available immediately; or at the end of the body.
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
            // There are enough bytes, and waiting for a full batch could take as long as the client likes.
            Poll::Pending if buffered.len() >= len_min => break,
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(StreamChunk::Enough)
}
