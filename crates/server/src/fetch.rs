//! Brings workers and helpers together: has a helper load what is not in memory, once for all who wait for it.

use std::sync::Arc;

use lowroad_engine::Token;
use lowroad_engine::background::contain;
use lowroad_engine::helpers::{Helpers, QueueFull};
use lowroad_http::encoding::Encoding;
use lowroad_http::status::Status;

use crate::answer::Outcome;
use crate::load::{Loader, Want};
use crate::store::Object;
use crate::store::makings::{Job, Makings, Ticket};
use crate::store::object::Kind;
use crate::store::validity::Validity;

/// What was loaded.
#[derive(Clone)]
pub struct Loaded {
    /// What there is at the path itself.
    pub base: Arc<Object>,
    /// What there is in the encoding that was wanted; refused if it can't be had in it.
    pub encoded: Option<Arc<Object>>,
}

impl Loaded {
    /// What came of a want.
    pub fn of(want: &Want, object: Arc<Object>) -> Loaded {
        match (want.encoding, &want.base) {
            (Encoding::Identity, _) | (_, None) => Loaded {
                base: object,
                encoded: None,
            },
            (_, Some(base)) => Loaded {
                base: base.clone(),
                encoded: Some(object),
            },
        }
    }
}

/// How an outcome gets back to the worker that waits.
pub type Reply = Arc<dyn Fn(Token, Outcome) + Send + Sync>;

/// Who waits: how it is told, and which of a worker's connections it is.
pub type Waits = (Reply, Token);

/// Has objects loaded.
pub struct Fetcher {
    loader: Arc<Loader>,
    helpers: Helpers,
    makings: Arc<Makings<Waits>>,
}

impl Fetcher {
    /// A fetcher that loads on these helpers.
    pub fn new(loader: Arc<Loader>, helpers: Helpers) -> Fetcher {
        Fetcher {
            loader,
            helpers,
            makings: Arc::default(),
        }
    }

    /// What is being made, by helpers or by programs.
    pub fn makings(&self) -> &Arc<Makings<Waits>> {
        &self.makings
    }

    /// The loader, for who may block.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// Has an object loaded, unless it is being loaded already; `reply` gets it.
    ///
    /// # Errors
    /// When too many jobs wait.
    pub fn fetch(
        self: &Arc<Self>,
        want: Want,
        reply: Reply,
        token: Token,
    ) -> Result<(), QueueFull> {
        self.makings.share(job_of(&want), (reply, token), |ticket| {
            let fetcher = self.clone();
            self.helpers.submit(move || fetcher.work(&want, &ticket))
        })
    }

    fn work(&self, want: &Want, ticket: &Ticket) {
        let mut object = None;
        contain(|| object = Some(self.loader.load(want)));
        // It panicked: those who wait hear of it, and it is tried again for the next.
        let object = object.unwrap_or_else(|| {
            Arc::new(Object {
                kind: Kind::Refused(Status::INTERNAL_ERROR),
                size: 0,
                validity: Validity::of_files(None, 0),
            })
        });
        let loaded = Loaded::of(want, object);
        for (reply, token) in self.makings.end(ticket) {
            reply(token, Outcome::Loaded(loaded.clone()));
        }
    }
}

/// A job by its key, and by what it starts from: an encoding made of an older version must not answer
/// who knows a newer one.
fn job_of(want: &Want) -> Job {
    let mut job = want.key.to_vec();
    if want.encoding != Encoding::Identity {
        let base = want
            .base
            .as_ref()
            .map_or(0, |base| Arc::as_ptr(base) as usize);
        job.push(want.encoding as u8);
        job.extend_from_slice(&base.to_le_bytes());
    }
    job.into()
}
