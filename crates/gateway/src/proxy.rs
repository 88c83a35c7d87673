//! Servers that speak HTTP: requests are passed on to them, and their responses back.
//!
//! What is sent is written anew from the parsed request ([`forward`]), so nothing that is ambiguous gets there. It knows
//! nothing of sites, nor whether a response may be used again.

mod checks;
mod forward;
mod leave;
mod link;
pub(crate) mod origins;
mod own;
mod request_body;
mod sending;
mod servers;
mod talk;
mod tunnel;
mod unavailable;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lowroad_config::{Origin, OriginHost, ProxyProtocol, Route};
use lowroad_http::h1::BodyLen;
use lowroad_http::method::Method;
use lowroad_http::proxy_protocol::{Ends, write_v1, write_v2};
use lowroad_http::status::Status;
use lowroad_origin::group::{NoMember, Outcome};
use lowroad_origin::retry::{Body as Left, Failed, NotAgain, Seen};
use lowroad_origin::{Patience, Unavailable};

use self::forward::ForwardTerms;
use self::leave::{Bounds, Leave};
use self::link::Link;
pub use self::origins::{Origins, check_tls};
use self::request_body::RequestBody;
use self::sending::Sending;
use self::servers::{Place, Servers, Try};
use self::talk::{BodyProgress, Stopped, Talk};
use self::unavailable::unavailable_text;
use crate::script::talk::Terms;
use lowroad_handler::interims::Interims;
use lowroad_handler::notice::Notice;
use lowroad_handler::spool::Spools;
use lowroad_handler::{Begun, Content, Failure, Fields, Handler, Outline, Request, Response};
#[cfg(feature = "tls")]
pub use lowroad_origin::tls::open_files_with;

/// Room for what is in a request's head beside its target and its fields.
const OWN_LEN: usize = 128;

/// Passes a route's requests on to an origin.
pub struct ProxyHandler {
    servers: Arc<Servers>,
    host: OriginHost,
    proxy_protocol: Option<ProxyProtocol>,
    bounds: Bounds,
    patience: Patience,
    /// How long the head of a response may take.
    first_byte: Duration,
    /// Responses name the server by no address of its own.
    names_no_server: bool,
    /// See [`Origin::adds_via`].
    adds_via: bool,
    /// See [`Origin::retry_body_max`].
    retry_body_max: u64,
    terms: Terms,
}

/// What of a request goes from one try to the next.
struct Asked {
    body: Option<RequestBody>,
    len: BodyLen,
    /// Leave to be under way; not here while it is tried.
    leave: Option<Leave>,
    interims: Interims,
}

impl Asked {
    fn take_from(request: &mut Request, leave: Leave, retry_body_max: u64) -> Asked {
        let body = std::mem::take(&mut request.body);
        let len = match (&body.stream, body.len) {
            (None, _) if anticipates_content(request.method) => BodyLen::Known(0),
            (None, _) => BodyLen::None,
            // Only behind chunks there are fields.
            (Some(stream), Some(len)) if !stream.has_trailers() => BodyLen::Known(len),
            (Some(_), _) => BodyLen::Unknown,
        };
        Asked {
            body: body
                .stream
                .map(|stream| RequestBody::new(stream, retry_body_max)),
            len,
            leave: Some(leave),
            interims: std::mem::take(&mut request.interims),
        }
    }
}

impl ProxyHandler {
    /// A handler for `route`, which goes to `origin`, one of `origins`. Looks its names up.
    ///
    /// # Errors
    /// A name has no address, or TLS can't be spoken so: a text for the operator.
    pub fn new(
        route: &Route,
        origin: &Origin,
        origins: &Origins,
        notice: Notice,
        spools: Option<Arc<Spools>>,
    ) -> Result<ProxyHandler, String> {
        let silence = Duration::from_millis(route.timeout_ms);
        let first_byte = origin.timeout_ms.map_or(silence, Duration::from_millis);
        Ok(ProxyHandler {
            servers: origins.get(origin, &notice)?,
            host: origin.host.clone(),
            proxy_protocol: origin.proxy_protocol,
            bounds: Bounds::new(route),
            patience: Patience {
                total: first_byte,
                connecting: Duration::from_millis(origin.connect_timeout_ms).min(first_byte),
            },
            first_byte,
            names_no_server: route.own_redirects,
            adds_via: origin.adds_via,
            retry_body_max: origin.retry_body_max,
            terms: Terms {
                silence,
                notice,
                spools,
            },
        })
    }

    fn enter(&self, request: &Request) -> Result<Leave, Failure> {
        let asks_for_tunnel = request.upgrade().is_some();
        self.bounds
            .enter(request.peer, asks_for_tunnel, &self.servers.name)
    }

    async fn answer(
        &self,
        worker: usize,
        request: &Request,
        asked: &mut Asked,
    ) -> Result<Response, Failure> {
        let (mut tried, mut last) = (Vec::new(), None);
        loop {
            let chosen = self.servers.choose(request, &tried, worker);
            let (place, attempt) = match (chosen, last) {
                (Ok(chosen), _) => chosen,
                (Err(_), Some(failure)) => return Err(failure),
                (Err(none), None) => return Err(self.nobody(none)),
            };
            let member = attempt.as_ref().map(|attempt| attempt.member);
            let first = self.ask(worker, request, &place, attempt, asked, false);
            let mut stopped = match first.await {
                Ok(response) => return judged(response, request, &place),
                Err(stopped) => stopped,
            };
            if stopped.is_stale
                && (is_idempotent(request) || !stopped.sent)
                && let Some(body) = stopped.body.take()
            {
                (asked.body, asked.leave) = (body, Some(stopped.leave));
                let again = self.ask(worker, request, &place, stopped.attempt, asked, true);
                // Apart, since it is rare: so what is mostly done once has not room for two.
                stopped = match Box::pin(again).await {
                    Ok(response) => return judged(response, request, &place),
                    Err(stopped) => stopped,
                };
            }
            last = Some(self.again(worker, request, &place, stopped, tried.len(), asked)?);
            tried.extend(member);
        }
    }

    /// Makes ready to ask another server; gives why the last one did not answer.
    ///
    /// # Errors
    /// The same, if no other is to be asked.
    fn again(
        &self,
        worker: usize,
        request: &Request,
        place: &Place,
        stopped: Stopped,
        tries: usize,
        asked: &mut Asked,
    ) -> Result<Failure, Failure> {
        let Stopped {
            mut failure,
            outcome,
            ..
        } = stopped;
        let is_repeatable = is_idempotent(request) || !stopped.sent;
        let is_body_too_large = stopped.is_stale && is_repeatable && stopped.body.is_none();
        if is_body_too_large {
            self.count_unrepeated(place, &mut failure);
        }
        if outcome != Outcome::Cancelled {
            place.failed(&failure.detail);
        }
        let (Some(attempt), Some(group)) = (stopped.attempt, self.servers.group()) else {
            return Err(failure);
        };
        let now_ms = place.pool.local(worker).timers.now_ms();
        attempt.report(outcome, now_ms);
        // Then it was the client, or too much to do.
        if outcome == Outcome::Cancelled {
            return Err(failure);
        }
        let failed = Failed {
            tries: u32::try_from(tries).unwrap_or(u32::MAX).saturating_add(1),
            is_idempotent: is_idempotent(request),
            sent: stopped.sent,
            body: match stopped.body {
                Some(_) => Left::Whole,
                None => Left::Consumed,
            },
            seen: match stopped.is_answered {
                true => Seen::Some,
                false => Seen::Nothing,
            },
            timed_out: outcome == Outcome::TimedOut,
        };
        match group.upstream.may_retry(&failed, now_ms) {
            Ok(()) => {
                asked.body = stopped.body.flatten();
                asked.leave = Some(stopped.leave);
                (self.terms.notice)(&format!("{}; another server is asked", failure.detail));
                Ok(failure)
            }
            Err(NotAgain::BodyConsumed) if !is_body_too_large && !failed.timed_out => {
                self.count_unrepeated(place, &mut failure);
                Err(failure)
            }
            Err(_) => Err(failure),
        }
    }

    /// Counts a request that only the size of its body kept from being repeated, and adds that to its failure.
    fn count_unrepeated(&self, place: &Place, failure: &mut Failure) {
        place.count_unrepeated();
        failure.detail.push_str(&format!(
            "; the request was not repeated, since its body is larger than retry_body_max ({} bytes)",
            self.retry_body_max
        ));
    }

    /// Puts the request to a server. `fresh` = on no connection that was used before.
    async fn ask(
        &self,
        worker: usize,
        request: &Request,
        place: &Arc<Place>,
        mut attempt: Option<Try>,
        asked: &mut Asked,
        fresh: bool,
    ) -> Result<Response, Stopped> {
        let pool = &place.pool;
        let fresh = fresh || self.proxy_protocol.is_some();
        let leased = match (!fresh).then(|| pool.lease_now(worker)).flatten() {
            Some(lease) => Ok(lease),
            None => pool.lease(worker, fresh, self.patience).await,
        };
        let leave = asked
            .leave
            .take()
            .expect("a request is tried once at a time");
        let body = asked.body.take();
        let mut lease = match leased {
            Ok(lease) => lease,
            Err(why) => {
                let failure = self.unavailable(place, &why);
                return Err(Stopped::before(
                    failure,
                    outcome(&why),
                    attempt,
                    (body, leave),
                ));
            }
        };
        attempt.iter_mut().for_each(Try::connected);
        let mut sending = Sending::default();
        self.introduce(request, &mut sending.out);
        let host = match &self.host {
            // A client of HTTP/1.0 may name no host, but the origin needs one.
            OriginHost::Client if request.host().is_empty() => &place.host,
            OriginHost::Client => request.host(),
            OriginHost::Origin => &place.host,
            OriginHost::Name(name) => name.as_bytes(),
        };
        let Link { http, scratch, .. } = &mut *lease.connection;
        let mut lines = std::mem::take(scratch);
        lines.clear();
        let terms = ForwardTerms {
            host,
            adds_via: self.adds_via,
            has_body: !matches!(asked.len, BodyLen::None | BodyLen::Known(0)),
        };
        let protocol = forward::request_lines(request, &terms, &mut lines);
        sending
            .out
            .reserve(request.target().len() + lines.len() + OWN_LEN);
        let (target, out) = (request.target(), &mut sending.out);
        let begun = match protocol {
            Some(protocol) => http
                .request_upgrade(target, &lines, protocol, out)
                .map(|()| false),
            None => http.request(request.method, target, &lines, asked.len, out),
        };
        *scratch = lines;
        sending.is_without_body = match begun {
            Ok(has_body) => !has_body,
            Err(_) => {
                let failure = Failure::new(Status::INTERNAL_ERROR, "a connection was not ready");
                let body = (body, leave);
                return Err(Stopped::before(failure, Outcome::Cancelled, attempt, body));
            }
        };
        // In a box, since what waits for it would have room for it at each level.
        let body = body.filter(|_| !sending.is_without_body);
        let talk = Box::new(Talk {
            place: place.clone(),
            attempt,
            lease,
            is_shared: self.proxy_protocol.is_none(),
            progress: match body {
                Some(_) => BodyProgress::Coming,
                None => BodyProgress::Sent,
            },
            body,
            sending,
            method: request.method,
            leave,
            found: None,
        });
        let mut response = talk
            .response(self.first_byte, &self.terms, &mut asked.interims)
            .await?;
        if self.names_no_server {
            own::name_no_server(&mut response.fields, place);
        }
        Ok(response)
    }

    /// Says by the PROXY protocol whose request it is, if that is wanted.
    fn introduce(&self, request: &Request, out: &mut Vec<u8>) {
        let Some(version) = self.proxy_protocol else {
            return;
        };
        let source = SocketAddr::new(request.peer.to_canonical(), request.peer_port);
        let local = request.local;
        let ends = Ends::Tcp {
            source,
            destination: SocketAddr::new(local.ip().to_canonical(), local.port()),
        };
        match version {
            ProxyProtocol::V1 => write_v1(out, ends),
            ProxyProtocol::V2 => write_v2(out, ends),
        }
    }

    fn nobody(&self, none: NoMember) -> Failure {
        let why = self.servers.explain_absence(none);
        let detail = format!("{}: {why}", self.servers.name);
        Failure::new(Status::SERVICE_UNAVAILABLE, detail)
    }

    fn unavailable(&self, place: &Place, why: &Unavailable) -> Failure {
        let text = unavailable_text(why, self.patience, &format!(" to {}", place.name));
        let status = match why {
            Unavailable::TooManyWait | Unavailable::NoneFree => Status::SERVICE_UNAVAILABLE,
            Unavailable::ConnectTimeout => Status::GATEWAY_TIMEOUT,
            Unavailable::Failed(_) => Status::BAD_GATEWAY,
        };
        Failure::new(status, text)
    }
}

/// What it says of a server that there is no connection to it.
fn outcome(why: &Unavailable) -> Outcome {
    match why {
        Unavailable::TooManyWait | Unavailable::NoneFree => Outcome::Cancelled,
        Unavailable::ConnectTimeout | Unavailable::Failed(_) => Outcome::ConnectFailed,
    }
}

/// The response, unless it is 304 to a GET or HEAD that asked on no condition: it has neither a body nor a place to get one
/// from. A client that has nothing can make no more of it than Varnish does, which fails, too; nginx passes it on.
///
/// # Errors
/// It is that.
fn judged(response: Response, request: &Request, place: &Place) -> Result<Response, Failure> {
    let is_condition = |name: &[u8]| {
        name.eq_ignore_ascii_case(b"if-none-match")
            || name.eq_ignore_ascii_case(b"if-modified-since")
    };
    let reads = matches!(request.method, Method::Get | Method::Head);
    if response.status != Status::NOT_MODIFIED
        || !reads
        || request.fields().any(|(name, _)| is_condition(name))
    {
        return Ok(response);
    }
    let detail = format!("{} says 304 to a request without a condition", place.name);
    place.failed(&detail);
    Err(Failure::new(Status::BAD_GATEWAY, detail))
}

/// Whether a method has a meaning for content, so that it is said where there is none (RFC 9110 §8.6).
fn anticipates_content(method: Method) -> bool {
    matches!(method, Method::Post | Method::Put | Method::Patch)
}

/// Whether to ask twice is the same as to ask once (RFC 9110 §9.2.2).
fn is_idempotent(request: &Request) -> bool {
    request.method.is_idempotent()
}

impl Handler for ProxyHandler {
    fn whom(&self, outline: &Outline<'_>) -> Option<String> {
        self.servers.whom(outline)
    }

    fn status(&self) -> Option<String> {
        Some(self.bounds.text())
    }

    fn requests_under_way(&self) -> usize {
        self.bounds.requests_under_way()
    }

    fn begin(self: Arc<Self>, worker: usize, mut request: Request) -> Begun {
        if forward::max_forwards(&request) == Some(0) {
            return Begun::Answered(Ok(Response {
                status: Status::OK,
                fields: Fields::new(),
                content: Content::Bytes(Bytes::new()),
                made_from: None,
            }));
        }
        let mut asked = match self.enter(&request) {
            Ok(leave) => Asked::take_from(&mut request, leave, self.retry_body_max),
            Err(failure) => return Begun::Answered(Err(failure)),
        };
        // What a block captures is there once, what a function is given twice.
        Begun::Here(Box::pin(async move {
            self.answer(worker, &request, &mut asked).await
        }))
    }
}
