//! One direction of a mangled link: decides which frames are lost, duplicated, delayed and reordered.
//!
//! Sans-IO: frames and the time are arguments, and `LinkLane::ready` returns due frames. The decision for frame n of a
//! lane depends only on the seed and n ([`fate`]); which frame has which number depends on the kernels at both ends.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::draws::RandomDraws;
use super::frame::{self, SynEdits};

/// A frame that is held for reordering is released after this time even if too few frames follow.
const HOLD_MAX: Duration = Duration::from_millis(30);

/// Maximum number of queued frames; further ones are dropped.
const QUEUE_LEN_MAX: usize = 20_000;

/// The mangling of one direction. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ManglingRule {
    /// The percentage of frames that are lost.
    pub loss_percent: f64,
    /// The percentage of frames that arrive twice, in direct succession.
    pub duplication_percent: f64,
    /// The percentage of frames that are held until a few later ones have passed.
    pub reorder_percent: f64,
    /// Maximum number of later frames that overtake a held one (0 counts as 3).
    pub reorder_frames_max: usize,
    /// The delay of each frame.
    pub delay_ms: u64,
    /// Maximum random addition to the delay. Jitter never reorders frames.
    pub jitter_ms: u64,
    /// The edits of SYN options.
    pub syn: SynEdits,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Frames received, except those of address resolution.
    pub frames: u64,
    /// Lost frames.
    pub lost: u64,
    /// Duplicated frames.
    pub duplicated: u64,
    /// Reordered frames.
    pub reordered: u64,
    /// SYNs with edited options.
    pub edited: u64,
    /// Frames above the MTU: the sender's offloads are enabled, or a program has built too long frames.
    pub oversize: u64,
    /// TCP segments received with a wrong checksum, which are forwarded.
    pub bad_checksums: u64,
    /// Resets received.
    pub resets: u64,
    /// Frames lost because the lane or the outgoing device was full.
    pub overflowed: u64,
}

/// The decision for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFate {
    /// The number of copies that are forwarded: 0, 1 or 2.
    pub copies: u8,
    /// The number of later frames that are forwarded first, if they arrive in time.
    pub behind_frames: u64,
    /// The addition to `delay_ms`.
    pub jitter: Duration,
}

/// The decision for frame `n` of a lane with this seed.
pub fn fate(mangling: &ManglingRule, seed: u64, n: u64) -> FrameFate {
    // Each frame has its own sequence of random numbers, so decisions do not depend on those for earlier frames.
    let mut draws = RandomDraws::new(seed, n);
    // All numbers are drawn for each frame, so that changing one setting does not change decisions about the others.
    let lost = draws.percent(mangling.loss_percent);
    let is_duplicated = draws.percent(mangling.duplication_percent);
    let is_delayed = draws.percent(mangling.reorder_percent);
    let frames_max = match mangling.reorder_frames_max {
        0 => 3,
        frames => frames,
    };
    let behind_frames = draws.below(frames_max) as u64 + 1;
    let jitter_us = draws.number() % (mangling.jitter_ms * 1000 + 1);
    FrameFate {
        copies: if lost { 0 } else { 1 + u8::from(is_duplicated) },
        behind_frames: if is_delayed { behind_frames } else { 0 },
        jitter: Duration::from_micros(jitter_us),
    }
}

/// One direction of a link.
pub struct LinkLane {
    mangling: ManglingRule,
    seed: u64,
    frame_len_max: usize,
    counts: LaneCounts,
    /// Frames in transit, ordered by the time at which they are due.
    queue: VecDeque<(Duration, Vec<u8>)>,
    /// Frames held for reordering, by the number of the frame that releases them and their own number.
    delayed: BTreeMap<(u64, u64), DelayedFrame>,
}

struct DelayedFrame {
    frame: Vec<u8>,
    copies: u8,
    release_at: Duration,
}

impl LinkLane {
    /// An empty lane of a link with this MTU.
    pub fn new(mangling: ManglingRule, seed: u64, mtu: u16) -> LinkLane {
        LinkLane {
            mangling,
            seed,
            frame_len_max: usize::from(mtu) + 14,
            counts: LaneCounts::default(),
            queue: VecDeque::new(),
            delayed: BTreeMap::new(),
        }
    }

    /// The counters so far.
    pub fn counts(&self) -> LaneCounts {
        self.counts
    }

    /// Adds a frame that arrived at `now` (the time since any fixed point).
    pub fn receive(&mut self, now: Duration, mut frame: Vec<u8>) {
        // Frames of address resolution are not counted either, as their number varies between runs.
        if frame::resolves_addresses(&frame) {
            self.send(now, frame, 1, Duration::ZERO);
            return;
        }
        let n = self.counts.frames;
        self.counts.frames += 1;
        // Frames are inspected before the decision, as frames that will be lost were sent, too.
        self.inspect(&mut frame);
        let fate = fate(&self.mangling, self.seed, n);
        self.count(fate);
        if fate.copies > 0 && fate.behind_frames > 0 {
            let delayed = DelayedFrame {
                frame,
                copies: fate.copies,
                release_at: now + HOLD_MAX,
            };
            // The key orders frames by their release, then by their arrival.
            self.delayed.insert((n + fate.behind_frames, n), delayed);
        } else {
            self.send(now, frame, fate.copies, fate.jitter);
        }
        self.release(now, n);
    }

    /// The next frame that is due at `now`.
    pub fn ready(&mut self, now: Duration) -> Option<Vec<u8>> {
        // Held frames are released even if no further frames arrive.
        self.release_expired(now);
        if self.queue.front().is_none_or(|(due, _)| *due > now) {
            return None;
        }
        self.queue.pop_front().map(|(_, frame)| frame)
    }

    /// Reports that the device did not accept a frame returned by `ready`.
    pub fn record_overflow(&mut self) {
        self.counts.overflowed += 1;
    }

    /// The time of the next due frame.
    pub fn next_due(&self) -> Option<Duration> {
        let delayed = self.delayed.values().map(|delayed| delayed.release_at);
        delayed.chain(self.queue.front().map(|(due, _)| *due)).min()
    }

    fn inspect(&mut self, frame: &mut [u8]) {
        self.counts.oversize += u64::from(frame.len() > self.frame_len_max);
        let Some(segment) = frame::segment(frame) else {
            return;
        };
        self.counts.resets += u64::from(segment.rst);
        self.counts.bad_checksums += u64::from(!frame::checksums_hold(frame, &segment));
        self.counts.edited += u64::from(frame::edit_syn(frame, &segment, &self.mangling.syn));
    }

    fn count(&mut self, fate: FrameFate) {
        let is_forwarded = fate.copies > 0;
        self.counts.lost += u64::from(!is_forwarded);
        self.counts.duplicated += u64::from(fate.copies > 1);
        self.counts.reordered += u64::from(is_forwarded && fate.behind_frames > 0);
    }

    /// Releases the frames that were held until frame `n` has passed.
    fn release(&mut self, now: Duration, n: u64) {
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= n
        {
            let delayed = first.remove();
            self.send(now, delayed.frame, delayed.copies, Duration::ZERO);
        }
    }

    fn release_expired(&mut self, now: Duration) {
        let is_expired = |(_, delayed): &(&(u64, u64), &DelayedFrame)| delayed.release_at <= now;
        while let Some((&key, _)) = self.delayed.iter().find(is_expired) {
            let delayed = self.delayed.remove(&key).expect("just found");
            self.send(now, delayed.frame, delayed.copies, Duration::ZERO);
        }
    }

    fn send(&mut self, now: Duration, frame: Vec<u8>, copies: u8, jitter: Duration) {
        let due = now + Duration::from_millis(self.mangling.delay_ms) + jitter;
        // Jitter must not reorder frames.
        let due = self.queue.back().map_or(due, |(last, _)| due.max(*last));
        for _ in 0..copies {
            if self.queue.len() < QUEUE_LEN_MAX {
                self.queue.push_back((due, frame.clone()));
            } else {
                self.counts.overflowed += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
