//! The lifecycle of a server process: start, reload and graceful shutdown.
//!
//! The start first performs all steps that need root, then gives up root, then starts threads. Afterwards the main
//! thread waits for signals and events; workers handle requests (`decision`), and helper threads perform blocking work
//! (`file_loader`).

mod disk_cache;
mod follower_thread;
mod hardening;
mod privileged_parts;
pub mod worker_threads;

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use lowroad_child_processes::launcher;
use lowroad_config::Config;
use lowroad_engine::IoDriver;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_files::file_loader::FileLoader;
use lowroad_handler::secrets;
use lowroad_log::LogLevel;
use lowroad_privileges::starter::ProgramStart;
use lowroad_privileges::thread_filter::ThreadFilter;
use lowroad_routes::applications::ApplicationSet;
use lowroad_routes::route_builder::HandlerRuntime;
use lowroad_site::listeners::{ListenerSet, NewDatagrams};
use lowroad_site::sites::SiteTable;
use lowroad_store::SharedStore;
use lowroad_store::watch::FolderWatcher;

use self::privileged_parts::{PrivilegedParts, SharedParts};
use self::worker_threads::WorkerStart;
use crate::changes_lock::ChangesLock;
use crate::deny_list::DenyList;
use crate::events::MainEvent;
use crate::level::ConnectionInterceptor;
use crate::level_sites::LevelSites;
use crate::main_loop::{self, ProcessEnvironment};
use crate::reload::ReloadCounts;
use crate::running_server::{RunningServer, lock, update_applications};
use crate::saved_changes::SavedChanges;
use crate::start_settings::StartSettings;
use crate::upgrade::control::UpgradeControl;
use crate::upgrade::deny_forwarding::{self, DenyForwarder};
use crate::upgrade::messages::ToSuccessor;
use crate::upgrade::predecessor::Predecessor;
use crate::upgrade::takeover_gate::TakeoverGate;
use crate::{announcement, memory};

/// Descriptors that a process opens after its predecessor has handed over, and those of each worker: more than it needs.
const DESCRIPTORS_OF_TAKEOVER: usize = 48;
const DESCRIPTORS_OF_WORKER: usize = 4;

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
pub fn run(mut config: Config, mut start: ServerStart<'_>) -> Result<(), String> {
    // The default cache size must fit into a container's memory limit.
    memory::fit_cache(&mut config.server);
    // Removes secrets from the environment, which is safe only in a single-threaded process.
    secrets::take(&config);
    let PrivilegedParts {
        shared,
        logs,
        init,
        new_sockets,
        new_datagrams,
        mut admin,
        traces,
        disk_folder,
        level_processes,
    } = PrivilegedParts::open(&config, &mut start)?;
    for warning in withdraw_http3(&mut config, &shared.listeners) {
        shared.logger.warn(format_args!("{warning}"));
    }
    let ServerStart {
        source,
        front,
        program,
        predecessor,
    } = start;

    // No threads before this point: credentials and environment must be final.
    let text = |error: std::io::Error| format!("can't start: {error}");
    // The launcher starts programs for the threads that can't.
    launcher::start().map_err(text)?;
    let thread_filter = hardening::thread_filter(&config, &shared.logger);
    let start_helpers = || HelperPool::start(config.server.helpers);
    let helpers = hardening::start_filtered(thread_filter.as_ref(), start_helpers)?;
    let helpers = helpers.map_err(text)?;
    // The number of processors may have changed since the sockets were opened, one for each worker.
    let drivers = worker_threads::drivers(new_sockets.len(), &helpers).map_err(text)?;
    let (sender, events) = channel();
    let mut shared = shared;
    let saved = saved_changes(&config, &mut shared, predecessor.is_some());
    let mut running = shared_state(config, shared, &helpers, &drivers, thread_filter.as_ref())?;
    disk_cache::open(&running, disk_folder, &helpers).map_err(text)?;
    for site in predecessor.iter().flat_map(|it| &it.maintenance) {
        let switch = running.sites.maintenance_switches().find(site);
        switch.store(true, Ordering::Relaxed);
    }
    running.tls.keep(&running.config, &running.logger)?;
    running.sinks = logs.sinks();
    running.log_rotations_failed = logs.rotations_failed();
    running.traces = traces.as_ref().map(|traces| traces.queue().clone());
    apply_saved(&running, &saved);
    // A predecessor has the lock.
    match predecessor {
        Some(_) => running.takeover = Arc::new(TakeoverGate::new(false)),
        None => running.lock_changes(),
    }
    if let Some(level) = &running.softirq {
        level.set_sites(LevelSites::new(&running));
    }
    let worker_start = WorkerStart {
        logs: &logs,
        traces: traces.as_ref(),
        thread_filter: thread_filter.map(Arc::new),
        events: &sender,
    };
    worker_threads::start(&mut running, drivers, worker_start).map_err(text)?;
    // The workers have no connections yet, so there is nothing to wait for.
    drop(running.switch_deny_list());
    let logger = running.logger.clone();
    let traces = traces.map(|traces| traces.start(logger.clone()));
    let traces = traces.transpose().map_err(text)?;
    main_loop::listen_for_signals(sender.clone()).map_err(text)?;
    let end_requested = main_loop::end_signals().map_err(text)?;
    let is_ending = || end_requested.load(Ordering::Relaxed);
    let running = Arc::new(Mutex::new(running));
    // Until a predecessor has handed over, it performs all commands.
    if predecessor.is_none() {
        admin.serve(running.clone(), sender.clone()).map_err(text)?;
    }
    if let Some(url) = admin.url() {
        logger.info(format_args!("metrics and commands at {url}"));
    }
    // Only workers can answer the requests of the level's daemon, so they must be running.
    if let Some(processes) = &level_processes {
        processes.start_answering(running.clone()).map_err(text)?;
    }
    follower_thread::start(running.clone()).map_err(text)?;
    let has_waiting_applications = start_applications(&running, predecessor.as_ref(), &is_ending)?;
    if let Some(predecessor) = predecessor {
        take_over(predecessor, &running, &helpers)?;
        let forwarder = forward_deny_list(predecessor, &running);
        let mut taken = lock(&running);
        taken.deny_forwarder = forwarder;
        taken.lock_changes();
        drop(taken);
        // From here on this process must serve, if need be without commands.
        if let Err(error) = admin.serve(running.clone(), sender.clone()) {
            logger.error(format_args!("the admin service can't start: {error}"));
        }
    }
    // Clients are accepted last: if descriptors are few, early clients would use up those that the start needs.
    worker_threads::listen(&lock(&running), new_sockets);
    // A predecessor may still receive datagrams; two receivers would split handshakes.
    let waiting_datagrams = match predecessor {
        Some(predecessor) if predecessor.has_datagrams() => new_datagrams,
        _ => {
            worker_threads::listen_datagrams(&lock(&running), new_datagrams);
            NewDatagrams::new()
        }
    };
    announcement::warn_about_unserved(&lock(&running));
    announcement::announce(&lock(&running));
    if let Some(front) = &front {
        front.report_ready(sender.clone()).map_err(text)?;
    }
    // This process serves from here on: later failures don't concern the predecessor.
    if let Some(predecessor) = predecessor.take() {
        let level = level_processes.as_ref();
        let attach_level = level.map(|level| level.attach_later());
        let (waiting, events) = (has_waiting_applications, sender.clone());
        let follower = running.clone();
        let take_rest = move || {
            worker_threads::listen_datagrams(&lock(&follower), waiting_datagrams);
            if let Some(attach_level) = attach_level {
                attach_level();
            }
            lock(&follower).takeover.open();
        };
        let follow = move || follow_handover(&predecessor, take_rest, waiting, &events);
        let takeover = thread::Builder::new().name("takeover".into());
        takeover.spawn(follow).map_err(text)?;
    }
    // The call fails without a service manager, because there is no socket to notify.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    let environment = ProcessEnvironment {
        source: source.as_deref(),
        is_ending: &is_ending,
        reopen_logs: &|| logs.reopen(&logger),
        level_processes,
        front,
        upgrade: UpgradeControl::new(program, sender),
        admin: &mut admin,
        init,
    };
    main_loop::run(&running, &events, environment);
    end(&running);
    // The workers have ended, so no span follows.
    if let Some(traces) = traces {
        traces.end();
    }
    // Dropping `admin` removes the admin socket's file.
    drop(admin);
    logs.close();
    Ok(())
}

/// Reads the changes of operators that survive restarts, after root is given up: the server's user can change the file.
fn saved_changes(config: &Config, parts: &mut SharedParts, has_predecessor: bool) -> SavedChanges {
    let Some(path) = &config.admin.changes else {
        return SavedChanges::default();
    };
    let saved = SavedChanges::load(path, &parts.logger);
    // The predecessor has applied the file at its start, and knows later changes.
    if !has_predecessor {
        parts.origin_changes = saved.server_changes();
        parts.deny = DenyList::from_records(&saved.deny);
    }
    // An upgrade does not hand over the level.
    if let Some(level) = saved.log_level.as_deref().and_then(LogLevel::from_name) {
        parts.logger.set_level(level);
    }
    saved
}

/// Applies the saved changes that need the parts of the server, and names those without effect.
fn apply_saved(running: &RunningServer, saved: &SavedChanges) {
    if let (Some(queue), Some(share)) = (&running.traces, saved.trace_sample) {
        queue.rate().set_millionths((share * 1e6).round() as u32);
    }
    if let Some(control) = running.handler_runtime.origin_control() {
        saved.warn_about_unknown_servers(control, &running.logger);
    }
}

/// Makes TCP alone serve the addresses with unusable UDP ports, so that HTTP/3 is not advertised there. Returns warnings about
/// them.
pub fn withdraw_http3(config: &mut Config, listeners: &ListenerSet) -> Vec<String> {
    let withdraw = |(address, reason): &(SocketAddr, String)| {
        config.withdraw_http3(*address);
        format!("no HTTP/3 at {address}, since its UDP port can't be used: {reason}")
    };
    listeners.without_datagrams().iter().map(withdraw).collect()
}

/// Starts the supervised applications, except those that the predecessor runs. Returns whether there are any of these.
fn start_applications(
    running: &Mutex<RunningServer>,
    predecessor: Option<&Predecessor>,
    is_ending: &dyn Fn() -> bool,
) -> Result<bool, String> {
    let all = lock(running).config.applications.clone();
    let mut free = all.clone();
    if let Some(predecessor) = predecessor {
        free.retain(|application| !predecessor.runs(application));
    }
    let is_useless = || predecessor.is_some_and(Predecessor::has_ended);
    update_applications(running, &free, || is_ending() || is_useless())?;
    Ok(free.len() < all.len())
}

/// Sends the deny list in force to the processes that this one replaces. This process must serve in any case, so a failure
/// is only logged.
fn forward_deny_list(
    predecessor: &Predecessor,
    running: &Arc<Mutex<RunningServer>>,
) -> Option<Arc<DenyForwarder>> {
    let list = running.clone();
    let read = move || deny_forwarding::parts_in_force(&list);
    let started = DenyForwarder::start(predecessor.channels(), read);
    let log = |error: &std::io::Error| {
        lock(running).logger.error(format_args!(
            "addresses that are denied from now on keep their connections to earlier processes: no thread: {error}"
        ));
    };
    started.inspect_err(log).ok()
}

/// Creates the state that all threads share. The workers start later.
fn shared_state(
    config: Config,
    parts: SharedParts,
    helpers: &HelperPool,
    drivers: &[EpollDriver],
    thread_filter: Option<&ThreadFilter>,
) -> Result<RunningServer, String> {
    let SharedParts {
        logger,
        listeners,
        tls,
        changes,
        session_key,
        origin_changes,
        deny,
        fd_limit,
        softirq,
    } = parts;
    let worker_handles = drivers.iter().map(|driver| driver.worker_handle().clone());
    // Handlers are opened after root is given up, so that they open their files as the server's user.
    let worker_handles = worker_handles.collect();
    let start_runtime = || HandlerRuntime::start(logger.clone(), worker_handles);
    let handler_runtime = hardening::start_filtered(thread_filter, start_runtime)?
        .map_err(|error| format!("can't start: {error}"))?;
    // Before handlers are opened, since each origin derives its own key from this one.
    if let Some(key) = session_key {
        handler_runtime.set_session_key(&key);
    }
    // Before handlers are opened, for the same reason: servers get their states when they are created.
    if let Some(control) = handler_runtime.origin_control() {
        control.restore_changes(&origin_changes);
    }
    let handler_set = handler_runtime.open(&config)?;
    let sites = SiteTable::new(&config, &listeners, &tls, &handler_set, None)
        .map_err(|error| error.to_string())?;
    let handlers = handler_set.kinds();
    let store = SharedStore::new(config.server.cache_len_max)
        .map_err(|error| format!("no memory for the cache: {error}"))?;
    store.store_purges().log_to(logger.clone());
    let store = store.with_variants_max(config.server.cache_variants_max);
    let store = Arc::new(store);
    handler_runtime.config_applied(&config);
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
        deny,
        deny_forwarder: None,
        changes_lock: config.admin.changes.as_deref().map(ChangesLock::new),
        takeover: Arc::new(TakeoverGate::new(true)),
        is_handing_over: false,
        fd_limit,
        logger,
        sinks: Vec::new(),
        log_rotations_failed: Arc::default(),
        traces: None,
        reloads: ReloadCounts::default(),
        upgrades_failed: 0,
        map_counts: Arc::default(),
        start_settings: StartSettings::new(&config),
        softirq,
        started: Instant::now(),
        config,
    })
}

/// Opens as many descriptors as the rest of a takeover needs: for the admin service, the disk cache, and each worker.
fn reserve_descriptors(workers: usize) -> std::io::Result<Vec<File>> {
    let count = DESCRIPTORS_OF_TAKEOVER + DESCRIPTORS_OF_WORKER * workers;
    (0..count).map(|_| File::open("/dev/null")).collect()
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
    // Freed once the predecessor has handed over, as this process can't give the server back then.
    let reserve = reserve_descriptors(lock(running).workers.len())
        .map_err(|error| format!("descriptors for the start are lacking: {error}"))?;
    predecessor.announce_ready()?;
    drop(reserve);
    let running = lock(running);
    if running.config.server.disk_cache.is_some() {
        predecessor.wait_for(&ToSuccessor::DiskReleased);
        // From here on this process must serve: an error disables the disk cache, as after a failure of the disk.
        let folder =
            disk_cache::take_folder(&running.config, &running.logger).unwrap_or_else(|error| {
                running
                    .logger
                    .error(format_args!("continues without disk_cache: {error}"));
                None
            });
        if let Err(error) = disk_cache::open(&running, folder, helpers) {
            running.logger.error(format_args!("disk_cache: {error}"));
        }
    }
    Ok(())
}

/// Waits until the draining predecessor has released the level in the kernel, datagram sockets and the addresses of
/// applications.
fn follow_handover(
    predecessor: &Predecessor,
    take_rest: impl FnOnce(),
    has_waiting_applications: bool,
    events: &Sender<MainEvent>,
) {
    predecessor.wait_for(&ToSuccessor::LevelReleased);
    if predecessor.has_datagrams() {
        // The message follows at once.
        predecessor.wait_for(&ToSuccessor::DatagramsReleased);
    }
    take_rest();
    if has_waiting_applications {
        predecessor.wait_for_end();
        // This process may be ending.
        let _ = events.send(MainEvent::PredecessorEnded);
    }
}

/// Ends programs and applications, after the workers have ended.
fn end(running: &Mutex<RunningServer>) {
    let mut running = lock(running);
    running.handler_runtime.end();
    running.applications.end();
    if let Some(tier) = running.store.tier() {
        tier.finish_pending();
    }
}
