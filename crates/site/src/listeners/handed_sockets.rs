//! Listening sockets that an earlier process of this server has passed to this one, which takes over from it.

use std::net::SocketAddr;

use lowroad_engine::listener::ListenSocket;
use serde::{Deserialize, Serialize};

use super::socket_activation::ListenerScheme;

/// Where a listening socket came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketOrigin {
    /// Opened for this configured address.
    Configured(SocketAddr),
    /// Passed by the supervisor of services, as the socket with this position in the list of listeners.
    Activated {
        /// The position.
        position: u16,
        /// The protocol that the socket's name states.
        scheme: Option<ListenerScheme>,
    },
}

impl SocketOrigin {
    /// Whether the supervisor of services has passed the socket.
    pub fn is_activated(&self) -> bool {
        matches!(self, SocketOrigin::Activated { .. })
    }
}

/// A listening socket of one worker, in both processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketLabel {
    /// Where the socket came from.
    pub origin: SocketOrigin,
    /// The number of the worker that accepts from it in the earlier process.
    pub worker: usize,
}

/// The sockets that were passed, and those of them that were taken.
#[derive(Default)]
pub struct HandedSockets {
    waiting: Vec<(SocketLabel, ListenSocket)>,
    taken: Vec<SocketLabel>,
}

impl HandedSockets {
    /// The sockets of an earlier process.
    pub fn new(mut sockets: Vec<(SocketLabel, ListenSocket)>) -> HandedSockets {
        sockets.sort_by_key(|(label, _)| label.worker);
        HandedSockets {
            waiting: sockets,
            taken: Vec::new(),
        }
    }

    /// Takes the sockets of a configured address, at most `count`, in the order of their workers.
    pub fn take_configured(&mut self, address: SocketAddr, count: usize) -> Vec<ListenSocket> {
        let is_wanted = |label: &SocketLabel| label.origin == SocketOrigin::Configured(address);
        let mut sockets = Vec::new();
        while sockets.len() < count
            && let Some(index) = self.waiting.iter().position(|(label, _)| is_wanted(label))
        {
            let (label, socket) = self.waiting.remove(index);
            self.taken.push(label);
            sockets.push(socket);
        }
        sockets
    }

    /// Takes the sockets of the supervisor, in their original order.
    pub fn take_activated(&mut self) -> Vec<(Option<ListenerScheme>, ListenSocket)> {
        let (activated, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(label, _)| label.origin.is_activated());
        self.waiting = others;
        let mut sockets = Vec::new();
        for (label, socket) in activated {
            if let SocketOrigin::Activated { position, scheme } = label.origin {
                self.taken.push(label);
                sockets.push((position, scheme, socket));
            }
        }
        sockets.sort_by_key(|(position, ..)| *position);
        let sockets = sockets.into_iter();
        sockets
            .map(|(_, scheme, socket)| (scheme, socket))
            .collect()
    }

    /// The sockets that were taken. Closes the others in this process; the earlier one accepts their last connections.
    pub fn finish(&mut self) -> Vec<SocketLabel> {
        self.waiting.clear();
        std::mem::take(&mut self.taken)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn socket() -> ListenSocket {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        ListenSocket::take_over(listener.into()).expect("it listens")
    }

    #[test]
    fn sockets_are_taken_in_the_order_of_workers_and_positions() {
        let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        let configured = |worker| SocketLabel {
            origin: SocketOrigin::Configured(address),
            worker,
        };
        let activated = |position, scheme| SocketLabel {
            origin: SocketOrigin::Activated { position, scheme },
            worker: 0,
        };
        let labels = [
            configured(2),
            activated(1, Some(ListenerScheme::Https)),
            configured(0),
            activated(0, Some(ListenerScheme::Http)),
            configured(1),
        ];
        let mut handed = HandedSockets::new(labels.map(|label| (label, socket())).into());
        assert_eq!(handed.take_configured(address, 2).len(), 2);
        let other = "127.0.0.1:81".parse().expect("an address");
        assert_eq!(handed.take_configured(other, 2).len(), 0);
        let schemes: Vec<_> = handed
            .take_activated()
            .into_iter()
            .map(|(scheme, _)| scheme)
            .collect();
        assert_eq!(
            schemes,
            [Some(ListenerScheme::Http), Some(ListenerScheme::Https)]
        );
        let expected = [
            configured(0),
            configured(1),
            activated(1, Some(ListenerScheme::Https)),
            activated(0, Some(ListenerScheme::Http)),
        ];
        assert_eq!(handed.finish(), expected);
        assert_eq!(handed.take_configured(address, 2).len(), 0, "it is closed");
    }
}
