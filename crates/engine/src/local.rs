//! What a worker lends to those who work on its thread: tasks, and sockets to elsewhere in its
//! epoll. Made by its driver; handed out before the worker starts.

use std::sync::Arc;

use crate::bell::Bell;
use crate::outgoing::Sources;
use crate::tasks::Tasks;

/// How often tasks are run, and messages taken, before sockets have their turn again.
pub(crate) const ROUNDS_MAX: usize = 8;

/// One worker's, or what stands for one.
#[derive(Clone)]
pub struct Local {
    /// Futures that it polls.
    pub tasks: Tasks,
    /// Sockets whose readiness it hears of.
    pub sources: Sources,
    pub(crate) bell: Arc<Bell>,
}

impl Local {
    /// That of a driver with this bell, and whose epoll has these sockets.
    pub fn new(bell: Arc<Bell>, sources: Sources) -> Local {
        let tasks = Tasks::new(bell.clone());
        Local {
            tasks,
            sources,
            bell,
        }
    }

    /// Runs tasks while the bell is rung, a bounded number of times: for who has no messages.
    pub fn run(&self) {
        for _ in 0..ROUNDS_MAX {
            if !self.bell.was_rung() {
                return;
            }
            self.tasks.run();
        }
    }
}
