//! The decision: from a request to its answer, top to bottom.
//!
//! Which site; which method; a redirect; what is stored for the path, and whether it may still be
//! trusted; which encoding; then `respond` writes it. What is not in memory is fetched by a helper
//! and the request comes again.

mod offer;

use std::sync::{Arc, Mutex, PoisonError};

use lowroad_dynamic::Failure;
use lowroad_engine::service::Refused;
use lowroad_engine::stream::Receiver;
use lowroad_engine::{Answer, BodyUse, Exchange, ListenerId, Out, Service};
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::method::Method;
use lowroad_http::request::{Request, Target};
use lowroad_http::status::Status;
use lowroad_http::target;
use lowroad_log::Logger;

use crate::access::{AccessLog, Outcome as Logged, Record};
use crate::dynamic::calls::{self, Started};
use crate::dynamic::reply::Reply;
use crate::dynamic::routes;
use crate::dynamic::{Calls, Route};
use crate::fetch::{Loaded, Reply as PostReply};
use crate::load::Want;
use crate::respond::Responder;
use crate::sites::{At, Site, Sites};
use crate::stored::{Kind, Representation, Stored};

pub use offer::Offer;

/// Serves the sites: the service of one worker.
pub struct Web {
    sites: Arc<Sites>,
    calls: Calls,
    logger: Logger,
    log: Option<AccessLog>,
    /// Where keys are put together and paths decoded.
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    path: Vec<u8>,
}

/// An operator's change, or what is asked without a connection.
pub enum Command {
    /// Serve these from now on.
    Sites(Arc<Sites>),
    /// Answer this, for the level below.
    Offer(Box<Offer>),
}

/// What a deferred request waited for.
pub enum Outcome {
    /// What is stored for it now; and its body, if that may be for a program.
    Loaded(Loaded, Option<Receiver>),
    /// What a program answered.
    Reply(Result<Box<Reply>, Failure>),
}

/// What the decision came to.
enum Decision {
    /// The answer was written.
    Answered(Status, Logged),
    /// It will be possible later; what is given is dropped if nobody waits for it any more.
    Deferred(Option<Box<dyn Send>>),
}

impl Web {
    /// A service for `sites`; `calls` leads to programs and to what is stored.
    pub fn new(sites: Arc<Sites>, calls: Calls, logger: Logger, log: Option<AccessLog>) -> Web {
        Web {
            sites,
            calls,
            logger,
            log,
            scratch: Scratch::default(),
        }
    }

    #[inline]
    fn decide(
        &mut self,
        request: &Request<'_>,
        outcome: Option<Outcome>,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let mut name = [0; 256];
        let found = self
            .sites
            .find(to.exchange.listener, request.host, &mut name);
        let Some(found) = found else {
            return made(to.refuse(None, Status::MISDIRECTED_REQUEST));
        };
        let (site, host) = (found.site, &name[..found.host_len]);
        let reads = matches!(request.method, Method::Get | Method::Head);
        let (path, query, plain) = match request.target {
            Target::Origin { path, query, plain } => (path, query, plain),
            _ if reads => {
                return made(to.refuse(Some(At { site, path: b"/" }), Status::BAD_REQUEST));
            }
            _ => return made(to.other_method(At { site, path: b"/" })),
        };
        let path = if plain {
            path
        } else {
            self.scratch.path.resize(path.len(), 0);
            match target::decode(path, &mut self.scratch.path) {
                Ok(path) => path,
                Err(refusal) => return made(to.refuse_target(At { site, path: b"/" }, refusal)),
            }
        };
        if !site.rules.redirects.is_empty()
            && let Some((status, location)) = redirect(site, path, query)
        {
            return made(to.redirect(At { site, path }, status, &location));
        }
        let host = if site.per_host() { host } else { &[] };
        let asked = Asked {
            site,
            host,
            path,
            query,
        };
        let web = Lookup {
            sites: &self.sites,
            calls: &self.calls,
            logger: &self.logger,
            key: &mut self.scratch.key,
        };
        if !site.routes.is_empty() {
            return web.route(&asked, outcome, to);
        }
        if !reads {
            return made(to.other_method(asked.at()));
        }
        web.serve(&asked, outcome, to)
    }

    /// Whether a request's body may be for a program.
    fn takes_body(&mut self, request: &Request<'_>, listener: ListenerId) -> bool {
        let mut name = [0; 256];
        let Some(found) = self.sites.find(listener, request.host, &mut name) else {
            return false;
        };
        let Target::Origin { path, .. } = request.target else {
            return false;
        };
        self.scratch.path.resize(path.len(), 0);
        let Ok(path) = target::decode(path, &mut self.scratch.path) else {
            return false;
        };
        let routes = &found.site.routes;
        let route = routes.of(path).or_else(|| routes.of_missing(path));
        routes::takes(request.method) && (route.is_some() || path.ends_with(b"/"))
    }
}

/// What a request is for, once its site is known.
struct Asked<'a> {
    site: &'a Arc<Site>,
    host: &'a [u8],
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

impl Asked<'_> {
    fn at(&self) -> At<'_> {
        At {
            site: self.site,
            path: self.path,
        }
    }
}

/// Finds what is stored, or has it fetched, or has a program asked.
struct Lookup<'w> {
    sites: &'w Sites,
    calls: &'w Calls,
    logger: &'w Logger,
    key: &'w mut Vec<u8>,
}

impl Lookup<'_> {
    /// A site with routes: what belongs to a program goes there, the rest is served; a path without
    /// a file may still belong to a program then.
    fn route(
        self,
        asked: &Asked<'_>,
        outcome: Option<Outcome>,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let routable = routes::takes(to.request.method);
        let route = asked.site.routes.of(asked.path).filter(|_| routable);
        match (outcome, route) {
            (Some(Outcome::Reply(reply)), _) => self.replied(asked, reply.map(|reply| *reply), to),
            (None, Some(route)) => self.call(asked, asked.path, route, to),
            (Some(Outcome::Loaded(loaded, body)), _) => {
                to.exchange.body = body;
                self.serve(asked, Some(Outcome::Loaded(loaded, None)), to)
            }
            (None, None) => self.serve(asked, None, to),
        }
    }

    #[inline]
    fn serve(
        mut self,
        asked: &Asked<'_>,
        outcome: Option<Outcome>,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let now_ms = to.exchange.now_ms;
        let logged = if outcome.is_some() {
            Logged::Miss
        } else {
            Logged::Hit
        };
        let (base, encoded) = match outcome {
            Some(Outcome::Loaded(loaded, _)) => (loaded.base, loaded.encoded),
            // The site's routes are gone since a program was asked.
            Some(Outcome::Reply(reply)) => {
                return self.replied(asked, reply.map(|reply| *reply), to);
            }
            None => {
                let hash = self.key_of(asked, Encoding::Identity);
                match self.calls.store.find(hash, self.key) {
                    Some(stored) if stored.fresh(now_ms) => (stored, None),
                    stale => return self.fetch(asked, Encoding::Identity, hash, stale, to),
                }
            }
        };
        let identity = match &base.kind {
            Kind::Representation(representation) => representation,
            other => return self.no_file(asked, other, logged, to),
        };
        if !matches!(to.request.method, Method::Get | Method::Head) {
            return made(to.other_method(asked.at()));
        }
        let wanted = encoding::choose(&to.request.accept_encoding, identity.encodings());
        if wanted == Encoding::Identity {
            return Decision::Answered(to.send(asked.at(), identity), logged);
        }
        if let Some((got, stored)) = encoded {
            // What could not be had in that encoding is sent as it is.
            let representation = stored.representation().filter(|_| got == wanted);
            let representation = representation.unwrap_or(identity);
            return Decision::Answered(to.send(asked.at(), representation), logged);
        }
        let hash = self.key_of(asked, wanted);
        let stored = self.calls.store.find(hash, self.key);
        match stored
            .as_deref()
            .and_then(|stored| made_of(stored, identity))
        {
            Some(encoded) => Decision::Answered(to.send(asked.at(), encoded), logged),
            None => self.fetch(asked, wanted, hash, Some(base), to),
        }
    }

    /// A path that is no file: a folder, or nothing, unless a program answers for it.
    fn no_file(
        self,
        asked: &Asked<'_>,
        kind: &Kind,
        logged: Logged,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let routes = &asked.site.routes;
        let (path, route): (&[u8], Option<&Arc<Route>>) = match kind {
            Kind::Index(path) => (&**path, routes.of(path)),
            Kind::Refused(status) if is_no_file(*status, asked.path) => {
                (asked.path, routes.of_missing(asked.path))
            }
            _ => (asked.path, None),
        };
        let reads = matches!(to.request.method, Method::Get | Method::Head);
        let status = match (kind, route) {
            (_, Some(route)) if routes::takes(to.request.method) => {
                return self.call(asked, path, route, to);
            }
            _ if !reads => return made(to.other_method(asked.at())),
            (Kind::Folder, _) => {
                let location = folder_location(asked.path, asked.query);
                let status = Status::MOVED_PERMANENTLY;
                to.redirect(asked.at(), status, &location)
            }
            (Kind::Refused(status), _) => to.refuse(Some(asked.at()), *status),
            // The route that the index file belonged to is gone: the next look finds the file.
            _ => to.refuse(Some(asked.at()), Status::NOT_FOUND),
        };
        Decision::Answered(status, logged)
    }

    /// Puts a request to the program of a route; `path` may be that of a folder's index file.
    fn call(
        &self,
        asked: &Asked<'_>,
        path: &[u8],
        route: &Arc<Route>,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let call = calls::Asked {
            site: asked.site,
            host: asked.host,
            path,
            local: self.sites.address(to.exchange.listener),
            request: to.request,
        };
        match self.calls.start(&call, route, to.exchange) {
            Started::Runs(hold) => Decision::Deferred(Some(hold)),
            Started::Known(known) => {
                let status = match known.kept() {
                    Some(kept) => to.kept(asked.at(), kept),
                    None => to.refuse(Some(asked.at()), Status::INTERNAL_ERROR),
                };
                Decision::Answered(status, Logged::Hit)
            }
            Started::Over(reply) => self.replied(asked, reply, to),
        }
    }

    fn replied(
        &self,
        asked: &Asked<'_>,
        reply: Result<Reply, Failure>,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let status = match reply {
            Ok(reply) => to.reply(asked.at(), reply),
            Err(failure) => to.failed(asked.at(), &failure, self.logger),
        };
        Decision::Answered(status, Logged::Program)
    }

    #[cold]
    fn fetch(
        &self,
        asked: &Asked<'_>,
        encoding: Encoding,
        hash: u64,
        base: Option<Arc<Stored>>,
        to: &mut Responder<'_, '_, '_>,
    ) -> Decision {
        let want = Want {
            site: asked.site.clone(),
            host: asked.host.into(),
            path: asked.path.into(),
            encoding,
            base,
            key: self.key.as_slice().into(),
            hash,
        };
        let reply = match to.exchange.body.take() {
            Some(body) => with_body(self.calls.post.clone(), body),
            None => self.calls.post.clone(),
        };
        match self.calls.fetcher.fetch(want, reply, to.exchange.token) {
            Ok(()) => Decision::Deferred(None),
            Err(_) => made(to.refuse(Some(asked.at()), Status::SERVICE_UNAVAILABLE)),
        }
    }

    #[inline]
    fn key_of(&mut self, asked: &Asked<'_>, encoding: Encoding) -> u64 {
        write_key(self.key, asked.site, asked.host, asked.path, encoding);
        self.calls.store.hash(self.key)
    }
}

/// Whether a refusal says that there is no file at a path: a folder without an index is none.
pub fn is_no_file(status: Status, path: &[u8]) -> bool {
    status == Status::NOT_FOUND || status == Status::FORBIDDEN && path.ends_with(b"/")
}

/// A reply that brings the request's body back with what was loaded.
fn with_body(post: PostReply, body: Receiver) -> PostReply {
    let body = Mutex::new(Some(body));
    Arc::new(move |token, outcome| {
        let outcome = match outcome {
            Outcome::Loaded(loaded, _) => {
                let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
                Outcome::Loaded(loaded, body)
            }
            reply => reply,
        };
        post(token, outcome);
    })
}

/// Writes the key under which an answer is stored.
#[inline]
pub fn write_key(key: &mut Vec<u8>, site: &Site, host: &[u8], path: &[u8], encoding: Encoding) {
    key.clear();
    key.extend_from_slice(&site.id.to_le_bytes());
    key.push(encoding as u8);
    key.extend_from_slice(host);
    key.extend_from_slice(path);
}

/// An encoding's representation, if it was made of what the identity is made of.
pub fn made_of<'s>(stored: &'s Stored, identity: &Representation) -> Option<&'s Representation> {
    stored
        .representation()
        .filter(|encoded| encoded.sources == identity.sources)
}

/// The redirect that a site's rules demand for a path.
pub fn redirect(site: &Site, path: &[u8], query: Option<&[u8]>) -> Option<(Status, Vec<u8>)> {
    site.rules.redirects.iter().find_map(|rule| {
        let location = rule.location(path, query)?;
        Some((Status::new(rule.status)?, location))
    })
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

fn made(status: Status) -> Decision {
    Decision::Answered(status, Logged::Made)
}

impl Service for Web {
    type Outcome = Outcome;
    type Record = Box<Record>;
    type Command = Command;

    #[inline]
    fn answer(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange<'_>,
        outcome: Option<Outcome>,
        out: &mut Out,
    ) -> Answer<Box<Record>> {
        let mut to = Responder {
            request,
            exchange,
            out,
        };
        match self.decide(request, outcome, &mut to) {
            Decision::Deferred(hold) => Answer::Deferred(hold),
            Decision::Answered(status, logged) => {
                let log = self.log.as_ref();
                Answer::Ready(log.map(|_| Record::of(request, to.exchange, status, logged)))
            }
        }
    }

    fn body_use(&mut self, request: &Request<'_>, listener: ListenerId) -> BodyUse {
        if self.sites.any_routes && self.takes_body(request, listener) {
            return BodyUse::Streamed;
        }
        match request.method {
            Method::Get | Method::Head | Method::Options => BodyUse::Dropped,
            _ => BodyUse::Refused,
        }
    }

    fn refuse(
        &mut self,
        why: Refused,
        input: &[u8],
        exchange: &mut Exchange<'_>,
        out: &mut Out,
    ) -> Option<Box<Record>> {
        let status = crate::respond::refused(why, exchange, out);
        self.log
            .as_ref()
            .map(|_| Record::of_refused(input, exchange, status))
    }

    fn sent(&mut self, record: Box<Record>, body_len: u64, whole: bool, now_ms: u64) {
        if let Some(log) = &mut self.log {
            log.write(&record, body_len, whole, now_ms);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Sites(sites) => {
                self.calls.forget();
                self.sites = sites;
            }
            Command::Offer(offer) => self.offer(*offer),
        }
    }

    fn turn_ended(&mut self, _now_ms: u64) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
