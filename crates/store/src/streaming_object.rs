//! A streaming object: a response with a body that any number of clients read while it arrives. Each reader gets the
//! body from its start, at its own pace. The received bytes stay in memory until the body is complete or exceeds the
//! limit; from then on, new readers need the copy that is being written to disk.
//!
//! Memory is reserved as the body grows: readers share its parts, which are counted once. There is no separate thread:
//! the task that receives the body polls the object.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_cache::vary::SelectingFields;
use lowroad_engine::shared_body::{SharedBody, SharedBodyReader};
use lowroad_engine::stream::{BodySender, StreamItem};
use lowroad_http::stored_head::HeadMap;

use crate::disk_cache::UnfinishedBody;

/// If no bytes have arrived for this time (ms), the response to a new reader begins only when more arrive.
const QUIET_MS: u64 = 2_000;

/// A response with a complete head and an arriving body.
pub struct StreamingObject {
    /// The HTTP/1 head, without Content-Length.
    pub bytes: Box<[u8]>,
    /// See [`HeadMap`]; includes the status.
    pub head: HeadMap,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
    /// The announced length of the body in bytes, if known.
    pub len: Option<u64>,
    /// The selecting fields (Vary).
    pub selecting: SelectingFields,
    /// The maximum body length up to which all bytes stay in memory for new readers.
    body_len_max: u64,
    body: Mutex<ObjectBody>,
    /// The bytes and their readers. Readers are added under the lock of `body`.
    shared_body: SharedBody,
}

/// The head of a response with an arriving body.
pub struct StreamedHead {
    /// The encoded head.
    pub bytes: Box<[u8]>,
    /// The positions in the encoded head.
    pub map: HeadMap,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
    /// The announced length of the body in bytes, if known.
    pub len: Option<u64>,
    /// The selecting fields (Vary).
    pub selecting: SelectingFields,
}

#[derive(Default)]
struct ObjectBody {
    len: u64,
    /// Readers with a response that has not begun, since they wait for more bytes.
    joiners: Vec<JoinWaiter>,
    state: ObjectFillState,
    /// The time of the last bytes, monotonic ms.
    last_growth_ms: u64,
    /// No bytes have arrived for so long that new readers are not admitted.
    is_stalled: bool,
    /// The sender to the disk writer. Unlike a reader, it does not keep the transfer running.
    disk_writer: Option<BodySender>,
    /// The copy that is being written to disk.
    unfinished: Option<Arc<UnfinishedBody>>,
}

/// Called with the body from its start once bytes arrive. Called with `None` if the request must call the handler
/// itself.
pub type JoinCallback = Box<dyn FnOnce(Option<SharedBodyReader>) + Send>;

struct JoinWaiter {
    /// The waiting reader; it counts as a reader of the body.
    reader: SharedBodyReader,
    callback: JoinCallback,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ObjectFillState {
    /// The body may be stored.
    #[default]
    Growing,
    /// The body is too long for memory: bytes that all readers have read are freed.
    ExceedsLimit,
    Complete,
    Truncated,
}

/// The result of adding received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthOutcome {
    /// The body is within the limit: all bytes are in memory.
    InMemory,
    /// With these bytes, the body exceeds the limit. Contains all bytes received so far.
    TooLong(Vec<Bytes>),
    /// The body had exceeded the limit before.
    LimitExceeded,
}

impl StreamingObject {
    /// Creates a response with this head and an empty body.
    pub fn new(head: StreamedHead, body_len_max: u64, now_ms: u64) -> StreamingObject {
        StreamingObject {
            body_len_max,
            bytes: head.bytes,
            head: head.map,
            modified_s: head.modified_s,
            len: head.len,
            selecting: head.selecting,
            body: Mutex::new(ObjectBody {
                last_growth_ms: now_ms,
                ..ObjectBody::default()
            }),
            shared_body: SharedBody::default(),
        }
    }

    /// Adds a reader from the start of the body; `None` if the start was freed or the transfer is stalled.
    pub fn add_reader(&self) -> Option<SharedBodyReader> {
        let body = self.lock();
        match body.state {
            ObjectFillState::Truncated => None,
            ObjectFillState::Growing | ObjectFillState::ExceedsLimit if body.is_stalled => None,
            // The start of the body is no longer in memory, but may be on disk.
            ObjectFillState::ExceedsLimit => body.unfinished.as_ref()?.read(&self.shared_body),
            ObjectFillState::Growing | ObjectFillState::Complete => self.shared_body.reader(),
        }
    }

    /// Returns the reader if bytes arrived recently. Otherwise the reader waits until more arrive: a response that has
    /// begun can't change to another source, so it must not begin while the body is stalled.
    pub fn wait(
        &self,
        reader: SharedBodyReader,
        now_ms: u64,
        callback: JoinCallback,
    ) -> Option<SharedBodyReader> {
        let mut body = self.lock();
        // Only a growing body without recent bytes delays the response.
        if body.state != ObjectFillState::Growing || !body.is_idle(now_ms) {
            return Some(reader);
        }
        if body.is_stalled {
            drop(body);
            callback(None);
        } else {
            body.joiners.push(JoinWaiter { reader, callback });
        }
        None
    }

    /// Releases the waiting readers because the body is stalled; their requests call the handler themselves.
    pub fn release(&self) {
        let joiners = {
            let mut body = self.lock();
            // Later readers would wait as long, so they are not admitted.
            body.is_stalled = true;
            std::mem::take(&mut body.joiners)
        };
        joiners.into_iter().for_each(JoinWaiter::cancel);
    }

    /// Ready with true when readers or the disk writer want more of the body; with false if no reader is left. Fast
    /// readers of a body that is too long for memory don't wait for slow ones: `spool` is given the sender of a slow
    /// reader and returns one that spools to a file.
    pub fn poll_demand(
        &self,
        context: &mut Context<'_>,
        spool: impl FnMut(BodySender) -> BodySender,
    ) -> Poll<bool> {
        let demand = self.shared_body.poll_demand(context, spool);
        if demand != Poll::Ready(true) {
            // If no reader is left (`Ready(false)`), the disk writer must not prolong the transfer.
            return demand;
        }
        let mut body = self.lock();
        let ObjectFillState::ExceedsLimit = body.state else {
            return demand;
        };
        match body
            .disk_writer
            .as_ref()
            .map(|disk_writer| disk_writer.poll_room(context))
        {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Err(_))) => {
                body.disk_writer = None;
                demand
            }
            Some(Poll::Ready(Ok(()))) | None => demand,
        }
    }

    /// Adds received bytes. `has_room`: whether memory is reserved for them. After `TooLong`, the caller must call
    /// `release_consumed`.
    pub fn push_bytes(&self, bytes: Bytes, has_room: bool, now_ms: u64) -> GrowthOutcome {
        let mut body = self.lock();
        // Bytes arrive again, so new readers may wait again.
        (body.last_growth_ms, body.is_stalled) = (now_ms, false);
        body.len += bytes.len() as u64;
        body.disk_writer
            .take_if(|disk_writer| disk_writer.push(bytes.clone()).is_err());
        self.shared_body.push(bytes);
        let outcome = match body.state {
            ObjectFillState::ExceedsLimit => GrowthOutcome::LimitExceeded,
            _ if has_room && body.len <= self.body_len_max => GrowthOutcome::InMemory,
            _ => {
                body.state = ObjectFillState::ExceedsLimit;
                GrowthOutcome::TooLong(self.shared_body.parts())
            }
        };
        let joiners = std::mem::take(&mut body.joiners);
        drop(body);
        joiners.into_iter().for_each(JoinWaiter::begin);
        outcome
    }

    /// Writes a body that is too long for memory to disk: the received `parts` and all later bytes. From now on, the
    /// disk writer also limits the pace of the transfer.
    pub fn write_to_disk(
        &self,
        sender: BodySender,
        unfinished: Arc<UnfinishedBody>,
        parts: Vec<Bytes>,
    ) {
        let is_open = |part: Bytes| sender.push(part).is_ok();
        // If the writer has failed in the meantime, there will be no copy on disk.
        if parts.into_iter().all(is_open) {
            let mut body = self.lock();
            (body.disk_writer, body.unfinished) = (Some(sender), Some(unfinished));
        }
    }

    /// Whether the body is being written to disk.
    pub fn is_written_to_disk(&self) -> bool {
        self.lock().disk_writer.is_some()
    }

    /// Frees the bytes that all readers have read, and that are on disk if the body is being written to disk.
    pub fn release_consumed(&self) {
        let written_len = self
            .lock()
            .unfinished
            .as_ref()
            .map(|unfinished| unfinished.written_len());
        self.shared_body.release(written_len);
    }

    /// Ends the body. Returns the body's parts if they are complete and in memory. The caller must then call
    /// [`StreamingObject::notify_end`].
    pub fn end(&self, ending: &StreamItem) -> Option<Vec<Bytes>> {
        let mut body = self.lock();
        let is_complete = *ending == StreamItem::End && self.len.is_none_or(|len| len == body.len);
        if body.state != ObjectFillState::Growing {
            return None;
        }
        body.state = if is_complete {
            ObjectFillState::Complete
        } else {
            ObjectFillState::Truncated
        };
        is_complete.then(|| self.shared_body.parts())
    }

    /// Signals the end of the body to the readers.
    pub fn notify_end(&self, ending: &StreamItem) {
        let mut body = self.lock();
        let joiners = std::mem::take(&mut body.joiners);
        let disk_writer = body.disk_writer.take();
        if *ending != StreamItem::End {
            // A truncated body must not get new readers.
            body.unfinished = None;
        }
        drop(body);
        self.shared_body.end(ending.clone());
        if *ending == StreamItem::End {
            disk_writer.into_iter().for_each(BodySender::end);
            joiners.into_iter().for_each(JoinWaiter::begin);
        } else {
            joiners.into_iter().for_each(JoinWaiter::cancel);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ObjectBody> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectBody {
    /// Whether no bytes have arrived yet, or none recently.
    fn is_idle(&self, now_ms: u64) -> bool {
        self.len == 0 || now_ms.saturating_sub(self.last_growth_ms) > QUIET_MS
    }
}

impl JoinWaiter {
    fn begin(self) {
        (self.callback)(Some(self.reader));
    }

    fn cancel(self) {
        (self.callback)(None);
    }
}

#[cfg(test)]
mod tests;
