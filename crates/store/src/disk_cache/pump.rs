//! Work at a body for helper threads: one of them does what can be done now and leaves, and whatever can be done later calls
//! one again. So no thread waits for a network. Knows nothing of the work.

use std::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use lowroad_engine::helpers::{Helpers, QUEUE_LEN_MAX};

use crate::lock::lock;

/// Works of one kind at a time. Fewer than jobs fit the queue of their helpers, so that these always take them.
pub const WORKS_MAX: usize = 1024;
const _: () = assert!(WORKS_MAX < QUEUE_LEN_MAX);

/// What is done in steps.
pub trait Work: Send + 'static {
    /// Does what can be done now, but not for long.
    fn step(&mut self, context: &mut Context<'_>) -> Stepped;
}

/// How far a step came.
#[derive(PartialEq, Eq)]
pub enum Stepped {
    /// There may be more at once.
    More,
    /// The waker tells.
    Waits,
    /// That was all.
    Over,
}

/// Has helpers work when there is something to do, one at a time.
pub struct Pump<W> {
    turn: AtomicU8,
    work: Mutex<Option<W>>,
    helpers: Helpers,
}

/// Nobody works, and nothing is to do.
const IDLE: u8 = 0;
/// A helper will.
const QUEUED: u8 = 1;
const WORKS: u8 = 2;
/// A helper works, and there may be more to do than it has seen.
const WORKS_AND_MORE: u8 = 3;

impl<W: Work> Pump<W> {
    /// Begins. The helpers have no other jobs than of up to [`WORKS_MAX`] works.
    pub fn start(work: W, helpers: Helpers) {
        let pump = Arc::new(Pump {
            turn: AtomicU8::new(IDLE),
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
        self.turn.store(WORKS, Release);
        let waker = Waker::from(self.clone());
        let mut work = lock(&self.work);
        let Some(own) = work.as_mut() else { return };
        let stepped = own.step(&mut Context::from_waker(&waker));
        if stepped == Stepped::Over {
            let over = work.take();
            drop(work);
            return drop(over);
        }
        drop(work);
        let is_idle = stepped == Stepped::Waits
            && self
                .turn
                .compare_exchange(WORKS, IDLE, AcqRel, Acquire)
                .is_ok();
        if !is_idle {
            self.turn.store(QUEUED, Release);
            self.submit();
        }
    }
}

impl<W: Work> Wake for Pump<W> {
    fn wake(self: Arc<Self>) {
        let next = |turn| match turn {
            IDLE => Some(QUEUED),
            WORKS => Some(WORKS_AND_MORE),
            _ => None,
        };
        if self.turn.fetch_update(AcqRel, Acquire, next) == Ok(IDLE) {
            self.submit();
        }
    }
}
