//! The handler interface: one trait for all kinds of dynamic content, its results and failures.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use lowroad_http::fields::FieldLines;
use lowroad_http::status::StatusCode;
use tokio::task::JoinHandle;

use crate::request::HandlerRequest;
use crate::response::HandlerResponse;

/// A pending response. Dropping it cancels the work for it.
pub type PendingResponse =
    Pin<Box<dyn Future<Output = Result<HandlerResponse, HandlerFailure>> + Send>>;

/// Makes responses to requests. Shared by all workers; it enforces its own limits (concurrency,
/// time, memory).
pub trait Handler: Send + Sync {
    /// Begins a response, on the worker with this number: it must not block or compute for long. Longer
    /// work is returned as a future.
    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult;

    /// The inner handler of a wrapper, which answers the status functions.
    fn inner_handler(&self) -> Option<&dyn Handler> {
        None
    }

    /// A status text with requests in progress and refusals, if the handler counts them.
    fn status(&self) -> Option<String> {
        self.inner_handler()?.status()
    }

    /// Requests in progress, if the handler counts them.
    fn requests_in_progress(&self) -> usize {
        self.inner_handler()
            .map_or(0, Handler::requests_in_progress)
    }

    /// The server that a request would get now, and the reason, for `explain`; `None` if there is no choice.
    /// Has no effects.
    fn explain_member(&self, probe: &RouteProbe<'_>) -> Option<String> {
        self.inner_handler()?.explain_member(probe)
    }
}

/// The properties of a request that may determine its server.
pub struct RouteProbe<'r> {
    /// Path and query as sent by the client.
    pub target: &'r [u8],
    /// The client's address.
    pub peer: IpAddr,
    /// The fields.
    pub fields: FieldLines<'r>,
}

/// The result of starting a response.
pub enum HandlerResult {
    /// The response is ready.
    Ready(Result<HandlerResponse, HandlerFailure>),
    /// A future for the tokio runtime beside the worker, with tokio's I/O and timers.
    OnRuntime(PendingResponse),
    /// A future for the worker itself: it only waits for events, and
    /// never computes. It uses the worker's I/O, timers and helper threads
    /// ([`Local`](lowroad_engine::Local)).
    OnWorker(PendingResponse),
}

impl HandlerResult {
    /// Waits for the response in a task of a worker.
    ///
    /// # Errors
    /// The handler's failure, or 500 if its task ended without a response.
    pub async fn answer(self) -> Result<HandlerResponse, HandlerFailure> {
        match self {
            // Wrapped, so that the task is aborted with the request: a dropped JoinHandle only detaches it.
            HandlerResult::Ready(answer) => answer,
            HandlerResult::OnWorker(pending) => pending.await,
            HandlerResult::OnRuntime(pending) => RuntimeTask(tokio::spawn(pending)).answer().await,
        }
    }
}

/// A task on the runtime beside the worker, aborted when this is dropped.
struct RuntimeTask(JoinHandle<Result<HandlerResponse, HandlerFailure>>);

impl RuntimeTask {
    async fn answer(mut self) -> Result<HandlerResponse, HandlerFailure> {
        (&mut self.0).await.unwrap_or_else(|_| {
            let detail = "its task ended without a response";
            Err(HandlerFailure::new(StatusCode::INTERNAL_ERROR, detail))
        })
    }
}

impl Drop for RuntimeTask {
    fn drop(&mut self) {
        // A request that was abandoned must not occupy its program any longer.
        self.0.abort();
    }
}

/// A failure to make a response. The client gets a page with the status code and a number; the log gets the
/// number and the detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerFailure {
    /// The status code for the client: 400, 403, 404, 411, 413, 500, 502, 503, 504 or 507.
    pub status: StatusCode,
    /// The detail for the operator: the fault, its place and a remedy. Empty if there is
    /// nothing to report, as for a missing program.
    pub detail: String,
}

impl HandlerFailure {
    /// A failure with a detail for the operator.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> HandlerFailure {
        HandlerFailure {
            status,
            detail: detail.into(),
        }
    }

    /// 404 without a detail.
    pub fn not_found() -> HandlerFailure {
        HandlerFailure::new(StatusCode::NOT_FOUND, "")
    }
}
