//! One attempt to render a page.
//!
//! Rendering cannot wait, but queries must. So a page is rendered until it calls for a result that is missing; the
//! query runs, and the page is rendered again from its beginning with the results so far. Templates depend on nothing
//! else, so each attempt repeats the same calls. Nearly all pages query first and write afterwards, so little work is
//! repeated. Compared with a blocking thread per page, this saves two thread switches per query.
//!
//! The functions that templates call find the attempt through a thread-local variable.

use std::cell::RefCell;
use std::sync::Arc;

use minijinja::{Error, ErrorKind, Value};

use super::database::{DatabaseCall, DatabaseFault, DatabaseSet, PageDatabase};
use super::reply::PageResponseHead;
use super::request_values::VisitContext;

/// The inputs and results of one attempt to render a page.
pub struct RenderAttempt {
    /// The request.
    pub visit: Arc<VisitContext>,
    /// All databases.
    pub databases: Arc<DatabaseSet>,
    /// The database of calls that name none.
    pub database: Option<Arc<PageDatabase>>,
    /// The answers so far, in the order of the calls.
    pub answers: Vec<Result<Value, DatabaseFault>>,
    /// Bytes that the page may use besides the answers so far.
    pub room: usize,
    /// How many calls were made in this attempt.
    pub calls: usize,
    /// The status, fields and cookies that the page sets.
    pub reply: PageResponseHead,
    /// Why rendering stopped, unless because of a template error.
    pub stop: Option<RenderStop>,
}

/// Why rendering stopped.
pub enum RenderStop {
    /// This query must run first.
    Call(Arc<PageDatabase>, DatabaseCall),
    /// The page ended its output early.
    Ended,
    /// A database call failed.
    Fault(DatabaseFault),
}

thread_local! {
    static CURRENT: RefCell<Option<RenderAttempt>> = const { RefCell::new(None) };
}

impl RenderAttempt {
    /// Runs `render` with this attempt as the thread's current one, and returns it.
    pub fn run<T>(self, render: impl FnOnce() -> T) -> (RenderAttempt, T) {
        CURRENT.with(|current| current.replace(Some(self)));
        let rendered = render();
        let attempt = CURRENT.with(RefCell::take);
        (attempt.expect("nothing else takes it"), rendered)
    }

    /// The answer to the next call, if it is known.
    pub fn next_answer(
        &mut self,
        database: Arc<PageDatabase>,
        call: DatabaseCall,
    ) -> Result<Value, Error> {
        // Each attempt makes the same calls in the same order, so results are found by their number.
        let answer = self.answers.get(self.calls).cloned();
        self.calls += 1;
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(fault)) => {
                // A failed call is answered once more in this attempt, so that the error has its place in the template.
                let error = call_error(&call, &fault);
                // The status is that of the fault; an error of the engine alone would be 500.
                self.stop = Some(RenderStop::Fault(fault));
                Err(error)
            }
            None => Err(self.end(RenderStop::Call(database, call))),
        }
    }

    /// Stops rendering; the returned error must be propagated.
    pub fn end(&mut self, stop: RenderStop) -> Error {
        self.stop = Some(stop);
        Error::new(ErrorKind::InvalidOperation, "stopped")
    }
}

fn call_error(call: &DatabaseCall, fault: &DatabaseFault) -> Error {
    Error::new(ErrorKind::InvalidOperation, describe_failure(call, fault))
}

/// A call's failure with the first line of its statement, for the log.
pub fn describe_failure(call: &DatabaseCall, fault: &DatabaseFault) -> String {
    let line = call.sql.trim().lines().next().unwrap_or_default();
    // Cut by characters, for the log.
    let line: String = line.chars().take(200).collect();
    format!("{} [{line}]", fault.reason)
}

/// Runs a function with the attempt that this thread renders.
pub fn with<T>(run: impl FnOnce(&mut RenderAttempt) -> Result<T, Error>) -> Result<T, Error> {
    CURRENT.with(|current| match current.borrow_mut().as_mut() {
        Some(attempt) => run(attempt),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "no page is being rendered",
        )),
    })
}
