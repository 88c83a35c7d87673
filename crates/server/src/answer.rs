//! The decision: from a request to its answer, top to bottom.
//!
//! Which site; which method; a redirect; what is stored for the path, and whether it may still be
//! trusted; which encoding; then `respond` writes it. What is not in memory is fetched by a helper
//! and the request comes again.

mod offer;

use std::sync::Arc;

use lowroad_dynamic::Failure;
use lowroad_engine::service::Refused;
use lowroad_engine::stream::Receiver;
use lowroad_engine::{Answer, Exchange, Response, Service};
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::limits::Limits;
use lowroad_http::method::Method;
use lowroad_http::request::{Parsed, Request, Target, parse};
use lowroad_http::status::Status;
use lowroad_http::target;
use lowroad_log::Logger;

use crate::access::{AccessLog, Outcome as Logged, Record};
use crate::dynamic::calls::{self, Started};
use crate::dynamic::reply::Reply;
use crate::dynamic::routes;
use crate::dynamic::{Calls, Route};
use crate::fetch::Loaded;
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
    /// What is stored for it now.
    Loaded(Loaded),
    /// What a program answered.
    Reply(Result<Box<Reply>, Failure>),
}

/// What the decision came to.
enum Decision {
    /// The answer was written.
    Answered(Status, Logged),
    /// It will be possible later.
    Deferred(Box<Pending>),
}

/// A request that waits, with all that was decided about it.
pub struct Pending {
    /// Its head, to be read again: fields decide what exactly is sent.
    head: Vec<u8>,
    site: Arc<Site>,
    host: Box<[u8]>,
    path: Box<[u8]>,
    waits_for: WaitsFor,
}

/// What a request waits for.
enum WaitsFor {
    /// A helper, that loads what is not in memory. The body may be for a program, if there is no file.
    File { body: Option<Receiver> },
    /// A program, that is told by a drop that nobody waits any more.
    Program { _hold: Box<dyn Send> },
    /// The end of a body that nobody wants.
    Body,
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
    fn decide(&mut self, request: &Request<'_>, to: &mut Responder<'_, '_>) -> Decision {
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
        if routes::takes(request.method)
            && let Some(route) = site.routes.of(path)
        {
            return web.call(&asked, path, route, to);
        }
        // A path without a file may still belong to a program. Else nobody wants the body.
        if to.exchange.body.is_some() && !web.may_be_for_program(&asked) {
            match reads {
                true if to.exchange.is_body_coming => return asked.wait(request, WaitsFor::Body),
                true => {}
                false => to.response.close(),
            }
        }
        if !reads && site.routes.is_empty() {
            return made(to.other_method(asked.at()));
        }
        web.serve(&asked, None, to)
    }

    /// Goes on where the request had to wait.
    fn go_on(
        &mut self,
        pending: &mut Pending,
        outcome: Option<Outcome>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let query = match to.request.target {
            Target::Origin { query, .. } => query,
            _ => None,
        };
        let asked = Asked {
            site: &pending.site,
            host: &pending.host,
            path: &pending.path,
            query,
        };
        let web = Lookup {
            sites: &self.sites,
            calls: &self.calls,
            logger: &self.logger,
            key: &mut self.scratch.key,
        };
        match outcome {
            Some(Outcome::Loaded(loaded)) => {
                if let WaitsFor::File { body } = &mut pending.waits_for {
                    to.exchange.body = body.take();
                }
                web.serve(&asked, Some(loaded), to)
            }
            Some(Outcome::Reply(reply)) => web.replied(&asked, reply.map(|reply| *reply), to),
            None => web.serve(&asked, None, to),
        }
    }

    /// Reads the request again and goes on with it.
    fn answer_pending(
        &mut self,
        mut pending: Box<Pending>,
        outcome: Option<Outcome>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Answer<Box<Pending>, Box<Record>> {
        let head = std::mem::take(&mut pending.head);
        // It was within the limits when it came.
        let limits = Limits {
            head_len_max: usize::MAX,
            target_len_max: usize::MAX,
            fields_max: u16::MAX,
            ..Limits::default()
        };
        let Ok(Parsed::Complete(request)) = parse(&head, &limits) else {
            return Answer::Ready(self.refuse(Refused::Timeout, &head, exchange, response));
        };
        let mut to = Responder {
            request: &request,
            exchange,
            response,
        };
        let decision = self.go_on(&mut pending, outcome, &mut to);
        self.answered(decision, &request, exchange)
    }

    fn answered(
        &self,
        decision: Decision,
        request: &Request<'_>,
        exchange: &Exchange,
    ) -> Answer<Box<Pending>, Box<Record>> {
        match decision {
            Decision::Deferred(pending) if matches!(pending.waits_for, WaitsFor::Body) => {
                Answer::AfterBody(pending)
            }
            Decision::Deferred(pending) => Answer::Deferred {
                gives_up: matches!(pending.waits_for, WaitsFor::Program { .. }),
                pending,
            },
            Decision::Answered(status, logged) => {
                let log = self.log.as_ref();
                Answer::Ready(log.map(|_| Record::of(request, exchange, status, logged)))
            }
        }
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

    /// Keeps what was decided until it can be gone on with.
    fn wait(&self, request: &Request<'_>, waits_for: WaitsFor) -> Decision {
        Decision::Deferred(Box::new(Pending {
            head: [request.line(), b"\r\n", request.lines(), b"\r\n"].concat(),
            site: self.site.clone(),
            host: self.host.into(),
            path: self.path.into(),
            waits_for,
        }))
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
    /// Whether a path that is no program's may turn out to be one's.
    fn may_be_for_program(&self, asked: &Asked<'_>) -> bool {
        let routes = &asked.site.routes;
        !routes.is_empty()
            && (routes.of_missing(asked.path).is_some() || asked.path.ends_with(b"/"))
    }

    #[inline]
    fn serve(
        mut self,
        asked: &Asked<'_>,
        loaded: Option<Loaded>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let now_ms = to.exchange.now_ms;
        let logged = if loaded.is_some() {
            Logged::Miss
        } else {
            Logged::Hit
        };
        let (base, encoded) = match loaded {
            Some(loaded) => (loaded.base, loaded.encoded),
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
        to: &mut Responder<'_, '_>,
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
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let call = calls::Asked {
            site: asked.site,
            host: asked.host,
            path,
            local: self.sites.address(to.exchange.listener),
            request: to.request,
        };
        match self.calls.start(&call, route, to.exchange) {
            Started::Runs(hold) => asked.wait(to.request, WaitsFor::Program { _hold: hold }),
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
        to: &mut Responder<'_, '_>,
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
        to: &mut Responder<'_, '_>,
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
        let (post, token) = (self.calls.post.clone(), to.exchange.token);
        match self.calls.fetcher.fetch(want, post, token) {
            Ok(()) => {
                let body = to.exchange.body.take();
                asked.wait(to.request, WaitsFor::File { body })
            }
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
    type Pending = Box<Pending>;
    type Outcome = Outcome;
    type Record = Box<Record>;
    type Command = Command;

    #[inline]
    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Answer<Box<Pending>, Box<Record>> {
        let mut to = Responder {
            request,
            exchange,
            response,
        };
        let decision = self.decide(request, &mut to);
        self.answered(decision, request, exchange)
    }

    fn resume(
        &mut self,
        pending: Box<Pending>,
        outcome: Outcome,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Answer<Box<Pending>, Box<Record>> {
        self.answer_pending(pending, Some(outcome), exchange, response)
    }

    fn body_dropped(
        &mut self,
        pending: Box<Pending>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Answer<Box<Pending>, Box<Record>> {
        self.answer_pending(pending, None, exchange, response)
    }

    fn refuse(
        &mut self,
        why: Refused,
        input: &[u8],
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Option<Box<Record>> {
        let status = crate::respond::refused(why, response);
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
