//! What is stored for a request, whether it holds, and which variant of it is sent; else a helper is asked, or a program.
//! Knows the site already.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_cache::vary::Selecting;
use lowroad_dynamic::Failure;
use lowroad_engine::stream::Receiver;
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::method::Method;
use lowroad_http::request::OwnedRequest;
use lowroad_http::status::Status;
use lowroad_http::target;
use lowroad_log::Logger;

use super::guarded::Passing;
use super::inner::{self, Inner};
use super::world::{Fetched, Recalling, Step, World};
use crate::access::Outcome as Logged;
use crate::dynamic::calls::{Call, Called};
use crate::dynamic::reply::Reply;
use crate::dynamic::reuse::{Facts, Key, Wants};
use crate::dynamic::storing::{Stored, Way};
use crate::guard::{self, Rule};
use crate::load::{Loaded, Want};
use crate::programs::routes::Route;
use crate::respond::Responder;
use crate::sites::{At, Site, Sites};
use crate::softirq;
use crate::store::key;
use crate::store::object::Kind;
use crate::store::validity::Use;
use crate::store::{Entry, Object, ObjectArc};
use crate::tier::Recalled;

/// What the decision came to.
pub enum Decision {
    /// The answer was written.
    Answered(Status, Logged),
    /// It will be possible later.
    Deferred(Box<Pending>),
}

/// A request that waits.
pub struct Pending {
    /// Its head: fields decide what exactly is sent.
    pub request: OwnedRequest,
    /// All that was decided about it.
    pub waiting: Waiting,
}

/// What was decided about a request that waits.
pub struct Waiting {
    /// See [`lowroad_engine::Exchange`].
    pub body_len: Option<u64>,
    /// The client and its port, whoever its connection comes from.
    pub peer: (IpAddr, u16),
    /// The site.
    pub site: Arc<Site>,
    /// See [`Asked`].
    pub host: Box<[u8]>,
    /// Decoded.
    pub path: Box<[u8]>,
    /// See [`Asked`].
    pub is_for_files: bool,
    /// The same.
    pub is_fallback: bool,
    /// The same.
    pub inner: Option<Arc<Inner>>,
    pub is_user: bool,
    /// What for.
    pub waits_for: WaitsFor,
}

/// What a request waits for.
pub enum WaitsFor {
    /// A helper, that loads what is not in memory. The body may be for a program, if there is no file.
    File {
        /// The request's.
        body: Option<Receiver>,
    },
    /// A program.
    Program {
        /// Tells it by a drop that nobody waits any more.
        _work: Box<dyn Send>,
        /// It is known which variant it asks for.
        is_variant: bool,
        /// Its route.
        route: Arc<Route>,
        /// What it is asked for, decoded: the path, or that of its folder's index file.
        path: Box<[u8]>,
    },
    /// Somebody who verifies the password that it shows.
    Password {
        /// The request's; for a program, perhaps.
        body: Option<Receiver>,
        /// The number of the rule that wants it.
        rule: usize,
    },
    /// Word that a purge outlives the process.
    Purge,
    /// A helper, that looks on the disk for what is not in memory.
    Disk {
        /// The route of the program that is asked if there is nothing.
        route: Arc<Route>,
        /// As for a program.
        path: Box<[u8]>,
        /// Which look it is.
        turn: Turn,
    },
    /// The end of a body that nobody wants.
    Body,
}

/// What is stored for a request, and how it may be used.
type Found = (ObjectArc, Use);

/// How often the disk was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Never: equal requests wait for one look together.
    First,
    /// Once, and what is there varies: what came may be for another's fields.
    ForFields,
    /// Often enough.
    Over,
}

impl Turn {
    /// The next, after this one gave that.
    pub fn next(self, recalled: Recalled) -> Turn {
        match self {
            Turn::First if recalled.varies => Turn::ForFields,
            _ => Turn::Over,
        }
    }
}

/// What a request is for, once its site is known.
pub struct Asked<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// The normalised host name, where each has a folder of its own; else empty.
    pub host: &'a [u8],
    /// Decoded.
    pub path: &'a [u8],
    /// As it came.
    pub query: Option<&'a [u8]>,
    /// It is a path that a file may have: no slash in it was encoded.
    pub is_for_files: bool,
    /// There is no file for what was asked for, and this path stands in.
    pub is_fallback: bool,
    /// How it was come to, if it is not the target that the client sent.
    pub inner: Option<&'a Arc<Inner>>,
    /// A rule of the site has found the password right that the request shows.
    pub is_user: bool,
}

impl Asked<'_> {
    /// Which site's rules count, and for what.
    pub fn at(&self) -> At<'_> {
        At {
            site: self.site,
            path: self.path,
        }
    }

    /// The same for the rules of the site.
    pub fn passing(&self) -> Passing<'_> {
        Passing {
            at: self.at(),
            before: self.inner.map(|inner| inner.before()),
        }
    }

    /// What stands in where there is no file, by a rule of the site.
    fn fallback(&self, to: &Responder<'_, '_>) -> Option<(&Rule, &str)> {
        let guard = self.site.guard.as_ref().filter(|_| !self.is_fallback)?;
        guard.fallback(guard::Facts {
            path: self.path,
            method: to.request.method,
            peer: to.exchange.peer,
        })
    }

    /// Keeps what was decided until it can be gone on with.
    pub fn wait(&self, to: &Responder<'_, '_>, waits_for: WaitsFor) -> Decision {
        let waiting = Waiting {
            body_len: to.exchange.body_len,
            peer: (to.exchange.peer, to.exchange.peer_port),
            site: self.site.clone(),
            host: self.host.into(),
            path: self.path.into(),
            is_for_files: self.is_for_files,
            is_fallback: self.is_fallback,
            inner: self.inner.cloned(),
            is_user: self.is_user,
            waits_for,
        };
        Decision::Deferred(Box::new(Pending {
            request: OwnedRequest::copy_of(to.request),
            waiting,
        }))
    }

    /// The same until somebody has verified the password that a rule wants, which has this number.
    pub fn wait_for_password(&self, to: &mut Responder<'_, '_>, rule: usize) -> Decision {
        let body = to.exchange.body.take();
        self.wait(to, WaitsFor::Password { body, rule })
    }

    /// The same for what comes of a program's work.
    fn wait_for_program(
        &self,
        to: &Responder<'_, '_>,
        (work, is_variant): (Box<dyn Send>, bool),
        path: &[u8],
        route: &Arc<Route>,
    ) -> Decision {
        let waits_for = WaitsFor::Program {
            _work: work,
            is_variant,
            route: route.clone(),
            path: path.into(),
        };
        self.wait(to, waits_for)
    }
}

/// Finds what is stored, or has it fetched, or has a program asked.
pub struct Lookup<'w, W> {
    /// All sites.
    pub sites: &'w Sites,
    /// The way to programs and to what is stored.
    pub world: &'w W,
    /// For what goes wrong.
    pub logger: &'w Logger,
    /// Where keys are put together.
    pub key: &'w mut Vec<u8>,
}

impl<W: World> Lookup<'_, W> {
    /// The same, for who has to give one away.
    pub fn again(&mut self) -> Lookup<'_, W> {
        Lookup {
            sites: self.sites,
            world: self.world,
            logger: self.logger,
            key: &mut *self.key,
        }
    }

    /// Whether a path that is no program's may turn out to be one's.
    pub fn may_be_for_program(&self, asked: &Asked<'_>, to: &Responder<'_, '_>) -> bool {
        let routes = &asked.site.routes;
        let leads_to_one = || {
            let fallback = asked.fallback(to);
            fallback.is_some_and(|(_, path)| routes.of(path.as_bytes()).is_some())
        };
        let is_rewritten = || asked.rewrite(true, to.request.method).is_some();
        !routes.is_empty()
            && (routes.of_missing(asked.path).is_some()
                || asked.path.ends_with(b"/")
                || leads_to_one()
                || is_rewritten())
    }

    /// Answers with what is stored, or has it loaded.
    #[inline]
    pub fn serve(self, asked: &Asked<'_>, to: &mut Responder<'_, '_>) -> Decision {
        key::write_of_file(self.key, asked.site.id, asked.host, asked.path);
        let hash = self.world.hash(self.key);
        match self.world.find(hash, self.key) {
            Some(entry) if entry.base.validity.holds(to.exchange.now_ms) => {
                self.send(asked, &entry, Logged::Hit, to)
            }
            stale => {
                let stale = stale.map(|entry| entry.base);
                self.fetch(asked, Encoding::Identity, stale, to)
            }
        }
    }

    /// Goes on with what was loaded.
    pub fn loaded(self, asked: &Asked<'_>, loaded: Loaded, to: &mut Responder<'_, '_>) -> Decision {
        match loaded.encoded {
            None => self.send(asked, &Entry::new(loaded.base), Logged::Miss, to),
            Some(object) if object.representation().is_some() => {
                self.chosen(asked, &object, Logged::Miss, to)
            }
            // What can't be had in that encoding is sent as it is.
            Some(_) => self.chosen(asked, &loaded.base, Logged::Miss, to),
        }
    }

    /// Sends the variant that the request asks for.
    #[inline]
    fn send(
        mut self,
        asked: &Asked<'_>,
        entry: &Entry,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let base = &entry.base;
        self.world.note(Step::Found(asked, base));
        let identity = match &base.kind {
            Kind::Representation(representation) => representation,
            other => return self.no_file(asked, other, logged, to),
        };
        if !matches!(to.request.method, Method::Get | Method::Head) {
            return made(to.other_method(asked.at()));
        }
        let wanted = encoding::choose(&to.request.accept_encoding(), identity.encodings());
        if wanted == Encoding::Identity {
            return self.chosen(asked, base, logged, to);
        }
        match entry.encoded(wanted) {
            Some(object) => self.chosen(asked, object, logged, to),
            None => self.fetch(asked, wanted, Some(base.clone()), to),
        }
    }

    #[inline]
    fn chosen(
        &self,
        asked: &Asked<'_>,
        object: &Object,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        self.world.note(Step::Chosen(object));
        match &object.kind {
            Kind::Representation(representation) => {
                let kept = asked.inner.and_then(|inner| inner.kept());
                let status = match kept {
                    None => to.send(asked.at(), representation),
                    Some((path, fields)) => {
                        let at = At { path, ..asked.at() };
                        to.send_for_program((asked.at(), at), representation, fields)
                    }
                };
                Decision::Answered(status, logged)
            }
            _ => made(to.refuse(Some(asked.at()), Status::INTERNAL_ERROR)),
        }
    }

    /// A path that is no file: a folder, or nothing, unless a program answers for it.
    fn no_file(
        &mut self,
        asked: &Asked<'_>,
        kind: &Kind,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        if asked.site.leads_within && asked.is_internal() {
            let status = match kind {
                Kind::Refused(status, _) => *status,
                _ => Status::NOT_FOUND,
            };
            return made(to.refuse(Some(asked.at()), status));
        }
        let routes = &asked.site.routes;
        let (path, route): (&[u8], Option<&Arc<Route>>) = match kind {
            Kind::Index(path, _) => {
                let route = routes.of_request(path, to.request).ok().flatten();
                (&**path, route)
            }
            Kind::NoIndex(_) | Kind::Refused(Status::NOT_FOUND, _) => {
                (asked.path, routes.of_missing_for(asked.path, to.request))
            }
            _ => (asked.path, None),
        };
        let is_missing = matches!(kind, Kind::NoIndex(_) | Kind::Refused(Status::NOT_FOUND, _));
        if is_missing && let Some(led) = asked.rewrite(true, to.request.method) {
            return inner::rewritten(self, asked, led, to);
        }
        if is_missing
            && route.is_none()
            && let Some((rule, path)) = asked.fallback(to)
        {
            return self.fall_back(asked, (rule, path.as_bytes()), to);
        }
        let reads = matches!(to.request.method, Method::Get | Method::Head);
        let status = match (kind, route) {
            (_, Some(route)) if route.takes(to.request.method) => {
                return self.ask(asked, path, route, to);
            }
            _ if !reads => return made(to.other_method(asked.at())),
            (Kind::Folder(_), _) => {
                let location = folder_location(asked.path, asked.query);
                let status = Status::MOVED_PERMANENTLY;
                to.redirect(asked.at(), status, &location)
            }
            (Kind::NoIndex(_), _) => to.refuse_folder(asked.at()),
            (Kind::Refused(status, _), _) => to.refuse(Some(asked.at()), *status),
            // The route that the index file belonged to is gone: the next look finds the file.
            _ => to.refuse(Some(asked.at()), Status::NOT_FOUND),
        };
        Decision::Answered(status, logged)
    }

    /// Answers with what stands in where there is no file. Of a change of that, who keeps it for this path is not told.
    fn fall_back(
        &mut self,
        asked: &Asked<'_>,
        (rule, path): (&Rule, &[u8]),
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        self.world.note(Step::Rule(rule));
        self.world.note(Step::Ruled);
        if softirq::asks(to.request.user_agent(), to.exchange.peer) {
            return made(to.refuse_by_rule(asked.at(), Status::FORBIDDEN, &[]));
        }
        let asked = Asked {
            site: asked.site,
            host: asked.host,
            path,
            query: asked.query,
            is_for_files: true,
            is_fallback: true,
            inner: asked.inner,
            is_user: asked.is_user,
        };
        let routes = &asked.site.routes;
        if let Ok(Some(route)) = routes.of_request(path, to.request)
            && route.takes(to.request.method)
        {
            return self.ask(&asked, path, route, to);
        }
        self.again().serve(&asked, to)
    }

    /// Answers with what a program answered before, or puts the request to it; `path` may be that of a folder's index
    /// file.
    pub fn ask(
        &mut self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        self.world.note(Step::Route(route));
        self.ask_in_turn(asked, path, route, Turn::First, to)
    }

    /// The same, where the disk may have been asked.
    pub fn ask_in_turn(
        &mut self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        turn: Turn,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        // The key is copied only for who needs more than to look it up.
        let facts = self.facts_of(asked, route, to);
        let entry = self.entry_of(facts, route);
        let found = entry.as_ref().and_then(|entry| found(entry, route, to));
        if let Some((object, Use::Fresh)) = found
            && let Kind::Representation(whole) = &object.kind
        {
            self.world.note(Step::Reused(route, object));
            let status = to.hit(asked.at(), object, whole, route);
            return Decision::Answered(status, Logged::Hit);
        }
        if found.is_none() && self.recall(asked, route, facts, turn, to) {
            let (route, path) = (route.clone(), path.into());
            return asked.wait(to, WaitsFor::Disk { route, path, turn });
        }
        let found = found.map(|(object, now)| (object.clone(), now));
        self.ask_further(asked, (path, route), (facts, entry.as_ref(), found), to)
    }

    /// The same where what is stored is not simply the answer.
    #[inline(never)]
    fn ask_further(
        &mut self,
        asked: &Asked<'_>,
        (path, route): (&[u8], &Arc<Route>),
        (facts, entry, found): (Option<Facts>, Option<&Entry>, Option<Found>),
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        if let Some((object, now)) = &found {
            let stored = Stored::of_store(object, Way::Hit);
            if is_usable(*now)
                && let Some(decision) =
                    self.reuse(asked, (path, route), stored, logged_of(*now), to)
            {
                if let Decision::Answered(..) = decision {
                    self.world.note(Step::Reused(route, object));
                    if *now == Use::StaleWhileRevalidate {
                        let key = facts.map(|facts| facts.key(self.key));
                        self.refresh(asked, (path, route), (key, object), to);
                    }
                }
                return decision;
            }
            if *now == Use::Unusable {
                return made(to.refuse(Some(asked.at()), Status::GATEWAY_TIMEOUT));
            }
        }
        if found.is_none() && facts.is_some() && route.asked(to.request).only_if_cached {
            return made(to.refuse(Some(asked.at()), Status::GATEWAY_TIMEOUT));
        }
        let key = facts.map(|facts| facts.key(self.key));
        self.world.note(Step::Unused(key.as_ref(), found.as_ref()));
        let selecting = entry.and_then(Entry::selecting);
        let key = key.map(|key| key.of_variant(selecting, to.request));
        let stale = found
            .map(|(object, _)| object)
            .or_else(|| to_complete(entry?, (facts, route), to));
        self.call(asked, path, route, (key, stale), to)
    }

    /// Has a fresh response made of what was just used stale: by a GET for all of it, whatever this request is.
    fn refresh(
        &self,
        asked: &Asked<'_>,
        (path, route): (&[u8], &Arc<Route>),
        (key, stale): (Option<Key>, &ObjectArc),
        to: &mut Responder<'_, '_>,
    ) {
        let mut whole = to.request.clone();
        whole.method = Method::Get;
        let stored = (key.map(Key::of_whole), Some(stale.clone()));
        let call = Call {
            request: &whole,
            asked: route.asked(&whole),
            ..self.call_of(asked, path, route, stored, to)
        };
        self.world.refresh(&call, to.exchange);
    }

    /// Has what the disk may have for a request brought into memory; its key's bytes were put together just now.
    fn recall(
        &self,
        asked: &Asked<'_>,
        route: &Route,
        facts: Option<Facts>,
        turn: Turn,
        to: &Responder<'_, '_>,
    ) -> bool {
        let Some(facts) = facts.filter(|_| route.is_origin && turn != Turn::Over) else {
            return false;
        };
        let recalling = Recalling {
            site: asked.site,
            key: self.key,
            hash: facts.hash,
            request: to.request,
            is_for_lines: turn == Turn::ForFields,
        };
        let is_recalled = self.world.recall(&recalling, to.exchange.id);
        if is_recalled {
            route.begin_storing();
        }
        is_recalled
    }

    fn call_of<'c>(
        &self,
        asked: &'c Asked<'c>,
        path: &'c [u8],
        route: &'c Arc<Route>,
        (key, stale): (Option<Key>, Option<ObjectArc>),
        to: &Responder<'c, '_>,
    ) -> Call<'c> {
        Call {
            site: asked.site,
            host: asked.host,
            path,
            inner: asked.inner.map(|inner| &**inner),
            local: self.sites.address(to.exchange.listener),
            over_tls: to.exchange.secured.is_some(),
            request: to.request,
            route,
            key,
            asked: route.asked(to.request),
            is_user: asked.is_user,
            stale,
            class: self
                .sites
                .classes
                .as_ref()
                .map(|classes| classes.choose(to.request, asked.path, to.exchange.peer)),
        }
    }

    /// Puts a request to the program of a route; with a key, others may share what comes of it. What is stored but stale
    /// may turn out to hold still.
    pub fn call(
        &mut self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        stored: (Option<Key>, Option<ObjectArc>),
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let is_variant = stored.0.as_ref().is_some_and(|key| !key.variant.is_empty());
        let call = self.call_of(asked, path, route, stored, to);
        match self.world.call(&call, to.exchange) {
            Called::Runs(work) => asked.wait_for_program(to, (work, is_variant), path, route),
            Called::Stored(stored) => self.stored(asked, (path, route), (stored, is_variant), to),
            Called::Over(reply) => self.replied(asked, route, reply, to),
        }
    }

    /// Puts a request to the program that has waited for another's response. What comes of it may be stored, too.
    pub fn call_alone(
        &mut self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let facts = self.facts_of(asked, route, to);
        let key = facts.map(|facts| Key {
            has_waited: true,
            ..facts.key(self.key)
        });
        let entry = self.entry_of(facts, route);
        let found = entry.as_ref().and_then(|entry| found(entry, route, to));
        // What is stored may stand in if the origin fails.
        let stale = found.map(|(object, _)| object.clone());
        let stale = stale.filter(|object| object.representation().is_some());
        self.call(asked, path, route, (key, stale), to)
    }

    /// What is stored for a program's key whose bytes were put together just now.
    fn entry_of(&self, facts: Option<Facts>, route: &Route) -> Option<Entry> {
        let facts = facts.filter(|_| route.is_storing())?;
        self.world.find_kept(facts.hash, self.key)
    }

    /// Under what the response of a program would be stored.
    fn key_of(&mut self, asked: &Asked<'_>, route: &Route, to: &Responder<'_, '_>) -> Option<Key> {
        let facts = self.facts_of(asked, route, to)?;
        Some(facts.key(self.key))
    }

    /// The same without the key's bytes, which lie where keys are put together.
    fn facts_of(
        &mut self,
        asked: &Asked<'_>,
        route: &Route,
        to: &Responder<'_, '_>,
    ) -> Option<Facts> {
        let world = self.world;
        let has_body = to.exchange.body_len != Some(0);
        let request = (to.request, has_body);
        let hash = |key: &[u8]| world.hash(key);
        // What a program leads to depends on what it says each time.
        if route.keeps_nothing || asked.inner.is_some_and(|inner| inner.is_of_program()) {
            return None;
        }
        let secured = to.exchange.secured.as_ref();
        if !route.is_origin && secured.is_some_and(|it| it.client.is_some()) {
            // A program is told who the client is, and need not say that its response depends on it.
            return None;
        }
        let site = (asked.site.id, secured.is_some());
        Facts::of(request, route.is_origin, site, self.key, hash)
    }

    /// Answers with what a program's response has become in the store.
    pub fn stored(
        &mut self,
        asked: &Asked<'_>,
        (path, route): (&[u8], &Arc<Route>),
        (stored, is_variant): (Stored, bool),
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let object = stored.object.clone();
        let selecting = object.selecting();
        let takes = |selecting: &Selecting| selecting.takes(to.request.fields());
        if stored.way.is_own() || selecting.is_none_or(takes) {
            let logged = Logged::of(stored.way, route.is_origin);
            let reused = self.reuse(asked, (path, route), stored, logged, to);
            // It was too long before this one came to it.
            return reused.unwrap_or_else(|| self.call_alone(asked, path, route, to));
        }
        if is_variant {
            return self.call_alone(asked, path, route, to);
        }
        // It is for others; now it is known what variants there are.
        let key = self.key_of(asked, route, to);
        let key = key.map(|key| key.of_variant(selecting, to.request));
        self.call(asked, path, route, (key, None), to)
    }

    /// Answers with a program's response from the store, or waits until that can begin; `None` if it is not to be had any
    /// more.
    fn reuse(
        &self,
        asked: &Asked<'_>,
        (path, route): (&[u8], &Arc<Route>),
        stored: Stored,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Option<Decision> {
        let begins = match to.request.method {
            Method::Head => Some(stored),
            _ => self.world.wait(stored, to.exchange.id),
        };
        match begins {
            Some(stored) => Some(Decision::Answered(
                to.reuse(asked.at(), stored, route)?,
                logged,
            )),
            None => Some(asked.wait_for_program(to, (Box::new(()), true), path, route)),
        }
    }

    /// Answers with what a program has answered.
    pub fn replied(
        &mut self,
        asked: &Asked<'_>,
        route: &Route,
        reply: Result<Reply, Failure>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        if let Ok(reply) = &reply
            && let Some(elsewhere) = route.elsewhere(&reply.response)
        {
            let led = (elsewhere, &reply.response.fields);
            return inner::follow(self, asked, route, led, to);
        }
        let status = match reply {
            Ok(reply) => to.reply(asked.at(), route, reply),
            Err(failure) => to.failed(asked.at(), route, &failure, self.logger),
        };
        let logged = match route.is_origin {
            true => Logged::Passed,
            false => Logged::Program,
        };
        Decision::Answered(status, logged)
    }

    #[cold]
    fn fetch(
        self,
        asked: &Asked<'_>,
        encoding: Encoding,
        base: Option<ObjectArc>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        key::write_of_file(self.key, asked.site.id, asked.host, asked.path);
        let want = Want {
            site: asked.site.clone(),
            host: asked.host.into(),
            path: asked.path.into(),
            encoding,
            base,
            key: self.key.as_slice().into(),
            hash: self.world.hash(self.key),
        };
        match self.world.fetch(want, to.exchange.id) {
            Fetched::Later => {
                let body = to.exchange.body.take();
                asked.wait(to, WaitsFor::File { body })
            }
            Fetched::Loaded(loaded) => self.loaded(asked, loaded, to),
            Fetched::Refused => made(to.refuse(Some(asked.at()), Status::SERVICE_UNAVAILABLE)),
        }
    }
}

/// What is stored for a request, and how it may be used.
#[inline]
fn found<'e>(
    entry: &'e Entry,
    route: &Route,
    to: &Responder<'_, '_>,
) -> Option<(&'e ObjectArc, Use)> {
    let object = entry.selected(to.request.fields())?;
    let is_ready = match &object.kind {
        Kind::Representation(_) => true,
        Kind::Parts(partial) => partial.answers(to.request, to.exchange.unix_s),
        _ => route.spools.is_some(),
    };
    is_ready.then(|| {
        let (validity, now_ms) = (&object.validity, to.exchange.now_ms);
        // Most requests say nothing to caches, and what is stored for them is fresh.
        let now = match !to.request.concerns_caches() && validity.holds(now_ms) {
            true => Use::Fresh,
            false => validity.use_for(&route.asked(to.request), now_ms),
        };
        match &object.kind {
            // Of the whole nobody knows whether it is wanted.
            Kind::Parts(_) if now == Use::StaleWhileRevalidate => (object, Use::Validate),
            _ => (object, now),
        }
    })
}

/// What is stored in parts of what a request wants whole, if one more completes it.
fn to_complete(
    entry: &Entry,
    (facts, route): (Option<Facts>, &Route),
    to: &Responder<'_, '_>,
) -> Option<ObjectArc> {
    facts.filter(|facts| facts.wants == Wants::Whole)?;
    let object = entry.selected(to.request.fields())?;
    let Kind::Parts(partial) = &object.kind else {
        return None;
    };
    let asked = route.asked(to.request);
    let is_fresh = object.validity.use_for(&asked, to.exchange.now_ms) == Use::Fresh;
    (is_fresh && partial.gap().is_some()).then(|| object.clone())
}

/// Whether a stored response is the answer.
fn is_usable(now: Use) -> bool {
    matches!(now, Use::Fresh | Use::Stale | Use::StaleWhileRevalidate)
}

/// How a response from the store is called in the log.
fn logged_of(now: Use) -> Logged {
    match now {
        Use::Fresh => Logged::Hit,
        _ => Logged::Stale,
    }
}

fn folder_location(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut location = Vec::with_capacity(path.len() + 16);
    target::encode_path(path, &mut location);
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

/// An answer that was made for this request.
pub fn made(status: Status) -> Decision {
    Decision::Answered(status, Logged::Made)
}
