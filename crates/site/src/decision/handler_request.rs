//! Answers a request with a stored response of a handler, or calls the handler.

use std::sync::Arc;

use lowroad_cache::vary::SelectingFields;
use lowroad_handler::HandlerFailure;
use lowroad_http::method::Method;
use lowroad_http::request::RequestTarget;
use lowroad_http::status::StatusCode;
use lowroad_response_cache::calls::{CallStatus, HandlerCall};
use lowroad_response_cache::reply::HandlerReply;
use lowroad_response_cache::reuse::{CacheKey, KeyFacts, RequestedPart};
use lowroad_response_cache::storage::{HitKind, StoredResponse};
use lowroad_routes::cache_rules::CacheRuleSet;
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

/// A stored response, and how it may be used.
type StoredMatch = (ObjectArc, Reusability);

/// The result of looking up a handler's stored response.
struct StoredLookup<'e> {
    /// `None` if the response cannot be stored and so has no key.
    facts: Option<KeyFacts>,
    entry: Option<&'e VariantSet>,
    /// The variant that matches the request.
    found: Option<StoredMatch>,
}

/// How the cache takes part in a call of a handler.
pub struct KeyedCall {
    /// The key with which the response may be stored and shared.
    pub key: Option<CacheKey>,
    /// The stored response that is to be validated, completed, or sent if the handler fails.
    pub stale: Option<ObjectArc>,
}

impl<W: Effects> ResponseLookup<'_, W> {
    /// Answers with a stored response of the route, or calls its handler; `path` may be that of a folder's index file.
    pub fn answer_from_route(
        &mut self,
        context: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // The status is 404 instead of 403, so that clients cannot distinguish internal routes from missing ones.
        if route.is_internal && !context.is_set_by_server() {
            self.effects.trace(TraceEvent::InternalRoute(route));
            return generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::NOT_FOUND),
            );
        }
        self.effects.trace(TraceEvent::Route(route));
        // The level would reuse a response by other rules. The request is refused as by a rule, which it does not store.
        if route.excludes_level
            && let Some(status) = responder.refuse_level(context.site_path())
        {
            return generated_response(status);
        }
        if let Some(len_max) = route.body_len_max {
            responder.exchange.limit_body(len_max);
            if responder.exchange.is_body_too_long() {
                return generated_response(responder.refuse_body(context.site_path()));
            }
        }
        // A rule is more specific than the route.
        if let Some(limit) = route.bandwidth
            && !responder.exchange.is_rate_by_rule
        {
            self.effects.trace(TraceEvent::Bandwidth(limit));
            responder.limit_rate(limit);
        }
        responder.exchange.metric_scope = route.metric_scope.number();
        self.continue_lookup(context, path, route, DiskLookups::First, responder)
    }

    /// The rest of `answer_from_route`; also called after a disk look-up, with its result in `progress`.
    pub fn continue_lookup(
        &mut self,
        context: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        progress: DiskLookups,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // Hits need only the hash; the key is copied to an allocation in later steps.
        let facts = self.compute_key_facts(context, route, responder);
        let entry = self.find_entry(facts, route);
        let found = entry
            .as_ref()
            .and_then(|entry| select_stored(entry, route, responder));
        // The hot path: nothing else is copied or counted.
        if let Some((object, Reusability::Fresh)) = found
            && let ObjectKind::Representation(representation) = &object.kind
        {
            self.effects.trace(TraceEvent::Reused(route, object));
            let status = responder.hit(context.site_path(), object, representation, route);
            return RequestDecision::Answered(status, Logged::Hit);
        }
        // If memory has no response, the disk cache is searched once or twice, see `DiskLookups`.
        if found.is_none() && self.recall(context, route, facts, progress, responder) {
            let (route, path) = (route.clone(), path.into());
            return context.wait(
                responder,
                WaitReason::Disk {
                    route,
                    path,
                    progress,
                },
            );
        }
        let found = found.map(|(object, reusability)| (object.clone(), reusability));
        let stored = StoredLookup {
            facts,
            entry: entry.as_ref(),
            found,
        };
        self.answer_or_call(context, RoutedPath { path, route }, stored, responder)
    }

    /// Handles all cases other than a fresh, complete stored response. It is not inlined, to keep the code for hits
    /// small.
    #[inline(never)]
    fn answer_or_call(
        &mut self,
        context: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        stored: StoredLookup<'_>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let RoutedPath { path, route } = routed;
        let StoredLookup {
            facts,
            entry,
            found,
        } = stored;
        if let Some((object, reusability)) = &found {
            let stored = StoredResponse::from_object(object, HitKind::Hit);
            if is_usable(*reusability)
                && let Some(decision) = self.reuse(
                    context,
                    routed,
                    stored,
                    logged_outcome(*reusability),
                    responder,
                )
            {
                if let RequestDecision::Answered(..) = decision {
                    self.effects.trace(TraceEvent::Reused(route, object));
                    // The refresh starts after the response was written, so that the client does not wait for it.
                    if *reusability == Reusability::StaleWhileRevalidate {
                        let key = facts.map(|facts| facts.key(self.key));
                        self.refresh(context, routed, key, object, responder);
                    }
                }
                return decision;
            }
            // With only-if-cached, a stored response that needs validation is answered with 504 (RFC 9111 §5.2.1.7).
            if *reusability == Reusability::Unusable {
                return generated_response(
                    responder.refuse(Some(context.site_path()), StatusCode::GATEWAY_TIMEOUT),
                );
            }
        }
        // With only-if-cached, the handler must not be called (RFC 9111 §5.2.1.7).
        if found.is_none()
            && facts.is_some()
            && route.request_directives(responder.request).only_if_cached
        {
            return generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::GATEWAY_TIMEOUT),
            );
        }
        let key = facts.map(|facts| facts.key(self.key));
        self.effects
            .trace(TraceEvent::Unused(key.as_ref(), found.as_ref()));
        let selecting = entry.and_then(VariantSet::selecting);
        let key = key.map(|key| key.with_variant(selecting, responder.request));
        let stale = found
            .map(|(object, _)| object)
            .or_else(|| find_completable(entry?, facts, route, responder));
        self.call(context, path, route, KeyedCall { key, stale }, responder)
    }

    /// Revalidates a response that was just used while stale. The call is a GET for the complete response, even if this
    /// request is a HEAD or a range request.
    fn refresh(
        &self,
        context: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        key: Option<CacheKey>,
        stale: &ObjectArc,
        responder: &mut RequestResponder<'_, '_>,
    ) {
        let RoutedPath { path, route } = routed;
        let mut whole_request = responder.request.clone();
        whole_request.method = Method::Get;
        let stored = KeyedCall {
            key: key.map(CacheKey::without_range),
            stale: Some(stale.clone()),
        };
        let call = HandlerCall {
            request: &whole_request,
            directives: route.request_directives(&whole_request),
            ..self.build_call(context, path, route, stored, responder)
        };
        self.effects.refresh(&call, responder.exchange);
    }

    /// Starts a disk look-up for a request; the key buffer must contain the bytes of its key.
    fn recall(
        &self,
        context: &RequestContext<'_>,
        route: &Route,
        facts: Option<KeyFacts>,
        progress: DiskLookups,
        responder: &RequestResponder<'_, '_>,
    ) -> bool {
        let Some(facts) = facts.filter(|_| route.is_origin && progress != DiskLookups::Finished)
        else {
            return false;
        };
        let disk_recall = DiskRecall {
            site: context.site,
            key: self.key,
            hash: facts.hash,
            request: responder.request,
            is_for_lines: progress == DiskLookups::ForFields,
        };
        let is_recalled = self.effects.recall(&disk_recall, responder.exchange.id);
        // A route that is not storing skips the next look-up in memory, see `find_entry`.
        if is_recalled {
            route.begin_storing();
        }
        is_recalled
    }

    fn build_call<'c>(
        &self,
        context: &'c RequestContext<'c>,
        path: &'c [u8],
        route: &'c Arc<Route>,
        stored: KeyedCall,
        responder: &RequestResponder<'c, '_>,
    ) -> HandlerCall<'c> {
        let KeyedCall { key, stale } = stored;
        HandlerCall {
            rules: &context.site.rules,
            routes: &context.site.routes,
            host: context.host,
            path,
            target: context.rewritten_target.map(|rewritten| rewritten.target()),
            local: self.sites.address(responder.exchange.listener),
            request: responder.request,
            route,
            key,
            directives: route.request_directives(responder.request),
            cache_rules: match route.cache_rules.is_empty() {
                true => CacheRuleSet::EMPTY,
                false => {
                    let input = responder.condition_input();
                    route.cache_rules.matching(context.path, &input)
                }
            },
            is_user: responder.exchange.is_user,
            stale,
            class: self.sites.classes.as_ref().map(|classes| {
                classes.choose(responder.request, context.path, responder.exchange.peer)
            }),
        }
    }

    /// Calls the handler of a route. With a key, other requests may share the response; a stale stored response may be
    /// revalidated.
    pub fn call(
        &mut self,
        context: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        stored: KeyedCall,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let is_variant = stored
            .key
            .as_ref()
            .is_some_and(|key| !key.variant.is_empty());
        let routed = RoutedPath { path, route };
        let call = self.build_call(context, path, route, stored, responder);
        match self.effects.call(&call, responder.exchange) {
            CallStatus::Running(work) => {
                context.wait_for_program(responder, work, is_variant, routed)
            }
            CallStatus::Stored(stored) => {
                self.on_stored(context, routed, stored, is_variant, responder)
            }
            CallStatus::Complete(reply) => self.on_reply(context, route, reply, responder),
        }
    }

    /// Calls the handler for a request that waited in vain for the response to another request. The response may be
    /// stored as well.
    pub fn call_alone(
        &mut self,
        context: &RequestContext<'_>,
        path: &[u8],
        route: &Arc<Route>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let facts = self.compute_key_facts(context, route, responder);
        let key = facts.map(|facts| CacheKey {
            // The request has waited once and does not wait again.
            has_waited: true,
            ..facts.key(self.key)
        });
        let entry = self.find_entry(facts, route);
        let found = entry
            .as_ref()
            .and_then(|entry| select_stored(entry, route, responder));
        // A stored response may be sent if the origin fails (RFC 5861 §4).
        let stale = found.map(|(object, _)| object.clone());
        // Incomplete responses cannot replace an error response.
        let stale = stale.filter(|object| object.representation().is_some());
        self.call(context, path, route, KeyedCall { key, stale }, responder)
    }

    /// The stored responses with the key in the key buffer.
    fn find_entry(&self, facts: Option<KeyFacts>, route: &Route) -> Option<VariantSet> {
        // A route that has never stored a response needs no look-up.
        let facts = facts.filter(|_| route.is_storing())?;
        self.effects.find_unpurged(facts.hash, self.key)
    }

    /// The key with which a handler's response would be stored.
    fn build_key(
        &mut self,
        context: &RequestContext<'_>,
        route: &Route,
        responder: &RequestResponder<'_, '_>,
    ) -> Option<CacheKey> {
        let facts = self.compute_key_facts(context, route, responder)?;
        Some(facts.key(self.key))
    }

    /// The properties of the key; its bytes are left in the key buffer.
    fn compute_key_facts(
        &mut self,
        context: &RequestContext<'_>,
        route: &Route,
        responder: &RequestResponder<'_, '_>,
    ) -> Option<KeyFacts> {
        let effects = self.effects;
        let has_body = responder.exchange.body_len != Some(0);
        let hash = |key: &[u8]| effects.hash(key);
        // The target of a handler's internal redirect may differ with each response.
        let is_from_handler = context
            .rewritten_target
            .is_some_and(|rewritten| rewritten.is_from_handler());
        let tls = responder.exchange.tls.as_ref();
        let reason = if route.never_stores {
            "nothing of this route is stored: keep = \"never\", or its selection or its requests depend on the client, the time or a file"
        } else if is_from_handler {
            "a program's internal redirect has set the target"
        } else if context.has_conditional_target() {
            "a rewrite with conditions may apply to the path"
        } else if route.bypasses(&responder.condition_input()) {
            "the request bypasses the cache: by `bypass`, by a cookie on a route with `ttl` to programs; with `attach --worker` also by credentials, a proxy's fields, Cookie, Cache-Control or its path"
        } else if responder.exchange.authentication.is_some() {
            // The handler gets fields of the client that the key does not have.
            "a rule has authenticated the client by a token or another server"
        } else if has_body {
            "the request has a body"
        } else if !route.is_origin && tls.is_some_and(|it| it.client.is_some()) {
            // A program gets the client's certificate and need not send Vary for it, so its response cannot be shared.
            "a program gets the client's certificate"
        } else {
            ""
        };
        if !reason.is_empty() {
            effects.trace(TraceEvent::Unkeyed(reason));
            return None;
        }
        let query;
        let mut normalized_request = None;
        if !route.query_rules.is_empty()
            && let RequestTarget::Origin {
                path,
                query: Some(sent),
                plain,
            } = responder.request.target
        {
            // Only the key has the changed query; the handler gets the one that was sent.
            query = route.query_rules.normalize(sent);
            let mut request = responder.request.clone();
            request.target = RequestTarget::Origin {
                path,
                query: query.as_deref(),
                plain,
            };
            normalized_request = Some(request);
        }
        let request = normalized_request.as_ref().unwrap_or(responder.request);
        let is_https = responder.exchange.is_https();
        let site = SiteScope {
            site_id: context.site.rules.id,
            is_https,
        };
        if let Some(forwarded) = &responder.exchange.forwarded
            && let Some(authority) = request.authority
            && let Some(complete) = forwarded.authority_with_port(authority, is_https)
        {
            let mut complete_request = request.clone();
            complete_request.authority = Some(&complete);
            return KeyFacts::from_request(
                &complete_request,
                route.is_origin,
                site,
                self.key,
                hash,
            );
        }
        let facts = KeyFacts::from_request(request, route.is_origin, site, self.key, hash);
        if facts.is_none() {
            effects.trace(TraceEvent::Unkeyed(match responder.request.method {
                Method::Get | Method::Head if route.is_origin => {
                    "the request has a field that caches can't evaluate: If-Match, If-Unmodified-Since, X-HTTP-Method-Override or Connection"
                }
                Method::Get | Method::Head => {
                    "the request has credentials (Authorization), or a field such as If-Match or X-HTTP-Method-Override"
                }
                _ => "only responses to GET and HEAD are stored",
            }));
        }
        facts
    }

    /// Answers with a handler's response that has been stored.
    pub fn on_stored(
        &mut self,
        context: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        stored: StoredResponse,
        is_variant: bool,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let RoutedPath { path, route } = routed;
        let object = stored.object.clone();
        let selecting = object.selecting();
        let selects = |selecting: &SelectingFields| selecting.matches(responder.request.fields());
        // The fields of a follower may select another variant than those of the leader.
        if stored.hit_kind.is_for_request() || selecting.is_none_or(selects) {
            let logged = Logged::from_hit(stored.hit_kind, route.is_origin);
            let reused = self.reuse(context, routed, stored, logged, responder);
            // The stored response is no longer available.
            return reused.unwrap_or_else(|| self.call_alone(context, path, route, responder));
        }
        if is_variant {
            return self.call_alone(context, path, route, responder);
        }
        // The leader's response varies and does not match this request. Its Vary field now determines the key of this
        // request's variant.
        let key = self.build_key(context, route, responder);
        let key = key.map(|key| key.with_variant(selecting, responder.request));
        let stored = KeyedCall { key, stale: None };
        self.call(context, path, route, stored, responder)
    }

    /// Answers with a stored response, or waits until its body starts to arrive; `None` if its body is gone.
    fn reuse(
        &self,
        context: &RequestContext<'_>,
        routed: RoutedPath<'_>,
        stored: StoredResponse,
        logged: Logged,
        responder: &mut RequestResponder<'_, '_>,
    ) -> Option<RequestDecision> {
        let ready = match responder.request.method {
            // HEAD needs no body.
            Method::Head => Some(stored),
            _ => self.effects.wait(stored, responder.exchange.id),
        };
        match ready {
            Some(stored) => Some(RequestDecision::Answered(
                responder.reuse(context.site_path(), stored, routed.route)?,
                logged,
            )),
            None => Some(context.wait_for_program(responder, Box::new(()), true, routed)),
        }
    }

    /// Answers with a handler's response that was not stored.
    pub fn on_reply(
        &mut self,
        context: &RequestContext<'_>,
        route: &Route,
        reply: Result<HandlerReply, HandlerFailure>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        if let Ok(reply) = &reply
            && let Some(redirect_target) = route.internal_redirect(&reply.response)
        {
            let redirect = HandlerRedirect {
                target: redirect_target,
                fields: &reply.response.fields,
            };
            return internal_redirect::follow_redirect(self, context, route, redirect, responder);
        }
        let first = context
            .rewritten_target
            .and_then(|rewritten| rewritten.redirect_fields());
        let site_path = match first {
            None => context.site_path(),
            // The header rules of the path that the client requested apply, not those of the redirect target.
            Some((path, _)) => SitePath {
                path,
                ..context.site_path()
            },
        };
        let status = match reply {
            Ok(mut reply) => {
                if let Some((_, fields)) = first {
                    response_redirect::add_fields(fields, &mut reply.response);
                }
                responder.reply(site_path, route, reply)
            }
            Err(failure) => responder.send_failure(site_path, route, &failure, self.logger),
        };
        let logged = match route.is_origin {
            true => Logged::Passed,
            false => Logged::Program,
        };
        RequestDecision::Answered(status, logged)
    }
}

/// Selects the stored response that matches a request, and determines how it may be used.
#[inline]
fn select_stored<'e>(
    entry: &'e VariantSet,
    route: &Route,
    responder: &RequestResponder<'_, '_>,
) -> Option<(&'e ObjectArc, Reusability)> {
    let object = entry.selected(responder.request.fields())?;
    let is_ready = match &object.kind {
        ObjectKind::Representation(_) => true,
        ObjectKind::Parts(partial) => partial.answers(responder.request, responder.exchange.unix_s),
        _ => route.spools.is_some(),
    };
    is_ready.then(|| {
        let (validity, now_ms) = (&object.validity, responder.exchange.now_ms);
        // Fast path: most requests have no cache directives, and their stored response is fresh.
        let reusability = match !responder.request.affects_caching() && validity.is_valid(now_ms) {
            true => Reusability::Fresh,
            false => validity.reusability_for(&route.request_directives(responder.request), now_ms),
        };
        match &object.kind {
            // A background refresh would fetch the complete response, which possibly no client wants.
            ObjectKind::Parts(_) if reusability == Reusability::StaleWhileRevalidate => {
                (object, Reusability::Validate)
            }
            _ => (object, reusability),
        }
    })
}

/// A partially stored response that one further range would complete, for a request that needs the complete response.
fn find_completable(
    entry: &VariantSet,
    facts: Option<KeyFacts>,
    route: &Route,
    responder: &RequestResponder<'_, '_>,
) -> Option<ObjectArc> {
    facts.filter(|facts| facts.requested_part == RequestedPart::Whole)?;
    let object = entry.selected(responder.request.fields())?;
    let ObjectKind::Parts(partial) = &object.kind else {
        return None;
    };
    let directives = route.request_directives(responder.request);
    let is_fresh = object
        .validity
        .reusability_for(&directives, responder.exchange.now_ms)
        == Reusability::Fresh;
    (is_fresh && partial.gap().is_some()).then(|| object.clone())
}

/// Whether a stored response can be sent without contacting the origin.
fn is_usable(reusability: Reusability) -> bool {
    matches!(
        reusability,
        Reusability::Fresh | Reusability::Stale | Reusability::StaleWhileRevalidate
    )
}

/// The source under which a stored response is logged.
fn logged_outcome(reusability: Reusability) -> Logged {
    match reusability {
        Reusability::Fresh => Logged::Hit,
        _ => Logged::Stale,
    }
}
