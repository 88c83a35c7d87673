//! The decision: from a request to its answer, top to bottom.
//!
//! Which site; which method; a redirect; what is stored for the path, and whether it may still be
//! trusted; which encoding; then `respond` writes it. What is not in memory is fetched by a helper
//! and the request comes again.

use std::sync::Arc;

use lowroad_engine::service::Refused;
use lowroad_engine::{Answer, Exchange, Out, Service};
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::method::Method;
use lowroad_http::request::{Request, Target};
use lowroad_http::status::Status;
use lowroad_http::target;

use crate::access::{AccessLog, Outcome as Logged, Record};
use crate::fetch::{Fetcher, Outcome, Reply};
use crate::load::Want;
use crate::respond::Responder;
use crate::sites::{At, Site, Sites};
use crate::store::SharedStore;
use crate::stored::{Kind, Representation, Stored};

/// Serves the sites: the service of one worker.
pub struct Web {
    sites: Arc<Sites>,
    store: Arc<SharedStore>,
    fetcher: Arc<Fetcher>,
    reply: Reply,
    log: Option<AccessLog>,
    /// Where keys are put together and paths decoded.
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    key: Vec<u8>,
    path: Vec<u8>,
}

/// An operator's change.
pub enum Command {
    /// Serve these from now on.
    Sites(Arc<Sites>),
}

/// What the decision came to.
enum Decision {
    /// The answer was written.
    Answered(Status, Logged),
    /// It will be possible later.
    Deferred,
}

impl Web {
    /// A service for `sites`; `reply` brings outcomes to its worker.
    pub fn new(
        sites: Arc<Sites>,
        store: Arc<SharedStore>,
        fetcher: Arc<Fetcher>,
        reply: Reply,
        log: Option<AccessLog>,
    ) -> Web {
        Web {
            sites,
            store,
            fetcher,
            reply,
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
        if !reads {
            return made(to.other_method(At { site, path }));
        }
        let host = if site.per_host() { host } else { &[] };
        let asked = Asked {
            site,
            host,
            path,
            query,
        };
        let web = Lookup {
            store: &self.store,
            fetcher: &self.fetcher,
            reply: &self.reply,
            key: &mut self.scratch.key,
        };
        web.serve(&asked, outcome, to)
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

/// Finds what is stored, or has it fetched.
struct Lookup<'w> {
    store: &'w SharedStore,
    fetcher: &'w Arc<Fetcher>,
    reply: &'w Reply,
    key: &'w mut Vec<u8>,
}

impl Lookup<'_> {
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
            Some(outcome) => (outcome.base, outcome.encoded),
            None => {
                let hash = self.key_of(asked, Encoding::Identity);
                match self.store.find(hash, self.key) {
                    Some(stored) if stored.fresh(now_ms) => (stored, None),
                    stale => return self.fetch(asked, Encoding::Identity, hash, stale, to),
                }
            }
        };
        let identity = match &base.kind {
            Kind::Representation(representation) => representation,
            Kind::Folder => {
                let location = folder_location(asked.path, asked.query);
                let status = Status::MOVED_PERMANENTLY;
                return Decision::Answered(to.redirect(asked.at(), status, &location), logged);
            }
            Kind::Refused(status) => {
                return Decision::Answered(to.refuse(Some(asked.at()), *status), logged);
            }
        };
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
        let stored = self.store.find(hash, self.key);
        match stored
            .as_deref()
            .and_then(|stored| made_of(stored, identity))
        {
            Some(encoded) => Decision::Answered(to.send(asked.at(), encoded), logged),
            None => self.fetch(asked, wanted, hash, Some(base), to),
        }
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
        match self
            .fetcher
            .fetch(want, self.reply.clone(), to.exchange.token)
        {
            Ok(()) => Decision::Deferred,
            Err(_) => made(to.refuse(Some(asked.at()), Status::SERVICE_UNAVAILABLE)),
        }
    }

    #[inline]
    fn key_of(&mut self, asked: &Asked<'_>, encoding: Encoding) -> u64 {
        write_key(self.key, asked.site, asked.host, asked.path, encoding);
        self.store.hash(self.key)
    }
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
            Decision::Deferred => Answer::Deferred,
            Decision::Answered(status, logged) => {
                let log = self.log.as_ref();
                Answer::Ready(log.map(|_| Record::of(request, to.exchange, status, logged)))
            }
        }
    }

    fn refuses_body(&self, request: &Request<'_>) -> bool {
        !matches!(request.method, Method::Get | Method::Head | Method::Options)
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
            Command::Sites(sites) => self.sites = sites,
        }
    }

    fn turn_ended(&mut self, _now_ms: u64) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
