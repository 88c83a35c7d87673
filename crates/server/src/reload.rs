//! Reload: replaces the configuration of a running server. An invalid configuration changes nothing.
//!
//! Connections stay open, and the next request on each is answered by the new configuration. Settings that apply only
//! at the start (workers, cache, user, logs) need an upgrade; the log warns if they have changed.

use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowroad_config::Config;
use lowroad_engine::worker::MailboxMessage;
use lowroad_log::ErrorLogger;
use lowroad_routes::applications::ApplicationChanges;
use lowroad_routes::route_builder::OpenedKinds;
use lowroad_site::decision::WorkerCommand;
use lowroad_site::listeners::{HandedDatagrams, ListenerSet, NewDatagrams, NewSockets};
use lowroad_site::sites::SiteTable;
use lowroad_tls_listener::TlsListeners;

use crate::config_files::ServerFiles;
use crate::features;
use crate::level_sites::LevelSites;
use crate::limits;
use crate::memory;
use crate::process::{self, worker_threads};
use crate::running_server::{RunningServer, lock, update_applications};
use crate::secret_file;

/// Maximum wait until all workers have the new sites. A worker never blocks for long; a late one switches after the
/// timeout.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the configuration file again. Puts the configuration in force as soon as its applications accept connections,
/// or `is_ending` returns true. Returns the log's message.
///
/// # Errors
/// When the old configuration stays in force: the reasons.
pub fn reload(
    running: &Mutex<RunningServer>,
    source: Option<&Path>,
    is_ending: &dyn Fn() -> bool,
) -> Result<String, String> {
    let logger = lock(running).logger.clone();
    let Some(source) = source else {
        let text = "there is no configuration file to reload";
        logger.info(format_args!("{text}"));
        return Err(text.into());
    };
    // RELOADING=1 must be followed by READY=1, also after a failure (sd_notify(3)).
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
    // The number makes each message unique, because the log suppresses repeated messages.
    let number = {
        let mut running = lock(running);
        running.reloads.attempts += 1;
        running.reloads.attempts
    };
    // The server has given up root by now, so the privileged helper reads files that only root can read.
    let loaded = lowroad_config::load_with(source, features::LACKING, &ServerFiles)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect());
    let mut open_secrets = Vec::new();
    let applied: Result<PreviousConfig, Vec<String>> = loaded.and_then(|mut config| {
        open_secrets = secret_file::warnings(config.document.secret_files());
        // As at the start: otherwise the default cache size would seem to be a change that needs an upgrade.
        memory::fit_cache(&mut config.server);
        apply(running, config, is_ending).map_err(|text| vec![text])
    });
    let result = match applied {
        Ok(previous) => {
            lock(running).reloads.count(true);
            let mut text = format!("reload {number}: {} is in force", source.display());
            logger.info(format_args!("{text}"));
            // These are in the log already.
            for warning in &previous.warnings {
                text = format!("{text}\nwarning: {warning}");
            }
            for note in previous.restart_note.iter().chain(&open_secrets) {
                logger.warn(format_args!("{note}"));
                text = format!("{text}\n{note}");
            }
            // The result is reported before this wait for requests in progress.
            previous.end(is_ending);
            Ok(text)
        }
        Err(problems) => {
            lock(running).reloads.count(false);
            let describe = |problem: &String| {
                format!("reload {number}: the previous configuration stays in force: {problem}")
            };
            let lines: Vec<String> = problems.iter().map(describe).collect();
            lines
                .iter()
                .for_each(|line| logger.error(format_args!("{line}")));
            Err(lines.join("\n"))
        }
    };
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    result
}

/// Reopens the document roots of `changed` sites with replaced folders. Reads the disk without the lock.
pub fn reopen_moved_folders(
    running: &Mutex<RunningServer>,
    sites: &Arc<SiteTable>,
    changed: &[usize],
) {
    let (config, listeners) = {
        let running = lock(running);
        (running.config.clone(), running.listeners.clone())
    };
    let Some(new_sites) = sites.with_moved_folders(changed, &config, &listeners) else {
        return;
    };
    let running = &mut lock(running);
    // A reload in the meantime has already opened the folders.
    if Arc::ptr_eq(&running.sites, sites) {
        // The switch is not awaited: a late worker serves files from the old folder for somewhat longer, which is
        // acceptable.
        let _ = serve(running, Arc::new(new_sites));
        running
            .logger
            .info(format_args!("the folder of a site was replaced"));
    }
}

/// The reloads since the start.
#[derive(Debug, Default)]
pub struct ReloadCounts {
    /// Reloads that have begun.
    pub attempts: u64,
    /// Reloads that were applied.
    pub applied: u64,
    /// Reloads with an invalid configuration, which changed nothing.
    pub rejected: u64,
    /// Whether the latest reload was rejected.
    pub is_latest_rejected: bool,
}

impl ReloadCounts {
    fn count(&mut self, is_applied: bool) {
        match is_applied {
            true => self.applied += 1,
            false => self.rejected += 1,
        }
        self.is_latest_rejected = !is_applied;
    }
}

/// Waits for workers that still use the previous sites. Each of them holds a sender of this channel.
#[must_use]
struct DrainingWorkers(Receiver<Infallible>);

impl DrainingWorkers {
    /// Waits until all workers have the new sites, so that every later request is answered from these. Blocks, so the
    /// caller must not hold the lock.
    fn wait(self, logger: &ErrorLogger) {
        // No value is ever sent: the channel disconnects when the last worker drops its message, and with it the
        // sender.
        if let Err(RecvTimeoutError::Timeout) = self.0.recv_timeout(SWITCH_TIMEOUT) {
            logger.warn(format_args!(
                "a worker has not received the new configuration yet, and uses the old one until then"
            ));
        }
    }
}

/// Posts new sites to all workers. Each worker uses them once it has read the message.
fn serve(running: &mut RunningServer, sites: Arc<SiteTable>) -> DrainingWorkers {
    let (done_sender, done_receiver) = channel();
    for worker in &running.workers {
        let command = WorkerCommand::Sites(sites.clone(), done_sender.clone());
        worker.post(MailboxMessage::Command(command));
    }
    // Frees stored responses of sites that no longer exist. Late workers, helper threads and calls in progress may
    // still store some; these are never requested, and the cache evicts them.
    running.store.retain(sites.key_filter());
    running.sites = sites;
    if let Some(level) = &running.softirq {
        level.set_sites(LevelSites::new(running));
    }
    // The softirq level has copies of responses that the new sites may not allow.
    running.changes.notify();
    DrainingWorkers(done_receiver)
}

/// The previous configuration's sites and applications, which are still needed by requests in progress.
struct PreviousConfig {
    /// The changes that are not in force.
    restart_note: Option<String>,
    /// The warnings about the new configuration.
    warnings: Vec<String>,
    sites: Arc<SiteTable>,
    application_changes: ApplicationChanges,
}

impl PreviousConfig {
    /// Ends the applications that the new configuration does not contain, after their requests are answered.
    fn end(self, is_ending: &dyn Fn() -> bool) {
        let sites = self.sites;
        let can_stop = || is_ending() || !sites.has_requests_in_progress();
        self.application_changes.stop_removed(can_stop);
    }
}

/// A completely checked configuration that can be put in force.
struct PreparedConfig {
    config: Config,
    /// The listeners of both configurations.
    listeners: ListenerSet,
    new_sockets: NewSockets,
    new_datagrams: NewDatagrams,
    sites: SiteTable,
    tls: TlsListeners,
    handlers: OpenedKinds,
    warnings: Vec<String>,
}

fn apply(
    running: &Mutex<RunningServer>,
    config: Config,
    is_ending: &dyn Fn() -> bool,
) -> Result<PreviousConfig, String> {
    // The lock is released at the end of the statement.
    let mut prepared = prepare(&lock(running), config)?;
    let warnings = std::mem::take(&mut prepared.warnings);
    let applications = &prepared.config.applications;
    // The lock is not held: applications may start slowly, and the admin service must answer in the meantime.
    let application_changes = update_applications(running, applications, is_ending)?;
    let (draining, sites, logger, restart_note) = {
        let running = &mut *lock(running);
        let sites = running.sites.clone();
        let restart_note = running.start_settings.restart_note(&prepared.config);
        let draining = activate(running, prepared);
        (draining, sites, running.logger.clone(), restart_note)
    };
    // Drained workers no longer read their mailboxes.
    if !is_ending() {
        draining.wait(&logger);
    }
    Ok(PreviousConfig {
        restart_note,
        warnings,
        sites,
        application_changes,
    })
}

/// Opens sockets, handlers, certificates and sites. All steps that may fail are done before the first visible change: after
/// a failure, the new sockets are closed, and the set of listeners is the old one.
fn prepare(running: &RunningServer, mut config: Config) -> Result<PreparedConfig, String> {
    let mut listeners = running.listeners.clone();
    // Sockets are opened first, because this fails most often, for example if a port is in use.
    let workers = running.workers.len();
    let new_sockets = listeners.open(&config, workers)?;
    // Empty once all processes before this one have ended.
    if running.occupied_datagrams().is_empty() {
        listeners.release_occupied();
    }
    let mut no_datagrams = HandedDatagrams::default();
    let new_datagrams = listeners.open_datagrams(&config, workers, &mut no_datagrams)?;
    let withdrawn = process::withdraw_http3(&mut config, &listeners);
    let handler_set = running.handler_runtime.open(&config)?;
    let tls = TlsListeners::reload(&config, &running.logger, &running.tls)?;
    let sites = SiteTable::new(
        &config,
        &listeners,
        &tls,
        &handler_set,
        Some(&running.sites),
    );
    let sites = sites.map_err(|error| error.to_string())?;
    // Warnings do not prevent the configuration from being used.
    let warnings = config.document.warnings.iter().map(ToString::to_string);
    let warnings = withdrawn.into_iter().chain(warnings);
    let warnings: Vec<String> = warnings.chain(sites.faults()).collect();
    for warning in &warnings {
        running.logger.warn(format_args!("{warning}"));
    }
    Ok(PreparedConfig {
        handlers: handler_set.kinds(),
        config,
        listeners,
        new_sockets,
        new_datagrams,
        sites,
        tls,
        warnings,
    })
}

fn activate(running: &mut RunningServer, prepared: PreparedConfig) -> DrainingWorkers {
    let PreparedConfig {
        config,
        listeners,
        new_sockets,
        new_datagrams,
        sites,
        tls,
        handlers,
        warnings: _,
    } = prepared;
    running.listeners = listeners;
    let settings = limits::settings(&config, &running.listeners, running.fd_limit);
    let settings = Arc::new(settings);
    // Unused sockets are closed only now, because a failed reload must keep all sockets.
    let unused_datagrams = running.listeners.close_unused_datagrams(&config);
    let unused = running.listeners.close_unused(&config);
    // The new sites are posted before the new listeners, which the old sites do not know.
    let draining = serve(running, Arc::new(sites));
    running.tls = tls;
    // On failure, the jobs that obtain and renew certificates continue with the previous configuration.
    if let Err(error) = running.tls.keep(&config, &running.logger) {
        running.logger.error(format_args!("{error}"));
    }
    running.handlers = handlers;
    running.handler_runtime.config_applied(&config);
    for (worker, sockets) in running.workers.iter().zip(new_sockets) {
        // The settings are posted before the listeners, because they name those that expect a PROXY header.
        worker.post(MailboxMessage::Settings(settings.clone()));
        for (id, listener) in sockets {
            worker.post(MailboxMessage::Listen(id, listener));
        }
        for id in &unused_datagrams {
            worker.post(MailboxMessage::StopDatagrams(*id));
        }
        for id in &unused {
            worker.post(MailboxMessage::StopListening(*id));
        }
    }
    worker_threads::listen_datagrams(running, new_datagrams);
    if let Some(tier) = running.store.tier() {
        tier.resize(config.server.disk_cache_len_max);
    }
    running.config = config;
    draining
}
