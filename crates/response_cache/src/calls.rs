//! Puts requests to programs: at once on the worker where they answer at once, as one of its tasks where they only wait for
//! sockets, else on the runtime beside it. What comes later comes by the worker's mailbox.
//!
//! Equal requests whose responses may turn out to be storable are put to the program once: the others wait for the head of
//! the first response, and read it with the first if it is stored. If it is not, they are put to the program at once, and
//! the next ones do not wait. Where responses are known to vary, only requests for the same variant are equal.
//!
//! Requests for single ranges of one object count as equal, whichever range each asks for: an origin may ignore Range. If
//! it answers the first with the whole (200), that answers the others. If it answers with a part (206), the others are put
//! to it at once; that is remembered for the key, and later requests for ranges do not wait.

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

/// One worker's way to the programs.
pub struct Calls {
    /// The number of the worker.
    pub worker: usize,
    /// Where what takes time is done.
    pub runtime: Handle,
    /// The worker itself, where what only waits is done.
    pub local: Local,
    /// How what came of it gets back.
    pub post: Post,
    /// How what comes before it gets there.
    pub post_interim: PostInterim,
    /// What sites have stored.
    pub store: Arc<SharedStore>,
    /// Who loads it.
    pub fetcher: Arc<Fetcher<Waiter>>,
    /// Who keeps copies hears of purges here.
    pub changes: Arc<Changes>,
    /// What the site of the last call has.
    pub last: RefCell<Option<Arc<SiteObjects>>>,
}

/// What is put to a program.
pub struct Call<'a> {
    /// The rules of its site.
    pub rules: &'a Arc<SiteRules>,
    /// The routes of its site.
    pub routes: &'a Routes,
    /// The normalised host name, where each has a folder of its own; else empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The target in place of the one that the client sent, if another is answered.
    pub target: Option<InternalTarget<'a>>,
    /// The address at which it came in.
    pub local: SocketAddr,
    /// The request itself.
    pub request: &'a Request<'a>,
    /// Where it goes.
    pub route: &'a Arc<Route>,
    /// Under what its response may be stored and shared.
    pub key: Option<Key>,
    /// What the request says to caches.
    pub asked: Asked,
    /// A rule of the site has found the password right that it shows.
    pub is_user: bool,
    /// What is stored for it, and does not hold any more unless its maker says so.
    pub stale: Option<ObjectArc>,
    /// Its class, where there are any.
    pub class: Option<Chosen>,
}

/// A target to which the server itself led a request.
#[derive(Clone, Copy)]
pub struct InternalTarget<'a> {
    /// The path, percent-encoded.
    pub path: &'a [u8],
    /// What follows the `?`.
    pub query: Option<&'a [u8]>,
}

/// How far a call has come.
pub enum Called {
    /// It is over.
    Over(Result<Reply, Failure>),
    /// It is over, and its response is stored; maybe its body still comes.
    Stored(Stored),
    /// It goes on; dropping this gives it up, unless others wait for it, too.
    Runs(Box<dyn Send>),
}

impl Calls {
    /// A request of this worker that waits for an outcome.
    pub fn waiter(&self, id: ExchangeId) -> Waiter {
        Waiter::new(self.post.clone(), id)
    }

    /// Puts a request to its route's program, or has it wait for the response to an equal one.
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
                    // In its own time: this request's is from before it was stored.
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

    /// Puts a request to its route's program of which nobody waits for the response, unless an equal one is on its way.
    ///
    /// What earlier ones came to does not count, or one failure would be the last try; but a moment has to be between them.
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
            // What is stored while its body comes goes on as long as somebody reads it.
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

    /// What is fresh in the store by now for a request that found nothing there: another's making may have ended between its
    /// look and its turn.
    fn stored_meanwhile(&self, call: &Call<'_>, now_ms: u64) -> Option<Stored> {
        let key = call.key.as_ref().filter(|_| call.stale.is_none())?;
        let entry = self.store.find(key.hash, &key.bytes)?;
        let object = entry.selected(call.request.fields())?;
        let is_usable = matches!(object.kind, Kind::Representation(_))
            && object.validity.use_for(&call.asked, now_ms) == Use::Fresh;
        is_usable.then(|| Stored::of_store(object, Way::Hit))
    }

    /// The purges before the program sees anything: what is purged from now on, it may have seen.
    fn purges(&self, call: &Call<'_>) -> Since {
        self.store
            .purges(call.key.as_ref().map_or(0, |key| key.hash))
    }

    /// What is stored for it, unless that was purged since it was found: then it is nothing for those who join from now on.
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

    /// Puts a request to its program.
    ///
    /// # Errors
    /// It has answered at once: what came of it.
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
        // In a box, since it is moved from hand to hand until it is polled.
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

    /// How interim responses to a call reach its client, with the site's rules for fields applied.
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

    /// Which conditions the program gets. Where it is an origin and its response may be stored, ours: a stored response
    /// is validated, and one that is to be stored has to come whole. The client's are judged then by what is stored.
    ///
    /// The response to a request with credentials is seldom for others, and none is stored for one with `no-store`. While
    /// nothing is stored, their conditions go to the origin, so that their clients get 304 instead of all bytes each time.
    fn conditions(&self, call: &Call<'_>, stale: Option<&ObjectArc>) -> Conditions {
        let Some(key) = call.key.as_ref().filter(|key| key.is_whole()) else {
            return Conditions::AsSent;
        };
        if !call.route.is_origin {
            return Conditions::AsSent;
        }
        match stale {
            // Who has waited was told nothing of use about it: it may stand in, and no more.
            Some(_) if key.has_waited => Conditions::Instead(Vec::new()),
            Some(stale) => Conditions::Instead(validating::conditions(stale)),
            None if key.is_authorized || call.asked.no_store => Conditions::AsSent,
            None if self.fetcher.makings().is_unshared(key.hash) => Conditions::AsSent,
            None => Conditions::Instead(Vec::new()),
        }
    }

    /// Whether an equal request is being answered, or this is the one that others may wait for; `None` if nobody is to
    /// wait.
    fn share(&self, key: &Key, call: &Call<'_>, id: ExchangeId, purges: Since) -> Option<Role> {
        if !self.is_for_many(key, call) {
            return None;
        }
        let makings = self.fetcher.makings();
        // What began before a purge is not for who came after it.
        Some(makings.join(&key.job(purges), self.waiter(id)))
    }

    /// Whether others may wait for what comes of a request.
    fn is_for_many(&self, key: &Key, call: &Call<'_>) -> bool {
        let (route, makings) = (call.route, self.fetcher.makings());
        let is_shareable = key.is_shareable(route.is_origin);
        let takes_time = route.spools.is_some() && !route.is_instant();
        let may_be_stored = is_shareable && takes_time && !makings.is_unshared(key.hash);
        may_be_stored && (key.is_whole() || self.may_be_answered_whole(key, call))
    }

    /// Whether an origin may answer a request for a range with the whole, which answers other ranges, too. If it answered the
    /// last one with a part, requests for ranges do not wait for each other.
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
        // What the response to HEAD says may be about what is stored.
        let is_of_use = |key: &Key| key.wants != Wants::Head || stale.is_some();
        let key = call.key.clone().filter(is_of_use)?;
        let begun_ms = clock::now_ms();
        Some(Storing {
            why: why(call, &key, begun_ms),
            key,
            purges,
            begun_ms,
            // What HEAD freshens was a GET's, and nothing else of it is stored.
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

    /// What the site has; mostly it is that of the last call.
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

    /// Holds on to no site.
    pub fn forget(&self) {
        self.last.take();
    }

    /// Lets an answer be made beside the worker, or by it, which gets it by its mailbox.
    fn run(&self, task: Box<Task>, id: ExchangeId) -> Box<dyn Send> {
        let here = matches!(task.executor, Executor::Worker(_));
        let due = DueOutcome::new(self.waiter(id));
        let work = async move {
            let outcome = task.run().await;
            due.send(outcome);
        };
        if here {
            // Others may wait for it when this one's connection is gone.
            let hold = self.local.tasks.hold();
            // Polled at once: what it asks of others is on its way before this worker waits.
            return Box::new((self.local.tasks.start(work), hold));
        }
        let task = self.runtime.spawn(work);
        Box::new(Running(task.abort_handle()))
    }
}

/// Why the program is asked for what is stored under this key.
fn why(call: &Call<'_>, key: &Key, now_ms: u64) -> Answered {
    let is_fresh = |stored: &ObjectArc| {
        let lifetime = stored.validity.lifetime();
        lifetime.is_some_and(|lifetime| lifetime.until_ms() > now_ms)
    };
    match &call.stale {
        // It can't be read, or the request does not want it.
        Some(stored) if is_fresh(stored) => Answered::Miss,
        Some(_) => Answered::Stale,
        // It is known to vary, since something of it is stored.
        None if !key.variant.is_empty() => Answered::VaryMiss,
        None => Answered::UriMiss,
    }
}

/// Whether what is stored for a call has parts of what it wants whole.
fn completes(call: &Call<'_>, stale: &Object) -> bool {
    let is_whole = call.key.as_ref().is_some_and(Key::is_whole);
    is_whole && matches!(stale.kind, Kind::Parts(_))
}
