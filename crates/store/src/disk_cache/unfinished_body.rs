//! Late readers of bodies that are being written: they read the written part from disk at their own pace and join the
//! other readers once they have caught up. Thus one fetch serves all, however long the body.
//!
//! A reader needs one piece of the body in memory. A helper reads the next piece when its client has taken the last.

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
use lowroad_engine::shared_body::{ReaderSeat, SharedBody, SharedBodyReader, SharedBodyTail};
use lowroad_engine::stream::{BodySender, stream};
use lowroad_limits::{ConcurrencyLimit, Permit};

use super::work_queue::{HelperPump, PumpWork, StepProgress, WORKS_MAX};
use crate::lock::lock;

/// The length of a read.
const PIECE_LEN: usize = 64 << 10;
/// After this many pieces, a helper switches to other jobs.
const QUANTUM: usize = 16;
/// The next piece is read only when the client has taken the whole of the last one.
const WAITING_LEN_MAX: usize = 1;

/// The late readers of all bodies.
pub struct LateReaders {
    helpers: HelperPool,
    limit: Arc<ConcurrencyLimit>,
    /// Readers admitted.
    pub admitted: AtomicU64,
    /// Readers refused.
    pub refused: AtomicU64,
}

/// A body being written to disk.
pub struct UnfinishedBody {
    state: Mutex<UnfinishedState>,
    /// The written length, up to which the body may leave memory.
    written_len: Arc<AtomicU64>,
    readers: Arc<LateReaders>,
}

#[derive(Default)]
struct UnfinishedState {
    location: Option<UnfinishedReader>,
    /// It has late readers.
    is_read: bool,
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
        // After the location: memory frees only what a reader can find on disk.
        self.written_len.store(len, Release);
    }

    /// Abandons the write. Returns whether there are late readers; no more are admitted.
    pub fn abandon(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_abandoned = true;
        // Memory no longer needs to hold bytes until they are written.
        self.written_len.store(u64::MAX, Release);
        state.is_read
    }

    /// Adds a reader from the start; `None`: the write was abandoned, or there are too many readers.
    pub fn read(self: &Arc<Self>, shared_body: &SharedBody) -> Option<SharedBodyReader> {
        {
            let mut state = lock(&self.state);
            // The written bytes may be overwritten from now on.
            if state.is_abandoned {
                return None;
            }
            state.is_read = true;
        }
        let LateReaders {
            limit,
            admitted,
            refused,
            helpers,
        } = &*self.readers;
        // Bounded by the length of the helpers' queue, see `WORKS_MAX`.
        let Some(permit) = limit.try_acquire() else {
            refused.fetch_add(1, Relaxed);
            return None;
        };
        admitted.fetch_add(1, Relaxed);
        let (sender, receiver) = stream(WAITING_LEN_MAX);
        let seat = ReaderSeat::default();
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

/// A reader that has not caught up.
struct LateReader {
    body: Arc<UnfinishedBody>,
    position: u64,
    /// The stream to its client.
    sender: BodySender,
    tail: SharedBodyTail,
    seat: ReaderSeat,
    _permit: Permit,
}

impl PumpWork for LateReader {
    fn step(&mut self, context: &mut Context<'_>) -> StepProgress {
        for _ in 0..QUANTUM {
            match self.sender.poll_room(context) {
                Poll::Pending => return StepProgress::Waits,
                Poll::Ready(Err(_)) => return StepProgress::Over,
                Poll::Ready(Ok(())) => {}
            }
            let piece = match self.piece() {
                Some(piece) => Some(piece),
                None if self.has_caught_up() => return StepProgress::Over,
                // The bytes may have moved from memory to disk between the two checks.
                None => self.piece(),
            };
            // An unreadable or missing piece cuts the response.
            let Some(Ok(piece)) = piece else {
                return StepProgress::Over;
            };
            self.position += piece.len() as u64;
            let _ = self.sender.push(piece); // whether its client is gone is asked before the next
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

    /// Whether the next bytes are in memory; if so, the client continues there.
    fn has_caught_up(&self) -> bool {
        let reader = self.tail.reader(self.position);
        let has_reader = reader.is_some();
        // The client's reader continues from this seat when the stream ends.
        *lock(&self.seat) = reader;
        has_reader
    }
}
