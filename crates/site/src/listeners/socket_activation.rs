//! Socket activation: takes the sockets that a supervisor passes (sd_listen_fds(3)). The name of a socket states its
//! protocol.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use listenfd::ListenFd;
use lowroad_engine::ListenerId;
use lowroad_engine::datagram_socket::DatagramSocket;
use lowroad_engine::listener::ListenSocket;
use rustix::net::{ipproto, sockopt};
use serde::{Deserialize, Serialize};

/// The names of the sockets, separated by colons (sd_listen_fds_with_names(3)).
const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

/// A socket passed by the supervisor.
#[derive(Clone, Copy)]
pub struct AdoptedSocket {
    /// The number of the socket's listener.
    pub id: ListenerId,
    /// The socket's address; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The protocol that the socket's name states.
    pub scheme: Option<ListenerScheme>,
}

/// A UDP socket passed by the supervisor, for HTTP/3 at its address.
#[derive(Clone)]
pub struct AdoptedDatagrams {
    /// The socket's address.
    pub address: SocketAddr,
    /// Kept while HTTP/3 is off, since only the supervisor can open it.
    pub socket: Arc<DatagramSocket>,
}

/// All sockets that the supervisor has passed.
#[derive(Default)]
pub struct ActivatedSockets {
    /// Those that listen, with the protocols that their names state.
    pub listeners: Vec<(Option<ListenerScheme>, ListenSocket)>,
    /// The UDP sockets.
    pub datagrams: Vec<AdoptedDatagrams>,
}

/// A socket, before it is prepared.
enum InheritedSocket {
    Listener(OwnedFd),
    Datagrams(OwnedFd),
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenerScheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Takes the sockets that the supervisor has passed to this process.
///
/// # Errors
/// One of the sockets is neither listening nor a UDP socket for all clients.
pub fn take() -> io::Result<ActivatedSockets> {
    // LISTEN_FDNAMES contains one name for each socket, in order.
    let names = std::env::var(NAMES_VARIABLE).unwrap_or_default();
    let mut names = names.split(':');
    let mut inherited = ListenFd::from_env();
    let mut sockets = ActivatedSockets::default();
    for index in 0..inherited.len() {
        // Advanced even if there is no socket to take, as the names are in the order of the descriptors.
        let scheme = names.next().and_then(scheme_from_name);
        match take_socket(&mut inherited, index)? {
            Some(InheritedSocket::Listener(socket)) => {
                let listener = ListenSocket::adopt(socket)?;
                sockets.listeners.push((scheme, listener));
            }
            Some(InheritedSocket::Datagrams(socket)) => {
                let socket = DatagramSocket::adopt(socket)?;
                sockets.datagrams.extend(AdoptedDatagrams::new(socket));
            }
            None => {}
        }
    }
    Ok(sockets)
}

impl AdoptedDatagrams {
    /// `None` for a socket that is not bound.
    pub fn new(socket: DatagramSocket) -> Option<AdoptedDatagrams> {
        let address = socket.address()?;
        let socket = Arc::new(socket);
        Some(AdoptedDatagrams { address, socket })
    }
}

fn take_socket(inherited: &mut ListenFd, index: usize) -> io::Result<Option<InheritedSocket>> {
    let listener = |socket: OwnedFd| InheritedSocket::Listener(socket);
    // The kind of the socket is unknown. A socket of another kind can still be taken as that kind.
    let error = match inherited.take_tcp_listener(index) {
        Ok(socket) => return Ok(socket.map(|it| listener(it.into()))),
        Err(error) => error,
    };
    if let Ok(socket) = inherited.take_unix_listener(index) {
        return Ok(socket.map(|it| listener(it.into())));
    }
    match inherited.take_udp_socket(index) {
        Ok(Some(socket)) => {
            check_datagrams(&socket)?;
            Ok(Some(InheritedSocket::Datagrams(socket.into())))
        }
        Ok(None) => Ok(None),
        Err(_) => Err(error),
    }
}

/// Checks that any client can send datagrams to a socket: HTTP/3 would be announced, and never answered.
///
/// # Errors
/// The socket is connected, or not one of UDP.
fn check_datagrams(socket: &UdpSocket) -> io::Result<()> {
    let refused = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    if let Ok(peer) = socket.peer_addr() {
        return refused(format!("a UDP socket is connected to {peer}"));
    }
    match sockopt::socket_protocol(socket)? {
        Some(ipproto::UDP) => Ok(()),
        _ => refused("a datagram socket is not one of UDP".to_owned()),
    }
}

/// The protocol for a socket name. The default name, that of the systemd unit, states no protocol.
fn scheme_from_name(name: &str) -> Option<ListenerScheme> {
    match name {
        "http" => Some(ListenerScheme::Http),
        "https" => Some(ListenerScheme::Https),
        _ => None,
    }
}
