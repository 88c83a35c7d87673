//! A worker's resources for other code on its thread: tasks and their timers, upstream connections, and helper threads
//! for blocking work. Created by the worker's driver, on which I/O and time depend; available before the worker starts.

use std::ops::Deref;
use std::sync::Arc;

use crate::event_count::EventCount;
use crate::helper_pool::QueueFull;
use crate::offload::{BlockingOffload, OffloadHandle};
use crate::tasks::WorkerTasks;
use crate::timers::WorkerTimers;
use crate::upstream_socket::UpstreamSockets;

/// Rounds of running tasks and taking messages before sockets get their turn again.
pub(crate) const ROUNDS_MAX: usize = 8;

/// A handle to one worker's resources. Clones share them.
#[derive(Clone)]
pub struct WorkerHandle(Arc<WorkerResources>);

/// The resources.
pub struct WorkerResources {
    /// Tasks: futures that the worker polls.
    pub tasks: WorkerTasks,
    /// Upstream sockets registered with its driver.
    pub sources: UpstreamSockets,
    /// Timers in its driver's time.
    pub timers: WorkerTimers,
    /// Wakes its driver.
    pub event_count: Arc<EventCount>,
    helpers: Box<dyn BlockingOffload>,
}

impl WorkerHandle {
    /// The handle of a driver with this eventcount, these sockets and helpers, at `now_ms` of its time.
    pub fn new(
        event_count: Arc<EventCount>,
        sources: UpstreamSockets,
        helpers: impl BlockingOffload + 'static,
        now_ms: u64,
    ) -> WorkerHandle {
        WorkerHandle(Arc::new(WorkerResources {
            tasks: WorkerTasks::new(event_count.clone()),
            sources,
            timers: WorkerTimers::new(event_count.clone(), now_ms),
            event_count,
            helpers: Box::new(helpers),
        }))
    }
}

impl Deref for WorkerHandle {
    type Target = WorkerResources;

    fn deref(&self) -> &WorkerResources {
        &self.0
    }
}

impl WorkerResources {
    /// Runs a job that may block on a helper thread.
    ///
    /// # Errors
    /// [`QueueFull`]
    pub fn offload<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<OffloadHandle<T>, QueueFull> {
        OffloadHandle::start(&*self.helpers, job)
    }

    /// Ends a wait at this time: for drivers.
    pub fn resume(&self, now_ms: u64) {
        // Before the eventcount's `resume`: see `WorkerTimers::set_now`.
        self.timers.set_now(now_ms);
        self.event_count.resume();
        // After `resume`, so that waking tasks costs no system call.
        self.timers.wake_due();
    }

    /// Runs tasks while the worker is notified, for a bounded number of rounds: for workers without messages.
    pub fn run(&self) {
        for _ in 0..ROUNDS_MAX {
            if !self.event_count.take_notified() {
                return;
            }
            self.tasks.run();
        }
    }
}
