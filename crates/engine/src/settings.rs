//! Limits and timeouts of a worker.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::driver::ListenerId;

/// Limits and timeouts; times in ms.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Connections accepted per wake-up of a listener; at least 1.
    pub accept_max: u32,
    /// Maximum time from the first byte of a head to its last.
    pub header_timeout_ms: u64,
    /// Maximum time between two receives of a body.
    pub body_timeout_ms: u64,
    /// Maximum time from a response to the first byte of the next request, and from the accept to the first request.
    pub idle_timeout_ms: u64,
    /// Maximum time in which a client receives nothing of a response.
    pub send_timeout_ms: u64,
    /// Minimum average rate of a body or response, in bytes per second; 0: none.
    pub rate_min: u64,
    /// How long a body or response may be slower than `rate_min` at its start.
    pub rate_grace_ms: u64,
    /// Maximum number of connections of all workers.
    pub connections_max: usize,
    /// Maximum number of connections of one address, over all workers.
    pub connections_per_address_max: u32,
    /// Maximum number of requests on one connection; 0: unlimited.
    pub requests_max: u32,
    /// Listeners at which proxies send PROXY headers.
    pub proxy_protocol_listeners: Vec<ProxyProtocolListener>,
    /// Limits of HTTP/2 connections.
    pub h2: lowroad_http::h2::H2Settings,
    /// Limits of HTTP/3 connections.
    pub h3: lowroad_http::h3::H3Settings,
    /// Limits on the parts of a request.
    pub http: lowroad_http::limits::RequestLimits,
}

/// A listener at which some connections begin with a PROXY header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocolListener {
    /// The listener.
    pub listener: ListenerId,
    /// Addresses of the proxies that have to send a header; other clients must not. IPv4 addresses are not in
    /// IPv6-mapped form.
    pub proxies: Vec<RangeInclusive<IpAddr>>,
}

impl WorkerSettings {
    /// Whether a connection from this address begins with a PROXY header.
    #[inline]
    pub(crate) fn expects_proxy_header(&self, listener: ListenerId, peer: IpAddr) -> bool {
        let mut listeners = self.proxy_protocol_listeners.iter();
        listeners.any(|entry| {
            let peer = peer.to_canonical();
            entry.listener == listener && entry.proxies.iter().any(|range| range.contains(&peer))
        })
    }
}
