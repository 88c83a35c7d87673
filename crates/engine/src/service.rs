//! What a worker asks of the program above it: a response to a request.
//!
//! A service answers at once from what it has in memory, or defers; it never blocks, and knows no protocol's bytes.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_http::forwarding::{self, ForwardedRequest};
use lowroad_http::h1::H1RequestHead;
use lowroad_http::protocol::StreamId;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::version::HttpVersion;

use crate::driver::{ConnectionToken, ListenerId};
use crate::pass_through::PassThroughTarget;
use crate::response::ResponseWriter;
use crate::stream::BodyReceiver;
use crate::tls_session::{TlsInfo, TlsSession};

/// Names an exchange of a worker for as long as the worker runs. A late outcome of a finished exchange reaches no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    /// The connection.
    pub connection: ConnectionToken,
    /// Which of its exchanges.
    pub stream: StreamId,
}

impl ExchangeId {
    /// The name of no exchange; its outcomes are dropped.
    pub const NOBODY: ExchangeId = ExchangeId {
        connection: ConnectionToken::NOBODY,
        stream: StreamId(0),
    };
}

/// The context of one request. Created once: while the request is deferred the engine keeps it with the fields that the
/// service has set, and brings the times up to date.
pub struct Exchange {
    /// Its name, for the outcome of a deferred request.
    pub id: ExchangeId,
    /// Where the client is.
    pub peer: IpAddr,
    /// Its port there; 0 where it is not known.
    pub peer_port: u16,
    /// The proxy at the other end of the connection, if its PROXY header named the client.
    pub proxy: Option<IpAddr>,
    /// What was agreed on with it, if the connection has a layer.
    pub secured: Option<Arc<TlsInfo>>,
    /// The client's request as the service takes it from a trusted proxy, if the connection is from one.
    pub forwarded: Option<Arc<ForwardedRequest>>,
    /// Where it connected.
    pub listener: ListenerId,
    /// The version of HTTP that the client speaks.
    pub protocol: HttpVersion,
    /// Monotonic ms.
    pub now_ms: u64,
    /// When the request's head was complete, monotonic us, as precise as `now_ms`. A service that reads a finer clock sets
    /// it anew when the request comes.
    pub started_us: u64,
    /// Seconds since 1970.
    pub unix_s: u64,
    /// The request's body, if it has one: to be taken by who wants it, when the request comes. What nobody takes is
    /// dropped.
    pub body: Option<BodyReceiver>,
    /// How many bytes it has, 0 if there is none; `None` if the client did not say.
    pub body_len: Option<u64>,
    /// The longest body, in bytes, that the connection's protocol takes.
    pub body_len_max: u64,
    /// Not all of the body has come. A response that is written now is the connection's last, unless little is missing.
    pub is_body_coming: bool,
    /// The service takes the request for malformed, as HTTP does others: it is counted with those.
    pub is_refused: bool,
    /// The service has verified the user whom the request names.
    pub is_user: bool,
    /// The service has deferred the request, and does not know yet whether it wants the body: a client that expects
    /// 100 (Continue) gets none before the next answer.
    pub is_body_undecided: bool,
}

impl Exchange {
    /// That of a request without a body over no connection of a worker's: no outcome comes for it.
    pub fn without_client(
        (listener, peer): (ListenerId, IpAddr),
        protocol: HttpVersion,
        now_ms: u64,
        unix_s: u64,
    ) -> Exchange {
        Exchange {
            id: ExchangeId::NOBODY,
            peer,
            peer_port: 0,
            proxy: None,
            secured: None,
            forwarded: None,
            listener,
            protocol,
            now_ms,
            started_us: now_ms * 1000,
            unix_s,
            body: None,
            body_len: Some(0),
            body_len_max: u64::MAX,
            is_body_coming: false,
            is_refused: false,
            is_user: false,
            is_body_undecided: false,
        }
    }

    /// Whether the client announces a body that is longer than the limit.
    pub fn is_body_too_long(&self) -> bool {
        self.body_len.is_some_and(|len| len > self.body_len_max)
    }

    /// Whether the client's request is over https: as a trusted proxy reports it, else as it came.
    pub fn is_https(&self) -> bool {
        forwarding::is_https(self.forwarded.as_deref(), self.secured.is_some())
    }
}

/// What became of a request.
pub enum ServiceOutcome<P, R> {
    /// The response is written. The record, if any, comes back when it has been sent.
    Ready(Option<R>),
    /// An outcome will come through the mailbox, and is then given to [`HttpService::resume`] with this.
    Deferred {
        /// What the service needs to go on. Dropped when the connection ends before.
        pending: P,
        /// Somebody works for this client alone, and would like to know if it goes.
        gives_up: bool,
    },
    /// The body is to be read and dropped first; then this is given to [`HttpService::body_dropped`].
    AfterBody(P),
}

/// The program above the workers; one value per worker.
pub trait HttpService {
    /// What is kept of a request that was deferred.
    type Pending;
    /// What a deferred request waits for.
    type Outcome: Send + 'static;
    /// What is to be logged about an answer.
    type Record;
    /// What an operator changes while the server runs.
    type Command: Send + 'static;

    /// Whether connections of a listener are sealed.
    fn has_layer(&self, listener: ListenerId) -> bool {
        let _ = listener;
        false
    }

    /// What a new connection of a listener is sealed by, if those are.
    fn layer(&mut self, listener: ListenerId) -> Option<Box<dyn TlsSession>> {
        let _ = listener;
        None
    }

    /// The destination to which an HTTP/1 connection is passed through, with this request and all later bytes; without
    /// a request, for bytes that are no request. `None`: this server answers.
    #[inline]
    fn pass_through(
        &mut self,
        listener: ListenerId,
        head: Option<&H1RequestHead<'_>>,
    ) -> Option<PassThroughTarget> {
        let _ = (listener, head);
        None
    }

    /// A connection is passed through from this request on; without a head, from bytes that are no request. `input`
    /// begins with its first byte. The record comes back when the last byte for the client has left.
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

    /// Goes on with a request that was deferred.
    fn resume(
        &mut self,
        pending: Self::Pending,
        outcome: Self::Outcome,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Self::Pending, Self::Record>;

    /// Goes on with a request whose body was of no use.
    fn body_dropped(
        &mut self,
        pending: Self::Pending,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<Self::Pending, Self::Record>;

    /// Answers a request that is refused, with the parts that were read. Over HTTP/1 the connection closes afterwards.
    fn refuse(
        &mut self,
        why: ConnectionRefusal,
        partial: &PartialRequest<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<Self::Record>;

    /// Answers a request that was deferred, and whose body does not come as it should; as [`HttpService::refuse`] does.
    fn refuse_pending(
        &mut self,
        why: ConnectionRefusal,
        _pending: Self::Pending,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<Self::Record> {
        self.refuse(why, &PartialRequest::default(), exchange, response)
    }

    /// A deferred request ends without a response: its client has gone.
    fn abandoned(&mut self, pending: Self::Pending, exchange: &mut Exchange) {
        let _ = (pending, exchange);
    }

    /// A connection that a proxy passes on was closed, because it did not begin with what the proxy has to say.
    fn proxy_header_rejected(&mut self, _proxy: IpAddr, _why: &'static str) {}

    /// An answer with a record has left: `body_len` bytes of its body, `whole` if all of them.
    fn sent(&mut self, record: Self::Record, body_len: u64, whole: bool, now_ms: u64);

    /// Takes an operator's change.
    fn command(&mut self, command: Self::Command);

    /// Called once per turn of the event loop: a place to pass on what was gathered.
    fn turn_ended(&mut self, now_ms: u64);
}

/// Why a connection gets an answer without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The bytes are not a request that we take.
    Request(RequestRefusal),
    /// The request did not come in time (RFC 9110 §15.5.9).
    Timeout,
    /// There are too many connections.
    Overload,
    /// It came in clear text where TLS is spoken.
    ClearText,
}
