//! Reverse proxy: forwards requests over HTTP to origin servers, and relays their responses.
//!
//! The forwarded request is generated from the parsed one (`forwarding`), so ambiguous bytes of a client never reach
//! the origin (request smuggling). Sites and caching are not part of this module.

mod acquire;
mod checks;
pub(crate) mod connect_errors;
mod dns;
mod endpoint_counters;
mod exchange;
mod forwarding;
mod h2;
mod link;
pub(crate) mod live_changes;
mod mirror;
pub(crate) mod origins;
mod path_map;
mod permit;
mod request_body;
mod request_changes;
mod request_heads;
mod request_send;
mod self_reference;
pub(crate) mod servers;
mod sticky;
mod transport;
mod try_span;
mod tunnel;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lowroad_config::{OriginConfig, OriginProtocol, RouteConfig};
use lowroad_engine::upstream_tries::TryRecorder;
use lowroad_http::h1::BodyLen;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_origin::group::{AttemptOutcome, NoMember};
use lowroad_origin::retry::{BodyReplay as Left, FailureStage, NoRetry, ResponseProgress};
use lowroad_origin::{AcquireTimeouts, PoolUnavailable};

use self::acquire::AcquiredConnection;
use self::connect_errors::{group_refusal, pool_refusal, unavailable_status, unavailable_text};
use self::exchange::{BodyProgress, ProxyExchange, ProxyFailure};
use self::mirror::RequestMirror;
pub use self::origins::{OriginRegistry, check_tls};
use self::permit::{RouteBounds, RoutePermit};
use self::request_body::ProxyRequestBody;
use self::request_heads::RequestHeads;
use self::request_send::RequestSend;
use self::servers::{OriginAttempt, OriginEndpoint, OriginServers};
use self::transport::ExchangeTransport;
use self::try_span::TrySpans;
use crate::script::exchange::ScriptTerms;
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::operator_notice::OperatorNotice;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest, HandlerResponse, HandlerResult, ResponseContent,
    ResponseFields, RouteProbe,
};
#[cfg(feature = "tls")]
pub use lowroad_origin::tls::open_files_with;

/// The handler of a route to an origin.
pub struct ProxyHandler {
    servers: Arc<OriginServers>,
    heads: RequestHeads,
    bounds: RouteBounds,
    /// The timeouts for a connection, of which `total` also applies to the head of a response.
    timeouts: AcquireTimeouts,
    /// Whether references to the origin server's own address are removed from responses.
    hides_own_address: bool,
    /// See `OriginConfig::retry_body_max`.
    retry_body_max: u64,
    /// Copies of requests to another origin.
    mirror: Option<Arc<RequestMirror>>,
    terms: ScriptTerms,
}

/// The parts of a request that are passed from one attempt to the next.
struct RetryableRequest {
    body: Option<ProxyRequestBody>,
    len: BodyLen,
    /// The route permit; `None` during an attempt, because the attempt owns the permit.
    permit: Option<RoutePermit>,
    interims: InterimSink,
    /// The spans of the attempts, if the request is traced.
    trace: Option<Box<TrySpans>>,
    /// Records the attempt in progress, if the access log needs it.
    recorder: Option<TryRecorder>,
}

impl RetryableRequest {
    fn take_from(
        request: &mut HandlerRequest,
        permit: RoutePermit,
        retry_body_max: u64,
    ) -> RetryableRequest {
        let body = std::mem::take(&mut request.body);
        let len = match (&body.stream, body.len) {
            // Without `Content-Length: 0`, some origins wait for a body or answer 411 (RFC 9110 §8.6).
            (None, _) if anticipates_content(request.method) => BodyLen::Known(0),
            (None, _) => BodyLen::None,
            // Trailers need the chunked coding (RFC 9112 §7.1.2), so the length is treated as unknown.
            (Some(stream), Some(len)) if !stream.has_trailers() => BodyLen::Known(len),
            (Some(_), _) => BodyLen::Unknown,
        };
        RetryableRequest {
            body: body
                .stream
                .map(|stream| ProxyRequestBody::new(stream, retry_body_max)),
            len,
            permit: Some(permit),
            interims: std::mem::take(&mut request.interims),
            trace: TrySpans::new(request),
            recorder: None,
        }
    }
}

impl ProxyHandler {
    /// Creates the handler of a route to `origin`, with its servers taken from `origins`. Resolves host names.
    ///
    /// # Errors
    /// TLS cannot be set up; the text is for the operator.
    pub fn new(
        route: &RouteConfig,
        origin: &OriginConfig,
        origins: &OriginRegistry,
        notice: OperatorNotice,
        spools: Option<Arc<SpoolLimits>>,
    ) -> Result<ProxyHandler, String> {
        let mirror = route.mirror.as_ref();
        let mirror = mirror.map(|mirror| RequestMirror::new(route, mirror, origins, &notice));
        let mirror = mirror.transpose()?.map(Arc::new);
        let handler = ProxyHandler::without_mirror(route, origin, origins, notice, spools)?;
        Ok(ProxyHandler { mirror, ..handler })
    }

    fn without_mirror(
        route: &RouteConfig,
        origin: &OriginConfig,
        origins: &OriginRegistry,
        notice: OperatorNotice,
        spools: Option<Arc<SpoolLimits>>,
    ) -> Result<ProxyHandler, String> {
        let silence = Duration::from_millis(route.timeout_ms);
        // One timeout applies to the wait for a connection and to the wait for the head.
        let first_byte = origin.timeout_ms.map_or(silence, Duration::from_millis);
        Ok(ProxyHandler {
            servers: origins.get(origin, &notice)?,
            heads: RequestHeads::new(route, origin),
            bounds: RouteBounds::new(route),
            timeouts: AcquireTimeouts {
                total: first_byte,
                connecting: Duration::from_millis(origin.connect_timeout_ms).min(first_byte),
            },
            hides_own_address: route.own_redirects,
            retry_body_max: origin.retry_body_max,
            mirror: None,
            terms: ScriptTerms {
                idle_timeout: silence,
                notice,
                spools,
            },
        })
    }

    fn acquire_permit(&self, request: &HandlerRequest) -> Result<RoutePermit, HandlerFailure> {
        // An upgrade request needs two permits: it counts as a request until the 101, and as a tunnel afterwards.
        let wants_tunnel = request.upgrade().is_some();
        self.bounds
            .acquire(request.peer, wants_tunnel, &self.servers.name)
    }

    async fn answer(
        &self,
        worker: usize,
        request: &HandlerRequest,
        retryable: &mut RetryableRequest,
    ) -> Result<HandlerResponse, HandlerFailure> {
        let (mut tried, mut last) = (Vec::new(), None);
        let session = self.servers.session(request);
        loop {
            let chosen = self.servers.choose(request, session, &tried, worker);
            let (endpoint, attempt) = match (chosen, last) {
                (Ok(chosen), _) => chosen,
                // All members were tried; the failure of the last attempt explains more than the lack of members.
                (Err(_), Some(failure)) => return Err(failure),
                (Err(no_member), None) => return Err(self.no_member_failure(no_member)),
            };
            let member = attempt.as_ref().map(|attempt| attempt.member);
            retryable.begin_try(request, &endpoint);
            let first = self.try_server(worker, request, &endpoint, attempt, retryable, false);
            let first = first.await;
            retryable.end_try(&first);
            let mut failed_attempt = match first {
                Ok(mut response) => {
                    self.servers
                        .complete_session(session, request, &endpoint, &mut response);
                    return check_response(response, request, &endpoint);
                }
                Err(failed_attempt) => failed_attempt,
            };
            // Stale connection: the server closed it while it was idle. An idempotent request may be repeated (RFC 9112
            // §9.3.1); any other one only if none of its bytes were sent. Such a repetition does not count as a retry.
            if failed_attempt.is_stale
                && (is_idempotent(request) || !failed_attempt.sent)
                && let Some(body) = failed_attempt.body.take()
            {
                (retryable.body, retryable.permit) = (body, Some(failed_attempt.permit));
                retryable.begin_try(request, &endpoint);
                let second_attempt = self.try_server(
                    worker,
                    request,
                    &endpoint,
                    failed_attempt.attempt,
                    retryable,
                    true,
                );
                // The repetition is boxed because it is rare: the common future would otherwise reserve space for a
                // second attempt.
                let second = Box::pin(second_attempt).await;
                retryable.end_try(&second);
                failed_attempt = match second {
                    Ok(mut response) => {
                        self.servers
                            .complete_session(session, request, &endpoint, &mut response);
                        return check_response(response, request, &endpoint);
                    }
                    Err(failed_attempt) => failed_attempt,
                };
            }
            last = Some(self.prepare_retry(
                worker,
                request,
                &endpoint,
                failed_attempt,
                tried.len(),
                retryable,
            )?);
            tried.extend(member);
        }
    }

    /// Decides whether another server may be tried, and prepares that attempt; returns the failure of the last attempt.
    ///
    /// # Errors
    /// The failure, if no retry is allowed.
    fn prepare_retry(
        &self,
        worker: usize,
        request: &HandlerRequest,
        endpoint: &OriginEndpoint,
        failed_attempt: ProxyFailure,
        tries: usize,
        retryable: &mut RetryableRequest,
    ) -> Result<HandlerFailure, HandlerFailure> {
        let ProxyFailure {
            mut failure,
            outcome,
            ..
        } = failed_attempt;
        let is_repeatable = is_idempotent(request) || !failed_attempt.sent;
        let is_body_too_large =
            failed_attempt.is_stale && is_repeatable && failed_attempt.body.is_none();
        if is_body_too_large {
            self.count_unretried(endpoint, &mut failure);
        }
        // `Cancelled` shows nothing about the server, so it must not become the latest failure in the status.
        if outcome != AttemptOutcome::Cancelled {
            endpoint.record_failure(&failure.detail);
        }
        endpoint.counters.count(outcome);
        // A single server has no retries, as there is no other server.
        let (Some(attempt), Some(group)) = (failed_attempt.attempt, self.servers.group()) else {
            return Err(failure);
        };
        let now_ms = endpoint.pool().worker_handle(worker).timers.now_ms();
        attempt.report(outcome, now_ms);
        // `Cancelled`: the client disconnected, or no permit was free. Another server would not help.
        if outcome == AttemptOutcome::Cancelled {
            return Err(failure);
        }
        let stage = FailureStage {
            tries: u32::try_from(tries).unwrap_or(u32::MAX).saturating_add(1),
            is_idempotent: is_idempotent(request),
            sent: failed_attempt.sent,
            // The body was discarded once it exceeded the limit.
            body: match failed_attempt.body {
                Some(_) => Left::Whole,
                None => Left::Consumed,
            },
            response: match failed_attempt.is_answered {
                true => ResponseProgress::Started,
                false => ResponseProgress::Nothing,
            },
            timed_out: outcome == AttemptOutcome::TimedOut,
        };
        match group.upstream.may_retry(&stage, now_ms) {
            Ok(()) => {
                retryable.body = failed_attempt.body.flatten();
                retryable.permit = Some(failed_attempt.permit);
                let text = format!("{}; trying another server", failure.detail);
                if let Some(text) = endpoint.retry_notices.admit(&text, now_ms) {
                    (self.terms.notice)(&text, Some(&RequestLabel::from(request)));
                }
                Ok(failure)
            }
            Err(NoRetry::BodyConsumed) if !is_body_too_large && !stage.timed_out => {
                self.count_unretried(endpoint, &mut failure);
                Err(failure)
            }
            Err(_) => Err(failure),
        }
    }

    /// Counts a request that was not retried only because its body is too large, and mentions that in the failure.
    fn count_unretried(&self, endpoint: &OriginEndpoint, failure: &mut HandlerFailure) {
        endpoint.counters.count_unretried();
        failure.detail.push_str(&format!(
            "; the request was not retried, because its body is larger than retry_body_max ({} bytes)",
            self.retry_body_max
        ));
    }

    /// Makes one attempt at a server. With `fresh`, it uses a new connection.
    async fn try_server(
        &self,
        worker: usize,
        request: &HandlerRequest,
        endpoint: &Arc<OriginEndpoint>,
        mut attempt: Option<OriginAttempt>,
        retryable: &mut RetryableRequest,
        fresh: bool,
    ) -> Result<HandlerResponse, ProxyFailure> {
        // A connection with a PROXY header belongs to one client and is never reused.
        let fresh = fresh || self.heads.has_proxy_header();
        // An open connection is the common case, so the pool is tried without await first.
        let acquired = match (!fresh).then(|| endpoint.try_acquire(worker)).flatten() {
            Some(acquired) => Ok(acquired),
            None => {
                let start = Instant::now();
                let acquired = endpoint.acquire(worker, fresh, self.timeouts).await;
                // After a wait for a free slot, the connection may be one that another request has used.
                if acquired.as_ref().is_ok_and(AcquiredConnection::is_new) {
                    endpoint.counters.record_connect(start);
                }
                acquired
            }
        };
        // The attempt owns the permit and the body until it ends.
        let permit = retryable
            .permit
            .take()
            .expect("a request is tried once at a time");
        let body = retryable.body.take();
        // Without a connection nothing was sent: the caller gets permit and body back for the next attempt.
        let acquired = match acquired {
            Ok(acquired) => acquired,
            Err(pool_error) => {
                let failure = self.unavailable_failure(endpoint, &pool_error);
                return Err(ProxyFailure::before_sending(
                    failure,
                    outcome(&pool_error),
                    attempt,
                    body,
                    permit,
                ));
            }
        };
        if let Some(recorder) = &retryable.recorder {
            recorder.connected(!acquired.is_new());
        }
        // From here, the member counts this as a request in progress, not as a waiting one.
        attempt.iter_mut().for_each(OriginAttempt::mark_connected);
        let mut send_state = RequestSend::default();
        let transport = self.begin_request(request, endpoint, retryable, acquired, &mut send_state);
        // The state was checked before the connection was returned to the pool, so a failure is a bug of this program.
        let Some(transport) = transport else {
            let failure =
                HandlerFailure::new(StatusCode::INTERNAL_ERROR, "a connection was not ready");
            return Err(ProxyFailure::before_sending(
                failure,
                AttemptOutcome::Cancelled,
                attempt,
                body,
                permit,
            ));
        };
        // A request without framing for a body must not send one: the origin would read it as the next request.
        let body = body.filter(|_| !send_state.is_without_body);
        // The exchange is boxed: otherwise each future that awaits it would contain all of it.
        let exchange = Box::new(ProxyExchange {
            endpoint: endpoint.clone(),
            attempt,
            transport,
            worker,
            is_shared: !self.heads.has_proxy_header(),
            progress: match body {
                Some(_) => BodyProgress::Sending,
                None => BodyProgress::Sent,
            },
            body,
            send_state,
            method: request.method,
            permit,
            evidence: None,
            has_head: false,
            _recorded_end: retryable.recorder.as_ref().map(TryRecorder::end_guard),
        });
        let mut response = exchange
            .response(self.timeouts, &self.terms, request, &mut retryable.interims)
            .await?;
        if self.hides_own_address {
            self_reference::make_references_relative(&mut response.fields, endpoint);
        }
        if let Some(path_map) = self.heads.path_map() {
            path_map.restore(&mut response.fields, request.host());
        }
        Ok(response)
    }

    /// Writes the head of the request: to the send state for HTTP/1.1, or to the connection's task for HTTP/2. `None` if the
    /// connection is not ready.
    fn begin_request(
        &self,
        request: &HandlerRequest,
        endpoint: &OriginEndpoint,
        retryable: &RetryableRequest,
        acquired: AcquiredConnection,
        send_state: &mut RequestSend,
    ) -> Option<ExchangeTransport> {
        match acquired {
            AcquiredConnection::Exclusive(mut lease) => {
                // The PROXY header precedes all other bytes.
                self.heads.write_proxy_header(request, &mut send_state.out);
                let link = &mut *lease.connection;
                let has_body =
                    self.heads
                        .write(request, endpoint, retryable, link, &mut send_state.out)?;
                send_state.is_without_body = !has_body;
                Some(ExchangeTransport::Exclusive(lease))
            }
            AcquiredConnection::Shared(link) => {
                let head = self.heads.field_block(request, endpoint, retryable);
                send_state.is_without_body = head.len.is_empty();
                Some(ExchangeTransport::Multiplexed(link.begin(head)))
            }
        }
    }

    fn no_member_failure(&self, no_member: NoMember) -> HandlerFailure {
        let reason = self.servers.explain_absence(no_member);
        let detail = format!("{}: {reason}", self.servers.name);
        HandlerFailure {
            reason: group_refusal(no_member),
            ..HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        }
    }

    fn unavailable_failure(
        &self,
        endpoint: &OriginEndpoint,
        pool_error: &PoolUnavailable,
    ) -> HandlerFailure {
        let text = unavailable_text(pool_error, self.timeouts, &format!(" to {}", endpoint.name));
        HandlerFailure {
            reason: pool_refusal(pool_error),
            ..HandlerFailure::new(unavailable_status(pool_error), text)
        }
    }
}

/// The outcome that is reported for a server if no connection to it is available.
fn outcome(pool_error: &PoolUnavailable) -> AttemptOutcome {
    match pool_error {
        PoolUnavailable::TooManyWait | PoolUnavailable::NoneFree => AttemptOutcome::Cancelled,
        PoolUnavailable::ConnectTimeout | PoolUnavailable::Failed(_) => {
            AttemptOutcome::ConnectFailed
        }
    }
}

/// Rejects a 304 response to a GET or HEAD without a condition: there is no stored response to which it could refer.
/// Varnish also fails such a response; nginx forwards it.
///
/// # Errors
/// 502 for such a response.
fn check_response(
    response: HandlerResponse,
    request: &HandlerRequest,
    endpoint: &OriginEndpoint,
) -> Result<HandlerResponse, HandlerFailure> {
    let is_condition = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"if-none-match")
            || name.eq_ignore_ascii_case(b"if-modified-since")
    };
    let is_get_or_head = matches!(request.method, Method::Get | Method::Head);
    if response.status != StatusCode::NOT_MODIFIED
        || !is_get_or_head
        || request.fields().any(|(name, _)| is_condition(name))
    {
        return Ok(response);
    }
    let detail = format!("{} sent 304 to an unconditional request", endpoint.name);
    endpoint.record_failure(&detail);
    Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail))
}

/// Whether content is expected for a method, so that an empty body needs `Content-Length: 0` (RFC 9110 §8.6).
fn anticipates_content(method: Method) -> bool {
    matches!(method, Method::Post | Method::Put | Method::Patch)
}

/// Whether the method is idempotent (RFC 9110 §9.2.2).
fn is_idempotent(request: &HandlerRequest) -> bool {
    request.method.is_idempotent()
}

impl Handler for ProxyHandler {
    fn explain_member(&self, probe: &RouteProbe<'_>) -> Option<String> {
        let choice = self.servers.describe_choice(probe)?;
        Some(match &self.mirror {
            Some(mirror) => format!("{choice}; {}", mirror.description()),
            None => choice,
        })
    }

    fn explain_request(&self, request: &HandlerRequest) -> Vec<String> {
        let is_h2 = self.servers.protocol == OriginProtocol::H2;
        self.heads.explain(request, is_h2)
    }

    fn status(&self) -> Option<String> {
        Some(self.bounds.text())
    }

    fn requests_in_progress(&self) -> usize {
        self.bounds.requests_in_progress()
    }

    fn begin(self: Arc<Self>, worker: usize, mut request: HandlerRequest) -> HandlerResult {
        // With `Max-Forwards: 0` the proxy must respond itself (RFC 9110 §7.6.2).
        if forwarding::max_forwards(&request) == Some(0) {
            return HandlerResult::Ready(Ok(HandlerResponse {
                status: StatusCode::OK,
                fields: ResponseFields::new(),
                content: ResponseContent::Bytes(Bytes::new()),
                source: None,
            }));
        }
        // The permit is acquired first, so that refused requests need no connection.
        let permit = match self.acquire_permit(&request) {
            Ok(permit) => permit,
            Err(failure) => return HandlerResult::Ready(Err(failure)),
        };
        // Copied before the body is taken from the request.
        let mirror = self.mirror.as_ref();
        let copy = mirror.and_then(|mirror| mirror.copy(worker, &request));
        let mut retryable = RetryableRequest::take_from(&mut request, permit, self.retry_body_max);
        if let (Some(body), Some(copy)) = (&mut retryable.body, copy) {
            body.set_copy(copy);
        }
        // An async block stores its captures once; the future of an async function would store its arguments twice.
        HandlerResult::OnWorker(Box::pin(async move {
            self.answer(worker, &request, &mut retryable).await
        }))
    }
}
