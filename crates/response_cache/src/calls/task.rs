//! An answer being made, and those who wait for it: what comes of it is stored if it may be. Asks no program by itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lowroad_handler::executor::Executor;
use lowroad_handler::{Answering, Failure};
use lowroad_http::status::Status;
use lowroad_routes::counts::one;
use lowroad_routes::routes::{Route, Waits};
use lowroad_store::SharedStore;
use lowroad_store::makings::{Makings, Ticket};
use tokio::task::AbortHandle;

use crate::invalidating::Changed;
use crate::objects::SiteObjects;
use crate::outcome::{Outcome, Waiter};
use crate::reply::Reply;
use crate::storing::{Stored, Storing};
use crate::validating::Stale;

/// How long equal requests wait for the head of the first response, before each is put to the program.
const SHARED_WAIT: Duration = Duration::from_secs(5);

/// Stores a response if it may be, and tells those who wait for it.
#[expect(
    clippy::result_large_err,
    reason = "it goes on at once, and a box is an allocation a call"
)]
pub fn store(
    storing: Option<Storing>,
    reply: Reply,
    path: &[u8],
    lines: &[u8],
    shared: Option<Shared>,
) -> Result<Stored, Reply> {
    // What is to be answered instead is not its own response.
    let storing = storing.filter(|it| it.route.elsewhere(&reply.response).is_none());
    let stored = match storing {
        Some(storing) => storing.store(reply, path, lines),
        None => Err(reply),
    };
    if let Some(shared) = shared {
        shared.over(stored.as_ref().ok());
    }
    stored
}

/// An answer being made.
pub struct Task {
    /// The program, at it.
    pub answering: Answering,
    /// What its site has.
    pub objects: Arc<SiteObjects>,
    /// How its response is stored, if it may be.
    pub storing: Option<Storing>,
    /// Decoded path, where the response may be stored; else empty.
    pub path: Box<[u8]>,
    /// Field lines, the same.
    pub lines: Box<[u8]>,
    /// What is stored already.
    pub stale: Option<Stale>,
    /// What the request may change.
    pub changed: Option<Changed>,
    /// Counts those who wait.
    pub waits: Waits,
    /// Where the request goes.
    pub route: Arc<Route>,
    /// Those who wait for the same.
    pub shared: Option<Shared>,
    /// Where it is made.
    pub executor: Executor,
}

impl Task {
    /// Makes it, and gives what came of it.
    pub async fn run(mut self: Box<Self>) -> Outcome {
        let answer = self.answer().await;
        self.outcome(answer)
    }

    async fn answer(&mut self) -> Result<Reply, Failure> {
        let mut answer = pin!(async {
            let response = (&mut self.answering).await?;
            self.objects.complete(response).await
        });
        let Some(others) = &mut self.shared else {
            return answer.await;
        };
        match self.executor.timeout(SHARED_WAIT, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                others.release();
                answer.await
            }
        }
    }

    /// What comes of an answer for who waits for it.
    fn outcome(self: Box<Self>, answer: Result<Reply, Failure>) -> Outcome {
        let Task {
            waits,
            shared,
            objects,
            ..
        } = *self;
        drop(waits);
        if answer.is_err() {
            one(&self.route.counts.failed);
        }
        if let Ok(reply) = &answer {
            forget_changed(self.changed.as_ref(), reply, &objects.store);
        }
        let stale = self.stale.as_ref();
        if let (Some(stale), Some(storing), Ok(reply)) = (stale, &self.storing, &answer) {
            stale.hear_head(reply, storing, (&self.path, &self.lines));
        }
        if let (Some(storing), Ok(reply)) = (&self.storing, &answer)
            && storing.is_misled(reply)
        {
            return Outcome::Alone;
        }
        if stale.is_some_and(|stale| stale.is_mistaken(&answer)) {
            // It is asked again without conditions; who waits for it asks for itself, too.
            return Outcome::Alone;
        }
        let stored = self.stale.and_then(|stale| {
            let request = (&*self.path, &*self.lines);
            stale.outcome(&answer, self.storing.as_ref(), request)
        });
        if let Some(stored) = stored {
            if let Some(shared) = shared {
                shared.over(Some(&stored));
            }
            return Outcome::Stored(stored);
        }
        match answer {
            Ok(reply) => match store(self.storing, reply, &self.path, &self.lines, shared) {
                Ok(stored) => Outcome::Stored(stored),
                Err(reply) => Outcome::Reply(Ok(Box::new(reply))),
            },
            Err(failure) => Outcome::Reply(Err(failure)),
        }
    }
}

/// Those who wait for the response to an equal request.
pub struct Shared {
    /// Where they wait.
    pub makings: Arc<Makings<Waiter>>,
    /// Until they were told.
    pub ticket: Option<Ticket>,
    /// The key under which the store remembers whether waiting helped: see [`Key::sharing_mark`](crate::reuse::Key::sharing_mark).
    pub mark: u64,
}

impl Shared {
    /// The response is there, and stored as this, or not at all. What is stored only to be validated answers nobody else:
    /// their own requests have to be (RFC 9111 §4).
    pub fn over(mut self, stored: Option<&Stored>) {
        let stored = stored.filter(|stored| stored.is_for_others());
        self.makings.mark(self.mark, stored.is_some());
        match stored {
            Some(stored) => self.tell(|| Outcome::Stored(stored.for_other())),
            None => self.tell(|| Outcome::Alone),
        }
    }

    /// It takes too long. The next ones do not wait, either.
    fn release(&mut self) {
        self.makings.mark(self.mark, false);
        self.tell(|| Outcome::Alone);
    }

    fn tell(&mut self, outcome: impl Fn() -> Outcome) {
        let waiting = self.ticket.take().map(|ticket| self.makings.end(&ticket));
        for waiter in waiting.into_iter().flatten() {
            waiter.wake(outcome());
        }
    }
}

impl Drop for Shared {
    /// It failed, perhaps for something in the request that others have not; or it was given up, by a worker's end.
    fn drop(&mut self) {
        self.tell(|| Outcome::Alone);
    }
}

/// Forgets what a request has changed, unless it failed.
pub fn forget_changed(changed: Option<&Changed>, reply: &Reply, store: &SharedStore) {
    if let Some(changed) = changed {
        changed.forget(reply.status(), &reply.response.fields, store);
    }
}

/// The outcome that a request waits for, which it gets even if the work panics.
pub struct DueOutcome(Option<Waiter>);

impl DueOutcome {
    /// An outcome for this request.
    pub fn new(waiter: Waiter) -> DueOutcome {
        DueOutcome(Some(waiter))
    }

    /// Sends the outcome.
    pub fn send(mut self, outcome: Outcome) {
        self.wake(outcome);
    }

    fn wake(&mut self, outcome: Outcome) {
        if let Some(waiter) = self.0.take() {
            waiter.wake(outcome);
        }
    }
}

impl Drop for DueOutcome {
    fn drop(&mut self) {
        if self.0.is_some() {
            let failure = Failure::new(Status::INTERNAL_ERROR, "its task ended without an answer");
            self.wake(Outcome::Reply(Err(failure)));
        }
    }
}

/// A call that is given up when nobody waits for it any more.
pub struct Running(pub AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
