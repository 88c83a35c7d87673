//! The decision about a request. The steps from request to response are in the order of this file.
//!
//! The steps: find the site, the client and the class; check the access rules and the method; apply redirects; then
//! `lookup` finds the stored object for the path, checks its validity and selects a content coding; finally `responder`
//! writes the response. A file that is not in memory is loaded by a helper thread, and the request is resumed when the
//! file is loaded.

mod access;
mod canonical_url;
mod context;
mod cross_origin;
mod deferral;
mod effects;
mod facts;
mod file_candidates;
mod handler_request;
mod handling;
mod internal_redirect;
mod level_offer;
mod lookup;
#[cfg(debug_assertions)]
mod panic_path;
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
use lowroad_engine::quic_transport::QuicTransport;
use lowroad_engine::service::ConnectionRefusal;
use lowroad_engine::tls_session::TlsSession;
use lowroad_engine::{Exchange, HttpService, ListenerId, ResponseWriter, ServiceOutcome};
use lowroad_http::h1::H1RequestHead;
use lowroad_http::method::Method;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use lowroad_log::{ErrorLogger, LogLevel};
use lowroad_metrics::MetricScope;
use lowroad_response_cache::calls::HandlerCalls;
use lowroad_response_cache::handler_outcome::HandlerOutcome;
use lowroad_site_rules::PathMatchCache;
use lowroad_store::clock;
use lowroad_tls_listener::{QuicListener, QuicWorker};

use crate::access::{RequestOutcome, WorkerAccessLog};
use crate::cache_counters::CacheCounters;
use crate::is_from_daemon;
use crate::request_metrics::{MetricsRecorder, RequestMetrics, ResponseRecord};
use crate::request_traces::{ServerSpan, WorkerTracer};
use crate::responder::RequestResponder;
use crate::sites::{SitePath, SiteTable};
use crate::url_sampler::{SharedUrlTable, UrlSampler};
use access::{CheckedPassword, ServerAnswer};
use canonical_url::canonical_url;
use context::{PendingRequest, RequestContext, RoutedPath, WaitContext, generated_response};
use deferral::{WaitEnd, WaitReason};
use handling::handle_admitted;
use lookup::ResponseLookup;
#[cfg(debug_assertions)]
use panic_path::PanicPath;
use path::{decode_path, has_required_certificate};

pub use canonical_url::TLS_REDIRECT;
pub use context::RequestDecision;
pub use effects::{DiskRecall, Effects, LoadProgress, TraceEvent};
pub use level_offer::LevelOffer;

/// The HTTP service of one worker: serves all sites.
pub struct SiteService {
    sites: Arc<SiteTable>,
    calls: HandlerCalls,
    logger: ErrorLogger,
    log: Option<WorkerAccessLog>,
    cache_counters: Arc<CacheCounters>,
    metrics: MetricsRecorder,
    tracer: Option<Box<WorkerTracer>>,
    urls: UrlSampler,
    scratch: DecisionScratch,
    /// The number of workers.
    worker_count: usize,
    /// The certificates of this worker's QUIC, by listener.
    quic: Vec<(ListenerId, QuicListener)>,
    #[cfg(debug_assertions)]
    panic_path: PanicPath,
}

/// Reusable buffers for keys and decoded paths, and the patterns that matched the paths of earlier requests.
#[derive(Default)]
pub struct DecisionScratch {
    key: Vec<u8>,
    path: Vec<u8>,
    matches: PathMatchCache,
}

/// Decides about one request.
pub struct RequestDecider<'d, W> {
    /// All sites.
    pub sites: &'d SiteTable,
    /// The effects that the decision may have: stored responses, loading files, calling handlers.
    pub effects: &'d W,
    /// The error log.
    pub logger: &'d ErrorLogger,
    /// Reusable buffers.
    pub scratch: &'d mut DecisionScratch,
}

/// A channel on which nothing is sent: dropping the sender signals that the command was carried out.
pub type DoneSignal = Sender<Infallible>;

/// A command to a worker: a change of its sites, or a request that arrived without a connection.
pub enum WorkerCommand {
    /// Use these sites from now on. Dropping the signal tells the sender of the command that it was carried out.
    Sites(Arc<SiteTable>, DoneSignal),
    /// Answer this request of the level below.
    Offer(Box<LevelOffer>),
}

impl SiteService {
    /// Creates a service for `sites`; `calls` gives access to handlers and to the store.
    pub fn new(
        sites: Arc<SiteTable>,
        mut calls: HandlerCalls,
        logger: ErrorLogger,
        log: Option<WorkerAccessLog>,
    ) -> SiteService {
        let is_needed = |log: &WorkerAccessLog| log.needs_upstream_tries();
        calls.records_tries = log.as_ref().is_some_and(is_needed);
        SiteService {
            sites,
            calls,
            logger,
            log,
            cache_counters: Arc::default(),
            metrics: MetricsRecorder::default(),
            tracer: None,
            urls: UrlSampler::new(clock::now_ms()),
            scratch: DecisionScratch::default(),
            worker_count: 1,
            quic: Vec::new(),
            #[cfg(debug_assertions)]
            panic_path: PanicPath::from_environment(),
        }
    }

    /// The service with traces of its requests.
    pub fn with_tracer(self, tracer: Option<WorkerTracer>) -> SiteService {
        let tracer = tracer.map(Box::new);
        SiteService { tracer, ..self }
    }

    /// The service of one of `count` workers.
    pub fn with_worker_count(self, count: usize) -> SiteService {
        SiteService {
            worker_count: count,
            ..self
        }
    }

    /// The cache counters of this worker.
    pub fn cache_counters(&self) -> Arc<CacheCounters> {
        self.cache_counters.clone()
    }

    /// The request metrics of this worker.
    pub fn request_metrics(&self) -> Arc<RequestMetrics> {
        self.metrics.metrics()
    }

    /// The frequent URLs of this worker.
    pub fn urls(&self) -> SharedUrlTable {
        self.urls.table()
    }

    fn decider(&mut self) -> RequestDecider<'_, HandlerCalls> {
        RequestDecider {
            sites: &self.sites,
            effects: &self.calls,
            logger: &self.logger,
            scratch: &mut self.scratch,
        }
    }

    /// Resumes a deferred request.
    fn answer_pending(
        &mut self,
        pending: Box<PendingRequest>,
        outcome: Option<HandlerOutcome>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        let PendingRequest {
            request,
            wait_context,
        } = *pending;
        let request = request.get();
        let method = wait_context
            .rewritten_target
            .as_ref()
            .map(|rewritten| rewritten.client_target().0);
        response.set_rate(exchange.rate);
        let mut responder = RequestResponder {
            request: &request,
            exchange,
            response,
        };
        let decision = self.decider().resume(wait_context, outcome, &mut responder);
        match method.filter(|method| *method != request.method) {
            None => self.record_decision(decision, &request, exchange, response),
            // A rewritten request may have another method; the method that the client sent is logged.
            Some(method) => {
                let mut logged_request = request.clone();
                logged_request.method = method;
                self.record_decision(decision, &logged_request, exchange, response)
            }
        }
    }

    fn record_decision(
        &mut self,
        decision: RequestDecision,
        request: &Request<'_>,
        exchange: &Exchange,
        response: &ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        match decision {
            RequestDecision::Deferred(pending)
                if matches!(pending.wait_context.wait_reason, WaitReason::Body) =>
            {
                ServiceOutcome::AfterBody(pending)
            }
            RequestDecision::Deferred(pending) => ServiceOutcome::Deferred {
                // Only a call of a handler is worth cancelling when the client disconnects.
                cancel_on_disconnect: matches!(
                    pending.wait_context.wait_reason,
                    WaitReason::Program { .. } | WaitReason::Auth { .. }
                ),
                pending,
            },
            RequestDecision::Answered(status, logged) => {
                self.cache_counters.count(logged);
                self.urls.record(request, exchange, logged);
                let log = self.log.as_mut().filter(|_| !exchange.is_unlogged);
                let access =
                    log.map(|log| log.record(request, exchange, status, logged, Some(response)));
                let mut record = self.metrics.record(exchange, status, logged, access);
                record.span = ServerSpan::new(&self.sites, request, exchange, status, logged);
                ServiceOutcome::Ready(Some(record))
            }
        }
    }
}

impl<W: Effects> RequestDecider<'_, W> {
    /// Decides about a request: responds to it, defers it, or closes the connection.
    #[inline]
    pub fn decide(
        self,
        request: &Request<'_>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let mut name = [0; 256];
        let found = self
            .sites
            .find(responder.exchange.listener, request.authority, &mut name);
        let Some(found) = found else {
            self.effects.trace(TraceEvent::NoSite);
            return generated_response(responder.refuse(None, StatusCode::MISDIRECTED_REQUEST));
        };
        // Early data may be a replay (RFC 8470 §3), so only requests without effects are answered.
        if responder.exchange.is_early && !request.method.is_safe() {
            return generated_response(responder.refuse(None, StatusCode::TOO_EARLY));
        }
        let (site, host) = (found.site, &name[..found.host_len]);
        responder.exchange.metric_scope = site.metric_scope.number();
        self.effects.trace(TraceEvent::Site(site));
        // For refusals before the path is known.
        if site.has_hsts {
            responder.omit_hsts(site);
        }
        if let Some(access_policy) = &site.access_policy {
            if let Err(status) =
                access::identify_client(access_policy, self.effects, site, responder)
            {
                return generated_response(status);
            }
            // A trusted proxy may have reported the scheme.
            if site.has_hsts {
                responder.omit_hsts(site);
            }
        }
        // The response is 421 if the TLS connection was made for a name with other certificates (RFC 9110 §15.5.20).
        if let Some(tls) = &responder.exchange.tls
            && self
                .sites
                .is_misdirected(responder.exchange.listener, tls, request.authority)
        {
            self.effects.trace(TraceEvent::OtherCertificate);
            return generated_response(responder.refuse(None, StatusCode::MISDIRECTED_REQUEST));
        }
        let forwarded = responder.exchange.forwarded.clone();
        let reported = forwarded.as_ref().and_then(|it| it.authority.as_deref());
        let mut client_request;
        let request = match reported {
            None => request,
            // The authority set by the proxy has selected the site; from here on, the authority that the client used
            // counts.
            Some(authority) => {
                client_request = request.clone();
                client_request.authority = Some(authority);
                &client_request
            }
        };
        let responder = &mut RequestResponder {
            request,
            exchange: responder.exchange,
            response: responder.response,
        };
        let is_get_or_head = matches!(request.method, Method::Get | Method::Head);
        let (path, query, plain) = match request.target {
            RequestTarget::Origin { path, query, plain } => (path, query, plain),
            _ if is_get_or_head => {
                self.effects
                    .trace(TraceEvent::BadTarget("the target is not a path"));
                return generated_response(
                    responder.refuse(Some(SitePath { site, path: b"/" }), StatusCode::BAD_REQUEST),
                );
            }
            _ => return generated_response(responder.other_method(SitePath { site, path: b"/" })),
        };
        // A path that no file can have (for example, with an encoded slash) may still belong to a handler.
        let mut is_for_files = true;
        let raw_path = path;
        let path = if plain {
            raw_path
        } else {
            // Decoding never lengthens a path.
            self.scratch.path.resize(raw_path.len(), 0);
            match decode_path(site, raw_path, &mut self.scratch.path) {
                Ok((path, is_plain)) => {
                    is_for_files = is_plain;
                    path
                }
                Err(refusal) => {
                    self.effects.trace(TraceEvent::BadTarget(refusal.as_str()));
                    return generated_response(
                        responder.refuse_target(SitePath { site, path: b"/" }, refusal),
                    );
                }
            }
        };
        // Challenges are answered before the redirect to https: they are requested over plain http (RFC 8555 §8.3).
        if let Some(token) = path.strip_prefix(CHALLENGES)
            && let Some(answer) = self.sites.challenge(token)
        {
            return generated_response(responder.text(&answer));
        }
        // Another ACME client may have put its challenge into the site's folder.
        let canonical = match path.starts_with(CHALLENGES) {
            true => None,
            false => canonical_url(self.sites, site, responder),
        };
        let context = RequestContext {
            site,
            host: if site.rules.has_host_folders() {
                host
            } else {
                &[]
            },
            path,
            raw_path,
            matches: site
                .rules
                .match_request_path(RequestPath::new(raw_path, path), is_for_files)
                .with_cache(Some(&self.scratch.matches)),
            query,
            is_for_files,
            is_fallback: false,
            rewritten_target: None,
        };
        self.effects.trace(TraceEvent::Path(&context));
        if let Some(canonical) = canonical {
            return canonical.redirect(self.effects, &context, responder);
        }
        if context.has_request_fields(responder.exchange)
            && context.set_request_fields(self.effects, responder)
        {
            // The soft-interrupt level would send the fields of one response to all clients.
            if let Some(status) =
                access::exclude_level(self.effects, context.site_path(), responder)
            {
                return generated_response(status);
            }
        }
        if let Some(limit) = site.rules.config.bandwidth {
            self.effects.trace(TraceEvent::Bandwidth(limit));
            responder.limit_rate(limit);
            // The soft-interrupt level knows no limit.
            if let Some(status) =
                access::exclude_level(self.effects, context.site_path(), responder)
            {
                return generated_response(status);
            }
        }
        if site.maintenance.is_on() && !path.starts_with(CHALLENGES) {
            // A response of this site is not one for the level below, with or without an exception.
            self.effects.trace(TraceEvent::HasAccessRules);
            let is_daemon = is_from_daemon(request.user_agent(), responder.exchange.peer);
            if is_daemon || !site.maintenance.has_exception(&responder.condition_input()) {
                self.effects.trace(TraceEvent::Maintenance);
                let retry_after_s = site.maintenance.retry_after_s;
                let site_path = context.site_path();
                return generated_response(responder.refuse_for(site_path, retry_after_s));
            }
        } else if site.maintenance.has_file() {
            // The level below would not notice the file.
            if let Some(status) =
                access::exclude_level(self.effects, context.site_path(), responder)
            {
                return generated_response(status);
            }
        }
        if !site.rules.config.cors.is_empty()
            && let Some(decision) =
                cross_origin::answer_preflight(self.effects, &context, responder)
        {
            return decision;
        }
        // The certificate is checked before the access rules, so that no password is verified for a client without it.
        if !has_required_certificate(&context.matches, responder.exchange) {
            self.effects.trace(TraceEvent::NoClientCertificate);
            return generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::FORBIDDEN),
            );
        }
        if request.method == Method::Purge
            // Without `purge_from`, routes may handle PURGE as an ordinary method.
            && (!site.rules.config.purge_from.is_empty() || site.routes.is_empty())
        {
            return purge::handle_purge(self.effects, &context, responder);
        }
        // The class is applied before the access rules: requests that they refuse count against its rate as well.
        if let Some(classes) = &self.sites.classes
            && let Err(status) =
                admit_to_class(classes, self.effects, context.site_path(), responder)
        {
            return generated_response(status);
        }
        if let Some(access_policy) = &site.access_policy {
            match access::apply_rules(
                access_policy,
                0,
                self.effects,
                context.access_check(),
                responder,
            ) {
                Ok(()) => {}
                Err(refusal) => return context.refuse_or_wait(responder, refusal),
            }
            if responder.exchange.authentication.is_some() {
                context.set_request_fields(self.effects, responder);
            }
        }
        let lookup = ResponseLookup {
            sites: self.sites,
            effects: self.effects,
            logger: self.logger,
            key: &mut self.scratch.key,
        };
        handle_admitted(lookup, &context, responder)
    }

    /// Resumes the decision at the point where the request was deferred.
    fn resume(
        self,
        mut pending: WaitContext,
        outcome: Option<HandlerOutcome>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        // The target for which the request waits; after a rewrite it differs from the request's target.
        let (raw_path, query) = match (&pending.rewritten_target, responder.request.target) {
            (Some(rewritten), _) => (rewritten.path(), rewritten.query()),
            (None, RequestTarget::Origin { path, query, .. }) => (path, query),
            (None, _) => (&*pending.path, None),
        };
        let path = RequestPath::new(raw_path, &pending.path);
        let context = RequestContext {
            site: &pending.site,
            host: &pending.host,
            path: &pending.path,
            raw_path,
            matches: pending
                .site
                .rules
                .match_request_path(path, pending.is_for_files)
                .with_cache(Some(&self.scratch.matches)),
            query,
            is_for_files: pending.is_for_files,
            is_fallback: pending.is_fallback,
            rewritten_target: pending.rewritten_target.as_ref(),
        };
        if context.has_request_fields(responder.exchange) {
            context.set_request_fields(self.effects, responder);
        }
        let mut lookup = ResponseLookup {
            sites: self.sites,
            effects: self.effects,
            logger: self.logger,
            key: &mut self.scratch.key,
        };
        let Some(wait_end) = pending.wait_reason.end(outcome) else {
            // The request is refused, not resumed: a wrong event must not admit a request with a pending password
            // check.
            let message = "a request was resumed by an event that it did not wait for";
            let message = format_args!("internal error: {message}");
            self.logger
                .log_request(LogLevel::Error, message, &responder.label());
            return generated_response(
                responder.refuse(Some(context.site_path()), StatusCode::INTERNAL_ERROR),
            );
        };
        match wait_end {
            WaitEnd::File { body, loaded } => {
                responder.exchange.body = body;
                lookup.on_loaded(&context, loaded, responder)
            }
            WaitEnd::Candidate {
                body,
                candidate,
                loaded,
            } => {
                responder.exchange.body = body;
                lookup.on_candidate(&context, &candidate, &loaded, responder)
            }
            WaitEnd::Reply { route, reply } => {
                lookup.on_reply(&context, route, reply.map(|reply| *reply), responder)
            }
            WaitEnd::Stored {
                route,
                path,
                is_variant,
                stored,
            } => lookup.on_stored(
                &context,
                RoutedPath { path, route },
                stored,
                is_variant,
                responder,
            ),
            WaitEnd::Unshared { route, path } => {
                lookup.call_alone(&context, path, route, responder)
            }
            WaitEnd::Disk { route, path, next } => {
                lookup.continue_lookup(&context, path, route, next, responder)
            }
            WaitEnd::Purge { is_durable } => {
                purge::respond(context.site_path(), is_durable, responder)
            }
            WaitEnd::Password {
                body,
                rule,
                checked,
            } => {
                responder.exchange.body = body;
                let Some(access_policy) = &context.site.access_policy else {
                    return generated_response(
                        responder.refuse(Some(context.site_path()), StatusCode::INTERNAL_ERROR),
                    );
                };
                let effects = lookup.effects;
                let checked = CheckedPassword {
                    rule,
                    outcome: checked,
                };
                match access::resume_after_password(
                    access_policy,
                    checked,
                    effects,
                    context.access_check(),
                    responder,
                ) {
                    Ok(()) => {
                        if responder.exchange.authentication.is_some() {
                            context.set_request_fields(effects, responder);
                        }
                        handle_admitted(lookup, &context, responder)
                    }
                    Err(refusal) => context.refuse_or_wait(responder, refusal),
                }
            }
            WaitEnd::Auth { body, rule, reply } => {
                responder.exchange.body = body;
                let (effects, logger) = (lookup.effects, lookup.logger);
                let answer = ServerAnswer { rule, reply };
                let check = context.access_check();
                match access::resume_after_server(answer, effects, check, logger, responder) {
                    Ok(()) => {
                        context.set_request_fields(effects, responder);
                        handle_admitted(lookup, &context, responder)
                    }
                    Err(refusal) => context.refuse_or_wait(responder, refusal),
                }
            }
            WaitEnd::Body => lookup.serve(&context, responder),
        }
    }
}

/// The status that is logged if the client disconnected before the response (as in nginx).
pub(crate) const CLIENT_GONE: StatusCode = StatusCode::new(499).expect("within the range");

/// The timeout for connecting to the server to which a connection is passed through.
const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// The path prefix of ACME http-01 challenges, by which an authority validates control of a name (RFC 8555 §8.3).
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// Finds the class of a request and takes one request from the rate of the class; if the rate is exceeded, responds.
#[inline(never)]
fn admit_to_class(
    classes: &Arc<ClassTable>,
    effects: &impl Effects,
    site_path: SitePath<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Result<(), StatusCode> {
    let class_choice = classes.choose(responder.request, site_path.path, responder.exchange.peer);
    effects.trace(TraceEvent::Class(&class_choice));
    let result = effects.take(class_choice.class(), responder.exchange.now_ms);
    result.map_err(|retry_after_s| responder.refuse_rate_limited(site_path, retry_after_s))
}

/// The limit at which the engine refuses a request. Its limits of time and of connections have separate counters.
fn refusal_reason(refusal: ConnectionRefusal) -> Option<RefusalReason> {
    match refusal {
        ConnectionRefusal::Request(refusal) => refusal.reason(),
        ConnectionRefusal::Timeout | ConnectionRefusal::Overload | ConnectionRefusal::ClearText => {
            None
        }
    }
}

/// The site of a refused request, and its path ("/" if the path cannot be decoded).
fn find_site<'s>(
    sites: &'s SiteTable,
    listener: ListenerId,
    partial: &PartialRequest<'s>,
    scratch: &'s mut Vec<u8>,
) -> Option<SitePath<'s>> {
    let mut name = [0; 256];
    let site = sites.find(listener, partial.authority, &mut name)?.site;
    let raw_path = partial.path().unwrap_or(b"/");
    // Decoding never lengthens a path.
    scratch.resize(raw_path.len(), 0);
    let path = match decode_path(site, raw_path, scratch) {
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

    fn has_tls(&self, listener: ListenerId) -> bool {
        self.sites.tls_endpoint(listener).is_some()
    }

    fn tls_session(&mut self, listener: ListenerId) -> Option<Box<dyn TlsSession>> {
        self.sites
            .tls_endpoint(listener)
            .map(|endpoint| endpoint.new_session())
    }

    fn quic_transport(&mut self, listener: ListenerId) -> Option<Box<dyn QuicTransport>> {
        let worker = QuicWorker {
            number: self.calls.worker,
            count: self.worker_count,
        };
        let (certificates, transport) = self.sites.tls_endpoint(listener)?.quic(worker)?;
        self.quic.retain(|(id, _)| *id != listener);
        self.quic.push((listener, certificates));
        Some(transport)
    }

    #[inline]
    fn pass_through(
        &mut self,
        listener: ListenerId,
        head: Option<&H1RequestHead<'_>>,
    ) -> Option<PassThroughTarget> {
        let target = self.sites.pass_through(listener)?;
        // Requests out of scope are passed through unchanged to the server behind this proxy.
        let is_understood =
            head.is_some_and(|head| proxy_scope::is_in_scope(head, &mut self.scratch.path));
        (!is_understood).then_some(PassThroughTarget {
            server: target.to,
            source: Some(target.from),
            connect_timeout_ms: CONNECT_TIMEOUT_MS,
            idle_timeout_ms: target.idle_timeout_ms,
        })
    }

    fn passed_through(
        &mut self,
        head: Option<&H1RequestHead<'_>>,
        input: &[u8],
        exchange: &Exchange,
    ) -> Option<ResponseRecord> {
        let request = head.map(|head| &head.request);
        let authority = request.and_then(|request| request.authority);
        let mut name = [0; 256];
        let found = self.sites.find(exchange.listener, authority, &mut name);
        let scope = found.map_or(MetricScope::NO_SITE, |found| found.site.metric_scope);
        let log = self.log.as_mut();
        let access = log.map(|log| log.record_passed(request, input, exchange, scope));
        Some(self.metrics.record_passed(scope, access))
    }

    #[inline]
    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Box<PendingRequest>, ResponseRecord> {
        exchange.started_us = self.metrics.turn_start_us();
        if let Some(tracer) = &mut self.tracer {
            tracer.begin(request, exchange);
        }
        #[cfg(debug_assertions)]
        self.panic_path.check(request);
        let mut responder = RequestResponder {
            request,
            exchange,
            response,
        };
        let decision = self.decider().decide(request, &mut responder);
        self.record_decision(decision, request, exchange, response)
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
        refusal: ConnectionRefusal,
        partial: &PartialRequest<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<ResponseRecord> {
        let site_path = match refusal {
            ConnectionRefusal::Request(_) | ConnectionRefusal::Timeout => find_site(
                &self.sites,
                exchange.listener,
                partial,
                &mut self.scratch.path,
            ),
            // No request was read, so the site is unknown.
            ConnectionRefusal::Overload | ConnectionRefusal::ClearText => None,
        };
        if let Some(site_path) = &site_path {
            exchange.metric_scope = site_path.site.metric_scope.number();
        }
        exchange.refusal_reason = refusal_reason(refusal);
        let status = crate::responder::write_refusal(refusal, site_path, response);
        let log = self.log.as_mut();
        let access = log.map(|log| log.record_refused(partial, exchange, status, response));
        let made = RequestOutcome::Generated;
        let mut record = self.metrics.record(exchange, status, made, access);
        if let Some(tracer) = &mut self.tracer {
            tracer.begin_refused(exchange);
        }
        record.span = ServerSpan::refused(&self.sites, partial, exchange, status);
        Some(record)
    }

    fn refuse_pending(
        &mut self,
        refusal: ConnectionRefusal,
        pending: Box<PendingRequest>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<ResponseRecord> {
        let site_path = SitePath {
            site: &pending.wait_context.site,
            path: &pending.wait_context.path,
        };
        exchange.refusal_reason = refusal_reason(refusal);
        let status = crate::responder::write_refusal(refusal, Some(site_path), response);
        let made = RequestOutcome::Generated;
        self.cache_counters.count(made);
        let log = self.log.as_mut().filter(|_| !exchange.is_unlogged);
        let request = pending.request.get();
        let access = log.map(|log| log.record(&request, exchange, status, made, Some(response)));
        let mut record = self.metrics.record(exchange, status, made, access);
        record.span = ServerSpan::new(&self.sites, &request, exchange, status, made);
        Some(record)
    }

    fn abandoned(&mut self, pending: Box<PendingRequest>, exchange: &mut Exchange) {
        // Regardless of the event for which the request was waiting, the store did not answer it, so it counts as
        // passed.
        self.cache_counters.count(RequestOutcome::Passed);
        let request = pending.request.get();
        let outcome = pending.wait_context.wait_reason.abandoned(&request);
        let log = self.log.as_mut().filter(|_| !exchange.is_unlogged);
        let access = log.map(|log| log.record(&request, exchange, CLIENT_GONE, outcome, None));
        let mut record = self.metrics.record(exchange, CLIENT_GONE, outcome, access);
        record.span = ServerSpan::new(&self.sites, &request, exchange, CLIENT_GONE, outcome);
        // The end is recorded immediately, since no response follows.
        self.sent(record, 0, false, exchange.now_ms);
    }

    fn proxy_header_rejected(&mut self, proxy: IpAddr, reason: &'static str) {
        let proxy = proxy.to_canonical();
        // The logger counts repeated messages instead of writing them, so that a proxy cannot flood the log.
        self.logger
            .warn(format_args!("connection from {proxy} closed: {reason}"));
    }

    fn sent(&mut self, record: ResponseRecord, body_len: u64, is_complete: bool, now_ms: u64) {
        self.metrics.sent(&record, body_len, is_complete);
        let is_client_gone = record.is_client_gone(body_len, is_complete);
        if let Some((log, mut access)) = self.log.as_mut().zip(record.access) {
            if is_client_gone {
                access.set_status(CLIENT_GONE);
            }
            log.write(access, body_len, is_complete, now_ms);
        }
        match record.span {
            Some(span) if is_client_gone => span.cancel(),
            Some(span) => span.end(body_len, is_complete),
            None => {}
        }
    }

    fn command(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Sites(sites, done_signal) => {
                // `calls` keeps the objects of the last site for reuse; they would keep a site of the old configuration
                // alive.
                self.calls.clear_last_site();
                self.sites = sites;
                // Handshakes from now on use the certificates of the new sites.
                for (listener, certificates) in &self.quic {
                    if let Some(endpoint) = self.sites.tls_endpoint(*listener) {
                        certificates.set_endpoint(endpoint);
                    }
                }
                drop(done_signal);
            }
            WorkerCommand::Offer(offer) => self.offer(*offer),
        }
    }

    fn recover(&mut self) {
        self.scratch = DecisionScratch::default();
        self.calls.clear_last_site();
        if let Some(log) = &mut self.log {
            log.recover();
        }
    }

    fn loop_lag(&mut self, lag_ms: u64) {
        self.metrics.record_lag(lag_ms);
    }

    fn turn_ended(&mut self, _now_ms: u64) {
        self.metrics.turn_ended();
        if let Some(log) = &mut self.log {
            log.end_turn();
        }
    }
}
