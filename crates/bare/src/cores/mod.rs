//! What the cores of one machine share, beside the read-only site: rings of frames, one for each ordered pair of
//! cores; what each core shows to the others; who sleeps; and the end. Nobody waits for anybody. Knows no frame's
//! meaning.

mod board;
mod line;
mod ring;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use lowroad_net::Steering;

use board::Board;
use line::Line;
use ring::Ring;

pub use ring::FRAME_LEN_MAX;

/// Bytes of all rings to one core: they are shared by those that write.
const RINGS_LEN: usize = 512 << 10;
/// Bytes of a ring: room for a burst of long frames.
const RING_LEN_MAX: usize = 128 << 10;
/// Numbers that a core shows.
const NUMBERS_MAX: usize = 255;
/// Words of the log that a core shows.
pub const LOG_WORDS_MAX: usize = (6 << 10) + 4;

/// What a core counts of its frames for others.
#[derive(Clone, Copy)]
pub enum Traffic {
    /// Frames that were given to another core.
    Forwarded,
    /// Frames that another core had no room for.
    Dropped,
    /// ARP messages that not all cores were told, as there were too many.
    ArpLimited,
}

/// Names of [`Traffic`].
const TRAFFIC: [&str; 3] = [
    "cores_frames_forwarded",
    "cores_frames_dropped",
    "cores_arp_limited",
];

/// What belongs to one core: the others fill its rings and look at the rest.
struct Core {
    /// By who fills it, itself left out.
    rings: Box<[Ring]>,
    /// It may be asleep, so it wants to be woken.
    sleeps: Line<AtomicBool>,
    traffic: Line<[AtomicU64; TRAFFIC.len()]>,
    numbers: Board,
    log: Board,
}

/// Shared by all cores of a machine: made once, before the servers.
pub struct Cores {
    steering: Steering,
    cores: Box<[Core]>,
    /// Of the machine; shown by core 0.
    address: Board,
    is_stopping: Line<AtomicBool>,
    /// Bit n: core n has come to its end.
    done: Line<AtomicU64>,
}

impl Cores {
    /// More are not used: wakes are bits of a `u64`.
    pub const COUNT_MAX: u16 = 64;

    /// For so many cores, 1 to [`Cores::COUNT_MAX`]. Takes all memory that cores will share, up to 640 KiB for each:
    /// it is not part of what each [`crate::Machine`] gives. `secret` is random and new at each start.
    #[must_use]
    pub fn new(count: u16, secret: &[u8; 32]) -> Cores {
        let count = count.clamp(1, Cores::COUNT_MAX);
        let others = usize::from(count) - 1;
        let ring_len = RINGS_LEN
            .checked_div(others)
            .map_or(0, |len| (1 << len.ilog2()).min(RING_LEN_MAX));
        let core = |_| Core {
            rings: (0..others).map(|_| Ring::new(ring_len)).collect(),
            sleeps: Line::default(),
            traffic: Line::default(),
            numbers: Board::new(NUMBERS_MAX),
            log: Board::new(LOG_WORDS_MAX),
        };
        Cores {
            steering: Steering::new(secret, count),
            cores: (0..count).map(core).collect(),
            address: Board::new(2),
            is_stopping: Line::default(),
            done: Line::default(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.steering.count()
    }

    /// Says whose a connection is.
    pub fn steering(&self) -> Steering {
        self.steering
    }

    fn core(&self, core: u16) -> &Core {
        &self.cores[usize::from(core)]
    }

    /// The ring that `from` fills and `to` empties. There is none from a core to itself.
    fn ring(&self, from: u16, to: u16) -> Option<&Ring> {
        if from == to {
            return None;
        }
        let at = usize::from(from - u16::from(from > to));
        self.cores.get(usize::from(to))?.rings.get(at)
    }

    /// Gives a frame to another core. False: it has no room for it.
    pub fn put(&self, from: u16, to: u16, frame: &[u8], sum_is_good: bool) -> bool {
        self.ring(from, to)
            .is_some_and(|ring| ring.put(frame, sum_is_good))
    }

    /// Takes a frame that another core has given. Its length in `buffer`, and whether its sums are good.
    pub fn take(
        &self,
        from: u16,
        to: u16,
        buffer: &mut [u8; FRAME_LEN_MAX],
    ) -> Option<(usize, bool)> {
        self.ring(from, to)?.take(buffer)
    }

    /// Counts for a core; only by itself.
    pub fn count_one(&self, core: u16, traffic: Traffic) {
        let count = &self.core(core).traffic[traffic as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// What all cores have counted of their frames for others, by name.
    pub fn traffic(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TRAFFIC.into_iter().enumerate().map(|(at, name)| {
            let counts = self.cores.iter();
            let counts = counts.map(|core| core.traffic[at].load(Ordering::Relaxed));
            (name, counts.sum())
        })
    }

    /// The address, as [`crate::member`] writes it.
    pub fn address(&self) -> &Board {
        &self.address
    }

    /// What a core shows of its counters.
    pub fn numbers(&self, core: u16) -> &Board {
        &self.core(core).numbers
    }

    /// What a core shows of its log.
    pub fn log(&self, core: u16) -> &Board {
        &self.core(core).log
    }

    /// All cores but one, as bits.
    pub fn others(&self, core: u16) -> u64 {
        let all = u64::MAX >> (64 - u32::from(self.count()));
        all & !(1 << core)
    }

    /// Begins the end, for all.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the end has begun.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// A core has come to its end.
    pub fn set_done(&self, core: u16) {
        self.done.fetch_or(1 << core, Ordering::Relaxed);
    }

    /// Whether a core has come to its end.
    pub fn is_done(&self, core: u16) -> bool {
        self.done.load(Ordering::Relaxed) >> core & 1 != 0
    }

    /// Whether all cores have.
    pub fn are_done(&self) -> bool {
        self.done.load(Ordering::Relaxed).count_ones() == u32::from(self.count())
    }

    /// A core is about to sleep: from now on it wants to be woken for what it does not find when it looks once more,
    /// after this call.
    pub fn sleep(&self, core: u16) {
        self.core(core).sleeps.store(true, Ordering::Relaxed);
        // Pairs with that of `to_wake`: either this core finds what the other has written before that, or the other
        // finds that this one sleeps.
        fence(Ordering::SeqCst);
    }

    /// A core does not sleep, or not any more.
    pub fn wake(&self, core: u16) {
        self.core(core).sleeps.store(false, Ordering::Relaxed);
    }

    /// Of these cores, for which something was written before, those that have to be woken; each is told to one only.
    pub fn to_wake(&self, cores: u64) -> u64 {
        fence(Ordering::SeqCst);
        let mut left = cores;
        let mut wakes = 0;
        while left != 0 {
            let core = left.trailing_zeros();
            left &= left - 1;
            let sleeps = &self.core(core as u16).sleeps;
            if sleeps.load(Ordering::Relaxed) && sleeps.swap(false, Ordering::Relaxed) {
                wakes |= 1 << core;
            }
        }
        wakes
    }

    /// Whether other cores have given frames to this one.
    pub fn has_frames(&self, core: u16) -> bool {
        self.core(core).rings.iter().any(|ring| !ring.is_empty())
    }
}

/// Bytes as words, the last filled with zeros, behind their number.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = bytes.as_chunks::<8>();
    let last = rest
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte));
    let last = (!rest.is_empty()).then_some(last);
    let whole = whole.iter().map(|word| u64::from_le_bytes(*word));
    core::iter::once(bytes.len() as u64)
        .chain(whole)
        .chain(last)
}

/// Bytes that were written by [`words`], and the words behind them.
pub fn bytes(words: &[u64]) -> (Vec<u8>, &[u64]) {
    let Some((len, words)) = words.split_first() else {
        return (Vec::new(), &[]);
    };
    let len = (*len as usize).min(words.len() * 8);
    let (own, rest) = words.split_at(len.div_ceil(8));
    let mut bytes: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(len);
    (bytes, rest)
}

#[cfg(test)]
mod tests;
