//! The common part of built-in modules and libraries: one module state per worker, used by one thread at a time, and
//! the calls that use it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use lowroad_handler::HandlerFailure;
use lowroad_module::{CallEvent, CallStep};
use tokio::sync::Mutex as Turns;

use super::Instance;
use super::call::HostedCall;

/// The state of a module that was started for one worker.
pub trait WorkerState: Send + 'static {
    /// Passes an event of a call to the module.
    fn handle(&mut self, call: &mut HostedCall, event: CallEvent) -> CallStep;
}

/// The state for one worker, shared by its calls.
pub struct NativeWorker<S: WorkerState> {
    /// An asynchronous lock, so that a call waits for the state without blocking a thread.
    state: Turns<S>,
    /// Calls abandoned while the state was in use. The next user of the state reports them to the module.
    abandoned: Mutex<Vec<HostedCall>>,
    has_abandoned: AtomicBool,
}

impl<S: WorkerState> NativeWorker<S> {
    pub fn new(state: S) -> NativeWorker<S> {
        NativeWorker {
            state: Turns::new(state),
            abandoned: Mutex::default(),
            has_abandoned: AtomicBool::new(false),
        }
    }

    fn handle(&self, state: &mut S, call: &mut HostedCall, event: CallEvent) -> CallStep {
        let next = state.handle(call, event);
        // Abandoned calls are reported after the event, while the state is locked anyway.
        if self.has_abandoned.load(SeqCst) {
            self.report_abandoned(state);
        }
        next
    }

    fn abandon(&self, call: HostedCall) {
        let mut calls = self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
        drop(calls);
        // The flag is set after the push: a user of the state that sees the flag also finds the call.
        self.has_abandoned.store(true, SeqCst);
        // If the state is in use, its user reports the call after its own event.
        if let Ok(mut state) = self.state.try_lock() {
            self.report_abandoned(&mut state);
        }
    }

    fn report_abandoned(&self, state: &mut S) {
        // The flag is reset before the calls are taken: a call that is abandoned later sets it again.
        self.has_abandoned.store(false, SeqCst);
        let calls = {
            let mut calls = self
                .abandoned
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *calls)
        };
        for mut call in calls {
            state.handle(&mut call, CallEvent::Gone);
        }
    }
}

impl<S: WorkerState> Drop for NativeWorker<S> {
    fn drop(&mut self) {
        // No other thread can access the state any more.
        let calls = self.abandoned.get_mut();
        let calls = std::mem::take(calls.unwrap_or_else(PoisonError::into_inner));
        for mut call in calls {
            self.state.get_mut().handle(&mut call, CallEvent::Gone);
        }
    }
}

/// A call and the module state of its worker.
pub struct NativeCall<S: WorkerState> {
    /// `None` only while it is dropped.
    parts: Option<(Arc<NativeWorker<S>>, HostedCall)>,
    /// Whether the module waits, so that it must be notified when the call ends.
    is_waiting: bool,
}

impl<S: WorkerState> NativeCall<S> {
    /// Creates a call that has not started.
    pub fn new(worker: Arc<NativeWorker<S>>, call: HostedCall) -> NativeCall<S> {
        NativeCall {
            parts: Some((worker, call)),
            is_waiting: false,
        }
    }

    fn parts(&mut self) -> &mut (Arc<NativeWorker<S>>, HostedCall) {
        self.parts.as_mut().expect("there until it is dropped")
    }
}

impl<S: WorkerState> Instance for NativeCall<S> {
    fn call(&mut self) -> &mut HostedCall {
        &mut self.parts().1
    }

    fn try_handle(&mut self, event: CallEvent) -> Option<Result<CallStep, HandlerFailure>> {
        let (worker, call) = self.parts();
        // A worker must not wait: if the state is busy, the event is passed on the runtime.
        let mut state = worker.state.try_lock().ok()?;
        let next = worker.handle(&mut state, call, event);
        drop(state);
        self.is_waiting = next == CallStep::Wait;
        Some(Ok(next))
    }

    async fn handle(&mut self, event: CallEvent) -> Result<CallStep, HandlerFailure> {
        let (worker, call) = self.parts();
        let mut state = worker.state.lock().await;
        let next = worker.handle(&mut state, call, event);
        drop(state);
        self.is_waiting = next == CallStep::Wait;
        Ok(next)
    }
}

/// Abandons a call if its module waits: notifies the module, so that it frees the call's memory.
impl<S: WorkerState> Drop for NativeCall<S> {
    fn drop(&mut self) {
        // If the module does not wait, it has already freed the call's memory, or has never seen the call.
        if !self.is_waiting {
            return;
        }
        if let Some((worker, call)) = self.parts.take() {
            worker.abandon(call);
        }
    }
}
