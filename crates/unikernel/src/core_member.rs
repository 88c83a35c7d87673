//! One core among several: passes on foreign frames, publishes its state to the other cores, and reads theirs. A
//! machine with one core has none.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use lowroad_net::{FlowShare, FrameOwner, ReceivedFrame};

use crate::cores::{CoreSet, CrossCoreCounter, FRAME_LEN_MAX, words};
use crate::journal::RequestJournal;
use crate::machine_view::LOG_LEN_MAX;

/// The shortest interval of publishing counters and log.
const SHOW_EVERY_US: u64 = 100_000;
/// ARP messages in a second that one core passes to all others; further ones go to core 0 only, which answers.
const ARP_RATE: u32 = 100;
/// ARP messages in a second that one core passes on at all.
const ARP_RATE_MAX: u32 = 1000;
const SECOND_US: u64 = 1_000_000;
/// Frames taken from another core at once, so that own frames and timers are not delayed for long.
pub const BURST_MAX: usize = 64;

/// An address with prefix length and gateway, as used by the stack.
pub type StackAddress = Option<(Ipv4Addr, u8, Option<Ipv4Addr>)>;

/// The state of this core.
pub struct CoreMember {
    cores: &'static CoreSet,
    core: u16,
    /// Cores with work written for them since the last wake-ups; bit n is core n.
    pending_wakes: u64,
    /// The version of the address that was applied.
    address_version: u64,
    published_address: StackAddress,
    /// The current second, and the ARP messages that were passed on in it.
    arp: (u64, u32),
    /// The time of the last publishing, and the published values.
    published_us: u64,
    published_frames: u64,
    published: Vec<u64>,
    published_log_mark: [u64; 3],
    /// Memory for the next values.
    next: Vec<u64>,
    /// Holds another core's frame while the stack processes it.
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

    /// The core's share of the connections, for its stack.
    pub fn share(&self) -> FlowShare {
        FlowShare {
            steering: self.cores.steering(),
            core: self.core,
        }
    }

    /// Whether this core processes a frame; passes it on if it belongs to another core or to all.
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
        // Even if the ring is full: the core must be awake to empty it.
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
        // The limit counts each second anew.
        if self.arp.0 != second {
            self.arp = (second, 0);
        }
        let mut targets = self.cores.other_cores(self.core);
        // All cores learn from ARP requests; a flood of them must not occupy all cores.
        if self.arp.1 >= ARP_RATE {
            self.cores
                .increment(self.core, CrossCoreCounter::ArpLimited);
            // Above the first limit bit 0 is left, for core 0; above the second none.
            targets &= u64::from(self.arp.1 < ARP_RATE_MAX);
        }
        self.arp.1 = self.arp.1.saturating_add(1);
        while targets != 0 {
            self.forward(targets.trailing_zeros() as u16, received);
            targets &= targets - 1;
        }
    }

    /// Takes a frame of another core into `buffer`; returns its length, and whether its checksums are good.
    #[inline]
    pub fn take(&mut self, from: u16) -> Option<(usize, bool)> {
        self.cores.take(from, self.core, &mut self.buffer)
    }

    /// The number of cores.
    pub fn count(&self) -> u16 {
        self.cores.count()
    }

    /// Whether this core answers for the machine.
    pub fn is_leader(&self) -> bool {
        self.core == 0
    }

    /// The machine's address, if core 0 has published another one since the last call.
    pub fn poll_address(&mut self) -> Option<StackAddress> {
        let board = self.cores.address();
        if self.is_leader() || board.version() == self.address_version {
            return None;
        }
        let mut words = Vec::new();
        self.address_version = board.read(&mut words);
        Some(address_of(&words))
    }

    /// Publishes the machine's address to the other cores if it changed.
    pub fn publish_address(&mut self, address: StackAddress) {
        if self.is_leader() && self.published_address != address {
            self.published_address = address;
            let words = words_of(address);
            self.cores.address().publish(words.into_iter().flatten());
            self.pending_wakes |= self.cores.other_cores(self.core);
        }
    }

    /// The time from which counters and log may be published again.
    #[inline]
    pub fn publish_due_us(&self) -> u64 {
        self.published_us + SHOW_EVERY_US
    }

    /// Whether there were frames since the last publishing; `frames` is their total.
    #[inline]
    pub fn has_new_frames(&self, frames: u64) -> bool {
        frames != self.published_frames
    }

    /// Publishes counters and log if they changed.
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
        // Nothing has changed: an idle machine writes no shared memory.
        if self.next == self.published {
            return;
        }
        core::mem::swap(&mut self.next, &mut self.published);
        self.cores
            .numbers(self.core)
            .publish(self.published.iter().copied());
        let mark = journal.mark();
        // The log is copied only if it has grown.
        if self.published_log_mark != mark {
            self.published_log_mark = mark;
            let [old, new] = journal.newest(LOG_LEN_MAX);
            self.cores
                .log(self.core)
                .publish(words(old).chain(words(new)));
        }
    }

    /// The cores that need a wake-up.
    #[inline]
    pub fn take_wakes(&mut self) -> u64 {
        match core::mem::take(&mut self.pending_wakes) {
            0 => 0,
            cores => self.cores.to_wake(cores),
        }
    }

    /// Announces that this core will sleep. False: there is work, and it must not sleep.
    pub fn prepare_sleep(&self, is_stopping: bool) -> bool {
        let cores = self.cores;
        cores.sleep(self.core);
        let has_new_address =
            !self.is_leader() && cores.address().version() != self.address_version;
        let has_end = cores.is_stopping() != is_stopping || cores.are_done();
        // Checked after the flag was set: work that arrives later causes a wake-up.
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

    /// Marks this core as finished, and wakes the others if it is the last.
    pub fn set_done(&mut self) {
        if self.cores.is_done(self.core) {
            return;
        }
        self.cores.set_done(self.core);
        // The other cores may sleep until all have finished.
        if self.cores.are_done() {
            self.pending_wakes |= self.cores.other_cores(self.core);
        }
    }

    /// Whether all cores have finished.
    pub fn are_done(&self) -> bool {
        self.cores.are_done()
    }
}

/// Encodes an address in two words: address, gateway flag and prefix length; then the gateway.
fn words_of(address: StackAddress) -> Option<[u64; 2]> {
    let (address, prefix_len, gateway) = address?;
    let has_gateway = u64::from(gateway.is_some());
    Some([
        u64::from(address.to_bits()) << 32 | has_gateway << 8 | u64::from(prefix_len),
        u64::from(gateway.map_or(0, Ipv4Addr::to_bits)),
    ])
}

fn address_of(words: &[u64]) -> StackAddress {
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
    fn addresses_are_told_as_they_are() {
        let gateway = Some(Ipv4Addr::new(10, 0, 0, 254));
        for address in [
            None,
            Some((Ipv4Addr::new(192, 0, 2, 1), 32, None)),
            Some((Ipv4Addr::new(255, 0, 2, 1), 0, gateway)),
            Some((Ipv4Addr::UNSPECIFIED, 24, Some(Ipv4Addr::UNSPECIFIED))),
        ] {
            let words: Vec<u64> = words_of(address).into_iter().flatten().collect();
            assert_eq!(address_of(&words), address);
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
    fn who_has_something_to_do_does_not_sleep() {
        let mut all = members(3);
        let [first, second, third] = &mut all[..] else {
            panic!("three");
        };
        assert!(second.prepare_sleep(false) && third.prepare_sleep(false));
        // A sleeping core is woken for a frame, once.
        assert!(!first.accept_or_forward(FrameOwner::Core(1), 0, FRAME));
        assert!(!first.prepare_sleep(false), "others are to be woken first");
        assert_eq!((first.take_wakes(), first.take_wakes()), (0b010, 0));
        assert!(first.prepare_sleep(false));
        // It does not sleep again before it has taken the frame.
        second.on_wake();
        assert!(!second.prepare_sleep(false));
        assert_eq!(second.take(0), Some((60, true)));
        assert!(second.prepare_sleep(false));
        // A new address is work for all cores.
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
    fn the_end_wakes_all_twice() {
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
    fn arp_is_told_to_all_and_much_of_it_to_the_first() {
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
