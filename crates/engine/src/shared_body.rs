//! Request coalescing: one body, still arriving, that many readers read, each from its start and at its own speed. All
//! share the same bytes, so a reader costs a table entry and no copies.
//!
//! Readers are served round-robin: after a piece, a short one at first, a reader's waker schedules its next turn. So
//! all start early. Bytes that are dropped here may be stored (in memory or on disk): a late reader reads them from
//! there, and continues here once it has caught up ([`SharedBody::late_reader`]). The module knows neither the bytes
//! nor their producer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use slab::Slab;

use crate::stream::{BodyReceiver, BodySender, StreamItem, stream};

/// The length of a reader's first turn: TCP's initial window (RFC 6928 §2).
const FIRST_TURN_LEN: usize = 14_600;
/// The maximum length of a later turn.
const TURN_LEN_MAX: usize = 64 << 10;
/// Once released parts are not kept, a reader may lag by this many bytes before it gets its own queue.
const WAITING_LEN_MAX: u64 = 64 << 10;

/// The producer's end. If it is dropped without [`SharedBody::end`], the body counts as cut.
pub struct SharedBody(Arc<Mutex<SharedBodyState>>);

/// A reader. Boxed, as it is embedded in a type that is also used for other bodies.
pub struct SharedBodyReader(Box<ReaderState>);

/// Finds the position for a late reader that has caught up. It keeps the parts alive.
#[derive(Clone)]
pub struct SharedBodyTail(Arc<Mutex<SharedBodyState>>);

/// A slot for the continuation of a reader that still reads stored bytes.
pub type ReaderSeat = Arc<Mutex<Option<SharedBodyReader>>>;

struct ReaderState {
    of: Arc<Mutex<SharedBodyState>>,
    place: usize,
    /// The rest of a part that was read in part.
    rest: Bytes,
    /// The reader's own queue: stored bytes of a late reader, or the backlog of a lagging one.
    own: Option<BodyReceiver>,
    /// The continuation after that queue has ended.
    seat: Option<ReaderSeat>,
    /// Bytes read in this turn, and its length.
    given_len: usize,
    turn_len: usize,
}

#[derive(Default)]
struct SharedBodyState {
    parts: VecDeque<SharedBodyPart>,
    /// The number of dropped parts before `parts`.
    gone: usize,
    /// The total length of the bytes received.
    len: u64,
    /// Parts are dropped once all readers have read them; new readers from the start are refused.
    is_let_go: bool,
    /// Bytes up to here are stored and may be dropped; `None`: all may be.
    kept_len: Option<Arc<AtomicU64>>,
    end: Option<StreamItem>,
    readers: Slab<ReaderPosition>,
    filler: Option<Waker>,
}

struct SharedBodyPart {
    bytes: Bytes,
    /// The offset of its first byte.
    at: u64,
    /// The number of readers that read this part next.
    readers: usize,
}

/// The position of a reader.
struct ReaderPosition {
    /// The number of its next part.
    next: usize,
    /// Set if it has read all bytes.
    waker: Option<Waker>,
    behind: Option<LaggingReader>,
}

/// A reader too slow for parts that are not kept: its unread bytes wait in a queue of its own.
struct LaggingReader {
    /// The queue's other end, until the reader takes it.
    from: Option<BodyReceiver>,
    to: BodySender,
}

impl Default for SharedBody {
    fn default() -> SharedBody {
        SharedBody(Arc::new(Mutex::default()))
    }
}

impl SharedBody {
    /// Adds a reader; `None` if the start was dropped.
    pub fn reader(&self) -> Option<SharedBodyReader> {
        let mut state = lock(&self.0);
        if state.is_let_go {
            return None;
        }
        Some(ReaderState::at(&self.0, &mut state, 0))
    }

    /// Adds a reader that first reads `own`. When that ends it continues at the position in `seat`; if there is none,
    /// it is cut.
    pub fn late_reader(&self, own: BodyReceiver, seat: ReaderSeat) -> SharedBodyReader {
        let mut reader = ReaderState::at(&self.0, &mut lock(&self.0), usize::MAX);
        (reader.0.own, reader.0.seat) = (Some(own), Some(seat));
        reader
    }

    /// The handle by which late readers find their position.
    pub fn tail(&self) -> SharedBodyTail {
        SharedBodyTail(self.0.clone())
    }

    /// Adds bytes.
    pub fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = lock(&self.0);
        let number = state.gone + state.parts.len();
        let (at, mut readers) = (state.len, 0);
        for (_, place) in &state.readers {
            match &place.behind {
                // A closed queue is found when its reader is removed.
                Some(behind) => drop(behind.to.push(bytes.clone())),
                None => readers += usize::from(place.next == number),
            }
        }
        state.len += bytes.len() as u64;
        state.parts.push_back(SharedBodyPart { bytes, at, readers });
        state.forget();
        let wakers = state.take_wakers();
        drop(state);
        // Without the lock, as a waker may run code that reads this body.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// All parts that are in memory.
    pub fn parts(&self) -> Vec<Bytes> {
        let state = lock(&self.0);
        state.parts.iter().map(|part| part.bytes.clone()).collect()
    }

    /// Releases the parts: new readers from the start are refused, and parts that all readers have read are dropped,
    /// once `kept_len` covers them: late readers read them from there.
    pub fn let_go(&self, kept_len: Option<Arc<AtomicU64>>) {
        let mut state = lock(&self.0);
        state.is_let_go = true;
        state.kept_len = kept_len;
        state.forget();
    }

    /// Ends the body, complete or cut.
    pub fn end(&self, how: StreamItem) {
        let mut state = lock(&self.0);
        let is_whole = how == StreamItem::End;
        // The bytes of a cut body are of no use to new readers.
        state.is_let_go |= !is_whole;
        state.end.get_or_insert(how);
        let behind: Vec<LaggingReader> = state
            .readers
            .iter_mut()
            .filter_map(|(_, place)| match &mut place.behind {
                // The reader has not taken its queue yet: it stays lagging, to find the queue and its end.
                Some(LaggingReader { from: Some(_), to }) => {
                    // The queue's end is reported by dropping it below, outside the lock.
                    let (unused, _) = stream(0);
                    let to = std::mem::replace(to, unused);
                    Some(LaggingReader { from: None, to })
                }
                _ => place.behind.take(),
            })
            .collect();
        let wakers = state.take_wakers();
        drop(state);
        for LaggingReader { to, .. } in behind.into_iter().filter(|_| is_whole) {
            to.end();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ready when the producer should continue: false if there are no readers. Once the parts are released, a slow
    /// reader gets its own queue, which `behind` may replace by a spool, so that it delays no other. A single reader
    /// sets the pace.
    pub fn poll_wanted(
        &self,
        context: &mut Context<'_>,
        mut behind: impl FnMut(BodySender) -> BodySender,
    ) -> Poll<bool> {
        let mut state = lock(&self.0);
        let waker = context.waker();
        let filler = state.filler.get_or_insert_with(|| waker.clone());
        filler.clone_from(waker);
        match (state.readers.len(), state.is_let_go) {
            (0, _) => return Poll::Ready(false),
            (_, false) => return Poll::Ready(true),
            // A single reader sets the pace: it delays no other.
            (1, true) => {}
            (_, true) => state.put_behind(&mut behind),
        }
        let is_full = |behind: &LaggingReader| behind.to.poll_room(context).is_pending();
        let mut those_behind = state
            .readers
            .iter()
            .filter_map(|(_, at)| at.behind.as_ref());
        // All queues are polled, so that each registers the waker.
        let full = those_behind.by_ref().map(is_full).filter(|is| *is).count();
        match full > 0 || state.waiting_len() >= WAITING_LEN_MAX {
            true => Poll::Pending,
            false => Poll::Ready(true),
        }
    }
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        self.end(StreamItem::Cut);
        let mut state = lock(&self.0);
        state.is_let_go = true;
        state.forget();
    }
}

impl SharedBodyTail {
    /// A reader from the byte `at` on, if that is in memory.
    pub fn reader(&self, at: u64) -> Option<SharedBodyReader> {
        let mut state = lock(&self.0);
        let index = state.parts.partition_point(|part| part.end() <= at);
        let begin = state.parts.get(index).map_or(state.len, |part| part.at);
        // A part that the caller has read in part contributes its rest.
        let begun_len = usize::try_from(at.checked_sub(begin)?).ok()?;
        let rest = match state.parts.get(index) {
            Some(part) if begun_len > 0 => part.bytes.slice(begun_len..),
            None if begun_len > 0 => return None,
            _ => Bytes::new(),
        };
        let next = state.gone + index + usize::from(begun_len > 0);
        let mut reader = ReaderState::at(&self.0, &mut state, next);
        reader.0.rest = rest;
        Some(reader)
    }
}

impl SharedBodyPart {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

impl SharedBodyState {
    /// Drops the parts that all readers have read, once the body is released.
    fn forget(&mut self) {
        let kept_len = self
            .kept_len
            .as_ref()
            .map_or(u64::MAX, |len| len.load(Acquire));
        let may_go = |part: &SharedBodyPart| part.readers == 0 && part.end() <= kept_len;
        while self.is_let_go && self.parts.front().is_some_and(may_go) {
            self.parts.pop_front();
            self.gone += 1;
        }
    }

    /// The number of bytes between the slowest direct reader and the end.
    fn waiting_len(&self) -> u64 {
        let slowest = self.parts.iter().find(|part| part.readers > 0);
        slowest.map_or(0, |part| self.len - part.at)
    }

    /// Moves the unread bytes of slow readers to queues of their own.
    fn put_behind(&mut self, behind: &mut impl FnMut(BodySender) -> BodySender) {
        if self.waiting_len() < WAITING_LEN_MAX {
            return;
        }
        for (_, place) in &mut self.readers {
            let index = place.next.saturating_sub(self.gone);
            let Some(part) = self.parts.get_mut(index).filter(|_| place.behind.is_none()) else {
                continue;
            };
            if self.len - part.at < WAITING_LEN_MAX {
                continue;
            }
            // A lagging reader no longer keeps the parts.
            part.readers -= 1;
            let (to, from) = stream(WAITING_LEN_MAX as usize);
            for part in self.parts.range(index..) {
                // It can't be closed: its other end is here.
                let _ = to.push(part.bytes.clone());
            }
            place.behind = Some(LaggingReader {
                from: Some(from),
                to: behind(to),
            });
        }
        self.forget();
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        let places = self.readers.iter_mut();
        places.filter_map(|(_, at)| at.waker.take()).collect()
    }

    /// The next part of a reader, with its number; `None` if it has not arrived.
    fn next(&self, place: usize) -> Option<(usize, &Bytes)> {
        let number = self.readers[place].next;
        let part = self.parts.get(number.checked_sub(self.gone)?)?;
        Some((number, &part.bytes))
    }

    /// A reader has left this part: the parts before it may be dropped.
    fn leave(&mut self, number: usize) {
        let index = number.checked_sub(self.gone);
        if let Some(part) = index.and_then(|index| self.parts.get_mut(index)) {
            part.readers -= 1;
        }
    }
}

impl SharedBodyReader {
    /// The next item, once there is one and it is this reader's turn.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        self.0.poll_next(context)
    }

    /// Whether bytes are available without a wait.
    pub fn has_bytes(&self) -> bool {
        self.0.has_bytes()
    }

    /// Waits for the next item.
    pub async fn next(&mut self) -> StreamItem {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl ReaderState {
    /// A reader that reads this part next; the greatest number: none.
    fn at(
        of: &Arc<Mutex<SharedBodyState>>,
        state: &mut SharedBodyState,
        next: usize,
    ) -> SharedBodyReader {
        let place = state.readers.insert(ReaderPosition {
            next,
            waker: None,
            behind: None,
        });
        let index = next.checked_sub(state.gone);
        if let Some(part) = index.and_then(|index| state.parts.get_mut(index)) {
            part.readers += 1;
        }
        SharedBodyReader(Box::new(ReaderState {
            of: of.clone(),
            place,
            rest: Bytes::new(),
            own: None,
            seat: None,
            given_len: 0,
            turn_len: FIRST_TURN_LEN,
        }))
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        if self.rest.is_empty() {
            match self.poll_part(context) {
                Poll::Ready(StreamItem::Bytes(bytes)) => self.rest = bytes,
                other => return other,
            }
        }
        if self.given_len >= self.turn_len {
            // The turn is over: waking itself queues this reader behind the others.
            (self.given_len, self.turn_len) = (0, TURN_LEN_MAX);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let len = self.rest.len().min(self.turn_len - self.given_len);
        self.given_len += len;
        Poll::Ready(StreamItem::Bytes(self.rest.split_to(len)))
    }

    fn has_bytes(&self) -> bool {
        let is_its_turn = self.given_len < self.turn_len;
        let has_some = || match &self.own {
            Some(own) => own.has_bytes(),
            None => lock(&self.of).next(self.place).is_some(),
        };
        is_its_turn && (!self.rest.is_empty() || has_some())
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        if let Some(own) = &self.own {
            return match (own.poll_next(context), self.seat.take()) {
                (Poll::Ready(StreamItem::End | StreamItem::Cut), Some(seat)) => {
                    self.take(&seat, context)
                }
                (next, seat) => {
                    self.seat = seat;
                    next
                }
            };
        }
        let mut state = lock(&self.of);
        let behind = state.readers[self.place].behind.as_mut();
        if let Some(from) = behind.and_then(|behind| behind.from.take()) {
            drop(state);
            return self.own.insert(from).poll_next(context);
        }
        if let Some((number, bytes)) = state.next(self.place) {
            let bytes = bytes.clone();
            state.readers[self.place].next = number + 1;
            state.leave(number);
            let index = number + 1 - state.gone;
            if let Some(part) = state.parts.get_mut(index) {
                part.readers += 1;
            }
            state.forget();
            // Before the release the producer does not wait for readers.
            let filler = state.is_let_go.then(|| state.filler.take()).flatten();
            drop(state);
            filler.into_iter().for_each(Waker::wake);
            return Poll::Ready(StreamItem::Bytes(bytes));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(end.clone());
        }
        // A reader that has read all bytes starts a new turn with the next ones.
        self.given_len = 0;
        let waker = &mut state.readers[self.place].waker;
        let waker = waker.get_or_insert_with(|| context.waker().clone());
        waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl ReaderState {
    /// Continues at the position in `seat`, or is cut if there is none.
    fn take(&mut self, seat: &ReaderSeat, context: &mut Context<'_>) -> Poll<StreamItem> {
        let found = seat.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(found) = found else {
            return Poll::Ready(StreamItem::Cut);
        };
        // The turn continues, so that the change gains a reader nothing.
        let turn = (self.given_len, self.turn_len);
        *self = *found.0;
        (self.given_len, self.turn_len) = turn;
        match std::mem::take(&mut self.rest) {
            rest if rest.is_empty() => self.poll_part(context),
            rest => Poll::Ready(StreamItem::Bytes(rest)),
        }
    }
}

impl Drop for ReaderState {
    fn drop(&mut self) {
        let mut state = lock(&self.of);
        let place = state.readers.remove(self.place);
        // A reader of its own queue holds no part.
        if place.behind.is_none() && self.own.is_none() {
            state.leave(place.next);
        }
        state.forget();
        // The producer waits for the last reader to leave, or for room.
        let is_heard = state.readers.is_empty() || state.is_let_go;
        let filler = is_heard.then(|| state.filler.take()).flatten();
        drop(state);
        // Dropping the queue may wake others, which must not happen under the lock.
        drop(place);
        filler.into_iter().for_each(Waker::wake);
    }
}

fn lock(state: &Mutex<SharedBodyState>) -> MutexGuard<'_, SharedBodyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
