//! The interface between a worker and the server that uses the engine: the worker passes requests, the service writes
//! responses.
//!
//! A service answers immediately from memory, or defers the request. It never blocks, and knows no wire format.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_http::forwarding::{self, ForwardedRequest};
use lowroad_http::h1::H1RequestHead;
use lowroad_http::protocol::StreamId;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::version::HttpVersion;
use lowroad_limits::RefusalReason;
use lowroad_traces::RequestTracing;

use crate::authentication::Authentication;
use crate::driver::{ConnectionToken, ListenerId};
use crate::pass_through::PassThroughTarget;
use crate::quic_transport::QuicTransport;
use crate::request_id::LazyRequestId;
use crate::response::ResponseWriter;
use crate::response_pace::ResponseRate;
use crate::stream::BodyReceiver;
use crate::tls_session::{TlsInfo, TlsSession};
use crate::upstream_tries::UpstreamTries;

/// Identifies an exchange of a worker, so that a late outcome can't reach a later exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    /// The connection.
    pub connection: ConnectionToken,
    /// The exchange on this connection.
    pub stream: StreamId,
}

impl ExchangeId {
    /// An identifier that belongs to no exchange; outcomes for it are dropped.
    pub const NONE: ExchangeId = ExchangeId {
        connection: ConnectionToken::NONE,
        stream: StreamId(0),
    };
}

/// The context of one request. Created once: while the request is deferred the engine keeps it with the fields that the
/// service has set, and updates the times.
pub struct Exchange {
    /// Identifies the exchange, for the outcome of a deferred request.
    pub id: ExchangeId,
    /// The client's address.
    pub peer: IpAddr,
    /// The client's port; 0 if it is not known.
    pub peer_port: u16,
    /// The proxy at the other end of the connection, if a PROXY header contained the client's address.
    pub proxy: Option<IpAddr>,
    /// The user ID of the client of a Unix socket, if [`HttpService::NEEDS_PEER_USER`].
    pub peer_user: Option<u32>,
    /// The parameters of the TLS session, if the connection uses TLS.
    pub tls: Option<Arc<TlsInfo>>,
    /// The client's request as a trusted proxy describes it, if the connection is from one.
    pub forwarded: Option<Arc<ForwardedRequest>>,
    /// The listener that accepted the connection.
    pub listener: ListenerId,
    /// The version of HTTP.
    pub protocol: HttpVersion,
    /// Monotonic ms.
    pub now_ms: u64,
    /// When the request's head was complete, monotonic µs, with the resolution of `now_ms`. A service with a finer
    /// clock overwrites this value when the request arrives.
    pub started_us: u64,
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The request came in early data of TLS, so it may be a replay (RFC 8470).
    pub is_early: bool,
    /// The request's body, if it has one. The service takes the body when it gets the request; otherwise the body is
    /// received and dropped.
    pub body: Option<BodyReceiver>,
    /// The length of the body in bytes, 0 without a body; `None` if the client did not announce it.
    pub body_len: Option<u64>,
    /// The longest body, in bytes, that the connection's protocol accepts. The service may lower it before it defers the
    /// request.
    pub body_len_max: u64,
    /// The body is incomplete. A response that is written now is the last on an HTTP/1 connection, unless the rest of
    /// the body is short.
    pub is_body_incomplete: bool,
    /// The service considers the request malformed: it is counted with those that the parser refused.
    pub is_refused: bool,
    /// Access logs do not contain the request.
    pub is_unlogged: bool,
    /// The limit for the rate of the response's body.
    pub rate: Option<ResponseRate>,
    /// Whether a rule has set `rate`, so that a route must not replace it.
    pub is_rate_by_rule: bool,
    /// The limit at which the service has refused the request, for its statistics.
    pub refusal_reason: Option<RefusalReason>,
    /// A number that the service uses for its statistics: the kind of the rule that answers the request; 0 without a rule.
    pub answering_rule: u8,
    /// The service has verified the user named by the request.
    pub is_user: bool,
    /// The result of an authentication other than by password.
    pub authentication: Option<Box<Authentication>>,
    /// The client has ended its direction of the connection while the request was deferred, so it may be gone: the
    /// response counts as sent only when the client has acknowledged it.
    pub has_client_ended: bool,
    /// A number that the service uses for its statistics: the site and the route of the request. Initially 0.
    pub metric_scope: u16,
    /// The trace of the request, which the service starts.
    pub tracing: RequestTracing,
    /// The identifier of the request, see [`Exchange::request_id`].
    pub request_id: LazyRequestId,
    /// The attempts to get a response from upstream servers, if the service records them.
    pub upstream_tries: Option<Arc<UpstreamTries>>,
    /// The service has deferred the request and does not know yet whether it needs the body: no 100 (Continue) is sent
    /// before the service's next result.
    pub is_body_undecided: bool,
}

impl Exchange {
    /// The context of a request without a connection and without a body; it can't be deferred.
    pub fn without_client(
        listener: ListenerId,
        peer: IpAddr,
        protocol: HttpVersion,
        now_ms: u64,
        unix_s: u64,
    ) -> Exchange {
        Exchange {
            id: ExchangeId::NONE,
            peer,
            peer_port: 0,
            proxy: None,
            peer_user: None,
            tls: None,
            forwarded: None,
            listener,
            protocol,
            now_ms,
            started_us: now_ms * 1000,
            unix_s,
            is_early: false,
            body: None,
            body_len: Some(0),
            body_len_max: u64::MAX,
            is_body_incomplete: false,
            is_refused: false,
            is_unlogged: false,
            rate: None,
            is_rate_by_rule: false,
            refusal_reason: None,
            answering_rule: 0,
            is_user: false,
            authentication: None,
            has_client_ended: false,
            metric_scope: 0,
            tracing: RequestTracing::default(),
            request_id: LazyRequestId::default(),
            upstream_tries: None,
            is_body_undecided: false,
        }
    }

    /// The identifier of the request: random, and the same for the whole request. It is made when it is first needed.
    pub fn request_id(&self) -> u128 {
        self.request_id.get()
    }

    /// Lowers the limit for the body.
    pub fn limit_body(&mut self, len_max: u64) {
        self.body_len_max = self.body_len_max.min(len_max);
    }

    /// Whether the body is longer than the limit: the client announces it, or it has arrived.
    pub fn is_body_too_long(&self) -> bool {
        let received_len = || Some(self.body.as_ref()?.remaining_len()? as u64);
        let len = self.body_len.or_else(received_len);
        len.is_some_and(|len| len > self.body_len_max)
    }

    /// Whether the client uses https: according to a trusted proxy, or else to this connection.
    pub fn is_https(&self) -> bool {
        forwarding::is_https(self.forwarded.as_deref(), self.tls.is_some())
    }
}

/// The result of a request.
pub enum ServiceOutcome<P, R> {
    /// The response is written. The record, if any, is passed to [`HttpService::sent`] when the response has been sent.
    Ready(Option<R>),
    /// The outcome will arrive through the mailbox, and is then passed to [`HttpService::resume`] with `pending`.
    Deferred {
        /// The service's state for resuming. If the connection ends first, it is passed to [`HttpService::abandoned`].
        pending: P,
        /// The work is for this client only, and is to be cancelled if the client disconnects.
        cancel_on_disconnect: bool,
    },
    /// The body is received and dropped first; then this state is passed to [`HttpService::body_dropped`].
    AfterBody(P),
}

/// The server that uses the engine; one value per worker.
pub trait HttpService {
    /// The service's state of a deferred request.
    type Pending;
    /// The result for which a deferred request waits.
    type Outcome: Send + 'static;
    /// The data for the log entry of a response.
    type Record;
    /// An operator's command to the running server.
    type Command: Send + 'static;

    /// Whether the service uses [`Exchange::peer_user`], which costs a system call for each request.
    const NEEDS_PEER_USER: bool = false;

    /// Whether connections of a listener use TLS.
    fn has_tls(&self, listener: ListenerId) -> bool {
        let _ = listener;
        false
    }

    /// The TLS session for a new connection of a listener, if its connections use TLS.
    fn tls_session(&mut self, listener: ListenerId) -> Option<Box<dyn TlsSession>> {
        let _ = listener;
        None
    }

    /// The QUIC of the worker's datagram socket at the address of a listener, if the listener has HTTP/3.
    fn quic_transport(&mut self, listener: ListenerId) -> Option<Box<dyn QuicTransport>> {
        let _ = listener;
        None
    }

    /// The destination to which an HTTP/1 connection is passed through, with this request and all later bytes. Without
    /// a head: for bytes that are not an HTTP request. `None`: this server answers.
    #[inline]
    fn pass_through(
        &mut self,
        listener: ListenerId,
        head: Option<&H1RequestHead<'_>>,
    ) -> Option<PassThroughTarget> {
        let _ = (listener, head);
        None
    }

    /// Called when a connection is passed through, starting with this request or, without a head, with bytes that are
    /// not an HTTP request. `input` begins with the first byte that is passed through. The record is passed to
    /// [`HttpService::sent`] when the last byte for the client has been sent.
    fn passed_through(
        &mut self,
        head: Option<&H1RequestHead<'_>>,
        input: &[u8],
        exchange: &Exchange,
    ) -> Option<Self::Record> {
        let _ = (head, input, exchange);
        None
    }

    /// Answers a request, or defers it.
    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Self::Pending, Self::Record>;

    /// Resumes a deferred request.
    fn resume(
        &mut self,
        pending: Self::Pending,
        outcome: Self::Outcome,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Self::Pending, Self::Record>;

    /// Resumes a request after its body was read and dropped.
    fn body_dropped(
        &mut self,
        pending: Self::Pending,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Self::Pending, Self::Record>;

    /// Writes the response to a refused request, of which `partial` has the parts that were parsed. Over HTTP/1 the
    /// connection closes afterwards.
    fn refuse(
        &mut self,
        refusal: ConnectionRefusal,
        partial: &PartialRequest<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<Self::Record>;

    /// Refuses a deferred request for a malformed or late body; as [`HttpService::refuse`].
    fn refuse_pending(
        &mut self,
        refusal: ConnectionRefusal,
        _pending: Self::Pending,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<Self::Record> {
        self.refuse(refusal, &PartialRequest::default(), exchange, response)
    }

    /// Called when a deferred request ends without a response, as its client has disconnected.
    fn abandoned(&mut self, pending: Self::Pending, exchange: &mut Exchange) {
        let _ = (pending, exchange);
    }

    /// Called when a connection from a proxy was closed because it did not begin with a valid PROXY header.
    fn proxy_header_rejected(&mut self, _proxy: IpAddr, _reason: &'static str) {}

    /// Called when a response with a record has ended. `body_len` bytes of its body were sent; all of them if
    /// `is_complete`. Of a response to a client that was gone ([`Exchange::has_client_ended`]), none were sent.
    fn sent(&mut self, record: Self::Record, body_len: u64, is_complete: bool, now_ms: u64);

    /// Applies an operator's command.
    fn command(&mut self, command: Self::Command);

    /// Called after a panic of the worker, before its connections end: resets state that the panic may have left
    /// incomplete.
    fn recover(&mut self) {}

    /// Called at the start of a turn of the event loop in which something is due: how late it is, in ms.
    fn loop_lag(&mut self, lag_ms: u64) {
        let _ = lag_ms;
    }

    /// Called once per turn of the event loop, to publish gathered data.
    fn turn_ended(&mut self, now_ms: u64);
}

/// Why the engine refuses a request or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The request is malformed or exceeds a limit.
    Request(RequestRefusal),
    /// The request did not arrive completely in time (408, RFC 9110 §15.5.9).
    Timeout,
    /// There are too many connections.
    Overload,
    /// The client sent clear text to a TLS listener.
    ClearText,
}
