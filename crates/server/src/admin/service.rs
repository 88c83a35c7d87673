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
use lowroad_engine::service::{ConnectionRefusal, ExchangeId};
use lowroad_engine::stream::BodyReceiver;
use lowroad_engine::tls_session::TlsSession;
use lowroad_engine::worker::{MailboxMessage, WorkerMessage};
use lowroad_engine::{Exchange, HttpService, ListenerId, ResponseWriter, ServiceOutcome};
use lowroad_http::h1::BodyLen;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_tls_listener::TlsEndpoint;

use super::access::{AdminAccess, AdminCredentials};
use super::actions::AdminActions;
use super::operations::{AdminPermission, AdminRequest};
use super::problem::AdminProblem;

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

/// Authorizes and answers the requests of operators.
pub struct AdminService {
    actions: Arc<AdminActions>,
    access: Arc<AdminAccess>,
    helpers: HelperPool,
    mailbox: AdminMailbox,
    /// TLS of [`TCP_LISTENER`].
    tls: Option<Arc<TlsEndpoint>>,
}

impl AdminService {
    /// Creates a service with helper threads that post their replies to `mailbox`. `tls` is that of the TCP address.
    pub fn new(
        actions: Arc<AdminActions>,
        access: Arc<AdminAccess>,
        helpers: HelperPool,
        mailbox: AdminMailbox,
        tls: Option<Arc<TlsEndpoint>>,
    ) -> AdminService {
        AdminService {
            actions,
            access,
            helpers,
            mailbox,
            tls,
        }
    }

    /// Returns the requested operation if the client may use it, and the client's permission.
    fn admitted(
        &self,
        request: &Request<'_>,
        exchange: &Exchange,
    ) -> Result<(AdminRequest, AdminPermission), AdminProblem> {
        let RequestTarget::Origin { path, query, .. } = request.target else {
            return Err(AdminProblem::bad_request("the target is no path"));
        };
        let admin_request = AdminRequest::new(request.method, path, query);
        let mut permission = AdminPermission::Full;
        if exchange.listener == TCP_LISTENER {
            // Checked before unknown paths are reported: a client without a token must not learn which paths exist.
            let needed = admin_request.as_ref().map_or_else(
                |_| AdminPermission::Read,
                |admin_request| admin_request.permission,
            );
            let tls = exchange.tls.as_deref();
            let credentials = AdminCredentials {
                peer: exchange.peer,
                authorization: field(request, "Authorization"),
                client: tls.and_then(|tls| tls.client.as_deref()),
                is_cross_site: is_cross_site(request),
            };
            permission = self.access.check(&credentials, needed, exchange.now_ms)?;
        }
        Ok((admin_request?, permission))
    }

    /// Submits an operation to the helper threads; returns false if their queue is full.
    fn submit(
        &self,
        admin_request: AdminRequest,
        permission: AdminPermission,
        accept: String,
        id: ExchangeId,
    ) -> bool {
        let (actions, mailbox) = (self.actions.clone(), self.mailbox.clone());
        let job = move || {
            let reply = actions.run(&admin_request, permission, &accept);
            mailbox.post(MailboxMessage::Outcome(id, reply));
        };
        self.helpers.submit(job).is_ok()
    }
}

/// The outcome of an operation.
pub type AdminOutcome = Result<AdminReply, AdminProblem>;

impl HttpService for AdminService {
    type Pending = ();
    type Outcome = AdminOutcome;
    type Record = ();
    type Command = ();

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
    ) -> ServiceOutcome<(), ()> {
        match self.admitted(request, exchange) {
            Ok((admin_request, permission)) => {
                let accept = field(request, "Accept").unwrap_or_default();
                let accept = String::from_utf8_lossy(accept).into_owned();
                if self.submit(admin_request, permission, accept, exchange.id) {
                    return ServiceOutcome::Deferred {
                        pending: (),
                        // A purge or a reload completes even if its client has disconnected.
                        cancel_on_disconnect: false,
                    };
                }
                let detail = "too many requests of operators are waiting";
                refuse(
                    &AdminProblem::new(StatusCode::SERVICE_UNAVAILABLE, detail),
                    response,
                );
            }
            Err(problem) => refuse(&problem, response),
        }
        ServiceOutcome::Ready(None)
    }

    fn resume(
        &mut self,
        (): (),
        outcome: AdminOutcome,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        match outcome {
            Ok(reply) => write(reply, response),
            Err(problem) => refuse(&problem, response),
        }
        ServiceOutcome::Ready(None)
    }

    fn body_dropped(
        &mut self,
        (): (),
        _: &mut Exchange,
        _: &mut ResponseWriter<'_>,
    ) -> ServiceOutcome<(), ()> {
        // Never called: the service does not wait for request bodies.
        ServiceOutcome::Ready(None)
    }

    fn refuse(
        &mut self,
        why: ConnectionRefusal,
        _: &PartialRequest<'_>,
        _: &mut Exchange,
        response: &mut ResponseWriter<'_>,
    ) -> Option<()> {
        let problem = match why {
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
        };
        refuse(&problem, response);
        None
    }

    fn sent(&mut self, (): (), _: u64, _: bool, _: u64) {}
    fn command(&mut self, (): ()) {}
    fn turn_ended(&mut self, _: u64) {}
}

/// The value of the first field with this name.
fn field<'b>(request: &Request<'b>, name: &str) -> Option<&'b [u8]> {
    let named = |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name.as_bytes());
    request.fields().find(named).map(|(_, value)| value)
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
    if let Some(allow) = problem.allow {
        head.field("Allow", allow.as_bytes());
    }
    if let Some(seconds) = problem.retry_after_s {
        head.field_u64("Retry-After", seconds);
    }
    if head.end(BodyLen::Known(body.len() as u64)) {
        response.write_bytes(body.into());
    }
}
