//! Listening sockets: opened by the process, one per worker, or inherited from a supervisor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::system_calls;

/// The backlog of connections to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Seconds for which the kernel may hold back a connection on which the client has not sent anything.
const DEFER_ACCEPT_S: i32 = 1;

/// A listening socket.
pub struct ListenSocket {
    /// The socket, non-blocking.
    pub socket: OwnedFd,
    /// Whether other workers accept from the same socket.
    pub shared: bool,
    /// Whether new handshakes are refused ([`ListenSocket::refuse_handshakes`]).
    refuses_handshakes: bool,
    /// The address of a suspended socket ([`ListenSocket::suspend`]).
    suspended_at: Option<SocketAddr>,
}

impl ListenSocket {
    /// Opens a socket at `address` that shares its port with those of the other workers (`SO_REUSEPORT`): the kernel
    /// distributes connections over them.
    ///
    /// # Errors
    /// Those of bind(2): the address is in use, not local, or not permitted.
    pub fn open(address: SocketAddr) -> io::Result<ListenSocket> {
        let socket = new_socket(address)?;
        // Connections in TIME_WAIT from before a restart must not block the address.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        // Before listen(2), so that the first connections inherit the options, too.
        prepare(&socket)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(ListenSocket {
            socket,
            shared: false,
            refuses_handshakes: false,
            suspended_at: None,
        })
    }

    /// Adopts a listening socket that a supervisor has bound.
    ///
    /// # Errors
    /// The socket is not a listening stream socket.
    pub fn adopt(socket: OwnedFd) -> io::Result<ListenSocket> {
        if !sockopt::socket_acceptconn(&socket)? {
            let text = "a socket passed by the supervisor is not listening";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A supervisor may pass a blocking socket, on which accept(2) would stop the worker.
        rustix::io::ioctl_fionbio(&socket, true)?;
        // A Unix socket has no TCP options, and needs none.
        let _ = prepare(&socket);
        Ok(ListenSocket {
            socket,
            shared: true,
            refuses_handshakes: false,
            suspended_at: None,
        })
    }

    /// Takes over a socket that an earlier process of this server has opened by [`ListenSocket::open`].
    ///
    /// # Errors
    /// The socket is not a listening stream socket.
    pub fn take_over(socket: OwnedFd) -> io::Result<ListenSocket> {
        let adopted = ListenSocket::adopt(socket)?;
        Ok(ListenSocket {
            shared: false,
            ..adopted
        })
    }

    /// A duplicate of the socket for another worker.
    ///
    /// # Errors
    /// File descriptors ran out.
    pub fn share(&self) -> io::Result<ListenSocket> {
        Ok(ListenSocket {
            socket: self.socket.try_clone()?,
            shared: true,
            refuses_handshakes: false,
            suspended_at: None,
        })
    }

    /// Makes the kernel drop new SYNs, which clients retransmit, while handshakes in progress still finish. A listener
    /// that is drained needs this, as closing it resets the connections in its backlog. A socket shared with other
    /// workers or processes is left unchanged.
    ///
    /// The listener gets a minimum TTL or hop limit, which the kernel compares with that of a SYN, but not with that of
    /// the handshake's last segment, which belongs to the request socket. After a SYN cookie, by the kernel or the fast
    /// path, there is no request socket; then the last segment is dropped too, and answered with a reset if it is
    /// retransmitted after the close. 255 is more than ordinary hosts send (64 or 128). A socket filter would match the
    /// SYN exactly, but newer kernels (6.18 here) refuse to attach one to a TCP socket without CAP_NET_ADMIN, which a
    /// server has dropped.
    pub fn refuse_handshakes(&mut self) {
        if !self.shared {
            self.refuses_handshakes =
                system_calls::require_hops_left(&self.socket, u8::MAX).is_ok();
        }
    }

    /// Stops listening, and keeps the address: the kernel gives new connections to the other workers' sockets, or
    /// refuses them if there are none. Connections in the backlog are reset. A socket shared with other workers or
    /// processes is left unchanged.
    pub fn suspend(&mut self) {
        if !self.shared && self.suspended_at.is_none() {
            self.suspended_at = self.address();
            // Fails only for a socket that doesn't listen.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Read);
        }
    }

    /// Listens again after [`ListenSocket::suspend`].
    ///
    /// # Errors
    /// Those of listen(2): another program has taken the port.
    pub fn resume(&mut self) -> io::Result<()> {
        if let Some(address) = self.suspended_at.take() {
            // The kernel takes back a port that it has chosen itself. Another port is still bound, and this call fails.
            let _ = rustix::net::bind(&self.socket, &address);
            rustix::net::listen(&self.socket, BACKLOG).inspect_err(|_| {
                self.suspended_at = Some(address);
            })?;
        }
        if std::mem::take(&mut self.refuses_handshakes) {
            system_calls::require_hops_left(&self.socket, 0)?;
        }
        Ok(())
    }

    /// Accepts the first waiting connection, as accept(2).
    ///
    /// # Errors
    /// Those of accept(2).
    pub fn accept(&self) -> Result<(OwnedFd, Option<SocketAddrAny>), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = rustix::net::acceptfrom_with(&self.socket, flags)?;
        if self.refuses_handshakes {
            // The connection inherited the listener's minimum. Segments that were dropped for it are retransmitted.
            let _ = system_calls::require_hops_left(&socket, 0);
        }
        Ok((socket, peer))
    }

    /// The local address, if it is an IP address.
    pub fn address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }
}

/// Sets options that accepted connections inherit, which saves system calls per connection.
fn prepare(socket: &OwnedFd) -> io::Result<()> {
    // Responses are sent as soon as they are complete, without Nagle's delay.
    sockopt::set_tcp_nodelay(socket, true)?;
    // A connection is accepted once the client has sent bytes. Preconnected clients cost nothing until then, and the
    // first read, immediately after the accept, finds bytes.
    system_calls::set_option(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_DEFER_ACCEPT,
        DEFER_ACCEPT_S,
    )
}

/// Fails if another program, or another instance of this one, listens at `address`: `SO_REUSEPORT` would share its port
/// silently. Probes with a socket without that option.
///
/// # Errors
/// Those of bind(2).
pub fn probe(address: SocketAddr) -> io::Result<()> {
    // The socket is bound, but does not listen: a client that connects at this moment gets ECONNREFUSED.
    let socket = new_socket(address)?;
    // Connections in TIME_WAIT from an earlier process must not look like another program.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(rustix::net::bind(&socket, &address)?)
}

fn new_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // `[::]` means all addresses of both families, independent of net.ipv6.bindv6only.
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn accept(listener: &ListenSocket) -> TcpStream {
        let start = Instant::now();
        loop {
            match listener.accept() {
                Ok((socket, _)) => {
                    let stream = TcpStream::from(socket);
                    stream.set_nonblocking(false).expect("a socket");
                    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
                    return stream;
                }
                Err(_) => assert!(start.elapsed() < TIMEOUT, "no connection"),
            }
            std::thread::yield_now();
        }
    }

    fn expect(stream: &mut TcpStream, text: &str) {
        let mut got = vec![0; text.len()];
        stream.read_exact(&mut got).expect("bytes");
        assert_eq!(got, text.as_bytes());
    }

    /// Runs without privileges, like a server after its start.
    fn check_new_handshakes_are_refused(address: &str, connect_to: IpAddr) {
        let nobody = rustix::process::Uid::from_raw(65534);
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(nobody).expect("root may become anybody");
        }
        let mut listener =
            ListenSocket::open(address.parse().expect("an address")).expect("a port");
        let port = listener.address().expect("an address").port();
        let at = SocketAddr::new(connect_to, port);
        let mut halfway = TcpStream::connect(at).expect("a listener");
        let mut waiting = TcpStream::connect(at).expect("a listener");
        waiting.write_all(b"one").expect("open");

        listener.refuse_handshakes();
        let late = TcpStream::connect_timeout(&at, Duration::from_millis(300));
        assert!(late.is_err(), "a handshake began");

        halfway.write_all(b"two").expect("open");
        // Connections are accepted in the order in which their handshakes end.
        for (client, text) in [(&mut waiting, "one"), (&mut halfway, "two")] {
            let mut served = accept(&listener);
            expect(&mut served, text);
            served.write_all(b"answer").expect("open");
            expect(client, "answer");
            client.write_all(b"more").expect("open");
            expect(&mut served, "more");
        }
    }

    #[test]
    fn suspended_socket_leaves_connections_to_the_others_and_listens_again() {
        let mut first = ListenSocket::open(([127, 0, 0, 1], 0).into()).expect("a port");
        let at = first.address().expect("an address");
        let second = ListenSocket::open(at).expect("the same port");
        first.refuse_handshakes();
        first.suspend();
        for _ in 0..8 {
            let mut client = TcpStream::connect(at).expect("a listener");
            client.write_all(b"one").expect("open");
            expect(&mut accept(&second), "one");
        }
        drop(second);
        assert!(TcpStream::connect(at).is_err(), "a socket listens");

        first.resume().expect("the port is still bound");
        let mut client = TcpStream::connect(at).expect("a listener");
        client.write_all(b"two").expect("open");
        let mut served = accept(&first);
        expect(&mut served, "two");
        served.write_all(b"answer").expect("open");
        expect(&mut client, "answer");
    }

    #[test]
    fn refuse_handshakes_drops_new_syns_and_keeps_half_open_connections() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        for (address, connect_to) in [("127.0.0.1:0", v4), ("[::]:0", v4), ("[::]:0", v6)] {
            std::thread::spawn(move || check_new_handshakes_are_refused(address, connect_to))
                .join()
                .expect("refused");
        }
    }
}
