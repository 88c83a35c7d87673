//! Loads objects on helper threads, once for all waiters (request coalescing).

use std::sync::Arc;

use lowroad_engine::helper_pool::{HelperPool, QueueFull};
use lowroad_engine::panic_policy::contain;
use lowroad_http::content_coding::ContentCoding;
use lowroad_http::status::StatusCode;
use lowroad_store::disk_cache::{RecallOutcome, RecallRequest};
use lowroad_store::in_flight::{InFlightKey, InFlightTable, InFlightTicket};
use lowroad_store::object::ObjectKind;
use lowroad_store::validity::ObjectValidity;
use lowroad_store::{ObjectArc, StoredObject};

use crate::file_loader::{FileLoader, LoadOutcome, LoadRequest};

/// Waits for the result of a helper.
pub trait FetchWaiter: Send + 'static {
    /// Takes the result. Called once, on a helper thread.
    fn receive(self, fetched: FetchOutcome);
}

/// The result of a helper.
pub enum FetchOutcome {
    /// The object of a path.
    Loaded(LoadOutcome),
    /// The disk look-up ended; a found response is in memory now.
    Recalled(RecallOutcome),
}

/// Loads objects on helper threads, each once for all its waiters.
pub struct FileFetcher<W> {
    loader: Arc<FileLoader>,
    helpers: HelperPool,
    makings: Arc<InFlightTable<W>>,
}

impl<W: FetchWaiter> FileFetcher<W> {
    /// A fetcher that loads on these helpers.
    pub fn new(loader: Arc<FileLoader>, helpers: HelperPool) -> FileFetcher<W> {
        FileFetcher {
            loader,
            helpers,
            makings: Arc::default(),
        }
    }

    /// The table of fetches in flight, by helpers and by handlers.
    pub fn makings(&self) -> &Arc<InFlightTable<W>> {
        &self.makings
    }

    /// The loader, for callers that may block.
    pub fn loader(&self) -> &FileLoader {
        &self.loader
    }

    /// Loads an object, unless a load is in flight; `waiter` gets it.
    ///
    /// # Errors
    /// The queue is full.
    pub fn fetch(self: &Arc<Self>, want: LoadRequest, waiter: W) -> Result<(), QueueFull> {
        self.makings.share(job_of(&want), waiter, |ticket| {
            let fetcher = self.clone();
            self.helpers.submit(move || fetcher.work(&want, &ticket))
        })
    }

    /// Recalls a response from disk into memory; `waiter` and those of equal requests are notified.
    ///
    /// # Errors
    /// The queue is full.
    pub fn recall(self: &Arc<Self>, recall: RecallRequest, waiter: W) -> Result<(), QueueFull> {
        self.makings
            .share(job_of_recall(&recall), waiter, |ticket| {
                let fetcher = self.clone();
                self.helpers.submit(move || fetcher.bring(&recall, &ticket))
            })
    }

    fn bring(&self, recall: &RecallRequest, ticket: &InFlightTicket) {
        let mut recalled = RecallOutcome::default();
        let store = self.loader.store();
        contain(|| {
            if let Some(tier) = store.tier() {
                recalled = tier.recall(store, recall);
            }
        });
        for waiter in self.makings.end(ticket) {
            waiter.receive(FetchOutcome::Recalled(recalled));
        }
    }

    fn work(&self, want: &LoadRequest, ticket: &InFlightTicket) {
        let mut object = None;
        contain(|| object = Some(self.loader.load(want)));
        // After a panic, the waiters get an error, and the next request tries again.
        let object = object.unwrap_or_else(|| {
            ObjectArc::new(StoredObject {
                kind: ObjectKind::Refused(StatusCode::INTERNAL_ERROR, want.key[..].into()),
                validity: ObjectValidity::from_files(None, 0),
            })
        });
        let loaded = LoadOutcome::new(want, object);
        for waiter in self.makings.end(ticket) {
            waiter.receive(FetchOutcome::Loaded(loaded.clone()));
        }
    }
}

/// The identity of a load: its key and base. A coding of an older version must not answer requests that know a newer
/// one.
fn job_of(want: &LoadRequest) -> InFlightKey {
    let mut job = want.key.to_vec();
    if want.encoding != ContentCoding::Identity {
        let base = want
            .base
            .as_ref()
            .map_or(0, |base| ObjectArc::as_ptr(base) as usize);
        // Codings of different versions of a file are different jobs.
        job.push(want.encoding as u8);
        job.extend_from_slice(&base.to_le_bytes());
    }
    job.into()
}

/// The identity of a recall, with the purge epoch: requests after a purge do not join recalls begun before it.
fn job_of_recall(recall: &RecallRequest) -> InFlightKey {
    let purges = recall.purges.to_le_bytes();
    // Until a resource is known to vary, all its requests share one recall.
    let lines = if recall.is_for_lines {
        &*recall.lines
    } else {
        &[]
    };
    // No other key has this prefix.
    [b"disk\xff", &*recall.key, &purges, lines].concat().into()
}
