//! The response that a module creates: buffered until complete, or streamed after the first flush.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_engine::stream::{BodySender, StreamClosed, stream};
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{HandlerResponse, ResponseContent, ResponseFields, WrappedObject};
use lowroad_http::status::StatusCode;
use lowroad_module::SendStatus;

/// The maximum number of bytes in the stream before the module must wait.
const STREAM_LEN_MAX: usize = 256 << 10;
/// The capacity reserved with the first bytes, so that typical responses never reallocate.
const FIRST_LEN: usize = 2048;
/// The maximum number of fields in a response.
const FIELDS_MAX: usize = 128;

/// A response that a module is creating.
pub struct ResponseDraft {
    status: StatusCode,
    fields: ResponseFields,
    /// Bytes that the module has sent and that are not in the stream yet; at most `len_max` of them.
    bytes: Vec<u8>,
    len_max: usize,
    /// The path of a stored object, and the position in `bytes` where it is inserted.
    stored: Option<(Bytes, usize)>,
    state: DraftStage,
    /// Whether `send` has returned `Full`, so that the module waits for room.
    is_full: bool,
    /// Spools the stream if the client is slow. `None`: the module waits for the client.
    spools: Option<Arc<SpoolLimits>>,
}

enum DraftStage {
    /// The whole response is buffered.
    Buffered,
    /// The module has flushed; the head must be sent.
    Flushed,
    /// The head has been sent.
    Streaming(BodySender),
}

impl ResponseDraft {
    /// A response that buffers at most this number of bytes.
    pub fn new(len_max: usize) -> ResponseDraft {
        ResponseDraft {
            status: StatusCode::OK,
            fields: ResponseFields::new(),
            bytes: Vec::new(),
            len_max,
            stored: None,
            state: DraftStage::Buffered,
            is_full: false,
            spools: None,
        }
    }

    /// Lets the stream be spooled if the client reads slowly.
    pub fn with_spools(mut self, spools: Option<Arc<SpoolLimits>>) -> ResponseDraft {
        self.spools = spools;
        self
    }

    /// Sets the status; false if the head can no longer change.
    pub fn status(&mut self, status: StatusCode) -> bool {
        let is_accepted = matches!(self.state, DraftStage::Buffered);
        if is_accepted {
            self.status = status;
        }
        is_accepted
    }

    /// Adds a field; false if it is invalid, there are too many, or the head can no longer change.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        matches!(self.state, DraftStage::Buffered)
            && self.fields.len() < FIELDS_MAX
            && self.fields.try_push(name, value)
    }

    /// Appends bytes to the body.
    pub fn send(&mut self, bytes: &[u8]) -> SendStatus {
        // Nothing is appended, since a partial write would corrupt the response.
        if self.bytes.len() + bytes.len() > self.len_max {
            return SendStatus::Refused;
        }
        let is_unflushed = matches!(self.state, DraftStage::Buffered);
        // Only the buffer of a buffered response is reserved; each part of a stream is allocated separately.
        if is_unflushed && self.bytes.capacity() == 0 {
            self.bytes = Vec::with_capacity(FIRST_LEN.max(bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
        // A buffered response is limited only by `len_max`.
        if is_unflushed || self.bytes.len() < STREAM_LEN_MAX {
            return SendStatus::Room;
        }
        self.is_full = true;
        SendStatus::Full
    }

    /// Inserts a stored object at this position; false if there is already a stored object, or the head can no longer
    /// change.
    pub fn send_stored(&mut self, path: &[u8]) -> bool {
        let is_accepted = matches!(self.state, DraftStage::Buffered) && self.stored.is_none();
        if is_accepted {
            self.stored = Some((Bytes::copy_from_slice(path), self.bytes.len()));
        }
        is_accepted
    }

    /// Starts streaming: the head is sent next. False if there is a stored object.
    pub fn flush(&mut self) -> bool {
        // A stored object is inserted when the response is complete, so it cannot be streamed.
        let is_accepted = self.stored.is_none();
        if is_accepted && matches!(self.state, DraftStage::Buffered) {
            self.state = DraftStage::Flushed;
        }
        is_accepted
    }

    /// Whether the whole response is still buffered.
    pub fn is_buffered(&self) -> bool {
        matches!(self.state, DraftStage::Buffered)
    }

    /// Whether the head must be sent now.
    pub fn is_flushed(&self) -> bool {
        matches!(self.state, DraftStage::Flushed)
    }

    /// Starts the stream, and returns the response with it.
    pub fn begin_stream(&mut self) -> HandlerResponse {
        let (sender, stream) = stream(STREAM_LEN_MAX);
        self.state = DraftStage::Streaming(sender);
        // When the head is sent, the length of the stream is unknown.
        let content = ResponseContent::Stream { len: None, stream };
        self.response(content)
    }

    /// The complete response, if the module has never flushed.
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

    /// Takes the additions since the last call of this function, to send them to the server's process.
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

    /// Moves buffered bytes to the stream, or reports room to a module that waits for it.
    ///
    /// # Errors
    /// [`StreamClosed`] if the reader of the stream is gone.
    pub fn poll_room(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CallProgress, StreamClosed>> {
        let DraftStage::Streaming(sender) = &self.state else {
            return Poll::Pending;
        };
        // Buffered bytes are moved first, to preserve the order.
        if !self.bytes.is_empty() {
            std::task::ready!(sender.poll_room(context))?;
            sender.push(std::mem::take(&mut self.bytes).into())?;
            return Poll::Ready(Ok(CallProgress::ClientProgress));
        }
        if !self.is_full {
            return Poll::Pending;
        }
        std::task::ready!(sender.poll_room(context))?;
        self.is_full = false;
        Poll::Ready(Ok(CallProgress::Room))
    }

    /// Whether the module waits for the client, and the response could be spooled.
    pub fn is_stalled(&self) -> bool {
        let is_waiting = self.is_full || !self.bytes.is_empty();
        is_waiting && self.spools.is_some() && matches!(self.state, DraftStage::Streaming(_))
    }

    /// From now on, spools the bytes that the client does not read. Needs a runtime.
    pub fn spool(&mut self) {
        // The spools are taken, since a stream is spooled at most once.
        let Some(spools) = self.spools.take() else {
            return;
        };
        self.state = match std::mem::replace(&mut self.state, DraftStage::Buffered) {
            DraftStage::Streaming(client) => {
                DraftStage::Streaming(spools.spool_for(client, &ResponseExecutor::Runtime))
            }
            state => state,
        };
    }

    /// Ends the stream after the remaining bytes.
    pub fn end_stream(&mut self) {
        if let DraftStage::Streaming(sender) =
            std::mem::replace(&mut self.state, DraftStage::Buffered)
        {
            // If the reader is gone, nothing is lost at the end of the stream.
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
    /// New bytes of the body, before the stored object.
    pub before: Vec<u8>,
    /// The path of a stored object, and the bytes after it.
    pub stored: Option<(Bytes, Vec<u8>)>,
    /// Whether the module has flushed and the head has not been sent.
    pub flushed: bool,
}

/// The result of `ResponseDraft::poll_room`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// Bytes have moved towards the client.
    ClientProgress,
    /// There is room, for which the module waits.
    Room,
}
