//! Handles a request that the site's access rules admit: internal paths, redirects, rewrites, routes, files.

use lowroad_http::method::Method;
use lowroad_http::refusal::Refusal;
use lowroad_http::status::Status;
use lowroad_routes::routes::{self, NoRoute};

use super::asked::{Asked, Decision, made};
use super::inner;
use super::lookup::Lookup;
use super::wait::WaitsFor;
use super::world::{Step, World};
use crate::respond::Responder;
use crate::sites::At;

/// Decides about a request that the site's access rules admit.
#[inline]
pub fn admitted<W: World>(
    mut lookup: Lookup<'_, W>,
    asked: &Asked<'_>,
    to: &mut Responder<'_, '_>,
) -> Decision {
    let (site, path) = (asked.site, asked.path);
    let reads = matches!(to.request.method, Method::Get | Method::Head);
    // Without routes, other methods get 405 below, regardless of their body.
    if to.exchange.is_body_too_long() && (reads || !site.routes.is_empty()) {
        return made(to.refuse_body(asked.at()));
    }
    if site.leads_within
        && let Some(decision) = inner::internal(&mut lookup, asked, to)
    {
        return decision;
    }
    if asked.inner.is_none_or(|inner| inner.is_fresh())
        && !site.rules.config.redirects.is_empty()
        && let Some((status, location)) = redirect(asked)
    {
        lookup.world.note(Step::Redirect(&location));
        return made(to.redirect(asked.at(), status, &location));
    }
    let method = to.request.method;
    if site.leads_within
        && let Some(led) = asked
            .rewrite(false, method)
            .or_else(|| inner::of_program_s_path(asked, to))
    {
        return inner::rewritten(&mut lookup, asked, led, to);
    }
    if !asked.is_for_files {
        let route = site.routes.of_slashes(&asked.matches, to.request);
        return match route.filter(|route| route.takes(to.request.method)) {
            Some(route) => lookup.ask(asked, path, route, to),
            None => {
                lookup
                    .world
                    .note(Step::BadTarget(Refusal::PathSlash.as_str()));
                made(to.refuse_target(At { site, path: b"/" }, Refusal::PathSlash))
            }
        };
    }
    if routes::takes(to.request.method) && !site.routes.is_empty() {
        match site.routes.of_request(&asked.matches, to.request) {
            Ok(Some(route)) if route.takes(to.request.method) => {
                return lookup.ask(asked, path, route, to);
            }
            Ok(Some(_)) => {
                if to.exchange.body.is_some() {
                    to.response.close();
                }
                return made(to.other_method(asked.at()));
            }
            Ok(None) => {}
            Err(NoRoute) => return made(to.refuse(Some(asked.at()), Status::NOT_FOUND)),
        }
    }
    // A path without a file may still lead to a handler. Otherwise the body is discarded.
    if to.exchange.body.is_some() && !lookup.may_be_for_program(asked, to) {
        match reads {
            true if to.exchange.is_body_coming => return asked.wait(to, WaitsFor::Body),
            true => {}
            false => to.response.close(),
        }
    }
    if !reads && site.routes.is_empty() {
        return made(to.other_method(asked.at()));
    }
    lookup.serve(asked, to)
}

/// The redirect of the site's rules for a path.
fn redirect(asked: &Asked<'_>) -> Option<(Status, Vec<u8>)> {
    let redirects = &asked.site.rules.config.redirects;
    asked.matches.redirects().find_map(|number| {
        let rule = redirects.get(number)?;
        let location = rule.location(asked.request_path(), asked.query)?;
        Some((Status::new(rule.status)?, location))
    })
}
