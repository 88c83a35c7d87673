//! Brings workers and helpers together: many requests that wait for the same answer share one job.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_engine::Token;
use lowroad_engine::background::contain;
use lowroad_engine::helpers::{Helpers, QueueFull};
use lowroad_http::encoding::Encoding;
use lowroad_http::status::Status;

use crate::answer::Outcome;
use crate::load::{Loader, Want};
use crate::stored::{Kind, Stored};

/// What was loaded.
#[derive(Clone)]
pub struct Loaded {
    /// The answer for the path itself.
    pub base: Arc<Stored>,
    /// The encoding that was wanted, and the answer in it; refused if it can't be had.
    pub encoded: Option<(Encoding, Arc<Stored>)>,
}

/// How an outcome gets back to the worker that waits.
pub type Reply = Arc<dyn Fn(Token, Outcome) + Send + Sync>;

/// Who waits for which job.
type Waiting = HashMap<Job, Vec<(Reply, Token)>>;

/// A job by its key, and by what it starts from: an encoding made of an older version must not
/// answer who knows a newer one.
type Job = (Box<[u8]>, usize);

/// Has answers loaded.
pub struct Fetcher {
    loader: Arc<Loader>,
    helpers: Helpers,
    waiting: Mutex<Waiting>,
}

impl Fetcher {
    /// A fetcher that loads on these helpers.
    pub fn new(loader: Arc<Loader>, helpers: Helpers) -> Fetcher {
        Fetcher {
            loader,
            helpers,
            waiting: Mutex::default(),
        }
    }

    /// The loader, for who may block.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Has an answer loaded, unless it is being loaded already; `reply` gets it.
    ///
    /// # Errors
    /// When too many jobs wait.
    pub fn fetch(
        self: &Arc<Self>,
        want: Want,
        reply: Reply,
        token: Token,
    ) -> Result<(), QueueFull> {
        let job = job_of(&want);
        let mut waiting = self.waiting();
        if let Some(others) = waiting.get_mut(&job) {
            others.push((reply, token));
            return Ok(());
        }
        // Submitted under the lock: nobody can join a job that is then refused.
        let fetcher = self.clone();
        self.helpers.submit(move || fetcher.work(&want))?;
        waiting.insert(job, vec![(reply, token)]);
        Ok(())
    }

    fn work(&self, want: &Want) {
        let mut stored = None;
        contain(|| stored = Some(self.loader.load(want)));
        // It panicked: those who wait hear of it, and it is tried again for the next.
        let stored = stored.unwrap_or_else(|| {
            let refused = Kind::Refused(Status::INTERNAL_ERROR);
            Arc::new(Stored::new(refused, 0, None, 0))
        });
        let loaded = match (want.encoding, &want.base) {
            (Encoding::Identity, _) | (_, None) => Loaded {
                base: stored,
                encoded: None,
            },
            (encoding, Some(base)) => Loaded {
                base: base.clone(),
                encoded: Some((encoding, stored)),
            },
        };
        let waiting = self.waiting().remove(&job_of(want));
        for (reply, token) in waiting.into_iter().flatten() {
            reply(token, Outcome::Loaded(loaded.clone()));
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn job_of(want: &Want) -> Job {
    let base = match want.encoding {
        Encoding::Identity => 0,
        _ => want
            .base
            .as_ref()
            .map_or(0, |base| Arc::as_ptr(base) as usize),
    };
    (want.key.clone(), base)
}
