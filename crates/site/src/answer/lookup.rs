//! Finds the stored object for a path, checks its validity and selects the variant to send; otherwise it has a file
//! loaded or calls a handler (`handler_request`). The site is already known.

use std::sync::Arc;

use lowroad_access_control::Rule;
use lowroad_files::load::{Loaded, Want};
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::method::Method;
use lowroad_http::status::Status;
use lowroad_http::target;
use lowroad_log::Logger;
use lowroad_routes::routes::Route;
use lowroad_store::key;
use lowroad_store::object::Kind;
use lowroad_store::{Entry, Object, ObjectArc};

use super::asked::{Asked, Decision, made};
use super::inner;
use super::wait::WaitsFor;
use super::world::{Fetched, Step, World};
use crate::access::Outcome as Logged;
use crate::is_from_daemon;
use crate::respond::Responder;
use crate::sites::{At, Sites};

/// Answers a request from the store, from a file or by a handler.
pub struct Lookup<'w, W> {
    pub sites: &'w Sites,
    /// Access to handlers and to the store.
    pub world: &'w W,
    /// Receives the faults.
    pub logger: &'w Logger,
    /// A reusable buffer for keys.
    pub key: &'w mut Vec<u8>,
}

impl<W: World> Lookup<'_, W> {
    /// A reborrow, for callees that consume the look-up.
    pub fn again(&mut self) -> Lookup<'_, W> {
        Lookup {
            sites: self.sites,
            world: self.world,
            logger: self.logger,
            key: &mut *self.key,
        }
    }

    /// Whether a path that no route matches may still lead to a handler: by an index, a fallback or a rewrite.
    pub fn may_be_for_program(&self, asked: &Asked<'_>, to: &Responder<'_, '_>) -> bool {
        let routes = &asked.site.routes;
        let leads_to_one = || {
            let fallback = asked.fallback(to);
            fallback.is_some_and(|(_, path)| asked.site.rules.has_route(path.as_bytes()))
        };
        let is_rewritten = || asked.rewrite(true, to.request.method).is_some();
        !routes.is_empty()
            && (routes.of_missing(&asked.matches).is_some()
                || asked.path.ends_with(b"/")
                || leads_to_one()
                || is_rewritten())
    }

    /// Answers with the stored object if it is valid; otherwise loads the file.
    #[inline]
    pub fn serve(self, asked: &Asked<'_>, to: &mut Responder<'_, '_>) -> Decision {
        key::write_of_file(self.key, asked.site.rules.id, asked.host, asked.path);
        let hash = self.world.hash(self.key);
        match self.world.find(hash, self.key) {
            Some(entry) if entry.base.validity.holds(to.exchange.now_ms) => {
                self.send(asked, &entry, Logged::Hit, to)
            }
            stale => {
                let stale = stale.map(|entry| entry.base);
                self.fetch(asked, Encoding::Identity, stale, to)
            }
        }
    }

    /// Resumes with the outcome of a load.
    pub fn loaded(self, asked: &Asked<'_>, loaded: Loaded, to: &mut Responder<'_, '_>) -> Decision {
        match loaded.encoded {
            None => self.send(asked, &Entry::new(loaded.base), Logged::Miss, to),
            Some(object) if object.representation().is_some() => {
                self.chosen(asked, &object, Logged::Miss, to)
            }
            // The file can't be had in that coding, so the identity is sent.
            Some(_) => self.chosen(asked, &loaded.base, Logged::Miss, to),
        }
    }

    /// Sends the variant in the coding that the request prefers.
    #[inline]
    fn send(
        mut self,
        asked: &Asked<'_>,
        entry: &Entry,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let base = &entry.base;
        self.world.note(Step::Found(asked, base));
        let identity = match &base.kind {
            Kind::Representation(representation) => representation,
            other => return self.no_file(asked, other, logged, to),
        };
        if !matches!(to.request.method, Method::Get | Method::Head) {
            return made(to.other_method(asked.at()));
        }
        // Loaded objects hold the identity coding; other codings are made on first use.
        let wanted = encoding::choose(&to.request.accept_encoding(), identity.encodings());
        if wanted == Encoding::Identity {
            return self.chosen(asked, base, logged, to);
        }
        match entry.encoded(wanted) {
            Some(object) => self.chosen(asked, object, logged, to),
            None => self.fetch(asked, wanted, Some(base.clone()), to),
        }
    }

    #[inline]
    fn chosen(
        &self,
        asked: &Asked<'_>,
        object: &Object,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        self.world.note(Step::Chosen(object));
        match &object.kind {
            Kind::Representation(representation) => {
                let kept = asked.inner.and_then(|inner| inner.kept());
                let status = match kept {
                    None => to.send(asked.at(), representation),
                    Some((path, fields)) => {
                        let at = At { path, ..asked.at() };
                        to.send_for_program((asked.at(), at), representation, fields)
                    }
                };
                Decision::Answered(status, logged)
            }
            _ => made(to.refuse(Some(asked.at()), Status::INTERNAL_ERROR)),
        }
    }

    /// Answers for a path without a file: a folder or nothing, unless a handler answers for it.
    fn no_file(
        &mut self,
        asked: &Asked<'_>,
        kind: &Kind,
        logged: Logged,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        if asked.site.leads_within && asked.is_internal() {
            let status = match kind {
                Kind::Refused(status, _) => *status,
                _ => Status::NOT_FOUND,
            };
            return made(to.refuse(Some(asked.at()), status));
        }
        let routes = &asked.site.routes;
        let (path, route): (&[u8], Option<&Arc<Route>>) = match kind {
            Kind::Index(path, _) => {
                let matches = asked.site.rules.match_path(path);
                let route = routes.of_request(&matches, to.request).ok().flatten();
                (&**path, route)
            }
            Kind::NoIndex(_) | Kind::Refused(Status::NOT_FOUND, _) => (
                asked.path,
                routes.of_missing_for(&asked.matches, to.request),
            ),
            _ => (asked.path, None),
        };
        let is_missing = matches!(kind, Kind::NoIndex(_) | Kind::Refused(Status::NOT_FOUND, _));
        if is_missing && let Some(led) = asked.rewrite(true, to.request.method) {
            return inner::rewritten(self, asked, led, to);
        }
        if is_missing
            && route.is_none()
            && let Some(path) = routes.remote_index(asked.path)
            && let Some(route) =
                routes.of_remote_index(&asked.site.rules.match_path(&path), to.request)
        {
            return self.ask(asked, &path, route, to);
        }
        if is_missing
            && route.is_none()
            && let Some((rule, path)) = asked.fallback(to)
        {
            return self.fall_back(asked, (rule, path.as_bytes()), to);
        }
        let reads = matches!(to.request.method, Method::Get | Method::Head);
        let status = match (kind, route) {
            (_, Some(route)) if route.takes(to.request.method) => {
                return self.ask(asked, path, route, to);
            }
            _ if !reads => return made(to.other_method(asked.at())),
            (Kind::Folder(_), _) => {
                let location = folder_location(asked.path, asked.query);
                let status = Status::MOVED_PERMANENTLY;
                to.redirect(asked.at(), status, &location)
            }
            (Kind::NoIndex(_), _) => to.refuse_folder(asked.at()),
            (Kind::Refused(status, _), _) => to.refuse(Some(asked.at()), *status),
            // A reload removed the index file's route; the next look-up will find the file itself.
            _ => to.refuse(Some(asked.at()), Status::NOT_FOUND),
        };
        Decision::Answered(status, logged)
    }

    /// Answers with the replacement for a missing file. Caches that store it under this path are not notified when it
    /// changes.
    fn fall_back(
        &mut self,
        asked: &Asked<'_>,
        (rule, path): (&Rule, &[u8]),
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        self.world.note(Step::Rule(rule));
        self.world.note(Step::Ruled);
        // The soft-interrupt level would keep the copy under the requested path, where no change invalidates it.
        if is_from_daemon(to.request.user_agent(), to.exchange.peer) {
            return made(to.refuse_by_rule(asked.at(), Status::FORBIDDEN, &[]));
        }
        let asked = Asked {
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
        if let Ok(Some(route)) = routes.of_request(&asked.matches, to.request)
            && route.takes(to.request.method)
        {
            return self.ask(&asked, path, route, to);
        }
        self.again().serve(&asked, to)
    }

    #[cold]
    fn fetch(
        self,
        asked: &Asked<'_>,
        encoding: Encoding,
        base: Option<ObjectArc>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        key::write_of_file(self.key, asked.site.rules.id, asked.host, asked.path);
        let want = Want {
            rules: asked.site.rules.clone(),
            host: asked.host.into(),
            path: asked.path.into(),
            encoding,
            base,
            key: self.key.as_slice().into(),
            hash: self.world.hash(self.key),
        };
        match self.world.fetch(want, to.exchange.id) {
            Fetched::Later => {
                let body = to.exchange.body.take();
                to.exchange.is_body_undecided = true;
                asked.wait(to, WaitsFor::File { body })
            }
            Fetched::Loaded(loaded) => self.loaded(asked, loaded, to),
            Fetched::Refused => made(to.refuse(Some(asked.at()), Status::SERVICE_UNAVAILABLE)),
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
