//! What a deferred request waited for, as it comes back to its worker. Knows neither who makes it nor what becomes of it.

use std::sync::Arc;

use lowroad_access_control::passwords::Checked;
use lowroad_engine::ExchangeId;
use lowroad_files::fetch::{FetchWaiter, Fetched};
use lowroad_files::load::Loaded;
use lowroad_handler::Failure;
use lowroad_store::disk_cache::Recalled;

use crate::reply::Reply;
use crate::storing::Stored;

/// What came.
pub enum Outcome {
    /// What is stored for it now.
    Loaded(Loaded),
    /// What a program answered.
    Reply(Result<Box<Reply>, Failure>),
    /// What a program answered, in the store.
    Stored(Stored),
    /// What the disk had for it is in memory now, if it had something.
    Recalled(Recalled),
    /// Whether what was purged is not there again after a restart.
    Purged {
        /// It is not.
        are_kept: bool,
    },
    /// What came of the password that it shows.
    Checked(Checked),
    /// What was waited for was of no use to others: the program is to be asked.
    Alone,
}

/// How an outcome gets back to the worker that waits.
pub type Post = Arc<dyn Fn(ExchangeId, Outcome) + Send + Sync>;

/// A request of a worker that waits for an outcome.
pub struct Waiter {
    post: Post,
    id: ExchangeId,
}

impl Waiter {
    /// The request of this number; `post` gets outcomes to its worker.
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
