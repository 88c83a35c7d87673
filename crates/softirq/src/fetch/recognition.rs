//! Distinguishes the daemon's own fetches from clients' requests.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::USER_AGENT;
use crate::machine::probe_source;

/// Whether a request with this User-Agent, from this address, may be the daemon's.
pub fn is_from_daemon(agent: Option<&[u8]>, peer: IpAddr) -> bool {
    agent == Some(USER_AGENT) && can_be_daemon(peer)
}

/// Whether a connection from this address may be the daemon's. The daemon connects from a probe source address or from
/// the server's own address. No other host can use these addresses: the kernel drops packets from outside that have
/// them. Costs a few system calls.
fn can_be_daemon(peer: IpAddr) -> bool {
    if probe_source::is_probe_source(peer) {
        return true;
    }
    // bind(2) succeeds for local addresses only.
    let bound = UdpSocket::bind(SocketAddr::new(peer, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_addresses_are_recognized_as_the_daemon() {
        for own in ["127.0.0.1", "::1"] {
            let own: IpAddr = own.parse().expect("an address");
            // Without IPv6, the machine does not have this address.
            assert!(can_be_daemon(own) || own.is_ipv6());
        }
        for other in ["192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            let other: IpAddr = other.parse().expect("an address");
            assert!(!can_be_daemon(other), "{other}");
        }
    }
}
