//! The shared state of a running server: admin operations read it, a reload changes it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lowroad_config::{ApplicationConfig, Config};
use lowroad_engine::counters::WorkerCounters;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::mailbox::WorkerMailbox;
use lowroad_engine::worker::{Worker, WorkerMessage};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_limits::ConnectionLimit;
use lowroad_log::{ErrorLogger, LineSink};
use lowroad_response_cache::handler_outcome::OutcomeWaiter;
use lowroad_routes::applications::{ApplicationChanges, ApplicationSet};
use lowroad_routes::route_builder::{HandlerRuntime, OpenedKinds};
use lowroad_site::cache_counters::CacheCounters;
use lowroad_site::decision::SiteService;
use lowroad_site::listeners::ListenerSet;
use lowroad_site::request_metrics::RequestMetrics;
use lowroad_site::sites::SiteTable;
use lowroad_site::url_sampler::SharedUrlTable;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_tls_listener::TlsListeners;
use lowroad_traces::SpanQueue;

use crate::changes_lock::ChangesLock;
use crate::deny_list::{DenyList, DenySwitch};
use crate::level::LevelHealth;
use crate::map_files::MapCounts;
use crate::reload::ReloadCounts;
use crate::start_settings::StartSettings;
use crate::upgrade::deny_forwarding::DenyForwarder;
use crate::upgrade::takeover_gate::TakeoverGate;

/// The mailbox of one worker.
pub type WorkerBox = WorkerMailbox<WorkerMessage<EpollDriver, SiteService>>;

/// Maximum memory of an idle connection in bytes: ten thousand of them are common.
const CONNECTION_LEN_MAX: usize = 128;
const _: () = assert!(Worker::<EpollDriver, SiteService>::CONNECTION_LEN <= CONNECTION_LEN_MAX);

/// The shared state of a running server.
pub struct RunningServer {
    /// The configuration in force.
    pub config: Config,
    /// The sites of the configuration.
    pub sites: Arc<SiteTable>,
    /// The listening sockets and their addresses.
    pub listeners: ListenerSet,
    /// Certificates and settings of the TLS listeners.
    pub tls: TlsListeners,
    /// The handlers' runtime: modules, CGI, FastCGI, origins.
    pub handler_runtime: HandlerRuntime,
    /// The handler kinds of the configuration.
    pub handlers: OpenedKinds,
    /// Supervised applications.
    pub applications: ApplicationSet,
    /// Notifies caches of changes to responses.
    pub changes: Arc<ChangeFeed>,
    /// The stored responses.
    pub store: Arc<SharedStore>,
    /// Loads files on helper threads.
    pub fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    /// The workers' mailboxes.
    pub workers: Vec<WorkerBox>,
    /// The workers' counters.
    pub counters: Vec<Arc<WorkerCounters>>,
    /// The workers' counters of cache use.
    pub cache_counters: Vec<Arc<CacheCounters>>,
    /// The workers' metrics of requests.
    pub request_metrics: Vec<Arc<RequestMetrics>>,
    /// The workers' frequent URLs.
    pub urls: Vec<SharedUrlTable>,
    /// Counts and limits open connections.
    pub admission: Arc<ConnectionLimit>,
    /// The client addresses that operators deny.
    pub deny: DenyList,
    /// Sends the deny list to the processes that this one has replaced.
    pub deny_forwarder: Option<Arc<DenyForwarder>>,
    /// The lock of the file of saved changes, if one is configured.
    pub changes_lock: Option<ChangesLock>,
    /// Opens when this process has taken over everything from its predecessor.
    pub takeover: Arc<TakeoverGate>,
    /// A successor is starting or has taken over. It does not know later changes by operators.
    pub is_handing_over: bool,
    /// The limit of descriptors (`RLIMIT_NOFILE`).
    pub fd_limit: u64,
    /// The error log.
    pub logger: ErrorLogger,
    /// Sinks of all logs, for their counts of lost lines.
    pub sinks: Vec<LineSink>,
    /// The number of failed rotations of binary logs.
    pub log_rotations_failed: Arc<AtomicU64>,
    /// The queue of spans, if traces are on.
    pub traces: Option<Arc<SpanQueue>>,
    /// The reloads since the start.
    pub reloads: ReloadCounts,
    /// The upgrades that have failed since the start.
    pub upgrades_failed: u64,
    /// The changes of map files since the start.
    pub map_counts: Arc<MapCounts>,
    /// The settings that only a start applies.
    pub start_settings: StartSettings,
    /// The state of the softirq level, if the level is configured.
    pub softirq: Option<Arc<dyn LevelHealth>>,
    /// Time of the start.
    pub started: Instant,
}

impl RunningServer {
    /// Puts the deny list in force: workers refuse its addresses and close their connections, and the softirq level drops
    /// them.
    pub fn switch_deny_list(&self) -> DenySwitch {
        if let Some(level) = &self.softirq {
            level.set_denied(&self.deny);
        }
        self.deny.post(&self.workers)
    }

    /// The number of processes that this one has replaced and that have not ended.
    pub fn draining_processes(&self) -> usize {
        let forwarder = self.deny_forwarder.as_ref();
        forwarder.map_or(0, |it| it.open_channels().len())
    }

    /// The addresses from which processes that this one has replaced receive datagrams.
    pub fn occupied_datagrams(&self) -> Vec<SocketAddr> {
        match self.draining_processes() {
            0 => Vec::new(),
            _ => self.listeners.occupied_datagrams().to_vec(),
        }
    }

    /// Takes the lock of the file of saved changes.
    pub fn lock_changes(&self) {
        let acquired = self.changes_lock.as_ref().map(ChangesLock::acquire);
        if let Some(Err(fault)) = acquired {
            self.logger.error(format_args!(
                "admin.changes: {fault}: --persist is refused until the file is free"
            ));
        }
    }
}

/// Starts and ends applications until exactly the wanted ones run. Waits until they accept connections, or `is_ending`
/// returns true. Blocks only the main thread, its caller; locks the shared state only briefly.
///
/// # Errors
/// As [`ApplicationSet::update`].
pub fn update_applications(
    running: &Mutex<RunningServer>,
    configs: &[ApplicationConfig],
    is_ending: impl Fn() -> bool,
) -> Result<ApplicationChanges, String> {
    // The applications are taken out of the shared state, so that the lock is not held while processes start.
    let (mut applications, logger) = {
        let mut running = lock(running);
        let applications = std::mem::take(&mut running.applications);
        (applications, running.logger.clone())
    };
    let changes = applications.update(configs, &logger);
    lock(running).applications = applications;
    let changes = changes?;
    changes.wait(&logger, is_ending);
    Ok(changes)
}

/// Locks the shared state. A poisoned lock is usable: a background thread that panicked leaves the state consistent,
/// and a reload changes it only after all steps that may fail.
pub fn lock(running: &Mutex<RunningServer>) -> MutexGuard<'_, RunningServer> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
