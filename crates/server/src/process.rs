//! The lifecycle of a server process: start, reload and graceful shutdown.
//!
//! The start first performs all steps that need root, then gives up root, then starts threads. Afterwards the main
//! thread waits for signals and events; workers handle requests (`decision`), and helper threads perform blocking work
//! (`file_loader`).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_config::{AccessLogConfig, Config};
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
use lowroad_site::access::{LogWorker, WorkerAccessLog};
use lowroad_site::decision::SiteService;
use lowroad_site::listeners::{HandedSockets, ListenerSet};
use lowroad_site::request_traces::WorkerTracer;
use lowroad_site::sites::SiteTable;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;
use lowroad_store::disk_cache::{self, DiskCache};
use lowroad_store::watch::FolderWatcher;
use lowroad_tls_listener::TlsListeners;

use crate::admin::listeners::AdminListeners;
use crate::events::MainEvent;
use crate::init::InitLink;
use crate::level::{ConnectionInterceptor, LevelStart};
use crate::level_sites::LevelSites;
use crate::log_writers::{self, LogWriters};
use crate::main_loop::{self, ProcessEnvironment};
use crate::map_files::MapFollower;
use crate::memory;
use crate::reload::ReloadCounts;
use crate::running_server::{RunningServer, WorkerBox, lock, update_applications};
use crate::secret_file;
use crate::site_files::SiteFollower;
use crate::start_settings::StartSettings;
use crate::traces::TraceExport;
use crate::upgrade::control::UpgradeControl;
use crate::upgrade::messages::ToSuccessor;
use crate::upgrade::predecessor::Predecessor;
use crate::{announcement, limits, softirq};

/// Interval between checks for changed error pages, certificates and document roots.
const SITES_INTERVAL: Duration = Duration::from_millis(500);

/// How a server was started.
pub struct ServerStart<'a> {
    /// The configuration file, which a reload reads again.
    pub source: Option<PathBuf>,
    /// Makes the server intercept the connections of another server.
    pub front: Option<Box<dyn ConnectionInterceptor>>,
    /// The program that an upgrade starts, or the reason why upgrades are impossible.
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
    let ticket_keys = predecessor
        .as_ref()
        .and_then(|it| it.ticket_keys.as_deref());
    let tls = TlsListeners::start(&config, &logger, account.as_ref(), ticket_keys)?;
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
    // In an upgrade, the predecessor has the folder until `take_over`.
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
    // Before handlers are opened, since each origin derives its own key from this one.
    if let Some(key) = predecessor.iter().find_map(|it| it.session_key.as_ref()) {
        handler_runtime.set_session_key(key);
    }
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
    for site in predecessor.iter().flat_map(|it| &it.maintenance) {
        let switch = running.sites.maintenance_switches().find(site);
        switch.store(true, Ordering::Relaxed);
    }
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
    main_loop::listen_for_signals(sender.clone()).map_err(text)?;
    let end_requested = main_loop::end_signals().map_err(text)?;
    let running = Arc::new(Mutex::new(running));
    // Until a predecessor has handed over, it performs all commands.
    if predecessor.is_none() {
        admin.serve(running.clone(), sender.clone()).map_err(text)?;
    }
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
    let is_useless = || predecessor.as_ref().is_some_and(Predecessor::has_ended);
    update_applications(&running, &applications, || is_ending() || is_useless())?;
    if let Some(predecessor) = predecessor {
        take_over(predecessor, &running, &helpers)?;
        // From here on this process must serve, if need be without commands.
        if let Err(error) = admin.serve(running.clone(), sender.clone()) {
            let logger = lock(&running).logger.clone();
            logger.error(format_args!("the admin service can't start: {error}"));
        }
    }
    // Clients are accepted last: if descriptors are few, early clients would use up those that the start needs.
    listen(&lock(&running), new_sockets);
    announcement::warn_about_unserved(&lock(&running));
    announcement::announce(&lock(&running));
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
    main_loop::run(&running, &events, environment);
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
/// The predecessor continues, so this process must end: a message for the operator.
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
        upgrades_failed: 0,
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

fn worker_count(config: &Config) -> usize {
    match config.server.workers {
        // `available_parallelism` respects CPU affinity and cgroup quotas, unlike the machine's number of processors.
        0 => thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}
