//! A body that is read while it arrives, by any number of readers: each gets all of it from its start, at its own
//! pace. The received bytes stay in memory until the body is complete or exceeds the limit; after that, new readers
//! need the copy that is being written to disk.
//!
//! Memory is reserved as the body grows: readers share its parts, which are counted once. Runs on no thread of its
//! own: the task that receives the body polls it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_cache::vary::SelectingFields;
use lowroad_engine::shared_body::{SharedBody, SharedBodyReader};
use lowroad_engine::stream::{BodySender, StreamItem};
use lowroad_http::stored_head::HeadMap;

use crate::disk_cache::UnfinishedBody;

/// If no bytes arrived for this time (ms), a new reader's response begins only when more arrive.
const QUIET_MS: u64 = 2_000;

/// A response with a complete head and an arriving body.
pub struct StreamingObject {
    /// The head for HTTP/1, without Content-Length.
    pub bytes: Box<[u8]>,
    /// See [`HeadMap`]; includes the status.
    pub head: HeadMap,
    /// Last-Modified, seconds since 1970.
    pub modified_s: Option<u64>,
    /// The announced length of the body in bytes, if known.
    pub len: Option<u64>,
    /// The fields that select the requests for this response.
    pub selecting: SelectingFields,
    /// A longer body is not kept for new readers.
    body_len_max: u64,
    body: Mutex<ObjectBody>,
    /// The bytes and their readers. Readers are added under the lock of `body`.
    growing: SharedBody,
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
    /// The fields that select the requests for this response.
    pub selecting: SelectingFields,
}

#[derive(Default)]
struct ObjectBody {
    len: u64,
    /// Readers before the start of their response.
    joiners: Vec<JoinWaiter>,
    state: ObjectFillState,
    /// The time of the last bytes, monotonic ms.
    grown_ms: u64,
    /// No bytes for so long that new readers must not wait.
    is_stuck: bool,
    /// The writer to disk, which gets all of it but does not keep the transfer running alone.
    keeper: Option<BodySender>,
    /// The copy on disk.
    kept: Option<Arc<UnfinishedBody>>,
}

/// Called with the body from its start once bytes arrive; with `None`, the request must call the handler itself.
pub type JoinCallback = Box<dyn FnOnce(Option<SharedBodyReader>) + Send>;

struct JoinWaiter {
    /// The body; it counts as a reader.
    from: SharedBodyReader,
    tell: JoinCallback,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ObjectFillState {
    /// The body may be stored.
    #[default]
    Growing,
    /// Too long to be stored: bytes that all readers have read are gone.
    Passing,
    Whole,
    Cut,
}

/// The effect of received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowthOutcome {
    /// The body may still be stored.
    Held,
    /// The limit is exceeded with these bytes: all bytes received so far.
    TooLong(Vec<Bytes>),
    /// The limit was exceeded before.
    Passed,
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
                grown_ms: now_ms,
                ..ObjectBody::default()
            }),
            growing: SharedBody::default(),
        }
    }

    /// A reader from the start; `None` if the start is gone or the transfer is stuck.
    pub fn read(&self) -> Option<SharedBodyReader> {
        let body = self.lock();
        match body.state {
            ObjectFillState::Cut => None,
            ObjectFillState::Growing | ObjectFillState::Passing if body.is_stuck => None,
            // Memory no longer has the start of the body; the disk may.
            ObjectFillState::Passing => body.kept.as_ref()?.read(&self.growing),
            ObjectFillState::Growing | ObjectFillState::Whole => self.growing.reader(),
        }
    }

    /// Returns the reader if bytes arrived recently; otherwise the reader waits for more. A response that has begun
    /// can't change to another source, so it must not begin while the body is stalled.
    pub fn wait(
        &self,
        from: SharedBodyReader,
        now_ms: u64,
        tell: JoinCallback,
    ) -> Option<SharedBodyReader> {
        let mut body = self.lock();
        // Bytes are there or arrive: the response can begin now.
        if body.state != ObjectFillState::Growing || !body.is_quiet(now_ms) {
            return Some(from);
        }
        if body.is_stuck {
            drop(body);
            tell(None);
        } else {
            body.joiners.push(JoinWaiter { from, tell });
        }
        None
    }

    /// Releases the waiting readers because the body is stalled.
    pub fn release(&self) {
        let joiners = {
            let mut body = self.lock();
            // Later readers would wait as long; they call the handler themselves.
            body.is_stuck = true;
            std::mem::take(&mut body.joiners)
        };
        joiners.into_iter().for_each(JoinWaiter::leave);
    }

    /// Ready when more of the body is wanted; false if no reader is left. Fast readers of a body that is too long to
    /// be stored don't wait for the slowest: `behind` takes its stream and returns a spooled one.
    pub fn poll_wanted(
        &self,
        context: &mut Context<'_>,
        behind: impl FnMut(BodySender) -> BodySender,
    ) -> Poll<bool> {
        // False here: no reader is left, and the transfer ends.
        let wanted = self.growing.poll_wanted(context, behind);
        if wanted != Poll::Ready(true) {
            return wanted;
        }
        let mut body = self.lock();
        let ObjectFillState::Passing = body.state else {
            return wanted;
        };
        match body.keeper.as_ref().map(|keeper| keeper.poll_room(context)) {
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(Err(_))) => {
                body.keeper = None;
                wanted
            }
            Some(Poll::Ready(Ok(()))) | None => wanted,
        }
    }

    /// Adds bytes; `has_room`: memory is reserved for them. After `TooLong`, the caller must call `let_go`.
    pub fn grow(&self, bytes: Bytes, has_room: bool, now_ms: u64) -> GrowthOutcome {
        let mut body = self.lock();
        // Bytes arrive again, so new readers may wait again.
        (body.grown_ms, body.is_stuck) = (now_ms, false);
        body.len += bytes.len() as u64;
        body.keeper
            .take_if(|keeper| keeper.push(bytes.clone()).is_err());
        self.growing.push(bytes);
        let grown = match body.state {
            ObjectFillState::Passing => GrowthOutcome::Passed,
            _ if has_room && body.len <= self.body_len_max => GrowthOutcome::Held,
            _ => {
                body.state = ObjectFillState::Passing;
                GrowthOutcome::TooLong(self.growing.parts())
            }
        };
        let joiners = std::mem::take(&mut body.joiners);
        drop(body);
        joiners.into_iter().for_each(JoinWaiter::begin);
        grown
    }

    /// Sends a body that is too long for memory to disk: the received bytes and those to come. The disk writer also
    /// limits the pace.
    pub fn keep(&self, to: BodySender, kept: Arc<UnfinishedBody>, parts: Vec<Bytes>) {
        let is_open = |part: Bytes| to.push(part).is_ok();
        // If the writer has failed meanwhile, the body passes without a copy.
        if parts.into_iter().all(is_open) {
            let mut body = self.lock();
            (body.keeper, body.kept) = (Some(to), Some(kept));
        }
    }

    /// Whether the body is being written to disk.
    pub fn is_kept(&self) -> bool {
        self.lock().keeper.is_some()
    }

    /// Frees bytes once they are read, and written if they are to be.
    pub fn let_go(&self) {
        let kept_len = self.lock().kept.as_ref().map(|kept| kept.kept_len());
        self.growing.let_go(kept_len);
    }

    /// Ends the body. Returns its parts if all announced bytes are there; the readers are ended by
    /// `StreamingObject::tell_end`.
    pub fn end(&self, how: &StreamItem) -> Option<Vec<Bytes>> {
        let mut body = self.lock();
        let has_all = *how == StreamItem::End && self.len.is_none_or(|len| len == body.len);
        if body.state != ObjectFillState::Growing {
            return None;
        }
        body.state = if has_all {
            ObjectFillState::Whole
        } else {
            ObjectFillState::Cut
        };
        has_all.then(|| self.growing.parts())
    }

    /// Ends the readers.
    pub fn tell_end(&self, how: &StreamItem) {
        let mut body = self.lock();
        let joiners = std::mem::take(&mut body.joiners);
        let keeper = body.keeper.take();
        if *how != StreamItem::End {
            // A cut body must not get new readers.
            body.kept = None;
        }
        drop(body);
        self.growing.end(how.clone());
        if *how == StreamItem::End {
            keeper.into_iter().for_each(BodySender::end);
            joiners.into_iter().for_each(JoinWaiter::begin);
        } else {
            joiners.into_iter().for_each(JoinWaiter::leave);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ObjectBody> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectBody {
    /// Whether no bytes have arrived, or not recently.
    fn is_quiet(&self, now_ms: u64) -> bool {
        self.len == 0 || now_ms.saturating_sub(self.grown_ms) > QUIET_MS
    }
}

impl JoinWaiter {
    fn begin(self) {
        (self.tell)(Some(self.from));
    }

    fn leave(self) {
        (self.tell)(None);
    }
}

#[cfg(test)]
mod tests;
