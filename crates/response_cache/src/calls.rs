//! Calls handlers. A handler may respond immediately; otherwise its future runs as a task of the worker if it only
//! waits for sockets, or else on the async runtime. Later outcomes arrive through the worker's mailbox.
//!
//! Request coalescing: of concurrent equal requests with a possibly storable response, the first (the leader) calls the
//! handler. The others (followers) wait for the head of its response. If the response is stored, they read its body
//! together with the leader. If not, they call the handler immediately, and later requests for this key do not wait. If
//! responses are known to vary, only requests for the same variant are equal.
//!
//! Requests for single ranges of one object are equal, regardless of the range, because an origin may ignore Range. If
//! the origin sends the leader the whole representation (200), that response answers the followers, too. If it sends a
//! part (206), the followers call the origin immediately; the key is remembered, and later range requests do not wait.

mod auth_request;
mod call_trace;
mod request;
mod task;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_access_control::traffic_classes::ClassChoice;
use lowroad_cache::cache_status::CacheResult;
use lowroad_cache::request::RequestDirectives;
use lowroad_engine::stream::StreamItem;
use lowroad_engine::{Exchange, ExchangeId, InterimResponse, WorkerHandle};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::interim_responses::{InterimSink, PostInterim};
use lowroad_handler::{
    HandlerFailure, HandlerRequest, HandlerResult, PendingResponse, SubrequestLoad,
    SubrequestSource,
};
use lowroad_http::request::Request;
use lowroad_routes::cache_rules::CacheRuleSet;
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
pub use auth_request::{AuthCall, is_success};
use call_trace::CallTrace;
use request::{OriginConditions, build_request};
use task::{CallFollowers, CallGuard, CallTask, OutcomeGuard, delete_invalidated, store};

/// The resources that one worker needs to call handlers.
pub struct HandlerCalls {
    /// The worker's number.
    pub worker: usize,
    /// The async runtime for handlers that block or take long.
    pub runtime: Handle,
    /// Runs tasks that only wait for sockets on the worker itself.
    pub worker_handle: WorkerHandle,
    /// Posts outcomes to the worker.
    pub post: OutcomeSender,
    /// Posts interim responses to the worker.
    pub post_interim: PostInterim,
    /// The stored objects of all sites.
    pub store: Arc<SharedStore>,
    /// Loads files into the store.
    pub fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    /// Notifies the softirq level, which has copies of responses, of purges.
    pub changes: Arc<ChangeFeed>,
    /// Whether handlers record their attempts at upstream servers, for the access log.
    pub records_tries: bool,
    /// The `SiteObjects` of the last call, reused for the next one if it is for the same site.
    pub last_site: RefCell<Option<Arc<SiteObjects>>>,
}

/// A call of a handler.
pub struct HandlerCall<'a> {
    /// The rules of the request's site.
    pub rules: &'a Arc<SiteRules>,
    /// The routes of the request's site.
    pub routes: &'a RouteTable,
    /// The normalised host name, if each host of the site has its own folder; otherwise empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The target that replaces the client's, after a rewrite or an internal redirect.
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
    /// The rules of the route's cache that may apply to the response.
    pub cache_rules: CacheRuleSet,
    /// An access rule has verified the request's password.
    pub is_user: bool,
    /// A stored response that must be validated before use.
    pub stale: Option<ObjectArc>,
    /// The traffic class, if classes are configured.
    pub class: Option<ClassChoice>,
}

impl HandlerCall<'_> {
    /// The request that the handler would get, without a body, for an explanation.
    pub fn preview(&self, exchange: &mut Exchange) -> HandlerRequest {
        build_request(
            self,
            exchange,
            &OriginConditions::FromClient,
            &CallTrace::begin(exchange, self.route),
            Arc::new(NoObjects),
            InterimSink::default(),
        )
    }
}

/// A site without objects, for requests that no handler gets.
struct NoObjects;

impl SubrequestSource for NoObjects {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(std::future::ready(None))
    }
}

/// A target that replaces the client's request target.
#[derive(Clone, Copy)]
pub struct InternalTarget<'a> {
    /// The path, percent-encoded.
    pub path: &'a [u8],
    /// The query, without the `?`.
    pub query: Option<&'a [u8]>,
}

/// The progress of a call.
pub enum CallStatus {
    /// The call is complete.
    Complete(Result<HandlerReply, HandlerFailure>),
    /// The call is complete and its response is stored; the body may still be arriving.
    Stored(StoredResponse),
    /// The call is running. Dropping the value cancels the call, unless other requests wait for it.
    Running(Box<dyn Send>),
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
        let purges = self.purge_epoch(call);
        let key = call.key.as_ref();
        // The coalescing key contains the purge epoch, which was therefore read before.
        let role = key.and_then(|key| self.join_or_lead(key, call, exchange.id, purges));
        let (followers, work) = match role {
            Some(CoalescingRole::Follower(work)) => {
                increment(&route.counts.shared);
                return CallStatus::Running(Box::new(work));
            }
            Some(CoalescingRole::Leader(ticket, work)) => {
                let followers = self.followers(call, ticket);
                if let Some(stored) = self.find_fresh_response(call, exchange.now_ms) {
                    followers.finish(Some(&stored));
                    // Posted and not returned, since this request's `now_ms` is earlier than the time of storing.
                    self.waiter(exchange.id)
                        .wake(HandlerOutcome::Stored(stored));
                    return CallStatus::Running(Box::new(()));
                }
                (Some(followers), Some(work))
            }
            // Not coalesced: the call is for this request only.
            None => (None, None),
        };
        let stale = self.still_valid_stale(call, purges);
        if self.records_tries {
            // A request may call several handlers, one after the other.
            exchange.upstream_tries.get_or_insert_default();
        }
        let task = match self.begin(call, exchange, StoreState { purges, stale }, followers) {
            Ok(task) => task,
            Err(status) => return status,
        };
        // The task belongs to all requests that wait for it: it is cancelled only when none is left.
        let running = self.run(task, exchange.id);
        match work {
            Some(work) => {
                work.set(running);
                CallStatus::Running(Box::new(work))
            }
            None => CallStatus::Running(running),
        }
    }

    /// Calls the route's handler in the background (`stale-while-revalidate`, RFC 5861), unless an equal call is
    /// running.
    ///
    /// A refresh is also tried if the last one failed, but not more than once in a minimum interval.
    pub fn start_refresh(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) {
        let purges = self.purge_epoch(call);
        let stale = self.still_valid_stale(call, purges);
        let may_store =
            |key: &&CacheKey| key.is_shareable(call.route.is_origin) && !call.directives.no_store;
        let Some(key) = call.key.as_ref().filter(may_store) else {
            return;
        };
        let lifetime = stale.as_ref().and_then(|stale| stale.validity.lifetime());
        // A failing origin must not get a request for each hit.
        if lifetime.is_some_and(|lifetime| !lifetime.begin_refresh_if_due(exchange.now_ms)) {
            return;
        }
        let Some((ticket, work)) = self.fetcher.in_flight().begin(&key.coalescing_key(purges))
        else {
            return;
        };
        let followers = Some(self.followers(call, ticket));
        // The attempts are not those of the client's request.
        let tries = exchange.upstream_tries.take();
        let begun = self.begin(call, exchange, StoreState { purges, stale }, followers);
        exchange.upstream_tries = tries;
        let Ok(task) = begun else {
            return;
        };
        let executor = task.executor.clone();
        let refreshing = async move {
            // A body is transferred into the store only while it has a reader, so this task reads it to its end.
            if let HandlerOutcome::Stored(StoredResponse {
                body: Some(mut body),
                ..
            }) = task.run().await
            {
                while let StreamItem::Bytes(_) = body.next().await {}
            }
            // While `work` exists, the call counts as running, so that no second refresh begins.
            drop(work);
        };
        match executor {
            ResponseExecutor::Runtime => drop(self.runtime.spawn(refreshing)),
            ResponseExecutor::Worker(worker_handle) => {
                worker_handle.tasks.spawn(refreshing).detach()
            }
        }
    }

    /// A fresh stored response for a new leader. The leader's look-up found none, but another request's call may have
    /// ended since.
    fn find_fresh_response(&self, call: &HandlerCall<'_>, now_ms: u64) -> Option<StoredResponse> {
        let key = call.key.as_ref().filter(|_| call.stale.is_none())?;
        let entry = self.store.find(key.hash, &key.bytes)?;
        let object = entry.selected(call.request.fields())?;
        // Objects with an arriving body or with parts are not handled here.
        let is_usable = matches!(object.kind, ObjectKind::Representation(_))
            && object.validity.reusability_for(&call.directives, now_ms) == Reusability::Fresh;
        is_usable.then(|| StoredResponse::from_object(object, HitKind::Hit))
    }

    /// The purge epoch before the handler is called, so that later purges apply to its response.
    fn purge_epoch(&self, call: &HandlerCall<'_>) -> PurgeEpoch {
        self.store
            .purge_epoch(call.key.as_ref().map_or(0, |key| key.hash))
    }

    /// The stored response to be validated, unless it was purged after the look-up: requests that join from now on must
    /// not receive a purged response.
    fn still_valid_stale(&self, call: &HandlerCall<'_>, purges: PurgeEpoch) -> Option<ObjectArc> {
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
    /// Returns the outcome if the handler responded immediately.
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
        // Copied now, since the request does not outlive this function.
        let invalidations = InvalidationSet::from_request(
            call.request,
            exchange,
            call.rules,
            call.routes,
            &self.changes,
        );
        let objects = self.objects(call);
        let conditions = self.conditions(call, store_state.stale.as_ref());
        let has_own_conditions = matches!(&conditions, OriginConditions::Replaced(replacement) if !replacement.is_empty());
        let interims = InterimSink::new(self.post_interim(call), exchange.id);
        let call_trace = CallTrace::begin(exchange, route);
        let request = build_request(
            call,
            exchange,
            &conditions,
            &call_trace,
            objects.clone(),
            interims,
        );
        let (handler, worker) = (route.handler.clone(), self.worker);
        let result = match call.class.clone() {
            None => handler.begin(worker, request),
            Some(class) => class.begin(handler, worker, request, &self.worker_handle),
        };
        let result = call_trace.follow(result);
        // For a handler that responds immediately, waiting for another request's call would take longer than a call.
        route.set_instant(matches!(result, HandlerResult::Ready(Ok(_))));
        let (pending_response, executor) = match result {
            HandlerResult::Ready(Err(failure)) => {
                increment(&route.counts.failed);
                return Err(CallStatus::Complete(Err(failure)));
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
                            Err(reply) => CallStatus::Complete(Ok(reply)),
                        },
                    );
                }
                // The response refers to a file that must be loaded first.
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
        // Copied only if needed later: most responses of applications are not stored.
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
        // The common case: there are no header rules.
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

    /// Selects the preconditions (If-None-Match, Range etc.) of the request to the handler. If the response may be
    /// stored, the cache's own preconditions replace the client's: those that validate the stored response, or none, so
    /// that the response is a complete 200. The client's preconditions are then evaluated against the stored response.
    ///
    /// Responses to requests with credentials are rarely shareable, and responses to requests with `no-store` are never
    /// stored. As long as no response is stored, the client's preconditions are forwarded, so that the client can get a
    /// 304 each time.
    fn conditions(&self, call: &HandlerCall<'_>, stale: Option<&ObjectArc>) -> OriginConditions {
        let Some(key) = call.key.as_ref().filter(|key| key.is_whole()) else {
            return OriginConditions::FromClient;
        };
        if !call.route.is_origin {
            return OriginConditions::FromClient;
        }
        match stale {
            // As a follower, this request got no usable response, so validation may fail again. The stored response is
            // used only if the origin fails.
            Some(_) if key.has_waited => OriginConditions::Replaced(Vec::new()),
            Some(stale) => OriginConditions::Replaced(validation::conditions(stale)),
            None if key.is_authorized || call.directives.no_store => OriginConditions::FromClient,
            // The last response was not stored, so the client's preconditions are forwarded and may save a body.
            None if self.fetcher.in_flight().is_unshared(key.hash) => OriginConditions::FromClient,
            None => OriginConditions::Replaced(Vec::new()),
        }
    }

    /// Joins the call of an equal request as a follower, or registers this request as the leader. `None` if the call
    /// must not be shared.
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
        Some(in_flight.join(&key.coalescing_key(purges), self.waiter(id)))
    }

    /// Whether other requests may wait for the response to this one.
    fn may_share_call(&self, key: &CacheKey, call: &HandlerCall<'_>) -> bool {
        let (route, in_flight) = (call.route, self.fetcher.in_flight());
        let is_shareable = key.is_shareable(route.is_origin);
        // Arriving bodies are shared only with response buffering.
        let is_slow = route.spools.is_some() && !route.is_instant();
        let may_be_stored = is_shareable && is_slow && !in_flight.is_unshared(key.hash);
        may_be_stored && (key.is_whole() || self.may_be_answered_whole(key, call))
    }

    /// Whether the origin may respond to a range request with the whole representation, which answers requests for
    /// other ranges, too. If the origin's last response was a part, range requests do not wait for each other.
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
        // A response to HEAD can only update a stored response.
        let is_useful =
            |key: &CacheKey| key.requested_part != RequestedPart::Head || stale.is_some();
        let key = call.key.clone().filter(is_useful)?;
        let request_time_ms = clock::now_ms();
        Some(StoreRequest {
            reason: call_reason(call, &key, request_time_ms),
            key,
            purges: store_state.purges,
            request_time_ms,
            // A response to HEAD updates the stored response to a GET (RFC 9111 §4.3.5), so the same rules apply.
            directives: RequestDirectives {
                is_get: true,
                ..call.directives
            },
            cache_rules: call.cache_rules,
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

    /// The objects of the call's site and host.
    fn objects(&self, call: &HandlerCall<'_>) -> Arc<SiteObjects> {
        let mut last = self.last_site.borrow_mut();
        // The objects of the last call can be reused if they are of the same site.
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

    /// Drops the objects that were retained from the last call.
    pub fn clear_last_site(&self) {
        self.last_site.take();
    }

    /// Runs a call on the worker or on the runtime; the outcome arrives through the worker's mailbox.
    fn run(&self, task: Box<CallTask>, id: ExchangeId) -> Box<dyn Send> {
        let is_on_worker = matches!(task.executor, ResponseExecutor::Worker(_));
        let due_outcome = OutcomeGuard::new(self.waiter(id));
        let work = async move {
            let outcome = task.run().await;
            due_outcome.send(outcome);
        };
        if is_on_worker {
            // Followers may still wait after this request's connection has closed.
            let hold = self.worker_handle.tasks.hold();
            // Polled immediately, so that the call's upstream requests are sent before this worker waits for events.
            return Box::new((self.worker_handle.tasks.start(work), hold));
        }
        let task = self.runtime.spawn(work);
        Box::new(CallGuard(task.abort_handle()))
    }
}

/// Why the handler is called and no stored response was sent, for Cache-Status.
fn call_reason(call: &HandlerCall<'_>, key: &CacheKey, now_ms: u64) -> CacheResult {
    let is_fresh = |stored: &ObjectArc| {
        let lifetime = stored.validity.lifetime();
        lifetime.is_some_and(|lifetime| lifetime.fresh_until_ms() > now_ms)
    };
    match &call.stale {
        // The stored body is unreadable, or the request forbids its use.
        Some(stored) if is_fresh(stored) => CacheResult::Miss,
        Some(_) => CacheResult::Stale,
        // The names in Vary are known, so another variant is stored under this key.
        None if !key.variant.is_empty() => CacheResult::VaryMiss,
        None => CacheResult::UriMiss,
    }
}

/// Whether the call is for the whole representation, and the stored object has parts of it.
fn has_requested_parts(call: &HandlerCall<'_>, stale: &StoredObject) -> bool {
    let is_whole = call.key.as_ref().is_some_and(CacheKey::is_whole);
    is_whole && matches!(stale.kind, ObjectKind::Parts(_))
}
