//! What a worker lends to those who work on its thread: tasks and their timers, connections to
//! elsewhere, and hands for what may block. Made by its driver, whose I/O and time all of this is;
//! handed out before the worker starts.

use std::ops::Deref;
use std::sync::Arc;

use crate::bell::Bell;
use crate::helpers::QueueFull;
use crate::offload::{Offload, Offloaded};
use crate::outgoing::Sources;
use crate::tasks::Tasks;
use crate::timers::Timers;

/// How often tasks are run, and messages taken, before sockets have their turn again.
pub(crate) const ROUNDS_MAX: usize = 8;

/// One worker's, or what stands for one. Clones are the same.
#[derive(Clone)]
pub struct Local(Arc<Lent>);

/// What is lent.
pub struct Lent {
    /// Futures that it polls.
    pub tasks: Tasks,
    /// Sockets whose readiness it hears of.
    pub sources: Sources,
    /// Timers of its driver's time.
    pub timers: Timers,
    /// Wakes its driver.
    pub bell: Arc<Bell>,
    helpers: Box<dyn Offload>,
}

impl Local {
    /// That of a driver with this bell, these sockets and helpers, at `now_ms` of its time.
    pub fn new(
        bell: Arc<Bell>,
        sources: Sources,
        helpers: impl Offload + 'static,
        now_ms: u64,
    ) -> Local {
        Local(Arc::new(Lent {
            tasks: Tasks::new(bell.clone()),
            sources,
            timers: Timers::new(bell.clone(), now_ms),
            bell,
            helpers: Box::new(helpers),
        }))
    }
}

impl Deref for Local {
    type Target = Lent;

    fn deref(&self) -> &Lent {
        &self.0
    }
}

impl Lent {
    /// Has something done that may block.
    ///
    /// # Errors
    /// [`QueueFull`]
    pub fn offload<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Offloaded<T>, QueueFull> {
        Offloaded::start(&*self.helpers, job)
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
