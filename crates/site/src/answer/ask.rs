//! Answers with a stored response of a handler, or calls the handler or origin.

use std::sync::Arc;

use lowroad_cache::vary::Selecting;
use lowroad_handler::Failure;
use lowroad_http::method::Method;
use lowroad_http::status::Status;
use lowroad_response_cache::calls::{Call, Called};
use lowroad_response_cache::reply::Reply;
use lowroad_response_cache::reuse::{Facts, Key, Wants};
use lowroad_response_cache::storing::{Stored, Way};
use lowroad_routes::elsewhere;
use lowroad_routes::routes::Route;
use lowroad_store::object::Kind;
use lowroad_store::validity::Use;
use lowroad_store::{Entry, ObjectArc};

use super::asked::{Asked, Decision, made};
use super::inner;
use super::lookup::Lookup;
use super::wait::{Turn, WaitsFor};
use super::world::{Recalling, Step, World};
use crate::access::Outcome as Logged;
use crate::respond::Responder;
use crate::sites::At;

/// A stored response and how it may be used.
type Found = (ObjectArc, Use);

impl<W: World> Lookup<'_, W> {
    /// Answers with a stored response of the route, or calls its handler; `path` may be that of a folder's index file.
    pub fn ask(
        &mut self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        if route.is_internal && !asked.is_led() {
            self.world.note(Step::InternalRoute(route));
            return made(to.refuse(Some(asked.at()), Status::NOT_FOUND));
        }
        self.world.note(Step::Route(route));
        self.ask_in_turn(asked, path, route, Turn::First, to)
    }

    /// Continues after `ask`, or after the disk look-up that `turn` describes.
    pub fn ask_in_turn(
        &mut self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        turn: Turn,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        // Hits need only the hash; the key is copied into an allocation only by later steps.
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

    /// Handles all cases but a fresh, whole, stored response. Not inlined, to keep the hit path small.
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
        // only-if-cached must not reach the origin (RFC 9111 §5.2.1.7).
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

    /// Revalidates a response that was just used stale: by a GET for the whole of it, even if this request is a HEAD
    /// or a range.
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

    /// Starts a disk look-up for a request; its key's bytes must be in the key buffer.
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
            rules: &asked.site.rules,
            routes: &asked.site.routes,
            host: asked.host,
            path,
            target: asked.inner.map(|inner| inner.target()),
            local: self.sites.address(to.exchange.listener),
            request: to.request,
            route,
            key,
            asked: route.asked(to.request),
            is_user: to.exchange.is_user,
            stale,
            class: self
                .sites
                .classes
                .as_ref()
                .map(|classes| classes.choose(to.request, asked.path, to.exchange.peer)),
        }
    }

    /// Calls the handler of a route. With a key, other requests may share the response. A stale stored response may be
    /// revalidated.
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

    /// Calls the handler for a request that waited for another request's response. The response may be stored, too.
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
        // A stored response may replace an error of the origin (RFC 5861 §4).
        let stale = found.map(|(object, _)| object.clone());
        let stale = stale.filter(|object| object.representation().is_some());
        self.call(asked, path, route, (key, stale), to)
    }

    /// The stored responses under the key whose bytes are in the key buffer.
    fn entry_of(&self, facts: Option<Facts>, route: &Route) -> Option<Entry> {
        let facts = facts.filter(|_| route.is_storing())?;
        self.world.find_kept(facts.hash, self.key)
    }

    /// The key under which the response of a handler would be stored.
    fn key_of(&mut self, asked: &Asked<'_>, route: &Route, to: &Responder<'_, '_>) -> Option<Key> {
        let facts = self.facts_of(asked, route, to)?;
        Some(facts.key(self.key))
    }

    /// The facts of the key, without its bytes, which are left in the key buffer.
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
        // The target of a program's internal redirect can differ with each response.
        let is_of_program = asked.inner.is_some_and(|inner| inner.is_of_program());
        if route.keeps_nothing || is_of_program || route.bypasses(to.request) {
            return None;
        }
        let secured = to.exchange.secured.as_ref();
        if !route.is_origin && secured.is_some_and(|it| it.client.is_some()) {
            // A program receives the client's certificate and need not send Vary for it, so its response can't be
            // shared.
            return None;
        }
        let is_https = to.exchange.is_https();
        let site = (asked.site.rules.id, is_https);
        if let Some(forwarded) = &to.exchange.forwarded
            && let Some(authority) = to.request.authority
            && let Some(complete) = forwarded.authority_with_port(authority, is_https)
        {
            let mut complete_request = to.request.clone();
            complete_request.authority = Some(&complete);
            let request = (&complete_request, has_body);
            return Facts::of(request, route.is_origin, site, self.key, hash);
        }
        Facts::of(request, route.is_origin, site, self.key, hash)
    }

    /// Answers with the stored form of a handler's response.
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
            // Too much time has passed: the stored response can no longer be sent.
            return reused.unwrap_or_else(|| self.call_alone(asked, path, route, to));
        }
        if is_variant {
            return self.call_alone(asked, path, route, to);
        }
        // The leader's response varies and doesn't match; its Vary field now gives the key of this request's variant.
        let key = self.key_of(asked, route, to);
        let key = key.map(|key| key.of_variant(selecting, to.request));
        self.call(asked, path, route, (key, None), to)
    }

    /// Answers with a stored response, or waits until its body begins; `None` if its body is gone.
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

    /// Answers with the response of a handler, which is not stored.
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
        let first = asked.inner.and_then(|inner| inner.kept());
        let at = match first {
            None => asked.at(),
            // Header rules apply to the path that the client requested.
            Some((path, _)) => At { path, ..asked.at() },
        };
        let status = match reply {
            Ok(mut reply) => {
                if let Some((_, fields)) = first {
                    elsewhere::add_fields(fields, &mut reply.response);
                }
                to.reply(at, route, reply)
            }
            Err(failure) => to.failed(at, route, &failure, self.logger),
        };
        let logged = match route.is_origin {
            true => Logged::Passed,
            false => Logged::Program,
        };
        Decision::Answered(status, logged)
    }
}

/// The stored response for a request, and how it may be used.
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
        // Fast path: most requests carry no cache directives, and their stored response is fresh.
        let now = match !to.request.concerns_caches() && validity.holds(now_ms) {
            true => Use::Fresh,
            false => validity.use_for(&route.asked(to.request), now_ms),
        };
        match &object.kind {
            // A background refresh would fetch the whole, which no request may want.
            Kind::Parts(_) if now == Use::StaleWhileRevalidate => (object, Use::Validate),
            _ => (object, now),
        }
    })
}

/// A partially stored response, if one more range completes it for a request that wants the whole.
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

/// Whether a stored response can be sent without asking the origin.
fn is_usable(now: Use) -> bool {
    matches!(now, Use::Fresh | Use::Stale | Use::StaleWhileRevalidate)
}

/// The outcome under which a stored response is logged.
fn logged_of(now: Use) -> Logged {
    match now {
        Use::Fresh => Logged::Hit,
        _ => Logged::Stale,
    }
}
