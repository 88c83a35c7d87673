//! Instances that were put back to how they started, one for each worker, until its next request.
//! Knows nothing of how they are put back.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use super::code::Code;
use super::counts::{Counts, one};
use super::instance::Live;
use super::runtime::Runtime;

/// The places of all workers.
pub(super) struct Resting(Box<[Mutex<Option<AtRest>>]>);

/// An instance at rest.
struct AtRest {
    code: Arc<Code>,
    live: Option<Live>,
    counts: Arc<Counts>,
}

impl Drop for AtRest {
    fn drop(&mut self) {
        self.counts.now_resting.fetch_sub(1, Relaxed);
    }
}

impl Resting {
    pub(super) fn new(workers: usize) -> Resting {
        Resting((0..workers.max(1)).map(|_| Mutex::default()).collect())
    }

    /// The worker's instance, if it has one of this version.
    pub(super) fn take(&self, worker: usize, code: &Arc<Code>) -> Option<Live> {
        let mut found = self.place(worker).take()?;
        let live = found
            .live
            .take()
            .filter(|_| Arc::ptr_eq(&found.code, code))?;
        one(&found.counts.reused);
        Some(live)
    }

    /// Keeps an instance for the worker. Ends it if there is one already, or if half of all there can
    /// be are in use: those at rest must not be missing elsewhere.
    pub(super) fn put(&self, runtime: &Runtime, worker: usize, code: &Arc<Code>, live: Live) {
        let counts = &runtime.counts;
        let scarce = u64::from(runtime.limits.instances_max) / 2;
        let mut place = self.place(worker);
        if place.is_some() || counts.now_instances.load(Relaxed) > scarce {
            return;
        }
        counts.now_resting.fetch_add(1, Relaxed);
        *place = Some(AtRest {
            code: code.clone(),
            live: Some(live),
            counts: counts.clone(),
        });
    }

    fn place(&self, worker: usize) -> std::sync::MutexGuard<'_, Option<AtRest>> {
        let place = &self.0[worker % self.0.len()];
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
