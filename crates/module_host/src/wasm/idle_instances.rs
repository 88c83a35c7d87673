//! Idle instances that were reset to their state after the start, a few per worker. This module is independent of how
//! instances are reset.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use super::code::CompiledWasm;
use super::counts::{WasmCounters, increment};
use super::instance::LiveInstance;
use super::runtime::WasmRuntime;

/// The maximum number of idle instances per worker, which suffices for calls that wait while others arrive. Each idle
/// instance keeps its memory and a snapshot of the memory, together at most 256 KiB.
const IDLE_PER_WORKER_MAX: usize = 32;

/// The idle instances of all workers.
pub(super) struct IdleInstances(Box<[Mutex<Vec<IdleInstance>>]>);

struct IdleInstance {
    code: Arc<CompiledWasm>,
    live: Option<LiveInstance>,
    counts: Arc<WasmCounters>,
}

impl Drop for IdleInstance {
    fn drop(&mut self) {
        self.counts.now_resting.fetch_sub(1, Relaxed);
    }
}

impl IdleInstances {
    pub(super) fn new(workers: usize) -> IdleInstances {
        IdleInstances((0..workers.max(1)).map(|_| Mutex::default()).collect())
    }

    /// Takes an idle instance of the worker, if it runs this version of the code.
    pub(super) fn take(&self, worker: usize, code: &Arc<CompiledWasm>) -> Option<LiveInstance> {
        let mut found = self.lock_worker(worker).pop()?;
        // An instance of an older version is dropped here.
        let live = found
            .live
            .take()
            .filter(|_| Arc::ptr_eq(&found.code, code))?;
        increment(&found.counts.reused);
        Some(live)
    }

    /// Adds an instance for the worker. The instance is discarded if the worker has enough idle instances, or if more
    /// than half of all permitted instances exist: idle instances must not exhaust the pool for other modules and
    /// workers.
    pub(super) fn insert(
        &self,
        runtime: &WasmRuntime,
        worker: usize,
        code: &Arc<CompiledWasm>,
        live: LiveInstance,
    ) {
        let counts = &runtime.counts;
        let instances_limit = u64::from(runtime.limits.instances_max) / 2;
        let mut idle = self.lock_worker(worker);
        // Instances of older versions will never be used again.
        idle.retain(|instance| Arc::ptr_eq(&instance.code, code));
        if idle.len() >= IDLE_PER_WORKER_MAX || counts.now_instances.load(Relaxed) > instances_limit
        {
            return;
        }
        counts.now_resting.fetch_add(1, Relaxed);
        idle.push(IdleInstance {
            code: code.clone(),
            live: Some(live),
            counts: counts.clone(),
        });
    }

    fn lock_worker(&self, worker: usize) -> std::sync::MutexGuard<'_, Vec<IdleInstance>> {
        let slot = &self.0[worker % self.0.len()];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
