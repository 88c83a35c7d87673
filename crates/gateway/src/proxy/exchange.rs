//! An exchange with an origin server: sends the request and receives the response at the same time, each as fast as the
//! receiving side accepts it. Selecting the server and using the response are done elsewhere.
//!
//! Memory per exchange: one piece of the request body, one part of the response, and the buffers of the streams.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lowroad_engine::stream::{BodySender, StreamItem, stream};
use lowroad_engine::upstream_tries::TryEnd;
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::request_body::truncation_failure;
use lowroad_handler::request_label::RequestLabel;
use lowroad_handler::spool::STALL;
use lowroad_handler::{
    HandlerFailure, HandlerRequest, HandlerResponse, ResponseContent, ResponseFields,
};
use lowroad_http::h1;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_origin::group::AttemptOutcome;
use lowroad_origin::{AcquireTimeouts, PoolUnavailable};

use super::connect_errors::{pool_refusal, unavailable_status};
use super::link::{OriginFault, ResponseEvent};
use super::permit::RoutePermit;
use super::request_body::ProxyRequestBody;
use super::request_send::RequestSend;
use super::servers::{OriginAttempt, OriginEndpoint};
use super::transport::ExchangeTransport;
use super::tunnel;
use crate::script::exchange::ScriptTerms;

/// The number of body bytes that are collected without waiting before the response is streamed.
const COLLECTED_LEN_MAX: usize = 64 << 10;
/// The size of the buffer between the origin and the client.
const BUFFER_LEN_MAX: usize = 64 << 10;
/// While the origin sends nothing, a disconnected client is noticed after at most this time.
const TICK: Duration = Duration::from_millis(500);

/// An exchange in progress. Dropping it closes the connection or resets the stream, which cancels the request at the
/// origin.
pub struct ProxyExchange {
    /// The origin server.
    pub endpoint: Arc<OriginEndpoint>,
    /// The attempt, if the server is a member of a group.
    pub attempt: Option<OriginAttempt>,
    /// The connection to the origin.
    pub transport: ExchangeTransport,
    /// The worker of the request.
    pub worker: usize,
    /// Whether other clients may reuse the connection.
    pub is_shared: bool,
    /// The bytes of the request that are to be sent.
    pub send_state: RequestSend,
    /// The request body, if any.
    pub body: Option<ProxyRequestBody>,
    /// The progress of the request body.
    pub progress: BodyProgress,
    /// The head of the response was received.
    pub has_head: bool,
    /// The request method.
    pub method: Method,
    /// The route permit.
    pub permit: RoutePermit,
    /// The outcome to report for the server, if it is known already.
    pub evidence: Option<AttemptOutcome>,
    /// Records the end of the attempt for the access log.
    pub _recorded_end: Option<TryEnd>,
}

/// The progress of the request body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BodyProgress {
    /// More bytes are to be sent.
    Sending,
    /// The body was sent completely, or there is none.
    Sent,
    /// The origin accepts no more bytes, or the client has ended the body of an answered request early.
    Refused,
}

/// An attempt that failed before a response.
pub struct ProxyFailure {
    /// The failure.
    pub failure: HandlerFailure,
    /// The outcome to report for the server.
    pub outcome: AttemptOutcome,
    /// The attempt; its outcome was not reported yet.
    pub attempt: Option<OriginAttempt>,
    /// The complete request body, `Some(None)` if the request has none; `None` if the body cannot be replayed.
    pub body: Option<Option<ProxyRequestBody>>,
    /// The route permit.
    pub permit: RoutePermit,
    /// Whether the server may have received bytes of the request.
    pub sent: bool,
    /// Whether the server has sent bytes of a response.
    pub is_answered: bool,
    /// Stale connection: the server had already closed the reused connection. This shows no fault of the server.
    pub is_stale: bool,
}

impl ProxyFailure {
    /// A failure before any byte of the request was sent.
    pub fn before_sending(
        failure: HandlerFailure,
        outcome: AttemptOutcome,
        attempt: Option<OriginAttempt>,
        body: Option<ProxyRequestBody>,
        permit: RoutePermit,
    ) -> ProxyFailure {
        ProxyFailure {
            failure,
            outcome,
            attempt,
            body: Some(body),
            permit,
            sent: false,
            is_answered: false,
            is_stale: false,
        }
    }
}

/// An event of an exchange.
enum ExchangeEvent {
    /// Bytes of the request were sent.
    Sent,
    Received(ResponseEvent),
}

/// The first part of a response.
enum ExchangeStart {
    Response(OriginHead),
    /// The protocol of an upgrade, and the fields of the 101 response.
    Protocol(Vec<u8>, ResponseFields),
}

/// The trailers of a complete body.
type BodyTrailers = Option<Box<ResponseFields>>;

/// The head of a response.
struct OriginHead {
    status: StatusCode,
    fields: ResponseFields,
    len: Option<u64>,
}

impl ProxyExchange {
    /// Waits for the head of the response, at most `timeouts.total`. If the body is not complete by then, spawns a task
    /// that streams it.
    ///
    /// # Errors
    /// [`ProxyFailure`]
    pub async fn response(
        mut self: Box<Self>,
        timeouts: AcquireTimeouts,
        terms: &ScriptTerms,
        request: &HandlerRequest,
        interims: &mut InterimSink,
    ) -> Result<HandlerResponse, ProxyFailure> {
        if let Err(failure) = self.wait_for_stream(timeouts).await {
            return Err(self.into_failure(failure));
        }
        let start = Instant::now();
        let head = self.head(timeouts.total, interims).await;
        if head.is_ok() {
            self.endpoint.counters.record_response(start);
        }
        let head = match head {
            Ok(ExchangeStart::Response(head)) => head,
            Ok(ExchangeStart::Protocol(protocol, fields)) => {
                return Ok(tunnel::begin(self, terms.idle_timeout, protocol, fields));
            }
            Err(failure) => return Err(self.into_failure(failure)),
        };
        self.has_head = true;
        // The response is not an upgrade, so the tunnel permit is released.
        self.permit.release_tunnel();
        // The response is forwarded, but counts against the member.
        if matches!(head.status.code(), 502..=504) {
            self.evidence = Some(AttemptOutcome::ServerError);
            let reason = format!(
                "{} answered with status {}",
                self.endpoint.name,
                head.status.code()
            );
            self.endpoint.record_failure(&reason);
        }
        // A response to HEAD may declare a length without having a body.
        let is_bodiless = self.method == Method::Head || head.status.is_bodiless();
        // A body that was received with the head needs neither a stream nor a task.
        if !is_bodiless && let Some(body) = self.transport.take_rest() {
            self.finish();
            return Ok(head.response(ResponseContent::Bytes(body)));
        }
        let (parts, end_trailers) = match self.collect_available().await {
            Ok(collected) => collected,
            Err(failure) => return Err(self.into_failure(failure)),
        };
        // A complete body without trailers is returned as bytes with a known length instead of a stream.
        if let (Some(None), false) = (&end_trailers, is_bodiless) {
            self.finish();
            return Ok(head.response(ResponseContent::Bytes(join_parts(parts))));
        }
        // The remaining body is streamed: its length may be unknown, and the client may be slower than the origin.
        let (sender, stream) = stream(BUFFER_LEN_MAX);
        for part in parts {
            // `push` cannot fail: this function holds the receiver.
            let _ = sender.push(part);
        }
        let len = head.len;
        match end_trailers {
            Some(trailers) => {
                sender.end_with(trailers);
                self.finish();
            }
            // A task streams the remaining body, and the handler's future ends here.
            None => {
                let executor = self.executor();
                let label = RequestLabel::from(request);
                executor.spawn(self.stream_rest(sender, terms.clone(), label));
            }
        }
        Ok(head.response(ResponseContent::Stream { len, stream }))
    }

    /// Waits for a stream of a shared connection: as long as for a connection if all are in use, and up to the connect
    /// timeout if the server allows none.
    async fn wait_for_stream(&mut self, timeouts: AcquireTimeouts) -> Result<(), HandlerFailure> {
        // The common case: the stream was opened at once.
        if !matches!(&self.transport, ExchangeTransport::Multiplexed(exchange) if exchange.is_waiting())
        {
            return Ok(());
        }
        let executor = self.executor();
        let ExchangeTransport::Multiplexed(exchange) = &mut self.transport else {
            return Ok(());
        };
        let rest = timeouts.total.saturating_sub(timeouts.connecting);
        for time in [timeouts.connecting, rest] {
            let stream = poll_fn(|context| exchange.poll_stream(context));
            if executor.timeout(time, stream).await.is_ok() {
                return Ok(());
            }
            if !exchange.allows_requests() {
                break;
            }
        }
        let is_useless = exchange.abandon();
        let name = &self.endpoint.name;
        // Like a failure to connect, or like a wait for a connection.
        let (evidence, pool_error, text) = match is_useless {
            true => (
                AttemptOutcome::ConnectFailed,
                PoolUnavailable::ConnectTimeout,
                format!(
                    "{name} allows no requests on its connection (SETTINGS_MAX_CONCURRENT_STREAMS is 0)"
                ),
            ),
            false => (
                AttemptOutcome::Cancelled,
                PoolUnavailable::NoneFree,
                format!(
                    "no stream to {name} was free within {} ms",
                    timeouts.total.as_millis()
                ),
            ),
        };
        self.evidence = Some(evidence);
        Err(HandlerFailure {
            reason: pool_refusal(&pool_error),
            ..HandlerFailure::new(unavailable_status(&pool_error), text)
        })
    }

    /// Waits for the head of the final response; forwards interim responses.
    async fn head(
        &mut self,
        timeout: Duration,
        interims: &mut InterimSink,
    ) -> Result<ExchangeStart, HandlerFailure> {
        // The request is sent before the first read, which would be a wasted system call.
        poll_fn(|context| Poll::Ready(self.poll_send(context))).await?;
        let executor = self.executor();
        loop {
            let event = poll_fn(|context| self.poll_event(context));
            // The timeout restarts with each event, so that a slow upload does not expire while it makes progress.
            match executor.timeout(timeout, event).await {
                Err(_) => return Err(self.timeout_failure(timeout)),
                Ok(Ok(ExchangeEvent::Received(ResponseEvent::Head(status, fields, len)))) => {
                    return Ok(ExchangeStart::Response(OriginHead {
                        status,
                        fields,
                        len,
                    }));
                }
                // A proxy must forward 1xx responses (RFC 9110 §15.2).
                Ok(Ok(ExchangeEvent::Received(ResponseEvent::Interim(status, fields)))) => {
                    interims.send(status, fields);
                }
                Ok(Ok(ExchangeEvent::Received(ResponseEvent::Upgraded(protocol, fields)))) => {
                    return Ok(ExchangeStart::Protocol(protocol, fields));
                }
                Ok(Ok(_)) => {}
                Ok(Err(failure)) => return Err(failure),
            }
        }
    }

    /// Collects the parts of the body that are available without waiting, so that a short body needs neither a task nor
    /// a stream. If the end was reached, the trailers are `Some`.
    async fn collect_available(
        &mut self,
    ) -> Result<(VecDeque<Bytes>, Option<BodyTrailers>), HandlerFailure> {
        let (mut parts, mut len) = (VecDeque::new(), 0);
        // The loop is bounded: a fast origin must not fill memory before the client gets the head.
        while len < COLLECTED_LEN_MAX {
            // `Poll::Ready` around the inner poll makes this a single poll, without waiting.
            let event = poll_fn(|context| Poll::Ready(self.poll_event(context))).await;
            match event {
                Poll::Pending => break,
                Poll::Ready(event) => match event? {
                    ExchangeEvent::Received(ResponseEvent::Data(data)) => {
                        len += data.len();
                        parts.push_back(data);
                    }
                    ExchangeEvent::Received(ResponseEvent::End(trailers)) => {
                        return Ok((parts, Some(trailers)));
                    }
                    ExchangeEvent::Received(_) | ExchangeEvent::Sent => {}
                },
            }
        }
        Ok((parts, None))
    }

    /// Streams the remaining body. From here on, a failure truncates it.
    async fn stream_rest(
        mut self: Box<Self>,
        sender: BodySender,
        terms: ScriptTerms,
        label: RequestLabel,
    ) {
        match self.stream_parts(sender, &terms).await {
            // The connection is returned to the pool before the client sees the end: the client's next request may
            // reuse it.
            Ok(Some((sender, trailers))) => {
                self.finish();
                sender.end_with(trailers);
            }
            // The client disconnected, which is not a failure.
            Ok(None) => {}
            // An empty detail means that the client caused the failure.
            Err(failure) if failure.detail.is_empty() => {}
            Err(failure) => {
                self.report(self.evidence.unwrap_or(AttemptOutcome::Cancelled));
                self.endpoint.record_failure(&failure.detail);
                (terms.notice)(&failure.detail, Some(&label));
            }
        }
    }

    /// Streams the body; returns the sender and the trailers at its end, or `None` if the client disconnected.
    async fn stream_parts(
        &mut self,
        mut sender: BodySender,
        terms: &ScriptTerms,
    ) -> Result<Option<(BodySender, BodyTrailers)>, HandlerFailure> {
        let idle_timeout = terms.idle_timeout;
        let (executor, tick) = (self.executor(), TICK.min(idle_timeout));
        let mut spools = terms.spools.as_ref();
        // The time without events, in whole ticks.
        let mut idle_time = Duration::ZERO;
        loop {
            // Once a spool is used, the wait is unlimited: the spool applies its own limits.
            let stall = spools.map_or(Duration::MAX, |_| STALL);
            let room = poll_fn(|context| self.poll_room(&sender, context));
            match executor.timeout(stall, room).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // The client is slow: a spool takes the remaining body, so that the connection to the origin is freed
                // early.
                Err(_) => {
                    if let Some(spools) = spools.take() {
                        sender = spools.spool_for(sender, &executor);
                    }
                    // Waiting for the client does not count as silence of the origin.
                    idle_time = Duration::ZERO;
                }
            }
            let event = poll_fn(|context| self.poll_event(context));
            // Short ticks replace one long timeout, which would have to be set again for each part.
            let Ok(event) = executor.timeout(tick, event).await else {
                idle_time += tick;
                match idle_time >= idle_timeout {
                    true => return Err(self.timeout_failure(idle_timeout)),
                    false => continue,
                }
            };
            idle_time = Duration::ZERO;
            match event? {
                ExchangeEvent::Received(ResponseEvent::Data(data)) => {
                    // If the client disconnected, dropping the lease cancels the request at the origin.
                    if sender.push(data).is_err() {
                        return Ok(None);
                    }
                }
                ExchangeEvent::Received(ResponseEvent::End(trailers)) => {
                    return Ok(Some((sender, trailers)));
                }
                ExchangeEvent::Received(_) | ExchangeEvent::Sent => {}
            }
        }
    }

    /// Ready with true when the client's buffer has room, with false if the client disconnected. Meanwhile the request
    /// is sent.
    fn poll_room(&mut self, sender: &BodySender, context: &mut Context<'_>) -> Poll<bool> {
        match sender.poll_room(context) {
            Poll::Ready(room) => Poll::Ready(room.is_ok()),
            // The request body is sent even while the client does not read.
            Poll::Pending => match self.poll_send(context) {
                // The client aborted its request body, so the response is useless as well.
                Err(_) => Poll::Ready(false),
                Ok(_) => Poll::Pending,
            },
        }
    }

    fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ExchangeEvent, HandlerFailure>> {
        // The request is sent first: the origin may wait for the body before it responds.
        let sent = self.poll_send(context)?;
        match self.transport.poll_event(context) {
            Poll::Ready(Ok(event)) => {
                self.send_state.is_answered = true;
                Poll::Ready(Ok(ExchangeEvent::Received(event)))
            }
            Poll::Ready(Err(fault)) => {
                // Even a partial or malformed response shows that the request may have been executed.
                let has_response_bytes = self.transport.has_input();
                self.send_state.is_answered |=
                    has_response_bytes || matches!(fault, OriginFault::Bad(_));
                self.evidence = Some(match fault {
                    OriginFault::Bad(_) => AttemptOutcome::Malformed,
                    OriginFault::Closed
                    | OriginFault::Failed(_)
                    | OriginFault::Reset(_)
                    | OriginFault::Unprocessed(_)
                    | OriginFault::Silent => AttemptOutcome::Lost,
                });
                let detail = format!("{} {fault}", self.endpoint.name);
                Poll::Ready(Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail)))
            }
            Poll::Pending if sent => Poll::Ready(Ok(ExchangeEvent::Sent)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends as much of the request as the origin accepts; returns whether any byte was sent.
    ///
    /// # Errors
    /// The client aborted the request body.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        match self.transport {
            ExchangeTransport::Exclusive(_) => self.poll_write(context),
            ExchangeTransport::Multiplexed(_) => self.poll_feed(context),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let mut has_sent = false;
        // The loop is bounded: a fast client and a fast origin must not starve other tasks of the worker.
        for _ in 0..16 {
            if !self.send_state.has_more() {
                match self.next_piece(context)? {
                    true => continue,
                    false => return Ok(has_sent),
                }
            }
            let Some(lease) = self.transport.lease() else {
                return Ok(has_sent);
            };
            let connection = &mut lease.connection;
            match connection.poll_write_buffer(context, self.send_state.buffer()) {
                Poll::Pending => {
                    // The I/O driver may own the buffer: its bytes may be sent even if this future is dropped now.
                    self.send_state.mark_lent();
                    return Ok(has_sent);
                }
                Poll::Ready(Ok(len @ 1..)) => {
                    self.send_state.mark_sent(len);
                    has_sent = true;
                }
                // The origin may have responded before it stopped reading (RFC 9112 §9.5), so the response is still
                // read.
                Poll::Ready(_) => {
                    self.progress = BodyProgress::Refused;
                    self.send_state.discard();
                }
            }
        }
        // The bound was reached: the task is polled again after the worker's other tasks.
        context.waker().wake_by_ref();
        Ok(has_sent)
    }

    /// Passes available parts of the body to the connection's task, as far as it accepts them.
    fn poll_feed(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let ExchangeTransport::Multiplexed(exchange) = &mut self.transport else {
            return Ok(false);
        };
        let mut has_sent = false;
        // Bounded, as in `poll_write`.
        for _ in 0..16 {
            let Some(body) = &mut self.body else {
                return Ok(has_sent);
            };
            if self.progress != BodyProgress::Sending {
                return Ok(has_sent);
            }
            match exchange.poll_room(context) {
                Poll::Pending => return Ok(has_sent),
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    self.progress = BodyProgress::Refused;
                    return Ok(has_sent);
                }
            }
            let Poll::Ready(next) = body.poll_next(context) else {
                return Ok(has_sent);
            };
            let is_framed = match next {
                StreamItem::Bytes(bytes) => exchange.send(bytes),
                StreamItem::End => {
                    self.progress = BodyProgress::Sent;
                    exchange.end(trailer_lines(body))
                }
                // The client reads the rest of the response. The end of the exchange resets the stream.
                StreamItem::Cut if self.has_head => {
                    self.progress = BodyProgress::Refused;
                    return Ok(has_sent);
                }
                // The stream is reset, so that the origin does not take the truncated body for a complete one.
                StreamItem::Cut => false,
            };
            if !is_framed {
                return Err(truncation_failure());
            }
            has_sent = true;
        }
        context.waker().wake_by_ref();
        Ok(has_sent)
    }

    /// Frames the next piece of the body, if one is available.
    fn next_piece(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let Some(body) = &mut self.body else {
            return Ok(false);
        };
        // Once the origin refused more bytes, the body is neither sent nor read.
        if self.progress != BodyProgress::Sending {
            return Ok(false);
        }
        let Poll::Ready(next) = body.poll_next(context) else {
            return Ok(false);
        };
        let Some(lease) = self.transport.lease() else {
            return Ok(false);
        };
        let http = &mut lease.connection.http;
        let framed = match next {
            StreamItem::Bytes(bytes) => {
                let framed = http.data(bytes.len() as u64, self.send_state.reset_framing());
                self.send_state.set_piece(bytes, http.data_end());
                framed
            }
            StreamItem::End => {
                let lines = trailer_lines(body);
                self.progress = BodyProgress::Sent;
                http.end(&lines, self.send_state.reset_framing())
            }
            // The client reads the rest of the response.
            StreamItem::Cut if self.has_head => {
                self.progress = BodyProgress::Refused;
                return Ok(false);
            }
            // The body is not terminated, so that the origin does not take the truncated body for a complete one.
            StreamItem::Cut => return Err(truncation_failure()),
        };
        framed.map_err(|_| truncation_failure())?;
        Ok(true)
    }

    /// Ends the exchange. The connection is kept if request and response are complete.
    fn finish(mut self: Box<Self>) {
        self.report(self.evidence.unwrap_or(AttemptOutcome::Answered));
        // After an unfinished body, the origin would read the next request as a part of it.
        if let ExchangeTransport::Exclusive(lease) = self.transport
            && self.progress == BodyProgress::Sent
            && self.is_shared
            && !self.send_state.has_more()
            && lease.connection.http.is_idle()
        {
            self.endpoint.pool().release(lease);
        }
    }

    /// Reports the outcome of the attempt, once.
    pub fn report(&mut self, outcome: AttemptOutcome) {
        self.endpoint.counters.count(outcome);
        if let Some(attempt) = self.attempt.take() {
            let timers = &self.endpoint.pool().worker_handle(self.worker).timers;
            attempt.report(outcome, timers.now_ms());
        }
    }

    /// Converts the exchange to a failure that records how far the attempt got.
    fn into_failure(self: Box<Self>, failure: HandlerFailure) -> ProxyFailure {
        let is_lost = self.evidence == Some(AttemptOutcome::Lost);
        // A body cannot be replayed once its beginning was discarded.
        let body = match self.body {
            Some(body) => body.rewound().map(Some),
            None => Some(None),
        };
        ProxyFailure {
            failure,
            outcome: self.evidence.unwrap_or(AttemptOutcome::Cancelled),
            attempt: self.attempt,
            body,
            permit: self.permit,
            sent: match &self.transport {
                ExchangeTransport::Exclusive(_) => self.send_state.has_begun(),
                ExchangeTransport::Multiplexed(exchange) => {
                    !exchange.is_unprocessed && !exchange.is_unsent
                }
            },
            is_answered: self.send_state.is_answered,
            is_stale: !self.send_state.is_answered && self.transport.is_stale(is_lost),
        }
    }

    fn timeout_failure(&mut self, timeout: Duration) -> HandlerFailure {
        self.evidence = Some(AttemptOutcome::TimedOut);
        if let ExchangeTransport::Multiplexed(exchange) = &mut self.transport {
            // If the connection is dead, the next requests need another one.
            exchange.check_liveness();
        }
        let name = &self.endpoint.name;
        let detail = format!("{name} sent nothing for {} ms", timeout.as_millis());
        HandlerFailure::new(StatusCode::GATEWAY_TIMEOUT, detail)
    }

    pub(super) fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Worker(self.endpoint.pool().worker_handle(self.worker).clone())
    }
}

impl OriginHead {
    fn response(self, content: ResponseContent) -> HandlerResponse {
        HandlerResponse {
            status: self.status,
            fields: self.fields,
            content,
            source: None,
        }
    }
}

/// The trailers of a complete request body, as lines.
fn trailer_lines(body: &ProxyRequestBody) -> Vec<u8> {
    let mut lines = Vec::new();
    if let Some(trailers) = body.trailers() {
        h1::put_fields(trailers, &mut lines);
    }
    lines
}

fn join_parts(mut parts: VecDeque<Bytes>) -> Bytes {
    if parts.len() > 1 {
        let mut joined_bytes = Vec::with_capacity(parts.iter().map(Bytes::len).sum());
        parts
            .iter()
            .for_each(|part| joined_bytes.extend_from_slice(part));
        return joined_bytes.into();
    }
    parts.pop_front().unwrap_or_default()
}
