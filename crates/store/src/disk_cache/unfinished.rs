//! Bodies that are being written, for those who come late: they read from the disk what is there, as fast as they take it,
//! and go on with the others once they have caught up. So one fetch is enough for all, however long the body.
//!
//! A reader costs a piece of the body in memory. A helper reads the next one when its client has taken the last.

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
use lowroad_disk::Body;
use lowroad_engine::growing::{Growing, Reader, Seat, Tail};
use lowroad_engine::helpers::Helpers;
use lowroad_engine::stream::{Sender, stream};
use lowroad_limits::{ConcurrencyLimit, Permit};

use super::pump::{Pump, Stepped, WORKS_MAX, Work};
use crate::lock::lock;

/// What is read at a time.
const PIECE_LEN: usize = 64 << 10;
/// A helper looks at other jobs after so many pieces.
const QUANTUM: usize = 16;
/// A client has taken all of a piece before the next is read.
const WAITING_LEN_MAX: usize = 1;

/// Who reads what is unfinished.
pub struct LateReaders {
    helpers: Helpers,
    limit: Arc<ConcurrencyLimit>,
    /// How many there have been.
    pub begun: AtomicU64,
    /// How many were too many.
    pub refused: AtomicU64,
}

/// A body on its way to the disk.
pub struct Unfinished {
    state: Mutex<State>,
    /// What may leave memory.
    kept_len: Arc<AtomicU64>,
    readers: Arc<LateReaders>,
}

#[derive(Default)]
struct State {
    place: Option<Place>,
    /// Somebody reads it.
    is_read: bool,
    /// It is given up.
    is_over: bool,
}

#[derive(Clone)]
struct Place {
    file: Arc<File>,
    offset: u64,
    /// What is there.
    len: u64,
}

impl LateReaders {
    /// Starts the threads for them.
    ///
    /// # Errors
    /// When the machine gives none.
    pub fn start() -> io::Result<Arc<LateReaders>> {
        Ok(Arc::new(LateReaders {
            helpers: Helpers::start_as("disk-reader", 2)?,
            limit: ConcurrencyLimit::new(WORKS_MAX),
            begun: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }
}

impl Unfinished {
    /// A body of which nothing is on the disk.
    pub fn new(readers: Arc<LateReaders>) -> Arc<Unfinished> {
        Arc::new(Unfinished {
            state: Mutex::default(),
            kept_len: Arc::default(),
            readers,
        })
    }

    /// So much of it is on the disk.
    pub fn kept_len(&self) -> Arc<AtomicU64> {
        self.kept_len.clone()
    }

    /// So much of it is on the disk, there.
    pub fn is_at(&self, body: Body<File>) {
        let Body { file, offset, len } = body;
        lock(&self.state).place = Some(Place { file, offset, len });
        self.kept_len.store(len, Release);
    }

    /// It does not go on. Whether somebody reads what is there; nobody begins to.
    pub fn give_up(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_over = true;
        // Nothing is held in memory for its sake.
        self.kept_len.store(u64::MAX, Release);
        state.is_read
    }

    /// One more reader, from the start; `None`: it is given up, or there are too many.
    pub fn read(self: &Arc<Self>, growing: &Growing) -> Option<Reader> {
        {
            let mut state = lock(&self.state);
            if state.is_over {
                return None;
            }
            state.is_read = true;
        }
        let LateReaders {
            limit,
            begun,
            refused,
            helpers,
        } = &*self.readers;
        let Some(permit) = limit.try_acquire() else {
            refused.fetch_add(1, Relaxed);
            return None;
        };
        begun.fetch_add(1, Relaxed);
        let (to, own) = stream(WAITING_LEN_MAX);
        let seat = Seat::default();
        let late = Late {
            of: self.clone(),
            at: 0,
            to,
            tail: growing.tail(),
            seat: seat.clone(),
            _permit: permit,
        };
        Pump::start(late, helpers.clone());
        Some(growing.late_reader(own, seat))
    }

    fn place(&self) -> Option<Place> {
        lock(&self.state).place.clone()
    }
}

/// A reader that has not caught up.
struct Late {
    of: Arc<Unfinished>,
    at: u64,
    /// Where it reads.
    to: Sender,
    tail: Tail,
    seat: Seat,
    _permit: Permit,
}

impl Work for Late {
    fn step(&mut self, context: &mut Context<'_>) -> Stepped {
        for _ in 0..QUANTUM {
            match self.to.poll_room(context) {
                Poll::Pending => return Stepped::Waits,
                Poll::Ready(Err(_)) => return Stepped::Over,
                Poll::Ready(Ok(())) => {}
            }
            let piece = match self.piece() {
                Some(piece) => Some(piece),
                None if self.has_caught_up() => return Stepped::Over,
                // It has left memory for the disk meanwhile.
                None => self.piece(),
            };
            // What can't be read, or is nowhere, is cut.
            let Some(Ok(piece)) = piece else {
                return Stepped::Over;
            };
            self.at += piece.len() as u64;
            let _ = self.to.push(piece); // whether its client is gone is asked before the next
        }
        Stepped::More
    }
}

impl Late {
    /// What is next on the disk, if it is there.
    fn piece(&self) -> Option<io::Result<Bytes>> {
        let place = self.of.place()?;
        let len = place.len.checked_sub(self.at).filter(|len| *len > 0)?;
        let mut bytes = vec![0; PIECE_LEN.min(usize::try_from(len).unwrap_or(PIECE_LEN))];
        let read = place.file.read_exact_at(&mut bytes, place.offset + self.at);
        Some(read.map(|()| bytes.into()))
    }

    /// Whether what is next is in memory: then its client goes on there.
    fn has_caught_up(&self) -> bool {
        let found = self.tail.reader(self.at);
        let is_found = found.is_some();
        *lock(&self.seat) = found;
        is_found
    }
}
