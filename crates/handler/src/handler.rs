//! The handler interface: one trait for all kinds of dynamic content, with its results and failures.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use lowroad_http::fields::FieldLines;
use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use tokio::task::JoinHandle;

use crate::request::HandlerRequest;
use crate::response::HandlerResponse;

/// A pending response. Dropping it cancels the work for it.
pub type PendingResponse =
    Pin<Box<dyn Future<Output = Result<HandlerResponse, HandlerFailure>> + Send>>;

/// Generates responses to requests. A handler is shared by all workers, and enforces its own limits (concurrency, time,
/// memory).
pub trait Handler: Send + Sync {
    /// Begins a response, on the worker with this number. Must not block or compute for long: longer work is returned
    /// as a future.
    fn begin(self: Arc<Self>, worker: usize, request: HandlerRequest) -> HandlerResult;

    /// The inner handler of a wrapper, to which the status functions are delegated.
    fn inner_handler(&self) -> Option<&dyn Handler> {
        None
    }

    /// A status text with the numbers of requests in progress and of rejected requests, if the handler counts them.
    fn status(&self) -> Option<String> {
        self.inner_handler()?.status()
    }

    /// The number of requests in progress, if the handler counts them.
    fn requests_in_progress(&self) -> usize {
        self.inner_handler()
            .map_or(0, Handler::requests_in_progress)
    }

    /// For `lowroad explain`: the upstream server that a request would get now, and the reason. `None` if there is no
    /// choice. Has no effects.
    fn explain_member(&self, probe: &RouteProbe<'_>) -> Option<String> {
        self.inner_handler()?.explain_member(probe)
    }

    /// For `lowroad explain`: the request line and the field lines that an upstream server would get, if the route changes
    /// them. Has no effects.
    fn explain_request(&self, request: &HandlerRequest) -> Vec<String> {
        self.inner_handler()
            .map_or_else(Vec::new, |inner| inner.explain_request(request))
    }
}

/// The properties of a request that may determine its upstream server.
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
    /// A future for the tokio runtime, with tokio's I/O and timers.
    OnRuntime(PendingResponse),
    /// A future for the worker itself: it only waits for events, and never computes for long. It uses the worker's I/O,
    /// timers and helper threads ([`WorkerHandle`](lowroad_engine::WorkerHandle)).
    OnWorker(PendingResponse),
}

impl HandlerResult {
    /// Waits for the response in a task of a worker.
    ///
    /// # Errors
    /// The handler's failure, or 500 if its task ended without a response.
    pub async fn answer(self) -> Result<HandlerResponse, HandlerFailure> {
        match self {
            HandlerResult::Ready(answer) => answer,
            HandlerResult::OnWorker(pending) => pending.await,
            // The handle is wrapped, since dropping a JoinHandle would only detach the task.
            HandlerResult::OnRuntime(pending) => RuntimeTask(tokio::spawn(pending)).answer().await,
        }
    }
}

/// A task on the tokio runtime, which is aborted when this value is dropped.
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
        // A cancelled request must not occupy its application any longer.
        self.0.abort();
    }
}

/// A handler's failure to generate a response. The client gets an error page with the status code and an incident
/// number; the log gets this number and the detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerFailure {
    /// The status code for the client: 400, 403, 404, 411, 413, 500, 502, 503, 504 or 507.
    pub status: StatusCode,
    /// The detail for the operator: the error, where it occurred, and a remedy. Empty if there is nothing to report, as
    /// for a missing script.
    pub detail: String,
    /// The limit that was hit, if that is the reason.
    pub reason: Option<RefusalReason>,
}

impl HandlerFailure {
    /// A failure with a detail for the operator. 504 and 413 have only one reason each; that of another status is set
    /// by [`HandlerFailure::with_reason`].
    pub fn new(status: StatusCode, detail: impl Into<String>) -> HandlerFailure {
        HandlerFailure {
            status,
            detail: detail.into(),
            reason: match status {
                StatusCode::GATEWAY_TIMEOUT => Some(RefusalReason::Timeout),
                StatusCode::CONTENT_TOO_LARGE => Some(RefusalReason::BodyLen),
                _ => None,
            },
        }
    }

    /// The same failure, because of this limit.
    pub fn with_reason(self, reason: RefusalReason) -> HandlerFailure {
        HandlerFailure {
            reason: Some(reason),
            ..self
        }
    }

    /// 404 without a detail.
    pub fn not_found() -> HandlerFailure {
        HandlerFailure::new(StatusCode::NOT_FOUND, "")
    }
}
