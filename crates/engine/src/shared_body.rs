//! Request coalescing: a body that is still arriving and has many readers, each reading from the start and at its own
//! speed. The readers share the bytes, so another reader costs a table entry and no copies.
//!
//! Readers are served round-robin: after a piece of limited length a reader wakes itself, which queues it behind the
//! others. The first piece is short, so that all readers start early. Bytes that are no longer here may be stored, in
//! memory or on disk: a late reader reads the stored bytes and continues here once it has caught up
//! ([`SharedBody::late_reader`]).

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
/// Once the body is released, a reader that lags by this many bytes gets its own queue.
const WAITING_LEN_MAX: u64 = 64 << 10;

/// The producer's end. If it is dropped without [`SharedBody::end`], the body counts as cut.
pub struct SharedBody(Arc<Mutex<SharedBodyState>>);

/// A reader. Boxed, to keep the types that contain a reader small.
pub struct SharedBodyReader(Box<ReaderState>);

/// A handle that creates the continuation of a late reader that has caught up. It keeps the parts alive.
#[derive(Clone)]
pub struct SharedBodyTail(Arc<Mutex<SharedBodyState>>);

/// A slot for the continuation of a late reader, which still reads stored bytes.
pub type ContinuationSlot = Arc<Mutex<Option<SharedBodyReader>>>;

struct ReaderState {
    body: Arc<Mutex<SharedBodyState>>,
    slot: usize,
    /// The unread rest of the current part.
    rest: Bytes,
    /// The reader's own queue: stored bytes of a late reader, or the backlog of a lagging one.
    queue: Option<BodyReceiver>,
    /// The continuation after that queue has ended.
    continuation_slot: Option<ContinuationSlot>,
    /// The number of bytes read in this turn, and the length of the turn.
    turn_read_len: usize,
    turn_len: usize,
}

#[derive(Default)]
struct SharedBodyState {
    parts: VecDeque<SharedBodyPart>,
    /// The number of dropped parts before `parts`.
    dropped_parts: usize,
    /// The total length of the bytes received.
    len: u64,
    /// Parts are dropped once all readers have read them, so new readers from the start are refused.
    is_released: bool,
    /// Bytes up to this offset are stored, so they may be dropped; `None`: all bytes may be dropped.
    stored_len: Option<Arc<AtomicU64>>,
    end: Option<StreamItem>,
    readers: Slab<ReaderPosition>,
    producer: Option<Waker>,
}

struct SharedBodyPart {
    bytes: Bytes,
    /// The offset of the part's first byte.
    offset: u64,
    /// The number of readers that read this part next.
    readers: usize,
}

/// The position of a reader.
struct ReaderPosition {
    /// The number of the reader's next part.
    next: usize,
    /// The waker of a reader that has read all bytes.
    waker: Option<Waker>,
    lagging: Option<LaggingReader>,
}

/// The separate queue of a reader that is too slow for the others; it contains the unread bytes.
struct LaggingReader {
    /// The receiver of the queue, until the reader takes it.
    receiver: Option<BodyReceiver>,
    sender: BodySender,
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
        if state.is_released {
            return None;
        }
        Some(ReaderState::reader_at(&self.0, &mut state, 0))
    }

    /// Adds a reader that first reads `queue`. When the queue ends, the reader continues as the reader in
    /// `continuation_slot`; if the slot is empty, the body counts as cut.
    pub fn late_reader(
        &self,
        queue: BodyReceiver,
        continuation_slot: ContinuationSlot,
    ) -> SharedBodyReader {
        let mut reader = ReaderState::reader_at(&self.0, &mut lock(&self.0), usize::MAX);
        (reader.0.queue, reader.0.continuation_slot) = (Some(queue), Some(continuation_slot));
        reader
    }

    /// The handle that creates continuations of late readers.
    pub fn tail(&self) -> SharedBodyTail {
        SharedBodyTail(self.0.clone())
    }

    /// Adds bytes.
    pub fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = lock(&self.0);
        let number = state.dropped_parts + state.parts.len();
        let (offset, mut readers) = (state.len, 0);
        for (_, position) in &state.readers {
            match &position.lagging {
                // The error of a closed queue is ignored: its reader will be removed.
                Some(lagging) => drop(lagging.sender.push(bytes.clone())),
                None => readers += usize::from(position.next == number),
            }
        }
        state.len += bytes.len() as u64;
        state.parts.push_back(SharedBodyPart {
            bytes,
            offset,
            readers,
        });
        state.drop_read_parts();
        let wakers = state.take_wakers();
        drop(state);
        // Called without the lock, as a waker may run code that reads this body.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// All parts that are in memory.
    pub fn parts(&self) -> Vec<Bytes> {
        let state = lock(&self.0);
        state.parts.iter().map(|part| part.bytes.clone()).collect()
    }

    /// Releases the parts: new readers from the start are refused, and a part is dropped once all readers have read it
    /// and `stored_len` covers it. Late readers read dropped parts from the store.
    pub fn release(&self, stored_len: Option<Arc<AtomicU64>>) {
        let mut state = lock(&self.0);
        state.is_released = true;
        state.stored_len = stored_len;
        state.drop_read_parts();
    }

    /// Ends the body, complete or cut.
    pub fn end(&self, how: StreamItem) {
        let mut state = lock(&self.0);
        let is_complete = how == StreamItem::End;
        // An incomplete body gets no new readers.
        state.is_released |= !is_complete;
        state.end.get_or_insert(how);
        let lagging_readers: Vec<LaggingReader> = state
            .readers
            .iter_mut()
            .filter_map(|(_, position)| match &mut position.lagging {
                // The reader has not taken its queue yet: the entry remains, so that the reader finds the queue and its
                // end.
                Some(LaggingReader {
                    receiver: Some(_),
                    sender,
                }) => {
                    // Dropping the sender below, outside the lock, reports the end of the queue.
                    let (unused, _) = stream(0);
                    let sender = std::mem::replace(sender, unused);
                    Some(LaggingReader {
                        receiver: None,
                        sender,
                    })
                }
                _ => position.lagging.take(),
            })
            .collect();
        let wakers = state.take_wakers();
        drop(state);
        for LaggingReader { sender, .. } in lagging_readers.into_iter().filter(|_| is_complete) {
            sender.end();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ready when the producer should continue; false if there are no readers. Once the parts are released, a slow
    /// reader gets its own queue, which `wrap_sender` may back with a spool, so that the reader does not delay the
    /// others. A single reader limits the producer instead.
    pub fn poll_demand(
        &self,
        context: &mut Context<'_>,
        mut wrap_sender: impl FnMut(BodySender) -> BodySender,
    ) -> Poll<bool> {
        let mut state = lock(&self.0);
        let waker = context.waker();
        let producer = state.producer.get_or_insert_with(|| waker.clone());
        producer.clone_from(waker);
        match (state.readers.len(), state.is_released) {
            (0, _) => return Poll::Ready(false),
            (_, false) => return Poll::Ready(true),
            // A single reader delays no others, so it limits the producer.
            (1, true) => {}
            (_, true) => state.move_laggards_to_queues(&mut wrap_sender),
        }
        let is_full = |lagging: &LaggingReader| lagging.sender.poll_room(context).is_pending();
        let mut lagging_readers = state
            .readers
            .iter()
            .filter_map(|(_, position)| position.lagging.as_ref());
        // All queues are polled, so that the waker is registered with each.
        let full = lagging_readers
            .by_ref()
            .map(is_full)
            .filter(|is_pending| *is_pending)
            .count();
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
        state.is_released = true;
        state.drop_read_parts();
    }
}

impl SharedBodyTail {
    /// A reader from the byte `offset` on, if that is in memory.
    pub fn reader(&self, offset: u64) -> Option<SharedBodyReader> {
        let mut state = lock(&self.0);
        let index = state.parts.partition_point(|part| part.end() <= offset);
        let part_start = state.parts.get(index).map_or(state.len, |part| part.offset);
        // If `offset` is within a part, the reader starts with the rest of that part.
        let skipped_len = usize::try_from(offset.checked_sub(part_start)?).ok()?;
        let rest = match state.parts.get(index) {
            Some(part) if skipped_len > 0 => part.bytes.slice(skipped_len..),
            None if skipped_len > 0 => return None,
            _ => Bytes::new(),
        };
        let next = state.dropped_parts + index + usize::from(skipped_len > 0);
        let mut reader = ReaderState::reader_at(&self.0, &mut state, next);
        reader.0.rest = rest;
        Some(reader)
    }
}

impl SharedBodyPart {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl SharedBodyState {
    /// Drops the parts that all readers have read, once the body is released.
    fn drop_read_parts(&mut self) {
        let stored_len = self
            .stored_len
            .as_ref()
            .map_or(u64::MAX, |len| len.load(Acquire));
        let can_drop = |part: &SharedBodyPart| part.readers == 0 && part.end() <= stored_len;
        while self.is_released && self.parts.front().is_some_and(can_drop) {
            self.parts.pop_front();
            self.dropped_parts += 1;
        }
    }

    /// The number of bytes between the end and the slowest reader without its own queue.
    fn waiting_len(&self) -> u64 {
        let slowest = self.parts.iter().find(|part| part.readers > 0);
        slowest.map_or(0, |part| self.len - part.offset)
    }

    /// Moves the unread bytes of slow readers to separate queues.
    fn move_laggards_to_queues(&mut self, wrap_sender: &mut impl FnMut(BodySender) -> BodySender) {
        if self.waiting_len() < WAITING_LEN_MAX {
            return;
        }
        for (_, position) in &mut self.readers {
            let index = position.next.saturating_sub(self.dropped_parts);
            let Some(part) = self
                .parts
                .get_mut(index)
                .filter(|_| position.lagging.is_none())
            else {
                continue;
            };
            if self.len - part.offset < WAITING_LEN_MAX {
                continue;
            }
            // A lagging reader no longer keeps the parts.
            part.readers -= 1;
            let (sender, from) = stream(WAITING_LEN_MAX as usize);
            for part in self.parts.range(index..) {
                // The queue can't be closed, as its receiver is `from`.
                let _ = sender.push(part.bytes.clone());
            }
            position.lagging = Some(LaggingReader {
                receiver: Some(from),
                sender: wrap_sender(sender),
            });
        }
        self.drop_read_parts();
    }

    fn take_wakers(&mut self) -> Vec<Waker> {
        let positions = self.readers.iter_mut();
        positions
            .filter_map(|(_, position)| position.waker.take())
            .collect()
    }

    /// The next part of a reader, with its number; `None` if it has not arrived.
    fn next_part(&self, slot: usize) -> Option<(usize, &Bytes)> {
        let number = self.readers[slot].next;
        let part = self.parts.get(number.checked_sub(self.dropped_parts)?)?;
        Some((number, &part.bytes))
    }

    /// Called when a reader no longer has this part as its next: the parts up to it may be dropped.
    fn release_part(&mut self, number: usize) {
        let index = number.checked_sub(self.dropped_parts);
        if let Some(part) = index.and_then(|index| self.parts.get_mut(index)) {
            part.readers -= 1;
        }
    }
}

impl SharedBodyReader {
    /// The next item, once it has arrived and it is this reader's turn.
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
    /// A reader that reads the part with this number next; `usize::MAX`: the reader uses no parts.
    fn reader_at(
        body: &Arc<Mutex<SharedBodyState>>,
        state: &mut SharedBodyState,
        next: usize,
    ) -> SharedBodyReader {
        let slot = state.readers.insert(ReaderPosition {
            next,
            waker: None,
            lagging: None,
        });
        let index = next.checked_sub(state.dropped_parts);
        if let Some(part) = index.and_then(|index| state.parts.get_mut(index)) {
            part.readers += 1;
        }
        SharedBodyReader(Box::new(ReaderState {
            body: body.clone(),
            slot,
            rest: Bytes::new(),
            queue: None,
            continuation_slot: None,
            turn_read_len: 0,
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
        if self.turn_read_len >= self.turn_len {
            // The turn has ended: by waking itself, this reader queues behind the others.
            (self.turn_read_len, self.turn_len) = (0, TURN_LEN_MAX);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let len = self.rest.len().min(self.turn_len - self.turn_read_len);
        self.turn_read_len += len;
        Poll::Ready(StreamItem::Bytes(self.rest.split_to(len)))
    }

    fn has_bytes(&self) -> bool {
        let has_turn = self.turn_read_len < self.turn_len;
        let has_part = || match &self.queue {
            Some(queue) => queue.has_bytes(),
            None => lock(&self.body).next_part(self.slot).is_some(),
        };
        has_turn && (!self.rest.is_empty() || has_part())
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        if let Some(queue) = &self.queue {
            return match (queue.poll_next(context), self.continuation_slot.take()) {
                (Poll::Ready(StreamItem::End | StreamItem::Cut), Some(continuation_slot)) => {
                    self.take_over(&continuation_slot, context)
                }
                (next, continuation_slot) => {
                    self.continuation_slot = continuation_slot;
                    next
                }
            };
        }
        let mut state = lock(&self.body);
        let lagging = state.readers[self.slot].lagging.as_mut();
        if let Some(from) = lagging.and_then(|lagging| lagging.receiver.take()) {
            drop(state);
            return self.queue.insert(from).poll_next(context);
        }
        if let Some((number, bytes)) = state.next_part(self.slot) {
            let bytes = bytes.clone();
            state.readers[self.slot].next = number + 1;
            state.release_part(number);
            let index = number + 1 - state.dropped_parts;
            if let Some(part) = state.parts.get_mut(index) {
                part.readers += 1;
            }
            state.drop_read_parts();
            // The producer waits for readers only after the release.
            let producer = state.is_released.then(|| state.producer.take()).flatten();
            drop(state);
            producer.into_iter().for_each(Waker::wake);
            return Poll::Ready(StreamItem::Bytes(bytes));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(end.clone());
        }
        // A reader that has read all bytes starts a new turn with the next bytes.
        self.turn_read_len = 0;
        let waker = &mut state.readers[self.slot].waker;
        let waker = waker.get_or_insert_with(|| context.waker().clone());
        waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl ReaderState {
    /// Continues as the reader in `continuation_slot`; if the slot is empty, the body is cut.
    fn take_over(
        &mut self,
        continuation_slot: &ContinuationSlot,
        context: &mut Context<'_>,
    ) -> Poll<StreamItem> {
        let continuation = continuation_slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(continuation) = continuation else {
            return Poll::Ready(StreamItem::Cut);
        };
        // The turn is kept, so that the change gives the reader no advantage.
        let turn = (self.turn_read_len, self.turn_len);
        *self = *continuation.0;
        (self.turn_read_len, self.turn_len) = turn;
        match std::mem::take(&mut self.rest) {
            rest if rest.is_empty() => self.poll_part(context),
            rest => Poll::Ready(StreamItem::Bytes(rest)),
        }
    }
}

impl Drop for ReaderState {
    fn drop(&mut self) {
        let mut state = lock(&self.body);
        let position = state.readers.remove(self.slot);
        // A reader with its own queue has no next part.
        if position.lagging.is_none() && self.queue.is_none() {
            state.release_part(position.next);
        }
        state.drop_read_parts();
        // The producer waits for the last reader to leave, or for room.
        let wakes_producer = state.readers.is_empty() || state.is_released;
        let producer = wakes_producer.then(|| state.producer.take()).flatten();
        drop(state);
        // Dropping the queue may wake other tasks, which must not happen under the lock.
        drop(position);
        producer.into_iter().for_each(Waker::wake);
    }
}

fn lock(state: &Mutex<SharedBodyState>) -> MutexGuard<'_, SharedBodyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
