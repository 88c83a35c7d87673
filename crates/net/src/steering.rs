//! Flow steering: selects the core that a frame belongs to, if each core has its own stack.

use crate::arp;
use crate::bytes::{be16, be32};
use crate::dhcp::{CLIENT_PORT, SERVER_PORT};
use crate::icmp::quoted::quoted;
use crate::ipv4;
use crate::tcp::segment::ConnectionKey;

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;

/// Maps connections to cores by a keyed hash of the four-tuple. All cores use the same keys.
#[derive(Clone, Copy)]
pub struct FlowSteering {
    keys: [u64; 2],
    count: u16,
}

/// A core's share of the connections.
#[derive(Clone, Copy)]
pub struct FlowShare {
    /// The same for all cores.
    pub steering: FlowSteering,
    /// This core's number, from 0.
    pub core: u16,
}

/// The core that must process a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOwner {
    /// The core that received the frame.
    Here,
    /// Another core.
    Core(u16),
    /// All cores, since each learns from the frame. Such frames are rare.
    All,
}

/// Multiplies two numbers and XORs the halves of the product.
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl FlowSteering {
    /// Steers to `count` cores, at least one. `secret` must be from a cryptographic random source and new at each
    /// start: an attacker with the keys could direct all connections to one core. The hash tables use the same
    /// secret, but do not reveal the keys.
    #[must_use]
    pub fn new(secret: &[u8; 32], count: u16) -> FlowSteering {
        let (words, _) = secret.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        // The keys must differ from those of the hash tables: with equal hashes, each core's table would fill only some
        // of its buckets.
        let key = |one: u64, other: u64| folded(one ^ 0x9e37_79b9_7f4a_7c15, other | 1) | 1;
        FlowSteering {
            keys: [key(word(0), word(2)), key(word(1), word(3))],
            count: count.max(1),
        }
    }

    /// The number of cores.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The core of a connection between a remote address and port, and a local port.
    #[inline]
    #[must_use]
    pub fn core_of(&self, remote: u32, remote_port: u16, port: u16) -> u16 {
        self.core_of_key(ConnectionKey::new(remote, remote_port, port))
    }

    #[inline]
    pub(crate) fn core_of_key(&self, key: ConnectionKey) -> u16 {
        let [one, other] = self.keys;
        let hash = folded(folded(key.0 ^ other.rotate_left(32), one), other);
        // Multiply-shift reduction: uniform, and without a division.
        (((hash >> 32) * u64::from(self.count)) >> 32) as u16
    }

    /// The owner of a frame received with this local MAC address and, if configured, this IP address. Checksums are not
    /// verified; malformed frames and frames for other hosts stay with the receiving core, which counts them.
    #[inline]
    #[must_use]
    pub fn owner(&self, mac: [u8; 6], local: Option<u32>, frame: &[u8]) -> FrameOwner {
        let Some((head, rest)) = frame.split_first_chunk::<ETHERNET_LEN>() else {
            return FrameOwner::Here;
        };
        let is_for_us = head[..6] == mac;
        match [head[12], head[13]] {
            ipv4::ETHERTYPE => self.packet_owner(is_for_us, rest),
            arp::ETHERTYPE => arp_owner(local, rest),
            _ => FrameOwner::Here,
        }
    }

    #[inline]
    fn packet_owner(&self, is_for_us: bool, packet: &[u8]) -> FrameOwner {
        let Some(head) = packet.first_chunk::<IPV4_LEN>() else {
            return FrameOwner::Here;
        };
        // Fragments other than the first lack the ports; the receiving core counts and drops all fragments.
        let is_fragment = be16(head, 6) & 0x3fff != 0;
        let payload = packet.get(usize::from(head[0] & 15) * 4..);
        let (Some(payload), 4, false) = (payload, head[0] >> 4, is_fragment) else {
            return FrameOwner::Here;
        };
        match (head[9], payload.first_chunk::<4>()) {
            (ipv4::TCP, Some(ports)) if is_for_us => {
                let key = ConnectionKey::new(be32(head, 12), be16(ports, 0), be16(ports, 2));
                FrameOwner::Core(self.core_of_key(key))
            }
            (ipv4::UDP, Some(ports)) => datagram_owner(be16(ports, 0), be16(ports, 2)),
            (ipv4::ICMP, Some(_)) if is_for_us => self.icmp_owner(payload),
            _ => FrameOwner::Here,
        }
    }

    /// An ICMP error belongs to the core of the quoted segment's connection; other messages belong to the receiving
    /// core.
    fn icmp_owner(&self, message: &[u8]) -> FrameOwner {
        match quoted(message) {
            Some(quoted) => FrameOwner::Core(self.core_of_key(quoted.key)),
            None => FrameOwner::Here,
        }
    }
}

/// The owner of a UDP datagram: core 0, which runs the DHCP client, for replies of DHCP servers.
fn datagram_owner(from_port: u16, port: u16) -> FrameOwner {
    match (from_port, port) {
        (SERVER_PORT, CLIENT_PORT) => FrameOwner::Core(0),
        _ => FrameOwner::Here,
    }
}

/// The owner of an ARP message: all cores for messages to the local address, and for announcements.
fn arp_owner(local: Option<u32>, bytes: &[u8]) -> FrameOwner {
    match (arp::parse(bytes), local) {
        (Some(message), Some(local)) if message.to == local || message.to == message.from => {
            FrameOwner::All
        }
        _ => FrameOwner::Here,
    }
}

impl FlowShare {
    /// Whether this core runs the DHCP client and answers ARP on behalf of all cores.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.core == 0
    }

    /// Whether a connection belongs to this core.
    pub(crate) fn owns(&self, key: ConnectionKey) -> bool {
        self.steering.core_of_key(key) == self.core
    }
}
