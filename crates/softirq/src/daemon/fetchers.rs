//! Threads that carry out the fetches that the learner requests.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::LevelError;
use crate::fetch::address_fetcher::AddressFetcher;
use crate::learner::FetchTicket;
use crate::response::FetchError;
use crate::response::fetched_response::{FetchedResponse, RevalidationFields};
use lowroad_wire::key::RequestKey;

/// A fetch to carry out.
pub(super) struct FetchOrder {
    pub(super) ticket: FetchTicket,
    pub(super) key: RequestKey,
    pub(super) validators: RevalidationFields,
}

/// The result of a fetch.
pub(super) struct FetchCompletion {
    pub(super) ticket: FetchTicket,
    pub(super) key: RequestKey,
    pub(super) result: Result<FetchedResponse, FetchError>,
}

/// Starts the fetcher threads, each with its own connections.
pub(super) fn start(
    new_fetcher: impl Fn() -> AddressFetcher,
    count: usize,
) -> Result<(Sender<FetchOrder>, Receiver<FetchCompletion>), LevelError> {
    let (jobs, waiting) = channel::<FetchOrder>();
    let waiting = Arc::new(Mutex::new(waiting));
    let (results, done) = channel();
    // At least one thread, since orders would wait forever without any.
    for number in 0..count.max(1) {
        let (waiting, results) = (waiting.clone(), results.clone());
        let mut fetcher = new_fetcher();
        let work = move || {
            loop {
                // One idle thread waits for an order; the others wait for the lock.
                let job = waiting.lock().map_or(None, |waiting| waiting.recv().ok());
                // `None` means that the channel is closed: the daemon's loop has dropped the sender.
                let Some(job) = job else { return };
                let result = fetcher.fetch(&job.key.parts(), &job.validators);
                let done = FetchCompletion {
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
            .map_err(LevelError::system("starting a thread"))?;
    }
    Ok((jobs, done))
}
