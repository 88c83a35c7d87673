//! The outcome that resumes a deferred request on its worker.

use std::sync::Arc;

use lowroad_access_control::passwords::Checked;
use lowroad_engine::ExchangeId;
use lowroad_files::fetch::{FetchWaiter, Fetched};
use lowroad_files::load::Loaded;
use lowroad_handler::Failure;
use lowroad_store::disk_cache::Recalled;

use crate::reply::Reply;
use crate::storing::Stored;

/// The event for which a deferred request waited.
pub enum Outcome {
    /// A file was loaded.
    Loaded(Loaded),
    /// A handler responded, and the response is not stored.
    Reply(Result<Box<Reply>, Failure>),
    /// A handler responded, and the response is in the store.
    Stored(Stored),
    /// The disk look-up ended; a found response is in memory now.
    Recalled(Recalled),
    /// The report about a purge's durability.
    Purged {
        /// The purge is durable.
        are_kept: bool,
    },
    /// The result of a password check.
    Checked(Checked),
    /// The leader's response can't be shared: the request must call the handler itself.
    Alone,
}

/// Posts an outcome to the waiting worker.
pub type Post = Arc<dyn Fn(ExchangeId, Outcome) + Send + Sync>;

/// A request of a worker that waits for an outcome.
pub struct Waiter {
    post: Post,
    id: ExchangeId,
}

impl Waiter {
    /// Creates the waiter of the exchange `id`; `post` delivers outcomes to its worker.
    pub fn new(post: Post, id: ExchangeId) -> Waiter {
        Waiter { post, id }
    }

    /// Sends the outcome to the worker.
    pub fn wake(self, outcome: Outcome) {
        (self.post)(self.id, outcome);
    }
}

impl FetchWaiter for Waiter {
    fn receive(self, fetched: Fetched) {
        self.wake(match fetched {
            Fetched::Loaded(loaded) => Outcome::Loaded(loaded),
            Fetched::Recalled(recalled) => Outcome::Recalled(recalled),
        });
    }
}
