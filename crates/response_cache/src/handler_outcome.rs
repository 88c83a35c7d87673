//! [`HandlerOutcome`]: the event that resumes a deferred request on its worker.

use std::sync::Arc;

use lowroad_access_control::passwords::PasswordOutcome;
use lowroad_engine::ExchangeId;
use lowroad_files::file_fetcher::{FetchOutcome, FetchWaiter};
use lowroad_files::file_loader::LoadOutcome;
use lowroad_handler::HandlerFailure;
use lowroad_store::disk_cache::RecallOutcome;

use crate::reply::HandlerReply;
use crate::storage::StoredResponse;

/// The event for which a deferred request waited.
pub enum HandlerOutcome {
    /// A file was loaded.
    Loaded(LoadOutcome),
    /// A handler responded, and the response is not stored.
    Reply(Result<Box<HandlerReply>, HandlerFailure>),
    /// A handler responded, and the response is in the store.
    Stored(StoredResponse),
    /// The look-up on disk has ended; if a response was found, it is in memory now.
    Recalled(RecallOutcome),
    /// A purge was written to disk, or could not be.
    PurgeSaved {
        /// The purge is durable.
        is_durable: bool,
    },
    /// The result of a password check.
    PasswordChecked(PasswordOutcome),
    /// The leader's response can't be shared: the request must call the handler itself (again).
    NotShareable,
}

/// Posts an outcome to the worker of the waiting request.
pub type OutcomeSender = Arc<dyn Fn(ExchangeId, HandlerOutcome) + Send + Sync>;

/// A deferred request that waits for an outcome.
pub struct OutcomeWaiter {
    post: OutcomeSender,
    id: ExchangeId,
}

impl OutcomeWaiter {
    /// Creates the waiter of the exchange `id`; `post` delivers outcomes to its worker.
    pub fn new(post: OutcomeSender, id: ExchangeId) -> OutcomeWaiter {
        OutcomeWaiter { post, id }
    }

    /// Sends the outcome to the worker.
    pub fn wake(self, outcome: HandlerOutcome) {
        (self.post)(self.id, outcome);
    }
}

impl FetchWaiter for OutcomeWaiter {
    fn receive(self, fetched: FetchOutcome) {
        self.wake(match fetched {
            FetchOutcome::Loaded(loaded) => HandlerOutcome::Loaded(loaded),
            FetchOutcome::Recalled(recalled) => HandlerOutcome::Recalled(recalled),
        });
    }
}
