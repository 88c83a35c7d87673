//! Relays: pass datagrams to another process of this server, while one replaces the other.
//!
//! After an upgrade, the successor receives all datagrams, also those for connections of its predecessor. It passes these
//! on by a pair of Unix datagram sockets for each worker of the predecessor, which sends by its own copies of the UDP
//! sockets. A relay needs no privileges, unlike a program that steers datagrams to sockets.
//!
//! ```text
//!  byte 0: format (1)    byte 1: ECN    bytes 2, 3: port    bytes 4 to 19, 20 to 35: peer and local address
//!  bytes 36 to 39: the peer's scope    then the datagram
//! ```
//! IPv4 addresses are mapped to IPv6; an unknown local address is `::`.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};

use crate::datagrams::{DatagramTrain, Ecn};

/// The length of the header.
pub(crate) const RELAY_HEADER_LEN: usize = 40;
/// The first byte of a header. Both processes may be different versions of the program.
const FORMAT: u8 = 1;
/// The requested send buffer in bytes of kernel memory: it bounds the datagrams that wait for the other process. The
/// kernel caps it at `net.core.wmem_max`.
const SEND_BUFFER_LEN: usize = 2 << 20;

/// A worker of a process of this server, as connections' identifiers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessWorker {
    /// The number of the process: one more with each upgrade, modulo 256.
    pub generation: u8,
    /// The number of its worker.
    pub worker: u8,
}

/// The sending end of a relay to one worker of another process.
pub struct DatagramRelay {
    /// The worker that receives.
    pub to: ProcessWorker,
    socket: OwnedFd,
}

/// The result of a [`DatagramRelay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayOutcome {
    /// The other process will receive the datagram.
    Sent,
    /// The other process has not received earlier datagrams yet; this one is lost.
    Full,
    /// The other process, its worker or the worker's connections have ended.
    Ended,
}

impl DatagramRelay {
    /// The end that sends to a worker.
    pub fn new(to: ProcessWorker, socket: OwnedFd) -> DatagramRelay {
        DatagramRelay { to, socket }
    }

    /// Creates the sockets of a relay: the sending and the receiving end.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (sender, receiver) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // A smaller buffer than requested is no error.
        set_socket_send_buffer_size(&sender, SEND_BUFFER_LEN)?;
        Ok((sender, receiver))
    }

    /// Whether the other process, or its worker, has ended. Sends an empty message, which the receiver ignores.
    pub fn is_ended(&self) -> bool {
        self.send_parts(&[]) == RelayOutcome::Ended
    }

    /// Passes a datagram on without blocking. `train` has its addresses.
    pub fn send(&self, train: &DatagramTrain, datagram: &[u8]) -> RelayOutcome {
        let header = encode(train);
        self.send_parts(&[IoSlice::new(&header), IoSlice::new(datagram)])
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> RelayOutcome {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(
                &self.socket,
                parts,
                &mut SendAncillaryBuffer::default(),
                flags,
            ) {
                Ok(_) => return RelayOutcome::Sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return RelayOutcome::Full,
                Err(_) => return RelayOutcome::Ended,
            }
        }
    }
}

impl AsFd for DatagramRelay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn encode(train: &DatagramTrain) -> [u8; RELAY_HEADER_LEN] {
    let ip = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let scope = match train.peer {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(peer) => peer.scope_id(),
    };
    let mut header = [0; RELAY_HEADER_LEN];
    header[0] = FORMAT;
    header[1] = train.ecn.bits();
    header[2..4].copy_from_slice(&train.peer.port().to_be_bytes());
    header[4..20].copy_from_slice(&ip(train.peer.ip()));
    let local = train.local.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
    header[20..36].copy_from_slice(&ip(local));
    header[36..].copy_from_slice(&scope.to_be_bytes());
    header
}

/// The train of a relayed datagram, which begins at `start` of a buffer, and ends behind `message`. `None` if the message
/// has another format.
pub(crate) fn decode(message: &[u8], start: usize) -> Option<DatagramTrain> {
    let (header, datagram) = message.split_first_chunk::<RELAY_HEADER_LEN>()?;
    let [FORMAT, ecn, port_high, port_low, addresses @ ..] = header else {
        return None;
    };
    let (peer, rest) = addresses.split_first_chunk::<16>()?;
    let (local, scope) = rest.split_first_chunk::<16>()?;
    let port = u16::from_be_bytes([*port_high, *port_low]);
    let scope = u32::from_be_bytes(*scope.first_chunk()?);
    let local = Ipv6Addr::from(*local);
    let peer = Ipv6Addr::from(*peer);
    let start = start + RELAY_HEADER_LEN;
    Some(DatagramTrain {
        peer: match peer.to_ipv4_mapped() {
            Some(ip) => (ip, port).into(),
            None => SocketAddrV6::new(peer, port, 0, scope).into(),
        },
        local: (!local.is_unspecified()).then(|| local.to_canonical()),
        ecn: Ecn::from_bits(*ecn),
        segment_len: datagram.len(),
        range: start..start + datagram.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_a_relay() {
        let link_local = "fe80::1".parse().expect("an address");
        let peers: [SocketAddr; 3] = [
            "192.0.2.1:4433".parse().expect("an address"),
            "[2001:db8::1]:65535".parse().expect("an address"),
            SocketAddrV6::new(link_local, 9, 0, 3).into(),
        ];
        let locals = [None, Some("192.0.2.9"), Some("2001:db8::9")];
        for (peer, local) in peers.into_iter().zip(locals) {
            let train = DatagramTrain {
                peer,
                local: local.map(|text| text.parse().expect("an address")),
                ecn: Ecn::Ce,
                segment_len: 3,
                range: 140..143,
            };
            let message = [&encode(&train)[..], b"abc"].concat();
            assert_eq!(decode(&message, 100), Some(train));
        }
        assert_eq!(decode(&[1; RELAY_HEADER_LEN - 1], 0), None);
        assert_eq!(decode(&[2; 60], 0), None, "another format");
    }

    #[test]
    fn relay_reports_a_full_and_an_ended_receiver() {
        let (sender, receiver) = DatagramRelay::pair().expect("sockets");
        let to = ProcessWorker {
            generation: 1,
            worker: 2,
        };
        let relay = DatagramRelay::new(to, sender);
        let train = DatagramTrain {
            peer: ([127, 0, 0, 1], 1).into(),
            local: None,
            ecn: Ecn::NotEct,
            segment_len: 1200,
            range: 0..1200,
        };
        let mut sent = 0;
        while relay.send(&train, &[0; 1200]) == RelayOutcome::Sent {
            sent += 1;
        }
        // More than a burst of datagrams fits.
        assert!(sent >= 64, "{sent}");
        assert_eq!(relay.send(&train, &[0; 1200]), RelayOutcome::Full);
        assert!(!relay.is_ended());
        drop(receiver);
        assert!(relay.is_ended());
        assert_eq!(relay.send(&train, &[0; 1200]), RelayOutcome::Ended);
    }
}
