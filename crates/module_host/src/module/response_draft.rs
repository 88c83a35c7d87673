//! The response that a module makes: buffered until it is complete, or streamed after the first flush.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{BodySender, StreamClosed, stream};
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{HandlerResponse, ResponseContent, ResponseFields, WrappedObject};
use lowroad_http::status::StatusCode;
use lowroad_module::SendStatus;

/// Bytes that may wait in a stream before its sender must wait.
const STREAM_LEN_MAX: usize = 256 << 10;
/// Capacity reserved at a response's first bytes, so that typical responses never reallocate.
const FIRST_LEN: usize = 2048;
/// The most fields of a response.
const FIELDS_MAX: usize = 128;

/// A response being made.
pub struct ResponseDraft {
    status: StatusCode,
    fields: ResponseFields,
    /// Bytes that the module sent and that are not in the stream yet; `len() <= len_max`.
    bytes: Vec<u8>,
    len_max: usize,
    /// The path of a stored object and its position in `bytes`.
    stored: Option<(Bytes, usize)>,
    state: DraftStage,
    /// `send` returned `Full`: the module waits for room.
    is_full: bool,
    /// Spools for a stream with a slow client. `None`: the module waits for its client.
    spools: Option<Arc<SpoolLimits>>,
}

enum DraftStage {
    /// The whole response is buffered.
    Held,
    /// The module flushed; the head is to be sent.
    Flushed,
    /// The head was sent.
    Streaming(BodySender),
}

impl ResponseDraft {
    /// A response that buffers at most this many bytes.
    pub fn new(len_max: usize) -> ResponseDraft {
        ResponseDraft {
            status: StatusCode::OK,
            fields: ResponseFields::new(),
            bytes: Vec::new(),
            len_max,
            stored: None,
            state: DraftStage::Held,
            is_full: false,
            spools: None,
        }
    }

    /// Lets a stream wait in a spool if its client reads slowly.
    pub fn with_spools(mut self, spools: Option<Arc<SpoolLimits>>) -> ResponseDraft {
        self.spools = spools;
        self
    }

    /// Sets the status; false once the head is fixed.
    pub fn status(&mut self, status: StatusCode) -> bool {
        let is_accepted = matches!(self.state, DraftStage::Held);
        if is_accepted {
            self.status = status;
        }
        is_accepted
    }

    /// Adds a field; false if it is invalid, there are too many, or the head is fixed.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        matches!(self.state, DraftStage::Held)
            && self.fields.len() < FIELDS_MAX
            && self.fields.try_push(name, value)
    }

    /// Appends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> SendStatus {
        // Nothing is appended: a part of a refused piece would corrupt the response.
        if self.bytes.len() + bytes.len() > self.len_max {
            return SendStatus::Refused;
        }
        let is_unflushed = matches!(self.state, DraftStage::Held);
        // Each part of a stream has separate memory, so only the first buffer of a buffered response is reserved.
        if is_unflushed && self.bytes.capacity() == 0 {
            self.bytes = Vec::with_capacity(FIRST_LEN.max(bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
        // A buffered response is bounded by `len_max` alone.
        if is_unflushed || self.bytes.len() < STREAM_LEN_MAX {
            return SendStatus::Room;
        }
        self.is_full = true;
        SendStatus::Full
    }

    /// Inserts a stored object here; false if there is one already, or the head is fixed.
    pub fn send_stored(&mut self, path: &[u8]) -> bool {
        let is_accepted = matches!(self.state, DraftStage::Held) && self.stored.is_none();
        if is_accepted {
            self.stored = Some((Bytes::copy_from_slice(path), self.bytes.len()));
        }
        is_accepted
    }

    /// Requests that the head is sent; false if there is a stored object.
    pub fn flush(&mut self) -> bool {
        // A stored object is inserted when the response is complete, which a stream cannot wait for.
        let is_accepted = self.stored.is_none();
        if is_accepted && matches!(self.state, DraftStage::Held) {
            self.state = DraftStage::Flushed;
        }
        is_accepted
    }

    /// Whether the whole response is still buffered.
    pub fn is_buffered(&self) -> bool {
        matches!(self.state, DraftStage::Held)
    }

    /// Whether the head is to be sent now.
    pub fn is_flushed(&self) -> bool {
        matches!(self.state, DraftStage::Flushed)
    }

    /// Begins to stream and returns the response.
    pub fn begin_stream(&mut self) -> HandlerResponse {
        let (sender, stream) = stream(STREAM_LEN_MAX);
        self.state = DraftStage::Streaming(sender);
        // The length of a stream is unknown when its head is sent.
        let content = ResponseContent::Stream { len: None, stream };
        self.response(content)
    }

    /// The complete response of a module that never flushed.
    pub fn take_response(&mut self) -> HandlerResponse {
        let mut before = std::mem::take(&mut self.bytes);
        let content = match self.stored.take() {
            None => ResponseContent::Bytes(before.into()),
            Some((path, position)) => ResponseContent::Stored(Box::new(WrappedObject {
                after: before.split_off(position).into(),
                before: before.into(),
                path,
            })),
        };
        self.response(content)
    }

    fn response(&mut self, content: ResponseContent) -> HandlerResponse {
        HandlerResponse {
            status: self.status,
            fields: std::mem::take(&mut self.fields),
            content,
            source: None,
        }
    }

    /// Takes the additions since the last time, to be sent by another process.
    pub fn take(&mut self) -> ResponseChunk {
        let mut before = std::mem::take(&mut self.bytes);
        let stored = self.stored.take().map(|(path, position)| {
            let after = before.split_off(position);
            (path, after)
        });
        ResponseChunk {
            status: self.status,
            fields: std::mem::take(&mut self.fields),
            before,
            stored,
            flushed: self.is_flushed(),
        }
    }

    /// Moves bytes into the stream, or finds room for a module that waits for it.
    ///
    /// # Errors
    /// [`StreamClosed`] when the stream's reader is gone.
    pub fn poll_room(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CallProgress, StreamClosed>> {
        let DraftStage::Streaming(sender) = &self.state else {
            return Poll::Pending;
        };
        // Buffered bytes first, so that the order is kept.
        if !self.bytes.is_empty() {
            std::task::ready!(sender.poll_room(context))?;
            sender.push(std::mem::take(&mut self.bytes).into())?;
            return Poll::Ready(Ok(CallProgress::Moved));
        }
        if !self.is_full {
            return Poll::Pending;
        }
        std::task::ready!(sender.poll_room(context))?;
        self.is_full = false;
        Poll::Ready(Ok(CallProgress::Room))
    }

    /// Whether the module waits for its client although a spool could take the bytes.
    pub fn is_stalled(&self) -> bool {
        let is_waiting = self.is_full || !self.bytes.is_empty();
        is_waiting && self.spools.is_some() && matches!(self.state, DraftStage::Streaming(_))
    }

    /// Spools the bytes that the client does not read from now on. Needs a runtime.
    pub fn spool(&mut self) {
        // Taken: a stream gets one spool.
        let Some(spools) = self.spools.take() else {
            return;
        };
        self.state = match std::mem::replace(&mut self.state, DraftStage::Held) {
            DraftStage::Streaming(client) => {
                DraftStage::Streaming(spools.spool_for(client, &ResponseExecutor::Runtime))
            }
            state => state,
        };
    }

    /// Ends the stream with the remaining bytes.
    pub fn end_stream(&mut self) {
        if let DraftStage::Streaming(sender) = std::mem::replace(&mut self.state, DraftStage::Held)
        {
            // The reader may be gone; at the end of the stream that makes no difference.
            let _ = sender.push(std::mem::take(&mut self.bytes).into());
            sender.end();
        }
    }
}

/// The additions to a response since the last event.
pub struct ResponseChunk {
    /// The status.
    pub status: StatusCode,
    /// New fields.
    pub fields: ResponseFields,
    /// New bytes of the body.
    pub before: Vec<u8>,
    /// The path of a stored object, and the bytes after it.
    pub stored: Option<(Bytes, Vec<u8>)>,
    /// The module flushed, now or earlier.
    pub flushed: bool,
}

/// The result of moving a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// Bytes left for the client.
    Moved,
    /// There is room for a module that waits for it.
    Room,
}
