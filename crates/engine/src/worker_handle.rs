//! A handle to the resources of a worker: tasks and timers, upstream connections, and helper threads for blocking work.
//! The worker's driver creates it, so it is available before the worker starts.

use std::ops::Deref;
use std::sync::Arc;

use crate::event_count::EventCount;
use crate::helper_pool::QueueFull;
use crate::offload::{BlockingOffload, OffloadHandle};
use crate::tasks::WorkerTasks;
use crate::timers::WorkerTimers;
use crate::upstream_socket::UpstreamSockets;

/// Maximum number of rounds of tasks and messages per turn of the event loop.
pub(crate) const ROUNDS_MAX: usize = 8;

/// A handle to one worker's resources. Clones share them.
#[derive(Clone)]
pub struct WorkerHandle(Arc<WorkerResources>);

/// The resources of a worker.
pub struct WorkerResources {
    /// Tasks: futures that the worker polls.
    pub tasks: WorkerTasks,
    /// Upstream sockets, registered with the worker's driver.
    pub sources: UpstreamSockets,
    /// Timers, on the driver's clock.
    pub timers: WorkerTimers,
    /// Ends a wait of the driver.
    pub event_count: Arc<EventCount>,
    helpers: Box<dyn BlockingOffload>,
}

impl WorkerHandle {
    /// The handle of a driver with this eventcount, these sockets and helpers; `now_ms` is the driver's time.
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

    /// Called by drivers after a wait: sets the time, and wakes timers that are due.
    pub fn resume(&self, now_ms: u64) {
        // Called before the eventcount's `resume`, see `WorkerTimers::set_now`.
        self.timers.set_now(now_ms);
        self.event_count.resume();
        // Called after `resume`, so that waking tasks costs no system call.
        self.timers.wake_due();
    }

    /// Runs tasks while the worker is notified, for a limited number of rounds. For drivers that are used without a
    /// [`Worker`](crate::worker::Worker).
    pub fn run(&self) {
        for _ in 0..ROUNDS_MAX {
            if !self.event_count.take_notified() {
                return;
            }
            self.tasks.run();
        }
    }
}
