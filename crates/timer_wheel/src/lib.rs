//! A timing wheel: schedules checks of table entries, identified by their index.
//!
//! An entry is in at most one slot, that of its earliest requested time. If its deadline moves to a later time, the
//! entry stays in the slot, is checked too early once, and requests another check. So deadlines that move with each
//! request or packet cost one comparison, and if another entry takes over an index, it may keep the slot. Deadlines and
//! the unit of time are the caller's.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;

const SLOTS: u64 = 2048;
const WORDS: usize = (SLOTS / 64) as usize;
/// No time, or no slot.
const NEVER: u64 = u64::MAX;
/// No index.
const NONE: u32 = u32::MAX;

/// A wheel with slots of `TICK` units of time, to which times are rounded up. Entries with times beyond the last slot
/// are checked early.
#[derive(Debug)]
pub struct TimerWheel<const TICK: u64> {
    /// The first entry of each slot.
    heads: Vec<u32>,
    /// A bit for each slot with entries.
    filled: [u64; WORDS],
    slots_by_index: Vec<SlotPlace>,
    /// The slot that was checked most recently.
    cursor: u64,
    /// The first slot with entries, cached since each wait needs it. When the cursor reaches this slot, the next slot
    /// with entries is searched for.
    next: u64,
}

/// The links of an entry in its slot.
#[derive(Clone, Copy, Debug)]
struct SlotPlace {
    /// The time of the entry's slot; [`NEVER`] if it is in no slot.
    due: u64,
    previous: u32,
    following: u32,
}

const UNLINKED: SlotPlace = SlotPlace {
    due: NEVER,
    previous: NONE,
    following: NONE,
};

impl<const TICK: u64> TimerWheel<TICK> {
    /// An empty wheel with memory for `count` entries; it grows for higher indices.
    pub fn new(count: usize, now: u64) -> TimerWheel<TICK> {
        TimerWheel {
            heads: vec![NONE; SLOTS as usize],
            filled: [0; WORDS],
            slots_by_index: vec![UNLINKED; count],
            cursor: now / TICK,
            next: NEVER,
        }
    }

    /// Advances the cursor to `now` if the wheel is empty: for callers that do not call `pop` on an empty wheel.
    pub fn skip_to(&mut self, now: u64) {
        if self.next == NEVER {
            self.cursor = self.cursor.max(now / TICK);
        }
    }

    /// Requests a check of an entry at `deadline` or earlier. Returns the time of its slot; `None` if it was already in
    /// that slot or an earlier one.
    #[inline]
    pub fn schedule(&mut self, index: u32, deadline: u64) -> Option<u64> {
        let entry = self.slots_by_index.get(index as usize);
        match entry.map_or(NEVER, |entry| entry.due) {
            // The entry will be checked early, and request another check then.
            due if deadline >= due => None,
            _ => self.enter(index, deadline),
        }
    }

    #[inline(never)]
    fn enter(&mut self, index: u32, deadline: u64) -> Option<u64> {
        if self.slots_by_index.len() <= index as usize {
            self.slots_by_index.resize(index as usize + 1, UNLINKED);
        }
        let last = self.cursor + SLOTS - 1;
        // The slot is later than the cursor's slot, so that `pop` makes progress even if each entry requests another
        // check immediately.
        let slot = deadline.div_ceil(TICK).clamp(self.cursor + 1, last);
        let due = slot * TICK;
        if due >= self.slots_by_index[index as usize].due {
            return None;
        }
        self.unlink(index);
        let bucket = (slot % SLOTS) as usize;
        let following = self.heads[bucket];
        if following != NONE {
            self.slots_by_index[following as usize].previous = index;
        }
        self.slots_by_index[index as usize] = SlotPlace {
            due,
            previous: NONE,
            following,
        };
        self.heads[bucket] = index;
        self.filled[bucket / 64] |= 1 << (bucket % 64);
        self.next = self.next.min(slot);
        Some(due)
    }

    /// Cancels the check of an entry.
    pub fn remove(&mut self, index: u32) {
        self.unlink(index);
        // The cached slot may have become empty.
        if self.heads[(self.next % SLOTS) as usize] == NONE && self.next != NEVER {
            self.next = self.first_filled();
        }
    }

    fn unlink(&mut self, index: u32) {
        let entry = self.slots_by_index[index as usize];
        if entry.due == NEVER {
            return;
        }
        let bucket = (entry.due / TICK % SLOTS) as usize;
        match entry.previous {
            NONE => self.heads[bucket] = entry.following,
            previous => self.slots_by_index[previous as usize].following = entry.following,
        }
        if entry.following != NONE {
            self.slots_by_index[entry.following as usize].previous = entry.previous;
        }
        if self.heads[bucket] == NONE {
            self.filled[bucket / 64] &= !(1 << (bucket % 64));
        }
        self.slots_by_index[index as usize].due = NEVER;
    }

    /// Removes and returns the next entry to check. To be called until it returns `None`.
    #[inline]
    pub fn pop(&mut self, now: u64) -> Option<u32> {
        let now = now / TICK;
        loop {
            let head = self.heads[(self.cursor % SLOTS) as usize];
            if head != NONE {
                self.unlink(head);
                return Some(head);
            }
            // If the cursor has reached the cached slot, the next slot with entries is searched for.
            if self.next <= self.cursor {
                self.next = self.first_filled();
            }
            if now < self.next {
                self.cursor = self.cursor.max(now);
                return None;
            }
            self.cursor = self.next;
        }
    }

    /// The time of the first check.
    #[inline]
    pub fn next(&self) -> Option<u64> {
        (self.next != NEVER).then(|| self.next * TICK)
    }

    /// The first slot after the cursor with entries.
    fn first_filled(&self) -> u64 {
        let first = self.cursor + 1;
        let bucket = (first % SLOTS) as usize;
        let remaining_bits = self.filled[bucket / 64] >> (bucket % 64);
        if remaining_bits != 0 {
            return first + u64::from(remaining_bits.trailing_zeros());
        }
        // The last iteration covers the first word again, for its lower bits: their slots are one full turn ahead.
        let word_start = first - (first % 64);
        let word = |ahead| self.filled[(bucket / 64 + ahead) % WORDS];
        (1..=WORDS)
            .find(|ahead| word(*ahead) != 0)
            .map_or(NEVER, |ahead| {
                word_start + ahead as u64 * 64 + u64::from(word(ahead).trailing_zeros())
            })
    }
}

#[cfg(test)]
mod tests;
