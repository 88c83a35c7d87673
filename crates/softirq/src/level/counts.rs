//! The level's counters, written by the programs and the daemon.

use std::mem::offset_of;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};

use super::SoftirqLevel;
use crate::error::LevelError;
use crate::layout::{self, REASONS};
use crate::learner::DenialKind;

impl SoftirqLevel {
    /// The count of each reason, summed over all processors, in the order of [`REASONS`].
    ///
    /// # Errors
    /// If the map can't be read.
    pub fn counters(&self) -> Result<Vec<u64>, LevelError> {
        let count = |number| Ok(self.counted(number)?.count);
        (0..layout::reason_count).map(count).collect()
    }

    /// Hits of the response in a slot, summed over all processors.
    pub(crate) fn hits(&self, slot: usize) -> u64 {
        let counts = self.hit_counters(slot);
        counts.fold(0, |sum, at| sum.wrapping_add(self.response_hits.read(at)))
    }

    /// Resets a slot's counters before a new response uses it. No program counts hits there at that time.
    pub(crate) fn clear_hits(&self, slot: usize) {
        self.hit_counters(slot)
            .for_each(|at| self.response_hits.write(at, 0));
    }

    /// Indices of a slot's counters, one per processor.
    fn hit_counters(&self, slot: usize) -> impl Iterator<Item = usize> {
        (slot..self.response_hits.len()).step_by(self.responses.len())
    }

    /// Numbers of requests answered on the fast path, and punted.
    ///
    /// # Errors
    /// If the map can't be read.
    pub fn requests(&self) -> Result<(u64, u64), LevelError> {
        let counts = self.counters()?;
        let sum = |prefix: &str| {
            let counts_by_name = REASONS.iter().zip(&counts);
            let matching = counts_by_name.filter(|((name, _), _)| name.starts_with(prefix));
            matching.map(|(_, count)| count).sum()
        };
        // Retransmissions (answer_again) do not count as requests.
        Ok((sum("answer_hit"), sum("up_")))
    }

    /// Number of segments on kernel connections.
    ///
    /// # Errors
    /// If the map can't be read.
    pub fn kernel_segments(&self) -> Result<u64, LevelError> {
        Ok(self.counted(layout::reason_pass_kernel)?.count)
    }

    /// Time since the level's maps were pinned; the counters start at that time.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let pin = std::fs::metadata(self.folder.join("reasons")).ok()?;
        pin.modified().ok()?.elapsed().ok()
    }

    /// Bytes of answers, head and body, summed over all processors. Retransmissions do not count.
    ///
    /// # Errors
    /// If the map can't be read.
    pub fn answered_bytes(&self) -> Result<u64, LevelError> {
        Ok(self.counted(layout::reason_answer_hit)?.bytes)
    }

    /// Counts the denial of a response, by kind. Only the daemon calls this, so the increment need not be atomic.
    pub fn count_denial(&self, kind: DenialKind) {
        let at = offset_of!(layout::control, denials) + kind as usize * size_of::<u64>();
        let count: u64 = self.control.get(0, at);
        self.set(at, count.wrapping_add(1));
    }

    /// The number of denials of each kind, in the order of `DenialKind::ALL`.
    #[must_use]
    pub fn denials(&self) -> [u64; DenialKind::ALL.len()] {
        let counts = self.control().denials;
        DenialKind::ALL.map(|kind| counts[kind as usize])
    }

    fn counted(&self, reason: layout::reason) -> Result<layout::counted, LevelError> {
        let per_cpu = self
            .reasons
            .lookup_percpu(&reason.to_ne_bytes(), MapFlags::ANY)
            .map_err(LevelError::bpf("reading counters"))?;
        let mut sum = layout::counted::default();
        // One value for each possible processor.
        for value in per_cpu.iter().flatten() {
            let number = |at: usize| {
                let bytes = value[at..at + 8].try_into();
                u64::from_ne_bytes(bytes.expect("a counter has eight bytes"))
            };
            sum.count += number(offset_of!(layout::counted, count));
            sum.bytes += number(offset_of!(layout::counted, bytes));
        }
        Ok(sum)
    }
}
