//! The decision: from a request to its answer, top to bottom.
//!
//! The steps: site, client and class, access rules, method, redirects; then `lookup`: the stored object for the path,
//! its validity and its content coding; then `responder` writes the response. A file that is not in memory is loaded
//! by a helper thread, and the request resumes when the load ends.

mod admitted;
mod ask;
mod asked;
mod guarded;
mod inner;
mod inner_target;
mod lookup;
mod offer;
mod path;
mod programs;
mod purge;
mod understood;
mod wait;
mod world;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use lowroad_access_control::traffic_classes::Classes;
use lowroad_config::RequestPath;
use lowroad_engine::layer::Layer;
use lowroad_engine::pass_through::PassThrough;
use lowroad_engine::service::Refused;
use lowroad_engine::{Answer, Exchange, ListenerId, Response, Service};
use lowroad_http::h1::Head;
use lowroad_http::host;
use lowroad_http::method::Method;
use lowroad_http::request::{PartialRequest, Request, Target};
use lowroad_http::status::Status;
use lowroad_log::Logger;
use lowroad_response_cache::calls::Calls;
use lowroad_response_cache::outcome::Outcome;

use crate::access::{AccessLog, Record};
use crate::cache_counters::CacheCounters;
use crate::respond::Responder;
use crate::sites::{At, Site, Sites};
use admitted::admitted;
use asked::{Asked, Pending, Waiting, made};
use guarded::Stopped;
use lookup::Lookup;
use path::{decoded, may_have};
use wait::{WaitEnd, WaitsFor};

pub use asked::Decision;
pub use offer::Offer;
pub use world::{Fetched, Recalling, Step, World};

/// Serves the sites on one worker.
pub struct Web {
    sites: Arc<Sites>,
    calls: Calls,
    logger: Logger,
    log: Option<AccessLog>,
    cache_counters: Arc<CacheCounters>,
    scratch: Scratch,
}

/// Reusable buffers for keys and decoded paths.
#[derive(Default)]
pub struct Scratch {
    key: Vec<u8>,
    path: Vec<u8>,
}

/// Decides about one request.
pub struct Decider<'d, W> {
    pub sites: &'d Sites,
    /// The effects that are open to the decision: stored responses, loads, handler calls.
    pub world: &'d W,
    /// Receives the faults.
    pub logger: &'d Logger,
    /// Reusable buffers.
    pub scratch: &'d mut Scratch,
}

/// Sends nothing: the receiver learns from its drop that the command has been carried out.
pub type Unheard = Sender<Infallible>;

/// A change by an operator, or a request without a connection.
pub enum Command {
    /// Serve these sites from now on. The sender of the command waits for the signal's drop.
    Sites(Arc<Sites>, Unheard),
    /// Answer this request for the level below.
    Offer(Box<Offer>),
}

impl Web {
    /// Creates a service for `sites`; `calls` gives access to handlers and to the store.
    pub fn new(sites: Arc<Sites>, calls: Calls, logger: Logger, log: Option<AccessLog>) -> Web {
        Web {
            sites,
            calls,
            logger,
            log,
            cache_counters: Arc::default(),
            scratch: Scratch::default(),
        }
    }

    /// How the cache answered this worker's requests.
    pub fn cache_counters(&self) -> Arc<CacheCounters> {
        self.cache_counters.clone()
    }

    fn decider(&mut self) -> Decider<'_, Calls> {
        Decider {
            sites: &self.sites,
            world: &self.calls,
            logger: &self.logger,
            scratch: &mut self.scratch,
        }
    }

    /// Resumes a request that waited.
    fn answer_pending(
        &mut self,
        pending: Box<Pending>,
        outcome: Option<Outcome>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Answer<Box<Pending>, Box<Record>> {
        let Pending { request, waiting } = *pending;
        let request = request.get();
        let method = waiting.inner.as_ref().map(|inner| inner.asked().0);
        let mut to = Responder {
            request: &request,
            exchange,
            response,
        };
        let decision = self.decider().go_on(waiting, outcome, &mut to);
        match method.filter(|method| *method != request.method) {
            None => self.answered(decision, &request, exchange),
            // A rewritten request may run with another method; the log records the method that the client sent.
            Some(method) => {
                let mut asked = request.clone();
                asked.method = method;
                self.answered(decision, &asked, exchange)
            }
        }
    }

    fn answered(
        &mut self,
        decision: Decision,
        request: &Request<'_>,
        exchange: &Exchange,
    ) -> Answer<Box<Pending>, Box<Record>> {
        match decision {
            Decision::Deferred(pending) if matches!(pending.waiting.waits_for, WaitsFor::Body) => {
                Answer::AfterBody(pending)
            }
            Decision::Deferred(pending) => Answer::Deferred {
                gives_up: matches!(pending.waiting.waits_for, WaitsFor::Program { .. }),
                pending,
            },
            Decision::Answered(status, logged) => {
                self.cache_counters.count(logged);
                let log = self.log.as_mut();
                Answer::Ready(log.map(|log| log.record(request, exchange, status, logged)))
            }
        }
    }
}

impl<W: World> Decider<'_, W> {
    #[inline]
    pub fn decide(self, request: &Request<'_>, to: &mut Responder<'_, '_>) -> Decision {
        let mut name = [0; 256];
        let found = self
            .sites
            .find(to.exchange.listener, request.authority, &mut name);
        let Some(found) = found else {
            self.world.note(Step::NoSite);
            return made(to.refuse(None, Status::MISDIRECTED_REQUEST));
        };
        let (site, host) = (found.site, &name[..found.host_len]);
        self.world.note(Step::Site(site));
        if let Some(guard) = &site.guard
            && let Err(status) = guarded::identify_client(guard, self.world, site, to)
        {
            return made(status);
        }
        // RFC 9110 §15.5.20: the connection was made for a name with other certificates.
        if let Some(secured) = &to.exchange.secured
            && self
                .sites
                .is_misdirected(to.exchange.listener, secured, request.authority)
        {
            self.world.note(Step::OtherCertificate);
            return made(to.refuse(None, Status::MISDIRECTED_REQUEST));
        }
        let forwarded = to.exchange.forwarded.clone();
        let reported = forwarded.as_ref().and_then(|it| it.authority.as_deref());
        let mut client_request;
        let request = match reported {
            None => request,
            // The proxy's authority has selected the site; the rest of the decision uses the client's authority.
            Some(authority) => {
                client_request = request.clone();
                client_request.authority = Some(authority);
                &client_request
            }
        };
        let to = &mut Responder {
            request,
            exchange: to.exchange,
            response: to.response,
        };
        let reads = matches!(request.method, Method::Get | Method::Head);
        let (path, query, plain) = match request.target {
            Target::Origin { path, query, plain } => (path, query, plain),
            _ if reads => {
                self.world.note(Step::BadTarget("the target is no path"));
                return made(to.refuse(Some(At { site, path: b"/" }), Status::BAD_REQUEST));
            }
            _ => return made(to.other_method(At { site, path: b"/" })),
        };
        // A path that no file can have (such as one with an encoded slash) may still be a handler's.
        let mut is_for_files = true;
        let raw_path = path;
        let path = if plain {
            raw_path
        } else {
            self.scratch.path.resize(raw_path.len(), 0);
            match decoded(site, raw_path, &mut self.scratch.path) {
                Ok((path, is_plain)) => {
                    is_for_files = is_plain;
                    path
                }
                Err(refusal) => {
                    self.world.note(Step::BadTarget(refusal.as_str()));
                    return made(to.refuse_target(At { site, path: b"/" }, refusal));
                }
            }
        };
        // Before the redirect to https: certificate authorities ask for challenges in plain text (RFC 8555 §8.3).
        if let Some(token) = path.strip_prefix(CHALLENGES)
            && let Some(answer) = self.sites.challenge(token)
        {
            return made(to.text(&answer));
        }
        if !to.exchange.is_https()
            && let Some(location) = to_tls(self.sites, site, to)
        {
            self.world.note(Step::Redirect(&location));
            return made(to.redirect_to_tls(&location));
        }
        let asked = Asked {
            site,
            host: if site.rules.per_host() { host } else { &[] },
            path,
            raw_path,
            matches: site
                .rules
                .match_request_path(RequestPath::new(raw_path, path), is_for_files),
            query,
            is_for_files,
            is_fallback: false,
            inner: None,
        };
        if !may_have(&asked.matches, to.exchange) {
            self.world.note(Step::NoClientCertificate);
            return made(to.refuse(Some(asked.at()), Status::FORBIDDEN));
        }
        if request.method == Method::Purge
            && (!site.rules.config.purge_from.is_empty() || site.routes.is_empty())
        {
            return purge::answer(self.world, &asked, to);
        }
        if let Some(classes) = &self.sites.classes
            && let Err(status) = in_class(classes, self.world, asked.at(), to)
        {
            return made(status);
        }
        if let Some(guard) = &site.guard {
            match guarded::pass(guard, 0, self.world, asked.passing(), to) {
                Ok(()) => {}
                Err(Stopped::Answered(status)) => return made(status),
                Err(Stopped::Waits(rule)) => return asked.wait_for_password(to, rule),
            }
        }
        let lookup = Lookup {
            sites: self.sites,
            world: self.world,
            logger: self.logger,
            key: &mut self.scratch.key,
        };
        admitted(lookup, &asked, to)
    }

    /// Resumes the decision where the request had to wait.
    fn go_on(
        self,
        mut pending: Waiting,
        outcome: Option<Outcome>,
        to: &mut Responder<'_, '_>,
    ) -> Decision {
        let (raw_path, query) = match (&pending.inner, to.request.target) {
            (Some(inner), _) => (inner.path(), inner.query()),
            (None, Target::Origin { path, query, .. }) => (path, query),
            (None, _) => (&*pending.path, None),
        };
        let path = RequestPath::new(raw_path, &pending.path);
        let asked = Asked {
            site: &pending.site,
            host: &pending.host,
            path: &pending.path,
            raw_path,
            matches: pending
                .site
                .rules
                .match_request_path(path, pending.is_for_files),
            query,
            is_for_files: pending.is_for_files,
            is_fallback: pending.is_fallback,
            inner: pending.inner.as_ref(),
        };
        let mut lookup = Lookup {
            sites: self.sites,
            world: self.world,
            logger: self.logger,
            key: &mut self.scratch.key,
        };
        let Some(end) = pending.waits_for.end(outcome) else {
            // Refused, not resumed: a wrong event must not let a request pass that waits for its password check.
            let what = "a request was woken by what it did not wait for";
            self.logger
                .error(format_args!("{what}: a fault of the server"));
            return made(to.refuse(Some(asked.at()), Status::INTERNAL_ERROR));
        };
        match end {
            WaitEnd::File { body, loaded } => {
                to.exchange.body = body;
                lookup.loaded(&asked, loaded, to)
            }
            WaitEnd::Reply { route, reply } => {
                lookup.replied(&asked, route, reply.map(|reply| *reply), to)
            }
            WaitEnd::Stored {
                route,
                path,
                is_variant,
                stored,
            } => lookup.stored(&asked, (path, route), (stored, is_variant), to),
            WaitEnd::Unshared { route, path } => lookup.call_alone(&asked, path, route, to),
            WaitEnd::Disk { route, path, next } => {
                lookup.ask_in_turn(&asked, path, route, next, to)
            }
            WaitEnd::Purge { are_kept } => purge::told(asked.at(), are_kept, to),
            WaitEnd::Password {
                body,
                rule,
                checked,
            } => {
                to.exchange.body = body;
                let Some(guard) = &asked.site.guard else {
                    return made(to.refuse(Some(asked.at()), Status::INTERNAL_ERROR));
                };
                let world = lookup.world;
                match guarded::go_on(guard, (rule, checked), world, asked.passing(), to) {
                    Ok(()) => admitted(lookup, &asked, to),
                    Err(Stopped::Answered(status)) => made(status),
                    Err(Stopped::Waits(rule)) => asked.wait_for_password(to, rule),
                }
            }
            WaitEnd::Body => lookup.serve(&asked, to),
        }
    }
}

/// The status in the log if the client closed its connection before the response (as in nginx).
const CLIENT_GONE: Status = Status::new(499).expect("within the range");

/// Timeout for connecting to the server of a connection that is passed through.
const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// The path prefix at which a certificate authority validates that this server owns a name (RFC 8555 §8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// Finds the class of a request and takes one request of the class's rate; answers the request if the rate is exceeded.
#[inline(never)]
fn in_class(
    classes: &Arc<Classes>,
    world: &impl World,
    at: At<'_>,
    to: &mut Responder<'_, '_>,
) -> Result<(), Status> {
    let chosen = classes.choose(to.request, at.path, to.exchange.peer);
    world.note(Step::Class(&chosen));
    let taken = world.take(chosen.class(), to.exchange.now_ms);
    taken.map_err(|retry_after_s| to.refuse_often(at, retry_after_s))
}

/// The https location for a request in plain text, if its site redirects to TLS.
fn to_tls(sites: &Sites, site: &Site, to: &Responder<'_, '_>) -> Option<Vec<u8>> {
    site.rules.config.tls.as_ref().filter(|tls| tls.redirect)?;
    let request = to.request;
    let mut name = [0; 256];
    // Without an authority there is no host name to redirect to.
    let host = host::normalize(request.authority?, &mut name)?;
    let mut location = match &to.exchange.forwarded {
        // The client connects to the proxy, which listens on the default port.
        Some(forwarded) if forwarded.is_https.is_some() => [b"https://", host].concat(),
        _ => sites.over_tls(site, host)?,
    };
    let Target::Origin { path, query, .. } = request.target else {
        return None;
    };
    location.extend_from_slice(path);
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Some(location)
}

/// The site of a refused request, and its path ("/" if it can't be decoded).
fn site_of<'s>(
    sites: &'s Sites,
    listener: ListenerId,
    partial: &PartialRequest<'s>,
    scratch: &'s mut Vec<u8>,
) -> Option<At<'s>> {
    let mut name = [0; 256];
    let site = sites.find(listener, partial.authority, &mut name)?.site;
    let raw_path = partial.path().unwrap_or(b"/");
    scratch.resize(raw_path.len(), 0);
    let path = match decoded(site, raw_path, scratch) {
        Ok((path, _)) => path,
        Err(_) => b"/",
    };
    Some(At { site, path })
}

impl Service for Web {
    type Pending = Box<Pending>;
    type Outcome = Outcome;
    type Record = Box<Record>;
    type Command = Command;

    fn has_layer(&self, listener: ListenerId) -> bool {
        self.sites.offer(listener).is_some()
    }

    fn layer(&mut self, listener: ListenerId) -> Option<Box<dyn Layer>> {
        self.sites.offer(listener).map(|offer| offer.layer())
    }

    #[inline]
    fn pass_through(
        &mut self,
        listener: ListenerId,
        head: Option<&Head<'_>>,
    ) -> Option<PassThrough> {
        let way = self.sites.pass_through(listener)?;
        let is_understood =
            head.is_some_and(|head| understood::is_understood(head, &mut self.scratch.path));
        (!is_understood).then_some(PassThrough {
            to: way.to,
            from: Some(way.from),
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            idle_timeout_ms: way.idle_timeout_ms,
        })
    }

    fn passed_through(
        &mut self,
        head: Option<&Head<'_>>,
        input: &[u8],
        exchange: &Exchange,
    ) -> Option<Box<Record>> {
        let log = self.log.as_mut()?;
        Some(log.record_passed(head.map(|head| &head.request), input, exchange))
    }

    #[inline]
    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Answer<Box<Pending>, Box<Record>> {
        if let Some(log) = &self.log {
            log.mark_start(exchange);
        }
        let mut to = Responder {
            request,
            exchange,
            response,
        };
        let decision = self.decider().decide(request, &mut to);
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
        partial: &PartialRequest<'_>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Option<Box<Record>> {
        let at = match why {
            Refused::Request(_) | Refused::Timeout => site_of(
                &self.sites,
                exchange.listener,
                partial,
                &mut self.scratch.path,
            ),
            Refused::Overload | Refused::ClearText => None,
        };
        let status = crate::respond::refused(why, at, response);
        self.log
            .as_mut()
            .map(|log| log.record_refused(partial, exchange, status))
    }

    fn refuse_pending(
        &mut self,
        why: Refused,
        pending: Box<Pending>,
        exchange: &mut Exchange,
        response: &mut Response<'_>,
    ) -> Option<Box<Record>> {
        let at = At {
            site: &pending.waiting.site,
            path: &pending.waiting.path,
        };
        let status = crate::respond::refused(why, Some(at), response);
        self.cache_counters.count(crate::access::Outcome::Made);
        let log = self.log.as_mut();
        log.map(|log| {
            log.record(
                &pending.request.get(),
                exchange,
                status,
                crate::access::Outcome::Made,
            )
        })
    }

    fn abandoned(&mut self, pending: Box<Pending>, exchange: &mut Exchange) {
        // The request may have waited for any event; the store has not answered it, so it counts as passed.
        self.cache_counters.count(crate::access::Outcome::Passed);
        let Some(log) = &mut self.log else {
            return;
        };
        let request = pending.request.get();
        let record = log.record(
            &request,
            exchange,
            CLIENT_GONE,
            crate::access::Outcome::Miss,
        );
        log.write(record, 0, false, exchange.now_ms);
    }

    fn misintroduced(&mut self, proxy: IpAddr, why: &'static str) {
        let proxy = proxy.to_canonical();
        // The logger counts repeated messages, so that a proxy can't flood the log.
        self.logger
            .warn(format_args!("connection from {proxy} closed: {why}"));
    }

    fn sent(&mut self, record: Box<Record>, body_len: u64, whole: bool, now_ms: u64) {
        if let Some(log) = &mut self.log {
            log.write(record, body_len, whole, now_ms);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Sites(sites, unheard) => {
                // The calls keep the last site's objects, which would keep an old site alive.
                self.calls.forget();
                self.sites = sites;
                drop(unheard);
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
