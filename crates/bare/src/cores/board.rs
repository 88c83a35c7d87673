//! What one core shows to the others: words that it writes as a whole, and that they read as a whole. Nobody waits:
//! it writes what is to be shown next beside what is shown now, and then turns. Knows nothing of what the words mean.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::line::Line;

/// A reader is disturbed when the writer has turned twice while it reads; it does not try for ever.
const TRIES: usize = 100;

/// The words.
pub struct Board {
    /// How often it was written. Odd: the second half is shown.
    version: Line<AtomicU64>,
    /// Each begins with the number of words that count.
    halves: [Box<[AtomicU64]>; 2],
}

impl Board {
    /// With room for so many words; empty.
    pub fn new(len: usize) -> Board {
        let half = || (0..=len).map(|_| AtomicU64::new(0)).collect();
        Board {
            version: Line::default(),
            halves: [half(), half()],
        }
    }

    fn half(&self, version: u64) -> &[AtomicU64] {
        &self.halves[version as usize & 1]
    }

    /// Shows these words instead of those before, as far as there is room. Only one core may do so.
    pub fn show(&self, words: impl Iterator<Item = u64>) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        // Who reads a word of those that follow reads the version before them, too, when it looks again.
        fence(Ordering::Release);
        let Some((len, places)) = self.half(version).split_first() else {
            return;
        };
        let mut count = 0;
        for (place, word) in places.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
            count += 1;
        }
        len.store(count, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }

    /// How often it was written.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// What is shown, instead of what `words` holds, and its version. Nothing, if it changes too fast.
    pub fn read(&self, words: &mut Vec<u64>) -> u64 {
        for _ in 0..TRIES {
            let version = self.version.load(Ordering::Acquire);
            words.clear();
            if let Some((len, places)) = self.half(version).split_first() {
                let len = len.load(Ordering::Relaxed) as usize;
                let places = places.iter().take(len);
                words.extend(places.map(|place| place.load(Ordering::Relaxed)));
            }
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return version;
            }
        }
        words.clear();
        0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn what_is_shown_last_is_read() {
        let board = Board::new(3);
        let mut words = Vec::from([9]);
        assert_eq!((board.read(&mut words), &words[..]), (0, &[][..]));
        board.show([1, 2].into_iter());
        assert_eq!((board.read(&mut words), &words[..]), (1, &[1, 2][..]));
        board.show(5..);
        assert_eq!((board.read(&mut words), &words[..]), (2, &[5, 6, 7][..]));
        board.show([].into_iter());
        assert_eq!((board.read(&mut words), &words[..]), (3, &[][..]));
        assert_eq!(board.version(), 3);
    }

    #[test]
    fn readers_never_see_halves_of_two() {
        const TURNS: u64 = 20_000;
        let board = Board::new(40);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut words = Vec::new();
                    let mut last = 0;
                    while last < TURNS {
                        let version = board.read(&mut words);
                        if version == 0 {
                            std::thread::yield_now();
                            continue;
                        }
                        // The words of a version are all the same, and as many as it says.
                        let len = 1 + version as usize % 40;
                        assert_eq!(words, std::vec![version; len]);
                        assert!(version >= last);
                        last = version;
                    }
                });
            }
            for turn in 1..=TURNS {
                let len = 1 + turn as usize % 40;
                board.show(core::iter::repeat_n(turn, len));
                if turn % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
