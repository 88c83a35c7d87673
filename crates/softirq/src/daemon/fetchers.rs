//! Threads that carry out the learner's fetches.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::Error;
use crate::fetch::asker::Asker;
use crate::learn::Ticket;
use crate::response::FetchError;
use crate::response::fetched::{Fetched, Validators};
use lowroad_wire::key::Key;

/// A fetch to carry out.
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    pub(super) validators: Validators,
}

/// Its result.
pub(super) struct Done {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    pub(super) result: Result<Fetched, FetchError>,
}

/// Starts threads that fetch, each with its own connections.
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
                // One idle thread waits for a job, the others for the lock.
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
