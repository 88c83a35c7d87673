//! Handles a request that the access rules of its site admit: internal paths, redirects, rewrites, routes and files.

use lowroad_config::RedirectConfig;
use lowroad_http::method::Method;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::status::StatusCode;
use lowroad_routes::routes::{self, NoRoute};

use super::context::{RequestContext, RequestDecision, generated_response};
use super::deferral::WaitReason;
use super::effects::{Effects, TraceEvent};
use super::internal_redirect;
use super::lookup::ResponseLookup;
use super::{access, canonical_url};
use crate::answering_rule::AnsweringRule;
use crate::responder::{RedirectTarget, RequestResponder};
use crate::sites::SitePath;

/// Decides about a request that the access rules of its site admit.
#[inline]
pub fn handle_admitted<W: Effects>(
    mut lookup: ResponseLookup<'_, W>,
    context: &RequestContext<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let (site, path) = (context.site, context.path);
    let is_get_or_head = matches!(responder.request.method, Method::Get | Method::Head);
    if let Some(len_max) = site.rules.config.body_len_max {
        responder.exchange.limit_body(len_max);
    }
    // Without routes, other methods get 405 below, regardless of their body.
    if responder.exchange.is_body_too_long() && (is_get_or_head || !site.routes.is_empty()) {
        return generated_response(responder.refuse_body(context.site_path()));
    }
    // Most paths match no rule that replaces their target.
    let is_replaceable = context.matches.may_replace_target();
    if is_replaceable && let Some(decision) = redirect_by_rule(&mut lookup, context, responder) {
        return decision;
    }
    if let Some(location) = canonical_url::slash_location(context, responder) {
        lookup.effects.trace(TraceEvent::Redirect(
            canonical_url::TRAILING_SLASH,
            &location,
        ));
        AnsweringRule::Redirect.note(responder.exchange);
        let site_path = Some(context.site_path());
        return generated_response(responder.redirect_to_canonical(site_path, &location));
    }
    if is_replaceable
        && site.has_internal_redirects
        && let Some(rewrite) = context
            .rewrite(false, responder)
            .or_else(|| internal_redirect::internal_redirect_path(context, responder))
    {
        return internal_redirect::continue_rewritten(&mut lookup, context, rewrite, responder);
    }
    if !context.is_for_files {
        // The handler decodes the path itself, by the rules of its language.
        let route = site
            .routes
            .find_slash_route(&context.matches, &responder.condition_input());
        let route = route.filter(|route| route.accepts_method(responder.request.method));
        // No file can have the path, so it is one of a missing file.
        let fallback = context.fallback(responder).filter(|_| is_get_or_head);
        return match (route, fallback) {
            (Some(route), _) => lookup.answer_from_route(context, path, route, responder),
            (None, Some((rule, path))) => {
                lookup.serve_fallback(context, rule, path.as_bytes(), responder)
            }
            (None, None) => {
                lookup
                    .effects
                    .trace(TraceEvent::BadTarget(RequestRefusal::PathSlash.as_str()));
                generated_response(
                    responder
                        .refuse_target(SitePath { site, path: b"/" }, RequestRefusal::PathSlash),
                )
            }
        };
    }
    if routes::is_for_handlers(responder.request.method) && !site.routes.is_empty() {
        match site
            .routes
            .find_route(&context.matches, &responder.condition_input())
        {
            Ok(Some(route)) if route.accepts_method(responder.request.method) => {
                return lookup.answer_from_route(context, path, route, responder);
            }
            Ok(Some(_)) => {
                if responder.exchange.body.is_some() {
                    responder.response.close();
                }
                return generated_response(responder.other_method(context.site_path()));
            }
            Ok(None) => {}
            // A route's pattern matches but its conditions do not hold: a file must not be sent instead.
            Err(NoRoute) => {
                return generated_response(
                    responder.refuse(Some(context.site_path()), StatusCode::NOT_FOUND),
                );
            }
        }
    }
    // A path without a file may still lead to a handler, which needs the body. Otherwise the body is discarded.
    if responder.exchange.body.is_some() && !lookup.may_lead_to_handler(context, responder) {
        match is_get_or_head {
            true if responder.exchange.is_body_incomplete => {
                return context.wait(responder, WaitReason::Body);
            }
            true => {}
            // An unread body would be parsed as the next request.
            false => responder.response.close(),
        }
    }
    if !is_get_or_head && site.routes.is_empty() {
        return generated_response(responder.other_method(context.site_path()));
    }
    lookup.serve(context, responder)
}

/// Applies the redirects of the site, and answers requests for paths below internal aliases.
#[inline(never)]
fn redirect_by_rule<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    context: &RequestContext<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Option<RequestDecision> {
    let site = context.site;
    if let Some(conditions) = &site.path_conditions
        && conditions.may_apply(&context.matches)
    {
        // The soft-interrupt level would send its copy regardless of the conditions.
        if let Some(status) = access::exclude_level(lookup.effects, context.site_path(), responder)
        {
            return Some(generated_response(status));
        }
    }
    if site.has_internal_redirects
        && let Some(decision) = internal_redirect::internal(lookup, context, responder)
    {
        return Some(decision);
    }
    // Redirects apply to targets that clients request; after a rewrite, the server itself has set the target.
    if context
        .rewritten_target
        .is_none_or(|rewritten| rewritten.allows_redirects())
        && !site.rules.config.redirects.is_empty()
        && let Some((rule, redirect)) = find_redirect(context, responder)
    {
        let effects = lookup.effects;
        effects.trace(TraceEvent::RedirectRule(rule, &redirect.location));
        // The access log names the rule that answered.
        AnsweringRule::Redirect.note(responder.exchange);
        let status = responder.redirect(context.site_path(), &redirect);
        return Some(generated_response(status));
    }
    None
}

/// The first redirect of the site that applies to a request.
fn find_redirect<'c>(
    context: &RequestContext<'c>,
    responder: &RequestResponder<'_, '_>,
) -> Option<(&'c RedirectConfig, RedirectTarget)> {
    let redirects = &context.site.rules.config.redirects;
    context.matches.redirects().find_map(|number| {
        let rule = redirects.get(number)?;
        if !context.redirect_is_met(number, &responder.condition_input()) {
            return None;
        }
        let facts = context.facts(responder);
        let location = rule.location(context.request_path(), &facts)?;
        // A variable, such as a map, may have given no host.
        let redirect = RedirectTarget {
            location: names_host(&location).then_some(location)?,
            status: StatusCode::new(rule.status)?,
            is_cacheable: rule.conditions.depend_on_url_only() && !rule.to.depends_on_file(),
        };
        Some((rule, redirect))
    })
}

/// Whether a location with an authority has a host. Without one, browsers take the first segment of the path as host (URL
/// Living Standard, "special authority ignore slashes state").
fn names_host(location: &[u8]) -> bool {
    let after_slashes = location.windows(2).position(|pair| pair == b"//");
    let is_absolute =
        |at: usize| at == 0 || !location.starts_with(b"/") && location[..at].ends_with(b":");
    let Some(at) = after_slashes.filter(|at| is_absolute(*at)) else {
        return true;
    };
    let is_end = |byte: &u8| b"/\\?#:@".contains(byte);
    location.get(at + 2).is_some_and(|byte| !is_end(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_with_an_authority_needs_a_host() {
        for good in [
            "/a//b",
            "https://a/",
            "//a",
            "https://[::1]/",
            "?b",
            "/x:y//",
        ] {
            assert!(names_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "https:///a",
            "https://",
            "///a",
            "//?a",
            "http://:80/",
            "https://@a/",
            "https://\\a",
        ] {
            assert!(!names_host(bad.as_bytes()), "{bad}");
        }
    }
}
