//! Deadlines by the thousand: a timing wheel that is looked at, not kept in order.
//!
//! A connection's deadline moves with every request, the wheel's note of it does not: when a note
//! comes due, the worker compares it with the deadline of that moment and notes it anew if that
//! lies further off. So a request costs one store, and each connection about one note per turn of
//! the wheel. Knows no clock, and nothing of what is to be looked at.

/// Width of a slot: deadlines are kept to this precision, and never early.
pub const TICK_MS: u64 = 8;
const SLOTS: usize = 2048;

/// Notes of when to look at what.
pub struct Wheel<T> {
    slots: Vec<Vec<T>>,
    /// One bit per slot that holds notes.
    filled: [u64; SLOTS / 64],
    /// Ticks up to this one are done.
    done: u64,
    /// The first tick with notes, [`NONE`] without any: asked for with each wait, while notes seldom come and go.
    next: u64,
}

/// In the place of a tick.
const NONE: u64 = u64::MAX;

impl<T> Wheel<T> {
    /// An empty wheel at `now_ms`.
    pub fn new(now_ms: u64) -> Wheel<T> {
        let mut slots = Vec::new();
        slots.resize_with(SLOTS, Vec::new);
        Wheel {
            slots,
            filled: [0; SLOTS / 64],
            done: now_ms / TICK_MS,
            next: NONE,
        }
    }

    /// Goes on at `now_ms`: for who did not advance it while it was empty.
    pub fn skip_to(&mut self, now_ms: u64) {
        debug_assert!(self.next == NONE, "what is noted would be lost");
        self.done = self.done.max(now_ms / TICK_MS);
    }

    /// Notes to look at `what` at `at_ms`, or at the horizon (about 16 s) if that is sooner.
    /// Returns when the note comes due.
    pub fn note(&mut self, what: T, at_ms: u64) -> u64 {
        let last = self.done + SLOTS as u64 - 1;
        let tick = at_ms.div_ceil(TICK_MS).clamp(self.done + 1, last);
        let slot = slot_of(tick);
        self.slots[slot].push(what);
        self.filled[slot / 64] |= 1 << (slot % 64);
        self.next = self.next.min(tick);
        tick * TICK_MS
    }

    /// When the next note comes due, if there is one.
    #[inline]
    pub fn next_ms(&self) -> Option<u64> {
        (self.next != NONE).then(|| self.next * TICK_MS)
    }

    fn first_filled(&self) -> u64 {
        let first = slot_of(self.done + 1);
        let mut word = self.filled[first / 64] & (u64::MAX << (first % 64));
        // One word more than there are: the first one's low bits are the far end of the wheel.
        for step in 0..=self.filled.len() {
            let at = (first / 64 + step) % self.filled.len();
            if step > 0 {
                word = self.filled[at];
            }
            if word != 0 {
                let slot = at * 64 + word.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - first) % SLOTS;
                return self.done + 1 + ahead as u64;
            }
        }
        NONE
    }

    /// Moves every note that is due at `now_ms` into `due`.
    pub fn advance(&mut self, now_ms: u64, due: &mut Vec<T>) {
        let now = now_ms / TICK_MS;
        if now < self.next {
            self.done = self.done.max(now);
            return;
        }
        // After a long stop of the machine every slot is due once.
        let from = self.done.max(now.saturating_sub(SLOTS as u64));
        for tick in from..now {
            let slot = slot_of(tick + 1);
            if self.filled[slot / 64] & (1 << (slot % 64)) != 0 {
                due.append(&mut self.slots[slot]);
                self.filled[slot / 64] &= !(1 << (slot % 64));
            }
        }
        self.done = self.done.max(now);
        self.next = self.first_filled();
    }
}

fn slot_of(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel<u32>, now_ms: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.advance(now_ms, &mut due);
        due
    }

    #[test]
    fn notes_come_due_in_time_and_never_early() {
        let mut wheel = Wheel::new(1000);
        assert_eq!(wheel.next_ms(), None);
        let at = wheel.note(1, 1100);
        assert!((1100..1100 + TICK_MS).contains(&at));
        assert_eq!(wheel.next_ms(), Some(at));
        assert!(due(&mut wheel, at - 1).is_empty());
        assert_eq!(due(&mut wheel, at), [1]);
        assert_eq!(wheel.next_ms(), None);
    }

    #[test]
    fn the_past_is_due_at_the_next_tick_and_the_far_future_at_the_horizon() {
        let mut wheel = Wheel::new(5000);
        assert!(wheel.note(1, 0) <= 5000 + TICK_MS);
        let horizon = wheel.note(2, 5_000_000);
        assert!(horizon <= 5000 + SLOTS as u64 * TICK_MS);
        assert_eq!(due(&mut wheel, 5000 + TICK_MS), [1]);
        assert_eq!(wheel.next_ms(), Some(horizon));
        assert_eq!(
            due(&mut wheel, horizon + 1_000_000),
            [2],
            "after a long stop"
        );
    }

    #[test]
    fn every_note_comes_due_exactly_once() {
        let mut wheel = Wheel::new(0);
        let (mut state, mut seen) = (1u64, vec![0u32; 4000]);
        let mut now = 0;
        for slot in 0..4000u32 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            wheel.note(slot, now + (state >> 33) % 20_000);
            now += (state >> 40) % 50;
            due(&mut wheel, now)
                .iter()
                .for_each(|s| seen[*s as usize] += 1);
        }
        while let Some(next) = wheel.next_ms() {
            now = next;
            due(&mut wheel, now)
                .iter()
                .for_each(|s| seen[*s as usize] += 1);
        }
        assert!(seen.iter().all(|n| *n == 1));
    }
}
