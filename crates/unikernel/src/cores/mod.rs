//! The state that the cores of a machine share, apart from the read-only site: a ring of frames for each ordered pair
//! of cores, the published counters and logs, the sleep flags, and the state of the shutdown. All operations are
//! wait-free.

mod board;
mod cache_line;
mod ring;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use lowroad_net::FlowSteering;

use board::StatusBoard;
use cache_line::CacheLine;
use ring::FrameRing;

pub use ring::FRAME_LEN_MAX;

/// Total length in bytes of all rings to one core.
const RINGS_LEN: usize = 512 << 10;
/// Maximum length of a ring in bytes: enough for a burst of long frames.
const RING_LEN_MAX: usize = 128 << 10;
/// Maximum number of counters that a core publishes.
const NUMBERS_MAX: usize = 255;
/// Maximum number of words of the log that a core publishes.
pub const LOG_WORDS_MAX: usize = (6 << 10) + 4;

/// Counters of frames between cores.
#[derive(Clone, Copy)]
pub enum CrossCoreCounter {
    /// Frames that were passed to another core.
    Forwarded,
    /// Frames that were dropped because the ring to another core was full.
    Dropped,
    /// ARP messages that were not forwarded to all cores because of the rate limit.
    ArpLimited,
}

/// The names of the counters of `CrossCoreCounter`.
const TRAFFIC: [&str; 3] = [
    "cores_frames_forwarded",
    "cores_frames_dropped",
    "cores_arp_limited",
];

/// The shared state of one core: the other cores write to its rings and read the rest.
struct CoreState {
    /// Rings to this core, in the order of the writing cores; a core has none to itself.
    rings: Box<[FrameRing]>,
    /// Whether the core may be asleep, so that it must be woken for work.
    is_asleep: CacheLine<AtomicBool>,
    traffic: CacheLine<[AtomicU64; TRAFFIC.len()]>,
    numbers: StatusBoard,
    log: StatusBoard,
}

/// The shared state of all cores. It is created once, before the servers.
pub struct CoreSet {
    steering: FlowSteering,
    cores: Box<[CoreState]>,
    /// The machine's address, published by core 0.
    address: StatusBoard,
    is_stopping: CacheLine<AtomicBool>,
    /// Cores that have finished their shutdown. Bit n is core n.
    done: CacheLine<AtomicU64>,
}

impl CoreSet {
    /// Maximum number of cores: sets of cores are the bits of a `u64`.
    pub const COUNT_MAX: u16 = 64;

    /// Creates the state for `count` cores, 1 to `CoreSet::COUNT_MAX`. Allocates all shared memory: up to 640 KiB for
    /// each core, in addition to the memory in `MachineSetup`. `secret` is random and new at each start.
    #[must_use]
    pub fn new(count: u16, secret: &[u8; 32]) -> CoreSet {
        let count = count.clamp(1, CoreSet::COUNT_MAX);
        let other_count = usize::from(count) - 1;
        // The largest power of two that fits into an equal share.
        let ring_len = RINGS_LEN
            .checked_div(other_count)
            .map_or(0, |len| (1 << len.ilog2()).min(RING_LEN_MAX));
        let core = |_| CoreState {
            rings: (0..other_count).map(|_| FrameRing::new(ring_len)).collect(),
            is_asleep: CacheLine::default(),
            traffic: CacheLine::default(),
            numbers: StatusBoard::new(NUMBERS_MAX),
            log: StatusBoard::new(LOG_WORDS_MAX),
        };
        CoreSet {
            steering: FlowSteering::new(secret, count),
            cores: (0..count).map(core).collect(),
            address: StatusBoard::new(2),
            is_stopping: CacheLine::default(),
            done: CacheLine::default(),
        }
    }

    /// The number of cores.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.steering.count()
    }

    /// Assigns connections to cores.
    pub fn steering(&self) -> FlowSteering {
        self.steering
    }

    fn core(&self, core: u16) -> &CoreState {
        &self.cores[usize::from(core)]
    }

    /// The ring that `from` writes and `to` reads; `None` if both are the same core.
    fn ring(&self, from: u16, to: u16) -> Option<&FrameRing> {
        if from == to {
            return None;
        }
        // The rings of a reader are indexed by writer, without the reader itself.
        let at = usize::from(from - u16::from(from > to));
        self.cores.get(usize::from(to))?.rings.get(at)
    }

    /// Passes a frame to another core. Returns false if the ring is full.
    pub fn push_frame(&self, from: u16, to: u16, frame: &[u8], sum_is_good: bool) -> bool {
        self.ring(from, to)
            .is_some_and(|ring| ring.push(frame, sum_is_good))
    }

    /// Copies the next frame from core `from` into `buffer`. Returns its length, and whether its checksums are known to
    /// be correct.
    pub fn take(
        &self,
        from: u16,
        to: u16,
        buffer: &mut [u8; FRAME_LEN_MAX],
    ) -> Option<(usize, bool)> {
        self.ring(from, to)?.take(buffer)
    }

    /// Increments a counter of the calling core.
    pub fn increment(&self, core: u16, traffic: CrossCoreCounter) {
        // Load and store suffice: each counter has one writer.
        let count = &self.core(core).traffic[traffic as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The sums of the counters of all cores, by name.
    pub fn traffic(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TRAFFIC.into_iter().enumerate().map(|(at, name)| {
            let counts = self.cores.iter();
            let counts = counts.map(|core| core.traffic[at].load(Ordering::Relaxed));
            (name, counts.sum())
        })
    }

    /// The machine's address, as encoded by `core_member`.
    pub fn address(&self) -> &StatusBoard {
        &self.address
    }

    /// The published counters of a core.
    pub fn numbers(&self, core: u16) -> &StatusBoard {
        &self.core(core).numbers
    }

    /// The published log of a core.
    pub fn log(&self, core: u16) -> &StatusBoard {
        &self.core(core).log
    }

    /// The set of all cores except one.
    pub fn other_cores(&self, core: u16) -> u64 {
        let all = u64::MAX >> (64 - u32::from(self.count()));
        all & !(1 << core)
    }

    /// Begins the shutdown of all cores.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the shutdown has begun.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Marks a core as finished.
    pub fn set_done(&self, core: u16) {
        // No other data are published with the flag, so it needs no ordering.
        self.done.fetch_or(1 << core, Ordering::Relaxed);
    }

    /// Whether a core has finished.
    pub fn is_done(&self, core: u16) -> bool {
        self.done.load(Ordering::Relaxed) >> core & 1 != 0
    }

    /// Whether all cores have finished.
    pub fn are_done(&self) -> bool {
        self.done.load(Ordering::Relaxed).count_ones() == u32::from(self.count())
    }

    /// Marks a core as going to sleep. The caller must check for work once more after this call; for work that arrives
    /// later, the core is woken.
    pub fn sleep(&self, core: u16) {
        self.core(core).is_asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `take_sleeping` (as in Dekker's algorithm): either this core sees the work that the
        // other core wrote, or the other core sees this flag.
        fence(Ordering::SeqCst);
    }

    /// Marks a core as awake.
    pub fn wake(&self, core: u16) {
        self.core(core).is_asleep.store(false, Ordering::Relaxed);
    }

    /// The cores among `cores` that must be woken; called after work was written for them. If several callers ask for
    /// the same core, only one of them gets it.
    pub fn take_sleeping(&self, cores: u64) -> u64 {
        // The work was written before this fence; see `sleep`.
        fence(Ordering::SeqCst);
        let mut remaining = cores;
        let mut wakes = 0;
        while remaining != 0 {
            let core = remaining.trailing_zeros();
            remaining &= remaining - 1;
            let is_asleep = &self.core(core as u16).is_asleep;
            // The load keeps the cache line shared while the core is awake. The swap ensures that only one caller wakes
            // the core.
            if is_asleep.load(Ordering::Relaxed) && is_asleep.swap(false, Ordering::Relaxed) {
                wakes |= 1 << core;
            }
        }
        wakes
    }

    /// Whether other cores have passed frames to this one.
    pub fn has_frames(&self, core: u16) -> bool {
        self.core(core).rings.iter().any(|ring| !ring.is_empty())
    }
}

/// Converts bytes to words. The first word is the number of bytes; the last one is padded with zeros.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (full, rest) = bytes.as_chunks::<8>();
    let last = rest
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte));
    let last = (!rest.is_empty()).then_some(last);
    let full = full.iter().map(|word| u64::from_le_bytes(*word));
    // The length precedes the bytes, since the last word may be padded.
    core::iter::once(bytes.len() as u64).chain(full).chain(last)
}

/// Converts the result of [`words`] back to bytes. Also returns the words after them.
pub fn bytes(words: &[u64]) -> (Vec<u8>, &[u64]) {
    let Some((len, words)) = words.split_first() else {
        return (Vec::new(), &[]);
    };
    // The words may be truncated, so that there are fewer than the length says.
    let len = (*len as usize).min(words.len() * 8);
    let (payload, rest) = words.split_at(len.div_ceil(8));
    let mut bytes: Vec<u8> = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(len);
    (bytes, rest)
}

#[cfg(test)]
mod tests;
