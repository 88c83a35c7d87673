//! Which of several cores a frame is for, where each core has a stack of its own. It knows no rings and no device:
//! whoever moves frames asks here.

use crate::arp;
use crate::bytes::{be16, be32};
use crate::dhcp::{CLIENT_PORT, SERVER_PORT};
use crate::icmp::quoted::quoted;
use crate::ipv4;
use crate::tcp::segment::Key;

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;

/// Says who has a connection: a keyed hash of who it is with. The same on all cores of a machine.
#[derive(Clone, Copy)]
pub struct Steering {
    keys: [u64; 2],
    count: u16,
}

/// A core's share of the connections.
#[derive(Clone, Copy)]
pub struct Share {
    /// The same for all cores.
    pub steering: Steering,
    /// Which one it is, from 0.
    pub core: u16,
}

/// Whose a frame is, on a machine with several cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The core's that has got it.
    Here,
    /// That core's.
    Core(u16),
    /// Each core learns from it; few of them are needed.
    All,
}

/// Two numbers multiplied, and the halves of the product put together.
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Steering {
    /// For so many cores, at least one. `secret` is of a good source and new at each start: who knows it can have
    /// one core do all the work. What a stack makes of the same secret tells nothing of it.
    #[must_use]
    pub fn new(secret: &[u8; 32], count: u16) -> Steering {
        let (words, _) = secret.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        // Other keys than those of the tables, or each table would use a part of its places only.
        let key = |one: u64, other: u64| folded(one ^ 0x9e37_79b9_7f4a_7c15, other | 1) | 1;
        Steering {
            keys: [key(word(0), word(2)), key(word(1), word(3))],
            count: count.max(1),
        }
    }

    /// How many cores there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The core that has a connection: between a remote address and port, and a port of ours.
    #[inline]
    #[must_use]
    pub fn core_of(&self, remote: u32, remote_port: u16, port: u16) -> u16 {
        self.core_of_key(Key::new(remote, remote_port, port))
    }

    #[inline]
    pub(crate) fn core_of_key(&self, key: Key) -> u16 {
        let [one, other] = self.keys;
        let hash = folded(folded(key.0 ^ other.rotate_left(32), one), other);
        (((hash >> 32) * u64::from(self.count)) >> 32) as u16
    }

    /// Whose a frame is that has come to a machine with this MAC and, if it has one yet, this address. Looks at no
    /// sums: what is malformed or nobody's stays where it is, to be counted there.
    #[inline]
    #[must_use]
    pub fn owner(&self, mac: [u8; 6], local: Option<u32>, frame: &[u8]) -> Owner {
        let Some((head, rest)) = frame.split_first_chunk::<ETHERNET_LEN>() else {
            return Owner::Here;
        };
        let is_ours = head[..6] == mac;
        match [head[12], head[13]] {
            ipv4::ETHERTYPE => self.of_packet(is_ours, rest),
            arp::ETHERTYPE => of_arp(local, rest),
            _ => Owner::Here,
        }
    }

    #[inline]
    fn of_packet(&self, is_ours: bool, packet: &[u8]) -> Owner {
        let Some(head) = packet.first_chunk::<IPV4_LEN>() else {
            return Owner::Here;
        };
        let is_fragment = be16(head, 6) & 0x3fff != 0;
        let payload = packet.get(usize::from(head[0] & 15) * 4..);
        let (Some(payload), 4, false) = (payload, head[0] >> 4, is_fragment) else {
            return Owner::Here;
        };
        match (head[9], payload.first_chunk::<4>()) {
            (ipv4::TCP, Some(ports)) if is_ours => {
                let key = Key::new(be32(head, 12), be16(ports, 0), be16(ports, 2));
                Owner::Core(self.core_of_key(key))
            }
            (ipv4::UDP, Some(ports)) => of_datagram(be16(ports, 0), be16(ports, 2)),
            (ipv4::ICMP, Some(_)) if is_ours => self.of_icmp(payload),
            _ => Owner::Here,
        }
    }

    /// An error is for who has the connection whose segment it quotes; all else can be done anywhere.
    fn of_icmp(&self, message: &[u8]) -> Owner {
        match quoted(message) {
            Some(quoted) => Owner::Core(self.core_of_key(quoted.key)),
            None => Owner::Here,
        }
    }
}

/// There is one DHCP client.
fn of_datagram(from_port: u16, port: u16) -> Owner {
    match (from_port, port) {
        (SERVER_PORT, CLIENT_PORT) => Owner::Core(0),
        _ => Owner::Here,
    }
}

/// What neighbours say of themselves to us, or to all, is for all cores to learn; what they ask others is not.
fn of_arp(local: Option<u32>, bytes: &[u8]) -> Owner {
    match (arp::parse(bytes), local) {
        (Some(message), Some(local)) if message.to == local || message.to == message.from => {
            Owner::All
        }
        _ => Owner::Here,
    }
}

impl Share {
    /// Whether this core speaks for the machine: it has the DHCP client and answers ARP.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.core == 0
    }

    /// Whether a connection is this core's.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.steering.core_of_key(key) == self.core
    }
}
