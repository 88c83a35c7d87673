//! The outcome of a wait: a cell that a future polls, and that is settled exactly once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The outcome of a waiter.
#[derive(Debug)]
pub struct WaitCell(Mutex<WaitOutcome>);

#[derive(Debug)]
enum WaitOutcome {
    Pending(Option<Waker>),
    /// Settled; whether the waiter was admitted.
    Settled(bool),
}

impl WaitCell {
    /// A new cell, not settled.
    pub fn pending() -> Arc<WaitCell> {
        Arc::new(WaitCell(Mutex::new(WaitOutcome::Pending(None))))
    }

    /// Admits or refuses the waiter; its queue must be locked. Returns the waker, which must be woken after unlocking.
    #[must_use]
    pub fn settle(&self, is_admitted: bool) -> Option<Waker> {
        match std::mem::replace(&mut *self.lock(), WaitOutcome::Settled(is_admitted)) {
            WaitOutcome::Pending(waker) => waker,
            WaitOutcome::Settled(_) => None,
        }
    }

    /// Ready once the outcome is settled: whether the waiter was admitted.
    pub fn poll(&self, context: &Context<'_>) -> Poll<bool> {
        match &mut *self.lock() {
            WaitOutcome::Settled(is_admitted) => Poll::Ready(*is_admitted),
            WaitOutcome::Pending(Some(waker)) => {
                // The future may be polled by another task than before.
                waker.clone_from(context.waker());
                Poll::Pending
            }
            WaitOutcome::Pending(none) => {
                *none = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether the waiter was admitted already.
    pub fn is_admitted(&self) -> bool {
        matches!(&*self.lock(), WaitOutcome::Settled(true))
    }

    fn lock(&self) -> MutexGuard<'_, WaitOutcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
