//! What makes answers: the one trait behind all kinds of dynamic content, and how it fails.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use lowroad_http::fields::Lines;
use lowroad_http::status::Status;
use tokio::task::JoinHandle;

use crate::request::Request;
use crate::response::Response;

/// An answer being made. Dropping it gives it up: what works for it is ended.
pub type Answering = Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send>>;

/// Makes answers to requests. Shared by all workers; knows its own limits (how many at a time, how
/// long, how much memory) and keeps them.
pub trait Handler: Send + Sync {
    /// Begins to answer, on the worker with this number: it must neither wait nor take long. What
    /// takes time it returns as a future.
    fn begin(self: Arc<Self>, worker: usize, request: Request) -> Begun;

    /// The handler that this one stands in front of, if it does: what people ask of it is that one's to say.
    fn within(&self) -> Option<&dyn Handler> {
        None
    }

    /// What it has under way and has refused, for people, where it counts that itself.
    fn status(&self) -> Option<String> {
        self.within()?.status()
    }

    /// How many requests are under way, where it counts that itself.
    fn requests_under_way(&self) -> usize {
        self.within().map_or(0, Handler::requests_under_way)
    }

    /// Which server a request would be given to now, and why that one, for people; `None` where there is none to choose.
    /// Nothing is asked or changed.
    fn whom(&self, outline: &Outline<'_>) -> Option<String> {
        self.within()?.whom(outline)
    }
}

/// What of a request may say who answers it.
pub struct Outline<'r> {
    /// The path and the query as they were sent.
    pub target: &'r [u8],
    /// Where the client is.
    pub peer: IpAddr,
    /// The fields.
    pub fields: Lines<'r>,
}

/// How far an answer has come.
pub enum Begun {
    /// It is there.
    Answered(Result<Response, Failure>),
    /// It is to come, and is polled on a tokio runtime beside the worker, with tokio's I/O and timers.
    Later(Answering),
    /// It is to come, and is polled on the worker itself: it only waits for what wakes it, and
    /// never computes. Its I/O, timers and helpers are the worker's
    /// ([`Local`](lowroad_engine::Local)).
    Here(Answering),
}

impl Begun {
    /// Waits for it in a task of a worker.
    ///
    /// # Errors
    /// As the handler says, or if its task ended without an answer.
    pub async fn answer(self) -> Result<Response, Failure> {
        match self {
            Begun::Answered(answer) => answer,
            Begun::Here(answering) => answering.await,
            Begun::Later(answering) => Beside(tokio::spawn(answering)).answer().await,
        }
    }
}

/// An answer that is made on the runtime beside the worker, given up when this is dropped.
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

/// Why there is no response. The client gets a page with the status and a number; the log gets the
/// number and the detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the client is told: 400, 403, 404, 411, 413, 500, 502, 503, 504 or 507.
    pub status: Status,
    /// What the operator is told: what, where, and what to do about it. Empty where there is
    /// nothing to tell, as for a program that is not there.
    pub detail: String,
}

impl Failure {
    /// A failure with something to tell the operator.
    pub fn new(status: Status, detail: impl Into<String>) -> Failure {
        Failure {
            status,
            detail: detail.into(),
        }
    }

    /// There is no such thing.
    pub fn not_found() -> Failure {
        Failure::new(Status::NOT_FOUND, "")
    }
}
