//! Runs blocking work of a task on another thread, which the driver provides, while the task waits for the result.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::helper_pool::{HelperPool, QueueFull};

/// A job that may block.
pub type OffloadJob = Box<dyn FnOnce() + Send>;

/// Runs jobs that may block.
pub trait BlockingOffload: Send + Sync {
    /// Adds a job.
    ///
    /// # Errors
    /// [`QueueFull`] if too many jobs are queued; the job is dropped then.
    fn submit(&self, job: OffloadJob) -> Result<(), QueueFull>;
}

impl BlockingOffload for HelperPool {
    fn submit(&self, job: OffloadJob) -> Result<(), QueueFull> {
        HelperPool::submit(self, job)
    }
}

/// A future for the result of a submitted job. If the future is dropped, the job is skipped or its result dropped.
pub struct OffloadHandle<T>(Arc<Mutex<OffloadState<T>>>);

struct OffloadState<T> {
    result: Option<T>,
    is_finished: bool,
    waker: Option<Waker>,
}

impl<T: Send + 'static> OffloadHandle<T> {
    /// Submits `job` to `helpers`.
    ///
    /// # Errors
    /// [`QueueFull`]
    pub fn start(
        helpers: &dyn BlockingOffload,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<OffloadHandle<T>, QueueFull> {
        let state = Arc::new(Mutex::new(OffloadState {
            result: None,
            is_finished: false,
            waker: None,
        }));
        // Dropping `ending` reports the end even if the job panics or is never run.
        let ending = OffloadEnd(state.clone());
        helpers.submit(Box::new(move || {
            if Arc::strong_count(&ending.0) == 1 {
                return; // the future was dropped
            }
            let done = job();
            let mut state = ending.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.result = Some(done);
        }))?;
        Ok(OffloadHandle(state))
    }
}

struct OffloadEnd<T>(Arc<Mutex<OffloadState<T>>>);

impl<T> Drop for OffloadEnd<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_finished = true;
        let registered = state.waker.take();
        // The waker is called without the lock, as it may poll the handle.
        drop(state);
        if let Some(waker) = registered {
            waker.wake();
        }
    }
}

impl<T> Future for OffloadHandle<T> {
    /// `None` if the job panicked.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_finished {
            return Poll::Ready(state.result.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs jobs only on request.
    #[derive(Default)]
    struct Queue(Mutex<Vec<OffloadJob>>);

    impl BlockingOffload for Queue {
        fn submit(&self, job: OffloadJob) -> Result<(), QueueFull> {
            self.0.lock().expect("a lock").push(job);
            Ok(())
        }
    }

    #[test]
    fn future_resolves_to_the_result_or_to_none_after_a_panic() {
        let queue = Queue::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut seven = OffloadHandle::start(&queue, || 7).expect("room");
        let mut none = OffloadHandle::start(&queue, || panic!("as it should")).expect("room");
        let gone = OffloadHandle::start(&queue, || panic!("nobody waits for it")).expect("room");
        let _: &OffloadHandle<()> = &gone;
        drop(gone);
        let _: &OffloadHandle<()> = &none;
        assert!(Pin::new(&mut seven).poll(&mut context).is_pending());
        let mut jobs = queue.0.lock().expect("a lock");
        jobs.pop().expect("the last")();
        jobs.drain(..).for_each(crate::panic_policy::contain);
        let done = Pin::new(&mut seven).poll(&mut context);
        assert_eq!(done, Poll::Ready(Some(7)));
        assert_eq!(Pin::new(&mut none).poll(&mut context), Poll::Ready(None));
    }
}
