//! Bounds concurrency and time of a handler without limits of its own.

use std::sync::Arc;
use std::time::Duration;

use lowroad_http::status::Status;
use lowroad_limits::{ConcurrencyLimit, Permit};

use crate::{Answering, Begun, Failure, Handler, Request};

/// A handler with bounds.
pub struct Limited<H> {
    inner: Arc<H>,
    timeout: Duration,
    concurrency: Arc<ConcurrencyLimit>,
}

impl<H: Handler> Limited<H> {
    /// A handler that answers within `timeout_ms`, for `concurrency_max` requests at a time.
    pub fn new(inner: H, timeout_ms: u64, concurrency_max: usize) -> Limited<H> {
        Limited {
            inner: Arc::new(inner),
            timeout: Duration::from_millis(timeout_ms),
            concurrency: ConcurrencyLimit::new(concurrency_max),
        }
    }
}

impl<H: Handler + 'static> Handler for Limited<H> {
    fn begin(self: Arc<Self>, worker: usize, request: Request) -> Begun {
        let Some(permit) = self.concurrency.try_acquire() else {
            let detail = format!(
                "{} requests are being answered already; more are let in by concurrency",
                self.concurrency.max()
            );
            return Begun::Answered(Err(Failure::new(Status::SERVICE_UNAVAILABLE, detail)));
        };
        match self.inner.clone().begin(worker, request) {
            Begun::Answered(answer) => Begun::Answered(answer),
            Begun::Later(answering) => Begun::Later(within(self.timeout, permit, answering)),
            // The timeout is a timer of the runtime, so the future must be polled there.
            Begun::Here(answering) => Begun::Later(within(self.timeout, permit, answering)),
        }
    }
}

/// A response that fails after a timeout.
fn within(time: Duration, permit: Permit, answering: Answering) -> Answering {
    Box::pin(async move {
        let _permit = permit;
        let answer = tokio::time::timeout(time, answering).await;
        answer.unwrap_or_else(|_| {
            let detail = format!("no answer in {} ms", time.as_millis());
            Err(Failure::new(Status::GATEWAY_TIMEOUT, detail))
        })
    })
}
