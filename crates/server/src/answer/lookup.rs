//! What is stored for a request, whether it may be trusted, and in which encoding; else a helper is asked, or a program.
//! Knows the site already.

use std::sync::Arc;

use lowroad_dynamic::Failure;
use lowroad_engine::stream::Receiver;
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::method::Method;
use lowroad_http::request::Request;
use lowroad_http::status::Status;
use lowroad_http::target;
use lowroad_log::Logger;

use crate::access::Outcome as Logged;
use crate::dynamic::calls::{self, Started};
use crate::dynamic::reply::Reply;
use crate::dynamic::routes;
use crate::dynamic::{Calls, Route};
use crate::fetch::Loaded;
use crate::load::Want;
use crate::respond::Responder;
use crate::sites::{At, Site, Sites};
use crate::stored::{Kind, Representation, Stored};

/// What the decision came to.
pub enum Decision {
    /// The answer was written.
    Answered(Status, Logged),
    /// It will be possible later.
    Deferred(Box<Pending>),
}

/// A request that waits, with all that was decided about it.
pub struct Pending {
    /// Its head, to be read again: fields decide what exactly is sent.
    pub head: Vec<u8>,
    /// The site.
    pub site: Arc<Site>,
    /// See [`Asked`].
    pub host: Box<[u8]>,
    /// Decoded.
    pub path: Box<[u8]>,
    /// What for.
    pub waits_for: WaitsFor,
}

/// What a request waits for.
pub enum WaitsFor {
    /// A helper, that loads what is not in memory. The body may be for a program, if there is no file.
    File {
        /// The request's.
        body: Option<Receiver>,
    },
    /// A program, that is told by a drop that nobody waits any more.
    Program {
        /// Tells it.
        _hold: Box<dyn Send>,
    },
    /// The end of a body that nobody wants.
    Body,
}

/// What a request is for, once its site is known.
pub struct Asked<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// The normalised host name, where each has a folder of its own; else empty.
    pub host: &'a [u8],
    /// Decoded.
    pub path: &'a [u8],
    /// As it came.
    pub query: Option<&'a [u8]>,
}

impl Asked<'_> {
    /// Which site's rules count, and for what.
    pub fn at(&self) -> At<'_> {
        At {
            site: self.site,
            path: self.path,
        }
    }

    /// Keeps what was decided until it can be gone on with.
    pub fn wait(&self, request: &Request<'_>, waits_for: WaitsFor) -> Decision {
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
pub struct Lookup<'w> {
    /// All sites.
    pub sites: &'w Sites,
    /// The way to programs and to what is stored.
    pub calls: &'w Calls,
    /// For what goes wrong.
    pub logger: &'w Logger,
    /// Where keys are put together.
    pub key: &'w mut Vec<u8>,
}

impl Lookup<'_> {
    /// Whether a path that is no program's may turn out to be one's.
    pub fn may_be_for_program(&self, asked: &Asked<'_>) -> bool {
        let routes = &asked.site.routes;
        !routes.is_empty()
            && (routes.of_missing(asked.path).is_some() || asked.path.ends_with(b"/"))
    }

    /// Answers with what is stored, or has it loaded.
    #[inline]
    pub fn serve(
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
    pub fn call(
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

    /// Answers with what a program has answered.
    pub fn replied(
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

/// An answer that was made for this request.
pub fn made(status: Status) -> Decision {
    Decision::Answered(status, Logged::Made)
}
