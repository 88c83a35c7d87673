//! The handler interface: one trait for all kinds of dynamic content, its results and failures.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use lowroad_http::fields::Lines;
use lowroad_http::status::Status;
use tokio::task::JoinHandle;

use crate::request::Request;
use crate::response::Response;

/// A pending response. Dropping it cancels the work for it.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>>;

/// Makes responses to requests. Shared by all workers; it enforces its own limits (concurrency,
/// time, memory).
pub trait Handler: Send + Sync {
    /// Begins a response, on the worker with this number: it must not block or compute for long. Longer
    /// work is returned as a future.
    fn begin(self: Arc<Self>, worker: usize, request: Request) -> Begun;

    /// The inner handler of a wrapper, which answers the status functions.
    fn within(&self) -> Option<&dyn Handler> {
        None
    }

    /// A status text with requests in progress and refusals, if the handler counts them.
    fn status(&self) -> Option<String> {
        self.within()?.status()
    }

    /// Requests in progress, if the handler counts them.
    fn requests_under_way(&self) -> usize {
        self.within().map_or(0, Handler::requests_under_way)
    }

    /// The server that a request would get now, and the reason, for `explain`; `None` if there is no choice.
    /// Has no effects.
    fn whom(&self, outline: &Outline<'_>) -> Option<String> {
        self.within()?.whom(outline)
    }
}

/// The properties of a request that may determine its server.
pub struct Outline<'r> {
    /// Path and query as sent by the client.
    pub target: &'r [u8],
    /// The client's address.
    pub peer: IpAddr,
    /// The fields.
    pub fields: Lines<'r>,
}

/// The result of starting a response.
pub enum Begun {
    /// The response is ready.
    Answered(Result<Response, Failure>),
    /// A future for the tokio runtime beside the worker, with tokio's I/O and timers.
    Later(Answering),
    /// A future for the worker itself: it only waits for events, and
    /// never computes. It uses the worker's I/O, timers and helper threads
    /// ([`Local`](lowroad_engine::Local)).
    Here(Answering),
}

impl Begun {
    /// Waits for the response in a task of a worker.
    ///
    /// # Errors
    /// The handler's failure, or 500 if its task ended without a response.
    pub async fn answer(self) -> Result<Response, Failure> {
        match self {
            Begun::Answered(answer) => answer,
            Begun::Here(answering) => answering.await,
            Begun::Later(answering) => Beside(tokio::spawn(answering)).answer().await,
        }
    }
}

/// A task on the runtime beside the worker, aborted when this is dropped.
struct Beside(JoinHandle<Result<Response, Failure>>);

impl Beside {
    async fn answer(mut self) -> Result<Response, Failure> {
        (&mut self.0).await.unwrap_or_else(|_| {
            let detail = "its task ended without an answer";
            Err(Failure::new(Status::INTERNAL_ERROR, detail))
        })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A failure to make a response. The client gets a page with the status code and a number; the log gets the
/// number and the detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status code for the client: 400, 403, 404, 411, 413, 500, 502, 503, 504 or 507.
    pub status: Status,
    /// The detail for the operator: the fault, its place and a remedy. Empty if there is
    /// nothing to report, as for a missing program.
    pub detail: String,
}

impl Failure {
    /// A failure with a detail for the operator.
    pub fn new(status: Status, detail: impl Into<String>) -> Failure {
        Failure {
            status,
            detail: detail.into(),
        }
    }

    /// 404 without a detail.
    pub fn not_found() -> Failure {
        Failure::new(Status::NOT_FOUND, "")
    }
}
