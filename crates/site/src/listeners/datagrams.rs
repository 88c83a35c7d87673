//! The datagram sockets of listeners with HTTP/3, opened or passed by an earlier process of this server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_engine::ListenerId;
use lowroad_engine::datagram_relay::DatagramRelay;
use lowroad_engine::datagram_socket::{DatagramSocket, PortSockets};

use super::handed_sockets::SocketOrigin;

/// Newly opened datagram sockets, for each worker.
pub type NewDatagrams = Vec<Vec<(ListenerId, PortSockets)>>;

/// The datagram sockets that an earlier process has passed, and the relays to it and to its predecessors.
#[derive(Default)]
pub struct HandedDatagrams {
    ports: Vec<HandedPort>,
    taken: Vec<SocketOrigin>,
    /// See [`HandedDatagrams::add_occupied`].
    occupied: Vec<SocketAddr>,
}

/// The sockets and relays of one address.
struct HandedPort {
    origin: SocketOrigin,
    sockets: Vec<DatagramSocket>,
    relays: Vec<DatagramRelay>,
}

impl HandedDatagrams {
    fn port(&mut self, origin: SocketOrigin) -> &mut HandedPort {
        let known = self.ports.iter().position(|port| port.origin == origin);
        let index = known.unwrap_or_else(|| {
            self.ports.push(HandedPort {
                origin,
                sockets: Vec::new(),
                relays: Vec::new(),
            });
            self.ports.len() - 1
        });
        &mut self.ports[index]
    }

    /// Adds a socket.
    pub fn add_socket(&mut self, origin: SocketOrigin, socket: DatagramSocket) {
        self.port(origin).sockets.push(socket);
    }

    /// Adds the address of a port from which a process before the earlier one receives, so that it was not passed.
    pub fn add_occupied(&mut self, address: SocketAddr) {
        self.occupied.push(address);
    }

    /// The addresses from which earlier processes go on receiving, after sockets were taken.
    pub(super) fn occupied(&self) -> Vec<SocketAddr> {
        let sockets = self.ports.iter().flat_map(|port| port.sockets.first());
        let untaken = sockets.filter_map(DatagramSocket::address);
        self.occupied.iter().copied().chain(untaken).collect()
    }

    /// Adds a relay.
    pub fn add_relay(&mut self, origin: SocketOrigin, relay: DatagramRelay) {
        self.port(origin).relays.push(relay);
    }

    /// Takes all sockets of an address, so that the earlier process receives no more: the sockets of each worker; `None` if
    /// there is none.
    pub(super) fn take(
        &mut self,
        origin: SocketOrigin,
        workers: usize,
    ) -> io::Result<Option<Vec<PortSockets>>> {
        let known = self.ports.iter().position(|port| port.origin == origin);
        let Some(port) = known.map(|index| self.ports.swap_remove(index)) else {
            return Ok(None);
        };
        // Relays alone are of no use: their process receives itself.
        if port.sockets.is_empty() {
            return Ok(None);
        }
        self.taken.push(origin);
        let mut ports = distribute(port.sockets, port.relays.into(), workers)?;
        for port in &mut ports {
            port.is_activated = origin.is_activated();
        }
        Ok(Some(ports))
    }

    /// The addresses with taken sockets. Closes the others in this process.
    pub fn finish(&mut self) -> Vec<SocketOrigin> {
        self.ports.clear();
        std::mem::take(&mut self.taken)
    }
}

/// Checks that no other program has a UDP port. One of the same user would share it, and each would get a part of the
/// datagrams.
pub(super) fn probe(address: SocketAddr) -> io::Result<()> {
    std::net::UdpSocket::bind(address).map(drop)
}

/// Whether the sockets of two addresses would share datagrams, or take them from each other.
pub(super) fn overlap(address: SocketAddr, other: SocketAddr) -> bool {
    let is_every = address.ip().is_unspecified() || other.ip().is_unspecified();
    address.port() == other.port() && (is_every || address.ip() == other.ip())
}

/// Opens a socket for each worker.
pub(super) fn open(
    address: SocketAddr,
    owner: Option<u32>,
    workers: usize,
) -> io::Result<Vec<PortSockets>> {
    (0..workers)
        .map(|_| DatagramSocket::open(address, owner).map(PortSockets::from))
        .collect()
}

/// Distributes the socket of a supervisor over the workers: one receives for all.
pub(super) fn distribute_adopted(
    socket: DatagramSocket,
    workers: usize,
) -> io::Result<Vec<PortSockets>> {
    let mut ports = distribute(vec![socket], Arc::default(), workers)?;
    for port in &mut ports {
        port.is_activated = true;
    }
    Ok(ports)
}

/// Distributes the sockets of an address over the workers, of which there may be more or fewer.
fn distribute(
    sockets: Vec<DatagramSocket>,
    relays: Arc<[DatagramRelay]>,
    workers: usize,
) -> io::Result<Vec<PortSockets>> {
    // Another socket would change the worker of each datagram from the moment it is bound, long before this process
    // receives.
    let is_spread = sockets.len() < workers;
    let mut ports: Vec<PortSockets> = Vec::new();
    for (number, socket) in sockets.into_iter().enumerate() {
        if number >= workers {
            ports[number % workers].others.push(socket);
            continue;
        }
        ports.push(PortSockets {
            is_spread,
            relays: relays.clone(),
            ..PortSockets::from(socket)
        });
    }
    for number in ports.len()..workers {
        let socket = ports[number % ports.len()].socket.share()?;
        ports.push(PortSockets {
            is_receiving: false,
            relays: relays.clone(),
            ..PortSockets::from(socket)
        });
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sockets: usize, workers: usize) -> Vec<(usize, bool)> {
        let origin = SocketOrigin::Configured(([127, 0, 0, 1], 443).into());
        let mut handed = HandedDatagrams::default();
        for _ in 0..sockets {
            let socket = DatagramSocket::open(([127, 0, 0, 1], 0).into(), None);
            handed.add_socket(origin, socket.expect("a port"));
        }
        let ports = handed.take(origin, workers).expect("descriptors");
        let ports = ports.expect("sockets").into_iter();
        assert_eq!(handed.finish(), [origin]);
        ports
            .map(|port| (port.receiving().count(), port.is_spread))
            .collect()
    }

    #[test]
    fn each_socket_has_one_receiver() {
        assert_eq!(counts(2, 2), [(1, false), (1, false)]);
        assert_eq!(counts(5, 2), [(3, false), (2, false)]);
        assert_eq!(counts(1, 3), [(1, true), (0, false), (0, false)]);
    }

    #[test]
    fn used_port_is_noticed() {
        let socket = DatagramSocket::open(([127, 0, 0, 1], 0).into(), None);
        let socket = socket.expect("a port");
        let address = socket.address().expect("an address");
        assert!(probe(address).is_err());
        drop(socket);
        assert!(probe(address).is_ok());
    }

    #[test]
    fn untaken_sockets_occupy_their_port() {
        let mut handed = HandedDatagrams::default();
        let ports = [443, 444].map(|port| SocketOrigin::Configured(([127, 0, 0, 1], port).into()));
        let addresses = ports.map(|origin| {
            let socket = DatagramSocket::open(([127, 0, 0, 1], 0).into(), None);
            let socket = socket.expect("a port");
            let address = socket.address().expect("an address");
            handed.add_socket(origin, socket);
            address
        });
        handed.take(ports[0], 1).expect("sockets");
        let earlier = ([192, 0, 2, 1], 443).into();
        handed.add_occupied(earlier);
        assert_eq!(handed.occupied(), [earlier, addresses[1]]);
        assert!(overlap(earlier, ([0, 0, 0, 0], 443).into()));
        assert!(!overlap(earlier, ([192, 0, 2, 2], 443).into()));
        assert!(!overlap(earlier, ([192, 0, 2, 1], 444).into()));
    }

    #[test]
    fn other_addresses_are_not_taken() {
        let origin = SocketOrigin::Configured(([127, 0, 0, 1], 443).into());
        let mut handed = HandedDatagrams::default();
        assert!(handed.take(origin, 2).expect("nothing").is_none());
        assert!(handed.finish().is_empty());
    }
}
