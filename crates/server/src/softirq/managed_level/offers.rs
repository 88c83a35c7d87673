//! Messages between the server and the daemon of its level, over one channel: the server reports changes, and the
//! daemon requests responses without an HTTP connection. This module does not depend on how responses are produced and
//! used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode, decode, encode};
use lowroad_engine::worker::MailboxMessage;
use lowroad_site::decision::{LevelOffer, WorkerCommand};
use lowroad_softirq::level::clients::ClientPrefix;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::limits;
use crate::running_server::{RunningServer, lock};

/// Timeout of a request; afterwards the daemon uses an HTTP connection.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A message from the server to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToDaemon {
    /// Any response may have changed.
    Changed,
    /// Patterns of purged responses, one on each line.
    Purged(String),
    /// Any response may have changed, and not all later changes will be reported.
    Brief,
    /// The prefixes of all clients that the server refuses.
    Denied(Vec<ClientPrefix>),
    /// The response to the request with this number. If it is empty, the daemon has to use an HTTP connection.
    Answer(u64, ByteBuf),
}

/// A message from the daemon to the server: a request to one of the server's addresses.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OfferRequest {
    number: u64,
    local: SocketAddr,
    head: ByteBuf,
}

/// Sends a message without waiting for room in the channel.
///
/// # Errors
/// [`MessageError::NotReady`]: the channel is full.
pub fn send(channel: &PacketChannel, message: &impl Serialize) -> Result<(), MessageError> {
    channel.send(&encode(message)?, &[], SendMode::Try)
}

/// The server's side: passes requests to workers until the daemon closes the channel.
pub fn serve_requests(channel: &Arc<PacketChannel>, running: &Mutex<RunningServer>) {
    let mut buffer = Vec::new();
    while channel.receive(&mut buffer).is_ok() {
        let Ok(OfferRequest {
            number,
            local,
            head,
        }) = decode(&buffer)
        else {
            continue;
        };
        let channel = channel.clone();
        let reply = move |response: Option<&[u8]>| {
            let response = ByteBuf::from(response.unwrap_or_default());
            // If the response can't be sent, the daemon's request times out, and it uses an HTTP connection.
            let _ = send(&channel, &ToDaemon::Answer(number, response));
        };
        let running = lock(running);
        // If the server has no listener at this address, the daemon has to use an HTTP connection.
        let Some(listener) = running.listeners.find_by_address(local) else {
            reply(None);
            continue;
        };
        let offer = LevelOffer {
            head: head.into_vec(),
            limits: limits::settings(&running.config, &running.listeners, running.fd_limit).http,
            listener,
            // No client is known: the response is for all clients, and must not depend on one.
            peer: local.ip(),
            reply: Box::new(reply),
        };
        // Any worker can answer, because all share the store.
        let workers = u64::try_from(running.workers.len().max(1)).unwrap_or(1);
        let worker = usize::try_from(number % workers).unwrap_or(0);
        if let Some(worker) = running.workers.get(worker) {
            worker.post(MailboxMessage::Command(WorkerCommand::Offer(Box::new(
                offer,
            ))));
        }
    }
}

/// The daemon's side.
pub struct OfferRequests {
    channel: PacketChannel,
    number_next: AtomicU64,
    pending: Mutex<HashMap<u64, Sender<Vec<u8>>>>,
}

impl OfferRequests {
    /// Creates the daemon's side. Request numbers contain the process number, so that a response to an earlier daemon
    /// does not match a request.
    pub fn new(channel: PacketChannel) -> OfferRequests {
        OfferRequests {
            channel,
            number_next: AtomicU64::new(u64::from(std::process::id()) << 32),
            pending: Mutex::default(),
        }
    }

    /// Requests a response from the server's address `local`. `None`: no response before the timeout.
    pub fn request(&self, local: SocketAddr, head: &[u8]) -> Option<Vec<u8>> {
        let number = self.number_next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        // The sender is inserted before the request is sent, because the response may arrive immediately.
        self.pending().insert(number, sender);
        let question = OfferRequest {
            number,
            // The server's listeners have IPv4 addresses in IPv4 form, not mapped to IPv6.
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            head: head.to_vec().into(),
        };
        let sent = send(&self.channel, &question);
        let response = sent
            .ok()
            .and_then(|()| receiver.recv_timeout(RESPONSE_TIMEOUT).ok());
        // The sender is removed, so that a response after the timeout is ignored.
        self.pending().remove(&number);
        response.filter(|bytes| !bytes.is_empty())
    }

    /// Returns the server's next report of a change. Passes responses that arrive before it to their requests. `None`:
    /// the server has ended.
    pub fn next_message(&self, buffer: &mut Vec<u8>) -> Option<ToDaemon> {
        loop {
            self.channel.receive(buffer).ok()?;
            match decode(buffer) {
                Ok(ToDaemon::Answer(number, bytes)) => self.deliver(number, bytes),
                Ok(message) => return Some(message),
                Err(_) => {}
            }
        }
    }

    fn deliver(&self, number: u64, bytes: ByteBuf) {
        if let Some(sender) = self.pending().remove(&number) {
            // The send fails if the request has timed out.
            let _ = sender.send(bytes.into_vec());
        }
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, Sender<Vec<u8>>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_delivered_to_their_requests() {
        let (server, daemon) = PacketChannel::pair().expect("sockets");
        let asks = OfferRequests::new(daemon.into());
        let (tell, told) = channel();
        asks.pending().insert(5, tell);
        let answer = |number, bytes: &[u8]| ToDaemon::Answer(number, ByteBuf::from(bytes));
        for word in [
            answer(4, b"of another"),
            answer(5, b"ours"),
            answer(5, b"again"),
            ToDaemon::Purged("/a*".into()),
        ] {
            send(&server, &word).expect("room");
        }
        let word = asks.next_message(&mut Vec::new());
        assert_eq!(word, Some(ToDaemon::Purged("/a*".into())));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [b"ours".to_vec()]);
        drop(server);
        assert_eq!(asks.next_message(&mut Vec::new()), None);
    }

    #[test]
    fn request_has_ipv4_address_in_ipv4_form() {
        let (server, daemon) = PacketChannel::pair().expect("sockets");
        let asks = OfferRequests::new(daemon.into());
        let asking = std::thread::spawn(move || {
            let local = "[::ffff:192.0.2.1]:80".parse().expect("an address");
            asks.request(local, b"GET /")
        });
        let mut buffer = Vec::new();
        server.receive(&mut buffer).expect("a question");
        let question: OfferRequest = decode(&buffer).expect("a question");
        let local = "192.0.2.1:80".parse().expect("an address");
        assert_eq!((question.local, &question.head[..]), (local, &b"GET /"[..]));
        drop(server);
        assert_eq!(asking.join().expect("no panic"), None);
    }
}
