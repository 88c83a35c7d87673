//! The admin service: an [`HttpService`] on its own worker thread, so that operators and scrapes do not slow down the
//! workers that serve clients.
//!
//! The event loop never blocks: operations run on helper threads ([`actions`](super::actions)), which post their
//! replies to the mailbox.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::service::ConnectionRefusal;
use lowroad_engine::stream::BodyReceiver;
use lowroad_engine::tls_session::TlsSession;
use lowroad_engine::worker::{MailboxMessage, WorkerMessage};
use lowroad_engine::{Exchange, HttpService, ListenerId, ResponseWriter, ServiceOutcome};
use lowroad_http::h1::BodyLen;
use lowroad_http::method::Method;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_tls_listener::TlsEndpoint;

use super::access::{AdminAccess, AdminCredentials};
use super::actions::AdminActions;
use super::audit::{AuditedChange, RefusalAudit};
use super::call::{AdminCall, AdminClient};
use super::counters::AdminCounters;
use super::operations::{AdminPermission, AdminRequest};
use super::problem::AdminProblem;
use super::request_body::{BodyReception, ReceivedBody};

/// The listener of the Unix socket; its clients need no token.
pub const UNIX_LISTENER: ListenerId = ListenerId(0);
/// The TCP listener.
pub const TCP_LISTENER: ListenerId = ListenerId(1);

/// The mailbox of the service's worker.
pub type AdminMailbox = WorkerMailbox<WorkerMessage<EpollDriver, AdminService>>;

/// A response to an operator.
pub struct AdminReply {
    /// The status.
    pub status: StatusCode,
    /// The media type of the body.
    pub content_type: &'static str,
    /// Further fields.
    pub fields: &'static [(&'static str, &'static str)],
    /// The entity tag of the settings that the body shows.
    pub tag: Option<String>,
    /// The change that was made, for the audit.
    pub change: Option<AuditedChange>,
    /// The body.
    pub body: ReplyBody,
}

/// The body of a response to an operator.
pub enum ReplyBody {
    /// The complete body.
    Bytes(Bytes),
    /// A body that is sent as it is produced.
    Stream(BodyReceiver),
}

impl AdminReply {
    /// A successful response with this body.
    pub fn new(content_type: &'static str, body: Bytes) -> AdminReply {
        AdminReply {
            status: StatusCode::OK,
            content_type,
            fields: &[],
            tag: None,
            change: None,
            body: ReplyBody::Bytes(body),
        }
    }

    /// A text for people.
    pub fn text(text: String) -> AdminReply {
        AdminReply::new("text/plain; charset=utf-8", text.into())
    }

    /// A successful response with a body that is still to come.
    pub fn streamed(content_type: &'static str, stream: BodyReceiver) -> AdminReply {
        AdminReply {
            body: ReplyBody::Stream(stream),
            ..AdminReply::new(content_type, Bytes::new())
        }
    }
}

/// The helper threads that perform operations. Operations that may wait have their own, so that they can't keep the others
/// from being performed.
#[derive(Clone)]
pub struct AdminHelpers {
    /// For operations that end soon.
    pub quick: HelperPool,
    /// For operations that may wait.
    pub waiting: HelperPool,
}

/// Authorizes and answers the requests of operators.
pub struct AdminService {
    actions: Arc<AdminActions>,
    access: Arc<AdminAccess>,
    counters: Arc<AdminCounters>,
    helpers: AdminHelpers,
    refusals: Arc<RefusalAudit>,
    mailbox: AdminMailbox,
    /// TLS of [`TCP_LISTENER`].
    tls: Option<Arc<TlsEndpoint>>,
}

impl AdminService {
    /// Creates a service with helper threads that post their replies to `mailbox`. `tls` is that of the TCP address.
    pub fn new(
        actions: Arc<AdminActions>,
        access: Arc<AdminAccess>,
        counters: Arc<AdminCounters>,
        helpers: AdminHelpers,
        refusals: Arc<RefusalAudit>,
        mailbox: AdminMailbox,
        tls: Option<Arc<TlsEndpoint>>,
    ) -> AdminService {
        AdminService {
            actions,
            access,
            counters,
            helpers,
            refusals,
            mailbox,
            tls,
        }
    }

    /// Returns the requested operation, without its body, if the client may use it.
    fn admitted(
        &self,
        request: &Request<'_>,
        exchange: &mut Exchange,
    ) -> Result<Box<AdminCall>, RefusedRequest> {
        let of_peer = |problem| RefusedRequest {
            by: peer_name(exchange),
            problem,
        };
        let RequestTarget::Origin { path, query, .. } = request.target else {
            return Err(of_peer(AdminProblem::bad_request("the target is no path")));
        };
        let admin_request = AdminRequest::new(request.method, path, query);
        let client = match exchange.listener == TCP_LISTENER {
            true => self
                .tcp_client(request, exchange, &admin_request)
                .map_err(of_peer)?,
            false => AdminClient {
                permission: AdminPermission::Full,
                name: peer_name(exchange),
            },
        };
        let of_client = |problem| RefusedRequest {
            by: client.name.clone(),
            problem,
        };
        let admin_request = admin_request.map_err(of_client)?;
        let body_len_max = admin_request.body_len_max();
        exchange.limit_body(body_len_max);
        if exchange.is_body_too_long() {
            return Err(of_client(AdminProblem::new(
                StatusCode::CONTENT_TOO_LARGE,
                format!("the body is longer than {body_len_max} bytes"),
            )));
        }
        let if_match = list_field(request, "If-Match");
        // A client that sends a condition relies on it.
        if if_match.is_some()
            && admin_request.entry.permission == AdminPermission::Full
            && !admin_request.has_condition()
        {
            return Err(of_client(AdminProblem::bad_request(format!(
                "{} has no ETag; send it without If-Match",
                admin_request.entry.path
            ))));
        }
        Ok(Box::new(AdminCall {
            request: admin_request,
            client,
            target: target_text(request),
            accept: lossy(field(request, "Accept")),
            if_match,
            content_type: field(request, "Content-Type").map(|value| lossy(Some(value))),
            body: Vec::new(),
        }))
    }

    /// The client of a request over TCP.
    fn tcp_client(
        &self,
        request: &Request<'_>,
        exchange: &Exchange,
        admin_request: &Result<AdminRequest, AdminProblem>,
    ) -> Result<AdminClient, AdminProblem> {
        // Checked before unknown paths are reported: a client without a token must not learn which paths exist.
        let needed = admin_request.as_ref().map_or_else(
            |_| AdminPermission::Read,
            |admin_request| admin_request.entry.permission,
        );
        // Two of them could be read differently by a proxy and by this server.
        if fields(request, "Authorization").count() > 1 {
            return Err(AdminProblem::bad_request(
                "several Authorization fields; send one",
            ));
        }
        let tls = exchange.tls.as_deref();
        let credentials = AdminCredentials {
            peer: exchange.peer,
            authorization: field(request, "Authorization"),
            client: tls.and_then(|tls| tls.client.as_deref()),
            is_cross_site: is_cross_site(request),
        };
        self.access.check(&credentials, needed, exchange.now_ms)
    }

    /// Continues a request with the progress of its body.
    fn proceed(
        &self,
        progress: BodyReception,
        exchange: &Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<AdminPending, ()> {
        match progress {
            BodyReception::Waiting(received) => deferred(AdminPending::Receiving(received)),
            BodyReception::Complete(call) => self.submit(call, exchange, response),
            BodyReception::Cut(call) => {
                let problem = AdminProblem::bad_request("the body has ended too early");
                self.refuse_call(&call, &problem, exchange, response);
                ServiceOutcome::Ready(None)
            }
        }
    }

    /// Submits an operation to the helper threads.
    fn submit(
        &self,
        call: Box<AdminCall>,
        exchange: &Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<AdminPending, ()> {
        let (actions, mailbox, id) = (self.actions.clone(), self.mailbox.clone(), exchange.id);
        let helpers = match call.request.may_wait() {
            true => &self.helpers.waiting,
            false => &self.helpers.quick,
        };
        let call: Arc<AdminCall> = call.into();
        let submitted = call.clone();
        // The operation may wait for the disk or for the main thread, which an event loop must not.
        let job = move || {
            let reply = AdminEvent::Reply(actions.run(&submitted));
            mailbox.post(MailboxMessage::Outcome(id, reply));
        };
        if helpers.submit(job).is_ok() {
            return deferred(AdminPending::Running);
        }
        let detail = "too many requests of operators are waiting";
        let problem = AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        self.refuse_call(&call, &problem, exchange, response);
        ServiceOutcome::Ready(None)
    }

    /// Refuses an admitted request before its operation is performed. A change has a line in the audit.
    fn refuse_call(
        &self,
        call: &AdminCall,
        problem: &AdminProblem,
        exchange: &Exchange,
        response: &mut ResponseWriter<'_>,
    ) {
        let entry = call.request.entry;
        if entry.permission == AdminPermission::Full {
            self.counters.count_change(entry, false);
            self.refusals
                .write(exchange, &call.client.name, &call.target, problem);
        }
        self.refuse_with(problem, response);
    }

    fn refuse_with(&self, problem: &AdminProblem, response: &mut ResponseWriter<'_>) {
        self.counters.count_problem(problem.status);
        refuse(problem, response);
    }
}

/// A request that is refused before its operation is known to be permitted.
struct RefusedRequest {
    /// The client for the audit.
    by: String,
    problem: AdminProblem,
}

/// A deferred request.
pub enum AdminPending {
    /// Its body is being received.
    Receiving(ReceivedBody),
    /// Its operation is running.
    Running,
}

/// An event for a deferred request.
pub enum AdminEvent {
    /// Bytes of the body have arrived.
    BodyReady,
    /// The operation has ended.
    Reply(AdminOutcome),
}

fn deferred(pending: AdminPending) -> ServiceOutcome<AdminPending, ()> {
    ServiceOutcome::Deferred {
        pending,
        // A purge or a reload completes even if its client has disconnected.
        cancel_on_disconnect: false,
    }
}

/// A field's value as text; empty without the field.
fn lossy(value: Option<&[u8]>) -> String {
    String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
}

/// The outcome of an operation.
pub type AdminOutcome = Result<AdminReply, AdminProblem>;

impl HttpService for AdminService {
    type Pending = AdminPending;
    type Outcome = AdminEvent;
    type Record = ();
    type Command = ();

    const NEEDS_PEER_USER: bool = true;

    fn has_tls(&self, listener: ListenerId) -> bool {
        listener == TCP_LISTENER && self.tls.is_some()
    }

    fn tls_session(&mut self, listener: ListenerId) -> Option<Box<dyn TlsSession>> {
        let tls = self.tls.as_ref().filter(|_| listener == TCP_LISTENER)?;
        Some(tls.new_session())
    }

    fn request(
        &mut self,
        request: &Request<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<AdminPending, ()> {
        let call = match self.admitted(request, exchange) {
            Ok(call) => call,
            Err(RefusedRequest { by, problem }) => {
                // The operation is not performed, so it writes no line itself.
                if !matches!(request.method, Method::Get | Method::Head) {
                    let target = target_text(request);
                    self.refusals.write(exchange, &by, &target, &problem);
                }
                self.refuse_with(&problem, response);
                return ServiceOutcome::Ready(None);
            }
        };
        // An operation without a body ignores one, which the engine then drops.
        if let Some(body) = exchange.body.take_if(|_| call.request.takes_body()) {
            let received = ReceivedBody::new(call, body, exchange.id, &self.mailbox);
            return self.proceed(received.receive(), exchange, response);
        }
        self.submit(call, exchange, response)
    }

    fn resume(
        &mut self,
        pending: AdminPending,
        event: AdminEvent,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<AdminPending, ()> {
        match (pending, event) {
            (AdminPending::Receiving(received), AdminEvent::BodyReady) => {
                self.proceed(received.receive(), exchange, response)
            }
            // A late wake-up.
            (pending, AdminEvent::BodyReady) => deferred(pending),
            (_, AdminEvent::Reply(Ok(reply))) => {
                write(reply, response);
                ServiceOutcome::Ready(None)
            }
            // Counted here and not by the operation: refusals before it are counted in the same way.
            (_, AdminEvent::Reply(Err(problem))) => {
                self.refuse_with(&problem, response);
                ServiceOutcome::Ready(None)
            }
        }
    }

    fn body_dropped(
        &mut self,
        _: AdminPending,
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<AdminPending, ()> {
        // Never called: the service drops no body before it answers.
        ServiceOutcome::Ready(None)
    }

    fn refuse(
        &mut self,
        why: ConnectionRefusal,
        request: &PartialRequest<'_>,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<()> {
        let problem = connection_problem(why);
        if !matches!(request.method, b"" | b"GET" | b"HEAD") {
            let [method, target] = [request.method, request.target].map(|it| lossy(Some(it)));
            let target = format!("{method} {target}");
            let by = peer_name(exchange);
            self.refusals.write(exchange, &by, &target, &problem);
        }
        self.refuse_with(&problem, response);
        None
    }

    fn refuse_pending(
        &mut self,
        why: ConnectionRefusal,
        pending: AdminPending,
        exchange: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<()> {
        let problem = connection_problem(why);
        match &pending {
            AdminPending::Receiving(received) => {
                self.refuse_call(received.call(), &problem, exchange, response);
            }
            // Its operation writes the line.
            AdminPending::Running => self.refuse_with(&problem, response),
        }
        None
    }

    fn sent(&mut self, (): (), _: u64, _: bool, _: u64) {}
    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _: u64) {}
}

/// The problem of a request that the engine refuses.
fn connection_problem(why: ConnectionRefusal) -> AdminProblem {
    match why {
        ConnectionRefusal::Request(refusal) => {
            AdminProblem::new(refusal.status(), refusal.as_str())
        }
        ConnectionRefusal::Timeout => {
            AdminProblem::new(StatusCode::REQUEST_TIMEOUT, "the request came too slowly")
        }
        ConnectionRefusal::Overload => {
            AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, "too many connections")
        }
        ConnectionRefusal::ClearText => {
            AdminProblem::bad_request("this address speaks TLS; use https://")
        }
    }
}

/// The value of the first field with this name.
fn field<'b>(request: &Request<'b>, name: &str) -> Option<&'b [u8]> {
    fields(request, name).next()
}

/// The values of all fields with this name.
fn fields<'b>(request: &Request<'b>, name: &str) -> impl Iterator<Item = &'b [u8]> {
    let named = move |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name.as_bytes());
    request.fields().filter(named).map(|(_, value)| value)
}

/// The list in all fields with this name (RFC 9110 §5.3); `None` without one.
fn list_field(request: &Request<'_>, name: &str) -> Option<String> {
    let values: Vec<String> = fields(request, name)
        .map(|value| lossy(Some(value)))
        .collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// Method, path and query as the client has sent them, so that the audit can be compared with the client's own log.
fn target_text(request: &Request<'_>) -> String {
    let mut target = request.method.as_str().to_owned();
    if let RequestTarget::Origin { path, query, .. } = request.target {
        target += &format!(" {}", lossy(Some(path)));
        if let Some(query) = query {
            target += &format!("?{}", lossy(Some(query)));
        }
    }
    target
}

/// The name of a client that has no verified credentials, for the audit.
fn peer_name(exchange: &Exchange) -> String {
    // The socket is open to its owner and to root only, so there are two users at most.
    match (exchange.listener == TCP_LISTENER, exchange.peer_user) {
        (true, _) => format!("a client from {}", exchange.peer),
        (false, Some(user)) => format!("uid {user}"),
        (false, None) => "the Unix socket".to_owned(),
    }
}

/// Whether the request is from a page of another site, by its Fetch Metadata or its Origin (RFC 6454).
fn is_cross_site(request: &Request<'_>) -> bool {
    if let Some(site) = field(request, "Sec-Fetch-Site") {
        return !matches!(site, b"same-origin" | b"none");
    }
    // Older browsers send Origin only.
    field(request, "Origin").is_some_and(|origin| {
        let host = origin
            .iter()
            .position(|byte| *byte == b':')
            .map(|colon| &origin[colon + 1..]);
        let host = host.and_then(|rest| rest.strip_prefix(b"//"));
        host.zip(request.authority)
            .is_none_or(|(host, own)| !host.eq_ignore_ascii_case(own))
    })
}

fn write(reply: AdminReply, response: &mut ResponseWriter<'_>) {
    let mut head = response.head(reply.status);
    // A reply describes the present state and may be confidential, so it must not be stored.
    head.field("Content-Type", reply.content_type.as_bytes())
        .field("Cache-Control", b"no-store")
        .field("X-Content-Type-Options", b"nosniff");
    if let Some(tag) = &reply.tag {
        head.field("ETag", tag.as_bytes());
    }
    for (name, value) in reply.fields {
        head.field(name, value.as_bytes());
    }
    match reply.body {
        ReplyBody::Bytes(bytes) => {
            if head.end(BodyLen::Known(bytes.len() as u64)) {
                response.write_bytes(bytes);
            }
        }
        ReplyBody::Stream(stream) => {
            if head.end(BodyLen::Unknown) {
                response.write_stream(stream);
            }
        }
    }
}

fn refuse(problem: &AdminProblem, response: &mut ResponseWriter<'_>) {
    let body = problem.to_json();
    let mut head = response.head(problem.status);
    head.field("Content-Type", b"application/problem+json")
        .field("Cache-Control", b"no-store");
    if problem.status == StatusCode::UNAUTHORIZED {
        // Required with a 401 (RFC 9110 §11.6.1).
        head.field("WWW-Authenticate", b"Bearer realm=\"lowroad\"");
    }
    if let Some(allow) = &problem.allow {
        head.field("Allow", allow.as_bytes());
    }
    if let Some(seconds) = problem.retry_after_s {
        head.field_u64("Retry-After", seconds);
    }
    if head.end(BodyLen::Known(body.len() as u64)) {
        response.write_bytes(body.into());
    }
}
