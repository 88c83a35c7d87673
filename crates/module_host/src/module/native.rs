//! The common part of built-in modules and libraries: one state for each worker, used by one thread at a time, and
//! the calls that use it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use lowroad_handler::Failure;
use lowroad_module::{Event, Next};
use tokio::sync::Mutex as Turns;

use super::Instance;
use super::call::Call;

/// A module started for one worker.
pub trait WorkerState: Send + 'static {
    /// Passes an event of a call to the module.
    fn handle(&mut self, call: &mut Call, event: Event) -> Next;
}

/// A worker's state.
pub struct Worker<S: WorkerState> {
    /// An asynchronous lock, so that a call that finds it taken waits without blocking a thread.
    state: Turns<S>,
    /// Calls abandoned while the state was in use. The next user of the state reports them to the module.
    given_up: Mutex<Vec<Call>>,
    any_given_up: AtomicBool,
}

impl<S: WorkerState> Worker<S> {
    /// A worker with this state.
    pub fn new(state: S) -> Worker<S> {
        Worker {
            state: Turns::new(state),
            given_up: Mutex::default(),
            any_given_up: AtomicBool::new(false),
        }
    }

    fn handle(&self, state: &mut S, call: &mut Call, event: Event) -> Next {
        let next = state.handle(call, event);
        if self.any_given_up.load(SeqCst) {
            self.tell(state);
        }
        next
    }

    fn give_up(&self, call: Call) {
        let mut calls = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
        drop(calls);
        // Set after the push: a user of the state that sees the flag also finds the call.
        self.any_given_up.store(true, SeqCst);
        // If the state is in use now, its user reports the call after its own event.
        if let Ok(mut state) = self.state.try_lock() {
            self.tell(&mut state);
        }
    }

    fn tell(&self, state: &mut S) {
        self.any_given_up.store(false, SeqCst);
        let calls = {
            let mut calls = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *calls)
        };
        for mut call in calls {
            state.handle(&mut call, Event::Gone);
        }
    }
}

impl<S: WorkerState> Drop for Worker<S> {
    fn drop(&mut self) {
        let calls = self.given_up.get_mut();
        let calls = std::mem::take(calls.unwrap_or_else(PoisonError::into_inner));
        for mut call in calls {
            self.state.get_mut().handle(&mut call, Event::Gone);
        }
    }
}

/// A call with the state of its worker.
pub struct Calling<S: WorkerState> {
    /// `None` only during the drop.
    parts: Option<(Arc<Worker<S>>, Call)>,
    /// The module waits, so it must be notified of the call's end.
    waits: bool,
}

impl<S: WorkerState> Calling<S> {
    /// A call that has not started.
    pub fn new(worker: Arc<Worker<S>>, call: Call) -> Calling<S> {
        Calling {
            parts: Some((worker, call)),
            waits: false,
        }
    }

    fn parts(&mut self) -> &mut (Arc<Worker<S>>, Call) {
        self.parts.as_mut().expect("there until it is dropped")
    }
}

impl<S: WorkerState> Instance for Calling<S> {
    fn call(&mut self) -> &mut Call {
        &mut self.parts().1
    }

    fn now(&mut self, event: Event) -> Option<Result<Next, Failure>> {
        let (worker, call) = self.parts();
        let mut state = worker.state.try_lock().ok()?;
        let next = worker.handle(&mut state, call, event);
        drop(state);
        self.waits = next == Next::Wait;
        Some(Ok(next))
    }

    async fn handle(&mut self, event: Event) -> Result<Next, Failure> {
        let (worker, call) = self.parts();
        let mut state = worker.state.lock().await;
        let next = worker.handle(&mut state, call, event);
        drop(state);
        self.waits = next == Next::Wait;
        Ok(next)
    }
}

/// Abandons a waiting call: the module is notified, so that it frees the call's memory.
impl<S: WorkerState> Drop for Calling<S> {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        if let Some((worker, call)) = self.parts.take() {
            worker.give_up(call);
        }
    }
}
