//! The datagram sockets of the running process, for its successor.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use lowroad_child_processes::message::MessageError;
use lowroad_engine::datagram_relay::DatagramRelay;
use lowroad_engine::datagram_socket::PortSockets;
use lowroad_engine::worker::{MailboxMessage, SharedSocket};
use lowroad_site::listeners::SocketLabel;

use super::messages::{HandoverChannel, ToSuccessor};
use super::successor::{SHARE_TIMEOUT, not_shared};
use crate::running_server::{RunningServer, lock};

/// Duplicates of the workers' datagram sockets, and relays by which the successor returns datagrams.
#[derive(Default)]
pub struct SharedDatagrams {
    ports: Vec<(SocketLabel, PortSockets)>,
    /// The sending ends of the relays to this process.
    relays: Vec<(SocketLabel, OwnedFd)>,
    /// The number of this process.
    generation: u8,
    /// The receiving ends.
    pub receivers: Vec<RelayReceiver>,
}

/// The receiving end of a relay to a worker of this process.
pub struct RelayReceiver {
    /// The worker and the address.
    pub label: SocketLabel,
    /// The socket.
    pub socket: OwnedFd,
}

impl SharedDatagrams {
    /// Duplicates the sockets, and creates the relays.
    pub fn new(running: &Mutex<RunningServer>) -> Result<SharedDatagrams, String> {
        let (workers, listeners, identity) = {
            let running = lock(running);
            let identity = running.tls.quic_identity();
            (running.workers.clone(), running.listeners.clone(), identity)
        };
        let Some(identity) = identity else {
            return Ok(SharedDatagrams::default());
        };
        let mut shared = SharedDatagrams {
            generation: identity.generation,
            ..SharedDatagrams::default()
        };
        for (worker, mailbox) in workers.iter().enumerate() {
            let (to_here, ports) = channel::<SharedSocket<PortSockets>>();
            mailbox.post(MailboxMessage::ShareDatagrams(to_here));
            let deadline = Instant::now() + SHARE_TIMEOUT;
            // The channel disconnects once the worker has sent all its sockets.
            loop {
                let remaining = deadline.saturating_duration_since(Instant::now());
                match ports.recv_timeout(remaining) {
                    Ok((id, port)) => {
                        if let Some(origin) = listeners.origin(id) {
                            let port = port.map_err(|error| not_shared(&error))?;
                            shared.add(SocketLabel { origin, worker }, port)?;
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        return Err(format!("worker {worker} does not respond"));
                    }
                }
            }
        }
        Ok(shared)
    }

    fn add(&mut self, label: SocketLabel, port: PortSockets) -> Result<(), String> {
        let (sender, socket) = DatagramRelay::pair().map_err(|error| not_shared(&error))?;
        self.ports.push((label, port));
        self.relays.push((label, sender));
        self.receivers.push(RelayReceiver { label, socket });
        Ok(())
    }

    /// Passes the sockets and relays to the successor.
    pub fn send(&self, channel: &HandoverChannel) -> Result<(), MessageError> {
        for (label, port) in &self.ports {
            // Workers without a socket have duplicates of others, which are sent already.
            for socket in port.receiving() {
                channel.send(&ToSuccessor::DatagramSocket(*label), Some(socket.as_fd()))?;
            }
            // Earlier processes may still drain. All workers have the same relays to them.
            let is_needed = |relay: &&DatagramRelay| label.worker == 0 && !relay.is_ended();
            for relay in port.relays.iter().filter(is_needed) {
                let to = SocketLabel {
                    worker: relay.to.worker.into(),
                    ..*label
                };
                let message = ToSuccessor::DatagramRelay(to, relay.to.generation);
                channel.send(&message, Some(relay.as_fd()))?;
            }
        }
        for (label, sender) in &self.relays {
            let message = ToSuccessor::DatagramRelay(*label, self.generation);
            channel.send(&message, Some(sender.as_fd()))?;
        }
        Ok(())
    }
}
