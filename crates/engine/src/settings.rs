//! What an operator sets of a worker: limits and waits.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::driver::ListenerId;

/// Limits and waits; times in ms.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Connections accepted per wake-up of a listener; at least 1.
    pub accept_max: u32,
    /// From a head's first byte to its last.
    pub header_timeout_ms: u64,
    /// Between two receives of a body.
    pub body_timeout_ms: u64,
    /// From an answer to the next request's first byte, and from the accept to the first.
    pub idle_timeout_ms: u64,
    /// Without the client taking anything of an answer.
    pub send_timeout_ms: u64,
    /// Bytes a second that a body, or an answer, must make on average; 0 for none.
    pub rate_min: u64,
    /// For how long the rate may be lower at first.
    pub rate_grace_ms: u64,
    /// Connections in all, over all workers.
    pub connections_max: usize,
    /// Connections of one address, over all workers.
    pub connections_per_address_max: u32,
    /// Requests on one connection; 0 for any number.
    pub requests_max: u32,
    /// Listeners at which proxies say whose connections they pass on.
    pub introduced: Vec<ProxyProtocolListener>,
    /// How connections with HTTP/2 are to be.
    pub h2: lowroad_http::h2::H2Settings,
    /// Limits on the parts of a request.
    pub http: lowroad_http::limits::RequestLimits,
}

/// A listener at which some connections begin with a PROXY header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocolListener {
    /// It.
    pub listener: ListenerId,
    /// Addresses of the proxies that have to send a header; others may not. IPv4 addresses as such.
    pub from: Vec<RangeInclusive<IpAddr>>,
}

impl WorkerSettings {
    /// Whether a connection from there begins with a PROXY header.
    #[inline]
    pub(crate) fn is_introduced(&self, listener: ListenerId, peer: IpAddr) -> bool {
        let mut all = self.introduced.iter();
        all.any(|it| {
            let peer = peer.to_canonical();
            it.listener == listener && it.from.iter().any(|range| range.contains(&peer))
        })
    }
}
