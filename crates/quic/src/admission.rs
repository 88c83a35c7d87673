//! Admission of connections: limits of the endpoint, then the caller's decision. A refused client gets the code
//! CONNECTION_REFUSED (RFC 9000 §20.1).

use std::net::{IpAddr, SocketAddr};

pub use lowroad_engine::quic_transport::QuicCounters;

/// Limits of an endpoint, that is, of a worker.
#[derive(Clone, Copy, Debug)]
pub struct QuicLimits {
    /// Connections; beyond, new ones are refused (`QuicCounters::refused_connections`).
    pub connections_max: u32,
    /// Handshakes in progress; beyond, new ones are refused (`QuicCounters::refused_handshakes`).
    pub handshakes_max: u32,
    /// Handshakes in progress from which on clients must prove their address first, by a Retry packet
    /// (`QuicCounters::retried`). 0: always.
    pub retry_from: u32,
    /// Datagrams of the endpoint itself that wait to be sent: refusals, Retry, versions, resets
    /// (`QuicCounters::dropped_answers`).
    pub answers_max: u32,
    /// Bytes by which receive windows may exceed those of new connections, together
    /// (`QuicCounters::withheld_windows`). A change applies to new endpoints.
    pub windows_len_max: u64,
}

impl Default for QuicLimits {
    fn default() -> QuicLimits {
        QuicLimits {
            connections_max: 16_384,
            handshakes_max: 1024,
            retry_from: 128,
            answers_max: 256,
            windows_len_max: 256 << 20,
        }
    }
}

/// A client that wants to open a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionAttempt {
    /// The client's address.
    pub from: SocketAddr,
    /// The address that received the datagram, if known.
    pub local_ip: Option<IpAddr>,
    /// The client has proved that it receives datagrams at its address.
    pub is_validated: bool,
    /// Connections of the endpoint, with handshakes in progress.
    pub connections: u32,
    /// Handshakes in progress.
    pub handshakes: u32,
}

/// The decision about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission<P> {
    /// The handshake begins. The permit is dropped when the connection, or its handshake, has ended.
    Accept(P),
    /// The client must prove its address; a client that has done so is refused.
    Retry,
    /// The client receives CONNECTION_REFUSED.
    Refuse,
    /// The client is not answered, and tries again.
    Ignore,
}

impl QuicLimits {
    /// The decision of the limits alone; `None`: the caller decides.
    pub(crate) fn check<P>(
        &self,
        attempt: &ConnectionAttempt,
        counters: &mut QuicCounters,
    ) -> Option<Admission<P>> {
        // A refusal of the whole endpoint needs no proof of the address.
        if attempt.connections >= self.connections_max {
            counters.refused_connections += 1;
            return Some(Admission::Refuse);
        }
        if attempt.handshakes >= self.handshakes_max {
            counters.refused_handshakes += 1;
            return Some(Admission::Refuse);
        }
        // Attackers with false addresses never get beyond this, so that others keep the rest of the handshakes.
        (!attempt.is_validated && attempt.handshakes >= self.retry_from).then_some(Admission::Retry)
    }
}
