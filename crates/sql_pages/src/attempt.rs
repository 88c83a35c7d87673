//! One try to render a page.
//!
//! Rendering can't wait, queries must. So a page is rendered until it asks for what is not there
//! yet; then that is fetched, and the page is rendered anew from its beginning with what is there by
//! now. What a template does depends on nothing else, so it comes by the same way to the same place.
//! Nearly all pages ask first and write then, so little is done twice; against a thread that waits
//! for each page it saves two changes of threads for each query.
//!
//! The functions that templates call find the attempt through the thread that renders.

use std::cell::RefCell;
use std::sync::Arc;

use minijinja::{Error, ErrorKind, Value};

use super::database::{Call, Database, Databases, Fault};
use super::reply::Reply;
use super::visit::Visit;

/// What a page's rendering starts from, and what it leads to.
pub struct Attempt {
    /// The request.
    pub visit: Arc<Visit>,
    /// All databases.
    pub databases: Arc<Databases>,
    /// The database that calls mean which name none.
    pub database: Option<Arc<Database>>,
    /// The answers so far, in the order of the calls.
    pub answers: Vec<Result<Value, Fault>>,
    /// Bytes that it may take besides the answers so far.
    pub room: usize,
    /// How many calls were made in this attempt.
    pub calls: usize,
    /// What is said about the response.
    pub reply: Reply,
    /// Why rendering stopped, unless for an error of the template's.
    pub stop: Option<Stop>,
}

/// Why rendering stopped.
pub enum Stop {
    /// This database has to be asked first.
    Call(Arc<Database>, Call),
    /// The page has said all.
    Ended,
    /// A database did not answer as the page wished.
    Fault(Fault),
}

thread_local! {
    static CURRENT: RefCell<Option<Attempt>> = const { RefCell::new(None) };
}

impl Attempt {
    /// Runs `render` with this attempt as the thread's, and gives it back.
    pub fn run<T>(self, render: impl FnOnce() -> T) -> (Attempt, T) {
        CURRENT.with(|current| current.replace(Some(self)));
        let rendered = render();
        let attempt = CURRENT.with(RefCell::take);
        (attempt.expect("nothing else takes it"), rendered)
    }

    /// The answer to the next call, if it is there.
    pub fn ask(&mut self, database: Arc<Database>, call: Call) -> Result<Value, Error> {
        let answer = self.answers.get(self.calls).cloned();
        self.calls += 1;
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(fault)) => {
                let error = broken(&call, &fault);
                self.stop = Some(Stop::Fault(fault));
                Err(error)
            }
            None => Err(self.end(Stop::Call(database, call))),
        }
    }

    /// Stops rendering; what it gives back must be passed on.
    pub fn end(&mut self, stop: Stop) -> Error {
        self.stop = Some(stop);
        Error::new(ErrorKind::InvalidOperation, "stopped")
    }
}

fn broken(call: &Call, fault: &Fault) -> Error {
    Error::new(ErrorKind::InvalidOperation, told(call, fault))
}

/// What went wrong with a call, with the first line of its statement, for the log.
pub fn told(call: &Call, fault: &Fault) -> String {
    let line = call.sql.trim().lines().next().unwrap_or_default();
    let line: String = line.chars().take(200).collect();
    format!("{} [{line}]", fault.reason)
}

/// Does something with the attempt that this thread renders.
pub fn with<T>(run: impl FnOnce(&mut Attempt) -> Result<T, Error>) -> Result<T, Error> {
    CURRENT.with(|current| match current.borrow_mut().as_mut() {
        Some(attempt) => run(attempt),
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            "no page is being rendered",
        )),
    })
}
