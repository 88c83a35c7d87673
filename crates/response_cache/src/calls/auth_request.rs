//! Forward authentication: another server admits or refuses a request. The server gets a GET with the fields of the
//! request, without its body; the outcome arrives through the worker's mailbox.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::StreamItem;
use lowroad_engine::{Exchange, WorkerHandle};
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::request::{RawTarget, RequestExtra, RequestHead};
use lowroad_handler::{HandlerRequest, HandlerResponse, RequestBody, ResponseContent};
use lowroad_http::method::Method;
use lowroad_http::request::Request;
use lowroad_routes::counts::increment;
use lowroad_routes::routes::Route;
use lowroad_site_rules::SiteRules;

use super::task::OutcomeGuard;
use super::{HandlerCalls, NoObjects};
use crate::handler_outcome::HandlerOutcome;
use crate::invalidation::target_of;
use crate::reply::HandlerReply;
use crate::validation::{self, push_line};

/// The longest content of a permission that is read, so that its connection can be used again.
const DISCARDED_LEN_MAX: u64 = 64 << 10;

/// Fields of a request that do not concern the server that decides about it: they describe the connection, the body, or
/// the client's copy of the response. In lower case.
const OMITTED: [&str; 23] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "http2-settings",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-method",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
];

/// A request about which a server decides.
pub struct AuthCall<'a> {
    /// The rules of the request's site.
    pub rules: &'a Arc<SiteRules>,
    /// The route to the server.
    pub route: &'a Arc<Route>,
    /// The target of the request to the server.
    pub target: &'a str,
    /// The client's request.
    pub request: &'a Request<'a>,
    /// The local address of the connection.
    pub local: SocketAddr,
}

impl AuthCall<'_> {
    /// The request for the server.
    pub fn build(&self, exchange: &Exchange) -> HandlerRequest {
        // The authority of the client's request: the server may decide by it.
        let host = self.request.authority.unwrap_or_default();
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (self.target, None),
        };
        let target = RawTarget {
            path: path.as_bytes(),
            query,
        };
        HandlerRequest {
            method: Method::Get,
            version: exchange.protocol,
            head: RequestHead::new(target, path.as_bytes(), host, &self.lines()),
            peer: exchange.peer,
            peer_port: exchange.peer_port,
            local: self.local,
            tls: exchange.tls.clone(),
            forwarded: exchange.forwarded.clone(),
            root: self.rules.folder(b""),
            objects: Arc::new(NoObjects),
            body: RequestBody::none(),
            interims: InterimSink::default(),
            extra: RequestExtra {
                added_lines: self.added_lines(exchange),
                // The error log names the client's request by it.
                request_id: exchange.request_id(),
                ..RequestExtra::default()
            },
        }
    }

    fn lines(&self) -> Vec<u8> {
        validation::lines_without(self.request.lines(), |name| {
            let mut omitted = OMITTED.iter();
            omitted.any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
        })
    }

    /// The properties of the client's request, in the fields that servers of forward authentication read.
    fn added_lines(&self, exchange: &Exchange) -> Vec<u8> {
        let mut lines = Vec::new();
        let method = self.request.method.as_str().as_bytes();
        let uri = target_of(self.request).unwrap_or_else(|| b"*".to_vec());
        let scheme: &[u8] = if exchange.is_https() {
            b"https://"
        } else {
            b"http://"
        };
        let url = [scheme, self.request.authority.unwrap_or_default(), &uri].concat();
        // Each kind of server reads other names: Authelia and Traefik X-Forwarded, nginx' examples X-Original.
        for name in ["X-Forwarded-Method", "X-Original-Method"] {
            push_line(&mut lines, name.as_bytes(), method);
        }
        for name in ["X-Forwarded-Uri", "X-Original-URI"] {
            push_line(&mut lines, name.as_bytes(), &uri);
        }
        push_line(&mut lines, b"X-Original-URL", &url);
        lines
    }
}

impl HandlerCalls {
    /// Asks the server. The exchange is resumed with its response; dropping the result cancels the request.
    pub fn start_auth(&self, call: &AuthCall<'_>, exchange: &Exchange) -> Box<dyn Send> {
        increment(&call.route.counts.calls);
        let result = call
            .route
            .handler
            .clone()
            .begin(self.worker, call.build(exchange));
        // Posts a failure if the task ends early, so that the request never waits forever.
        let due_outcome = OutcomeGuard::new(self.waiter(exchange.id));
        let worker_handle = self.worker_handle.clone();
        let route = call.route.clone();
        let work = async move {
            let mut answer = result.answer().await;
            match &mut answer {
                Ok(response) if is_success(response.status.code()) => {
                    discard_content(response, &worker_handle);
                }
                Ok(_) => {}
                Err(_) => increment(&route.counts.failed),
            }
            let answer = answer.map(|response| Box::new(HandlerReply::new(response, None)));
            due_outcome.send(HandlerOutcome::Reply(answer));
        };
        Box::new(self.worker_handle.tasks.start(work))
    }
}

/// Whether a status of the server admits the request.
pub fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Reads the content of a permission to its end in the background, if it is short.
fn discard_content(response: &mut HandlerResponse, worker_handle: &WorkerHandle) {
    let content = std::mem::replace(&mut response.content, ResponseContent::Bytes(Bytes::new()));
    // A longer content would cost more than a new connection.
    if let ResponseContent::Stream { stream, len } = content
        && len.is_some_and(|len| len <= DISCARDED_LEN_MAX)
    {
        let reading = async move { while let StreamItem::Bytes(_) = stream.next().await {} };
        worker_handle.tasks.spawn(reading).detach();
    }
}
