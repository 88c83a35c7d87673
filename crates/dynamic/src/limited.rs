//! Bounds a handler that has no bounds of its own: how many requests at a time, and how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use lowroad_http::status::Status;

use crate::{Answering, Begun, Failure, Handler, Request};

/// A handler within bounds.
pub struct Limited<H> {
    inner: Arc<H>,
    timeout: Duration,
    slots: Arc<Slots>,
}

struct Slots {
    used: AtomicUsize,
    max: usize,
}

/// Leave to answer one request; given back when it is dropped.
struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}

impl<H: Handler> Limited<H> {
    /// A handler that answers within `timeout_ms`, for `concurrency_max` requests at a time.
    pub fn new(inner: H, timeout_ms: u64, concurrency_max: usize) -> Limited<H> {
        Limited {
            inner: Arc::new(inner),
            timeout: Duration::from_millis(timeout_ms),
            slots: Arc::new(Slots {
                used: AtomicUsize::new(0),
                max: concurrency_max,
            }),
        }
    }

    fn slot(&self) -> Option<Slot> {
        let slots = &self.slots;
        let taken = slots.used.fetch_add(1, Relaxed) < slots.max;
        // Dropped at once where there is none left, which gives back what was counted.
        Some(Slot(slots.clone())).filter(|_| taken)
    }
}

impl<H: Handler + 'static> Handler for Limited<H> {
    fn begin(self: Arc<Self>, worker: usize, request: Request) -> Begun {
        let Some(slot) = self.slot() else {
            let detail = format!(
                "{} requests are being answered already; more are let in by concurrency",
                self.slots.max
            );
            return Begun::Answered(Err(Failure::new(Status::SERVICE_UNAVAILABLE, detail)));
        };
        match self.inner.clone().begin(worker, request) {
            Begun::Answered(answer) => Begun::Answered(answer),
            Begun::Later(answering) => Begun::Later(within(self.timeout, slot, answering)),
            // Its limit is a timer of the runtime, so it is polled there.
            Begun::Here(answering) => Begun::Later(within(self.timeout, slot, answering)),
        }
    }
}

/// An answer that fails if it takes longer.
fn within(time: Duration, slot: Slot, answering: Answering) -> Answering {
    Box::pin(async move {
        let _slot = slot;
        let answer = tokio::time::timeout(time, answering).await;
        answer.unwrap_or_else(|_| {
            let detail = format!("no answer in {} ms", time.as_millis());
            Err(Failure::new(Status::GATEWAY_TIMEOUT, detail))
        })
    })
}
