//! Datagram sockets: opened by the process, one per worker, or inherited from a supervisor.

use std::ffi::c_int;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::datagram_relay::DatagramRelay;
use crate::system_calls;

/// The receive buffer of a socket (`SO_RCVBUF`) in bytes of kernel memory; the kernel caps it at `net.core.rmem_max`.
const RECEIVE_BUFFER_LEN: usize = 2 * 1024 * 1024;

/// A bound UDP socket, non-blocking, which reports local addresses and ECN bits of received datagrams.
pub struct DatagramSocket {
    socket: OwnedFd,
    /// Whether the socket's family is IPv6; such a socket also receives IPv4 datagrams if it is bound to `[::]`.
    pub(crate) is_ipv6: bool,
    /// The kernel segments trains into datagrams (UDP GSO).
    pub(crate) has_segmentation: bool,
}

impl DatagramSocket {
    /// Opens a socket at `address` that shares its port with those of the other workers (`SO_REUSEPORT`): the kernel
    /// distributes peers over them. The kernel lets only sockets of one user share a port, and compares the owners of
    /// their files: with `owner`, sockets of root share it with those of the user that the process becomes.
    ///
    /// # Errors
    /// Those of bind(2): the address is in use, not local, or not permitted.
    pub fn open(address: SocketAddr, owner: Option<u32>) -> io::Result<DatagramSocket> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        if address.is_ipv6() && address.ip().is_unspecified() {
            // `[::]` means both families, independent of net.ipv6.bindv6only.
            sockopt::set_ipv6_v6only(&socket, false)?;
        }
        sockopt::set_socket_reuseport(&socket, true)?;
        if let Some(owner) = owner {
            // Without the capability for it, the port can still be shared with sockets of the same process.
            let _ = rustix::fs::fchown(&socket, Some(rustix::fs::Uid::from_raw(owner)), None);
        }
        // The options are set before bind, so that no datagram arrives without its control messages.
        let prepared = DatagramSocket::prepare(socket)?;
        rustix::net::bind(&prepared.socket, &address)?;
        Ok(prepared)
    }

    /// Adopts a socket that a supervisor or an earlier process has bound.
    ///
    /// # Errors
    /// The socket is not a UDP socket.
    pub fn adopt(socket: OwnedFd) -> io::Result<DatagramSocket> {
        let is_udp = sockopt::socket_type(&socket)? == SocketType::DGRAM
            && matches!(
                sockopt::socket_domain(&socket)?,
                AddressFamily::INET | AddressFamily::INET6
            );
        if !is_udp {
            let text = "a socket passed by the supervisor is not a UDP socket";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        DatagramSocket::prepare(socket)
    }

    /// Duplicates the socket, for another worker or process. Each datagram reaches one of the receivers.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn share(&self) -> io::Result<DatagramSocket> {
        let socket = self.socket.try_clone()?;
        Ok(DatagramSocket { socket, ..*self })
    }

    /// Ends the distribution of datagrams to the socket, which another process may keep open to send: sockets that are opened
    /// later get all of them. The kernel selects no connected sockets of those that share a port (since Linux 5.4), and no
    /// peer has the socket's own address.
    ///
    /// # Errors
    /// Those of connect(2).
    pub fn leave_port(&self) -> io::Result<()> {
        let mut own = self.address().ok_or(io::ErrorKind::AddrNotAvailable)?;
        if own.ip().is_unspecified() {
            own.set_ip(match own.is_ipv4() {
                true => Ipv4Addr::LOCALHOST.into(),
                false => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Ok(rustix::net::connect(&self.socket, &own)?)
    }

    /// The local address.
    pub fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// # Errors
    /// The kernel refuses an option that datagram protocols require.
    fn prepare(socket: OwnedFd) -> io::Result<DatagramSocket> {
        let is_ipv6 = sockopt::socket_domain(&socket)? == AddressFamily::INET6;
        prepare_ipv4(&socket).or_else(|error| if is_ipv6 { Ok(()) } else { Err(error) })?;
        if is_ipv6 {
            prepare_ipv6(&socket)?;
        }
        system_calls::set_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        // A smaller buffer than requested is no error.
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_LEN)?;
        // Older kernels return one datagram at a time, which works as well.
        let _ = system_calls::set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        // The value 0 enables nothing; a kernel that knows the option supports the control message too.
        let segmentation = system_calls::set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        Ok(DatagramSocket {
            socket,
            is_ipv6,
            has_segmentation: segmentation.is_ok(),
        })
    }
}

/// The datagram sockets of a worker at one address.
///
/// The kernel distributes datagrams over the sockets of all workers. After an upgrade the sockets are those of the
/// predecessor, which may have had more or fewer workers.
pub struct PortSockets {
    /// The socket that sends.
    pub socket: DatagramSocket,
    /// Whether it receives, too. If not, it is a duplicate of another worker's socket, and datagrams come from that worker.
    pub is_receiving: bool,
    /// Further sockets that receive.
    pub others: Vec<DatagramSocket>,
    /// There are workers that do not receive, so new connections are distributed by this one.
    pub is_spread: bool,
    /// The supervisor of services has bound the socket, so that none is opened in its place later.
    pub is_activated: bool,
    /// The processes that this one has replaced.
    pub relays: Arc<[DatagramRelay]>,
}

impl From<DatagramSocket> for PortSockets {
    fn from(socket: DatagramSocket) -> PortSockets {
        PortSockets {
            socket,
            is_receiving: true,
            others: Vec::new(),
            is_spread: false,
            is_activated: false,
            relays: Arc::default(),
        }
    }
}

impl PortSockets {
    /// The sockets that receive.
    pub fn receiving(&self) -> impl Iterator<Item = &DatagramSocket> {
        let own = self.is_receiving.then_some(&self.socket);
        own.into_iter().chain(&self.others)
    }

    /// Duplicates the sockets, for another process.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn share(&self) -> io::Result<PortSockets> {
        let others = self.others.iter().map(DatagramSocket::share);
        Ok(PortSockets {
            socket: self.socket.share()?,
            others: others.collect::<io::Result<_>>()?,
            relays: self.relays.clone(),
            ..*self
        })
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets the options of ip(7). An IPv6 socket needs them for IPv4 datagrams.
fn prepare_ipv4(socket: &OwnedFd) -> io::Result<()> {
    set_all(
        socket,
        libc::IPPROTO_IP,
        &[
            (libc::IP_PKTINFO, 1),
            (libc::IP_RECVTOS, 1),
            // Don't fragment, and ignore the kernel's path MTU: protocols over datagrams probe the path themselves (RFC
            // 8899).
            (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            // The error queue is never read; if it were not empty, each wait would return immediately.
            (libc::IP_RECVERR, 0),
        ],
    )
}

/// Sets the options of ipv6(7).
fn prepare_ipv6(socket: &OwnedFd) -> io::Result<()> {
    set_all(
        socket,
        libc::IPPROTO_IPV6,
        &[
            (libc::IPV6_RECVPKTINFO, 1),
            (libc::IPV6_RECVTCLASS, 1),
            (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            (libc::IPV6_RECVERR, 0),
        ],
    )
}

fn set_all(socket: &OwnedFd, level: c_int, options: &[(c_int, c_int)]) -> io::Result<()> {
    options
        .iter()
        .try_for_each(|(option, value)| system_calls::set_option(socket, level, *option, *value))
}
