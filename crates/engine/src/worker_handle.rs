//! What a worker lends to those who work on its thread: tasks and their timers, connections to
//! elsewhere, and hands for what may block. Made by its driver, whose I/O and time all of this is;
//! handed out before the worker starts.

use std::ops::Deref;
use std::sync::Arc;

use crate::event_count::EventCount;
use crate::helper_pool::QueueFull;
use crate::offload::{BlockingOffload, OffloadHandle};
use crate::tasks::WorkerTasks;
use crate::timers::WorkerTimers;
use crate::upstream_socket::UpstreamSockets;

/// How often tasks are run, and messages taken, before sockets have their turn again.
pub(crate) const ROUNDS_MAX: usize = 8;

/// One worker's, or what stands for one. Clones are the same.
#[derive(Clone)]
pub struct WorkerHandle(Arc<WorkerResources>);

/// What is lent.
pub struct WorkerResources {
    /// Futures that it polls.
    pub tasks: WorkerTasks,
    /// Sockets whose readiness it hears of.
    pub sources: UpstreamSockets,
    /// Timers of its driver's time.
    pub timers: WorkerTimers,
    /// Wakes its driver.
    pub bell: Arc<EventCount>,
    helpers: Box<dyn BlockingOffload>,
}

impl WorkerHandle {
    /// That of a driver with this bell, these sockets and helpers, at `now_ms` of its time.
    pub fn new(
        bell: Arc<EventCount>,
        sources: UpstreamSockets,
        helpers: impl BlockingOffload + 'static,
        now_ms: u64,
    ) -> WorkerHandle {
        WorkerHandle(Arc::new(WorkerResources {
            tasks: WorkerTasks::new(bell.clone()),
            sources,
            timers: WorkerTimers::new(bell.clone(), now_ms),
            bell,
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
    /// Has something done that may block.
    ///
    /// # Errors
    /// [`QueueFull`]
    pub fn offload<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<OffloadHandle<T>, QueueFull> {
        OffloadHandle::start(&*self.helpers, job)
    }

    /// A wait is over, at this time: for drivers.
    pub fn resume(&self, now_ms: u64) {
        self.timers.set_now(now_ms);
        self.bell.resume();
        // Awake by now: to wake tasks costs no system call.
        self.timers.wake_due();
    }

    /// Runs tasks while it is notified, a bounded number of times: for who has no messages.
    pub fn run(&self) {
        for _ in 0..ROUNDS_MAX {
            if !self.bell.take_notified() {
                return;
            }
            self.tasks.run();
        }
    }
}
