//! Bytes that come while many read them, each from their start and as fast as it takes them. All read the same bytes, so who
//! takes none costs a place in a table, and no copies.
//!
//! Readers take turns: after a piece, a short one at first, a reader's waker tells when to ask for the next. So all have
//! something before anybody has much. What is not kept here may be kept elsewhere: who comes late reads it there, and goes
//! on here once it has caught up ([`SharedBody::late_reader`]). It knows neither what the bytes are nor who makes them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use slab::Slab;

use crate::stream::{BodyReceiver, BodySender, StreamItem, stream};

/// What a reader gets in its first turn: what TCP sends before it hears of the other end (RFC 6928 §2).
const FIRST_TURN_LEN: usize = 14_600;
/// What it gets in a turn at most.
const TURN_LEN_MAX: usize = 64 << 10;
/// What may wait for a reader of what is not kept for all.
const WAITING_LEN_MAX: u64 = 64 << 10;

/// The bytes, for who makes them: dropped without [`SharedBody::end`], they count as cut.
pub struct SharedBody(Arc<Mutex<SharedBodyState>>);

/// One who reads them. A pointer: it lies in what is passed on for other bodies, too.
pub struct SharedBodyReader(Box<ReaderState>);

/// Finds a place for one who has caught up. Holds what is here as long as it lives.
#[derive(Clone)]
pub struct SharedBodyTail(Arc<Mutex<SharedBodyState>>);

/// A place that is found while who gets it still reads elsewhere.
pub type ReaderSeat = Arc<Mutex<Option<SharedBodyReader>>>;

struct ReaderState {
    of: Arc<Mutex<SharedBodyState>>,
    place: usize,
    /// What it has not been given of a part that it has begun.
    rest: Bytes,
    /// It reads here what waits elsewhere for it.
    own: Option<BodyReceiver>,
    /// Where it goes on when that has ended.
    seat: Option<ReaderSeat>,
    /// What it was given in this turn, and what it may be.
    given_len: usize,
    turn_len: usize,
}

#[derive(Default)]
struct SharedBodyState {
    parts: VecDeque<SharedBodyPart>,
    /// Parts before them that are gone.
    gone: usize,
    /// All bytes that have come.
    len: u64,
    /// Parts go when everybody has read them; nobody new can read what begins with them.
    is_let_go: bool,
    /// So many of the bytes can be read elsewhere; others do not go. `None`: all may go.
    kept_len: Option<Arc<AtomicU64>>,
    end: Option<StreamItem>,
    readers: Slab<ReaderPosition>,
    filler: Option<Waker>,
}

struct SharedBodyPart {
    bytes: Bytes,
    /// Where it begins.
    at: u64,
    /// Readers whose next part it is.
    readers: usize,
}

/// Where a reader is.
struct ReaderPosition {
    /// The number of its next part.
    next: usize,
    /// It has read all that has come.
    waker: Option<Waker>,
    behind: Option<LaggingReader>,
}

/// Too slow for what is not kept: what it has not read waits elsewhere.
struct LaggingReader {
    /// Until the reader knows.
    from: Option<BodyReceiver>,
    to: BodySender,
}

impl Default for SharedBody {
    fn default() -> SharedBody {
        SharedBody(Arc::new(Mutex::default()))
    }
}

impl SharedBody {
    /// One more reader; `None` if the start is gone.
    pub fn reader(&self) -> Option<SharedBodyReader> {
        let mut state = lock(&self.0);
        if state.is_let_go {
            return None;
        }
        Some(ReaderState::at(&self.0, &mut state, 0))
    }

    /// One more reader, which has what comes in `own` first. When that ends it goes on at the place that is in `seat`; if none
    /// is, it is cut.
    pub fn late_reader(&self, own: BodyReceiver, seat: ReaderSeat) -> SharedBodyReader {
        let mut reader = ReaderState::at(&self.0, &mut lock(&self.0), usize::MAX);
        (reader.0.own, reader.0.seat) = (Some(own), Some(seat));
        reader
    }

    /// For who catches up.
    pub fn tail(&self) -> SharedBodyTail {
        SharedBodyTail(self.0.clone())
    }

    /// Adds some bytes.
    pub fn push(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let mut state = lock(&self.0);
        let number = state.gone + state.parts.len();
        let (at, mut readers) = (state.len, 0);
        for (_, place) in &state.readers {
            match &place.behind {
                // Whether it is gone is found when it leaves.
                Some(behind) => drop(behind.to.push(bytes.clone())),
                None => readers += usize::from(place.next == number),
            }
        }
        state.len += bytes.len() as u64;
        state.parts.push_back(SharedBodyPart { bytes, at, readers });
        state.forget();
        let wakers = state.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// All that is there.
    pub fn parts(&self) -> Vec<Bytes> {
        let state = lock(&self.0);
        state.parts.iter().map(|part| part.bytes.clone()).collect()
    }

    /// From now on only those read it who have begun, and what all of them have read goes, once so many bytes are kept
    /// elsewhere: for those who come late.
    pub fn let_go(&self, kept_len: Option<Arc<AtomicU64>>) {
        let mut state = lock(&self.0);
        state.is_let_go = true;
        state.kept_len = kept_len;
        state.forget();
    }

    /// Says that this was all, or that there will be no more.
    pub fn end(&self, how: StreamItem) {
        let mut state = lock(&self.0);
        let is_whole = how == StreamItem::End;
        state.is_let_go |= !is_whole;
        state.end.get_or_insert(how);
        let behind: Vec<LaggingReader> = state
            .readers
            .iter_mut()
            .filter_map(|(_, place)| match &mut place.behind {
                // It has not noticed, and would not find the rest.
                Some(LaggingReader { from: Some(_), to }) => {
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

    /// Ready when more is wanted: false if nobody reads it any more. Once it is let go, who is slower than others gets a
    /// stream of its own, which `behind` takes to give where its rest goes; nobody else waits for it. One alone sets the pace.
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
            (1, true) => {}
            (_, true) => state.put_behind(&mut behind),
        }
        let is_full = |behind: &LaggingReader| behind.to.poll_room(context).is_pending();
        let mut those_behind = state
            .readers
            .iter()
            .filter_map(|(_, at)| at.behind.as_ref());
        // All are asked, so that any of them wakes.
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
    /// A reader of what begins with the byte `at`, if that is here.
    pub fn reader(&self, at: u64) -> Option<SharedBodyReader> {
        let mut state = lock(&self.0);
        let index = state.parts.partition_point(|part| part.end() <= at);
        let begin = state.parts.get(index).map_or(state.len, |part| part.at);
        // Of a part that it has begun it has the rest.
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
    /// Parts that everybody has read go, once that is so.
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

    /// What waits for the slowest of those who read it here.
    fn waiting_len(&self) -> u64 {
        let slowest = self.parts.iter().find(|part| part.readers > 0);
        slowest.map_or(0, |part| self.len - part.at)
    }

    /// Has what waits for the slow wait elsewhere.
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
            part.readers -= 1;
            let (to, from) = stream(WAITING_LEN_MAX as usize);
            for part in self.parts.range(index..) {
                // It is open: its other end is here.
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

    /// What is next for a reader, and its number; `None` if that has not come.
    fn next(&self, place: usize) -> Option<(usize, &Bytes)> {
        let number = self.readers[place].next;
        let part = self.parts.get(number.checked_sub(self.gone)?)?;
        Some((number, &part.bytes))
    }

    /// Somebody is not at this part any more: another may be the first.
    fn leave(&mut self, number: usize) {
        let index = number.checked_sub(self.gone);
        if let Some(part) = index.and_then(|index| self.parts.get_mut(index)) {
            part.readers -= 1;
        }
    }
}

impl SharedBodyReader {
    /// What is next, once there is something and it is this one's turn.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<StreamItem> {
        self.0.poll_next(context)
    }

    /// Whether there are bytes that nobody has to be waited for.
    pub fn has_bytes(&self) -> bool {
        self.0.has_bytes()
    }

    /// Waits for what is next.
    pub async fn next(&mut self) -> StreamItem {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl ReaderState {
    /// A reader whose next part has this number; none has the greatest.
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
            // Others first: what wakes it comes behind what wakes them.
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
            let filler = state.is_let_go.then(|| state.filler.take()).flatten();
            drop(state);
            filler.into_iter().for_each(Waker::wake);
            return Poll::Ready(StreamItem::Bytes(bytes));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(end.clone());
        }
        self.given_len = 0;
        let waker = &mut state.readers[self.place].waker;
        let waker = waker.get_or_insert_with(|| context.waker().clone());
        waker.clone_from(context.waker());
        Poll::Pending
    }
}

impl ReaderState {
    /// Goes on where it has caught up, if it has.
    fn take(&mut self, seat: &ReaderSeat, context: &mut Context<'_>) -> Poll<StreamItem> {
        let found = seat.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(found) = found else {
            return Poll::Ready(StreamItem::Cut);
        };
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
        if place.behind.is_none() && self.own.is_none() {
            state.leave(place.next);
        }
        state.forget();
        let is_heard = state.readers.is_empty() || state.is_let_go;
        let filler = is_heard.then(|| state.filler.take()).flatten();
        drop(state);
        // Others may be told when it goes.
        drop(place);
        filler.into_iter().for_each(Waker::wake);
    }
}

fn lock(state: &Mutex<SharedBodyState>) -> MutexGuard<'_, SharedBodyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
