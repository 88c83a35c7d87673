//! What linked modules and libraries have in common: one state for each worker, which one thread
//! at a time may use, and calls that go through it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use lowroad_module::{Event, Next};

use super::Instance;
use super::call::Call;
use crate::Failure;

/// A module started for one worker.
pub trait State: Send + 'static {
    /// Gives it an event of a call.
    fn handle(&mut self, call: &mut Call, event: Event) -> Next;
}

/// A worker's state.
pub struct Worker<S: State> {
    /// Held while the module is at work, which is short or it keeps its worker waiting. A worker that
    /// finds it taken leaves the call to the runtime; there one waits for it.
    state: Mutex<S>,
    /// Calls that were given up while the state was in use: the module is told at its next use.
    given_up: Mutex<Vec<Call>>,
    any_given_up: AtomicBool,
}

impl<S: State> Worker<S> {
    /// With this state.
    pub fn new(state: S) -> Worker<S> {
        Worker {
            state: Mutex::new(state),
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
        self.any_given_up.store(true, SeqCst);
        if let Some(mut state) = self.now() {
            self.tell(&mut state);
        }
    }

    /// The state, unless it is in use. What a module that panicked left of it is its own affair.
    fn now(&self) -> Option<MutexGuard<'_, S>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
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

impl<S: State> Drop for Worker<S> {
    fn drop(&mut self) {
        let calls = self.given_up.get_mut();
        let calls = std::mem::take(calls.unwrap_or_else(PoisonError::into_inner));
        for mut call in calls {
            let state = self.state.get_mut();
            let state = state.unwrap_or_else(PoisonError::into_inner);
            state.handle(&mut call, Event::Gone);
        }
    }
}

/// A call with the state of its worker.
pub struct Calling<S: State> {
    /// `None` only while it is dropped.
    parts: Option<(Arc<Worker<S>>, Call)>,
    /// The module waits: it is to hear of the call's end.
    waits: bool,
}

impl<S: State> Calling<S> {
    /// A call that is to be made.
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

impl<S: State> Instance for Calling<S> {
    fn call(&mut self) -> &mut Call {
        &mut self.parts().1
    }

    fn now(&mut self, event: Event) -> Option<Result<Next, Failure>> {
        let (worker, call) = self.parts();
        let mut state = worker.now()?;
        let next = worker.handle(&mut state, call, event);
        drop(state);
        self.waits = next == Next::Wait;
        Some(Ok(next))
    }

    async fn handle(&mut self, event: Event) -> Result<Next, Failure> {
        let (worker, call) = self.parts();
        let state = worker.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let next = worker.handle(&mut state, call, event);
        drop(state);
        self.waits = next == Next::Wait;
        Ok(next)
    }
}

/// A call that is given up: the module is told, so that it frees what it holds.
impl<S: State> Drop for Calling<S> {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        if let Some((worker, call)) = self.parts.take() {
            worker.give_up(call);
        }
    }
}
