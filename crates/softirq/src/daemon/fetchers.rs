//! Threads that fetch what the learner wants. They know nothing of why.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::Error;
use crate::fetch::asker::Asker;
use crate::learn::Ticket;
use crate::response::FetchError;
use crate::response::fetched::{Fetched, Validators};
use lowroad_wire::key::Key;

/// What is to be fetched.
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    pub(super) validators: Validators,
}

/// What came of it.
pub(super) struct Done {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    pub(super) result: Result<Fetched, FetchError>,
}

/// Threads that fetch, each with connections of its own.
pub(super) fn start(
    asker: impl Fn() -> Asker,
    count: usize,
) -> Result<(Sender<Job>, Receiver<Done>), Error> {
    let (jobs, waiting) = channel::<Job>();
    let waiting = Arc::new(Mutex::new(waiting));
    let (results, done) = channel();
    for number in 0..count.max(1) {
        let (waiting, results) = (waiting.clone(), results.clone());
        let mut asker = asker();
        let work = move || {
            loop {
                let job = waiting.lock().map_or(None, |waiting| waiting.recv().ok());
                let Some(job) = job else { return };
                let result = asker.fetch(&job.key.parts(), &job.validators);
                let done = Done {
                    ticket: job.ticket,
                    key: job.key,
                    result,
                };
                if results.send(done).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name(format!("fetch-{number}"))
            .spawn(work)
            .map_err(Error::system("starting a thread"))?;
    }
    Ok((jobs, done))
}
