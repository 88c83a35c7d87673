//! The main thread of a running server: handles signals and events until the server has ended.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_engine::worker::MailboxMessage;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::admin::listeners::AdminListeners;
use crate::events::{CommandReply, MainEvent};
use crate::init::InitLink;
use crate::level::{ConnectionInterceptor, LevelProcesses};
use crate::reload;
use crate::running_server::{RunningServer, lock, update_applications};
use crate::upgrade;
use crate::upgrade::control::UpgradeControl;
use crate::upgrade::messages::ToSuccessor;
use crate::upgrade::successor::{PassedDescriptors, ReadySuccessor};

/// Additional time after the drain timeout in which workers must end.
const EXIT_GRACE_MS: u64 = 2_000;

/// The objects that the main loop uses in addition to the running server.
pub struct ProcessEnvironment<'a> {
    /// The configuration file.
    pub source: Option<&'a std::path::Path>,
    /// Whether a signal has requested a shutdown.
    pub is_ending: &'a dyn Fn() -> bool,
    pub reopen_logs: &'a dyn Fn(),
    /// The processes of the softirq level, if it runs.
    pub level_processes: Option<Box<dyn LevelProcesses>>,
    /// Intercepts another server's connections.
    pub front: Option<Box<dyn ConnectionInterceptor>>,
    pub upgrade: UpgradeControl,
    pub admin: &'a mut AdminListeners,
    pub init: Option<InitLink>,
}

impl ProcessEnvironment<'_> {
    /// Reloads the configuration.
    fn reload(&self, running: &Mutex<RunningServer>) -> Result<String, String> {
        (self.reopen_logs)();
        // A successor that is starting has read the configuration and has the sockets already.
        if self.upgrade.is_in_progress() {
            return Err(upgrade::control::IN_PROGRESS.to_owned());
        }
        reload::reload(running, self.source, self.is_ending)
    }

    /// Starts the applications at addresses that the predecessor has used until now.
    fn start_waiting_applications(&self, running: &Mutex<RunningServer>) {
        let applications = lock(running).config.applications.clone();
        if let Err(error) = update_applications(running, &applications, self.is_ending) {
            lock(running).logger.error(format_args!("{error}"));
        }
    }

    /// Starts an upgrade.
    fn start_upgrade(&mut self, running: &Arc<Mutex<RunningServer>>, reply: Option<CommandReply>) {
        let passed = self.passed_descriptors(&lock(running));
        self.upgrade.request(running, passed, reply);
    }

    /// The descriptors that are not those of workers, for a successor.
    fn passed_descriptors(&self, running: &RunningServer) -> std::io::Result<PassedDescriptors> {
        let forwarder = running.deny_forwarder.as_ref();
        Ok(PassedDescriptors {
            earlier: forwarder.map_or_else(Vec::new, |it| it.open_channels()),
            admin: self.admin.share_tcp()?,
            admin_unix: self.admin.share_unix()?,
            init: self.init.as_ref().map(InitLink::share).transpose()?,
        })
    }

    /// Ends the level in the kernel, or the interception of connections. Called first at a shutdown, while the listeners
    /// are still open, because the level's connections migrate to them.
    fn end_levels(&mut self) {
        if let Some(processes) = self.level_processes.take() {
            processes.end();
        }
        if let Some(front) = &mut self.front {
            front.end_interception();
        }
    }
}

/// Handles signals and events until all workers have drained, or the drain timeout has passed.
pub fn run(
    running: &Arc<Mutex<RunningServer>>,
    events: &Receiver<MainEvent>,
    mut environment: ProcessEnvironment<'_>,
) {
    let mut drain_end: Option<Instant> = None;
    let mut alive = lock(running).workers.len();
    // Kept until the end of this process, which the successor notices by its closed channel.
    let mut successor = None;
    while alive > 0 {
        let remaining = drain_end.map(|end| end.saturating_duration_since(Instant::now()));
        let event = match remaining {
            Some(remaining) => events.recv_timeout(remaining),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(MainEvent::WorkerEnded) => alive -= 1,
            Ok(MainEvent::Signal(SIGHUP)) => {
                // `reload` has logged the result.
                let _ = environment.reload(running);
            }
            Ok(MainEvent::Reload(reply)) => {
                // The admin client may have closed its connection.
                let _ = reply.send(environment.reload(running));
            }
            Ok(MainEvent::PredecessorEnded) => environment.start_waiting_applications(running),
            Ok(MainEvent::Signal(SIGUSR1)) => (environment.reopen_logs)(),
            Ok(MainEvent::Signal(SIGUSR2)) if drain_end.is_none() => {
                environment.start_upgrade(running, None);
            }
            Ok(MainEvent::Upgrade(reply)) if drain_end.is_none() => {
                environment.start_upgrade(running, Some(reply));
            }
            // The server is ending; the client notices that its reply was dropped.
            Ok(MainEvent::Signal(SIGUSR2) | MainEvent::Upgrade(_)) => {}
            Ok(MainEvent::UpgradePrepared(Ok(late))) if drain_end.is_some() => late.kill(),
            Ok(MainEvent::UpgradePrepared(result)) => {
                let init = environment.init.as_ref();
                if let Some(mut ready) = environment.upgrade.finish(running, init, result) {
                    drain_end = Some(hand_over(running, &mut ready, &mut environment));
                    ready.follow_deny_list(running);
                    successor = Some(ready);
                }
            }
            // A second signal ends the process without waiting for the drain.
            Ok(MainEvent::Signal(_)) if drain_end.is_some() && successor.is_none() => {
                lock(running)
                    .logger
                    .warn(format_args!("second signal: ending at once"));
                return;
            }
            Ok(MainEvent::Signal(_)) => {
                // It would keep the listening sockets open.
                environment.upgrade.cancel();
                environment.end_levels();
                // The call fails without a service manager; the drain does not depend on it.
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
                drain_end = Some(drain(&lock(running)));
            }
            Err(_) => return,
        }
    }
    if successor.is_some() {
        environment.admin.wait_for_end();
    }
    lock(running).logger.info(format_args!("ended"));
}

/// Hands the server over to a process that is ready, and begins to drain this one. Returns the time at which the drain
/// ends at the latest.
fn hand_over(
    running: &Mutex<RunningServer>,
    successor: &mut ReadySuccessor,
    environment: &mut ProcessEnvironment<'_>,
) -> Instant {
    // First, so that no later purge misses the disk cache.
    environment.admin.stop(successor.report.takes_admin_socket);
    environment.upgrade.confirm();
    // Not locked meanwhile: the disk may be slow, and workers still answer.
    let store = lock(running).store.clone();
    store.release_disk_cache();
    successor.release(ToSuccessor::DiskReleased);
    // While the listeners are open, since the level's connections migrate to them.
    environment.end_levels();
    successor.release(ToSuccessor::LevelReleased);
    let running = lock(running);
    successor.take_over_datagrams(&running);
    successor.release(ToSuccessor::DatagramsReleased);
    successor.take_over_listeners(&running);
    drain(&running)
}

fn drain(running: &RunningServer) -> Instant {
    let timeout_ms = running.config.server.drain_timeout_ms;
    let open = running.admission.open();
    running.logger.info(format_args!(
        "draining: {open} connections, at most {timeout_ms} ms"
    ));
    for worker in &running.workers {
        worker.post(MailboxMessage::Drain { timeout_ms });
    }
    // The workers enforce the timeout; the main thread stops waiting for them somewhat later.
    Instant::now() + Duration::from_millis(timeout_ms + EXIT_GRACE_MS)
}

pub fn listen_for_signals(events: Sender<MainEvent>) -> std::io::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                // The send fails if the main thread has ended.
                if events.send(MainEvent::Signal(signal)).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}

/// Returns a flag that a signal to end sets, for code that runs while the main thread does not read events.
pub fn end_signals() -> std::io::Result<Arc<AtomicBool>> {
    let end_requested = Arc::<AtomicBool>::default();
    for signal in [SIGTERM, SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, end_requested.clone())?;
    }
    Ok(end_requested)
}
