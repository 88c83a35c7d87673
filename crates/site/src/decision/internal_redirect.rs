//! Rewrites and internal redirects: a request is answered as if the client had requested another target.
//!
//! The new path passes the access rules like a client's, and is then looked up like any other. One rewrite may apply
//! before the look-up and one more if nothing is found; after that only a program can redirect the request, a limited
//! number of times.

use std::sync::Arc;

use lowroad_config::{RequestPath, RewriteConfig};
use lowroad_handler::{HandlerFailure, ResponseFields};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_routes::counts::increment;
use lowroad_routes::response_redirect::{self, InternalRedirect};
use lowroad_routes::routes::Route;

use super::access::{self, AccessRefusal};
use super::context::{RequestContext, RequestDecision, generated_response};
use super::effects::{Effects, TraceEvent};
use super::handling::admitted;
use super::lookup::ResponseLookup;
use super::path::{decoded, may_have};
use super::rewritten_target::{ClientTarget, RewriteStage, RewrittenTarget};
use crate::is_from_daemon;
use crate::responder::RequestResponder;

/// The longest rewritten target that is accepted.
const TARGET_LEN_MAX: usize = 64 << 10;
/// The maximum number of internal redirects by programs for one request.
const PROGRAMS_MAX: u8 = 10;

/// A rewrite rule that matches a path, and the target that it sets.
pub struct RewriteMatch<'a> {
    pub rule: &'a RewriteConfig,
    pub target: RewrittenTarget,
}

/// An internal redirect in a handler's response.
pub struct HandlerRedirect<'r> {
    pub target: InternalRedirect,
    /// The fields of the response.
    pub fields: &'r ResponseFields,
}

/// Builds the target of a rewrite or an internal redirect.
fn inner_of(
    target: Vec<u8>,
    asked: &RequestContext<'_>,
    method: Method,
    stage: RewriteStage,
) -> RewrittenTarget {
    let query = target.iter().position(|byte| *byte == b'?');
    // The client's own target survives any number of redirects.
    let first = asked.inner.map(|inner| inner.asked.clone());
    let first = first.unwrap_or_else(|| {
        Arc::new(ClientTarget {
            method,
            path: asked.path.into(),
        })
    });
    RewrittenTarget {
        path_len: query.unwrap_or(target.len()),
        target,
        before: asked.path.into(),
        stage,
        programs: asked.inner.map_or(0, |inner| inner.programs),
        asked: first,
        kept: asked.inner.and_then(|inner| inner.kept.clone()),
    }
}

impl<'a> RequestContext<'a> {
    /// The rewrite for a path and its target; `missing` selects the rewrites for paths without a file or route.
    pub fn rewrite(&self, missing: bool, method: Method) -> Option<RewriteMatch<'a>> {
        let may_be = self.inner.is_none_or(|inner| match inner.stage {
            RewriteStage::AsAsked | RewriteStage::Named => true,
            RewriteStage::Rewritten => missing,
            RewriteStage::Last => false,
        });
        // A replacement for a missing file is final.
        if !may_be || self.is_fallback {
            return None;
        }
        // A rewrite for missing files is the last step: else two rules could lead to each other for ever.
        let stage = match missing {
            false => RewriteStage::Rewritten,
            true => RewriteStage::Last,
        };
        let rewrites = &self.site.rules.config.rewrites;
        self.matches.rewrites().find_map(|number| {
            let rewrite = rewrites.get(number)?;
            // Rewrites for missing files come after files and routes, the others before them.
            if rewrite.missing != missing {
                return None;
            }
            let target = rewrite.target(self.request_path(), self.query)?;
            Some(RewriteMatch {
                rule: rewrite,
                target: inner_of(target, self, method, stage),
            })
        })
    }

    /// Whether a rewrite or a program has set the path.
    fn is_named(&self) -> bool {
        let inner = self.inner;
        inner.is_some_and(|inner| inner.stage != RewriteStage::AsAsked)
    }

    /// Whether internal routes may answer: the path was set by the server or replaces a missing file.
    pub fn is_led(&self) -> bool {
        self.is_fallback || self.is_named()
    }

    /// Whether the path is below an internal alias.
    pub fn is_internal(&self) -> bool {
        let alias = self.site.rules.matched_alias(&self.matches, self.path);
        alias.is_some_and(|(alias, ..)| alias.internal)
    }
}

/// Answers for a path below an internal alias. If the server has set the path, its file is sent, even where a route
/// matches the file's name.
#[inline(never)]
pub fn internal<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    asked: &RequestContext<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> Option<RequestDecision> {
    let (alias, ..) = asked.site.rules.matched_alias(&asked.matches, asked.path)?;
    if !alias.internal {
        return None;
    }
    if !asked.is_named() || !asked.is_for_files {
        lookup.world.trace(TraceEvent::Internal(alias));
        return Some(generated_response(
            to.refuse(Some(asked.at()), StatusCode::NOT_FOUND),
        ));
    }
    if !matches!(to.request.method, Method::Get | Method::Head) {
        to.response.close();
        return Some(generated_response(to.other_method(asked.at())));
    }
    Some(lookup.again().serve(asked, to))
}

/// The rewrite for a path that neither a file nor a route has.
pub fn internal_redirect_path<'a>(
    asked: &RequestContext<'a>,
    to: &RequestResponder<'_, '_>,
) -> Option<RewriteMatch<'a>> {
    let routes = &asked.site.routes;
    let is_free = || matches!(routes.find_route(&asked.matches, to.request), Ok(None));
    // Of paths with encoded slashes, no file can exist, so they count as missing.
    (!asked.is_for_files && is_free()).then(|| asked.rewrite(true, to.request.method))?
}

/// Continues with the target of a rewrite.
#[inline(never)]
pub fn rewritten<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    asked: &RequestContext<'_>,
    rewrite: RewriteMatch<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    lookup
        .world
        .trace(TraceEvent::Rewrite(rewrite.rule, &rewrite.target.target));
    lead(lookup, asked, rewrite.target, to)
}

/// Follows an internal redirect of a handler, as a GET without a body: the handler has consumed the body.
#[inline(never)]
pub fn follow<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    asked: &RequestContext<'_>,
    route: &Route,
    redirect: HandlerRedirect<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let HandlerRedirect { target, fields } = redirect;
    let (target, stage) = match target {
        InternalRedirect::Local(target) => (Some(target), RewriteStage::AsAsked),
        InternalRedirect::Path(target) => (Some(target), RewriteStage::Named),
        // Only files in internal aliases: a program must not name any file of the machine.
        InternalRedirect::File(file) => (asked.site.rules.internal_path(&file), RewriteStage::Last),
    };
    let method = to.request.method;
    let mut failed = |detail: &str| {
        increment(&route.counts.failed);
        let failure = HandlerFailure::new(StatusCode::BAD_GATEWAY, detail);
        generated_response(to.failed(asked.at(), route, &failure, lookup.logger))
    };
    let Some(target) = target else {
        return failed("X-Sendfile names a file outside the folders of all internal aliases");
    };
    let inner = inner_of(target, asked, method, stage);
    // Two programs may lead to each other.
    if inner.programs >= PROGRAMS_MAX {
        return failed("too many internal redirects between programs");
    }
    // A program's error must not look like the client's.
    if decoded(asked.site, inner.path(), &mut vec![0; inner.path_len]).is_err() {
        return failed("an internal redirect to an invalid path");
    }
    let kept = (stage != RewriteStage::AsAsked).then(|| {
        let kept = response_redirect::kept(fields);
        // A chain of redirects collects the fields of all its programs.
        let first = inner.kept.as_ref();
        first.map_or(kept.clone(), |first| {
            response_redirect::joined(first, &kept)
        })
    });
    let inner = RewrittenTarget {
        programs: inner.programs + 1,
        kept,
        ..inner
    };
    // The program has consumed it.
    to.exchange.body = None;
    to.exchange.body_len = Some(0);
    let mut request = to.request.clone();
    // HEAD stays, so that the client gets no body.
    if method != Method::Head {
        request.method = Method::Get;
    }
    let mut to = RequestResponder {
        request: &request,
        exchange: to.exchange,
        response: to.response,
    };
    lead(lookup, asked, inner, &mut to)
}

/// Continues with another target. The level below is refused: it would keep the response under the requested target,
/// and would miss changes of the new one.
fn lead<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    asked: &RequestContext<'_>,
    inner: RewrittenTarget,
    to: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let (site, world) = (asked.site, lookup.world);
    world.trace(TraceEvent::Ruled);
    if is_from_daemon(to.request.user_agent(), to.exchange.peer) {
        return generated_response(to.refuse_by_rule(asked.at(), StatusCode::FORBIDDEN, &[]));
    }
    // A rewrite may lengthen the target at each step.
    if inner.target.len() > TARGET_LEN_MAX {
        return generated_response(to.refuse(Some(asked.at()), StatusCode::URI_TOO_LONG));
    }
    let inner = Arc::new(inner);
    // Not the worker's buffer: it holds the path of the outer request.
    let mut scratch = vec![0; inner.path_len];
    let (path, is_for_files) = match decoded(site, inner.path(), &mut scratch) {
        Ok(decoded) => decoded,
        Err(refusal) => {
            world.trace(TraceEvent::BadTarget(refusal.as_str()));
            return generated_response(to.refuse_target(asked.at(), refusal));
        }
    };
    let asked = RequestContext {
        site,
        host: asked.host,
        path,
        raw_path: inner.path(),
        matches: site
            .rules
            .match_request_path(RequestPath::new(inner.path(), path), is_for_files),
        query: inner.query(),
        is_for_files,
        is_fallback: false,
        inner: Some(&inner),
    };
    if !may_have(&asked.matches, to.exchange) {
        world.trace(TraceEvent::NoClientCertificate);
        return generated_response(to.refuse(Some(asked.at()), StatusCode::FORBIDDEN));
    }
    // Other rules may apply to the new path.
    if let Some(guard) = &site.guard {
        match access::pass(guard, 0, world, asked.passing(), to) {
            Ok(()) => {}
            Err(AccessRefusal::Answered(status)) => return generated_response(status),
            Err(AccessRefusal::Waits(rule)) => return asked.wait_for_password(to, rule),
        }
    }
    admitted(lookup.again(), &asked, to)
}
