//! Servers that speak HTTP: requests are passed on to them, and their responses back.
//!
//! What is sent is written anew from the parsed request ([`forward`]), so nothing that is ambiguous gets there. It knows
//! nothing of sites, nor whether a response may be used again.

mod forward;
mod link;
mod talk;
mod tunnel;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lowroad_config::{Origin, OriginUrl, Route};
use lowroad_engine::Local;
use lowroad_engine::concurrency::{Concurrency, Permit};
use lowroad_engine::stream::Receiver;
use lowroad_http::h1::BodyLen;
use lowroad_http::status::Status;
use lowroad_origin::{Address, Limits, Patience, Pool, Unavailable};

use self::link::Links;
use self::talk::{Body, Sending, Stopped, Talk};
use crate::interims::Interims;
use crate::notice::Notice;
use crate::script::talk::Terms;
use crate::spool::Spools;
use crate::{Begun, Failure, Handler, Request, Response};

/// How long a connection is kept without use; less than what common servers do.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The origins of all configurations: one for each address, whatever number of routes and sites use it.
pub struct Origins {
    workers: Arc<[Local]>,
    known: Mutex<HashMap<Address, Arc<Pool<Links>>>>,
}

/// Passes a route's requests on to an origin.
pub struct ProxyHandler {
    name: Arc<str>,
    pool: Arc<Pool<Links>>,
    concurrency: Arc<Concurrency>,
    patience: Patience,
    terms: Terms,
}

impl Origins {
    /// None, for these workers, at least one.
    pub fn new(workers: &[Local]) -> Origins {
        Origins {
            workers: workers.into(),
            known: Mutex::default(),
        }
    }

    fn get(&self, address: Address, connections_max: usize) -> Arc<Pool<Links>> {
        let limits = Limits {
            connections_max: 0,
            // Routes bound how many requests there are.
            waiting_max: usize::MAX,
            idle_max: IDLE_MAX,
            age_max: Duration::MAX,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(Pool::new(
                address.clone(),
                Links,
                limits,
                self.workers.clone(),
            ))
        };
        let pool = known.entry(address.clone()).or_insert_with(new);
        pool.raise(connections_max);
        pool.clone()
    }
}

impl ProxyHandler {
    /// A handler for `route`, which goes to `origin`, one of `origins`. Looks its name up.
    ///
    /// # Errors
    /// The name has no address: a text for the operator.
    pub fn new(
        route: &Route,
        origin: &Origin,
        origins: &Origins,
        notice: Notice,
        spools: Option<Arc<Spools>>,
    ) -> Result<ProxyHandler, String> {
        let address = address(origin)?;
        let silence = Duration::from_millis(route.timeout_ms);
        Ok(ProxyHandler {
            name: format!("origin {}", origin.url).into(),
            pool: origins.get(address, origin.connections_max),
            concurrency: Concurrency::new(route.concurrency_max),
            patience: Patience {
                total: silence,
                connecting: Duration::from_millis(origin.connect_timeout_ms).min(silence),
            },
            terms: Terms {
                silence,
                notice,
                spools,
            },
        })
    }

    fn permit(&self) -> Result<Permit, Failure> {
        self.concurrency.try_acquire().ok_or_else(|| {
            let (max, name) = (self.concurrency.max(), &self.name);
            let detail = format!(
                "{max} requests to {name} are under way already; the route's concurrency allows no more"
            );
            Failure::new(Status::SERVICE_UNAVAILABLE, detail)
        })
    }

    async fn answer(
        self: Arc<Self>,
        worker: usize,
        mut request: Request,
        permit: Permit,
    ) -> Result<Response, Failure> {
        let body = std::mem::take(&mut request.body);
        let len = match (&body.stream, body.len) {
            (None, _) => BodyLen::None,
            // Only behind chunks there are fields.
            (Some(stream), Some(len)) if !stream.has_trailers() => BodyLen::Known(len),
            (Some(_), _) => BodyLen::Unknown,
        };
        let mut interims = std::mem::take(&mut request.interims);
        let body = (len, body.stream, permit);
        let first = self.ask(worker, &request, &mut interims, body, false);
        let tried = match first.await {
            Err(Stopped {
                again: Some((body, permit)),
                ..
            }) => {
                let body = (len, body, permit);
                self.ask(worker, &request, &mut interims, body, true).await
            }
            tried => tried,
        };
        tried.map_err(|stopped| stopped.failure)
    }

    /// Puts the request to the origin. `fresh` = on no connection that was used before.
    async fn ask(
        &self,
        worker: usize,
        request: &Request,
        interims: &mut Interims,
        (len, body, permit): (BodyLen, Option<Receiver>, Permit),
        fresh: bool,
    ) -> Result<Response, Stopped> {
        let mut lease = match (!fresh).then(|| self.pool.lease_now(worker)).flatten() {
            Some(lease) => lease,
            None => {
                let leased = self.pool.lease(worker, fresh, self.patience).await;
                leased.map_err(|why| Stopped {
                    failure: self.unavailable(&why),
                    again: None,
                })?
            }
        };
        let mut lines = Vec::with_capacity(512 + request.lines().len());
        let protocol = forward::request_lines(request, &mut lines);
        let mut sending = Sending::default();
        let http = &mut lease.connection.http;
        let (target, out) = (request.target(), &mut sending.out);
        let begun = match protocol {
            Some(protocol) => http
                .request_upgrade(target, &lines, protocol, out)
                .map(|()| false),
            None => http.request(request.method, target, &lines, len, out),
        };
        sending.is_without_body = !begun.map_err(|_| Stopped {
            failure: Failure::new(Status::INTERNAL_ERROR, "a connection was not ready"),
            again: None,
        })?;
        let talk = Talk {
            name: self.name.clone(),
            pool: self.pool.clone(),
            lease,
            body: Body::Untouched(body.filter(|_| !sending.is_without_body)),
            method: request.method,
            permit,
        };
        talk.response(sending, self.terms.clone(), interims).await
    }

    fn unavailable(&self, why: &Unavailable) -> Failure {
        let (name, ms) = (&self.name, self.patience.total.as_millis());
        let (status, detail) = match why {
            Unavailable::TooManyWait | Unavailable::NoneFree => (
                Status::SERVICE_UNAVAILABLE,
                format!("no connection to {name} was free within {ms} ms"),
            ),
            Unavailable::ConnectTimeout => {
                let ms = self.patience.connecting.as_millis();
                let detail = format!("no connection to {name} came about within {ms} ms");
                (Status::GATEWAY_TIMEOUT, detail)
            }
            Unavailable::Failed(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied => "may this user write to the socket?",
                    _ => "does it run, and listen there?",
                };
                let detail = format!("can't connect to {name}: {error}; {hint}");
                (Status::BAD_GATEWAY, detail)
            }
        };
        Failure::new(status, detail)
    }
}

impl Handler for ProxyHandler {
    fn begin(self: Arc<Self>, worker: usize, request: Request) -> Begun {
        match self.permit() {
            Ok(permit) => Begun::Here(Box::pin(self.answer(worker, request, permit))),
            Err(failure) => Begun::Answered(Err(failure)),
        }
    }
}

/// Where an origin is. Blocks while a name is looked up.
fn address(origin: &Origin) -> Result<Address, String> {
    let url = &origin.url;
    let (host, port) = match url {
        OriginUrl::Unix(path) => return Ok(Address::Unix(path.clone())),
        OriginUrl::Http { host, port } => (host.as_str(), *port),
    };
    let found: io::Result<Option<SocketAddr>> =
        (host, port).to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(to)) => Ok(match origin.from {
            None => Address::Tcp(to),
            Some(from) => Address::TcpFrom { to, from },
        }),
        Ok(None) => Err(format!("{url}: the name has no address")),
        Err(error) => Err(format!("{url}: the name can't be looked up: {error}")),
    }
}
