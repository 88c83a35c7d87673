//! A double buffer with a version (similar to a seqlock): one core publishes words, and the other cores read a
//! consistent copy. Neither side waits: the writer fills the half that is not published, then switches.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::cache_line::CacheLine;

/// Maximum number of attempts to read. An attempt fails if the writer publishes meanwhile.
const READ_ATTEMPTS_MAX: usize = 100;

/// The published words.
pub struct StatusBoard {
    /// The number of publications. The lowest bit is the index of the half that is published.
    version: CacheLine<AtomicU64>,
    /// Both halves; the first word of each is the number of valid words after it.
    halves: [Box<[AtomicU64]>; 2],
}

impl StatusBoard {
    /// An empty board for `len` words.
    pub fn new(len: usize) -> StatusBoard {
        let half = || (0..=len).map(|_| AtomicU64::new(0)).collect();
        StatusBoard {
            version: CacheLine::default(),
            halves: [half(), half()],
        }
    }

    fn half(&self, version: u64) -> &[AtomicU64] {
        &self.halves[version as usize & 1]
    }

    /// Publishes these words, as many as fit, and replaces the old ones. Only one core may call it.
    pub fn publish(&self, words: impl Iterator<Item = u64>) {
        let version = self.version.load(Ordering::Relaxed).wrapping_add(1);
        // Pairs with the fence in `read`: if a reader of an older version sees a word of this publication, its check
        // sees at least the previous version, and fails.
        fence(Ordering::Release);
        let Some((len, slots)) = self.half(version).split_first() else {
            return;
        };
        let mut count = 0;
        for (slot, word) in slots.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
            count += 1;
        }
        len.store(count, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }

    /// The number of publications.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Copies the published words into `words` and returns their version. If the words change too fast, clears `words`
    /// and returns 0.
    pub fn read(&self, words: &mut Vec<u64>) -> u64 {
        for _ in 0..READ_ATTEMPTS_MAX {
            let version = self.version.load(Ordering::Acquire);
            words.clear();
            if let Some((len, slots)) = self.half(version).split_first() {
                let len = len.load(Ordering::Relaxed) as usize;
                let slots = slots.iter().take(len);
                words.extend(slots.map(|slot| slot.load(Ordering::Relaxed)));
            }
            fence(Ordering::Acquire);
            // If the version has changed, the writer may be overwriting this half.
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
    fn reader_gets_the_last_published_words() {
        let board = StatusBoard::new(3);
        let mut words = Vec::from([9]);
        assert_eq!((board.read(&mut words), &words[..]), (0, &[][..]));
        board.publish([1, 2].into_iter());
        assert_eq!((board.read(&mut words), &words[..]), (1, &[1, 2][..]));
        board.publish(5..);
        // Words that do not fit are dropped.
        assert_eq!((board.read(&mut words), &words[..]), (2, &[5, 6, 7][..]));
        board.publish([].into_iter());
        assert_eq!((board.read(&mut words), &words[..]), (3, &[][..]));
        assert_eq!(board.version(), 3);
    }

    #[test]
    fn concurrent_readers_never_see_mixed_versions() {
        const TURNS: u64 = 20_000;
        let board = StatusBoard::new(40);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut words = Vec::new();
                    let mut last = 0;
                    while last < TURNS {
                        let version = board.read(&mut words);
                        // Nothing was published yet, or all attempts failed.
                        if version == 0 {
                            std::thread::yield_now();
                            continue;
                        }
                        // All words of a version are equal, and their number depends on it.
                        let len = 1 + version as usize % 40;
                        assert_eq!(words, std::vec![version; len]);
                        assert!(version >= last);
                        last = version;
                    }
                });
            }
            for turn in 1..=TURNS {
                let len = 1 + turn as usize % 40;
                board.publish(core::iter::repeat_n(turn, len));
                if turn % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
