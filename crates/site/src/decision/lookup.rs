//! Finds the stored object for a path, checks its validity and selects the variant to send. If there is no valid
//! object, has a file loaded or calls a handler (`handler_request`). The site is known at this point.

use std::sync::Arc;

use lowroad_access_control::AccessRule;
use lowroad_files::file_loader::{LoadOutcome, LoadRequest};
use lowroad_http::content_coding::{self, ContentCoding};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_http::target;
use lowroad_log::ErrorLogger;
use lowroad_routes::routes::Route;
use lowroad_store::key;
use lowroad_store::object::ObjectKind;
use lowroad_store::{ObjectArc, StoredObject, VariantSet};

use super::access;
use super::context::{RequestContext, RequestDecision, generated_response};
use super::deferral::WaitReason;
use super::effects::{Effects, LoadProgress, TraceEvent};
use super::internal_redirect;
use crate::access::RequestOutcome as Logged;
use crate::responder::{RedirectTarget, RequestResponder};
use crate::sites::{SitePath, SiteTable};

/// Answers a request from the store, with a file, or by a handler.
pub struct ResponseLookup<'w, W> {
    pub sites: &'w SiteTable,
    /// Access to handlers and to the store.
    pub effects: &'w W,
    /// The error log.
    pub logger: &'w ErrorLogger,
    /// A reusable buffer for keys.
    pub key: &'w mut Vec<u8>,
}

impl<W: Effects> ResponseLookup<'_, W> {
    /// A reborrow for callees that consume the look-up.
    pub fn reborrow(&mut self) -> ResponseLookup<'_, W> {
        ResponseLookup {
            sites: self.sites,
            effects: self.effects,
            logger: self.logger,
            key: &mut *self.key,
        }
    }

    /// Whether a path that no route matches may still lead to a handler: by an index file, a fallback or a rewrite.
    pub fn may_lead_to_handler(
        &self,
        context: &RequestContext<'_>,
        responder: &RequestResponder<'_, '_>,
    ) -> bool {
        let routes = &context.site.routes;
        // The path of the fallback may belong to a handler.
        let fallback_has_route = || {
            let fallback = context.fallback(responder);
            fallback.is_some_and(|(_, path)| context.site.rules.has_route(path.as_bytes()))
        };
        let is_rewritten = || context.rewrite(true, responder).is_some();
        !routes.is_empty()
            && (routes.find_missing_route(&context.matches).is_some()
                || context.path.ends_with(b"/")
                || fallback_has_route()
                || is_rewritten())
    }

    /// Answers with the stored object if it is valid; otherwise loads the file.
    #[inline]
    pub fn serve(
        self,
        context: &RequestContext<'_>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        key::write_file_key(self.key, context.site.rules.id, context.host, context.path);
        let hash = self.effects.hash(self.key);
        match self.effects.find(hash, self.key) {
            // The hot path: one look-up, and no system call.
            Some(entry) if entry.base.validity.is_valid(responder.exchange.now_ms) => {
                self.send(context, &entry, Logged::Hit, responder)
            }
            stale => {
                let stale = stale.map(|entry| entry.base);
                self.fetch(context, ContentCoding::Identity, stale, responder)
            }
        }
    }

    /// Resumes the request with the outcome of a load.
    pub fn on_loaded(
        self,
        context: &RequestContext<'_>,
        loaded: LoadOutcome,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        match loaded.encoded {
            None => self.send(
                context,
                &VariantSet::new(loaded.base),
                Logged::Miss,
                responder,
            ),
            Some(object) if object.representation().is_some() => {
                self.send_variant(context, &object, Logged::Miss, responder)
            }
            // The file is not available in the requested coding, so it is sent without a coding.
            Some(_) => self.send_variant(context, &loaded.base, Logged::Miss, responder),
        }
    }

    /// Sends the variant with the content coding that the request prefers.
    #[inline]
    fn send(
        mut self,
        context: &RequestContext<'_>,
        entry: &VariantSet,
        logged: Logged,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let base = &entry.base;
        self.effects.trace(TraceEvent::Found(context, base));
        let identity = match &base.kind {
            ObjectKind::Representation(representation) => representation,
            _ => return self.answer_without_file(context, base, logged, responder),
        };
        if !matches!(responder.request.method, Method::Get | Method::Head) {
            return generated_response(responder.other_method(context.site_path()));
        }
        // Files are loaded without a content coding; other codings are generated on first use.
        let coding =
            content_coding::choose(&responder.request.accept_encoding(), identity.encodings());
        if coding == ContentCoding::Identity {
            return self.send_variant(context, base, logged, responder);
        }
        match entry.encoded(coding) {
            Some(object) => self.send_variant(context, object, logged, responder),
            None => self.fetch(context, coding, Some(base.clone()), responder),
        }
    }

    #[inline]
    fn send_variant(
        &self,
        context: &RequestContext<'_>,
        object: &StoredObject,
        logged: Logged,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        self.effects.trace(TraceEvent::Chosen(object));
        match &object.kind {
            ObjectKind::Representation(representation) => {
                let redirect_fields = context
                    .rewritten_target
                    .and_then(|rewritten| rewritten.redirect_fields());
                let status = match redirect_fields {
                    None => responder.send(context.site_path(), representation),
                    Some((path, fields)) => {
                        let client_path = SitePath {
                            path,
                            ..context.site_path()
                        };
                        responder.send_for_program(
                            context.site_path(),
                            client_path,
                            representation,
                            fields,
                        )
                    }
                };
                RequestDecision::Answered(status, logged)
            }
            _ => generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::INTERNAL_ERROR),
            ),
        }
    }

    /// Answers a request for a path without a file: with the file of another path, if a rewrite leads to one.
    fn answer_without_file(
        &mut self,
        context: &RequestContext<'_>,
        original: &ObjectArc,
        logged: Logged,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // Most sites have no rewrites, and need no look-up of their aliases.
        if context.site.has_internal_redirects
            && (!context.is_internal() || context.is_set_by_rewrite())
            && let Some(decision) = self.answer_with_candidate(context, original, 0, responder)
        {
            return decision;
        }
        self.answer_missing(context, &original.kind, logged, responder)
    }

    /// Answers a request for a folder, or for nothing, unless a handler is responsible.
    pub(super) fn answer_missing(
        &mut self,
        context: &RequestContext<'_>,
        kind: &ObjectKind,
        logged: Logged,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // An internal path can only name a file: routes, rewrites and fallbacks do not apply.
        if context.site.has_internal_redirects && context.is_internal() {
            if let (ObjectKind::Folder(_), Some(location)) = (kind, client_folder(context)) {
                let redirect = RedirectTarget {
                    location,
                    status: StatusCode::MOVED_PERMANENTLY,
                    is_cacheable: true,
                };
                let status = responder.redirect(context.site_path(), &redirect);
                return RequestDecision::Answered(status, logged);
            }
            let is_missing = matches!(
                kind,
                ObjectKind::NoIndex(_) | ObjectKind::Refused(StatusCode::NOT_FOUND, _)
            );
            // The rewrite that led here may have rules for missing files.
            if is_missing && context.is_set_by_rewrite() {
                if let Some(rewrite) = context.rewrite(true, responder) {
                    return internal_redirect::continue_rewritten(
                        self, context, rewrite, responder,
                    );
                }
                if let Some((rule, path)) = context.fallback(responder) {
                    return self.serve_fallback(context, rule, path.as_bytes(), responder);
                }
            }
            let status = match kind {
                ObjectKind::Refused(status, _) => *status,
                _ => StatusCode::NOT_FOUND,
            };
            return generated_response(responder.refuse(Some(context.site_path()), status));
        }
        let routes = &context.site.routes;
        let (path, route): (&[u8], Option<&Arc<Route>>) = match kind {
            // The index file is handled by a handler, with the path of the index file.
            ObjectKind::Index(path, _) => {
                let matches = context.matches.of_path(path);
                let route = routes
                    .find_route(&matches, &responder.condition_input())
                    .ok()
                    .flatten();
                (&**path, route)
            }
            ObjectKind::NoIndex(_) | ObjectKind::Refused(StatusCode::NOT_FOUND, _) => (
                context.path,
                routes.find_missing_route_for(&context.matches, &responder.condition_input()),
            ),
            _ => (context.path, None),
        };
        // The file is missing, or the path is that of a folder without an index file.
        let is_missing = matches!(
            kind,
            ObjectKind::NoIndex(_) | ObjectKind::Refused(StatusCode::NOT_FOUND, _)
        );
        // Rewrites are tried before routes for missing files, as for existing files.
        if is_missing && let Some(rewrite) = context.rewrite(true, responder) {
            return internal_redirect::continue_rewritten(self, context, rewrite, responder);
        }
        if is_missing
            && route.is_none()
            && let Some(path) = routes.remote_index(context.path)
            && let Some(route) = routes.find_remote_index(
                &context.matches.of_path(&path),
                &responder.condition_input(),
            )
        {
            return self.answer_from_route(context, &path, route, responder);
        }
        if is_missing
            && route.is_none()
            && let Some((rule, path)) = context.fallback(responder)
        {
            return self.serve_fallback(context, rule, path.as_bytes(), responder);
        }
        let is_get_or_head = matches!(responder.request.method, Method::Get | Method::Head);
        let status = match (kind, route) {
            (_, Some(route)) if route.accepts_method(responder.request.method) => {
                return self.answer_from_route(context, path, route, responder);
            }
            _ if !is_get_or_head => {
                return generated_response(responder.other_method(context.site_path()));
            }
            (ObjectKind::Folder(_), _) => {
                // With the final slash, relative links in the index file refer to the folder.
                let location = folder_location(context.path, context.query);
                let redirect = RedirectTarget {
                    location,
                    status: StatusCode::MOVED_PERMANENTLY,
                    is_cacheable: true,
                };
                responder.redirect(context.site_path(), &redirect)
            }
            (ObjectKind::NoIndex(_), _) => responder.refuse_folder(context.site_path()),
            (ObjectKind::Refused(status, _), _) => {
                responder.refuse(Some(context.site_path()), *status)
            }
            // A reload has removed the route of the index file; the next look-up finds the file itself.
            _ => responder.refuse(Some(context.site_path()), StatusCode::NOT_FOUND),
        };
        RequestDecision::Answered(status, logged)
    }

    /// Answers with the replacement for a missing file. Downstream caches would store the replacement with the
    /// requested path and are not notified if it changes.
    pub fn serve_fallback(
        &mut self,
        context: &RequestContext<'_>,
        rule: &AccessRule,
        path: &[u8],
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        self.effects.trace(TraceEvent::Rule(rule));
        // The soft-interrupt level would keep the response with the requested path, where no change invalidates it.
        if let Some(status) = access::exclude_level(self.effects, context.site_path(), responder) {
            return generated_response(status);
        }
        let context = RequestContext {
            site: context.site,
            host: context.host,
            path,
            raw_path: path,
            matches: context.matches.of_path(path),
            query: context.query,
            is_for_files: true,
            is_fallback: true,
            rewritten_target: context.rewritten_target,
        };
        let routes = &context.site.routes;
        if !context.is_internal()
            && let Ok(Some(route)) =
                routes.find_route(&context.matches, &responder.condition_input())
            && route.accepts_method(responder.request.method)
        {
            return self.answer_from_route(&context, path, route, responder);
        }
        self.reborrow().serve(&context, responder)
    }

    #[cold]
    fn fetch(
        self,
        context: &RequestContext<'_>,
        encoding: ContentCoding,
        base: Option<ObjectArc>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        key::write_file_key(self.key, context.site.rules.id, context.host, context.path);
        let load_request = LoadRequest {
            rules: context.site.rules.clone(),
            host: context.host.into(),
            path: context.path.into(),
            encoding,
            base,
            key: self.key.as_slice().into(),
            hash: self.effects.hash(self.key),
        };
        match self.effects.fetch(load_request, responder.exchange.id) {
            LoadProgress::Pending => {
                // The body may still be needed after the file is loaded.
                let body = responder.exchange.body.take();
                responder.exchange.is_body_undecided = true;
                context.wait(responder, WaitReason::File { body })
            }
            LoadProgress::Loaded(loaded) => self.on_loaded(context, loaded, responder),
            LoadProgress::Refused => generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::SERVICE_UNAVAILABLE),
            ),
        }
    }
}

/// The requested path with a slash at its end, if a rewrite has led it to a folder. The path of the folder itself may be one
/// that clients can't request.
fn client_folder(context: &RequestContext<'_>) -> Option<Vec<u8>> {
    let rewritten = context
        .rewritten_target
        .filter(|it| !it.is_from_handler())?;
    let (_, path) = rewritten.client_target();
    (!path.ends_with(b"/")).then(|| folder_location(path, context.query))
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
