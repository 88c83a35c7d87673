//! The simulator's datagram network: it randomly loses, duplicates, delays, reorders and marks packets, and changes the
//! addresses of senders behind address translators (NAT).

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use lowroad_engine::datagrams::{DatagramDrops, Ecn};
use lowroad_engine::driver::{DatagramSocketId, DriverEvent};

use super::datagrams::SimDatagram;
use super::sim_world::{SimEvent, SimWorld};

/// The range of ports that address translators choose.
const TRANSLATED_PORT_MIN: u16 = 40_000;
const TRANSLATED_PORTS: u16 = 20_000;

/// The rates of datagram faults: probabilities per datagram, in a thousand.
#[derive(Clone, Debug)]
pub struct DatagramFaults {
    /// The datagram is lost.
    pub lost: u64,
    /// The datagram arrives twice.
    pub duplicated: u64,
    /// Later datagrams overtake the datagram.
    pub reordered: u64,
    /// A router marks the datagram instead of dropping it, if the transport is ECN-capable (RFC 3168).
    pub marked: u64,
    /// The sender gets another address, if it is behind an address translator; responses to the old address are lost.
    pub rebound: u64,
    /// Shortest delay of a datagram, virtual µs.
    pub delay_us: u64,
    /// Maximum additional delay, virtual µs.
    pub jitter_us_max: u64,
    /// Longest datagram that the path carries.
    pub mtu_len: usize,
    /// Maximum number of datagrams in a socket's send buffer.
    pub send_buffer_max: usize,
    /// Maximum number of datagrams in a socket's receive buffer; further ones are dropped.
    pub receive_buffer_max: usize,
}

impl Default for DatagramFaults {
    /// No faults, and no delay.
    fn default() -> DatagramFaults {
        DatagramFaults {
            lost: 0,
            duplicated: 0,
            reordered: 0,
            marked: 0,
            rebound: 0,
            delay_us: 0,
            jitter_us_max: 0,
            mtu_len: 65_507,
            send_buffer_max: usize::MAX,
            receive_buffer_max: usize::MAX,
        }
    }
}

/// Statistics of the datagram network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Sent datagrams, without the network's copies.
    pub sent: u64,
    /// Datagrams delivered to a socket.
    pub delivered: u64,
    /// Datagrams lost by [`DatagramFaults::lost`].
    pub lost: u64,
    /// Duplicated datagrams.
    pub duplicated: u64,
    /// Datagrams that later ones have overtaken.
    pub reordered: u64,
    /// Datagrams marked with [`Ecn::Ce`].
    pub marked: u64,
    /// Changes of a sender's address.
    pub rebound: u64,
    /// Datagrams longer than the MTU of the path.
    pub too_long: u64,
    /// Datagrams to an address that no socket has.
    pub unreachable: u64,
    /// Attempts to send on a full socket.
    pub full: u64,
    /// Datagrams received together with others as a train.
    pub coalesced: u64,
}

/// A datagram in transit.
pub struct DatagramTransit {
    from: SocketAddr,
    to: SocketAddr,
    ecn: Ecn,
    bytes: Vec<u8>,
}

/// All datagram sockets and the network between them.
#[derive(Default)]
pub struct DatagramNetwork {
    pub faults: DatagramFaults,
    pub stats: DatagramStats,
    pub ports: Vec<DatagramPort>,
    translated: u16,
}

/// A datagram socket.
pub struct DatagramPort {
    /// The address to which the socket is bound.
    pub bound: SocketAddr,
    /// The socket's address in the network, if it is behind an address translator.
    pub translated: Option<SocketAddr>,
    /// The driver that owns the socket, and its identifier there.
    pub owner: Option<(usize, DatagramSocketId)>,
    pub received: VecDeque<SimDatagram>,
    /// The number of sent datagrams that have not left the socket.
    unsent: usize,
    is_full: bool,
    pub is_closed: bool,
    /// When the last datagram that was not reordered arrives.
    last_us: u64,
    pub drops: DatagramDrops,
}

impl DatagramPort {
    /// Whether the socket receives datagrams to this address.
    fn accepts(&self, to: SocketAddr) -> bool {
        let address = self.translated.unwrap_or(self.bound);
        let ip = address.ip();
        // An IPv6 socket bound to `[::]` also receives IPv4, as in Linux.
        let is_any = ip.is_unspecified() && (ip.is_ipv6() || to.is_ipv4());
        !self.is_closed && address.port() == to.port() && (is_any || ip == to.ip())
    }
}

impl DatagramNetwork {
    /// Whether a driver has datagrams to receive.
    pub fn has_received(&self, driver: usize) -> bool {
        self.readable(driver).next().is_some()
    }

    /// A driver's sockets with datagrams to receive.
    pub fn readable(&self, driver: usize) -> impl Iterator<Item = DatagramSocketId> {
        let owned = self.ports.iter().filter(|port| !port.is_closed);
        owned
            .filter(|port| !port.received.is_empty())
            .filter_map(move |port| port.owner.filter(|owner| owner.0 == driver))
            .map(|(_, id)| id)
    }

    /// Binds a socket.
    pub fn bind(&mut self, bound: SocketAddr, is_translated: bool) -> usize {
        self.ports.push(DatagramPort {
            bound,
            translated: None,
            owner: None,
            received: VecDeque::new(),
            unsent: 0,
            is_full: false,
            is_closed: false,
            last_us: 0,
            drops: DatagramDrops::default(),
        });
        let port = self.ports.len() - 1;
        if is_translated {
            self.translate(port);
        }
        port
    }

    /// Changes a socket's address in the network; datagrams to the old address are lost.
    pub fn translate(&mut self, port: usize) {
        let number = TRANSLATED_PORT_MIN + self.translated;
        self.translated = (self.translated + 1) % TRANSLATED_PORTS;
        let ip = self.ports[port].bound.ip();
        self.ports[port].translated = Some(SocketAddr::new(ip, number));
    }

    /// The source address of a datagram.
    fn source(&self, port: usize, local: Option<IpAddr>, to: SocketAddr) -> SocketAddr {
        let port = &self.ports[port];
        if let Some(translated) = port.translated {
            return translated;
        }
        let ip = match (local, port.bound.ip(), to) {
            (Some(ip), ..) => ip,
            (None, ip, _) if !ip.is_unspecified() => ip,
            (None, _, SocketAddr::V4(_)) => Ipv4Addr::new(10, 255, 0, 1).into(),
            (None, _, SocketAddr::V6(_)) => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
        };
        SocketAddr::new(ip, port.bound.port())
    }

    /// Delivers a datagram.
    pub fn arrive(&mut self, transit: DatagramTransit) {
        let exact = |port: &DatagramPort| !port.bound.ip().is_unspecified();
        let takers = self.ports.iter().enumerate();
        let taker = takers.filter(|(_, port)| port.accepts(transit.to));
        // A socket bound to the destination address takes precedence over a socket bound to all addresses.
        let Some(port_index) = taker
            .max_by_key(|(_, port)| exact(port))
            .map(|(port_index, _)| port_index)
        else {
            self.stats.unreachable += 1;
            return;
        };
        let port = &mut self.ports[port_index];
        if port.received.len() >= self.faults.receive_buffer_max {
            port.drops.overflowed += 1;
            return;
        }
        self.stats.delivered += 1;
        // A translator rewrites the destination to the socket's own address.
        let local = match port.translated {
            Some(_) => port.bound.ip(),
            None => transit.to.ip(),
        };
        port.received.push_back(SimDatagram {
            peer: transit.from,
            local,
            ecn: transit.ecn,
            bytes: transit.bytes,
        });
    }

    /// Called when a datagram has left a socket. If the socket was full and has room again, returns the driver and its
    /// event.
    pub fn depart(&mut self, port: usize) -> Option<(usize, DriverEvent)> {
        // Linux reports room once less than half of the buffer is used (`sock_writeable`).
        let half = self.faults.send_buffer_max / 2;
        let port = &mut self.ports[port];
        port.unsent -= 1;
        if !port.is_full || port.is_closed || port.unsent > half {
            return None;
        }
        port.is_full = false;
        port.owner
            .map(|(driver, id)| (driver, DriverEvent::Room(id)))
    }
}

impl SimWorld {
    /// Sends a datagram from a socket. False if the socket is full.
    pub fn send_datagram(
        &mut self,
        port: usize,
        to: SocketAddr,
        local: Option<IpAddr>,
        ecn: Ecn,
        bytes: &[u8],
    ) -> bool {
        let faults = self.datagrams.faults.clone();
        let sender = &mut self.datagrams.ports[port];
        if sender.unsent >= faults.send_buffer_max {
            sender.is_full = true;
            self.datagrams.stats.full += 1;
            return false;
        }
        self.datagrams.stats.sent += 1;
        self.datagrams.ports[port].unsent += 1;
        // A datagram leaves its socket before it arrives.
        let departs_us = self.now_us + self.random_below(faults.delay_us / 4 + 1);
        self.schedule_at_us(departs_us, SimEvent::Departed(port));
        if self.random_below(1000) < faults.rebound
            && self.datagrams.ports[port].translated.is_some()
        {
            self.datagrams.translate(port);
            self.datagrams.stats.rebound += 1;
        }
        let from = self.datagrams.source(port, local, to);
        let copies = match self.random_below(1000) < faults.duplicated {
            true => 2,
            false => 1,
        };
        self.datagrams.stats.duplicated += copies - 1;
        for _ in 0..copies {
            let ecn = self.mark(ecn);
            let bytes = bytes.to_vec();
            let transit = DatagramTransit {
                from,
                to,
                ecn,
                bytes,
            };
            self.schedule_arrival(port, transit);
        }
        true
    }

    fn mark(&mut self, ecn: Ecn) -> Ecn {
        // RFC 3168 §5: routers mark only ECN-capable packets.
        if ecn == Ecn::NotEct || self.random_below(1000) >= self.datagrams.faults.marked {
            return ecn;
        }
        // A datagram that was already marked is not counted again.
        self.datagrams.stats.marked += u64::from(ecn != Ecn::Ce);
        Ecn::Ce
    }

    /// Schedules the arrival of a datagram, or drops it.
    fn schedule_arrival(&mut self, port: usize, transit: DatagramTransit) {
        let faults = self.datagrams.faults.clone();
        // Datagrams are never fragmented (IP_PMTUDISC_PROBE).
        if transit.bytes.len() > faults.mtu_len {
            self.datagrams.stats.too_long += 1;
            return;
        }
        if self.random_below(1000) < faults.lost {
            self.datagrams.stats.lost += 1;
            return;
        }
        let transit_us = faults.delay_us + self.random_below(faults.jitter_us_max + 1);
        // Datagrams keep their order, except those that are reordered on purpose.
        let in_order_us = (self.now_us + transit_us).max(self.datagrams.ports[port].last_us);
        let arrival_us = match self.random_below(1000) < faults.reordered {
            true => {
                self.datagrams.stats.reordered += 1;
                in_order_us + 1 + self.random_below(3 * transit_us + 1000)
            }
            false => {
                self.datagrams.ports[port].last_us = in_order_us;
                in_order_us
            }
        };
        self.schedule_at_us(arrival_us, SimEvent::Datagram(transit));
    }
}
