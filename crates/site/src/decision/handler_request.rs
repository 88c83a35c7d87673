//! Answers with a stored response of a handler, or calls the handler or origin.

use std::sync::Arc;

use lowroad_cache::vary::SelectingFields;
use lowroad_handler::HandlerFailure;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_response_cache::calls::{CallStatus, HandlerCall};
use lowroad_response_cache::reply::HandlerReply;
use lowroad_response_cache::reuse::{CacheKey, KeyFacts, RequestedPart};
use lowroad_response_cache::storage::{HitKind, StoredResponse};
use lowroad_routes::response_redirect;
use lowroad_routes::routes::Route;
use lowroad_store::key::SiteScope;
use lowroad_store::object::ObjectKind;
use lowroad_store::validity::Reusability;
use lowroad_store::{ObjectArc, VariantSet};

use super::context::{RequestContext, RequestDecision, RoutedPath, generated_response};
use super::deferral::{DiskLookups, WaitReason};
use super::effects::{DiskRecall, Effects, TraceEvent};
use super::internal_redirect::{self, HandlerRedirect};
use super::lookup::ResponseLookup;
use crate::access::RequestOutcome as Logged;
use crate::responder::RequestResponder;
use crate::sites::SitePath;

/// A stored response and how it may be used.
type StoredMatch = (ObjectArc, Reusability);

/// The result of a look-up of a handler's response.
struct StoredLookup<'e> {
    /// `None`: the response has no key.
    facts: Option<KeyFacts>,
    entry: Option<&'e VariantSet>,
    /// The variant for the request.
    found: Option<StoredMatch>,
}

/// The cache's part in a call of a handler.
pub struct KeyedCall {
    /// The key under which the response may be stored and shared.
    pub key: Option<CacheKey>,
    /// The stored response to validate, to complete, or to send in place of an error.
    pub stale: Option<ObjectArc>,
}

impl<W: Effects> ResponseLookup<'_, W> {
    /// Answers with a stored response of the route, or calls its handler; `path` may be that of a folder's index file.
    pub fn ask(
        &mut self,
        asked: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // 404, not 403: a client can't tell such a route from a missing one.
        if route.is_internal && !asked.is_led() {
            self.world.trace(TraceEvent::InternalRoute(route));
            return generated_response(to.refuse(Some(asked.at()), StatusCode::NOT_FOUND));
        }
        self.world.trace(TraceEvent::Route(route));
        to.exchange.metric_scope = route.metric_scope.number();
        self.ask_in_turn(asked, path, route, DiskLookups::First, to)
    }

    /// Continues after `ask`, or after the disk look-up that `turn` describes.
    pub fn ask_in_turn(
        &mut self,
        asked: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        turn: DiskLookups,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // Hits need only the hash; the key is copied into an allocation only by later steps.
        let facts = self.facts_of(asked, route, to);
        let entry = self.entry_of(facts, route);
        let found = entry.as_ref().and_then(|entry| found(entry, route, to));
        // The hot path: nothing is copied or counted beyond this.
        if let Some((object, Reusability::Fresh)) = found
            && let ObjectKind::Representation(whole) = &object.kind
        {
            self.world.trace(TraceEvent::Reused(route, object));
            let status = to.hit(asked.at(), object, whole, route);
            return RequestDecision::Answered(status, Logged::Hit);
        }
        // Memory first; the disk is searched once or twice, see `DiskLookups`.
        if found.is_none() && self.recall(asked, route, facts, turn, to) {
            let (route, path) = (route.clone(), path.into());
            return asked.wait(to, WaitReason::Disk { route, path, turn });
        }
        let found = found.map(|(object, now)| (object.clone(), now));
        let stored = StoredLookup {
            facts,
            entry: entry.as_ref(),
            found,
        };
        self.ask_further(asked, RoutedPath { path, route }, stored, to)
    }

    /// Handles all cases but a fresh, whole, stored response. Not inlined, to keep the hit path small.
    #[inline(never)]
    fn ask_further(
        &mut self,
        asked: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        stored: StoredLookup<'_>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let RoutedPath { path, route } = routed;
        let StoredLookup {
            facts,
            entry,
            found,
        } = stored;
        if let Some((object, now)) = &found {
            let stored = StoredResponse::from_object(object, HitKind::Hit);
            if is_usable(*now)
                && let Some(decision) = self.reuse(asked, routed, stored, logged_of(*now), to)
            {
                if let RequestDecision::Answered(..) = decision {
                    self.world.trace(TraceEvent::Reused(route, object));
                    // After the response: the client does not wait for the refresh.
                    if *now == Reusability::StaleWhileRevalidate {
                        let key = facts.map(|facts| facts.key(self.key));
                        self.refresh(asked, routed, key, object, to);
                    }
                }
                return decision;
            }
            // only-if-cached, and the stored response needs validation (RFC 9111 §5.2.1.7).
            if *now == Reusability::Unusable {
                return generated_response(
                    to.refuse(Some(asked.at()), StatusCode::GATEWAY_TIMEOUT),
                );
            }
        }
        // only-if-cached must not reach the origin (RFC 9111 §5.2.1.7).
        if found.is_none() && facts.is_some() && route.asked(to.request).only_if_cached {
            return generated_response(to.refuse(Some(asked.at()), StatusCode::GATEWAY_TIMEOUT));
        }
        let key = facts.map(|facts| facts.key(self.key));
        self.world
            .trace(TraceEvent::Unused(key.as_ref(), found.as_ref()));
        let selecting = entry.and_then(VariantSet::selecting);
        let key = key.map(|key| key.with_variant(selecting, to.request));
        let stale = found
            .map(|(object, _)| object)
            .or_else(|| to_complete(entry?, facts, route, to));
        self.call(asked, path, route, KeyedCall { key, stale }, to)
    }

    /// Revalidates a response that was just used stale: by a GET for the whole of it, even if this request is a HEAD
    /// or a range.
    fn refresh(
        &self,
        asked: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        key: Option<CacheKey>,
        stale: &ObjectArc,
        to: &mut RequestResponder<'_, '_>,
    ) {
        let RoutedPath { path, route } = routed;
        let mut whole = to.request.clone();
        whole.method = Method::Get;
        let stored = KeyedCall {
            key: key.map(CacheKey::without_range),
            stale: Some(stale.clone()),
        };
        let call = HandlerCall {
            request: &whole,
            asked: route.asked(&whole),
            ..self.call_of(asked, path, route, stored, to)
        };
        self.world.refresh(&call, to.exchange);
    }

    /// Starts a disk look-up for a request; its key's bytes must be in the key buffer.
    fn recall(
        &self,
        asked: &RequestContext<'_>,
        route: &Route,
        facts: Option<KeyFacts>,
        turn: DiskLookups,
        to: &RequestResponder<'_, '_>,
    ) -> bool {
        let Some(facts) = facts.filter(|_| route.is_origin && turn != DiskLookups::Over) else {
            return false;
        };
        let recalling = DiskRecall {
            site: asked.site,
            key: self.key,
            hash: facts.hash,
            request: to.request,
            is_for_lines: turn == DiskLookups::ForFields,
        };
        let is_recalled = self.world.recall(&recalling, to.exchange.id);
        // The look-up after the recall must find the object.
        if is_recalled {
            route.begin_storing();
        }
        is_recalled
    }

    fn call_of<'c>(
        &self,
        asked: &'c RequestContext<'c>,
        path: &'c [u8],
        route: &'c Arc<Route>,
        stored: KeyedCall,
        to: &RequestResponder<'c, '_>,
    ) -> HandlerCall<'c> {
        let KeyedCall { key, stale } = stored;
        HandlerCall {
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
        asked: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        stored: KeyedCall,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let is_variant = stored
            .key
            .as_ref()
            .is_some_and(|key| !key.variant.is_empty());
        let routed = RoutedPath { path, route };
        let call = self.call_of(asked, path, route, stored, to);
        match self.world.call(&call, to.exchange) {
            CallStatus::Runs(work) => asked.wait_for_program(to, work, is_variant, routed),
            CallStatus::Stored(stored) => self.on_stored(asked, routed, stored, is_variant, to),
            CallStatus::Over(reply) => self.on_reply(asked, route, reply, to),
        }
    }

    /// Calls the handler for a request that waited for another request's response. The response may be stored, too.
    pub fn call_alone(
        &mut self,
        asked: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let facts = self.facts_of(asked, route, to);
        let key = facts.map(|facts| CacheKey {
            // It has waited once already, and does not wait again.
            has_waited: true,
            ..facts.key(self.key)
        });
        let entry = self.entry_of(facts, route);
        let found = entry.as_ref().and_then(|entry| found(entry, route, to));
        // A stored response may replace an error of the origin (RFC 5861 §4).
        let stale = found.map(|(object, _)| object.clone());
        // Parts and unfinished bodies can't replace an error.
        let stale = stale.filter(|object| object.representation().is_some());
        self.call(asked, path, route, KeyedCall { key, stale }, to)
    }

    /// The stored responses under the key in the key buffer.
    fn entry_of(&self, facts: Option<KeyFacts>, route: &Route) -> Option<VariantSet> {
        // Routes that have never stored a response skip the look-up.
        let facts = facts.filter(|_| route.is_storing())?;
        self.world.find_kept(facts.hash, self.key)
    }

    /// The key under which the response of a handler would be stored.
    fn key_of(
        &mut self,
        asked: &RequestContext<'_>,
        route: &Route,
        to: &RequestResponder<'_, '_>,
    ) -> Option<CacheKey> {
        let facts = self.facts_of(asked, route, to)?;
        Some(facts.key(self.key))
    }

    /// The facts of the key, without its bytes, which are left in the key buffer.
    fn facts_of(
        &mut self,
        asked: &RequestContext<'_>,
        route: &Route,
        to: &RequestResponder<'_, '_>,
    ) -> Option<KeyFacts> {
        let world = self.world;
        let has_body = to.exchange.body_len != Some(0);
        let hash = |key: &[u8]| world.hash(key);
        // The target of a program's internal redirect can differ with each response.
        let is_of_program = asked.inner.is_some_and(|inner| inner.is_of_program());
        if route.keeps_nothing || is_of_program || route.bypasses(to.request) || has_body {
            return None;
        }
        let secured = to.exchange.secured.as_ref();
        if !route.is_origin && secured.is_some_and(|it| it.client.is_some()) {
            // A program receives the client's certificate and need not send Vary for it, so its response can't be
            // shared.
            return None;
        }
        let is_https = to.exchange.is_https();
        let site = SiteScope {
            site_id: asked.site.rules.id,
            is_https,
        };
        if let Some(forwarded) = &to.exchange.forwarded
            && let Some(authority) = to.request.authority
            && let Some(complete) = forwarded.authority_with_port(authority, is_https)
        {
            let mut complete_request = to.request.clone();
            complete_request.authority = Some(&complete);
            return KeyFacts::from_request(
                &complete_request,
                route.is_origin,
                site,
                self.key,
                hash,
            );
        }
        KeyFacts::from_request(to.request, route.is_origin, site, self.key, hash)
    }

    /// Answers with the stored form of a handler's response.
    pub fn on_stored(
        &mut self,
        asked: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        stored: StoredResponse,
        is_variant: bool,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let RoutedPath { path, route } = routed;
        let object = stored.object.clone();
        let selecting = object.selecting();
        let takes = |selecting: &SelectingFields| selecting.takes(to.request.fields());
        // A follower's fields may select another variant than the leader's.
        if stored.way.is_own() || selecting.is_none_or(takes) {
            let logged = Logged::from_hit(stored.way, route.is_origin);
            let reused = self.reuse(asked, routed, stored, logged, to);
            // Too much time has passed: the stored response can no longer be sent.
            return reused.unwrap_or_else(|| self.call_alone(asked, path, route, to));
        }
        if is_variant {
            return self.call_alone(asked, path, route, to);
        }
        // The leader's response varies and doesn't match; its Vary field now gives the key of this request's variant.
        let key = self.key_of(asked, route, to);
        let key = key.map(|key| key.with_variant(selecting, to.request));
        let stored = KeyedCall { key, stale: None };
        self.call(asked, path, route, stored, to)
    }

    /// Answers with a stored response, or waits until its body begins; `None` if its body is gone.
    fn reuse(
        &self,
        asked: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        stored: StoredResponse,
        logged: Logged,
        to: &mut RequestResponder<'_, '_>,
    ) -> Option<RequestDecision> {
        let begins = match to.request.method {
            // HEAD needs no body, so it need not wait for one.
            Method::Head => Some(stored),
            _ => self.world.wait(stored, to.exchange.id),
        };
        match begins {
            Some(stored) => Some(RequestDecision::Answered(
                to.reuse(asked.at(), stored, routed.route)?,
                logged,
            )),
            None => Some(asked.wait_for_program(to, Box::new(()), true, routed)),
        }
    }

    /// Answers with the response of a handler, which is not stored.
    pub fn on_reply(
        &mut self,
        asked: &RequestContext<'_>,
        route: &Route,
        reply: Result<HandlerReply, HandlerFailure>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        if let Ok(reply) = &reply
            && let Some(elsewhere) = route.elsewhere(&reply.response)
        {
            let redirect = HandlerRedirect {
                target: elsewhere,
                fields: &reply.response.fields,
            };
            return internal_redirect::follow(self, asked, route, redirect, to);
        }
        let first = asked.inner.and_then(|inner| inner.kept());
        let at = match first {
            None => asked.at(),
            // Header rules apply to the path that the client requested.
            Some((path, _)) => SitePath { path, ..asked.at() },
        };
        let status = match reply {
            Ok(mut reply) => {
                if let Some((_, fields)) = first {
                    response_redirect::add_fields(fields, &mut reply.response);
                }
                to.reply(at, route, reply)
            }
            Err(failure) => to.failed(at, route, &failure, self.logger),
        };
        let logged = match route.is_origin {
            true => Logged::Passed,
            false => Logged::Program,
        };
        RequestDecision::Answered(status, logged)
    }
}

/// The stored response for a request, and how it may be used.
#[inline]
fn found<'e>(
    entry: &'e VariantSet,
    route: &Route,
    to: &RequestResponder<'_, '_>,
) -> Option<(&'e ObjectArc, Reusability)> {
    let object = entry.selected(to.request.fields())?;
    let is_ready = match &object.kind {
        ObjectKind::Representation(_) => true,
        ObjectKind::Parts(partial) => partial.answers(to.request, to.exchange.unix_s),
        _ => route.spools.is_some(),
    };
    is_ready.then(|| {
        let (validity, now_ms) = (&object.validity, to.exchange.now_ms);
        // Fast path: most requests carry no cache directives, and their stored response is fresh.
        let now = match !to.request.concerns_caches() && validity.holds(now_ms) {
            true => Reusability::Fresh,
            false => validity.use_for(&route.asked(to.request), now_ms),
        };
        match &object.kind {
            // A background refresh would fetch the whole, which no request may want.
            ObjectKind::Parts(_) if now == Reusability::StaleWhileRevalidate => {
                (object, Reusability::Validate)
            }
            _ => (object, now),
        }
    })
}

/// A partially stored response, if one more range completes it for a request that wants the whole.
fn to_complete(
    entry: &VariantSet,
    facts: Option<KeyFacts>,
    route: &Route,
    to: &RequestResponder<'_, '_>,
) -> Option<ObjectArc> {
    facts.filter(|facts| facts.wants == RequestedPart::Whole)?;
    let object = entry.selected(to.request.fields())?;
    let ObjectKind::Parts(partial) = &object.kind else {
        return None;
    };
    let asked = route.asked(to.request);
    let is_fresh = object.validity.use_for(&asked, to.exchange.now_ms) == Reusability::Fresh;
    (is_fresh && partial.gap().is_some()).then(|| object.clone())
}

/// Whether a stored response can be sent without asking the origin.
fn is_usable(now: Reusability) -> bool {
    matches!(
        now,
        Reusability::Fresh | Reusability::Stale | Reusability::StaleWhileRevalidate
    )
}

/// The outcome under which a stored response is logged.
fn logged_of(now: Reusability) -> Logged {
    match now {
        Reusability::Fresh => Logged::Hit,
        _ => Logged::Stale,
    }
}
