//! One exchange with an origin: sends the request while it receives the response, each as fast as the other side
//! accepts it. The choice of the server and the use of the response are in other modules.
//!
//! Memory per exchange: one piece of the request's body, one part of the response, and the streams' buffers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::{BodySender, StreamItem, stream};
use lowroad_handler::executor::ResponseExecutor;
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::request_body::truncation_failure;
use lowroad_handler::spool::STALL;
use lowroad_handler::{HandlerFailure, HandlerResponse, ResponseContent, ResponseFields};
use lowroad_http::h1;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_origin::group::AttemptOutcome;

use super::link::{OriginConnector, OriginFault, ResponseEvent};
use super::permit::RoutePermit;
use super::request_body::ProxyRequestBody;
use super::request_send::RequestSend;
use super::servers::{OriginAttempt, OriginEndpoint};
use super::tunnel;
use crate::script::exchange::ScriptTerms;

/// A connection for one request.
type OriginLease = lowroad_origin::Lease<OriginConnector>;

/// The maximum of a body that is collected without waiting, before the response becomes a stream.
const AT_ONCE_LEN_MAX: usize = 64 << 10;
/// Bytes of a response that are buffered for the client.
const WAITING_LEN_MAX: usize = 64 << 10;
/// While the origin is silent, a closed client connection is noticed at least after this time.
const TICK: Duration = Duration::from_millis(500);

/// An exchange in progress. Dropping it closes the connection, which cancels the request at the origin.
pub struct ProxyExchange {
    /// The server.
    pub endpoint: Arc<OriginEndpoint>,
    /// The attempt at one of several servers.
    pub attempt: Option<OriginAttempt>,
    /// The connection.
    pub lease: OriginLease,
    /// Whether the connection may be reused for other clients.
    pub is_shared: bool,
    /// The output.
    pub send_state: RequestSend,
    /// The request's body, if any.
    pub body: Option<ProxyRequestBody>,
    /// The progress of the body.
    pub progress: BodyProgress,
    /// The request's method.
    pub method: Method,
    /// The route permit.
    pub permit: RoutePermit,
    /// The evidence against the server, if any.
    pub evidence: Option<AttemptOutcome>,
}

/// The progress of the request's body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BodyProgress {
    /// More bytes follow.
    Coming,
    /// It is complete, or there is none.
    Sent,
    /// The origin does not accept more.
    Refused,
}

/// An attempt that ended without a response.
pub struct ProxyFailure {
    /// The failure.
    pub failure: HandlerFailure,
    /// The evidence about the server.
    pub outcome: AttemptOutcome,
    /// The attempt, not yet reported.
    pub attempt: Option<OriginAttempt>,
    /// The request's complete body, if it can be replayed.
    pub body: Option<Option<ProxyRequestBody>>,
    /// The route permit.
    pub permit: RoutePermit,
    /// Whether bytes of the request may have reached the server.
    pub sent: bool,
    /// Whether bytes of a response were received.
    pub is_answered: bool,
    /// Stale connection: a reused connection that the server had already closed. No evidence against the server.
    pub is_stale: bool,
}

impl ProxyFailure {
    /// A failure before any byte was sent.
    pub fn before(
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
    /// A part of the request was sent.
    Sent,
    Said(ResponseEvent),
}

/// The start of the response.
enum ExchangeStart {
    Response(OriginHead),
    /// An upgrade to this protocol, with the fields of the 101 response.
    Protocol(Vec<u8>, ResponseFields),
}

/// The trailers of a body that ended.
type BodyTrailers = Option<Box<ResponseFields>>;

/// The head of a response.
struct OriginHead {
    status: StatusCode,
    fields: ResponseFields,
    len: Option<u64>,
}

impl ProxyExchange {
    /// Waits for the head of the response, at most `first_byte`, and spawns a task for the body if it must be streamed.
    ///
    /// # Errors
    /// [`ProxyFailure`]
    pub async fn response(
        mut self: Box<Self>,
        first_byte: Duration,
        terms: &ScriptTerms,
        interims: &mut InterimSink,
    ) -> Result<HandlerResponse, ProxyFailure> {
        let head = self.head(first_byte, interims);
        let head = match head.await {
            Ok(ExchangeStart::Response(head)) => head,
            Ok(ExchangeStart::Protocol(protocol, fields)) => {
                return Ok(tunnel::begin(self, terms.idle_timeout, protocol, fields));
            }
            Err(failure) => return Err(self.into_failure(failure)),
        };
        // It is no upgrade, so the tunnel's share is free for others.
        self.permit.stay_request();
        // The response is forwarded all the same; it only counts against the member.
        if matches!(head.status.code(), 502..=504) {
            self.evidence = Some(AttemptOutcome::ServerError);
        }
        // A HEAD response may have a length without a body.
        let is_bodiless = self.method == Method::Head || head.status.is_bodiless();
        // A body that is already in the input needs neither a stream nor a task.
        if !is_bodiless && let Some(body) = self.lease.connection.take_rest() {
            self.finish();
            return Ok(head.response(ResponseContent::Bytes(body)));
        }
        let (parts, end_trailers) = match self.collect_available().await {
            Ok(collected) => collected,
            Err(failure) => return Err(self.into_failure(failure)),
        };
        // Complete, without trailers: bytes instead of a stream, with a known length.
        if let (Some(None), false) = (&end_trailers, is_bodiless) {
            self.finish();
            return Ok(head.response(ResponseContent::Bytes(join_parts(parts))));
        }
        // The rest streams: its length may be unknown, and the client may be slower than the origin.
        let (sender, stream) = stream(WAITING_LEN_MAX);
        for part in parts {
            // The stream is open: this function holds the receiver.
            let _ = sender.push(part);
        }
        let len = head.len;
        match end_trailers {
            Some(trailers) => {
                sender.end_with(trailers);
                self.finish();
            }
            // The body takes longer: a task streams it, and the handler's future ends with the head.
            None => {
                let executor = self.executor();
                executor.spawn(self.stream_rest(sender, terms.clone()));
            }
        }
        Ok(head.response(ResponseContent::Stream { len, stream }))
    }

    /// Waits for the final response; forwards interim responses.
    async fn head(
        &mut self,
        timeout: Duration,
        interims: &mut InterimSink,
    ) -> Result<ExchangeStart, HandlerFailure> {
        // The request is sent first: no response can exist yet, so a read would be a wasted system call.
        poll_fn(|context| Poll::Ready(self.poll_send(context))).await?;
        let executor = self.executor();
        loop {
            let event = poll_fn(|context| self.poll_event(context));
            // The timeout restarts with each event, so a slow upload does not expire while it progresses.
            match executor.timeout(timeout, event).await {
                Err(_) => return Err(self.timeout_failure(timeout)),
                Ok(Ok(ExchangeEvent::Said(ResponseEvent::Head(status, fields, len)))) => {
                    return Ok(ExchangeStart::Response(OriginHead {
                        status,
                        fields,
                        len,
                    }));
                }
                // RFC 9110 §15.2: a proxy must forward 1xx responses.
                Ok(Ok(ExchangeEvent::Said(ResponseEvent::Interim(status, fields)))) => {
                    interims.send(status, fields);
                }
                Ok(Ok(ExchangeEvent::Said(ResponseEvent::Upgraded(protocol, fields)))) => {
                    return Ok(ExchangeStart::Protocol(protocol, fields));
                }
                Ok(Ok(_)) => {}
                Ok(Err(failure)) => return Err(failure),
            }
        }
    }

    /// Collects the body parts that are available without waiting, so that a short body needs neither a task nor a
    /// stream; also returns its end with the trailers, if it was reached.
    async fn collect_available(
        &mut self,
    ) -> Result<(VecDeque<Bytes>, Option<BodyTrailers>), HandlerFailure> {
        let (mut parts, mut len) = (VecDeque::new(), 0);
        // Bounded: a fast origin must not fill memory before the client gets its head.
        while len < AT_ONCE_LEN_MAX {
            // `Poll::Ready` around the poll: look once, without waiting.
            let event = poll_fn(|context| Poll::Ready(self.poll_event(context))).await;
            match event {
                Poll::Pending => break,
                Poll::Ready(event) => match event? {
                    ExchangeEvent::Said(ResponseEvent::Data(data)) => {
                        len += data.len();
                        parts.push_back(data);
                    }
                    ExchangeEvent::Said(ResponseEvent::End(trailers)) => {
                        return Ok((parts, Some(trailers)));
                    }
                    ExchangeEvent::Said(_) | ExchangeEvent::Sent => {}
                },
            }
        }
        Ok((parts, None))
    }

    /// Streams the rest of a body. A failure from here on truncates it.
    async fn stream_rest(mut self: Box<Self>, sender: BodySender, terms: ScriptTerms) {
        match self.stream_parts(sender, &terms).await {
            // The connection is returned before the end reaches the client: its next request may reuse it.
            Ok(Some((sender, trailers))) => {
                self.finish();
                sender.end_with(trailers);
            }
            // The client left, which is no failure.
            Ok(None) => {}
            // An empty detail means that the client caused the failure.
            Err(failure) if failure.detail.is_empty() => {}
            Err(failure) => {
                self.report(self.evidence.unwrap_or(AttemptOutcome::Cancelled));
                self.endpoint.record_failure(&failure.detail);
                (terms.notice)(&failure.detail);
            }
        }
    }

    /// Returns the stream and the trailers at the end of the body; `None` if the client left.
    async fn stream_parts(
        &mut self,
        mut sender: BodySender,
        terms: &ScriptTerms,
    ) -> Result<Option<(BodySender, BodyTrailers)>, HandlerFailure> {
        let idle_timeout = terms.idle_timeout;
        let (executor, tick) = (self.executor(), TICK.min(idle_timeout));
        let mut spools = terms.spools.as_ref();
        // The time since the last event, in whole ticks.
        let mut idle_time = Duration::ZERO;
        loop {
            // With a spool in place the wait is unlimited: the spool itself applies the limits.
            let stall = spools.map_or(Duration::MAX, |_| STALL);
            let room = poll_fn(|context| self.poll_room(&sender, context));
            match executor.timeout(stall, room).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // The client is slow: a spool takes the rest, so that the origin's connection is free early.
                Err(_) => {
                    if let Some(spools) = spools.take() {
                        sender = spools.spool_for(sender, &executor);
                    }
                    // The wait for the client is not the origin's silence.
                    idle_time = Duration::ZERO;
                }
            }
            let event = poll_fn(|context| self.poll_event(context));
            // In ticks instead of one long timeout, which would have to be set anew for each part.
            let Ok(event) = executor.timeout(tick, event).await else {
                idle_time += tick;
                match idle_time >= idle_timeout {
                    true => return Err(self.timeout_failure(idle_timeout)),
                    false => continue,
                }
            };
            idle_time = Duration::ZERO;
            match event? {
                ExchangeEvent::Said(ResponseEvent::Data(data)) => {
                    // The client left: the rest is of no use, and dropping the lease cancels the request at the origin.
                    if sender.push(data).is_err() {
                        return Ok(None);
                    }
                }
                ExchangeEvent::Said(ResponseEvent::End(trailers)) => {
                    return Ok(Some((sender, trailers)));
                }
                ExchangeEvent::Said(_) | ExchangeEvent::Sent => {}
            }
        }
    }

    /// Ready when the client has room: false if it left. Continues to send the request meanwhile.
    fn poll_room(&mut self, sender: &BodySender, context: &mut Context<'_>) -> Poll<bool> {
        match sender.poll_room(context) {
            Poll::Ready(room) => Poll::Ready(room.is_ok()),
            // While the client is slow, the request's body is still sent.
            Poll::Pending => match self.poll_send(context) {
                // The client aborted its own request body, so its response is of no use either.
                Err(_) => Poll::Ready(false),
                Ok(_) => Poll::Pending,
            },
        }
    }

    fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ExchangeEvent, HandlerFailure>> {
        // Sending first: an origin may wait for the body before it responds.
        let sent = self.poll_send(context)?;
        match self.lease.connection.poll_event(context) {
            Poll::Ready(Ok(event)) => {
                // The server has accepted the connection, so it no longer counts as silent.
                self.lease.mark_proven();
                self.send_state.is_answered = true;
                Poll::Ready(Ok(ExchangeEvent::Said(event)))
            }
            Poll::Ready(Err(fault)) => {
                // Even a partial or malformed response means that the request may have been executed.
                let has_response_bytes = self.lease.connection.has_input();
                self.send_state.is_answered |=
                    has_response_bytes || matches!(fault, OriginFault::Bad(_));
                self.evidence = Some(match fault {
                    OriginFault::Bad(_) => AttemptOutcome::Malformed,
                    OriginFault::Closed | OriginFault::Failed(_) => AttemptOutcome::Lost,
                });
                let detail = format!("{} {fault}", self.endpoint.name);
                Poll::Ready(Err(HandlerFailure::new(StatusCode::BAD_GATEWAY, detail)))
            }
            Poll::Pending if sent => Poll::Ready(Ok(ExchangeEvent::Sent)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends as much of the request as the origin accepts. Returns whether any byte was sent.
    ///
    /// # Errors
    /// The client aborted its body.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let mut has_sent = false;
        // Bounded: a fast client with a fast origin must not starve the worker's other tasks.
        for _ in 0..16 {
            if !self.send_state.has_more() {
                match self.next_piece(context)? {
                    true => continue,
                    false => return Ok(has_sent),
                }
            }
            let connection = &mut self.lease.connection;
            match connection.poll_write_buffer(context, self.send_state.buffer()) {
                Poll::Pending => {
                    // The driver may hold the buffer: bytes may be sent even if this future is dropped now.
                    self.send_state.mark_lent();
                    return Ok(has_sent);
                }
                Poll::Ready(Ok(len @ 1..)) => {
                    self.send_state.mark_sent(len);
                    has_sent = true;
                }
                // The origin may have responded before it closed its receiving side (RFC 9112 §9.5), so reading goes
                // on.
                Poll::Ready(_) => {
                    self.progress = BodyProgress::Refused;
                    self.send_state.discard();
                }
            }
        }
        // The bound was reached: another turn follows after the worker's other tasks.
        context.waker().wake_by_ref();
        Ok(has_sent)
    }

    /// Takes the next piece of the body, if one is available.
    fn next_piece(&mut self, context: &mut Context<'_>) -> Result<bool, HandlerFailure> {
        let Some(body) = &mut self.body else {
            return Ok(false);
        };
        // After a refusal the rest of the body is neither sent nor read.
        if self.progress != BodyProgress::Coming {
            return Ok(false);
        }
        let Poll::Ready(next) = body.poll_next(context) else {
            return Ok(false);
        };
        let http = &mut self.lease.connection.http;
        let framed = match next {
            StreamItem::Bytes(bytes) => {
                let framed = http.data(bytes.len() as u64, self.send_state.reset_framing());
                self.send_state.set_piece(bytes, http.data_end());
                framed
            }
            StreamItem::End => {
                let mut lines = Vec::new();
                if let Some(trailers) = body.trailers() {
                    h1::put_fields(trailers, &mut lines);
                }
                self.progress = BodyProgress::Sent;
                http.end(&lines, self.send_state.reset_framing())
            }
            // Without a proper end the origin must not take the truncated body for a complete one.
            StreamItem::Cut => return Err(truncation_failure()),
        };
        framed.map_err(|_| truncation_failure())?;
        Ok(true)
    }

    /// Ends the exchange: the connection is kept if both sides are complete.
    fn finish(mut self: Box<Self>) {
        self.report(self.evidence.unwrap_or(AttemptOutcome::Answered));
        // An unfinished request body would be read as the next request.
        if self.progress == BodyProgress::Sent
            && self.is_shared
            && !self.send_state.has_more()
            && self.lease.connection.http.is_idle()
        {
            self.endpoint.pool.release(self.lease);
        }
    }

    /// Reports the outcome of the attempt, if there are several servers.
    pub fn report(&mut self, outcome: AttemptOutcome) {
        if let Some(attempt) = self.attempt.take() {
            let timers = &self.endpoint.pool.worker_handle(self.lease.worker).timers;
            attempt.report(outcome, timers.now_ms());
        }
    }

    /// Describes how far the attempt got.
    fn into_failure(self: Box<Self>, failure: HandlerFailure) -> ProxyFailure {
        let is_lost = self.evidence == Some(AttemptOutcome::Lost);
        // A body cannot be replayed once its start is discarded.
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
            sent: self.send_state.has_begun(),
            is_answered: self.send_state.is_answered,
            is_stale: self.lease.is_reused && is_lost && !self.send_state.is_answered,
        }
    }

    fn timeout_failure(&mut self, timeout: Duration) -> HandlerFailure {
        self.evidence = Some(AttemptOutcome::TimedOut);
        let name = &self.endpoint.name;
        let detail = format!("{name} sent nothing for {} ms", timeout.as_millis());
        HandlerFailure::new(StatusCode::GATEWAY_TIMEOUT, detail)
    }

    pub(super) fn executor(&self) -> ResponseExecutor {
        ResponseExecutor::Worker(self.endpoint.pool.worker_handle(self.lease.worker).clone())
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
