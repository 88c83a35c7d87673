//! Handles a request that the site's access rules admit: internal paths, redirects, rewrites, routes, files.

use lowroad_http::method::Method;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::status::StatusCode;
use lowroad_routes::routes::{self, NoRoute};

use super::context::{RequestContext, RequestDecision, generated_response};
use super::deferral::WaitReason;
use super::effects::{Effects, TraceEvent};
use super::internal_redirect;
use super::lookup::ResponseLookup;
use crate::responder::RequestResponder;
use crate::sites::SitePath;

/// Decides about a request that the site's access rules admit.
#[inline]
pub fn admitted<W: Effects>(
    mut lookup: ResponseLookup<'_, W>,
    asked: &RequestContext<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let (site, path) = (asked.site, asked.path);
    let reads = matches!(to.request.method, Method::Get | Method::Head);
    // Without routes, other methods get 405 below, regardless of their body.
    if to.exchange.is_body_too_long() && (reads || !site.routes.is_empty()) {
        return generated_response(to.refuse_body(asked.at()));
    }
    if site.leads_within
        && let Some(decision) = internal_redirect::internal(&mut lookup, asked, to)
    {
        return decision;
    }
    // After a rewrite, no redirect applies: the target is the server's own.
    if asked.inner.is_none_or(|inner| inner.is_fresh())
        && !site.rules.config.redirects.is_empty()
        && let Some((status, location)) = redirect(asked)
    {
        lookup.world.trace(TraceEvent::Redirect(&location));
        return generated_response(to.redirect(asked.at(), status, &location));
    }
    let method = to.request.method;
    if site.leads_within
        && let Some(led) = asked
            .rewrite(false, method)
            .or_else(|| internal_redirect::internal_redirect_path(asked, to))
    {
        return internal_redirect::rewritten(&mut lookup, asked, led, to);
    }
    if !asked.is_for_files {
        // The handler decodes such a path itself, as its language does.
        let route = site.routes.find_slash_route(&asked.matches, to.request);
        return match route.filter(|route| route.takes(to.request.method)) {
            Some(route) => lookup.ask(asked, path, route, to),
            None => {
                lookup
                    .world
                    .trace(TraceEvent::BadTarget(RequestRefusal::PathSlash.as_str()));
                generated_response(
                    to.refuse_target(SitePath { site, path: b"/" }, RequestRefusal::PathSlash),
                )
            }
        };
    }
    if routes::takes(to.request.method) && !site.routes.is_empty() {
        match site.routes.find_route(&asked.matches, to.request) {
            Ok(Some(route)) if route.takes(to.request.method) => {
                return lookup.ask(asked, path, route, to);
            }
            Ok(Some(_)) => {
                if to.exchange.body.is_some() {
                    to.response.close();
                }
                return generated_response(to.other_method(asked.at()));
            }
            Ok(None) => {}
            // A route's pattern matches, but no conditions hold: a file does not answer in its place.
            Err(NoRoute) => {
                return generated_response(to.refuse(Some(asked.at()), StatusCode::NOT_FOUND));
            }
        }
    }
    // A path without a file may still lead to a handler. Otherwise the body is discarded.
    if to.exchange.body.is_some() && !lookup.may_be_for_program(asked, to) {
        match reads {
            true if to.exchange.is_body_coming => return asked.wait(to, WaitReason::Body),
            true => {}
            // The unread body would be parsed as the next request.
            false => to.response.close(),
        }
    }
    if !reads && site.routes.is_empty() {
        return generated_response(to.other_method(asked.at()));
    }
    lookup.serve(asked, to)
}

/// The redirect of the site's rules for a path.
fn redirect(asked: &RequestContext<'_>) -> Option<(StatusCode, Vec<u8>)> {
    let redirects = &asked.site.rules.config.redirects;
    asked.matches.redirects().find_map(|number| {
        let rule = redirects.get(number)?;
        let location = rule.location(asked.request_path(), asked.query)?;
        Some((StatusCode::new(rule.status)?, location))
    })
}
