//! Route permits for requests and for tunnels. Tunnels have a separate limit, since they may last for days.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_config::RouteConfig;
use lowroad_handler::HandlerFailure;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ClientPermit, ClientShares, RefusalReason, ShareRefusal};

/// The limits of a route.
pub struct RouteBounds {
    requests: Arc<ClientShares>,
    tunnels: Arc<ClientShares>,
}

/// The permit of a request.
pub struct RoutePermit {
    /// `None` once the request has become a tunnel.
    request: Option<ClientPermit>,
    tunnel: Option<ClientPermit>,
}

impl RoutePermit {
    /// Releases the request permit; the tunnel permit is held until the `RoutePermit` is dropped.
    pub fn become_tunnel(&mut self) {
        self.request = None;
    }

    /// Releases the tunnel permit: the response is not an upgrade.
    pub fn release_tunnel(&mut self) {
        self.tunnel = None;
    }
}

impl RouteBounds {
    /// Creates the limits of a route.
    pub fn new(route: &RouteConfig) -> RouteBounds {
        let percent = route.client_share_percent;
        RouteBounds {
            requests: ClientShares::new(route.concurrency_max, percent),
            tunnels: ClientShares::new(route.tunnels_max, percent),
        }
    }

    /// Acquires a permit for a client's request; with `wants_tunnel` (an upgrade request), also a tunnel permit.
    ///
    /// # Errors
    /// 503, naming the limit that was reached.
    pub fn acquire(
        &self,
        client: IpAddr,
        wants_tunnel: bool,
        origin_name: &str,
    ) -> Result<RoutePermit, HandlerFailure> {
        let acquire_share = |bound: &Arc<ClientShares>, noun: &str, limit: RefusalReason| {
            let to_failure = |refusal: ShareRefusal| {
                let reason = match refusal {
                    ShareRefusal::Full => limit,
                    ShareRefusal::Share => RefusalReason::ClientShare,
                };
                let detail = text(refusal, bound, noun, limit.as_str(), origin_name);
                HandlerFailure::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_reason(reason)
            };
            bound.try_acquire(client).map_err(to_failure)
        };
        // An upgrade request needs both permits, and is refused without either.
        let tunnel =
            wants_tunnel.then(|| acquire_share(&self.tunnels, "tunnels", RefusalReason::Tunnels));
        let (tunnel, limit) = (tunnel.transpose()?, RefusalReason::Concurrency);
        Ok(RoutePermit {
            tunnel,
            request: Some(acquire_share(&self.requests, "requests", limit)?),
        })
    }

    /// The number of requests in progress, without tunnels.
    pub fn requests_in_progress(&self) -> usize {
        self.requests.in_use()
    }

    /// The number of tunnels, and of refusals by limit, for status reports.
    pub fn text(&self) -> String {
        format!(
            "{} tunnels, {} refused by concurrency, {} by tunnels",
            self.tunnels.in_use(),
            self.requests.refused(),
            self.tunnels.refused()
        )
    }
}

fn text(
    refusal: ShareRefusal,
    bound: &ClientShares,
    noun: &str,
    key: &str,
    origin_name: &str,
) -> String {
    let max = bound.max();
    match refusal {
        ShareRefusal::Full => {
            format!(
                "{max} {noun} to {origin_name} are in progress; raise the route's {key} to allow more"
            )
        }
        ShareRefusal::Share => format!(
            "the client uses its share of the {max} {noun} to {origin_name}; raise client_share to allow more"
        ),
    }
}
