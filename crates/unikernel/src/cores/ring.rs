//! A single-producer, single-consumer ring of frames between two cores. The callers ensure that there is one of each; a
//! second producer would corrupt frames but not violate memory safety.
//!
//! A record is one word with the length of the frame and its checksum flag, then the frame in words of 8 bytes. A word
//! is stored before `written` is advanced past it, and loaded before `consumed` is.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::cache_line::CacheLine;

/// Maximum length of a frame: the largest MTU with an Ethernet header, rounded up.
pub const FRAME_LEN_MAX: usize = 1536;
/// Flag in the first word of a record: the checksums of the frame are known to be correct.
const SUM_IS_GOOD: u64 = 1 << 32;

pub struct FrameRing {
    /// A power of two in number.
    words: Box<[AtomicU64]>,
    /// Number of words written since the start; 0 <= written - consumed <= words.len().
    written: CacheLine<AtomicU64>,
    /// Number of words read since the start.
    consumed: CacheLine<AtomicU64>,
}

impl FrameRing {
    /// A ring of about `len` bytes; at least two of the longest frames fit.
    pub fn new(len: usize) -> FrameRing {
        // At least two of the longest frames; a power of two, so that positions wrap by a mask.
        let count = (len / 8).max(2 * FRAME_LEN_MAX / 8).next_power_of_two();
        FrameRing {
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
            written: CacheLine::default(),
            consumed: CacheLine::default(),
        }
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize & (self.words.len() - 1)]
    }

    /// Adds a frame. Returns false if the ring is full or the frame is too long.
    #[must_use]
    pub fn push(&self, frame: &[u8], sum_is_good: bool) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        // Acquire: the consumer has read these words before they are overwritten here.
        let consumed = self.consumed.load(Ordering::Acquire);
        let free = self.words.len() as u64 - written.wrapping_sub(consumed);
        let needed = 1 + frame.len().div_ceil(8) as u64;
        // A full ring drops the frame, as a network would; TCP retransmits.
        if needed > free || frame.len() > FRAME_LEN_MAX {
            return false;
        }
        let flag = if sum_is_good { SUM_IS_GOOD } else { 0 };
        self.word(written)
            .store(frame.len() as u64 | flag, Ordering::Relaxed);
        let (full_words, rest) = frame.as_chunks::<8>();
        let mut at = written.wrapping_add(1);
        for bytes in full_words {
            self.word(at)
                .store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
        if !rest.is_empty() {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            self.word(at)
                .store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        // Release: the consumer sees the words before it sees the new value.
        self.written
            .store(written.wrapping_add(needed), Ordering::Release);
        true
    }

    /// Copies the oldest frame into `buffer`. Returns its length, and whether its checksums are known to be correct.
    pub fn take(&self, buffer: &mut [u8; FRAME_LEN_MAX]) -> Option<(usize, bool)> {
        let consumed = self.consumed.load(Ordering::Relaxed);
        if self.written.load(Ordering::Acquire) == consumed {
            return None;
        }
        let head = self.word(consumed).load(Ordering::Relaxed);
        // The length can be invalid only if there is a second producer.
        let len = (head as u32 as usize).min(FRAME_LEN_MAX);
        let mut at = consumed.wrapping_add(1);
        for bytes in buffer
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .take(len.div_ceil(8))
        {
            *bytes = self.word(at).load(Ordering::Relaxed).to_le_bytes();
            at = at.wrapping_add(1);
        }
        // Release: the words are read before the producer may overwrite them.
        self.consumed.store(at, Ordering::Release);
        Some((len, head & SUM_IS_GOOD != 0))
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.written.load(Ordering::Acquire) == self.consumed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicBool;

    /// Sets a flag when dropped, so also after a panic.
    struct SetOnDrop<'o>(&'o AtomicBool);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A frame that begins with its number and has no repeated content.
    fn frame(number: u64) -> Vec<u8> {
        let len = match number % 5 {
            0 => FRAME_LEN_MAX,
            _ => 8 + (number.wrapping_mul(0x9e37_79b9) >> 7) as usize % 1400,
        };
        let mut frame = Vec::from(number.to_le_bytes());
        frame.extend((8..len).map(|at| (number as usize + at * at) as u8));
        frame
    }

    fn take(ring: &FrameRing) -> Option<(Vec<u8>, bool)> {
        let mut buffer = [0xee; FRAME_LEN_MAX];
        let (len, sum_is_good) = ring.take(&mut buffer)?;
        Some((buffer[..len].to_vec(), sum_is_good))
    }

    #[test]
    fn frames_are_unchanged_across_the_wrap() {
        let ring = FrameRing::new(0);
        assert!(ring.is_empty() && take(&ring).is_none());
        let mut next = 0;
        for number in 0..2000 {
            while !ring.push(&frame(number), number % 3 == 0) {
                assert_eq!(take(&ring), Some((frame(next), next % 3 == 0)));
                next += 1;
            }
        }
        // The ring was full for most of the loop, so a few frames remain in it.
        assert!((1900..2000).contains(&next), "{next}");
        while let Some(taken) = take(&ring) {
            assert_eq!(taken, (frame(next), next % 3 == 0));
            next += 1;
        }
        assert_eq!(next, 2000);
        assert!(ring.is_empty());
    }

    #[test]
    fn full_ring_rejects_frames_and_keeps_the_others() {
        let ring = FrameRing::new(4096);
        let count = (0..).take_while(|_| ring.push(&[7; 56], false)).count();
        // A record for 56 bytes takes 64, since the first word is the length.
        assert_eq!(count, 4096 / 64);
        assert!(!ring.push(&[], false));
        assert!(take(&ring).is_some() && ring.push(&[8; 56], true) && !ring.push(&[], false));
        let taken: Vec<_> = core::iter::from_fn(|| take(&ring)).collect();
        assert_eq!(taken.len(), count);
        assert_eq!(taken[count - 1], ([8; 56].to_vec(), true));
        assert!(!ring.push(&[0; FRAME_LEN_MAX + 1], false));
        assert!(ring.push(&[], true));
        assert_eq!(take(&ring), Some((Vec::new(), true)));
    }

    #[test]
    fn frames_between_two_threads_are_complete_and_in_order() {
        const COUNT: u64 = 5_000;
        for len in [0, 64 << 10] {
            let ring = FrameRing::new(len);
            let is_over = AtomicBool::new(false);
            let refused = std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut refused = 0u64;
                    for number in 0..COUNT {
                        let frame = frame(number);
                        while !ring.push(&frame, number % 2 == 0) {
                            refused += 1;
                            std::thread::yield_now();
                            if is_over.load(Ordering::Relaxed) {
                                return refused;
                            }
                        }
                    }
                    refused
                });
                let _set_on_drop = SetOnDrop(&is_over);
                let mut next = 0;
                while next < COUNT {
                    match take(&ring) {
                        Some(taken) => {
                            assert!(taken == (frame(next), next % 2 == 0), "{next}");
                            next += 1;
                        }
                        None => std::thread::yield_now(),
                    }
                }
                writer.join().expect("the writer")
            });
            assert!(refused > 0 || len > 0, "the small one was never full");
            assert!(ring.is_empty());
        }
    }
}
