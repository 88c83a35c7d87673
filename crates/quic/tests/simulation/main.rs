//! Connections in virtual time over a network with faults. Without cryptography, so that equal seeds give equal
//! datagrams.

mod admission;
mod http_peers;
mod network;
mod responses;
mod streams;

use lowroad_quic::QuicCipher;

use network::{Faults, World};

/// A client and workers without cryptography.
fn null_world(seed: u64, workers: u8, faults: Faults) -> World {
    let server = network::config(seed, 1, QuicCipher::null());
    World::new(seed, workers, faults, &server)
}
