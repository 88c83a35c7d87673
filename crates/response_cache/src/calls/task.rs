//! A running call of a handler: stores the response if possible, and posts it to the followers (request coalescing).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::{HandlerFailure, PendingResponse};
use lowroad_http::status::StatusCode;
use lowroad_routes::counts::increment;
use lowroad_routes::routes::{Route, WaitCount};
use lowroad_store::SharedStore;
use lowroad_store::in_flight::{InFlightTable, InFlightTicket};
use tokio::task::AbortHandle;

use crate::handler_outcome::{HandlerOutcome, OutcomeWaiter};
use crate::invalidation::InvalidationSet;
use crate::objects::SiteObjects;
use crate::reply::HandlerReply;
use crate::storage::{StoreRequest, StoredResponse};
use crate::validation::{RequestLines, StaleResponse};

/// Followers wait this long for the head of the leader's response; then each calls the handler.
const FOLLOWER_WAIT: Duration = Duration::from_secs(5);

/// Stores a response if possible and posts it to the followers.
#[expect(
    clippy::result_large_err,
    reason = "it goes on at once, and a box is an allocation a call"
)]
pub fn store(
    store_request: Option<StoreRequest>,
    reply: HandlerReply,
    path: &[u8],
    lines: &[u8],
    followers: Option<CallFollowers>,
) -> Result<StoredResponse, HandlerReply> {
    // A response that requests an internal redirect is not the final response to this request.
    let store_request =
        store_request.filter(|it| it.route.internal_redirect(&reply.response).is_none());
    let stored = match store_request {
        Some(store_request) => store_request.store(reply, path, lines),
        None => Err(reply),
    };
    if let Some(followers) = followers {
        followers.finish(stored.as_ref().ok());
    }
    stored
}

/// A running call.
pub struct CallTask {
    /// The handler's future.
    pub pending_response: PendingResponse,
    /// The objects of the site.
    pub objects: Arc<SiteObjects>,
    /// The parameters for storing the response, if it may be stored.
    pub store_request: Option<StoreRequest>,
    /// The decoded path, if the response may be stored; otherwise empty.
    pub path: Box<[u8]>,
    /// The request's field lines, if the response may be stored; otherwise empty.
    pub lines: Box<[u8]>,
    /// The stored response being validated.
    pub stale: Option<StaleResponse>,
    /// The stored responses that the request invalidates.
    pub invalidations: Option<InvalidationSet>,
    /// Counts the requests that wait for a handler; dropped when the handler has responded.
    pub wait_count: WaitCount,
    pub route: Arc<Route>,
    /// The followers.
    pub followers: Option<CallFollowers>,
    /// The executor of the task.
    pub executor: ResponseExecutor,
}

impl CallTask {
    /// Runs the call and returns its outcome.
    pub async fn run(mut self: Box<Self>) -> HandlerOutcome {
        let answer = self.answer().await;
        self.outcome(answer)
    }

    async fn answer(&mut self) -> Result<HandlerReply, HandlerFailure> {
        // Pinned outside the timeout, so that the future can be awaited further after it.
        let mut answer = pin!(async {
            let response = (&mut self.pending_response).await?;
            self.objects.complete(response).await
        });
        // Without followers, no timer is needed.
        let Some(followers) = &mut self.followers else {
            return answer.await;
        };
        match self.executor.timeout(FOLLOWER_WAIT, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => {
                // One slow response must not delay all equal requests.
                followers.release();
                answer.await
            }
        }
    }

    /// The outcome for the leader; posts the response to the followers.
    fn outcome(self: Box<Self>, answer: Result<HandlerReply, HandlerFailure>) -> HandlerOutcome {
        let CallTask {
            wait_count,
            followers,
            objects,
            ..
        } = *self;
        // The handler has responded, so the request no longer counts as waiting.
        drop(wait_count);
        if answer.is_err() {
            increment(&self.route.counts.failed);
        }
        // Deleted before the response is posted: a client that has received the response must not get an invalidated
        // one afterwards (RFC 9111 §4.4).
        if let Ok(reply) = &answer {
            delete_invalidated(self.invalidations.as_ref(), reply, &objects.store);
        }
        let stale = self.stale.as_ref();
        if let (Some(stale), Some(store_request), Ok(reply)) = (stale, &self.store_request, &answer)
        {
            let request = RequestLines {
                path: &self.path,
                lines: &self.lines,
            };
            stale.apply_head(reply, store_request, request);
        }
        // `followers` is dropped in this branch, so that the followers also call the handler.
        if let (Some(store_request), Ok(reply)) = (&self.store_request, &answer)
            && store_request.is_unusable_part(reply)
        {
            return HandlerOutcome::NotShareable;
        }
        if stale.is_some_and(|stale| stale.is_other_version(&answer)) {
            // The leader and the followers each call the handler again, the leader without conditions.
            return HandlerOutcome::NotShareable;
        }
        let stored = self.stale.and_then(|stale| {
            let request = RequestLines {
                path: &self.path,
                lines: &self.lines,
            };
            stale.outcome(&answer, self.store_request.as_ref(), request)
        });
        if let Some(stored) = stored {
            if let Some(followers) = followers {
                followers.finish(Some(&stored));
            }
            return HandlerOutcome::Stored(stored);
        }
        match answer {
            Ok(reply) => match store(
                self.store_request,
                reply,
                &self.path,
                &self.lines,
                followers,
            ) {
                Ok(stored) => HandlerOutcome::Stored(stored),
                Err(reply) => HandlerOutcome::Reply(Ok(Box::new(reply))),
            },
            Err(failure) => HandlerOutcome::Reply(Err(failure)),
        }
    }
}

/// The followers of a call: requests that wait for its response.
pub struct CallFollowers {
    /// The table of calls in flight.
    pub in_flight: Arc<InFlightTable<OutcomeWaiter>>,
    /// The call's entry in the table; `None` once the followers have their outcome.
    pub ticket: Option<InFlightTicket>,
    /// The hash under which the table records whether the response could be shared; see `CacheKey::sharing_mark`.
    pub mark: u64,
}

impl CallFollowers {
    /// Ends the wait of the followers: with the stored response, or without one if it is not stored. A response that is
    /// stored only to be validated is not shared, since each follower needs its own validation (RFC 9111 §4).
    pub fn finish(mut self, stored: Option<&StoredResponse>) {
        let stored = stored.filter(|stored| stored.can_serve_followers());
        self.in_flight.record_sharing(self.mark, stored.is_some());
        match stored {
            Some(stored) => self.wake_all(|| HandlerOutcome::Stored(stored.for_follower())),
            None => self.wake_all(|| HandlerOutcome::NotShareable),
        }
    }

    /// Ends the wait of the followers because the response takes too long. Later requests do not wait either.
    fn release(&mut self) {
        self.in_flight.record_sharing(self.mark, false);
        self.wake_all(|| HandlerOutcome::NotShareable);
    }

    fn wake_all(&mut self, outcome: impl Fn() -> HandlerOutcome) {
        let waiters = self.ticket.take().map(|ticket| self.in_flight.end(&ticket));
        for waiter in waiters.into_iter().flatten() {
            waiter.wake(outcome());
        }
    }
}

impl Drop for CallFollowers {
    /// The call failed, perhaps because of this request's fields, or its worker has ended: the followers call the
    /// handler themselves.
    fn drop(&mut self) {
        self.wake_all(|| HandlerOutcome::NotShareable);
    }
}

/// Deletes the stored responses that a request invalidates, unless its response is an error.
pub fn delete_invalidated(
    invalidations: Option<&InvalidationSet>,
    reply: &HandlerReply,
    store: &SharedStore,
) {
    if let Some(invalidations) = invalidations {
        invalidations.invalidate(reply.status(), &reply.response.fields, store);
    }
}

/// Guarantees that an outcome is posted to a request, even if the request's task panics.
pub struct OutcomeGuard(Option<OutcomeWaiter>);

impl OutcomeGuard {
    /// Creates the guard for a waiting request.
    pub fn new(waiter: OutcomeWaiter) -> OutcomeGuard {
        OutcomeGuard(Some(waiter))
    }

    /// Posts the outcome.
    pub fn send(mut self, outcome: HandlerOutcome) {
        self.wake(outcome);
    }

    fn wake(&mut self, outcome: HandlerOutcome) {
        if let Some(waiter) = self.0.take() {
            waiter.wake(outcome);
        }
    }
}

impl Drop for OutcomeGuard {
    fn drop(&mut self) {
        if self.0.is_some() {
            let failure = HandlerFailure::new(
                StatusCode::INTERNAL_ERROR,
                "its task ended without a response",
            );
            self.wake(HandlerOutcome::Reply(Err(failure)));
        }
    }
}

/// Aborts a call when the last waiter drops it.
pub struct CallGuard(pub AbortHandle);

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}
