//! The part of one core in a machine with several cores: forwards frames to the cores that own them, publishes the
//! state of this core, and reads the state of the others. It does not exist on a machine with one core.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use lowroad_net::{FlowShare, FrameOwner, ReceivedFrame};

use crate::cores::{CoreSet, CrossCoreCounter, FRAME_LEN_MAX, words};
use crate::journal::RequestJournal;
use crate::machine_view::LOG_LEN_MAX;

/// Minimum interval between publications of counters and log.
const PUBLISH_INTERVAL_US: u64 = 100_000;
/// Maximum number of ARP messages per second that a core forwards to all others. Further ones are forwarded only to
/// core 0, which answers ARP requests.
const ARP_RATE: u32 = 100;
/// Maximum number of ARP messages per second that a core forwards to core 0. Further ones are not forwarded.
const ARP_RATE_MAX: u32 = 1000;
const SECOND_US: u64 = 1_000_000;
/// Maximum number of frames that are taken from another core in a row, so that this core's own frames and timers are
/// not delayed for long.
pub const BURST_MAX: usize = 64;

/// An address with its prefix length and gateway, as the stack uses it.
pub type StackAddress = Option<(Ipv4Addr, u8, Option<Ipv4Addr>)>;

/// The state of this core.
pub struct CoreMember {
    cores: &'static CoreSet,
    core: u16,
    /// Cores to which work was passed since the last wake-ups. Bit n is core n.
    pending_wakes: u64,
    /// The version of the machine's address that this core has applied.
    address_version: u64,
    published_address: StackAddress,
    /// The current second, and the number of ARP messages that were forwarded in it.
    arp: (u64, u32),
    /// The time of the last publication, and the values that were published.
    published_us: u64,
    published_frames: u64,
    published: Vec<u64>,
    published_log_mark: [u64; 3],
    /// Reused memory for the values to be published next.
    next: Vec<u64>,
    /// Holds a frame of another core while the stack processes it.
    pub buffer: Box<[u8; FRAME_LEN_MAX]>,
}

impl CoreMember {
    /// The state of core number `core`.
    pub fn new(cores: &'static CoreSet, core: u16) -> CoreMember {
        CoreMember {
            cores,
            core,
            pending_wakes: 0,
            address_version: 0,
            published_address: None,
            arp: (0, 0),
            published_us: 0,
            published_frames: 0,
            published: Vec::new(),
            published_log_mark: [0; 3],
            next: Vec::new(),
            buffer: Box::new([0; FRAME_LEN_MAX]),
        }
    }

    /// Which connections belong to this core, for its stack.
    pub fn share(&self) -> FlowShare {
        FlowShare {
            steering: self.cores.steering(),
            core: self.core,
        }
    }

    /// Returns whether this core must process a frame. Forwards the frame if it belongs to another core or to all.
    #[inline]
    pub fn accept_or_forward(
        &mut self,
        owner: FrameOwner,
        now_us: u64,
        received: ReceivedFrame<'_>,
    ) -> bool {
        match owner {
            FrameOwner::Here => true,
            FrameOwner::Core(core) if core == self.core => true,
            FrameOwner::Core(core) => {
                self.forward(core, received);
                false
            }
            FrameOwner::All => {
                self.forward_to_all(now_us, received);
                true
            }
        }
    }

    fn forward(&mut self, core: u16, received: ReceivedFrame<'_>) {
        let ReceivedFrame { frame, sum_is_good } = received;
        let is_forwarded = self.cores.push_frame(self.core, core, frame, sum_is_good);
        // The core is woken even if its ring is full, since it must be awake to empty the ring.
        self.pending_wakes |= 1 << core;
        self.cores.increment(
            self.core,
            match is_forwarded {
                true => CrossCoreCounter::Forwarded,
                false => CrossCoreCounter::Dropped,
            },
        );
    }

    fn forward_to_all(&mut self, now_us: u64, received: ReceivedFrame<'_>) {
        let second = now_us / SECOND_US;
        // The limits apply to each second separately.
        if self.arp.0 != second {
            self.arp = (second, 0);
        }
        let mut targets = self.cores.other_cores(self.core);
        // All cores learn addresses from ARP requests, but a flood of them must not occupy all cores.
        if self.arp.1 >= ARP_RATE {
            self.cores
                .increment(self.core, CrossCoreCounter::ArpLimited);
            // Above the first limit only bit 0 remains, for core 0; above the second limit none.
            targets &= u64::from(self.arp.1 < ARP_RATE_MAX);
        }
        self.arp.1 = self.arp.1.saturating_add(1);
        while targets != 0 {
            self.forward(targets.trailing_zeros() as u16, received);
            targets &= targets - 1;
        }
    }

    /// Copies the next frame of core `from` into `buffer`. Returns its length, and whether its checksums are known to
    /// be correct.
    #[inline]
    pub fn take(&mut self, from: u16) -> Option<(usize, bool)> {
        self.cores.take(from, self.core, &mut self.buffer)
    }

    /// The number of cores.
    pub fn count(&self) -> u16 {
        self.cores.count()
    }

    /// Whether this is core 0, which answers ARP, runs the DHCP client and reports to the console.
    pub fn is_leader(&self) -> bool {
        self.core == 0
    }

    /// The machine's address, if core 0 has published a new one since the last call.
    pub fn poll_address(&mut self) -> Option<StackAddress> {
        let board = self.cores.address();
        if self.is_leader() || board.version() == self.address_version {
            return None;
        }
        let mut words = Vec::new();
        self.address_version = board.read(&mut words);
        Some(decode_address(&words))
    }

    /// Publishes the machine's address to the other cores if it changed.
    pub fn publish_address(&mut self, address: StackAddress) {
        if self.is_leader() && self.published_address != address {
            self.published_address = address;
            let words = encode_address(address);
            self.cores.address().publish(words.into_iter().flatten());
            self.pending_wakes |= self.cores.other_cores(self.core);
        }
    }

    /// The earliest time of the next publication of counters and log.
    #[inline]
    pub fn publish_due_us(&self) -> u64 {
        self.published_us + PUBLISH_INTERVAL_US
    }

    /// Whether frames were processed since the last publication; `frames` is their total number.
    #[inline]
    pub fn has_new_frames(&self, frames: u64) -> bool {
        frames != self.published_frames
    }

    /// Publishes counters and log if they have changed.
    pub fn publish(
        &mut self,
        now_us: u64,
        frames: u64,
        numbers: impl Iterator<Item = (&'static str, u64)>,
        journal: &RequestJournal,
    ) {
        self.published_us = now_us;
        self.published_frames = frames;
        self.next.clear();
        self.next.extend(numbers.map(|(_, number)| number));
        // If nothing has changed, no shared memory is written.
        if self.next == self.published {
            return;
        }
        core::mem::swap(&mut self.next, &mut self.published);
        self.cores
            .numbers(self.core)
            .publish(self.published.iter().copied());
        let mark = journal.mark();
        // The log is copied only if it has new records.
        if self.published_log_mark != mark {
            self.published_log_mark = mark;
            let [old, new] = journal.newest(LOG_LEN_MAX);
            self.cores
                .log(self.core)
                .publish(words(old).chain(words(new)));
        }
    }

    /// Returns the cores that must be woken, and clears the set.
    #[inline]
    pub fn take_wakes(&mut self) -> u64 {
        match core::mem::take(&mut self.pending_wakes) {
            0 => 0,
            cores => self.cores.take_sleeping(cores),
        }
    }

    /// Announces that this core is going to sleep. Returns false if work has arrived: then the core must not sleep.
    pub fn prepare_sleep(&self, is_stopping: bool) -> bool {
        let cores = self.cores;
        cores.sleep(self.core);
        let has_new_address =
            !self.is_leader() && cores.address().version() != self.address_version;
        let has_end = cores.is_stopping() != is_stopping || cores.are_done();
        // Work is checked after the flag was set: for work that arrives later, the other core sends a wake-up.
        let is_busy =
            self.pending_wakes != 0 || cores.has_frames(self.core) || has_new_address || has_end;
        if is_busy {
            cores.wake(self.core);
        }
        !is_busy
    }

    /// Announces that this core is awake.
    pub fn on_wake(&self) {
        self.cores.wake(self.core);
    }

    /// Begins the shutdown of all cores.
    pub fn stop(&mut self) {
        // Only the first call wakes the others.
        if !self.cores.is_stopping() {
            self.cores.stop();
            self.pending_wakes |= self.cores.other_cores(self.core);
        }
    }

    /// Whether the shutdown has begun on any core.
    pub fn is_stopping(&self) -> bool {
        self.cores.is_stopping()
    }

    /// Marks the shutdown of this core as finished. The last core wakes the others.
    pub fn set_done(&mut self) {
        if self.cores.is_done(self.core) {
            return;
        }
        self.cores.set_done(self.core);
        // The other cores may be asleep until all have finished.
        if self.cores.are_done() {
            self.pending_wakes |= self.cores.other_cores(self.core);
        }
    }

    /// Whether the shutdown of all cores has finished.
    pub fn are_done(&self) -> bool {
        self.cores.are_done()
    }
}

/// Encodes an address in two words. The first has the address, a flag for the gateway, and the prefix length; the
/// second has the gateway.
fn encode_address(address: StackAddress) -> Option<[u64; 2]> {
    let (address, prefix_len, gateway) = address?;
    let has_gateway = u64::from(gateway.is_some());
    Some([
        u64::from(address.to_bits()) << 32 | has_gateway << 8 | u64::from(prefix_len),
        u64::from(gateway.map_or(0, Ipv4Addr::to_bits)),
    ])
}

fn decode_address(words: &[u64]) -> StackAddress {
    let [packed, gateway] = *words.first_chunk()?;
    let has_gateway = packed >> 8 & 1 != 0;
    Some((
        Ipv4Addr::from_bits((packed >> 32) as u32),
        packed as u8,
        has_gateway.then_some(Ipv4Addr::from_bits(gateway as u32)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_survives_encoding_in_words() {
        let gateway = Some(Ipv4Addr::new(10, 0, 0, 254));
        for address in [
            None,
            Some((Ipv4Addr::new(192, 0, 2, 1), 32, None)),
            Some((Ipv4Addr::new(255, 0, 2, 1), 0, gateway)),
            Some((Ipv4Addr::UNSPECIFIED, 24, Some(Ipv4Addr::UNSPECIFIED))),
        ] {
            let words: Vec<u64> = encode_address(address).into_iter().flatten().collect();
            assert_eq!(decode_address(&words), address);
        }
    }
    fn members(count: u16) -> Vec<CoreMember> {
        let cores: &'static CoreSet = Box::leak(Box::new(CoreSet::new(count, &[3; 32])));
        (0..count)
            .map(|core| CoreMember::new(cores, core))
            .collect()
    }

    const FRAME: ReceivedFrame<'static> = ReceivedFrame {
        frame: &[7; 60],
        sum_is_good: true,
    };

    #[test]
    fn core_with_pending_work_does_not_sleep() {
        let mut all = members(3);
        let [first, second, third] = &mut all[..] else {
            panic!("three");
        };
        assert!(second.prepare_sleep(false) && third.prepare_sleep(false));
        // A sleeping core is woken for a frame, but only once.
        assert!(!first.accept_or_forward(FrameOwner::Core(1), 0, FRAME));
        assert!(!first.prepare_sleep(false), "others are to be woken first");
        assert_eq!((first.take_wakes(), first.take_wakes()), (0b010, 0));
        assert!(first.prepare_sleep(false));
        // The core can't sleep again before it has taken the frame.
        second.on_wake();
        assert!(!second.prepare_sleep(false));
        assert_eq!(second.take(0), Some((60, true)));
        assert!(second.prepare_sleep(false));
        // A new address is work for all other cores.
        first.publish_address(Some((Ipv4Addr::LOCALHOST, 8, None)));
        assert!(!second.prepare_sleep(false));
        assert_eq!(first.take_wakes(), 0b100, "the second does not sleep");
        assert_eq!(
            second.poll_address(),
            Some(Some((Ipv4Addr::LOCALHOST, 8, None)))
        );
        assert_eq!(second.poll_address(), None);
        assert!(second.prepare_sleep(false) && !third.prepare_sleep(false));
        first.publish_address(None);
        assert_eq!(third.poll_address(), Some(None));
    }

    #[test]
    fn shutdown_wakes_all_cores_at_start_and_at_end() {
        let mut all = members(3);
        let may_sleep = |all: &[CoreMember], is_stopping| {
            all.iter()
                .map(|one| one.prepare_sleep(is_stopping))
                .collect::<Vec<_>>()
        };
        assert_eq!(may_sleep(&all, false), [true; 3]);
        all[1].stop();
        assert_eq!(all[1].take_wakes(), 0b101);
        assert_eq!(may_sleep(&all, false), [false; 3]);
        assert_eq!(may_sleep(&all, true), [true; 3]);
        all[0].set_done();
        all[2].set_done();
        assert_eq!((all[0].take_wakes(), all[2].take_wakes()), (0, 0));
        assert_eq!(may_sleep(&all, true), [true; 3]);
        all[1].set_done();
        assert_eq!(all[1].take_wakes(), 0b101);
        assert_eq!(may_sleep(&all, true), [false; 3]);
    }

    #[test]
    fn arp_is_forwarded_to_all_cores_up_to_limit_then_to_core_0() {
        let mut all = members(4);
        for number in 0..2000 {
            assert!(all[2].accept_or_forward(FrameOwner::All, 5 * SECOND_US + number, FRAME));
        }
        let mut taken = [0; 4];
        for (core, member) in all.iter_mut().enumerate() {
            while member.take(2).is_some() {
                taken[core] += 1;
            }
        }
        assert_eq!(taken, [1000, 100, 0, 100]);
        let limited = all[0].cores.traffic().map(|(_, count)| count);
        assert_eq!(limited.collect::<Vec<_>>(), [1200, 0, 1900]);
        assert!(all[2].accept_or_forward(FrameOwner::All, 6 * SECOND_US, FRAME));
        assert!(all[1].take(2).is_some());
    }
}
