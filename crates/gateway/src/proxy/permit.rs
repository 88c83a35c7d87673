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
    pub fn enter(
        &self,
        client: IpAddr,
        asks_for_tunnel: bool,
        whom: &str,
    ) -> Result<RoutePermit, HandlerFailure> {
        let enter = |bound: &Arc<ClientShares>, what: &str, key: &str| {
            let refused = |why| {
                HandlerFailure::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    text(why, bound, what, key, whom),
                )
            };
            bound.try_acquire(client).map_err(refused)
        };
        // An upgrade request needs both shares; without either it is refused.
        let tunnel = asks_for_tunnel.then(|| enter(&self.tunnels, "tunnels", "tunnels"));
        Ok(RoutePermit {
            tunnel: tunnel.transpose()?,
            request: Some(enter(&self.requests, "requests", "concurrency")?),
        })
    }

    /// Requests in progress, without tunnels.
    pub fn requests_under_way(&self) -> usize {
        self.requests.under_way()
    }

    /// Tunnels in progress and refusals, for status reports.
    pub fn text(&self) -> String {
        format!(
            "{} tunnels, {} refused by concurrency, {} by tunnels",
            self.tunnels.under_way(),
            self.requests.refused(),
            self.tunnels.refused()
        )
    }
}

fn text(why: ShareRefusal, bound: &ClientShares, what: &str, key: &str, whom: &str) -> String {
    let max = bound.max();
    match why {
        ShareRefusal::Full => {
            format!("{max} {what} to {whom} are in progress; raise the route's {key} to allow more")
        }
        ShareRefusal::Share => format!(
            "the client uses its share of the {max} {what} to {whom}; raise client_share to allow more"
        ),
    }
}
