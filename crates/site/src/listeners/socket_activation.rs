//! Socket activation: takes the sockets of a supervisor (sd_listen_fds(3)). A socket's name gives its protocol.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use lowroad_engine::ListenerId;
use lowroad_engine::listener::ListenSocket;

/// The names of the sockets, separated by colons (sd_listen_fds_with_names(3)).
const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";

/// A socket from the supervisor.
#[derive(Clone, Copy)]
pub struct AdoptedSocket {
    /// Its listener number.
    pub id: ListenerId,
    /// Its address; `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// The protocol that its name gives.
    pub scheme: Option<ListenerScheme>,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerScheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

/// Takes the sockets that the supervisor passed to this process.
///
/// # Errors
/// One of them does not listen.
pub fn take() -> io::Result<Vec<(Option<ListenerScheme>, ListenSocket)>> {
    // LISTEN_FDNAMES (sd_listen_fds(3)): one name for each socket, in order.
    let names = std::env::var(NAMES_VARIABLE).unwrap_or_default();
    let mut names = names.split(':');
    let mut handed_over = ListenFd::from_env();
    let mut taken = Vec::new();
    for at in 0..handed_over.len() {
        let scheme = names.next().and_then(scheme_named);
        if let Some(socket) = take_socket(&mut handed_over, at)? {
            taken.push((scheme, ListenSocket::adopt(socket)?));
        }
    }
    Ok(taken)
}

fn take_socket(handed_over: &mut ListenFd, at: usize) -> io::Result<Option<OwnedFd>> {
    // The kind of the socket is unknown: a failed take as TCP leaves a Unix socket in place.
    match handed_over.take_tcp_listener(at) {
        Ok(socket) => Ok(socket.map(OwnedFd::from)),
        Err(error) => match handed_over.take_unix_listener(at) {
            Ok(socket) => Ok(socket.map(OwnedFd::from)),
            Err(_) => Err(error),
        },
    }
}

/// The protocol of a socket's name. The default name is that of the systemd unit, which gives none.
fn scheme_named(name: &str) -> Option<ListenerScheme> {
    match name {
        "http" => Some(ListenerScheme::Http),
        "https" => Some(ListenerScheme::Https),
        _ => None,
    }
}
