//! How much memory an instance may have, alone and together with all others. Knows nothing of what
//! is in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wasmtime::{ResourceLimiter, Result};

use super::counts::{Counts, one};
use super::runtime::{Runtime, TABLE_LEN_MAX};

/// Memory that one instance has of what all may have.
pub(super) struct Share {
    counts: Arc<Counts>,
    len: u64,
    len_max: u64,
    all_len_max: u64,
}

impl Share {
    /// Nothing, of `len_max` bytes at most.
    pub(super) fn new(runtime: &Runtime, len_max: u64) -> Share {
        runtime.counts.now_instances.fetch_add(1, Relaxed);
        one(&runtime.counts.instances);
        Share {
            counts: runtime.counts.clone(),
            len: 0,
            len_max,
            all_len_max: runtime.limits.memory_len_max,
        }
    }

    fn grow(&mut self, len: u64) -> bool {
        if len > self.len_max {
            return false;
        }
        let more = len.saturating_sub(self.len);
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
            one(&self.counts.refused);
        }
        allowed
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        take(&self.counts.now_memory_len, self.len);
        take(&self.counts.now_instances, 1);
    }
}

fn take(count: &AtomicU64, number: u64) {
    count.fetch_sub(number, Relaxed);
}

impl ResourceLimiter for Share {
    fn memory_growing(&mut self, _now: usize, wanted: usize, _max: Option<usize>) -> Result<bool> {
        let allowed = self.grow(wanted as u64);
        Ok(self.judge(allowed))
    }

    fn table_growing(&mut self, _now: usize, wanted: usize, _max: Option<usize>) -> Result<bool> {
        Ok(self.judge(wanted <= TABLE_LEN_MAX))
    }
}
