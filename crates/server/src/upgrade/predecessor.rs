//! The new process's side of an upgrade: takes over from its predecessor.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lowroad_child_processes::message::{MessageError, PacketChannel};
use lowroad_config::ApplicationConfig;
use lowroad_engine::datagram_relay::{DatagramRelay, ProcessWorker};
use lowroad_engine::datagram_socket::DatagramSocket;
use lowroad_engine::listener::ListenSocket;
use lowroad_handler::origin_control::KeptChange;
use lowroad_privileges::starter::HANDOVER_VARIABLE;
use lowroad_routes::applications::ApplicationPlace;
use lowroad_site::listeners::{HandedDatagrams, HandedSockets};
use lowroad_tls_listener::QuicIdentity;

use crate::deny_list::{DenyList, DenyRecord};
use crate::init::InitLink;

use super::messages::{
    HandoverChannel, ReadyReport, RunningApplication, ToPredecessor, ToSuccessor,
};

/// Timeout of the predecessor's messages until `Proceed`.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The process from which this one takes over.
pub struct Predecessor {
    channel: HandoverChannel,
    /// The sockets of the workers, until [`Predecessor::take_sockets`].
    sockets: HandedSockets,
    datagrams: HandedDatagrams,
    /// The predecessor receives datagrams until it has reported otherwise.
    has_datagrams: bool,
    /// The identity of QUIC.
    pub quic: Option<QuicIdentity>,
    admin: Option<(SocketAddr, ListenSocket)>,
    admin_unix: Option<(PathBuf, OwnedFd)>,
    takes_admin_socket: bool,
    init: Option<InitLink>,
    /// The channels to processes before the predecessor.
    earlier: Vec<HandoverChannel>,
    applications: Vec<RunningApplication>,
    /// The names of sites in maintenance mode.
    pub maintenance: Vec<String>,
    /// The keys of TLS session tickets, so that clients resume their sessions.
    pub ticket_keys: Option<Vec<u8>>,
    /// The key that signs the cookies of sticky sessions.
    pub session_key: Option<Vec<u8>>,
    /// The changes of operators to servers of origins.
    pub origin_changes: Vec<KeptChange>,
    denied: Vec<DenyRecord>,
}

/// Whether this process was started to take over from another one.
pub fn is_expected() -> bool {
    std::env::var_os(HANDOVER_VARIABLE).is_some()
}

impl Predecessor {
    /// Connects to the predecessor and receives its sockets; `None` in a process that was started alone.
    ///
    /// # Errors
    /// The predecessor has ended, or does not send its sockets: a message for the operator.
    pub fn connect() -> Result<Option<Predecessor>, String> {
        if !is_expected() {
            return Ok(None);
        }
        // Programs of this server must not look like a successor.
        lowroad_engine::remove_env_variable(HANDOVER_VARIABLE);
        let channel = PacketChannel::to_parent().map_err(|error| error.to_string());
        let channel = HandoverChannel::new(channel.map_err(|text| failure(&text))?);
        channel
            .set_timeout(MESSAGE_TIMEOUT)
            .map_err(|error| failure(&error))?;
        let mut predecessor = Predecessor {
            channel,
            sockets: HandedSockets::default(),
            datagrams: HandedDatagrams::default(),
            has_datagrams: false,
            quic: None,
            admin: None,
            admin_unix: None,
            takes_admin_socket: false,
            init: None,
            earlier: Vec::new(),
            applications: Vec::new(),
            maintenance: Vec::new(),
            ticket_keys: None,
            session_key: None,
            origin_changes: Vec::new(),
            denied: Vec::new(),
        };
        predecessor.receive_sockets().map_err(|error| {
            let text = failure(&error);
            predecessor.report_failure(&text);
            text
        })?;
        Ok(Some(predecessor))
    }

    fn receive_sockets(&mut self) -> Result<(), std::io::Error> {
        let mut sockets = Vec::new();
        loop {
            match self.channel.receive::<ToSuccessor>()? {
                (ToSuccessor::Socket(label), Some(socket)) => {
                    let listener = match label.origin.is_activated() {
                        true => ListenSocket::adopt(socket)?,
                        false => ListenSocket::take_over(socket)?,
                    };
                    sockets.push((label, listener));
                }
                (ToSuccessor::DatagramSocket(label), Some(socket)) => {
                    let socket = DatagramSocket::adopt(socket)?;
                    self.datagrams.add_socket(label.origin, socket);
                }
                (ToSuccessor::DatagramRelay(label, generation), Some(socket)) => {
                    // Workers with higher numbers have no QUIC.
                    if let Ok(worker) = u8::try_from(label.worker) {
                        let to = ProcessWorker { generation, worker };
                        let relay = DatagramRelay::new(to, socket);
                        self.datagrams.add_relay(label.origin, relay);
                    }
                }
                (ToSuccessor::OccupiedDatagrams(address), _) => {
                    self.datagrams.add_occupied(address);
                }
                (ToSuccessor::Quic(identity), _) => self.quic = identity.get(),
                (ToSuccessor::AdminSocket(address), Some(socket)) => {
                    self.admin = Some((address, ListenSocket::take_over(socket)?));
                }
                (ToSuccessor::AdminUnixSocket(path), Some(socket)) => {
                    self.admin_unix = Some((path, socket));
                }
                (ToSuccessor::Init, Some(socket)) => self.init = Some(socket.into()),
                (ToSuccessor::EarlierProcess, Some(socket)) => {
                    self.earlier.push(HandoverChannel::new(socket.into()));
                }
                (ToSuccessor::Application(application), _) => self.applications.push(application),
                (ToSuccessor::Maintenance(site), _) => self.maintenance.push(site),
                (ToSuccessor::TicketKeys(keys), _) => self.ticket_keys = Some(keys),
                (ToSuccessor::SessionKey(key), _) => self.session_key = Some(key),
                (ToSuccessor::OriginServer(changed), _) => {
                    self.origin_changes.push(changed.into());
                }
                (ToSuccessor::Denied(records), _) => self.denied.extend(records),
                (ToSuccessor::Complete, _) => break,
                // The kernel passes no descriptors to a process that has reached its limit.
                (
                    ToSuccessor::Socket(_)
                    | ToSuccessor::DatagramSocket(_)
                    | ToSuccessor::DatagramRelay(..)
                    | ToSuccessor::AdminSocket(_)
                    | ToSuccessor::AdminUnixSocket(_)
                    | ToSuccessor::Init
                    | ToSuccessor::EarlierProcess,
                    None,
                ) => {
                    return Err(std::io::Error::other(
                        "the limit of descriptors is reached (ulimit -n, LimitNOFILE)",
                    ));
                }
                (
                    ToSuccessor::Proceed
                    | ToSuccessor::DiskReleased
                    | ToSuccessor::LevelReleased
                    | ToSuccessor::DatagramsReleased,
                    _,
                ) => {
                    return Err(MessageError::Malformed.into());
                }
            }
        }
        self.sockets = HandedSockets::new(sockets);
        Ok(())
    }

    /// The sockets of the workers. Those that are not taken are closed by [`Predecessor::announce_ready`].
    pub fn sockets(&mut self) -> &mut HandedSockets {
        &mut self.sockets
    }

    /// The datagram sockets of the workers. Those that are not taken are closed by [`Predecessor::announce_ready`].
    pub fn datagrams(&mut self) -> &mut HandedDatagrams {
        &mut self.datagrams
    }

    /// Whether this process uses datagram sockets from which the predecessor receives until `DatagramsReleased`.
    pub fn has_datagrams(&self) -> bool {
        self.has_datagrams
    }

    /// The socket of the admin address, if the predecessor has the same one.
    pub fn take_admin_socket(&mut self, address: SocketAddr) -> Option<ListenSocket> {
        let (_, socket) = self.admin.take_if(|(known, _)| *known == address)?;
        Some(socket)
    }

    /// The Unix socket of the admin service, if the predecessor's is at `path`; without a path, that of the predecessor in
    /// any case.
    pub fn take_admin_unix_socket(&mut self, path: Option<&Path>) -> Option<(PathBuf, OwnedFd)> {
        let socket = self
            .admin_unix
            .take_if(|(known, _)| path.is_none_or(|path| path == known))?;
        self.takes_admin_socket = true;
        Some(socket)
    }

    /// The deny list of the predecessor.
    pub fn deny(&self) -> DenyList {
        DenyList::from_records(&self.denied)
    }

    /// The channels to the predecessor, and to the processes before it.
    pub fn channels(&self) -> Vec<HandoverChannel> {
        let own = [self.channel.clone()];
        own.into_iter().chain(self.earlier.clone()).collect()
    }

    /// Whether the predecessor has ended, so that this process must end, too.
    pub fn has_ended(&self) -> bool {
        self.channel.is_closed()
    }

    /// The connection to the init process, if there is one.
    pub fn take_init(&mut self) -> Option<InitLink> {
        self.init.take()
    }

    /// Whether the predecessor runs an application at the address of this one, which it would need.
    pub fn runs(&self, application: &ApplicationConfig) -> bool {
        let ready = application.ready.as_ref().map(ToString::to_string);
        let own = ApplicationPlace {
            name: &application.name,
            ready: ready.as_ref(),
        };
        self.applications.iter().any(|other| {
            own.conflicts_with(&ApplicationPlace {
                name: &other.name,
                ready: other.ready.as_ref(),
            })
        })
    }

    /// Announces that this process is ready, and waits until it may accept connections.
    ///
    /// # Errors
    /// The predecessor has ended or continues itself, so this process must end: a message for the operator.
    pub fn announce_ready(&mut self) -> Result<(), String> {
        let taken_datagrams = self.datagrams.finish();
        self.has_datagrams = !taken_datagrams.is_empty();
        let report = ReadyReport {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken: self.sockets.finish(),
            taken_datagrams,
            takes_admin_socket: self.takes_admin_socket,
        };
        let sent = self.channel.send(&ToPredecessor::Ready(report), None);
        let received = sent.and_then(|()| self.channel.receive::<ToSuccessor>());
        match received {
            Ok((ToSuccessor::Proceed, _)) => Ok(()),
            Ok(_) => Err(failure(&std::io::Error::from(MessageError::Malformed))),
            Err(error) => Err(failure(&std::io::Error::from(error))),
        }
    }

    /// Waits until the predecessor has ended.
    pub fn wait_for_end(&self) {
        self.wait_until(|_| false);
    }

    /// Waits until the predecessor has released something that only one process may have, at most until its end.
    pub fn wait_for(&self, released: &ToSuccessor) {
        self.wait_until(|message| message == released);
    }

    fn wait_until(&self, is_awaited: impl Fn(&ToSuccessor) -> bool) {
        loop {
            match self.channel.receive::<ToSuccessor>() {
                Ok((message, _)) if is_awaited(&message) => return,
                Ok(_) | Err(MessageError::NotReady) => {}
                // The predecessor has ended, at the latest after its drain.
                Err(_) => return,
            }
        }
    }

    /// Reports that this process can't start.
    pub fn report_failure(&self, reason: &str) {
        // The predecessor may have ended; it notices the end of this process in any case.
        let _ = self
            .channel
            .send(&ToPredecessor::Failed(reason.to_owned()), None);
    }
}

fn failure(error: &dyn std::fmt::Display) -> String {
    format!("can't take over from the running server: {error}")
}
