//! Limits the memory of each instance, and of all instances together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wasmtime::{ResourceLimiter, Result};

use super::counts::{WasmCounters, increment};

/// The maximum number of elements in a table.
pub(super) const TABLE_LEN_MAX: usize = 20_000;

/// The memory use of one instance, which counts towards that of all instances.
pub(super) struct MemoryShare {
    counts: Arc<WasmCounters>,
    len: u64,
    len_max: u64,
    all_len_max: u64,
}

impl MemoryShare {
    /// An instance without memory, which may grow to `len_max` bytes; all instances together may grow to `all_len_max`.
    pub(super) fn new(counts: Arc<WasmCounters>, len_max: u64, all_len_max: u64) -> MemoryShare {
        counts.now_instances.fetch_add(1, Relaxed);
        increment(&counts.instances);
        MemoryShare {
            counts,
            len: 0,
            len_max,
            all_len_max,
        }
    }

    fn grow(&mut self, len: u64) -> bool {
        if len > self.len_max {
            return false;
        }
        let growth = len.saturating_sub(self.len);
        // The growth is added before the check, so that concurrent growth cannot exceed the limit.
        let all = self.counts.now_memory_len.fetch_add(growth, Relaxed) + growth;
        if all > self.all_len_max {
            subtract(&self.counts.now_memory_len, growth);
            return false;
        }
        self.len += growth;
        true
    }

    fn count_if_refused(&self, is_allowed: bool) -> bool {
        if !is_allowed {
            increment(&self.counts.refused);
        }
        is_allowed
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        subtract(&self.counts.now_memory_len, self.len);
        subtract(&self.counts.now_instances, 1);
    }
}

fn subtract(count: &AtomicU64, number: u64) {
    count.fetch_sub(number, Relaxed);
}

impl ResourceLimiter for MemoryShare {
    fn memory_growing(&mut self, _now: usize, desired: usize, _max: Option<usize>) -> Result<bool> {
        let allowed = self.grow(desired as u64);
        Ok(self.count_if_refused(allowed))
    }

    fn table_growing(&mut self, _now: usize, desired: usize, _max: Option<usize>) -> Result<bool> {
        // Tables are in the preallocated pool, so only their length is limited.
        Ok(self.count_if_refused(desired <= TABLE_LEN_MAX))
    }
}
