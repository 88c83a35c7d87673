//! The messages between the two processes of an upgrade. They are JSON, since the processes are different versions of
//! the program: each ignores unknown messages and members.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lowroad_child_processes::message::{MessageError, PacketChannel, SendMode};
use lowroad_child_processes::process::ready;
use lowroad_site::listeners::{SocketLabel, SocketOrigin};
use lowroad_tls_listener::QuicIdentity;
use rustix::event::{PollFd, PollFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::deny_forwarding::DenyListPart;
use crate::deny_list::DenyRecord;
use crate::saved_changes::ChangedServer;

/// A message to the new process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSuccessor {
    /// A listening socket of a worker comes with this message.
    Socket(SocketLabel),
    /// A datagram socket of a worker comes with this message.
    DatagramSocket(SocketLabel),
    /// The sending end of a relay to a worker of the process with this number comes with this message.
    DatagramRelay(SocketLabel, u8),
    /// An earlier process receives datagrams at this address.
    OccupiedDatagrams(SocketAddr),
    /// The identity of QUIC.
    Quic(PassedIdentity),
    /// The listening socket of `[admin] listen` comes with this message.
    AdminSocket(SocketAddr),
    /// The listening Unix socket of the admin service at this path comes with this message.
    AdminUnixSocket(PathBuf),
    /// The predecessor runs this application until it ends.
    Application(RunningApplication),
    /// An operator has turned on the maintenance mode of the site with this name.
    Maintenance(String),
    /// The keys of TLS session tickets.
    TicketKeys(Vec<u8>),
    /// The key that signs the cookies of sticky sessions.
    SessionKey(Vec<u8>),
    /// An operator has changed this server of an origin.
    OriginServer(ChangedServer),
    /// Some entries of the deny list.
    Denied(Vec<DenyRecord>),
    /// The channel to the init process comes with this message.
    Init,
    /// A channel to an earlier process, which still drains, comes with this message.
    EarlierProcess,
    /// All sockets were sent.
    Complete,
    /// The successor may accept connections; the predecessor drains.
    Proceed,
    /// The predecessor has released the folder of the disk cache.
    DiskReleased,
    /// The predecessor has detached the level in the kernel.
    LevelReleased,
    /// The predecessor receives no more from its datagram sockets.
    DatagramsReleased,
}

/// The identity of QUIC for the successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedIdentity {
    secret: Vec<u8>,
    generation: u8,
}

impl From<QuicIdentity> for PassedIdentity {
    fn from(identity: QuicIdentity) -> PassedIdentity {
        PassedIdentity {
            secret: identity.secret.to_vec(),
            generation: identity.generation,
        }
    }
}

impl PassedIdentity {
    /// The identity; `None` if another version uses secrets of another length.
    pub fn get(&self) -> Option<QuicIdentity> {
        let secret = self.secret.as_slice().try_into().ok()?;
        let generation = self.generation;
        Some(QuicIdentity { secret, generation })
    }
}

/// An application of the predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningApplication {
    /// Its name in the configuration.
    pub name: String,
    /// The URL at which it accepts connections, if it is known.
    pub ready: Option<String>,
}

/// A message to the running process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPredecessor {
    /// The successor is ready to accept connections.
    Ready(ReadyReport),
    /// The successor can't start, for this reason.
    Failed(String),
    /// A part of the deny list in force, after the handover.
    DenyList(DenyListPart),
}

/// The report of a successor that is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyReport {
    /// The process ID.
    pub process: u32,
    /// The program's version.
    pub version: String,
    /// The sockets from which the successor will accept. The predecessor drains the others itself.
    pub taken: Vec<SocketLabel>,
    /// The addresses of datagram sockets that the successor uses.
    #[serde(default)]
    pub taken_datagrams: Vec<SocketOrigin>,
    /// Whether the successor uses the Unix socket of the admin service.
    #[serde(default)]
    pub takes_admin_socket: bool,
}

/// One end of the connection between the two processes.
#[derive(Clone)]
pub struct HandoverChannel(Arc<PacketChannel>);

impl HandoverChannel {
    /// The end that uses `channel`.
    pub fn new(channel: PacketChannel) -> HandoverChannel {
        HandoverChannel(Arc::new(channel))
    }

    /// Ends the connection. Waiting calls, in both processes, return an error.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether the other process has closed its end.
    pub fn is_closed(&self) -> bool {
        // poll(2) always reports a hang-up.
        let end = PollFd::new(&*self.0, PollFlags::empty());
        ready([Some(end)], Some(Instant::now())).is_ok_and(|[is_closed]| is_closed)
    }

    /// The socket, for the next successor.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Bounds the waiting times of [`HandoverChannel::send`] and [`HandoverChannel::receive`].
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        self.0.set_send_timeout(timeout)?;
        self.0.set_receive_timeout(timeout)
    }

    /// Sends a message, with a descriptor.
    ///
    /// # Errors
    /// The other process has ended, or does not read in time.
    pub fn send<M: Serialize>(
        &self,
        message: &M,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), MessageError> {
        let bytes = serde_json::to_vec(message).map_err(|_| MessageError::Malformed)?;
        self.0.send(&bytes, descriptor.as_slice(), SendMode::Wait)
    }

    /// Waits for a message. Skips messages that are unknown to this version.
    ///
    /// # Errors
    /// The other process has ended, or has not sent a message in time.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<(M, Option<OwnedFd>), MessageError> {
        let mut buffer = Vec::new();
        loop {
            let mut descriptors = self.0.receive(&mut buffer)?;
            if let Ok(message) = serde_json::from_slice(&buffer) {
                return Ok((message, descriptors.pop()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn unknown_messages_of_another_version_are_skipped() {
        let (channel, peer) = PacketChannel::pair().expect("sockets");
        let (own, other) = (
            HandoverChannel::new(channel),
            HandoverChannel::new(peer.into()),
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let label = SocketLabel {
            origin: SocketOrigin::Configured(listener.local_addr().expect("an address")),
            worker: 3,
        };
        for unknown in [
            serde_json::json!({ "Datagrams": 1 }),
            serde_json::json!("Later"),
        ] {
            own.send(&unknown, None).expect("room");
        }
        let socket = ToSuccessor::Socket(label);
        own.send(&socket, Some(listener.as_fd())).expect("room");
        own.send(&ToSuccessor::Complete, None).expect("room");
        let (message, descriptor) = other.receive::<ToSuccessor>().expect("a message");
        assert_eq!((message, descriptor.is_some()), (socket, true));
        let (message, descriptor) = other.receive::<ToSuccessor>().expect("a message");
        assert_eq!(
            (message, descriptor.is_some()),
            (ToSuccessor::Complete, false)
        );
        other
            .set_timeout(Duration::from_millis(1))
            .expect("a timeout");
        let nothing = other.receive::<ToSuccessor>().err();
        assert_eq!(nothing, Some(MessageError::NotReady));
        assert!(!other.is_closed());
        drop(own);
        assert!(other.is_closed());
        let closed = other.receive::<ToSuccessor>().err();
        assert_eq!(closed, Some(MessageError::Closed));
    }
}
