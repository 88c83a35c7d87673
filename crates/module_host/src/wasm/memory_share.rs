//! Limits an instance's memory, alone and together with all other instances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wasmtime::{ResourceLimiter, Result};

use super::counts::{WasmCounters, increment};

/// The most elements of a table.
pub(super) const TABLE_LEN_MAX: usize = 20_000;

/// One instance's share of the memory of all instances.
pub(super) struct MemoryShare {
    counts: Arc<WasmCounters>,
    len: u64,
    len_max: u64,
    all_len_max: u64,
}

impl MemoryShare {
    /// An empty share that may grow to `len_max` bytes; all instances together to `all_len_max`.
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
        let more = len.saturating_sub(self.len);
        // Added before the check, so that concurrent growths cannot exceed the limit together.
        let all = self.counts.now_memory_len.fetch_add(more, Relaxed) + more;
        if all > self.all_len_max {
            take(&self.counts.now_memory_len, more);
            return false;
        }
        self.len += more;
        true
    }

    fn judge(&self, allowed: bool) -> bool {
        if !allowed {
            increment(&self.counts.refused);
        }
        allowed
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        take(&self.counts.now_memory_len, self.len);
        take(&self.counts.now_instances, 1);
    }
}

fn take(count: &AtomicU64, number: u64) {
    count.fetch_sub(number, Relaxed);
}

impl ResourceLimiter for MemoryShare {
    fn memory_growing(&mut self, _now: usize, wanted: usize, _max: Option<usize>) -> Result<bool> {
        let allowed = self.grow(wanted as u64);
        Ok(self.judge(allowed))
    }

    fn table_growing(&mut self, _now: usize, wanted: usize, _max: Option<usize>) -> Result<bool> {
        // Tables are in the preallocated pool, so only their length is limited.
        Ok(self.judge(wanted <= TABLE_LEN_MAX))
    }
}
