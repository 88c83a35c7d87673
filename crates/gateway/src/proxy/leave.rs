//! Leave for a request to be under way at a route, and for what it may become: a tunnel has a bound of its own, since it
//! lasts for days. Knows nothing of what is under way.

use std::net::IpAddr;
use std::sync::Arc;

use lowroad_config::Route;
use lowroad_handler::Failure;
use lowroad_http::status::Status;
use lowroad_limits::{ClientPermit, ClientShares, ShareRefusal};

/// What may be under way at a route.
pub struct Bounds {
    requests: Arc<ClientShares>,
    tunnels: Arc<ClientShares>,
}

/// Leave for one request.
pub struct Leave {
    /// Not here any more once it has become a tunnel.
    request: Option<ClientPermit>,
    tunnel: Option<ClientPermit>,
}

impl Leave {
    /// The request is over; its connection speaks another protocol as long as this is here.
    pub fn become_tunnel(&mut self) {
        self.request = None;
    }

    /// There will be no tunnel.
    pub fn stay_request(&mut self) {
        self.tunnel = None;
    }
}

impl Bounds {
    /// Those of a route.
    pub fn new(route: &Route) -> Bounds {
        let percent = route.client_share_percent;
        Bounds {
            requests: ClientShares::new(route.concurrency_max, percent),
            tunnels: ClientShares::new(route.tunnels_max, percent),
        }
    }

    /// Leave for a client's request to `whom`, which may ask for another protocol.
    ///
    /// # Errors
    /// 503, with the limit that it was.
    pub fn enter(
        &self,
        client: IpAddr,
        asks_for_tunnel: bool,
        whom: &str,
    ) -> Result<Leave, Failure> {
        let enter = |bound: &Arc<ClientShares>, what: &str, key: &str| {
            let refused = |why| {
                Failure::new(
                    Status::SERVICE_UNAVAILABLE,
                    text(why, bound, what, key, whom),
                )
            };
            bound.try_acquire(client).map_err(refused)
        };
        let tunnel = asks_for_tunnel.then(|| enter(&self.tunnels, "tunnels", "tunnels"));
        Ok(Leave {
            tunnel: tunnel.transpose()?,
            request: Some(enter(&self.requests, "requests", "concurrency")?),
        })
    }

    /// How many requests there are, without those that became tunnels.
    pub fn requests_under_way(&self) -> usize {
        self.requests.under_way()
    }

    /// How many tunnels there are, and what was refused, for people.
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
            format!(
                "{max} {what} to {whom} are under way already; the route's {key} allows no more"
            )
        }
        ShareRefusal::Share => format!(
            "the client has its share of the {max} {what} to {whom} that may be under way; client_share says how much that is"
        ),
    }
}
