//! Socket activation: takes the sockets that a supervisor passes (sd_listen_fds(3)). The name of a socket states its
//! protocol.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use lowroad_engine::ListenerId;
use lowroad_engine::listener::ListenSocket;
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
/// One of the sockets is not listening.
pub fn take() -> io::Result<Vec<(Option<ListenerScheme>, ListenSocket)>> {
    // LISTEN_FDNAMES contains one name for each socket, in order.
    let names = std::env::var(NAMES_VARIABLE).unwrap_or_default();
    let mut names = names.split(':');
    let mut inherited = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..inherited.len() {
        // Advanced even if there is no socket to take, as the names are in the order of the descriptors.
        let scheme = names.next().and_then(scheme_from_name);
        if let Some(socket) = take_socket(&mut inherited, index)? {
            sockets.push((scheme, ListenSocket::adopt(socket)?));
        }
    }
    Ok(sockets)
}

fn take_socket(inherited: &mut ListenFd, index: usize) -> io::Result<Option<OwnedFd>> {
    // The kind of the socket is unknown. If it is not a TCP socket, it can still be taken as a Unix socket.
    match inherited.take_tcp_listener(index) {
        Ok(socket) => Ok(socket.map(OwnedFd::from)),
        Err(error) => match inherited.take_unix_listener(index) {
            Ok(socket) => Ok(socket.map(OwnedFd::from)),
            Err(_) => Err(error),
        },
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
