//! Cooperative work on helper threads: a helper does the steps that are possible now and leaves; the waker queues the
//! work again. No thread waits for the network.

use std::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use lowroad_engine::helper_pool::{HelperPool, QUEUE_LEN_MAX};

use crate::lock::lock;

/// The maximum number of works of one kind. Below the helpers' queue length, so that the queue always has room.
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
    /// More may be possible at once.
    More,
    /// The waker will be called.
    Waits,
    /// The work is complete.
    Over,
}

/// Runs work on helpers when it can proceed, on one at a time.
pub struct HelperPump<W> {
    state: AtomicU8,
    work: Mutex<Option<W>>,
    helpers: HelperPool,
}

/// No helper works, and no step is possible.
const IDLE: u8 = 0;
/// The work is in the helpers' queue.
const QUEUED: u8 = 1;
const WORKS: u8 = 2;
/// A helper works, and was woken since its step began.
const WORKS_AND_MORE: u8 = 3;

impl<W: PumpWork> HelperPump<W> {
    /// Starts work. The helpers must have no jobs other than up to [`WORKS_MAX`] works.
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
        // Before the step, so that a wake-up during the step is recorded as WORKS_AND_MORE.
        self.state.store(WORKS, Release);
        let waker = Waker::from(self.clone());
        let mut work = lock(&self.work);
        let Some(active_work) = work.as_mut() else {
            return;
        };
        let progress = active_work.step(&mut Context::from_waker(&waker));
        if progress == StepProgress::Over {
            // Dropped without the lock, since the drop of a writer may remove a file.
            let finished = work.take();
            drop(work);
            return drop(finished);
        }
        drop(work);
        // The exchange fails if a wake-up arrived during the step: then another step is due.
        let is_idle = progress == StepProgress::Waits
            && self
                .state
                .compare_exchange(WORKS, IDLE, AcqRel, Acquire)
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
            WORKS => Some(WORKS_AND_MORE),
            _ => None,
        };
        // Only the wake-up that leaves IDLE queues the work, so it is queued once.
        if self.state.fetch_update(AcqRel, Acquire, next) == Ok(IDLE) {
            self.submit();
        }
    }
}
