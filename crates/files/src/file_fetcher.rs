//! Loads files, and recalls responses from the disk cache, on helper threads; once for all waiting requests (request
//! coalescing).

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

/// A waiter for the result of a helper.
pub trait FetchWaiter: Send + 'static {
    /// Receives the result. Called once, on a helper thread.
    fn receive(self, fetched: FetchOutcome);
}

/// The result of a helper.
pub enum FetchOutcome {
    /// A file was loaded, or can't be.
    Loaded(LoadOutcome),
    /// The look-up on disk has ended; if a response was found, it is in memory now.
    Recalled(RecallOutcome),
}

/// Loads objects on helper threads, each once for all waiters.
pub struct FileFetcher<W> {
    loader: Arc<FileLoader>,
    helpers: HelperPool,
    in_flight: Arc<InFlightTable<W>>,
}

impl<W: FetchWaiter> FileFetcher<W> {
    /// Creates a fetcher that uses these helpers.
    pub fn new(loader: Arc<FileLoader>, helpers: HelperPool) -> FileFetcher<W> {
        FileFetcher {
            loader,
            helpers,
            in_flight: Arc::default(),
        }
    }

    /// The table of fetches in flight: loads, recalls, and calls of handlers.
    pub fn in_flight(&self) -> &Arc<InFlightTable<W>> {
        &self.in_flight
    }

    /// The loader, for callers that may block.
    pub fn loader(&self) -> &FileLoader {
        &self.loader
    }

    /// Loads an object, or joins a load that is in flight; `waiter` gets the object.
    ///
    /// # Errors
    /// The queue is full.
    pub fn fetch(self: &Arc<Self>, request: LoadRequest, waiter: W) -> Result<(), QueueFull> {
        self.in_flight
            .join_or_begin(load_key(&request), waiter, |ticket| {
                let fetcher = self.clone();
                self.helpers
                    .submit(move || fetcher.run_load(&request, &ticket))
            })
    }

    /// Recalls a response from disk into memory, or joins a recall that is in flight; `waiter` is notified.
    ///
    /// # Errors
    /// The queue is full.
    pub fn recall(self: &Arc<Self>, request: RecallRequest, waiter: W) -> Result<(), QueueFull> {
        self.in_flight
            .join_or_begin(recall_key(&request), waiter, |ticket| {
                let fetcher = self.clone();
                self.helpers
                    .submit(move || fetcher.run_recall(&request, &ticket))
            })
    }

    fn run_recall(&self, request: &RecallRequest, ticket: &InFlightTicket) {
        let mut outcome = RecallOutcome::default();
        let store = self.loader.store();
        contain(|| {
            if let Some(tier) = store.tier() {
                outcome = tier.recall(store, request);
            }
        });
        for waiter in self.in_flight.end(ticket) {
            waiter.receive(FetchOutcome::Recalled(outcome));
        }
    }

    fn run_load(&self, request: &LoadRequest, ticket: &InFlightTicket) {
        let mut object = None;
        contain(|| object = Some(self.loader.load(request)));
        // After a panic, the waiters get an error, and the next request retries.
        let object = object.unwrap_or_else(|| {
            ObjectArc::new(StoredObject {
                kind: ObjectKind::Refused(StatusCode::INTERNAL_ERROR, request.key[..].into()),
                validity: ObjectValidity::from_files(None, 0),
            })
        });
        let outcome = LoadOutcome::new(request, object);
        for waiter in self.in_flight.end(ticket) {
            waiter.receive(FetchOutcome::Loaded(outcome.clone()));
        }
    }
}

/// The coalescing key of a load: the store's key, and for content codings the identity from which they are made, since
/// a coding of an older version must not answer requests that know a newer version.
fn load_key(request: &LoadRequest) -> InFlightKey {
    let mut key = request.key.to_vec();
    if request.encoding != ContentCoding::Identity {
        let base = request
            .base
            .as_ref()
            .map_or(0, |base| ObjectArc::as_ptr(base) as usize);
        // Codings of different versions of a file are not coalesced.
        key.push(request.encoding as u8);
        key.extend_from_slice(&base.to_le_bytes());
    }
    key.into()
}

/// The coalescing key of a recall. It includes the purge epoch, so that requests after a purge do not join recalls that
/// began before it.
fn recall_key(request: &RecallRequest) -> InFlightKey {
    let purges = request.purges.to_le_bytes();
    // Until a resource is known to have variants, all requests for it share one recall.
    let lines = if request.is_for_lines {
        &*request.lines
    } else {
        &[]
    };
    // No coalescing key of another kind has this prefix.
    [b"disk\xff", &*request.key, &purges, lines].concat().into()
}
