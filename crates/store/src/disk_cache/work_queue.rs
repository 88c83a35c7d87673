//! Cooperative work on helper threads: a helper does the steps that are possible now, and then switches to other work.
//! When further steps are possible, a waker submits the work again. So no thread waits for the network.

use std::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use lowroad_engine::helper_pool::{HelperPool, QUEUE_LEN_MAX};

use crate::lock::lock;

/// The maximum number of works of one kind: less than the length of the helpers' queue, so that the queue always has
/// room.
pub const WORKS_MAX: usize = 1024;
const _: () = assert!(WORKS_MAX < QUEUE_LEN_MAX);

/// Work in steps.
pub trait PumpWork: Send + 'static {
    /// Does the steps that are possible now, for a bounded time.
    fn step(&mut self, context: &mut Context<'_>) -> StepProgress;
}

/// The result of a step.
#[derive(PartialEq, Eq)]
pub enum StepProgress {
    /// More steps may be possible immediately.
    More,
    /// The work waits for its waker to be called.
    Pending,
    /// The work is complete.
    Done,
}

/// Runs a work on helpers whenever it can proceed, on at most one helper at a time.
pub struct HelperPump<W> {
    state: AtomicU8,
    work: Mutex<Option<W>>,
    helpers: HelperPool,
}

/// The work waits for its waker.
const IDLE: u8 = 0;
/// The work is in the helpers' queue.
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// A helper does a step, and the waker was called since the step began.
const RUNNING_AND_WOKEN: u8 = 3;

impl<W: PumpWork> HelperPump<W> {
    /// Starts a work. The helpers must have no other jobs than such works, at most [`WORKS_MAX`] of them.
    pub fn start(work: W, helpers: HelperPool) {
        let pump = Arc::new(HelperPump {
            state: AtomicU8::new(IDLE),
            work: Mutex::new(Some(work)),
            helpers,
        });
        pump.wake();
    }

    fn submit(self: Arc<Self>) {
        let pump = self.clone();
        let submitted = self.helpers.submit(move || pump.run());
        debug_assert!(submitted.is_ok(), "each is there once, and they are few");
    }

    fn run(self: Arc<Self>) {
        // Set before the step, so that a wake-up during the step is recorded as RUNNING_AND_WOKEN.
        self.state.store(RUNNING, Release);
        let waker = Waker::from(self.clone());
        let mut work = lock(&self.work);
        let Some(active_work) = work.as_mut() else {
            return;
        };
        let progress = active_work.step(&mut Context::from_waker(&waker));
        if progress == StepProgress::Done {
            // Dropped after unlocking, since dropping a writer may remove a file.
            let finished = work.take();
            drop(work);
            return drop(finished);
        }
        drop(work);
        // The exchange fails if a wake-up arrived during the step: then another step is due.
        let is_idle = progress == StepProgress::Pending
            && self
                .state
                .compare_exchange(RUNNING, IDLE, AcqRel, Acquire)
                .is_ok();
        if !is_idle {
            self.state.store(QUEUED, Release);
            self.submit();
        }
    }
}

impl<W: PumpWork> Wake for HelperPump<W> {
    fn wake(self: Arc<Self>) {
        let next = |state| match state {
            IDLE => Some(QUEUED),
            RUNNING => Some(RUNNING_AND_WOKEN),
            _ => None,
        };
        // Only the wake-up that leaves IDLE queues the work, so it is queued once.
        if self.state.fetch_update(AcqRel, Acquire, next) == Ok(IDLE) {
            self.submit();
        }
    }
}
