//! The running process's side of an upgrade: starts its successor and passes its sockets to it.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use lowroad_child_processes::message::{MessageError, PacketChannel};
use lowroad_child_processes::process::ChildProcess;
use lowroad_engine::listener::ListenSocket;
use lowroad_engine::panic_policy;
use lowroad_engine::worker::{MailboxMessage, SharedSocket};
use lowroad_privileges::starter::{self, ProgramStart};
use lowroad_site::listeners::SocketLabel;
use rustix::process::Signal;

use super::datagrams::{RelayReceiver, SharedDatagrams};
use super::deny_forwarding::{self, RECORDS_OF_MESSAGE};
use super::messages::{
    HandoverChannel, ReadyReport, RunningApplication, ToPredecessor, ToSuccessor,
};
use crate::events::MainEvent;
use crate::init::InitLink;
use crate::running_server::{RunningServer, lock};

/// Time for the workers to duplicate their sockets.
pub(super) const SHARE_TIMEOUT: Duration = Duration::from_secs(5);

/// The descriptors that the main thread passes on, besides those of the workers.
pub struct PassedDescriptors {
    /// The socket of the admin address.
    pub admin: Option<ListenSocket>,
    /// The Unix socket of the admin service, with its path.
    pub admin_unix: Option<(PathBuf, OwnedFd)>,
    /// The channel to the init process.
    pub init: Option<OwnedFd>,
    /// The channels to earlier processes that still drain.
    pub earlier: Vec<HandoverChannel>,
}

/// An upgrade in progress, which the main thread can cancel.
#[derive(Default)]
pub struct UpgradeAttempt {
    channel: OnceLock<HandoverChannel>,
    is_cancelled: AtomicBool,
}

impl UpgradeAttempt {
    /// Ends the successor.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, SeqCst);
        if let Some(channel) = self.channel.get() {
            channel.close();
        }
    }

    /// Registers the channel to the successor.
    fn begin(&self, channel: &HandoverChannel) {
        // An attempt has one channel.
        let _ = self.channel.set(channel.clone());
        // The flag is read after the channel was set, so one of the two threads closes the channel.
        if self.is_cancelled.load(SeqCst) {
            channel.close();
        }
    }
}

/// A process that is ready to take over.
pub struct ReadySuccessor {
    channel: HandoverChannel,
    /// The receiving ends of the relays.
    relays: Vec<RelayReceiver>,
    process: SuccessorProcess,
    /// What the process has reported.
    pub report: ReadyReport,
}

/// The process of a successor, and how it can be ended.
enum SuccessorProcess {
    /// A child of this process.
    Child(ChildProcess),
    /// A child of the starter.
    OfStarter,
}

/// Starts a successor on a thread. The thread sends the result to `events`.
///
/// # Errors
/// No thread is available.
pub fn start(
    running: Arc<Mutex<RunningServer>>,
    program: Arc<ProgramStart>,
    passed: PassedDescriptors,
    attempt: Arc<UpgradeAttempt>,
    events: Sender<MainEvent>,
) -> std::io::Result<()> {
    panic_policy::start("upgrade", move || {
        let result = prepare(&running, &program, &passed, &attempt);
        // The main thread may have ended.
        let _ = events.send(MainEvent::UpgradePrepared(result));
    })
}

fn prepare(
    running: &Mutex<RunningServer>,
    program: &ProgramStart,
    passed: &PassedDescriptors,
    attempt: &UpgradeAttempt,
) -> Result<ReadySuccessor, String> {
    let (timeout_ms, takeover) = {
        let running = lock(running);
        let timeout_ms = running.config.server.upgrade_timeout_ms;
        (timeout_ms, running.takeover.clone())
    };
    let timeout = Duration::from_millis(timeout_ms);
    // Sockets and relays that this process does not have yet can't be passed on.
    if !takeover.wait(timeout) {
        return Err("the previous upgrade is not complete (upgrade_timeout)".to_owned());
    }
    let sockets = share_sockets(running)?;
    let datagrams = SharedDatagrams::new(running)?;
    let state = running_state(running);
    let (channel, socket) =
        PacketChannel::pair().map_err(|error| format!("no channel to the new process: {error}"))?;
    let process = match starter::is_started() {
        true => {
            starter::start_program(&socket)?;
            drop(socket);
            SuccessorProcess::OfStarter
        }
        false => {
            let child = program.start(socket);
            SuccessorProcess::Child(child.map_err(|error| format!("can't start: {error}"))?)
        }
    };
    let channel = HandoverChannel::new(channel);
    attempt.begin(&channel);
    match exchange(&channel, timeout, &sockets, &datagrams, &state, passed) {
        Ok(report) => Ok(ReadySuccessor {
            channel,
            relays: datagrams.receivers,
            process,
            report,
        }),
        Err(reason) => {
            process.kill();
            Err(reason)
        }
    }
}

/// Duplicates of the workers' listening sockets.
fn share_sockets(
    running: &Mutex<RunningServer>,
) -> Result<Vec<(SocketLabel, ListenSocket)>, String> {
    let (workers, listeners) = {
        let running = lock(running);
        (running.workers.clone(), running.listeners.clone())
    };
    let mut shared = Vec::new();
    for (worker, mailbox) in workers.iter().enumerate() {
        let (to_here, sockets) = channel::<SharedSocket<ListenSocket>>();
        mailbox.post(MailboxMessage::ShareListeners(to_here));
        let deadline = Instant::now() + SHARE_TIMEOUT;
        // The channel disconnects once the worker has sent all its sockets.
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match sockets.recv_timeout(remaining) {
                Ok((id, socket)) => {
                    let Some(origin) = listeners.origin(id) else {
                        continue;
                    };
                    // The successor would lack a part of the sockets.
                    let socket = socket.map_err(|error| not_shared(&error))?;
                    // The workers share a socket of the supervisor, so one duplicate is enough.
                    if worker == 0 || !origin.is_activated() {
                        shared.push((SocketLabel { origin, worker }, socket));
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("worker {worker} does not respond"));
                }
            }
        }
    }
    Ok(shared)
}

/// The reason of a failure to duplicate a socket.
pub(super) fn not_shared(error: &std::io::Error) -> String {
    format!("can't pass on the sockets: {error}")
}

/// The messages about state that the successor can't read from its configuration.
fn running_state(running: &Mutex<RunningServer>) -> Vec<ToSuccessor> {
    let running = lock(running);
    let applications = running.config.applications.iter().map(|application| {
        ToSuccessor::Application(RunningApplication {
            name: application.name.clone(),
            ready: application.ready.as_ref().map(ToString::to_string),
        })
    });
    let switches = running.sites.maintenance_switches().switched_on();
    let maintenance = switches.into_iter().map(ToSuccessor::Maintenance);
    let ticket_keys = running.tls.ticket_keys().map(ToSuccessor::TicketKeys);
    // Cookies of clients remain valid.
    let session_key = running.handler_runtime.session_key();
    let quic = running.tls.quic_identity();
    let keys = ticket_keys
        .into_iter()
        .chain(quic.map(|identity| ToSuccessor::Quic(identity.successor().into())))
        .chain(session_key.map(ToSuccessor::SessionKey));
    // A drained server must not get requests because the program was replaced.
    let control = running.handler_runtime.origin_control();
    let changes = control.map(|control| control.kept_changes());
    let changes = changes.into_iter().flatten();
    let changes = changes.map(|change| ToSuccessor::OriginServer(change.into()));
    // A denied client must not get in because the program was replaced.
    let denied = running.deny.records();
    let denied = denied
        .chunks(RECORDS_OF_MESSAGE)
        .map(|records| ToSuccessor::Denied(records.to_vec()));
    let occupied = running.occupied_datagrams();
    let occupied = occupied.into_iter().map(ToSuccessor::OccupiedDatagrams);
    applications
        .chain(maintenance)
        .chain(keys)
        .chain(occupied)
        .chain(changes)
        .chain(denied)
        .collect()
}

/// Passes the sockets, and waits until the successor is ready.
fn exchange(
    channel: &HandoverChannel,
    timeout: Duration,
    sockets: &[(SocketLabel, ListenSocket)],
    datagrams: &SharedDatagrams,
    state: &[ToSuccessor],
    passed: &PassedDescriptors,
) -> Result<ReadyReport, String> {
    channel
        .set_timeout(timeout)
        .map_err(|error| error.to_string())?;
    let sent = send_state(channel, sockets, datagrams, state, passed);
    // As too many descriptors in flight. The successor would wait for the rest.
    if let Err(error @ (MessageError::System(_) | MessageError::TooLong)) = sent {
        return Err(not_shared(&error.into()));
    }
    // A successor that has ended may still have reported the reason.
    match (channel.receive::<ToPredecessor>(), sent) {
        (Ok((ToPredecessor::Ready(report), _)), Ok(())) => Ok(report),
        (Ok((ToPredecessor::Failed(reason), _)), _) => Err(reason),
        (Err(MessageError::Closed), _) => Err(
            "the new process has ended; its messages are in the error log or on the terminal"
                .into(),
        ),
        (Err(MessageError::NotReady), _) => Err(format!(
            "the new process is not ready after {} s (upgrade_timeout)",
            timeout.as_secs()
        )),
        (_, Err(error)) | (Err(error), _) => Err(std::io::Error::from(error).to_string()),
        // Deny lists follow the handover.
        (Ok(_), Ok(())) => Err(std::io::Error::from(MessageError::Malformed).to_string()),
    }
}

fn send_state(
    channel: &HandoverChannel,
    sockets: &[(SocketLabel, ListenSocket)],
    datagrams: &SharedDatagrams,
    state: &[ToSuccessor],
    passed: &PassedDescriptors,
) -> Result<(), MessageError> {
    for (label, listener) in sockets {
        channel.send(&ToSuccessor::Socket(*label), Some(listener.socket.as_fd()))?;
    }
    datagrams.send(channel)?;
    for message in state {
        channel.send(message, None)?;
    }
    if let Some(admin) = &passed.admin
        && let Some(address) = admin.address()
    {
        let message = ToSuccessor::AdminSocket(address);
        channel.send(&message, Some(admin.socket.as_fd()))?;
    }
    if let Some((path, socket)) = &passed.admin_unix {
        let message = ToSuccessor::AdminUnixSocket(path.clone());
        channel.send(&message, Some(socket.as_fd()))?;
    }
    for earlier in &passed.earlier {
        channel.send(&ToSuccessor::EarlierProcess, Some(earlier.socket()))?;
    }
    if let Some(init) = &passed.init {
        channel.send(&ToSuccessor::Init, Some(init.as_fd()))?;
    }
    channel.send(&ToSuccessor::Complete, None)
}

impl SuccessorProcess {
    fn kill(self) {
        match self {
            SuccessorProcess::Child(mut child) => {
                // A child of the program might keep the passed sockets.
                child.signal_group(Signal::KILL);
                // Fails only if the process was reaped already.
                let _ = child.kill();
            }
            SuccessorProcess::OfStarter => starter::kill_program(),
        }
    }
}

impl ReadySuccessor {
    /// Lets the successor accept connections, and names it to the init process. Afterwards this process must close its
    /// listeners.
    ///
    /// # Errors
    /// The successor has ended, so this process continues.
    pub fn proceed(&self, init: Option<&InitLink>) -> Result<(), String> {
        // Only the main process may name another one (sd_notify(3), NotifyAccess=main), and the successor reports that
        // it is ready as soon as it may proceed. A process that has ended is not accepted as the main process. The call
        // fails without a service manager.
        let _ = sd_notify::notify(&[sd_notify::NotifyState::MainPid(self.report.process)]);
        // Before the successor serves: then this process may end at once, and an init process that does not know the
        // successor would end the container.
        if let Some(init) = init {
            init.name_server(self.report.process);
        }
        let sent = self.channel.send(&ToSuccessor::Proceed, None);
        sent.map_err(|error| {
            if let Some(init) = init {
                init.name_server(std::process::id());
            }
            let error = std::io::Error::from(error);
            format!("the new process has ended after it was ready: {error}")
        })
    }

    /// Closes the listeners from which the successor accepts.
    pub fn take_over_listeners(&self, running: &RunningServer) {
        for label in &self.report.taken {
            let Some(id) = running.listeners.find_by_origin(label.origin) else {
                continue;
            };
            // All workers accept from a socket of the supervisor.
            let is_user = |worker: usize| worker == label.worker || label.origin.is_activated();
            for (worker, mailbox) in running.workers.iter().enumerate() {
                if is_user(worker) {
                    mailbox.post(MailboxMessage::HandOver(id));
                }
            }
        }
    }

    /// Leaves the datagrams to the successor, which returns those of this process's connections by the relays. When this
    /// returns, no worker receives from the sockets.
    pub fn take_over_datagrams(&mut self, running: &RunningServer) {
        let (done_sender, done) = channel::<Infallible>();
        for relay in self.relays.drain(..) {
            if !self.report.taken_datagrams.contains(&relay.label.origin) {
                continue;
            }
            if let Some(id) = running.listeners.find_by_origin(relay.label.origin)
                && let Some(mailbox) = running.workers.get(relay.label.worker)
            {
                let done = done_sender.clone();
                mailbox.post(MailboxMessage::HandOverDatagrams(id, relay.socket, done));
            }
        }
        drop(done_sender);
        // The channel disconnects once all workers have carried it out. One that is too late would answer datagrams of the
        // successor's connections with resets, but the server must go on.
        let _ = done.recv_timeout(SHARE_TIMEOUT);
    }

    /// Applies the deny lists of the successor to the connections that this process still has.
    pub fn follow_deny_list(&self, running: &Arc<Mutex<RunningServer>>) {
        let started = deny_forwarding::follow(self.channel.clone(), running.clone());
        if let Err(error) = started {
            lock(running).logger.error(format_args!(
                "addresses that are denied from now on keep their connections to this process: no thread: {error}"
            ));
        }
    }

    /// Informs the successor that this process has released a resource that only one process may have.
    pub fn release(&self, what: ToSuccessor) {
        // The successor may have ended in the meantime.
        let _ = self.channel.send(&what, None);
    }

    /// Ends the successor.
    pub fn kill(self) {
        self.process.kill();
    }
}
