//! Limits the concurrency and the time of a handler that has no such limits itself.

use std::sync::Arc;
use std::time::Duration;

use lowroad_http::status::StatusCode;
use lowroad_limits::{ConcurrencyLimit, Permit, RefusalReason};

use crate::{Handler, HandlerFailure, HandlerRequest, HandlerResult, PendingResponse};

/// A handler with a concurrency limit and a timeout.
pub struct LimitedHandler<H> {
    inner: Arc<H>,
    timeout: Duration,
    concurrency: Arc<ConcurrencyLimit>,
}

impl<H: Handler> LimitedHandler<H> {
    /// Limits `inner` to `concurrency_max` requests at a time, each for at most `timeout_ms`.
    pub fn new(inner: H, timeout_ms: u64, concurrency_max: usize) -> LimitedHandler<H> {
        LimitedHandler {
            inner: Arc::new(inner),
            timeout: Duration::from_millis(timeout_ms),
            concurrency: ConcurrencyLimit::new(concurrency_max),
        }
    }
}

impl<H: Handler + 'static> Handler for LimitedHandler<H> {
    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult {
        // Further requests are rejected with 503 immediately, and not queued.
        let Some(permit) = self.concurrency.try_acquire() else {
            let detail = format!(
                "{} requests are in progress already; raise concurrency to allow more",
                self.concurrency.max()
            );
            let failure = HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail);
            return HandlerResult::Ready(Err(failure.with_reason(RefusalReason::Concurrency)));
        };
        match self.inner.clone().begin(worker, request) {
            HandlerResult::Ready(answer) => HandlerResult::Ready(answer),
            HandlerResult::OnRuntime(pending) => {
                HandlerResult::OnRuntime(with_timeout(self.timeout, permit, pending))
            }
            // The timeout is a tokio timer, so the future must be polled on the runtime.
            HandlerResult::OnWorker(pending) => {
                HandlerResult::OnRuntime(with_timeout(self.timeout, permit, pending))
            }
        }
    }
}

/// A response that fails after a timeout.
fn with_timeout(time: Duration, permit: Permit, pending: PendingResponse) -> PendingResponse {
    Box::pin(async move {
        // The permit is dropped when there is a response, or after the timeout.
        let _permit = permit;
        let answer = tokio::time::timeout(time, pending).await;
        answer.unwrap_or_else(|_| {
            let detail = format!("no response within {} ms", time.as_millis());
            Err(HandlerFailure::new(StatusCode::GATEWAY_TIMEOUT, detail))
        })
    })
}
