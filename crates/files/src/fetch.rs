//! Loads objects on helper threads, once for all waiters (request coalescing).

use std::sync::Arc;

use lowroad_engine::background::contain;
use lowroad_engine::helpers::{Helpers, QueueFull};
use lowroad_http::encoding::Encoding;
use lowroad_http::status::Status;
use lowroad_store::disk_cache::{Recall, Recalled};
use lowroad_store::makings::{Job, Makings, Ticket};
use lowroad_store::object::Kind;
use lowroad_store::validity::Validity;
use lowroad_store::{Object, ObjectArc};

use crate::load::{Loaded, Loader, Want};

/// Waits for the result of a helper.
pub trait FetchWaiter: Send + 'static {
    /// Takes the result. Called once, on a helper thread.
    fn receive(self, fetched: Fetched);
}

/// The result of a helper.
pub enum Fetched {
    /// The object of a path.
    Loaded(Loaded),
    /// The disk look-up ended; a found response is in memory now.
    Recalled(Recalled),
}

/// Loads objects on helper threads, each once for all its waiters.
pub struct Fetcher<W> {
    loader: Arc<Loader>,
    helpers: Helpers,
    makings: Arc<Makings<W>>,
}

impl<W: FetchWaiter> Fetcher<W> {
    /// A fetcher that loads on these helpers.
    pub fn new(loader: Arc<Loader>, helpers: Helpers) -> Fetcher<W> {
        Fetcher {
            loader,
            helpers,
            makings: Arc::default(),
        }
    }

    /// The table of fetches in flight, by helpers and by handlers.
    pub fn makings(&self) -> &Arc<Makings<W>> {
        &self.makings
    }

    /// The loader, for callers that may block.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Loads an object, unless a load is in flight; `waiter` gets it.
    ///
    /// # Errors
    /// The queue is full.
    pub fn fetch(self: &Arc<Self>, want: Want, waiter: W) -> Result<(), QueueFull> {
        self.makings.share(job_of(&want), waiter, |ticket| {
            let fetcher = self.clone();
            self.helpers.submit(move || fetcher.work(&want, &ticket))
        })
    }

    /// Recalls a response from disk into memory; `waiter` and those of equal requests are notified.
    ///
    /// # Errors
    /// The queue is full.
    pub fn recall(self: &Arc<Self>, recall: Recall, waiter: W) -> Result<(), QueueFull> {
        self.makings
            .share(job_of_recall(&recall), waiter, |ticket| {
                let fetcher = self.clone();
                self.helpers.submit(move || fetcher.bring(&recall, &ticket))
            })
    }

    fn bring(&self, recall: &Recall, ticket: &Ticket) {
        let mut recalled = Recalled::default();
        let store = self.loader.store();
        contain(|| {
            if let Some(tier) = store.tier() {
                recalled = tier.recall(store, recall);
            }
        });
        for waiter in self.makings.end(ticket) {
            waiter.receive(Fetched::Recalled(recalled));
        }
    }

    fn work(&self, want: &Want, ticket: &Ticket) {
        let mut object = None;
        contain(|| object = Some(self.loader.load(want)));
        // After a panic, the waiters get an error, and the next request tries again.
        let object = object.unwrap_or_else(|| {
            ObjectArc::new(Object {
                kind: Kind::Refused(Status::INTERNAL_ERROR, want.key[..].into()),
                validity: Validity::of_files(None, 0),
            })
        });
        let loaded = Loaded::of(want, object);
        for waiter in self.makings.end(ticket) {
            waiter.receive(Fetched::Loaded(loaded.clone()));
        }
    }
}

/// The identity of a load: its key and base. A coding of an older version must not answer requests that know a newer
/// one.
fn job_of(want: &Want) -> Job {
    let mut job = want.key.to_vec();
    if want.encoding != Encoding::Identity {
        let base = want
            .base
            .as_ref()
            .map_or(0, |base| ObjectArc::as_ptr(base) as usize);
        job.push(want.encoding as u8);
        job.extend_from_slice(&base.to_le_bytes());
    }
    job.into()
}

/// The identity of a recall, with the purge epoch: requests after a purge do not join recalls begun before it.
fn job_of_recall(recall: &Recall) -> Job {
    let purges = recall.purges.to_le_bytes();
    let lines = if recall.is_for_lines {
        &*recall.lines
    } else {
        &[]
    };
    // No other key has this prefix.
    [b"disk\xff", &*recall.key, &purges, lines].concat().into()
}
