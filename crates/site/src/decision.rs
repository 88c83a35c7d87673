//! The decision: from a request to its answer, top to bottom.
//!
//! The steps: site, client and class, access rules, method, redirects; then `lookup`: the stored object for the path,
//! its validity and its content coding; then `responder` writes the response. A file that is not in memory is loaded
//! by a helper thread, and the request resumes when the load ends.

mod access;
mod context;
mod deferral;
mod effects;
mod handler_request;
mod handling;
mod internal_redirect;
mod level_offer;
mod lookup;
mod path;
mod programs;
mod proxy_scope;
mod purge;
mod rewritten_target;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use lowroad_access_control::traffic_classes::ClassTable;
use lowroad_config::RequestPath;
use lowroad_engine::pass_through::PassThroughTarget;
use lowroad_engine::service::ConnectionRefusal;
use lowroad_engine::tls_session::TlsSession;
use lowroad_engine::{Exchange, HttpService, ListenerId, ResponseWriter, ServiceOutcome};
use lowroad_http::h1::H1RequestHead;
use lowroad_http::host;
use lowroad_http::method::Method;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_log::ErrorLogger;
use lowroad_response_cache::calls::HandlerCalls;
use lowroad_response_cache::handler_outcome::HandlerOutcome;

use crate::access::{RequestOutcome, WorkerAccessLog};
use crate::cache_counters::CacheCounters;
use crate::request_metrics::{MetricsRecorder, RequestMetrics, ResponseRecord};
use crate::responder::RequestResponder;
use crate::sites::{Site, SitePath, SiteTable};
use access::{AccessRefusal, CheckedPassword};
use context::{PendingRequest, RequestContext, RoutedPath, WaitContext, generated_response};
use deferral::{WaitEnd, WaitReason};
use handling::admitted;
use lookup::ResponseLookup;
use path::{decoded, may_have};

pub use context::RequestDecision;
pub use effects::{DiskRecall, Effects, LoadProgress, TraceEvent};
pub use level_offer::LevelOffer;

/// Serves the sites on one worker.
pub struct SiteService {
    sites: Arc<SiteTable>,
    calls: HandlerCalls,
    logger: ErrorLogger,
    log: Option<WorkerAccessLog>,
    cache_counters: Arc<CacheCounters>,
    metrics: MetricsRecorder,
    scratch: DecisionScratch,
}

/// Reusable buffers for keys and decoded paths.
#[derive(Default)]
pub struct DecisionScratch {
    key: Vec<u8>,
    path: Vec<u8>,
}

/// Decides about one request.
pub struct RequestDecider<'d, W> {
    /// All sites.
    pub sites: &'d SiteTable,
    /// The effects that are open to the decision: stored responses, loads, handler calls.
    pub world: &'d W,
    /// Receives the faults.
    pub logger: &'d ErrorLogger,
    /// Reusable buffers.
    pub scratch: &'d mut DecisionScratch,
}

/// Sends nothing: the receiver learns from its drop that the command has been carried out.
pub type DoneSignal = Sender<Infallible>;

/// A change by an operator, or a request without a connection.
pub enum WorkerCommand {
    /// Serve these sites from now on. The sender of the command waits for the signal's drop.
    Sites(Arc<SiteTable>, DoneSignal),
    /// Answer this request for the level below.
    Offer(Box<LevelOffer>),
}

impl SiteService {
    /// Creates a service for `sites`; `calls` gives access to handlers and to the store.
    pub fn new(
        sites: Arc<SiteTable>,
        calls: HandlerCalls,
        logger: ErrorLogger,
        log: Option<WorkerAccessLog>,
    ) -> SiteService {
        SiteService {
            sites,
            calls,
            logger,
            log,
            cache_counters: Arc::default(),
            metrics: MetricsRecorder::default(),
            scratch: DecisionScratch::default(),
        }
    }

    /// How the cache answered this worker's requests.
    pub fn cache_counters(&self) -> Arc<CacheCounters> {
        self.cache_counters.clone()
    }

    /// This worker's metrics of requests.
    pub fn request_metrics(&self) -> Arc<RequestMetrics> {
        self.metrics.metrics()
    }

    fn decider(&mut self) -> RequestDecider<'_, HandlerCalls> {
        RequestDecider {
            sites: &self.sites,
            world: &self.calls,
            logger: &self.logger,
            scratch: &mut self.scratch,
        }
    }

    /// Resumes a request that waited.
    fn answer_pending(
        &mut self,
        pending: Box<PendingRequest>,
        outcome: Option<HandlerOutcome>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        let PendingRequest { request, waiting } = *pending;
        let request = request.get();
        let method = waiting.inner.as_ref().map(|inner| inner.asked().0);
        let mut to = RequestResponder {
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
        decision: RequestDecision,
        request: &Request<'_>,
        exchange: &Exchange,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        match decision {
            RequestDecision::Deferred(pending)
                if matches!(pending.waiting.waits_for, WaitReason::Body) =>
            {
                ServiceOutcome::AfterBody(pending)
            }
            RequestDecision::Deferred(pending) => ServiceOutcome::Deferred {
                // Only a handler's call is worth cancelling when the client leaves.
                gives_up: matches!(pending.waiting.waits_for, WaitReason::Program { .. }),
                pending,
            },
            RequestDecision::Answered(status, logged) => {
                self.cache_counters.count(logged);
                let log = self.log.as_mut();
                let access = log.map(|log| log.record(request, exchange, status, logged));
                let record = self.metrics.record(exchange, status, logged, access);
                ServiceOutcome::Ready(Some(record))
            }
        }
    }
}

impl<W: Effects> RequestDecider<'_, W> {
    /// Decides about a request: responds, defers it, or closes the connection.
    #[inline]
    pub fn decide(
        self,
        request: &Request<'_>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let mut name = [0; 256];
        let found = self
            .sites
            .find(to.exchange.listener, request.authority, &mut name);
        let Some(found) = found else {
            self.world.trace(TraceEvent::NoSite);
            return generated_response(to.refuse(None, StatusCode::MISDIRECTED_REQUEST));
        };
        let (site, host) = (found.site, &name[..found.host_len]);
        to.exchange.metric_scope = site.metric_scope.number();
        self.world.trace(TraceEvent::Site(site));
        if let Some(guard) = &site.guard
            && let Err(status) = access::identify_client(guard, self.world, site, to)
        {
            return generated_response(status);
        }
        // RFC 9110 §15.5.20: the connection was made for a name with other certificates.
        if let Some(secured) = &to.exchange.secured
            && self
                .sites
                .is_misdirected(to.exchange.listener, secured, request.authority)
        {
            self.world.trace(TraceEvent::OtherCertificate);
            return generated_response(to.refuse(None, StatusCode::MISDIRECTED_REQUEST));
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
        let to = &mut RequestResponder {
            request,
            exchange: to.exchange,
            response: to.response,
        };
        let reads = matches!(request.method, Method::Get | Method::Head);
        let (path, query, plain) = match request.target {
            RequestTarget::Origin { path, query, plain } => (path, query, plain),
            _ if reads => {
                self.world
                    .trace(TraceEvent::BadTarget("the target is not a path"));
                return generated_response(
                    to.refuse(Some(SitePath { site, path: b"/" }), StatusCode::BAD_REQUEST),
                );
            }
            _ => return generated_response(to.other_method(SitePath { site, path: b"/" })),
        };
        // A path that no file can have (such as one with an encoded slash) may still be a handler's.
        let mut is_for_files = true;
        let raw_path = path;
        let path = if plain {
            raw_path
        } else {
            // A decoded path is never longer.
            self.scratch.path.resize(raw_path.len(), 0);
            match decoded(site, raw_path, &mut self.scratch.path) {
                Ok((path, is_plain)) => {
                    is_for_files = is_plain;
                    path
                }
                Err(refusal) => {
                    self.world.trace(TraceEvent::BadTarget(refusal.as_str()));
                    return generated_response(
                        to.refuse_target(SitePath { site, path: b"/" }, refusal),
                    );
                }
            }
        };
        // Before the redirect to https: certificate authorities ask for challenges in plain text (RFC 8555 §8.3).
        if let Some(token) = path.strip_prefix(CHALLENGES)
            && let Some(answer) = self.sites.challenge(token)
        {
            return generated_response(to.text(&answer));
        }
        if !to.exchange.is_https()
            && let Some(location) = to_tls(self.sites, site, to)
        {
            self.world.trace(TraceEvent::Redirect(&location));
            return generated_response(to.redirect_to_tls(&location));
        }
        let asked = RequestContext {
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
        // Before the access rules: no password is verified for a client without the certificate.
        if !may_have(&asked.matches, to.exchange) {
            self.world.trace(TraceEvent::NoClientCertificate);
            return generated_response(to.refuse(Some(asked.at()), StatusCode::FORBIDDEN));
        }
        if request.method == Method::Purge
            // Otherwise a handler may answer PURGE itself.
            && (!site.rules.config.purge_from.is_empty() || site.routes.is_empty())
        {
            return purge::answer(self.world, &asked, to);
        }
        // Before the access rules: refusals count against the class's rate, too.
        if let Some(classes) = &self.sites.classes
            && let Err(status) = in_class(classes, self.world, asked.at(), to)
        {
            return generated_response(status);
        }
        if let Some(guard) = &site.guard {
            match access::pass(guard, 0, self.world, asked.passing(), to) {
                Ok(()) => {}
                Err(AccessRefusal::Answered(status)) => return generated_response(status),
                Err(AccessRefusal::Waits(rule)) => return asked.wait_for_password(to, rule),
            }
        }
        let lookup = ResponseLookup {
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
        mut pending: WaitContext,
        outcome: Option<HandlerOutcome>,
        to: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // The target of the wait: after a rewrite, it is not the request's.
        let (raw_path, query) = match (&pending.inner, to.request.target) {
            (Some(inner), _) => (inner.path(), inner.query()),
            (None, RequestTarget::Origin { path, query, .. }) => (path, query),
            (None, _) => (&*pending.path, None),
        };
        let path = RequestPath::new(raw_path, &pending.path);
        let asked = RequestContext {
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
        let mut lookup = ResponseLookup {
            sites: self.sites,
            world: self.world,
            logger: self.logger,
            key: &mut self.scratch.key,
        };
        let Some(end) = pending.waits_for.end(outcome) else {
            // Refused, not resumed: a wrong event must not let a request pass that waits for its password check.
            let what = "a request was resumed by an event that it did not wait for";
            self.logger.error(format_args!("internal error: {what}"));
            return generated_response(to.refuse(Some(asked.at()), StatusCode::INTERNAL_ERROR));
        };
        match end {
            WaitEnd::File { body, loaded } => {
                to.exchange.body = body;
                lookup.on_loaded(&asked, loaded, to)
            }
            WaitEnd::Reply { route, reply } => {
                lookup.on_reply(&asked, route, reply.map(|reply| *reply), to)
            }
            WaitEnd::Stored {
                route,
                path,
                is_variant,
                stored,
            } => lookup.on_stored(&asked, RoutedPath { path, route }, stored, is_variant, to),
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
                    return generated_response(
                        to.refuse(Some(asked.at()), StatusCode::INTERNAL_ERROR),
                    );
                };
                let world = lookup.world;
                let checked = CheckedPassword {
                    rule,
                    outcome: checked,
                };
                match access::go_on(guard, checked, world, asked.passing(), to) {
                    Ok(()) => admitted(lookup, &asked, to),
                    Err(AccessRefusal::Answered(status)) => generated_response(status),
                    Err(AccessRefusal::Waits(rule)) => asked.wait_for_password(to, rule),
                }
            }
            WaitEnd::Body => lookup.serve(&asked, to),
        }
    }
}

/// The status in the log if the client closed its connection before the response (as in nginx).
const CLIENT_GONE: StatusCode = StatusCode::new(499).expect("within the range");

/// Timeout for connecting to the server of a connection that is passed through.
const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// The path prefix at which a certificate authority validates that this server owns a name (RFC 8555 §8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// Finds the class of a request and takes one request of the class's rate; answers the request if the rate is exceeded.
#[inline(never)]
fn in_class(
    classes: &Arc<ClassTable>,
    world: &impl Effects,
    at: SitePath<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> Result<(), StatusCode> {
    let chosen = classes.choose(to.request, at.path, to.exchange.peer);
    world.trace(TraceEvent::Class(&chosen));
    let taken = world.take(chosen.class(), to.exchange.now_ms);
    taken.map_err(|retry_after_s| to.refuse_often(at, retry_after_s))
}

/// The https location for a request in plain text, if its site redirects to TLS.
fn to_tls(sites: &SiteTable, site: &Site, to: &RequestResponder<'_, '_>) -> Option<Vec<u8>> {
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
    let RequestTarget::Origin { path, query, .. } = request.target else {
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
    sites: &'s SiteTable,
    listener: ListenerId,
    partial: &PartialRequest<'s>,
    scratch: &'s mut Vec<u8>,
) -> Option<SitePath<'s>> {
    let mut name = [0; 256];
    let site = sites.find(listener, partial.authority, &mut name)?.site;
    let raw_path = partial.path().unwrap_or(b"/");
    // A decoded path is never longer.
    scratch.resize(raw_path.len(), 0);
    let path = match decoded(site, raw_path, scratch) {
        Ok((path, _)) => path,
        Err(_) => b"/",
    };
    Some(SitePath { site, path })
}

impl HttpService for SiteService {
    type Pending = Box<PendingRequest>;
    type Outcome = HandlerOutcome;
    type Record = ResponseRecord;
    type Command = WorkerCommand;

    fn has_layer(&self, listener: ListenerId) -> bool {
        self.sites.offer(listener).is_some()
    }

    fn layer(&mut self, listener: ListenerId) -> Option<Box<dyn TlsSession>> {
        self.sites.offer(listener).map(|offer| offer.layer())
    }

    #[inline]
    fn pass_through(
        &mut self,
        listener: ListenerId,
        head: Option<&H1RequestHead<'_>>,
    ) -> Option<PassThroughTarget> {
        let way = self.sites.pass_through(listener)?;
        // Other requests go to the server behind unchanged.
        let is_understood =
            head.is_some_and(|head| proxy_scope::is_understood(head, &mut self.scratch.path));
        (!is_understood).then_some(PassThroughTarget {
            to: way.to,
            from: Some(way.from),
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            idle_timeout_ms: way.idle_timeout_ms,
        })
    }

    fn passed_through(
        &mut self,
        head: Option<&H1RequestHead<'_>>,
        input: &[u8],
        exchange: &Exchange,
    ) -> Option<ResponseRecord> {
        let request = head.map(|head| &head.request);
        let log = self.log.as_mut();
        let access = log.map(|log| log.record_passed(request, input, exchange));
        Some(self.metrics.record_passed(access))
    }

    #[inline]
    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        exchange.started_us = self.metrics.turn_start_us();
        if let Some(log) = &self.log {
            log.mark_start(exchange);
        }
        let mut to = RequestResponder {
            request,
            exchange,
            response,
        };
        let decision = self.decider().decide(request, &mut to);
        self.answered(decision, request, exchange)
    }

    fn resume(
        &mut self,
        pending: Box<PendingRequest>,
        outcome: HandlerOutcome,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        self.answer_pending(pending, Some(outcome), exchange, response)
    }

    fn body_dropped(
        &mut self,
        pending: Box<PendingRequest>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        self.answer_pending(pending, None, exchange, response)
    }

    fn refuse(
        &mut self,
        why: ConnectionRefusal,
        partial: &PartialRequest<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<ResponseRecord> {
        let at = match why {
            ConnectionRefusal::Request(_) | ConnectionRefusal::Timeout => site_of(
                &self.sites,
                exchange.listener,
                partial,
                &mut self.scratch.path,
            ),
            // No request was read, so there is no site.
            ConnectionRefusal::Overload | ConnectionRefusal::ClearText => None,
        };
        if let Some(at) = &at {
            exchange.metric_scope = at.site.metric_scope.number();
        }
        let status = crate::responder::refused(why, at, response);
        let log = self.log.as_mut();
        let access = log.map(|log| log.record_refused(partial, exchange, status));
        let made = RequestOutcome::Made;
        Some(self.metrics.record(exchange, status, made, access))
    }

    fn refuse_pending(
        &mut self,
        why: ConnectionRefusal,
        pending: Box<PendingRequest>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<ResponseRecord> {
        let at = SitePath {
            site: &pending.waiting.site,
            path: &pending.waiting.path,
        };
        let status = crate::responder::refused(why, Some(at), response);
        let made = RequestOutcome::Made;
        self.cache_counters.count(made);
        let log = self.log.as_mut();
        let access = log.map(|log| log.record(&pending.request.get(), exchange, status, made));
        Some(self.metrics.record(exchange, status, made, access))
    }

    fn abandoned(&mut self, pending: Box<PendingRequest>, exchange: &mut Exchange) {
        // The request may have waited for any event; the store has not answered it, so it counts as passed.
        self.cache_counters.count(RequestOutcome::Passed);
        let (outcome, request) = (RequestOutcome::Miss, pending.request.get());
        let log = self.log.as_mut();
        let access = log.map(|log| log.record(&request, exchange, CLIENT_GONE, outcome));
        let record = self.metrics.record(exchange, CLIENT_GONE, outcome, access);
        // At once: no response will follow.
        self.sent(record, 0, false, exchange.now_ms);
    }

    fn proxy_header_rejected(&mut self, proxy: IpAddr, why: &'static str) {
        let proxy = proxy.to_canonical();
        // The logger counts repeated messages, so that a proxy can't flood the log.
        self.logger
            .warn(format_args!("connection from {proxy} closed: {why}"));
    }

    fn sent(&mut self, record: ResponseRecord, body_len: u64, whole: bool, now_ms: u64) {
        self.metrics.sent(&record, body_len, whole);
        if let Some((log, access)) = self.log.as_mut().zip(record.access) {
            log.write(access, body_len, whole, now_ms);
        }
    }

    fn command(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Sites(sites, unheard) => {
                // The calls keep the last site's objects, which would keep an old site alive.
                self.calls.forget();
                self.sites = sites;
                drop(unheard);
            }
            WorkerCommand::Offer(offer) => self.offer(*offer),
        }
    }

    fn turn_ended(&mut self, _now_ms: u64) {
        self.metrics.turn_ended();
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
