//! Permits of a route for requests and for tunnels. Tunnels have a separate bound, since they last for days.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_config::RouteConfig;
use lowroad_handler::HandlerFailure;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ClientPermit, ClientShares, ShareRefusal};

/// The bounds of a route.
pub struct RouteBounds {
    requests: Arc<ClientShares>,
    tunnels: Arc<ClientShares>,
}

/// The permit of one request.
pub struct RoutePermit {
    /// `None` once the request has become a tunnel.
    request: Option<ClientPermit>,
    tunnel: Option<ClientPermit>,
}

impl RoutePermit {
    /// Ends the request's share; the tunnel's share lasts until the permit is dropped.
    pub fn become_tunnel(&mut self) {
        self.request = None;
    }

    /// Frees the tunnel's share: the response was no upgrade.
    pub fn stay_request(&mut self) {
        self.tunnel = None;
    }
}

impl RouteBounds {
    /// The bounds of a route.
    pub fn new(route: &RouteConfig) -> RouteBounds {
        let percent = route.client_share_percent;
        RouteBounds {
            requests: ClientShares::new(route.concurrency_max, percent),
            tunnels: ClientShares::new(route.tunnels_max, percent),
        }
    }

    /// Acquires a permit for a client's request to this origin, with a tunnel's share if it asks for an upgrade.
    ///
    /// # Errors
    /// 503, with the limit that was reached.
    pub fn acquire(
        &self,
        client: IpAddr,
        wants_tunnel: bool,
        origin_name: &str,
    ) -> Result<RoutePermit, HandlerFailure> {
        let acquire_share = |bound: &Arc<ClientShares>, noun: &str, key: &str| {
            let to_failure = |refusal| {
                HandlerFailure::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    text(refusal, bound, noun, key, origin_name),
                )
            };
            bound.try_acquire(client).map_err(to_failure)
        };
        // An upgrade request needs both shares; without either it is refused.
        let tunnel = wants_tunnel.then(|| acquire_share(&self.tunnels, "tunnels", "tunnels"));
        Ok(RoutePermit {
            tunnel: tunnel.transpose()?,
            request: Some(acquire_share(&self.requests, "requests", "concurrency")?),
        })
    }

    /// Requests in progress, without tunnels.
    pub fn requests_under_way(&self) -> usize {
        self.requests.in_use()
    }

    /// Tunnels in progress and refusals, for status reports.
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
