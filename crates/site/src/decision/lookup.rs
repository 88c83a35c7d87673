//! Finds the stored object for a path, checks its validity and selects the variant to send; otherwise it has a file
//! loaded or calls a handler (`handler_request`). The site is already known.

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

use super::context::{RequestContext, RequestDecision, generated_response};
use super::deferral::WaitReason;
use super::effects::{Effects, LoadProgress, TraceEvent};
use super::internal_redirect;
use crate::access::RequestOutcome as Logged;
use crate::is_from_daemon;
use crate::responder::RequestResponder;
use crate::sites::{SitePath, SiteTable};

/// Answers a request from the store, from a file or by a handler.
pub struct ResponseLookup<'w, W> {
    pub sites: &'w SiteTable,
    /// Access to handlers and to the store.
    pub world: &'w W,
    /// Receives the faults.
    pub logger: &'w ErrorLogger,
    /// A reusable buffer for keys.
    pub key: &'w mut Vec<u8>,
}

impl<W: Effects> ResponseLookup<'_, W> {
    /// A reborrow, for callees that consume the look-up.
    pub fn again(&mut self) -> ResponseLookup<'_, W> {
        ResponseLookup {
            sites: self.sites,
            world: self.world,
            logger: self.logger,
            key: &mut *self.key,
        }
    }

    /// Whether a path that no route matches may still lead to a handler: by an index, a fallback or a rewrite.
    pub fn may_be_for_program(
        &self,
        asked: &RequestContext<'_>,
        to: &RequestResponder<'_, '_>,
    ) -> bool {
        let routes = &asked.site.routes;
        // The fallback's path may be a handler's.
        let leads_to_one = || {
            let fallback = asked.fallback(to);
            fallback.is_some_and(|(_, path)| asked.site.rules.has_route(path.as_bytes()))
        };
        let is_rewritten = || asked.rewrite(true, to.request.method).is_some();
        !routes.is_empty()
            && (routes.find_missing_route(&asked.matches).is_some()
                || asked.path.ends_with(b"/")
                || leads_to_one()
                || is_rewritten())
    }

    /// Answers with the stored object if it is valid; otherwise loads the file.
    #[inline]
    pub fn serve(
        self,
        asked: &RequestContext<'_>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        key::write_of_file(self.key, asked.site.rules.id, asked.host, asked.path);
        let hash = self.world.hash(self.key);
        match self.world.find(hash, self.key) {
            // The hot path: one look-up, no system call.
            Some(entry) if entry.base.validity.holds(to.exchange.now_ms) => {
                self.send(asked, &entry, Logged::Hit, to)
            }
            stale => {
                let stale = stale.map(|entry| entry.base);
                self.fetch(asked, ContentCoding::Identity, stale, to)
            }
        }
    }

    /// Resumes with the outcome of a load.
    pub fn on_loaded(
        self,
        asked: &RequestContext<'_>,
        loaded: LoadOutcome,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        match loaded.encoded {
            None => self.send(asked, &VariantSet::new(loaded.base), Logged::Miss, to),
            Some(object) if object.representation().is_some() => {
                self.send_variant(asked, &object, Logged::Miss, to)
            }
            // The file can't be had in that coding, so the identity is sent.
            Some(_) => self.send_variant(asked, &loaded.base, Logged::Miss, to),
        }
    }

    /// Sends the variant in the coding that the request prefers.
    #[inline]
    fn send(
        mut self,
        asked: &RequestContext<'_>,
        entry: &VariantSet,
        logged: Logged,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let base = &entry.base;
        self.world.trace(TraceEvent::Found(asked, base));
        let identity = match &base.kind {
            ObjectKind::Representation(representation) => representation,
            other => return self.no_file(asked, other, logged, to),
        };
        if !matches!(to.request.method, Method::Get | Method::Head) {
            return generated_response(to.other_method(asked.at()));
        }
        // Loaded objects hold the identity coding; other codings are made on first use.
        let wanted = content_coding::choose(&to.request.accept_encoding(), identity.encodings());
        if wanted == ContentCoding::Identity {
            return self.send_variant(asked, base, logged, to);
        }
        match entry.encoded(wanted) {
            Some(object) => self.send_variant(asked, object, logged, to),
            None => self.fetch(asked, wanted, Some(base.clone()), to),
        }
    }

    #[inline]
    fn send_variant(
        &self,
        asked: &RequestContext<'_>,
        object: &StoredObject,
        logged: Logged,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        self.world.trace(TraceEvent::Chosen(object));
        match &object.kind {
            ObjectKind::Representation(representation) => {
                let kept = asked.inner.and_then(|inner| inner.kept());
                let status = match kept {
                    None => to.send(asked.at(), representation),
                    Some((path, fields)) => {
                        let at = SitePath { path, ..asked.at() };
                        to.send_for_program(asked.at(), at, representation, fields)
                    }
                };
                RequestDecision::Answered(status, logged)
            }
            _ => generated_response(to.refuse(Some(asked.at()), StatusCode::INTERNAL_ERROR)),
        }
    }

    /// Answers for a path without a file: a folder or nothing, unless a handler answers for it.
    fn no_file(
        &mut self,
        asked: &RequestContext<'_>,
        kind: &ObjectKind,
        logged: Logged,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // An internal path names a file only: no route, rewrite or fallback applies.
        if asked.site.leads_within && asked.is_internal() {
            let status = match kind {
                ObjectKind::Refused(status, _) => *status,
                _ => StatusCode::NOT_FOUND,
            };
            return generated_response(to.refuse(Some(asked.at()), status));
        }
        let routes = &asked.site.routes;
        let (path, route): (&[u8], Option<&Arc<Route>>) = match kind {
            // The index file belongs to a handler, under the file's own path.
            ObjectKind::Index(path, _) => {
                let matches = asked.site.rules.match_path(path);
                let route = routes.find_route(&matches, to.request).ok().flatten();
                (&**path, route)
            }
            ObjectKind::NoIndex(_) | ObjectKind::Refused(StatusCode::NOT_FOUND, _) => (
                asked.path,
                routes.find_missing_route_for(&asked.matches, to.request),
            ),
            _ => (asked.path, None),
        };
        // A missing file, or a folder without an index.
        let is_missing = matches!(
            kind,
            ObjectKind::NoIndex(_) | ObjectKind::Refused(StatusCode::NOT_FOUND, _)
        );
        // Rewrites before routes for missing files, as for existing ones.
        if is_missing && let Some(led) = asked.rewrite(true, to.request.method) {
            return internal_redirect::rewritten(self, asked, led, to);
        }
        if is_missing
            && route.is_none()
            && let Some(path) = routes.remote_index(asked.path)
            && let Some(route) =
                routes.find_remote_index(&asked.site.rules.match_path(&path), to.request)
        {
            return self.ask(asked, &path, route, to);
        }
        if is_missing
            && route.is_none()
            && let Some((rule, path)) = asked.fallback(to)
        {
            return self.fall_back(asked, rule, path.as_bytes(), to);
        }
        let reads = matches!(to.request.method, Method::Get | Method::Head);
        let status = match (kind, route) {
            (_, Some(route)) if route.takes(to.request.method) => {
                return self.ask(asked, path, route, to);
            }
            _ if !reads => return generated_response(to.other_method(asked.at())),
            (ObjectKind::Folder(_), _) => {
                // With the slash, relative links of the index file lead into the folder.
                let location = folder_location(asked.path, asked.query);
                let status = StatusCode::MOVED_PERMANENTLY;
                to.redirect(asked.at(), status, &location)
            }
            (ObjectKind::NoIndex(_), _) => to.refuse_folder(asked.at()),
            (ObjectKind::Refused(status, _), _) => to.refuse(Some(asked.at()), *status),
            // A reload removed the index file's route; the next look-up will find the file itself.
            _ => to.refuse(Some(asked.at()), StatusCode::NOT_FOUND),
        };
        RequestDecision::Answered(status, logged)
    }

    /// Answers with the replacement for a missing file. Caches that store it under this path are not notified when it
    /// changes.
    fn fall_back(
        &mut self,
        asked: &RequestContext<'_>,
        rule: &AccessRule,
        path: &[u8],
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        self.world.trace(TraceEvent::Rule(rule));
        self.world.trace(TraceEvent::Ruled);
        // The soft-interrupt level would keep the copy under the requested path, where no change invalidates it.
        if is_from_daemon(to.request.user_agent(), to.exchange.peer) {
            return generated_response(to.refuse_by_rule(asked.at(), StatusCode::FORBIDDEN, &[]));
        }
        let asked = RequestContext {
            site: asked.site,
            host: asked.host,
            path,
            raw_path: path,
            matches: asked.site.rules.match_path(path),
            query: asked.query,
            is_for_files: true,
            is_fallback: true,
            inner: asked.inner,
        };
        let routes = &asked.site.routes;
        if let Ok(Some(route)) = routes.find_route(&asked.matches, to.request)
            && route.takes(to.request.method)
        {
            return self.ask(&asked, path, route, to);
        }
        self.again().serve(&asked, to)
    }

    #[cold]
    fn fetch(
        self,
        asked: &RequestContext<'_>,
        encoding: ContentCoding,
        base: Option<ObjectArc>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        key::write_of_file(self.key, asked.site.rules.id, asked.host, asked.path);
        let want = LoadRequest {
            rules: asked.site.rules.clone(),
            host: asked.host.into(),
            path: asked.path.into(),
            encoding,
            base,
            key: self.key.as_slice().into(),
            hash: self.world.hash(self.key),
        };
        match self.world.fetch(want, to.exchange.id) {
            LoadProgress::Later => {
                // The decision after the load may still need the body.
                let body = to.exchange.body.take();
                to.exchange.is_body_undecided = true;
                asked.wait(to, WaitReason::File { body })
            }
            LoadProgress::Loaded(loaded) => self.on_loaded(asked, loaded, to),
            LoadProgress::Refused => {
                generated_response(to.refuse(Some(asked.at()), StatusCode::SERVICE_UNAVAILABLE))
            }
        }
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
