//! Late readers of bodies that are being written to disk: they read the written part from disk at their own pace, and
//! join the readers in memory once they have caught up. Thus one fetch serves all requests, however long the body is.
//!
//! A late reader needs memory for one piece of the body. A helper reads the next piece when the client has received the
//! last one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use lowroad_disk::StoredBody;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::shared_body::{ContinuationSlot, SharedBody, SharedBodyReader, SharedBodyTail};
use lowroad_engine::stream::{BodySender, stream};
use lowroad_limits::{ConcurrencyLimit, Permit};

use super::work_queue::{HelperPump, PumpWork, StepProgress, WORKS_MAX};
use crate::lock::lock;

/// The number of bytes that are read from disk at a time.
const PIECE_LEN: usize = 64 << 10;
/// After this many pieces, a helper switches to another reader.
const QUANTUM: usize = 16;
/// The maximum number of unsent bytes with which the next piece is read: the last piece must have been taken
/// completely.
const WAITING_LEN_MAX: usize = 1;

/// The helper threads and limits for the late readers of all bodies.
pub struct LateReaders {
    helpers: HelperPool,
    limit: Arc<ConcurrencyLimit>,
    /// The number of readers admitted.
    pub admitted: AtomicU64,
    /// The number of readers refused.
    pub refused: AtomicU64,
}

/// A body being written to disk.
pub struct UnfinishedBody {
    state: Mutex<UnfinishedState>,
    /// The written length, up to which the body may be freed in memory.
    written_len: Arc<AtomicU64>,
    readers: Arc<LateReaders>,
}

#[derive(Default)]
struct UnfinishedState {
    location: Option<UnfinishedReader>,
    /// The body has late readers.
    has_readers: bool,
    /// The write was abandoned.
    is_abandoned: bool,
}

#[derive(Clone)]
struct UnfinishedReader {
    file: Arc<File>,
    offset: u64,
    /// The written length.
    len: u64,
}

impl LateReaders {
    /// Starts the threads.
    ///
    /// # Errors
    /// A thread can't be started.
    pub fn start() -> io::Result<Arc<LateReaders>> {
        Ok(Arc::new(LateReaders {
            helpers: HelperPool::start_as("disk-reader", 2)?,
            limit: ConcurrencyLimit::new(WORKS_MAX),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }
}

impl UnfinishedBody {
    /// Creates a body without written bytes.
    pub fn new(readers: Arc<LateReaders>) -> Arc<UnfinishedBody> {
        Arc::new(UnfinishedBody {
            state: Mutex::default(),
            written_len: Arc::default(),
            readers,
        })
    }

    /// The written length.
    pub fn written_len(&self) -> Arc<AtomicU64> {
        self.written_len.clone()
    }

    /// Sets the location and length of the written bytes.
    pub fn set_written(&self, body: StoredBody<File>) {
        let StoredBody { file, offset, len } = body;
        lock(&self.state).location = Some(UnfinishedReader { file, offset, len });
        // Set after the location, since bytes are freed in memory only once a reader can find them on disk.
        self.written_len.store(len, Release);
    }

    /// Records that the write was abandoned; no more late readers are admitted. Returns whether there were any.
    pub fn abandon(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_abandoned = true;
        // From now on, bytes in memory may be freed without being written.
        self.written_len.store(u64::MAX, Release);
        state.has_readers
    }

    /// Adds a late reader from the start of the body; `None` if the write was abandoned, or there are too many readers.
    pub fn read(self: &Arc<Self>, shared_body: &SharedBody) -> Option<SharedBodyReader> {
        {
            let mut state = lock(&self.state);
            // After the write was abandoned, the written bytes may be overwritten.
            if state.is_abandoned {
                return None;
            }
            state.has_readers = true;
        }
        let LateReaders {
            limit,
            admitted,
            refused,
            helpers,
        } = &*self.readers;
        // The helpers' queue has room for all readers within the limit; see `WORKS_MAX`.
        let Some(permit) = limit.try_acquire() else {
            refused.fetch_add(1, Relaxed);
            return None;
        };
        admitted.fetch_add(1, Relaxed);
        let (sender, receiver) = stream(WAITING_LEN_MAX);
        let seat = ContinuationSlot::default();
        let reader = LateReader {
            body: self.clone(),
            position: 0,
            sender,
            tail: shared_body.tail(),
            seat: seat.clone(),
            _permit: permit,
        };
        HelperPump::start(reader, helpers.clone());
        Some(shared_body.late_reader(receiver, seat))
    }

    fn location(&self) -> Option<UnfinishedReader> {
        lock(&self.state).location.clone()
    }
}

/// A late reader that has not caught up with the bytes in memory.
struct LateReader {
    body: Arc<UnfinishedBody>,
    position: u64,
    /// The stream to its client.
    sender: BodySender,
    tail: SharedBodyTail,
    seat: ContinuationSlot,
    _permit: Permit,
}

impl PumpWork for LateReader {
    fn step(&mut self, context: &mut Context<'_>) -> StepProgress {
        for _ in 0..QUANTUM {
            match self.sender.poll_room(context) {
                Poll::Pending => return StepProgress::Pending,
                Poll::Ready(Err(_)) => return StepProgress::Done,
                Poll::Ready(Ok(())) => {}
            }
            let piece = match self.piece() {
                Some(piece) => Some(piece),
                None if self.has_caught_up() => return StepProgress::Done,
                // The bytes may have moved from memory to disk between the two checks.
                None => self.piece(),
            };
            // An unreadable or missing piece truncates the response.
            let Some(Ok(piece)) = piece else {
                return StepProgress::Done;
            };
            self.position += piece.len() as u64;
            let _ = self.sender.push(piece); // a disconnected client is detected by the next `poll_room`
        }
        StepProgress::More
    }
}

impl LateReader {
    /// The next piece, if it is on disk.
    fn piece(&self) -> Option<io::Result<Bytes>> {
        let location = self.body.location()?;
        let len = location
            .len
            .checked_sub(self.position)
            .filter(|len| *len > 0)?;
        let mut bytes = vec![0; PIECE_LEN.min(usize::try_from(len).unwrap_or(PIECE_LEN))];
        let read = location
            .file
            .read_exact_at(&mut bytes, location.offset + self.position);
        Some(read.map(|()| bytes.into()))
    }

    /// Whether the next bytes are in memory; if so, the client continues to read there.
    fn has_caught_up(&self) -> bool {
        let reader = self.tail.reader(self.position);
        let has_reader = reader.is_some();
        // When the stream ends, the client continues with the reader in `seat`.
        *lock(&self.seat) = reader;
        has_reader
    }
}
