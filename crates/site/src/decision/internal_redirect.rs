//! Rewrites and internal redirects: the request is answered as if the client had requested another target.
//!
//! The new path has to pass the access rules and is then looked up like any other path. One rewrite may apply before
//! the look-up, and one more if nothing is found. After that, only a handler's response can redirect the request, a
//! limited number of times.

use std::sync::Arc;

use lowroad_config::{RequestPath, RewriteConfig};
use lowroad_handler::{HandlerFailure, ResponseFields};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_routes::counts::increment;
use lowroad_routes::response_redirect::{self, InternalRedirect};
use lowroad_routes::routes::Route;

use super::access;
use super::context::{RequestContext, RequestDecision, generated_response};
use super::effects::{Effects, TraceEvent};
use super::handling::handle_admitted;
use super::lookup::ResponseLookup;
use super::path::{decode_path, has_required_certificate};
use super::rewritten_target::{ClientTarget, RewriteStage, RewrittenTarget};
use crate::responder::RequestResponder;

/// The maximum length of a rewritten target.
const TARGET_LEN_MAX: usize = 64 << 10;
/// The maximum number of internal redirects by handlers for one request.
const HANDLER_REDIRECTS_MAX: u8 = 10;

/// A rewrite rule that matches a path, and the target that the rule sets.
pub struct RewriteMatch<'a> {
    pub rule: &'a RewriteConfig,
    pub target: RewrittenTarget,
}

/// An internal redirect that a handler's response requests.
pub struct HandlerRedirect<'r> {
    pub target: InternalRedirect,
    /// The fields of the response.
    pub fields: &'r ResponseFields,
}

/// Builds the target that a rewrite or an internal redirect sets.
fn rewrite_target(
    target: Vec<u8>,
    context: &RequestContext<'_>,
    method: Method,
    stage: RewriteStage,
) -> RewrittenTarget {
    let query = target.iter().position(|byte| *byte == b'?');
    // The target that the client sent is kept across any number of redirects.
    let first = context
        .rewritten_target
        .map(|rewritten| rewritten.client_target.clone());
    let first = first.unwrap_or_else(|| {
        Arc::new(ClientTarget {
            method,
            path: context.path.into(),
        })
    });
    RewrittenTarget {
        path_len: query.unwrap_or(target.len()),
        target,
        replaced_path: context.path.into(),
        stage,
        is_conditional: context.has_conditional_target(),
        dependence: context.response_dependence(),
        redirect_count: context
            .rewritten_target
            .map_or(0, |rewritten| rewritten.redirect_count),
        client_target: first,
        redirect_fields: context
            .rewritten_target
            .and_then(|rewritten| rewritten.redirect_fields.clone()),
    }
}

impl<'a> RequestContext<'a> {
    /// The rewrite that matches the path, and its target. `missing` selects rewrites for paths without a file or route.
    pub fn rewrite(
        &self,
        missing: bool,
        responder: &RequestResponder<'_, '_>,
    ) -> Option<RewriteMatch<'a>> {
        let is_allowed = self
            .rewritten_target
            .is_none_or(|rewritten| match rewritten.stage {
                RewriteStage::Unrewritten | RewriteStage::SetByHandler => true,
                RewriteStage::Rewritten => missing,
                RewriteStage::Final => false,
            });
        // The replacement for a missing file is not rewritten.
        if !is_allowed || self.is_fallback {
            return None;
        }
        // After a rewrite for missing files there is no other rewrite: two rules could lead to each other forever.
        let stage = match missing {
            false => RewriteStage::Rewritten,
            true => RewriteStage::Final,
        };
        let rewrites = &self.site.rules.config.rewrites;
        self.matches.rewrites().find_map(|number| {
            let rewrite = rewrites.get(number)?;
            // Rewrites for missing files are applied after files and routes, all other rewrites before files and
            // routes.
            if rewrite.exists
                || rewrite.missing != missing
                || !self.rewrite_is_met(number, &responder.condition_input())
            {
                return None;
            }
            let target = rewrite.target(self.request_path(), &self.facts(responder))?;
            Some(RewriteMatch {
                rule: rewrite,
                target: rewrite_target(target, self, responder.request.method, stage),
            })
        })
    }

    /// The rewrite number `first` or a later one that applies if there is a file at its target. `is_folder` if there is a
    /// folder at the path.
    pub fn file_rewrite(
        &self,
        first: usize,
        is_folder: bool,
        responder: &RequestResponder<'_, '_>,
    ) -> Option<(usize, RewriteMatch<'a>)> {
        let stage = self.rewritten_target.map(|rewritten| rewritten.stage);
        if stage == Some(RewriteStage::Final) || self.is_fallback {
            return None;
        }
        let rewrites = &self.site.rules.config.rewrites;
        let mut numbers = self.matches.rewrites().filter(|number| *number >= first);
        numbers.find_map(|number| {
            let rule = rewrites.get(number)?;
            let applies = rule.exists && !(rule.missing && is_folder);
            if !applies || !self.rewrite_is_met(number, &responder.condition_input()) {
                return None;
            }
            let target = rule.target(self.request_path(), &self.facts(responder))?;
            let method = responder.request.method;
            let target = rewrite_target(target, self, method, RewriteStage::Final);
            Some((number, RewriteMatch { rule, target }))
        })
    }

    /// Whether a rewrite or a handler has set the path.
    fn is_redirected(&self) -> bool {
        let rewritten = self.rewritten_target;
        rewritten.is_some_and(|rewritten| rewritten.stage != RewriteStage::Unrewritten)
    }

    /// Whether internal routes may answer: the path was set by the server, or replaces that of a missing file.
    pub fn is_set_by_server(&self) -> bool {
        self.is_fallback || self.is_redirected()
    }

    /// Whether a rewrite has set the path, and no program.
    pub fn is_set_by_rewrite(&self) -> bool {
        let rewritten = self.rewritten_target;
        self.is_redirected() && rewritten.is_some_and(|it| !it.is_from_handler())
    }

    /// Whether the path is below an internal alias.
    pub fn is_internal(&self) -> bool {
        let alias = self.site.rules.matched_alias(&self.matches, self.path);
        alias.is_some_and(|(alias, ..)| alias.internal)
    }
}

/// Answers a request for a path below an internal alias. If the server has set the path, the file is sent even if a
/// route matches the file's name.
#[inline(never)]
pub fn internal<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    context: &RequestContext<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Option<RequestDecision> {
    let (alias, ..) = context
        .site
        .rules
        .matched_alias(&context.matches, context.path)?;
    if !alias.internal {
        return None;
    }
    if !context.is_redirected() || !context.is_for_files {
        lookup.effects.trace(TraceEvent::Internal(alias));
        return Some(generated_response(
            responder.refuse(Some(context.site_path()), StatusCode::NOT_FOUND),
        ));
    }
    if !matches!(responder.request.method, Method::Get | Method::Head) {
        responder.response.close();
        return Some(generated_response(
            responder.other_method(context.site_path()),
        ));
    }
    Some(lookup.reborrow().serve(context, responder))
}

/// The rewrite for a path that has neither a file nor a route.
pub fn internal_redirect_path<'a>(
    context: &RequestContext<'a>,
    responder: &RequestResponder<'_, '_>,
) -> Option<RewriteMatch<'a>> {
    let routes = &context.site.routes;
    let has_no_route = || {
        matches!(
            routes.find_route(&context.matches, &responder.condition_input()),
            Ok(None)
        )
    };
    // No file can have a path with encoded slashes, so such a path counts as missing.
    (!context.is_for_files && has_no_route()).then(|| context.rewrite(true, responder))?
}

/// Continues the decision with the target of a rewrite.
#[inline(never)]
pub fn continue_rewritten<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    context: &RequestContext<'_>,
    rewrite: RewriteMatch<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    lookup
        .effects
        .trace(TraceEvent::Rewrite(rewrite.rule, &rewrite.target.target));
    continue_with_target(lookup, context, rewrite.target, responder)
}

/// Continues the decision with the internal redirect of a handler. The method is GET without a body, since the handler
/// has consumed the body.
#[inline(never)]
pub fn follow_redirect<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    context: &RequestContext<'_>,
    route: &Route,
    redirect: HandlerRedirect<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let HandlerRedirect { target, fields } = redirect;
    let (target, stage) = match target {
        InternalRedirect::Local(target) => (Some(target), RewriteStage::Unrewritten),
        InternalRedirect::Path(target) => (Some(target), RewriteStage::SetByHandler),
        // Only files in internal aliases are sent: a program must not be able to send any file of the machine.
        InternalRedirect::File(file) => {
            (context.site.rules.internal_path(&file), RewriteStage::Final)
        }
    };
    let method = responder.request.method;
    let mut failed = |detail: &str| {
        increment(&route.counts.failed);
        let failure = HandlerFailure::new(StatusCode::BAD_GATEWAY, detail);
        generated_response(responder.send_failure(
            context.site_path(),
            route,
            &failure,
            lookup.logger,
        ))
    };
    let Some(target) = target else {
        return failed("X-Sendfile names a file outside the folders of all internal aliases");
    };
    let rewritten = rewrite_target(target, context, method, stage);
    // Two programs might redirect to each other.
    if rewritten.redirect_count >= HANDLER_REDIRECTS_MAX {
        return failed("too many internal redirects between programs");
    }
    // An invalid path in a program's response must not be reported as an error of the client.
    if decode_path(
        context.site,
        rewritten.path(),
        &mut vec![0; rewritten.path_len],
    )
    .is_err()
    {
        return failed("an internal redirect to an invalid path");
    }
    let redirect_fields = (stage != RewriteStage::Unrewritten).then(|| {
        let response_fields = response_redirect::carried_fields(fields);
        // In a chain of redirects, the fields of all responses are collected.
        let first = rewritten.redirect_fields.as_ref();
        first.map_or(response_fields.clone(), |first| {
            response_redirect::join_fields(first, &response_fields)
        })
    });
    let rewritten = RewrittenTarget {
        redirect_count: rewritten.redirect_count + 1,
        redirect_fields,
        ..rewritten
    };
    // The program has consumed the body.
    responder.exchange.body = None;
    responder.exchange.body_len = Some(0);
    let mut request = responder.request.clone();
    // The method HEAD is kept, so that the client gets no body.
    if method != Method::Head {
        request.method = Method::Get;
    }
    let mut responder = RequestResponder {
        request: &request,
        exchange: responder.exchange,
        response: responder.response,
    };
    continue_with_target(lookup, context, rewritten, &mut responder)
}

/// Continues the decision with another target. The soft-interrupt level gets no response: it would keep the response
/// with the requested target, and not notice changes of the new target.
fn continue_with_target<W: Effects>(
    lookup: &mut ResponseLookup<'_, W>,
    context: &RequestContext<'_>,
    rewritten: RewrittenTarget,
    responder: &mut RequestResponder<'_, '_>,
) -> RequestDecision {
    let (site, effects) = (context.site, lookup.effects);
    if let Some(status) = access::exclude_level(effects, context.site_path(), responder) {
        return generated_response(status);
    }
    // Each rewrite may lengthen the target.
    if rewritten.target.len() > TARGET_LEN_MAX {
        return generated_response(
            responder.refuse(Some(context.site_path()), StatusCode::URI_TOO_LONG),
        );
    }
    let rewritten = Arc::new(rewritten);
    // The worker's buffer contains the path of the original request, so another buffer is used.
    let mut scratch = vec![0; rewritten.path_len];
    let (path, is_for_files) = match decode_path(site, rewritten.path(), &mut scratch) {
        Ok(decoded) => decoded,
        Err(refusal) => {
            effects.trace(TraceEvent::BadTarget(refusal.as_str()));
            return generated_response(responder.refuse_target(context.site_path(), refusal));
        }
    };
    let context = RequestContext {
        site,
        host: context.host,
        path,
        raw_path: rewritten.path(),
        matches: site
            .rules
            .match_request_path(RequestPath::new(rewritten.path(), path), is_for_files)
            .with_cache(context.matches.cache()),
        query: rewritten.query(),
        is_for_files,
        is_fallback: false,
        rewritten_target: Some(&rewritten),
    };
    effects.trace(TraceEvent::Path(&context));
    if context.has_request_fields(responder.exchange) {
        context.set_request_fields(effects, responder);
    }
    if !has_required_certificate(&context.matches, responder.exchange) {
        effects.trace(TraceEvent::NoClientCertificate);
        return generated_response(
            responder.refuse(Some(context.site_path()), StatusCode::FORBIDDEN),
        );
    }
    // Other rules may apply to the new path.
    if let Some(access_policy) = &site.access_policy {
        match access::apply_rules(access_policy, 0, effects, context.access_check(), responder) {
            Ok(()) => {}
            Err(refusal) => return context.refuse_or_wait(responder, refusal),
        }
    }
    handle_admitted(lookup.reborrow(), &context, responder)
}
