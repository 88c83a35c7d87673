//! Upstream connections on epoll, edge-triggered.
//!
//! Every socket is registered for EPOLLIN. A Unix socket is registered for EPOLLOUT only after it was full; otherwise
//! the worker would wake for each message that the peer reads. A TCP socket reports EPOLLOUT only after it was full, so
//! it is registered for both events from the start.

use std::any::Any;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use crate::buffer::SendBuffer;
use crate::system_calls;
use crate::upstream_network::{
    ConnectTarget, NetworkSocket, PeerReception, PendingConnect, SocketEvent, SourceId,
    UpstreamNetwork, UpstreamSendOutcome,
};

/// Marks the event data of upstream sockets: no connection's generation has this bit.
pub const MARK: u64 = 1 << 63;

/// The upstream sockets of one epoll instance.
pub struct EpollNetwork(pub Arc<OwnedFd>);

impl UpstreamNetwork for EpollNetwork {
    fn connect(&self, to: ConnectTarget<'_>, id: SourceId) -> io::Result<PendingConnect> {
        let (fd, connected) = match to {
            ConnectTarget::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                // A Unix socket connects immediately, or fails with EAGAIN if the backlog is full (connect(2)).
                rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
                (fd, true)
            }
            ConnectTarget::Tcp(to) => (connect_tcp(to, None)?, false),
            ConnectTarget::TcpFrom { to, from } => (connect_tcp(to, Some(from))?, false),
        };
        // Only connecting needs EPOLLOUT at first; later it is added when the socket is full.
        let is_watching_room = !connected;
        epoll::add(&self.0, &fd, data(id), flags(is_watching_room))?;
        let socket = EpollSocket {
            fd,
            epoll: self.0.clone(),
            id,
            is_watching_room,
        };
        Ok(PendingConnect {
            socket: Box::new(socket),
            connected,
        })
    }

    fn adopt(&self, socket: &mut dyn NetworkSocket, id: SourceId) -> io::Result<()> {
        let socket: &mut dyn Any = socket;
        let Some(socket) = socket.downcast_mut::<EpollSocket>() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // The old registration is removed first, so that no further event has the old identifier.
        epoll::delete(&socket.epoll, &socket.fd)?;
        epoll::add(
            &self.0,
            &socket.fd,
            data(id),
            flags(socket.is_watching_room),
        )?;
        (socket.epoll, socket.id) = (self.0.clone(), id);
        Ok(())
    }
}

/// An upstream socket and its registration.
struct EpollSocket {
    fd: OwnedFd,
    epoll: Arc<OwnedFd>,
    id: SourceId,
    /// The socket is registered for EPOLLOUT.
    is_watching_room: bool,
}

impl NetworkSocket for EpollSocket {
    fn connected(&mut self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (_, len) = rustix::net::recv(&self.fd, buffer, RecvFlags::empty())?;
        Ok(len)
    }

    fn send(&mut self, buffer: &mut SendBuffer) -> io::Result<UpstreamSendOutcome> {
        let pieces = buffer.pieces().map(IoSlice::new);
        Ok(UpstreamSendOutcome::Bytes(self.send_pieces(&pieces)?))
    }

    fn send_at_once(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.send_pieces(pieces).map(Some)
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Supported only for Unix sockets, as TCP acknowledges bytes before a program reads them.
    fn reception(&self) -> Option<PeerReception> {
        let domain = sockopt::socket_domain(&self.fd).ok()?;
        let fd = (domain == AddressFamily::UNIX).then(|| self.fd.try_clone());
        let fd = fd?.ok()?;
        Some(Box::new(move || system_calls::unread_len(&fd) == 0))
    }
}

impl EpollSocket {
    fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = match only_filled(pieces) {
            Some(piece) => rustix::net::send(&self.fd, piece, SendFlags::NOSIGNAL),
            None => {
                let mut no_control = SendAncillaryBuffer::default();
                let flags = SendFlags::NOSIGNAL;
                rustix::net::sendmsg(&self.fd, pieces, &mut no_control, flags)
            }
        };
        if sent == Err(Errno::AGAIN) && !self.is_watching_room {
            // If the socket has room again by now, EPOLL_CTL_MOD causes an event.
            epoll::modify(&self.epoll, &self.fd, data(self.id), flags(true))?;
            self.is_watching_room = true;
        }
        Ok(sent?)
    }
}

/// The only piece that is not empty, if there is just one: send is cheaper than sendmsg.
fn only_filled<'p, 'b>(pieces: &'p [IoSlice<'b>]) -> Option<&'p IoSlice<'b>> {
    let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
    match (filled.next(), filled.next()) {
        (first, None) => first,
        _ => None,
    }
}

/// Translates an event with [`MARK`].
pub fn socket_event(data: u64, flags: EventFlags) -> SocketEvent {
    let ended = flags.intersects(EventFlags::RDHUP | EventFlags::ERR | EventFlags::HUP);
    SocketEvent {
        id: SourceId {
            slot: data as u32,
            generation: ((data & !MARK) >> 32) as u32,
        },
        // A read finds the end or the error.
        readable: ended || flags.contains(EventFlags::IN),
        writable: flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP),
        ended,
    }
}

fn data(id: SourceId) -> EventData {
    EventData::new_u64(MARK | u64::from(id.generation) << 32 | u64::from(id.slot))
}

fn flags(room: bool) -> EventFlags {
    let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if room { flags | EventFlags::OUT } else { flags }
}

fn connect_tcp(to: SocketAddr, from: Option<IpAddr>) -> io::Result<OwnedFd> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let fd = socket(family)?;
    // Requests leave as soon as they are written, without Nagle's delay.
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(from) = from {
        bind_to(&fd, from)?;
    }
    match rustix::net::connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

/// Binds to any source address (IP_FREEBIND), and leaves the choice of the port to connect(2)
/// (IP_BIND_ADDRESS_NO_PORT), so that connections to different destinations can use the same port.
fn bind_to(fd: &OwnedFd, from: IpAddr) -> io::Result<()> {
    match from {
        IpAddr::V4(_) => sockopt::set_ip_freebind(fd, true)?,
        IpAddr::V6(_) => sockopt::set_ipv6_freebind(fd, true)?,
    }
    system_calls::set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    Ok(rustix::net::bind(fd, &SocketAddr::new(from, 0))?)
}

fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}
