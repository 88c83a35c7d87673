//! The lifecycle of a server process: start, reload and graceful shutdown.
//!
//! The start first performs all steps that need root, then gives up root, then starts threads. Afterwards the main
//! thread waits for signals and events; workers handle requests (`decision`), and helper threads perform blocking work
//! (`file_loader`).

use std::cell::RefCell;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_config::{AccessLogConfig, Config, SiteRoot};
use lowroad_disk::{DiskFolder, FolderError};
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_engine::listener::ListenSocket;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::panic_policy;
use lowroad_engine::settings::WorkerSettings;
use lowroad_engine::worker::{MailboxMessage, Worker};
use lowroad_engine::{IoDriver, ListenerId};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_files::file_loader::FileLoader;
use lowroad_handler::interim_responses::PostInterim;
use lowroad_handler::secrets;
use lowroad_log::{ErrorLogger, LineSink};
use lowroad_privileges::account;
use lowroad_privileges::hide_process;
use lowroad_privileges::starter::{self, ProgramStart};
use lowroad_response_cache::calls::HandlerCalls;
use lowroad_response_cache::handler_outcome::{HandlerOutcome, OutcomeSender};
use lowroad_routes::applications::ApplicationSet;
use lowroad_routes::route_builder::HandlerRuntime;
use lowroad_routes::routes::Route;
use lowroad_site::access::{LogWorker, WorkerAccessLog};
use lowroad_site::decision::SiteService;
use lowroad_site::explain_files;
use lowroad_site::listeners::{HandedSockets, ListenerAddresses, ListenerSet};
use lowroad_site::request_traces::WorkerTracer;
use lowroad_site::sites::SiteTable;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;
use lowroad_store::disk_cache::{self, DiskCache};
use lowroad_store::watch::FolderWatcher;
use lowroad_tls_listener::TlsListeners;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::admin::listeners::AdminListeners;
use crate::events::{CommandReply, MainEvent};
use crate::init::InitLink;
use crate::level::{ConnectionInterceptor, LevelProcesses, LevelStart};
use crate::level_sites::LevelSites;
use crate::log_writers::{self, LogWriters};
use crate::map_files::MapFollower;
use crate::memory;
use crate::reload::{self, ReloadCounts};
use crate::running_server::{RunningServer, WorkerBox, lock, update_applications};
use crate::secret_file;
use crate::site_files::SiteFollower;
use crate::start_settings::StartSettings;
use crate::traces::TraceExport;
use crate::upgrade::control::UpgradeControl;
use crate::upgrade::messages::ToSuccessor;
use crate::upgrade::predecessor::Predecessor;
use crate::upgrade::successor::{PassedDescriptors, ReadySuccessor};
use crate::{limits, softirq, upgrade};

/// Interval between checks for changed error pages, certificates and document roots.
const SITES_INTERVAL: Duration = Duration::from_millis(500);
/// Additional time after the drain timeout in which workers must end.
const EXIT_GRACE_MS: u64 = 2_000;

/// How a server was started.
pub struct ServerStart<'a> {
    /// The configuration file, which a reload reads again.
    pub source: Option<PathBuf>,
    /// Makes the server intercept the connections of another server.
    pub front: Option<Box<dyn ConnectionInterceptor>>,
    /// The program that an upgrade starts, or the reason why there is none.
    pub program: Result<ProgramStart, String>,
    /// The process from which the server takes over; taken once it has.
    pub predecessor: &'a mut Option<Predecessor>,
}

/// Runs a server until it ends.
///
/// # Errors
/// When the server can't start: the reason and a remedy.
pub fn run(mut config: Config, start: ServerStart<'_>) -> Result<(), String> {
    let ServerStart {
        source,
        mut front,
        program,
        predecessor,
    } = start;
    // The default cache size must fit into a container's memory limit.
    memory::fit_cache(&mut config.server);
    // Removes secrets from the environment, which is safe only in a single-threaded process.
    secrets::take(&config);
    let (account, user_note) = account::account(&config)?;
    // The logs are opened with root's rights; later the privileged helper reopens them.
    let logs = LogWriters::open(&config, account.as_ref())?;
    let logger = logs.logger();
    let init = match predecessor {
        Some(predecessor) => predecessor.take_init(),
        None => InitLink::find(),
    };
    // Marks inherited descriptors close-on-exec, so that CGI programs do not get them.
    if let Err(error) = lowroad_engine::set_descriptors_cloexec() {
        logger.warn(format_args!(
            "programs inherit the descriptors that this server was started with: {error}"
        ));
    }
    let (fd_limit, fd_note) = limits::raise_fd_limit(&config);
    // Ports below 1024 need root or CAP_NET_BIND_SERVICE (ip(7)).
    let mut listeners = ListenerSet::default();
    // Each worker has its own socket for each listener.
    let mut no_sockets = HandedSockets::default();
    let handed = match predecessor {
        Some(predecessor) => predecessor.sockets(),
        None => &mut no_sockets,
    };
    let new_sockets = listeners.open_with(&config, worker_count(&config), handed)?;
    if let Some(front) = &mut front {
        front.intercept(&mut listeners, &new_sockets)?;
    }
    // TLS is prepared before root is given up, because usually only root can read private keys.
    let tls = TlsListeners::start(&config, &logger, account.as_ref())?;
    let mut admin = AdminListeners::open(&config, &tls, predecessor.as_mut())?;
    let traces = TraceExport::open(config.traces.as_ref())?;
    let open_secrets = secret_file::warnings(config.document.secret_files());
    for warning in admin.warnings().chain(&open_secrets) {
        logger.warn(format_args!("{warning}"));
    }
    for warning in &config.document.warnings {
        logger.warn(format_args!("{warning}"));
    }
    let changes = Arc::<ChangeFeed>::default();
    // The folder is locked before `drop_root` changes the owner of the files in it.
    // The predecessor has the folder until it drains.
    let disk_cache = match predecessor {
        Some(_) => None,
        None => take_disk_cache(&config, &logger)?,
    };
    let level_start = match predecessor {
        Some(_) => LevelStart::Later,
        None => LevelStart::Now,
    };
    let managed_level = softirq::managed_level::start(
        &config,
        logs.access_sinks(),
        &logger,
        &changes,
        level_start,
    )?;
    let starter_note = match (&account, &program) {
        // Started while this process is root, so that a successor can have root's rights at its start.
        (Some(_), Ok(program)) => starter::start(program).err(),
        _ => None,
    };
    let starter_note =
        starter_note.map(|error| format!("this server can't be upgraded while it runs: {error}"));
    let helper_note = match &account {
        Some(account) => account.drop_root(&config, source.as_deref())?,
        None => None,
    };
    // Otherwise child processes would inherit ambient capabilities (capabilities(7)).
    account::forget_ambient_capabilities();
    // Otherwise other processes of the same user could read this process's secrets in /proc.
    hide_process()?;
    for note in [
        fd_note,
        managed_level.startup_warning,
        user_note,
        helper_note,
        starter_note,
    ]
    .into_iter()
    .flatten()
    {
        logger.info(format_args!("{note}"));
    }

    let text = |error: std::io::Error| format!("can't start: {error}");
    // No threads before this point: credentials and environment must be final.
    let helpers = HelperPool::start(config.server.helpers).map_err(text)?;
    let drivers: Vec<EpollDriver> = new_sockets
        .iter()
        .map(|_| EpollDriver::new(helpers.clone()))
        .collect::<Result<_, _>>()
        .map_err(text)?;
    let worker_handles = drivers.iter().map(|driver| driver.worker_handle().clone());
    let handler_runtime =
        HandlerRuntime::start(logger.clone(), worker_handles.collect()).map_err(text)?;
    // Handlers are opened after root is given up, so that they open their files as the server's user.
    let mut running = prepare(ServerParts {
        config,
        listeners,
        tls,
        helpers: &helpers,
        handler_runtime,
        logger,
        changes,
    })?;
    open_disk_cache(&running, disk_cache, &helpers).map_err(text)?;
    running.tls.keep(&running.config, &running.logger)?;
    running.fd_limit = fd_limit;
    running.sinks = logs.sinks();
    running.log_rotations_failed = logs.rotations_failed();
    running.traces = traces.as_ref().map(|traces| traces.queue().clone());
    running.softirq = managed_level.health;
    if let Some(level) = &running.softirq {
        level.set_sites(LevelSites::new(&running));
    }
    let (sender, events) = channel();
    let settings = Arc::new(limits::settings(
        &running.config,
        &running.listeners,
        fd_limit,
    ));
    let (count, hostname) = (drivers.len(), log_writers::hostname().into());
    let log_worker = LogWorker {
        number: 0,
        count,
        hostname,
    };
    for (number, driver) in drivers.into_iter().enumerate() {
        let (settings, logs) = (settings.clone(), logs.access_sinks());
        let log_worker = LogWorker {
            number,
            ..log_worker.clone()
        };
        let parameters = WorkerParameters {
            number,
            settings,
            logs,
            log_worker,
            tracer: traces.as_ref().map(TraceExport::tracer),
        };
        start_worker(&mut running, parameters, driver, sender.clone()).map_err(text)?;
    }
    let traces = traces.map(|traces| traces.start(running.logger.clone()));
    let traces = traces.transpose().map_err(text)?;
    listen_for_signals(sender.clone()).map_err(text)?;
    let end_requested = end_signals().map_err(text)?;
    let running = Arc::new(Mutex::new(running));
    admin.serve(running.clone(), sender.clone()).map_err(text)?;
    if let Some(url) = admin.url() {
        let logger = lock(&running).logger.clone();
        logger.info(format_args!("metrics and commands at {url}"));
    }
    // Only workers can answer the requests of the level's daemon, so they must be running.
    if let Some(processes) = &managed_level.processes {
        processes.start_answering(running.clone()).map_err(text)?;
    }
    start_site_follower(running.clone()).map_err(text)?;
    let is_ending = || end_requested.load(Ordering::Relaxed);
    let all_applications = lock(&running).config.applications.clone();
    let mut applications = all_applications.clone();
    if let Some(predecessor) = &predecessor {
        applications.retain(|application| !predecessor.runs(application));
    }
    update_applications(&running, &applications, is_ending)?;
    if let Some(predecessor) = predecessor {
        take_over(predecessor, &running, &helpers)?;
    }
    // Clients are accepted last: if descriptors are few, early clients would use up those that the start needs.
    listen(&lock(&running), new_sockets);
    warn_about_unserved(&lock(&running));
    announce(&lock(&running));
    let upgrade_sender = sender.clone();
    if let Some(front) = &front {
        front.report_ready(sender).map_err(text)?;
    }
    if let Some(init) = &init {
        init.announce();
    }
    // This process serves from here on: later failures don't concern the predecessor.
    if let Some(predecessor) = predecessor.take() {
        let level = managed_level.processes.as_ref();
        let attach_level = level.map(|level| level.attach_later());
        let has_waiting_applications = applications.len() < all_applications.len();
        let events = upgrade_sender.clone();
        let follow = move || {
            predecessor.wait_for(&ToSuccessor::LevelReleased);
            if let Some(attach_level) = attach_level {
                attach_level();
            }
            if has_waiting_applications {
                predecessor.wait_for_end();
                // This process may be ending.
                let _ = events.send(MainEvent::PredecessorEnded);
            }
        };
        thread::Builder::new()
            .name("takeover".into())
            .spawn(follow)
            .map_err(text)?;
    }
    // The call fails without a service manager, because there is no socket to notify.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    let logger = lock(&running).logger.clone();
    let environment = ProcessEnvironment {
        source: source.as_deref(),
        is_ending: &is_ending,
        reopen_logs: &|| logs.reopen(&logger),
        level_processes: managed_level.processes,
        front,
        upgrade: UpgradeControl::new(program, upgrade_sender),
        admin: &mut admin,
        init,
    };
    run_main_loop(&running, &events, environment);
    lock(&running).handler_runtime.end();
    lock(&running).applications.end();
    if let Some(tier) = lock(&running).store.tier() {
        tier.finish_pending();
    }
    // The workers have ended, so no span follows.
    if let Some(traces) = traces {
        traces.end();
    }
    // Dropping `admin` removes the admin socket's file.
    drop(admin);
    logs.close();
    Ok(())
}

/// Locks the disk cache's folder, if one is configured. If the folder can't be used, the server runs without a disk
/// cache.
///
/// # Errors
/// When another server uses the folder.
fn take_disk_cache(config: &Config, logger: &ErrorLogger) -> Result<Option<DiskFolder>, String> {
    let Some(path) = &config.server.disk_cache else {
        return Ok(None);
    };
    match DiskFolder::take(path) {
        Ok(folder) => Ok(Some(folder)),
        Err(error @ FolderError::InUse(_)) => Err(format!("disk_cache: {error}")),
        Err(error) => {
            disable_disk_cache(path, &error, logger);
            Ok(None)
        }
    }
}

/// Logs why the disk cache is off. Invalidates the folder's contents, because later purges are not recorded there.
fn disable_disk_cache(path: &Path, reason: &dyn std::fmt::Display, logger: &ErrorLogger) {
    logger.error(format_args!("continues without disk_cache: {reason}"));
    if disk_cache::invalidate_folder(path).is_err() && path.is_dir() {
        logger.error(format_args!(
            "disk_cache: responses that are purged now may reappear when {} is usable again",
            path.display()
        ));
    }
}

/// Opens the disk cache in its folder, and starts its threads. If that fails, the server runs without a disk cache.
///
/// # Errors
/// No thread is available.
fn open_disk_cache(
    running: &RunningServer,
    folder: Option<DiskFolder>,
    helpers: &HelperPool,
) -> std::io::Result<()> {
    let config = &running.config.server;
    let (Some(folder), Some(path)) = (folder, &config.disk_cache) else {
        return Ok(());
    };
    match DiskCache::open(folder, path, config.disk_cache_len_max, helpers.clone()) {
        Ok((disk_cache, purge_waiters)) => {
            let (store, logger) = (running.store.clone(), running.logger.clone());
            store.add_disk_cache(disk_cache.clone());
            disk_cache.start_maintenance(purge_waiters, store, logger)
        }
        Err(error) => {
            let reason = format!("the store in {} can't be opened: {error}", path.display());
            disable_disk_cache(path, &reason, &running.logger);
            Ok(())
        }
    }
}

/// Takes over from the predecessor: when this returns, this process accepts connections, and has the disk cache.
///
/// # Errors
/// The predecessor goes on, so this process must end: a message for the operator.
fn take_over(
    predecessor: &mut Predecessor,
    running: &Mutex<RunningServer>,
    helpers: &HelperPool,
) -> Result<(), String> {
    predecessor.announce_ready()?;
    let running = lock(running);
    if running.config.server.disk_cache.is_some() {
        predecessor.wait_for(&ToSuccessor::DiskReleased);
        // From here on this process must serve: an error disables the disk cache, as after a failure of the disk.
        let folder = take_disk_cache(&running.config, &running.logger).unwrap_or_else(|error| {
            running
                .logger
                .error(format_args!("continues without disk_cache: {error}"));
            None
        });
        if let Err(error) = open_disk_cache(&running, folder, helpers) {
            running.logger.error(format_args!("disk_cache: {error}"));
        }
    }
    Ok(())
}

/// The parts of the running server that are opened or started before it.
struct ServerParts<'a> {
    config: Config,
    listeners: ListenerSet,
    tls: TlsListeners,
    helpers: &'a HelperPool,
    handler_runtime: HandlerRuntime,
    logger: ErrorLogger,
    changes: Arc<ChangeFeed>,
}

/// Creates the state that all threads share. The workers start later.
fn prepare(parts: ServerParts<'_>) -> Result<RunningServer, String> {
    let ServerParts {
        config,
        listeners,
        tls,
        helpers,
        handler_runtime,
        logger,
        changes,
    } = parts;
    let handler_set = handler_runtime.open(&config)?;
    let sites = SiteTable::new(&config, &listeners, &tls, &handler_set, None)
        .map_err(|error| error.to_string())?;
    let handlers = handler_set.kinds();
    let store = SharedStore::new(config.server.cache_len_max)
        .map_err(|error| format!("no memory for the cache: {error}"))?;
    store.store_purges().log_to(logger.clone());
    let store = store.with_variants_max(config.server.cache_variants_max);
    let store = Arc::new(store);
    handler_runtime.drop_changed(&store, &changes);
    let object_len_max = config.server.cache_object_len_max;
    let watcher = FolderWatcher::start(changes.clone());
    let loader = FileLoader::new(store.clone(), watcher, changes.clone(), object_len_max);
    Ok(RunningServer {
        sites: Arc::new(sites),
        listeners,
        tls,
        handler_runtime,
        handlers,
        applications: ApplicationSet::default(),
        changes,
        fetcher: Arc::new(FileFetcher::new(Arc::new(loader), helpers.clone())),
        store,
        workers: Vec::new(),
        counters: Vec::new(),
        cache_counters: Vec::new(),
        request_metrics: Vec::new(),
        urls: Vec::new(),
        admission: Arc::default(),
        fd_limit: 0,
        logger,
        sinks: Vec::new(),
        log_rotations_failed: Arc::default(),
        traces: None,
        reloads: ReloadCounts::default(),
        map_counts: Arc::default(),
        start_settings: StartSettings::new(&config),
        softirq: None,
        started: Instant::now(),
        config,
    })
}

/// The parameters that differ between workers.
struct WorkerParameters {
    number: usize,
    settings: Arc<WorkerSettings>,
    logs: Vec<(LineSink, AccessLogConfig)>,
    log_worker: LogWorker,
    tracer: Option<WorkerTracer>,
}

fn start_worker(
    running: &mut RunningServer,
    parameters: WorkerParameters,
    driver: EpollDriver,
    events: Sender<MainEvent>,
) -> std::io::Result<()> {
    let mailbox: WorkerBox = WorkerMailbox::new(driver.waker());
    let outcome_mailbox = mailbox.clone();
    let post: OutcomeSender = Arc::new(move |id, outcome: HandlerOutcome| {
        outcome_mailbox.post(MailboxMessage::Outcome(id, outcome))
    });
    let interim_mailbox = mailbox.clone();
    let post_interim: PostInterim = Arc::new(move |id, interim| {
        interim_mailbox.post(MailboxMessage::Interim(id, Box::new(interim)))
    });
    let scopes = running.sites.scopes.clone();
    let log = WorkerAccessLog::new(parameters.logs, scopes, parameters.log_worker);
    let runtime = running.handler_runtime.runtime(parameters.number);
    let calls = HandlerCalls {
        worker: parameters.number,
        runtime: runtime.clone(),
        worker_handle: driver.worker_handle().clone(),
        post,
        post_interim,
        store: running.store.clone(),
        fetcher: running.fetcher.clone(),
        changes: running.changes.clone(),
        records_tries: false,
        last_site: RefCell::default(),
    };
    let web = SiteService::new(running.sites.clone(), calls, running.logger.clone(), log);
    let web = web.with_tracer(parameters.tracer);
    let (counters, cache_counters) = (Arc::new(WorkerCounters::default()), web.cache_counters());
    let (request_metrics, urls) = (web.request_metrics(), web.urls());
    let admission = running.admission.clone();
    let mut worker = Worker::new(
        driver,
        web,
        mailbox.clone(),
        parameters.settings,
        admission,
        counters.clone(),
    );
    running.workers.push(mailbox);
    running.counters.push(counters);
    running.cache_counters.push(cache_counters);
    running.request_metrics.push(request_metrics);
    running.urls.push(urls);
    let cpu = running.config.server.affinity.then_some(parameters.number);
    thread::Builder::new()
        .name(format!("worker-{}", parameters.number))
        .spawn(move || {
            if let Some(cpu) = cpu {
                // Pinning is an optimization: if it fails, the kernel schedules the worker.
                let _ = lowroad_engine::worker::pin_to_cpu(cpu);
            }
            // Futures that start on this worker are spawned on `runtime`.
            let _lane = runtime.enter();
            // A panic here ends the process: the server must not continue without one of its workers.
            panic_policy::vital(|| worker.run());
            // The main thread may have stopped waiting after the drain timeout.
            let _ = events.send(MainEvent::WorkerEnded);
        })?;
    Ok(())
}

/// Passes each worker its listening sockets.
fn listen(running: &RunningServer, new_sockets: Vec<Vec<(ListenerId, ListenSocket)>>) {
    for (worker, sockets) in running.workers.iter().zip(new_sockets) {
        for (id, listener) in sockets {
            worker.post(MailboxMessage::Listen(id, listener));
        }
    }
}

/// The objects that the main loop uses in addition to the running server.
struct ProcessEnvironment<'a> {
    /// The configuration file.
    source: Option<&'a std::path::Path>,
    /// Whether a signal has requested a shutdown.
    is_ending: &'a dyn Fn() -> bool,
    reopen_logs: &'a dyn Fn(),
    /// The processes of the softirq level, if it runs.
    level_processes: Option<Box<dyn LevelProcesses>>,
    /// Intercepts another server's connections.
    front: Option<Box<dyn ConnectionInterceptor>>,
    upgrade: UpgradeControl,
    admin: &'a mut AdminListeners,
    init: Option<InitLink>,
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

    /// Starts the applications whose addresses the predecessor has used until now.
    fn start_waiting_applications(&self, running: &Mutex<RunningServer>) {
        let applications = lock(running).config.applications.clone();
        if let Err(error) = update_applications(running, &applications, self.is_ending) {
            lock(running).logger.error(format_args!("{error}"));
        }
    }

    /// Starts an upgrade.
    fn start_upgrade(&mut self, running: &Arc<Mutex<RunningServer>>, reply: Option<CommandReply>) {
        let passed = PassedDescriptors {
            admin: self.admin.share_tcp(),
            init: self.init.as_ref().and_then(InitLink::share),
        };
        self.upgrade.request(running, passed, reply);
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
fn run_main_loop(
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
            // The server is ending; dropping the reply tells the client.
            Ok(MainEvent::Signal(SIGUSR2) | MainEvent::Upgrade(_)) => {}
            Ok(MainEvent::UpgradePrepared(Ok(late))) if drain_end.is_some() => late.kill(),
            Ok(MainEvent::UpgradePrepared(result)) => {
                if let Some(ready) = environment.upgrade.finish(running, result) {
                    drain_end = Some(hand_over(running, &ready, &mut environment));
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
    successor: &ReadySuccessor,
    environment: &mut ProcessEnvironment<'_>,
) -> Instant {
    // Only the main process may name another one (sd_notify(3), NotifyAccess=main).
    let process = successor.report.process;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::MainPid(process)]);
    // Not locked meanwhile: the disk may be slow, and workers still answer.
    let store = lock(running).store.clone();
    store.release_disk_cache();
    successor.release(ToSuccessor::DiskReleased);
    environment.admin.stop();
    // While the listeners are open, since the level's connections migrate to them.
    environment.end_levels();
    successor.release(ToSuccessor::LevelReleased);
    let running = lock(running);
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

fn listen_for_signals(events: Sender<MainEvent>) -> std::io::Result<()> {
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
fn end_signals() -> std::io::Result<Arc<AtomicBool>> {
    let end_requested = Arc::<AtomicBool>::default();
    for signal in [SIGTERM, SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, end_requested.clone())?;
    }
    Ok(end_requested)
}

/// Starts a thread that follows the files to which sites refer: error pages, certificates and document roots.
fn start_site_follower(running: Arc<Mutex<RunningServer>>) -> std::io::Result<()> {
    panic_policy::start("sites", move || {
        let mut follower = SiteFollower::default();
        let mut map_follower = MapFollower::default();
        loop {
            follower.follow(&running);
            map_follower.follow(&running);
            log_repeated_faults(&running);
            thread::sleep(SITES_INTERVAL);
        }
    })
}

/// Logs how often logged program failures were repeated.
fn log_repeated_faults(running: &Mutex<RunningServer>) {
    // The lock is released here, so that the reports below do not delay a reload.
    let (sites, logger) = {
        let running = lock(running);
        (running.sites.clone(), running.logger.clone())
    };
    for route in sites.all.iter().flat_map(|site| site.routes.iter()) {
        for kind in route.faults.take_expired(clock::now_ms()) {
            if kind.unlogged > 0 {
                let (number, status, unlogged) = (&kind.number, kind.status, kind.unlogged);
                let label = &route.label;
                let line = format_args!(
                    "fault {number}: {status} of {label}, and {unlogged} more of the same kind"
                );
                match status {
                    500.. => logger.error(line),
                    _ => logger.info(line),
                }
            }
        }
    }
}

/// Warns about sites that serve nothing at `/`, and about inherited sockets that no site uses.
fn warn_about_unserved(running: &RunningServer) {
    for fault in running
        .listeners
        .addresses_for(&running.config.sites)
        .faults()
    {
        running.logger.warn(format_args!("{fault}"));
    }
    for site in &running.sites.all {
        let is_folder =
            matches!(site.rules.config.root, SiteRoot::Folder(_)) && !site.rules.config.listing;
        if is_folder
            && !site.rules.has_route(b"/")
            && site.access_policy.is_none()
            && let Some(reason) = explain_files::find_cause(site, b"", b"/")
        {
            running
                .logger
                .warn(format_args!("/ is not served: {reason}"));
        }
    }
}

/// Prints the sites and their URLs to standard output.
fn announce(running: &RunningServer) {
    let mut lines = String::new();
    let addresses = running.listeners.addresses_for(&running.config.sites);
    for site in &running.sites.all {
        let urls = urls(running, &addresses, &site.rules.config);
        let listing = if site.rules.config.listing {
            ", listing folders"
        } else {
            ""
        };
        let content = match site.rules.config.root {
            SiteRoot::None if site.routes.is_empty() => "redirects".to_owned(),
            SiteRoot::None => site
                .routes
                .iter()
                .map(Route::name)
                .collect::<Vec<_>>()
                .join(", "),
            _ => site.rules.base().display().to_string(),
        };
        let line = format!("serving {content}{listing} at {}\n", urls.join(" "));
        lines.push_str(&line);
    }
    let cache_mb = running.config.server.cache_len_max >> 20;
    let count = running.workers.len();
    let workers = if count == 1 {
        "1 worker".into()
    } else {
        format!("{count} workers")
    };
    lines.push_str(&format!("{workers}, {cache_mb} MiB cache; Ctrl-C ends\n"));
    let mut out = std::io::stdout();
    // The server also runs if standard output is closed.
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
}

fn urls(
    running: &RunningServer,
    listener_addresses: &ListenerAddresses<'_>,
    site: &lowroad_config::SiteConfig,
) -> Vec<String> {
    let url = |id: &ListenerId| {
        let scheme = match running.sites.tls_endpoint(*id) {
            Some(_) => "https",
            None => "http",
        };
        let mut addresses = running.listeners.addresses.iter();
        match addresses.find(|(listener_id, _)| listener_id == id) {
            Some((_, address)) => format!("{scheme}://{}/", reachable(*address)),
            None => "a Unix socket".into(),
        }
    };
    listener_addresses.for_site(site).iter().map(url).collect()
}

/// An address at which this machine can reach a listener: the loopback address instead of the unspecified one.
fn reachable(listener: SocketAddr) -> SocketAddr {
    match listener.ip() {
        // A listener at [::] accepts IPv4, too.
        ip if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listener.port()).into(),
        ip => (ip, listener.port()).into(),
    }
}

fn worker_count(config: &Config) -> usize {
    match config.server.workers {
        // `available_parallelism` respects CPU affinity and cgroup quotas, unlike the machine's number of processors.
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}
