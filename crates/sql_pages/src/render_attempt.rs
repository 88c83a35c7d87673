//! One attempt to render a page.
//!
//! Rendering cannot wait, but database calls must. So a page is rendered until it makes a call with a missing answer.
//! The call is executed, and the page is rendered again from the start with the answers so far. Templates depend on
//! nothing else, so each attempt repeats the same calls. Nearly all pages query first and write their output
//! afterwards, so little work is repeated. Compared with one blocking thread per page, this saves two thread switches
//! per call.
//!
//! The functions that templates call find the current attempt in a thread-local variable.

use std::cell::RefCell;
use std::sync::Arc;

use minijinja::{Error, ErrorKind, Value};

use super::database::{DatabaseCall, DatabaseFault, DatabaseSet, PageDatabase};
use super::reply::PageResponseHead;
use super::request_values::TemplateRequest;

/// The inputs and results of one attempt to render a page.
pub struct RenderAttempt {
    /// The request.
    pub visit: Arc<TemplateRequest>,
    /// All databases.
    pub databases: Arc<DatabaseSet>,
    /// The database for calls that do not name one.
    pub database: Option<Arc<PageDatabase>>,
    /// The answers so far, in the order of the calls.
    pub answers: Vec<Result<Value, DatabaseFault>>,
    /// The memory in bytes that the page may use in addition to the answers so far.
    pub room: usize,
    /// The number of calls made in this attempt.
    pub calls: usize,
    /// The status, fields and cookies that the page has set.
    pub reply: PageResponseHead,
    /// The reason that rendering stopped early; `None` after a template error or at the end of the page.
    pub stop: Option<RenderStop>,
}

/// The reason that rendering stopped early.
pub enum RenderStop {
    /// This call must be executed first.
    Call(Arc<PageDatabase>, DatabaseCall),
    /// The page ended rendering, by `redirect()`.
    Ended,
    /// A database call failed.
    Fault(DatabaseFault),
}

thread_local! {
    static CURRENT: RefCell<Option<RenderAttempt>> = const { RefCell::new(None) };
}

impl RenderAttempt {
    /// Runs `render` with this attempt as the current one of the thread, then returns the attempt.
    pub fn run<T>(self, render: impl FnOnce() -> T) -> (RenderAttempt, T) {
        CURRENT.with(|current| current.replace(Some(self)));
        let rendered = render();
        let attempt = CURRENT.with(RefCell::take);
        (attempt.expect("nothing else takes it"), rendered)
    }

    /// Returns the answer to the next call; if it is missing, stops rendering.
    pub fn next_answer(
        &mut self,
        database: Arc<PageDatabase>,
        call: DatabaseCall,
    ) -> Result<Value, Error> {
        // Each attempt makes the same calls in the same order, so an answer is identified by its index.
        let answer = self.answers.get(self.calls).cloned();
        self.calls += 1;
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(fault)) => {
                // The failure is raised here, in the attempt that repeats the call, so that the error has the
                // template's line.
                let error = call_error(&call, &fault);
                // The response gets the status of the fault instead of 500.
                self.stop = Some(RenderStop::Fault(fault));
                Err(error)
            }
            None => Err(self.end(RenderStop::Call(database, call))),
        }
    }

    /// Stops rendering; the caller must propagate the returned error.
    pub fn end(&mut self, stop: RenderStop) -> Error {
        self.stop = Some(stop);
        Error::new(ErrorKind::InvalidOperation, "stopped")
    }
}

fn call_error(call: &DatabaseCall, fault: &DatabaseFault) -> Error {
    Error::new(ErrorKind::InvalidOperation, describe_failure(call, fault))
}

/// The message for a failed call, with the first line of its statement, for the log.
pub fn describe_failure(call: &DatabaseCall, fault: &DatabaseFault) -> String {
    let line = call.sql.trim().lines().next().unwrap_or_default();
    // The length is limited at a character boundary.
    let line: String = line.chars().take(200).collect();
    format!("{} [{line}]", fault.reason)
}

/// Calls `run` with the current attempt of this thread.
pub fn with<T>(run: impl FnOnce(&mut RenderAttempt) -> Result<T, Error>) -> Result<T, Error> {
    CURRENT.with(|current| match current.borrow_mut().as_mut() {
        Some(attempt) => run(attempt),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "no page is being rendered",
        )),
    })
}
