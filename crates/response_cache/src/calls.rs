//! Calls handlers: inline if the handler answers at once, as a task of the worker if it only waits for sockets, else
//! on the runtime beside the worker. Later outcomes arrive through the worker's mailbox.
//!
//! Request coalescing: of equal requests with a possibly storable response, the first (the leader) calls the handler. The
//! others (followers) wait for the head of its response and read the body together with it if the response is stored.
//! If it is not stored, the followers call the handler at once, and later requests do not wait. If responses are known
//! to vary, only requests for the same variant are equal.
//!
//! Requests for single ranges of one object are equal, regardless of the range, because an origin may ignore Range. If
//! it answers the leader with the whole (200), that response answers the followers. If it answers with a part (206),
//! the followers call the origin at once; the key is remembered, and later range requests do not wait.

mod request;
mod task;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_access_control::traffic_classes::ClassChoice;
use lowroad_cache::cache_status::CacheResult;
use lowroad_cache::request::RequestDirectives;
use lowroad_engine::stream::StreamItem;
use lowroad_engine::{Exchange, ExchangeId, InterimResponse, WorkerHandle};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::interim_responses::{InterimSink, PostInterim};
use lowroad_handler::{HandlerFailure, HandlerResult, PendingResponse};
use lowroad_http::request::Request;
use lowroad_routes::counts::increment;
use lowroad_routes::routes::{Route, RouteTable, WaitCount};
use lowroad_site_rules::{SiteFields, SiteRules};
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;
use lowroad_store::in_flight::{CoalescingRole, InFlightTicket};
use lowroad_store::object::ObjectKind;
use lowroad_store::purge_epoch::PurgeEpoch;
use lowroad_store::validity::Reusability;
use lowroad_store::{ObjectArc, SharedStore, StoredObject};
use tokio::runtime::Handle;

use crate::handler_outcome::OutcomeWaiter;
use crate::handler_outcome::{HandlerOutcome, OutcomeSender};
use crate::invalidation::InvalidationSet;
use crate::objects::SiteObjects;
use crate::reply::HandlerReply;
use crate::reuse::{CacheKey, RequestedPart, is_plain_range};
use crate::storage::{HitKind, StoreRequest, StoredResponse};
use crate::validation::{self, StaleResponse};
use request::{OriginConditions, build_request};
use task::{CallFollowers, CallGuard, CallTask, DueOutcome, delete_invalidated, store};

/// The access of one worker to the handlers.
pub struct HandlerCalls {
    /// The worker's number.
    pub worker: usize,
    /// Runs blocking and long work.
    pub runtime: Handle,
    /// The worker itself, for tasks that only wait for sockets.
    pub worker_handle: WorkerHandle,
    /// Posts outcomes to the worker.
    pub post: OutcomeSender,
    /// Posts interim responses to the worker.
    pub post_interim: PostInterim,
    /// The stored objects of all sites.
    pub store: Arc<SharedStore>,
    /// Loads objects into the store.
    pub fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    /// Notifies the levels that keep copies of purges.
    pub changes: Arc<ChangeFeed>,
    /// The objects of the last call's site, for reuse.
    pub last: RefCell<Option<Arc<SiteObjects>>>,
}

/// A call of a handler.
pub struct HandlerCall<'a> {
    /// The rules of its site.
    pub rules: &'a Arc<SiteRules>,
    /// The routes of its site.
    pub routes: &'a RouteTable,
    /// The normalised host name, if each host of the site has its own folder; else empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The target in place of the client's, after a rewrite or an internal redirect.
    pub target: Option<InternalTarget<'a>>,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// The client's request.
    pub request: &'a Request<'a>,
    /// The route that the request belongs to.
    pub route: &'a Arc<Route>,
    /// The key under which the response may be stored and shared.
    pub key: Option<CacheKey>,
    /// The request's cache directives.
    pub directives: RequestDirectives,
    /// An access rule has verified the request's password.
    pub is_user: bool,
    /// A stored response that must be validated before use.
    pub stale: Option<ObjectArc>,
    /// The traffic class, if classes are configured.
    pub class: Option<ClassChoice>,
}

/// A target that the server set in place of the client's.
#[derive(Clone, Copy)]
pub struct InternalTarget<'a> {
    /// The path, percent-encoded.
    pub path: &'a [u8],
    /// The query, without the `?`.
    pub query: Option<&'a [u8]>,
}

/// The progress of a call.
pub enum CallStatus {
    /// It is complete.
    Over(Result<HandlerReply, HandlerFailure>),
    /// It is complete and its response is stored; the body may still be arriving.
    Stored(StoredResponse),
    /// It is running; dropping this cancels it, unless other requests wait for it.
    Runs(Box<dyn Send>),
}

/// The state of the store when a call begins.
struct StoreState {
    /// The purge epoch.
    purges: PurgeEpoch,
    /// The stored response that the call may validate or complete.
    stale: Option<ObjectArc>,
}

impl HandlerCalls {
    /// A waiter for a request of this worker.
    pub fn waiter(&self, id: ExchangeId) -> OutcomeWaiter {
        OutcomeWaiter::new(self.post.clone(), id)
    }

    /// Calls the route's handler, or lets the request wait for the response to an equal one.
    pub fn start(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) -> CallStatus {
        let route = call.route;
        let purges = self.purges(call);
        let key = call.key.as_ref();
        // After the purge epoch was read: the coalescing key contains it.
        let role = key.and_then(|key| self.join_or_lead(key, call, exchange.id, purges));
        let (followers, work) = match role {
            Some(CoalescingRole::Waits(work)) => {
                increment(&route.counts.shared);
                return CallStatus::Runs(Box::new(work));
            }
            Some(CoalescingRole::Makes(ticket, work)) => {
                let followers = self.followers(call, ticket);
                if let Some(stored) = self.find_fresh_response(call, exchange.now_ms) {
                    followers.finish(Some(&stored));
                    // Posted, not returned: this request's time is earlier than the time of storing.
                    self.waiter(exchange.id)
                        .wake(HandlerOutcome::Stored(stored));
                    return CallStatus::Runs(Box::new(()));
                }
                (Some(followers), Some(work))
            }
            // Not shareable: the call is for this request only.
            None => (None, None),
        };
        let stale = self.stale(call, purges);
        let task = match self.begin(call, exchange, StoreState { purges, stale }, followers) {
            Ok(task) => task,
            Err(status) => return status,
        };
        // The task belongs to all requests that wait for it: it is cancelled only when all have gone.
        let running = self.run(task, exchange.id);
        match work {
            Some(work) => {
                work.set(running);
                CallStatus::Runs(Box::new(work))
            }
            None => CallStatus::Runs(running),
        }
    }

    /// Calls the route's handler in the background (RFC 5861), unless an equal call is running.
    ///
    /// Earlier results don't prevent it, since otherwise one failure would end all attempts; but two attempts are at
    /// least a moment apart.
    pub fn start_refresh(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) {
        let purges = self.purges(call);
        let stale = self.stale(call, purges);
        let may_store =
            |key: &&CacheKey| key.is_shareable(call.route.is_origin) && !call.directives.no_store;
        let Some(key) = call.key.as_ref().filter(may_store) else {
            return;
        };
        let lifetime = stale.as_ref().and_then(|stale| stale.validity.lifetime());
        // A failing origin must not get a refresh for each hit.
        if lifetime.is_some_and(|lifetime| !lifetime.begin_refresh(exchange.now_ms)) {
            return;
        }
        let Some((ticket, work)) = self.fetcher.in_flight().begin(&key.job(purges)) else {
            return;
        };
        let followers = Some(self.followers(call, ticket));
        let Ok(task) = self.begin(call, exchange, StoreState { purges, stale }, followers) else {
            return;
        };
        let executor = task.executor.clone();
        let refreshing = async move {
            // A body streams into the store only while it has a reader, so the task reads it to its end.
            if let HandlerOutcome::Stored(StoredResponse {
                body: Some(mut body),
                ..
            }) = task.run().await
            {
                while let StreamItem::Bytes(_) = body.next().await {}
            }
            // Until here, the entry counts as running, and no second refresh begins.
            drop(work);
        };
        match executor {
            ResponseExecutor::Runtime => drop(self.runtime.spawn(refreshing)),
            ResponseExecutor::Worker(worker_handle) => {
                worker_handle.tasks.spawn(refreshing).detach()
            }
        }
    }

    /// A fresh stored response for a request that found none: another request's call may have ended between this one's
    /// look-up and its turn.
    fn find_fresh_response(&self, call: &HandlerCall<'_>, now_ms: u64) -> Option<StoredResponse> {
        let key = call.key.as_ref().filter(|_| call.stale.is_none())?;
        let entry = self.store.find(key.hash, &key.bytes)?;
        let object = entry.selected(call.request.fields())?;
        // An unfinished body or parts would need another decision.
        let is_usable = matches!(object.kind, ObjectKind::Representation(_))
            && object.validity.reusability_for(&call.directives, now_ms) == Reusability::Fresh;
        is_usable.then(|| StoredResponse::from_object(object, HitKind::Hit))
    }

    /// The purge epoch before the handler starts: its response may contain data that is purged later.
    fn purges(&self, call: &HandlerCall<'_>) -> PurgeEpoch {
        self.store
            .purges(call.key.as_ref().map_or(0, |key| key.hash))
    }

    /// The stored response, unless it was purged after the look-up: it must not reach requests that join from now on.
    fn stale(&self, call: &HandlerCall<'_>, purges: PurgeEpoch) -> Option<ObjectArc> {
        let (stale, key) = (call.stale.as_ref()?, call.key.as_ref()?);
        let is_still_valid = self
            .store
            .is_still_valid(key.hash, &key.bytes, stale, purges);
        is_still_valid.then(|| stale.clone())
    }

    fn followers(&self, call: &HandlerCall<'_>, ticket: InFlightTicket) -> CallFollowers {
        CallFollowers {
            in_flight: self.fetcher.in_flight().clone(),
            ticket: Some(ticket),
            mark: call.key.as_ref().map_or(0, CacheKey::sharing_mark),
        }
    }

    /// Calls the handler.
    ///
    /// # Errors
    /// The handler answered at once: the outcome.
    #[expect(
        clippy::result_large_err,
        reason = "it goes on at once, and a box is an allocation a call"
    )]
    fn begin(
        &self,
        call: &HandlerCall<'_>,
        exchange: &mut Exchange,
        store_state: StoreState,
        followers: Option<CallFollowers>,
    ) -> Result<Box<CallTask>, CallStatus> {
        let route = call.route;
        increment(&route.counts.calls);
        // Copied now: the request does not outlive this call.
        let invalidations = InvalidationSet::from_request(
            call.request,
            exchange,
            call.rules,
            call.routes,
            &self.changes,
        );
        let objects = self.objects(call);
        let conditions = self.conditions(call, store_state.stale.as_ref());
        let has_own_conditions = matches!(&conditions, OriginConditions::Instead(replacement) if !replacement.is_empty());
        let interims = InterimSink::new(self.post_interim(call), exchange.id);
        let request = build_request(call, exchange, &conditions, objects.clone(), interims);
        let (handler, worker) = (route.handler.clone(), self.worker);
        let result = match call.class.clone() {
            None => handler.begin(worker, request),
            Some(class) => class.begin(handler, worker, request, &self.worker_handle),
        };
        // Waiting for another request's call would take longer than such a call.
        route.set_instant(matches!(result, HandlerResult::Ready(Ok(_))));
        let (pending_response, executor) = match result {
            HandlerResult::Ready(Err(failure)) => {
                increment(&route.counts.failed);
                return Err(CallStatus::Over(Err(failure)));
            }
            HandlerResult::Ready(Ok(response)) => match objects.complete_now(response) {
                Ok(reply) => {
                    delete_invalidated(invalidations.as_ref(), &reply, &self.store);
                    let executor = ResponseExecutor::Worker(self.worker_handle.clone());
                    let store_request = self.store_request(call, &store_state, executor);
                    let lines = call.request.lines();
                    return Err(
                        match store(store_request, reply, call.path, lines, followers) {
                            Ok(stored) => CallStatus::Stored(stored),
                            Err(reply) => CallStatus::Over(Ok(reply)),
                        },
                    );
                }
                // It refers to a file that must be loaded first.
                Err(response) => (
                    Box::pin(async { Ok(*response) }) as PendingResponse,
                    ResponseExecutor::Runtime,
                ),
            },
            HandlerResult::OnRuntime(pending_response) => {
                (pending_response, ResponseExecutor::Runtime)
            }
            HandlerResult::OnWorker(pending_response) => (
                pending_response,
                ResponseExecutor::Worker(self.worker_handle.clone()),
            ),
        };
        let store_request = self.store_request(call, &store_state, executor.clone());
        let stale = store_state
            .stale
            .filter(|stale| !has_requested_parts(call, stale));
        // Copied only if they are needed later: most responses of programs are not stored.
        let copy_if_stored = |bytes: &[u8]| match store_request {
            Some(_) => bytes.into(),
            None => Box::default(),
        };
        // Boxed, because it is moved several times before it is polled.
        Ok(Box::new(CallTask {
            pending_response,
            objects,
            path: copy_if_stored(call.path),
            lines: copy_if_stored(call.request.lines()),
            store_request,
            stale: stale.map(|object| StaleResponse {
                object,
                is_validated: has_own_conditions,
                directives: call.directives,
            }),
            invalidations,
            wait_count: WaitCount::start(route),
            route: route.clone(),
            followers,
            executor,
        }))
    }

    /// Posts interim responses of a call to its client, with the site's header rules applied.
    fn post_interim(&self, call: &HandlerCall<'_>) -> PostInterim {
        let post = self.post_interim.clone();
        // The common case: nothing to apply.
        if call.rules.config.headers.is_empty() {
            return post;
        }
        let (rules, path): (_, Box<[u8]>) = (call.rules.clone(), call.path.into());
        Arc::new(move |id, interim| {
            let InterimResponse { status, fields } = interim;
            let fields = SiteFields::new(&rules, &path, status).apply(&fields, status);
            post(id, InterimResponse { status, fields });
        })
    }

    /// Selects the conditions that the handler gets. If its response may be stored, an origin gets the cache's: a
    /// stored response is validated, and a response to be stored must be whole. The client's conditions are then
    /// evaluated against the stored response.
    ///
    /// Responses to requests with credentials are rarely shareable, and those to `no-store` are never stored. While
    /// none is stored, the client's conditions are forwarded, so that it gets 304 instead of the whole body each time.
    fn conditions(&self, call: &HandlerCall<'_>, stale: Option<&ObjectArc>) -> OriginConditions {
        let Some(key) = call.key.as_ref().filter(|key| key.is_whole()) else {
            return OriginConditions::AsSent;
        };
        if !call.route.is_origin {
            return OriginConditions::AsSent;
        }
        match stale {
            // A former follower got no usable response, so validation may fail again: the stored one only serves on
            // errors.
            Some(_) if key.has_waited => OriginConditions::Instead(Vec::new()),
            Some(stale) => OriginConditions::Instead(validation::conditions(stale)),
            None if key.is_authorized || call.directives.no_store => OriginConditions::AsSent,
            // Not stored last time: the client's own conditions may spare the body.
            None if self.fetcher.in_flight().is_unshared(key.hash) => OriginConditions::AsSent,
            None => OriginConditions::Instead(Vec::new()),
        }
    }

    /// Joins an equal request's call, or registers this one as leader; `None` if the call must not be shared.
    fn join_or_lead(
        &self,
        key: &CacheKey,
        call: &HandlerCall<'_>,
        id: ExchangeId,
        purges: PurgeEpoch,
    ) -> Option<CoalescingRole> {
        if !self.may_share_call(key, call) {
            return None;
        }
        let in_flight = self.fetcher.in_flight();
        // The key includes the purge epoch: requests after a purge do not join calls that began before it.
        Some(in_flight.join(&key.job(purges), self.waiter(id)))
    }

    /// Whether other requests may wait for the response to this one.
    fn may_share_call(&self, key: &CacheKey, call: &HandlerCall<'_>) -> bool {
        let (route, in_flight) = (call.route, self.fetcher.in_flight());
        let is_shareable = key.is_shareable(route.is_origin);
        // Unfinished bodies are shared only with response buffering.
        let is_slow = route.spools.is_some() && !route.is_instant();
        let may_be_stored = is_shareable && is_slow && !in_flight.is_unshared(key.hash);
        may_be_stored && (key.is_whole() || self.may_be_answered_whole(key, call))
    }

    /// Whether an origin may answer a range request with the whole, which answers other ranges, too. If its last
    /// answer was a part, range requests do not wait for each other.
    fn may_be_answered_whole(&self, key: &CacheKey, call: &HandlerCall<'_>) -> bool {
        let answers_parts = self.fetcher.in_flight().is_unshared(key.part_mark());
        !answers_parts && is_plain_range(call.request.lines())
    }

    fn store_request(
        &self,
        call: &HandlerCall<'_>,
        store_state: &StoreState,
        executor: ResponseExecutor,
    ) -> Option<StoreRequest> {
        let stale = store_state.stale.as_ref();
        // A HEAD response can only update a stored response.
        let is_useful =
            |key: &CacheKey| key.requested_part != RequestedPart::Head || stale.is_some();
        let key = call.key.clone().filter(is_useful)?;
        let request_time_ms = clock::now_ms();
        Some(StoreRequest {
            reason: call_reason(call, &key, request_time_ms),
            key,
            purges: store_state.purges,
            request_time_ms,
            // HEAD updates the stored response of a GET (RFC 9111 §4.3.5), so it is judged as one.
            directives: RequestDirectives {
                is_get: true,
                ..call.directives
            },
            store: self.store.clone(),
            in_flight: self.fetcher.in_flight().clone(),
            route: call.route.clone(),
            rules: call.rules.clone(),
            executor,
            ignores_range: false,
            partial_object: stale
                .filter(|stale| has_requested_parts(call, stale))
                .cloned(),
        })
    }

    /// The objects of the call's site; usually those of the last call.
    fn objects(&self, call: &HandlerCall<'_>) -> Arc<SiteObjects> {
        let mut last = self.last.borrow_mut();
        // Most calls of a worker are for the site of the last one.
        if let Some(objects) = &*last
            && Arc::ptr_eq(&objects.rules, call.rules)
            && *objects.host == *call.host
        {
            return objects.clone();
        }
        let objects = Arc::new(SiteObjects {
            rules: call.rules.clone(),
            store: self.store.clone(),
            fetcher: self.fetcher.clone(),
            host: call.host.into(),
        });
        last.insert(objects).clone()
    }

    /// Releases the last site's objects.
    pub fn clear_last_site(&self) {
        self.last.take();
    }

    /// Runs a call on the worker or on the runtime; the outcome arrives through the worker's mailbox.
    fn run(&self, task: Box<CallTask>, id: ExchangeId) -> Box<dyn Send> {
        let is_on_worker = matches!(task.executor, ResponseExecutor::Worker(_));
        let due_outcome = DueOutcome::new(self.waiter(id));
        let work = async move {
            let outcome = task.run().await;
            due_outcome.send(outcome);
        };
        if is_on_worker {
            // Followers may still wait after this request's connection has closed.
            let hold = self.worker_handle.tasks.hold();
            // Polled at once, so that its requests are sent before this worker waits for events.
            return Box::new((self.worker_handle.tasks.start(work), hold));
        }
        let task = self.runtime.spawn(work);
        Box::new(CallGuard(task.abort_handle()))
    }
}

/// The reason for the call, for Cache-Status.
fn call_reason(call: &HandlerCall<'_>, key: &CacheKey, now_ms: u64) -> CacheResult {
    let is_fresh = |stored: &ObjectArc| {
        let lifetime = stored.validity.lifetime();
        lifetime.is_some_and(|lifetime| lifetime.until_ms() > now_ms)
    };
    match &call.stale {
        // The stored body is unreadable, or the request forbids its use.
        Some(stored) if is_fresh(stored) => CacheResult::Miss,
        Some(_) => CacheResult::Stale,
        // A variant is known, so a response of this key is stored.
        None if !key.variant.is_empty() => CacheResult::VaryMiss,
        None => CacheResult::UriMiss,
    }
}

/// Whether the stored object has parts of the whole that a call requests.
fn has_requested_parts(call: &HandlerCall<'_>, stale: &StoredObject) -> bool {
    let is_whole = call.key.as_ref().is_some_and(CacheKey::is_whole);
    is_whole && matches!(stale.kind, ObjectKind::Parts(_))
}
