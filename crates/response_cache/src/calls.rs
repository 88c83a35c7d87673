//! Calls handlers: inline if the handler answers at once, as a task of the worker if it only waits for sockets, else
//! on the runtime beside the worker. Later outcomes arrive through the worker's mailbox.
//!
//! Request coalescing: of equal requests whose response may be storable, the first (the leader) calls the handler. The
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

use lowroad_access_control::traffic_classes::Chosen;
use lowroad_cache::cache_status::Answered;
use lowroad_cache::request::Asked;
use lowroad_engine::stream::Next;
use lowroad_engine::{Exchange, ExchangeId, Interim, Local};
use lowroad_files::fetch::Fetcher;
use lowroad_handler::executor::Executor;
use lowroad_handler::interims::{Interims, PostInterim};
use lowroad_handler::{Answering, Begun, Failure};
use lowroad_http::request::Request;
use lowroad_routes::counts::one;
use lowroad_routes::routes::{Route, Routes, Waits};
use lowroad_site_rules::{SiteFields, SiteRules};
use lowroad_store::changes::Changes;
use lowroad_store::clock;
use lowroad_store::makings::{Role, Ticket};
use lowroad_store::object::Kind;
use lowroad_store::seen::Since;
use lowroad_store::validity::Use;
use lowroad_store::{Object, ObjectArc, SharedStore};
use tokio::runtime::Handle;

use crate::invalidating::Changed;
use crate::objects::SiteObjects;
use crate::outcome::Waiter;
use crate::outcome::{Outcome, Post};
use crate::reply::Reply;
use crate::reuse::{Key, Wants, is_plain_range};
use crate::storing::{Stored, Storing, Way};
use crate::validating::{self, Stale};
use request::{Conditions, request_of};
use task::{DueOutcome, Running, Shared, Task, forget_changed, store};

/// The access of one worker to the handlers.
pub struct Calls {
    /// The worker's number.
    pub worker: usize,
    /// Runs blocking and long work.
    pub runtime: Handle,
    /// The worker itself, for tasks that only wait for sockets.
    pub local: Local,
    /// Posts outcomes to the worker.
    pub post: Post,
    /// Posts interim responses to the worker.
    pub post_interim: PostInterim,
    /// The stored objects of all sites.
    pub store: Arc<SharedStore>,
    /// Loads objects into the store.
    pub fetcher: Arc<Fetcher<Waiter>>,
    /// Notifies the levels that keep copies of purges.
    pub changes: Arc<Changes>,
    /// The objects of the last call's site, for reuse.
    pub last: RefCell<Option<Arc<SiteObjects>>>,
}

/// A call of a handler.
pub struct Call<'a> {
    /// The rules of its site.
    pub rules: &'a Arc<SiteRules>,
    /// The routes of its site.
    pub routes: &'a Routes,
    /// The normalised host name, if each host of the site has its own folder; else empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The target in place of the client's, after a rewrite or an internal redirect.
    pub target: Option<InternalTarget<'a>>,
    /// The local address of the connection.
    pub local: SocketAddr,
    pub request: &'a Request<'a>,
    pub route: &'a Arc<Route>,
    /// The key under which the response may be stored and shared.
    pub key: Option<Key>,
    /// The request's cache directives.
    pub asked: Asked,
    /// An access rule has verified the request's password.
    pub is_user: bool,
    /// A stored response that must be validated before use.
    pub stale: Option<ObjectArc>,
    /// The traffic class, if classes are configured.
    pub class: Option<Chosen>,
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
pub enum Called {
    /// It is complete.
    Over(Result<Reply, Failure>),
    /// It is complete and its response is stored; the body may still be arriving.
    Stored(Stored),
    /// It is running; dropping this cancels it, unless other requests wait for it.
    Runs(Box<dyn Send>),
}

impl Calls {
    /// A waiter for a request of this worker.
    pub fn waiter(&self, id: ExchangeId) -> Waiter {
        Waiter::new(self.post.clone(), id)
    }

    /// Calls the route's handler, or lets the request wait for the response to an equal one.
    pub fn start(&self, call: &Call<'_>, exchange: &mut Exchange) -> Called {
        let route = call.route;
        let purges = self.purges(call);
        let key = call.key.as_ref();
        let role = key.and_then(|key| self.share(key, call, exchange.id, purges));
        let (shared, work) = match role {
            Some(Role::Waits(work)) => {
                one(&route.counts.shared);
                return Called::Runs(Box::new(work));
            }
            Some(Role::Makes(ticket, work)) => {
                let shared = self.shared(call, ticket);
                if let Some(stored) = self.stored_meanwhile(call, exchange.now_ms) {
                    shared.over(Some(&stored));
                    // Posted, not returned: this request's time is earlier than the time of storing.
                    self.waiter(exchange.id).wake(Outcome::Stored(stored));
                    return Called::Runs(Box::new(()));
                }
                (Some(shared), Some(work))
            }
            None => (None, None),
        };
        let stale = self.stale(call, purges);
        let task = match self.begin(call, exchange, (purges, stale), shared) {
            Ok(task) => task,
            Err(over) => return over,
        };
        let running = self.run(task, exchange.id);
        match work {
            Some(work) => {
                work.set(running);
                Called::Runs(Box::new(work))
            }
            None => Called::Runs(running),
        }
    }

    /// Calls the route's handler in the background (RFC 5861), unless an equal call is running.
    ///
    /// Earlier results don't prevent it, since otherwise one failure would end all attempts; but two attempts are at
    /// least a moment apart.
    pub fn start_refresh(&self, call: &Call<'_>, exchange: &mut Exchange) {
        let purges = self.purges(call);
        let stale = self.stale(call, purges);
        let may_store = |key: &&Key| key.is_shareable(call.route.is_origin) && !call.asked.no_store;
        let Some(key) = call.key.as_ref().filter(may_store) else {
            return;
        };
        let lifetime = stale.as_ref().and_then(|stale| stale.validity.lifetime());
        if lifetime.is_some_and(|lifetime| !lifetime.begin_refresh(exchange.now_ms)) {
            return;
        }
        let Some((ticket, work)) = self.fetcher.makings().begin(&key.job(purges)) else {
            return;
        };
        let shared = Some(self.shared(call, ticket));
        let Ok(task) = self.begin(call, exchange, (purges, stale), shared) else {
            return;
        };
        let executor = task.executor.clone();
        let refreshing = async move {
            // A body streams into the store only while it has a reader, so the task reads it to its end.
            if let Outcome::Stored(Stored {
                body: Some(mut body),
                ..
            }) = task.run().await
            {
                while let Next::Bytes(_) = body.next().await {}
            }
            drop(work);
        };
        match executor {
            Executor::Runtime => drop(self.runtime.spawn(refreshing)),
            Executor::Worker(local) => local.tasks.spawn(refreshing).detach(),
        }
    }

    /// A fresh stored response for a request that found none: another request's call may have ended between this one's
    /// look-up and its turn.
    fn stored_meanwhile(&self, call: &Call<'_>, now_ms: u64) -> Option<Stored> {
        let key = call.key.as_ref().filter(|_| call.stale.is_none())?;
        let entry = self.store.find(key.hash, &key.bytes)?;
        let object = entry.selected(call.request.fields())?;
        let is_usable = matches!(object.kind, Kind::Representation(_))
            && object.validity.use_for(&call.asked, now_ms) == Use::Fresh;
        is_usable.then(|| Stored::of_store(object, Way::Hit))
    }

    /// The purge epoch before the handler starts: its response may contain data that is purged later.
    fn purges(&self, call: &Call<'_>) -> Since {
        self.store
            .purges(call.key.as_ref().map_or(0, |key| key.hash))
    }

    /// The stored response, unless it was purged after the look-up: it must not reach requests that join from now on.
    fn stale(&self, call: &Call<'_>, purges: Since) -> Option<ObjectArc> {
        let (stale, key) = (call.stale.as_ref()?, call.key.as_ref()?);
        let is_kept = self.store.is_kept(key.hash, &key.bytes, stale, purges);
        is_kept.then(|| stale.clone())
    }

    fn shared(&self, call: &Call<'_>, ticket: Ticket) -> Shared {
        Shared {
            makings: self.fetcher.makings().clone(),
            ticket: Some(ticket),
            mark: call.key.as_ref().map_or(0, Key::sharing_mark),
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
        call: &Call<'_>,
        exchange: &mut Exchange,
        (purges, stale): (Since, Option<ObjectArc>),
        shared: Option<Shared>,
    ) -> Result<Box<Task>, Called> {
        let route = call.route;
        one(&route.counts.calls);
        let changed = Changed::of(
            call.request,
            exchange,
            call.rules,
            call.routes,
            &self.changes,
        );
        let objects = self.objects(call);
        let conditions = self.conditions(call, stale.as_ref());
        let is_ours = matches!(&conditions, Conditions::Instead(own) if !own.is_empty());
        let interims = Interims::new(self.post_interim(call), exchange.id);
        let request = request_of(call, exchange, &conditions, objects.clone(), interims);
        let (handler, worker) = (route.handler.clone(), self.worker);
        let begun = match call.class.clone() {
            None => handler.begin(worker, request),
            Some(class) => class.begin(handler, worker, request, &self.local),
        };
        route.set_instant(matches!(begun, Begun::Answered(Ok(_))));
        let (answering, executor) = match begun {
            Begun::Answered(Err(failure)) => {
                one(&route.counts.failed);
                return Err(Called::Over(Err(failure)));
            }
            Begun::Answered(Ok(response)) => match objects.complete_now(response) {
                Ok(reply) => {
                    forget_changed(changed.as_ref(), &reply, &self.store);
                    let executor = Executor::Worker(self.local.clone());
                    let storing = self.storing(call, (purges, stale.as_ref()), executor);
                    let lines = call.request.lines();
                    return Err(match store(storing, reply, call.path, lines, shared) {
                        Ok(stored) => Called::Stored(stored),
                        Err(reply) => Called::Over(Ok(reply)),
                    });
                }
                Err(response) => (
                    Box::pin(async { Ok(*response) }) as Answering,
                    Executor::Runtime,
                ),
            },
            Begun::Later(answering) => (answering, Executor::Runtime),
            Begun::Here(answering) => (answering, Executor::Worker(self.local.clone())),
        };
        let storing = self.storing(call, (purges, stale.as_ref()), executor.clone());
        let stale = stale.filter(|stale| !completes(call, stale));
        let if_stored = |bytes: &[u8]| match storing {
            Some(_) => bytes.into(),
            None => Box::default(),
        };
        // Boxed, because it is moved several times before it is polled.
        Ok(Box::new(Task {
            answering,
            objects,
            path: if_stored(call.path),
            lines: if_stored(call.request.lines()),
            storing,
            stale: stale.map(|object| Stale {
                object,
                is_validated: is_ours,
                asked: call.asked,
            }),
            changed,
            waits: Waits::at(route),
            route: route.clone(),
            shared,
            executor,
        }))
    }

    /// Posts interim responses of a call to its client, with the site's header rules applied.
    fn post_interim(&self, call: &Call<'_>) -> PostInterim {
        let post = self.post_interim.clone();
        if call.rules.config.headers.is_empty() {
            return post;
        }
        let (rules, path): (_, Box<[u8]>) = (call.rules.clone(), call.path.into());
        Arc::new(move |id, interim| {
            let Interim { status, fields } = interim;
            let fields = SiteFields::new(&rules, &path, status).apply(&fields, status);
            post(id, Interim { status, fields });
        })
    }

    /// Selects the conditions that the handler gets. An origin whose response may be stored gets the cache's own: a
    /// stored response is validated, and a response to be stored must be whole. The client's conditions are then
    /// evaluated against the stored response.
    ///
    /// Responses to requests with credentials are rarely shareable, and those to `no-store` are never stored. While
    /// none is stored, the client's conditions are forwarded, so that it gets 304 instead of the whole body each time.
    fn conditions(&self, call: &Call<'_>, stale: Option<&ObjectArc>) -> Conditions {
        let Some(key) = call.key.as_ref().filter(|key| key.is_whole()) else {
            return Conditions::AsSent;
        };
        if !call.route.is_origin {
            return Conditions::AsSent;
        }
        match stale {
            // A former follower got no usable response, so validation may fail again: the stored one only serves on
            // errors.
            Some(_) if key.has_waited => Conditions::Instead(Vec::new()),
            Some(stale) => Conditions::Instead(validating::conditions(stale)),
            None if key.is_authorized || call.asked.no_store => Conditions::AsSent,
            None if self.fetcher.makings().is_unshared(key.hash) => Conditions::AsSent,
            None => Conditions::Instead(Vec::new()),
        }
    }

    /// Joins an equal request's call, or registers this one as leader; `None` if the call must not be shared.
    fn share(&self, key: &Key, call: &Call<'_>, id: ExchangeId, purges: Since) -> Option<Role> {
        if !self.is_for_many(key, call) {
            return None;
        }
        let makings = self.fetcher.makings();
        // The key includes the purge epoch: requests after a purge do not join calls that began before it.
        Some(makings.join(&key.job(purges), self.waiter(id)))
    }

    /// Whether other requests may wait for the response to this one.
    fn is_for_many(&self, key: &Key, call: &Call<'_>) -> bool {
        let (route, makings) = (call.route, self.fetcher.makings());
        let is_shareable = key.is_shareable(route.is_origin);
        let takes_time = route.spools.is_some() && !route.is_instant();
        let may_be_stored = is_shareable && takes_time && !makings.is_unshared(key.hash);
        may_be_stored && (key.is_whole() || self.may_be_answered_whole(key, call))
    }

    /// Whether an origin may answer a range request with the whole, which answers other ranges, too. If its last
    /// answer was a part, range requests do not wait for each other.
    fn may_be_answered_whole(&self, key: &Key, call: &Call<'_>) -> bool {
        let answers_parts = self.fetcher.makings().is_unshared(key.part_mark());
        !answers_parts && is_plain_range(call.request.lines())
    }

    fn storing(
        &self,
        call: &Call<'_>,
        (purges, stale): (Since, Option<&ObjectArc>),
        executor: Executor,
    ) -> Option<Storing> {
        // A HEAD response can only update a stored response.
        let is_of_use = |key: &Key| key.wants != Wants::Head || stale.is_some();
        let key = call.key.clone().filter(is_of_use)?;
        let begun_ms = clock::now_ms();
        Some(Storing {
            why: why(call, &key, begun_ms),
            key,
            purges,
            begun_ms,
            // HEAD updates the stored response of a GET (RFC 9111 §4.3.5), so it is judged as one.
            asked: Asked {
                is_get: true,
                ..call.asked
            },
            store: self.store.clone(),
            makings: self.fetcher.makings().clone(),
            route: call.route.clone(),
            rules: call.rules.clone(),
            executor,
            ignores_range: false,
            completes: stale.filter(|stale| completes(call, stale)).cloned(),
        })
    }

    /// The objects of the call's site; usually those of the last call.
    fn objects(&self, call: &Call<'_>) -> Arc<SiteObjects> {
        let mut last = self.last.borrow_mut();
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
    pub fn forget(&self) {
        self.last.take();
    }

    /// Runs a call on the worker or on the runtime; the outcome arrives through the worker's mailbox.
    fn run(&self, task: Box<Task>, id: ExchangeId) -> Box<dyn Send> {
        let here = matches!(task.executor, Executor::Worker(_));
        let due = DueOutcome::new(self.waiter(id));
        let work = async move {
            let outcome = task.run().await;
            due.send(outcome);
        };
        if here {
            // Followers may still wait after this request's connection has closed.
            let hold = self.local.tasks.hold();
            // Polled at once, so that its requests are sent before this worker waits for events.
            return Box::new((self.local.tasks.start(work), hold));
        }
        let task = self.runtime.spawn(work);
        Box::new(Running(task.abort_handle()))
    }
}

/// The reason for the call, for Cache-Status.
fn why(call: &Call<'_>, key: &Key, now_ms: u64) -> Answered {
    let is_fresh = |stored: &ObjectArc| {
        let lifetime = stored.validity.lifetime();
        lifetime.is_some_and(|lifetime| lifetime.until_ms() > now_ms)
    };
    match &call.stale {
        // The stored body is unreadable, or the request forbids its use.
        Some(stored) if is_fresh(stored) => Answered::Miss,
        Some(_) => Answered::Stale,
        // A variant is known, so a response of this key is stored.
        None if !key.variant.is_empty() => Answered::VaryMiss,
        None => Answered::UriMiss,
    }
}

/// Whether the stored object has parts of the whole that a call requests.
fn completes(call: &Call<'_>, stale: &Object) -> bool {
    let is_whole = call.key.as_ref().is_some_and(Key::is_whole);
    is_whole && matches!(stale.kind, Kind::Parts(_))
}
