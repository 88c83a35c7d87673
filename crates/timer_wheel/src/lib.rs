//! When to look at which connection: a wheel of slots of 8 ms. A connection is in one slot at most, that of the
//! earliest time that was asked for. Who needs it later leaves it where it is, is looked at once too early, and
//! asks again: so what moves deadlines with each packet costs a comparison. It knows no deadlines.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;

const SLOT_BITS: u32 = 13;
const SLOTS: u64 = 4096;
const WORDS: usize = 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Place {
    /// The slot's number since the start; [`u64::MAX`]: in none.
    slot: u64,
    before: u32,
    after: u32,
}

/// The wheel.
pub struct Wheel {
    heads: Vec<u32>,
    taken: [u64; WORDS],
    places: Vec<Place>,
    /// The slot that was looked at last.
    cursor: u64,
}

impl Wheel {
    /// For so many connections.
    pub fn new(count: usize) -> Wheel {
        let nowhere = Place {
            slot: u64::MAX,
            before: NONE,
            after: NONE,
        };
        Wheel {
            heads: vec![NONE; SLOTS as usize],
            taken: [0; WORDS],
            places: vec![nowhere; count],
            cursor: 0,
        }
    }

    /// Asks to look at it at that time, or before.
    pub fn ask(&mut self, index: u32, at_us: u64) {
        if at_us >> SLOT_BITS >= self.places[index as usize].slot {
            return;
        }
        self.enter(index, at_us);
    }

    #[inline(never)]
    fn enter(&mut self, index: u32, at_us: u64) {
        let wanted = (at_us >> SLOT_BITS) + 1;
        let slot = wanted.clamp(self.cursor + 1, self.cursor + SLOTS - 1);
        if slot >= self.places[index as usize].slot {
            return;
        }
        self.leave(index);
        let at = (slot % SLOTS) as usize;
        let after = self.heads[at];
        if after != NONE {
            self.places[after as usize].before = index;
        }
        self.places[index as usize] = Place {
            slot,
            before: NONE,
            after,
        };
        self.heads[at] = index;
        self.taken[at / 64] |= 1 << (at % 64);
    }

    /// It is not to be looked at any more.
    pub fn leave(&mut self, index: u32) {
        let place = self.places[index as usize];
        if place.slot == u64::MAX {
            return;
        }
        let at = (place.slot % SLOTS) as usize;
        match place.before {
            NONE => self.heads[at] = place.after,
            before => self.places[before as usize].after = place.after,
        }
        if place.after != NONE {
            self.places[place.after as usize].before = place.before;
        }
        if self.heads[at] == NONE {
            self.taken[at / 64] &= !(1 << (at % 64));
        }
        self.places[index as usize].slot = u64::MAX;
    }

    /// The next to look at; it is in no slot then.
    pub fn pop(&mut self, now_us: u64) -> Option<u32> {
        let now = now_us >> SLOT_BITS;
        loop {
            let head = self.heads[(self.cursor % SLOTS) as usize];
            if head != NONE {
                self.leave(head);
                return Some(head);
            }
            if self.cursor >= now {
                return None;
            }
            self.cursor = self.next_slot().map_or(now, |next| next.min(now));
        }
    }

    /// When the next is to be looked at.
    pub fn next_us(&self) -> Option<u64> {
        self.next_slot().map(|slot| slot << SLOT_BITS)
    }

    /// The first slot behind the cursor with something in it.
    fn next_slot(&self) -> Option<u64> {
        let first = self.cursor + 1;
        let at = (first % SLOTS) as usize;
        let rest = self.taken[at / 64] >> (at % 64);
        if rest != 0 {
            return Some(first + u64::from(rest.trailing_zeros()));
        }
        let word_start = first - (first % 64);
        (1..=WORDS).find_map(|ahead| {
            let word = self.taken[(at / 64 + ahead) % WORDS];
            (word != 0).then(|| word_start + ahead as u64 * 64 + u64::from(word.trailing_zeros()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(wheel: &mut Wheel, now_us: u64) -> Vec<u32> {
        let mut found: Vec<u32> = core::iter::from_fn(|| wheel.pop(now_us)).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn each_comes_when_its_time_has_come() {
        let mut wheel = Wheel::new(4);
        wheel.ask(0, 100_000);
        wheel.ask(1, 40_000);
        wheel.ask(2, 100_001);
        wheel.ask(1, 90_000_000);
        assert_eq!(all(&mut wheel, 39_000), []);
        let next_us = wheel.next_us().expect("asked");
        assert!((40_000..50_000).contains(&next_us));
        assert_eq!(all(&mut wheel, next_us), [1]);
        wheel.ask(3, 300_000_000);
        wheel.leave(2);
        assert_eq!(all(&mut wheel, 110_000), [0]);
        // What is farther than the wheel is long is looked at early.
        let next_us = wheel.next_us().expect("asked");
        assert!((30_000_000..40_000_000).contains(&next_us));
        assert_eq!(all(&mut wheel, 1_000_000_000), [3]);
        assert_eq!(wheel.next_us(), None);
    }

    #[test]
    fn an_earlier_time_counts() {
        let mut wheel = Wheel::new(1);
        wheel.ask(0, 30_000_000);
        wheel.ask(0, 200_000);
        assert_eq!(all(&mut wheel, 210_000), [0]);
        wheel.ask(0, 0);
        let next_us = wheel.next_us().expect("asked");
        assert_eq!(all(&mut wheel, next_us), [0]);
    }

    #[test]
    fn slots_of_all_distances_are_found() {
        for start in [0, 8_192 * 4_000, 8_192 * 5_000] {
            for ahead in [1, 63, 64, 65, 1_000, 4_000, 4_094] {
                let mut wheel = Wheel::new(1);
                assert_eq!(wheel.pop(start), None);
                wheel.ask(0, start + 8_192 * (ahead - 1));
                assert_eq!(
                    wheel.next_us(),
                    Some(start + 8_192 * ahead),
                    "{start} {ahead}"
                );
            }
        }
    }
}
