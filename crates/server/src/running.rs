//! What the parts of a running server share: looked at by the admin socket, changed by a reload.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lowroad_config::{Application, Config};
use lowroad_engine::counters::Counters;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::mailbox::Mailbox;
use lowroad_engine::worker::{Worker, WorkerMessage};
use lowroad_files::fetch::Fetcher;
use lowroad_limits::ConnectionLimit;
use lowroad_log::{Logger, Sink};
use lowroad_response_cache::outcome::Waiter;
use lowroad_routes::applications::{Applications, Changed};
use lowroad_routes::build::{OpenedKinds, Programs};
use lowroad_site::answer::Web;
use lowroad_site::cache_counters::CacheCounters;
use lowroad_site::listeners::Listeners;
use lowroad_site::sites::Sites;
use lowroad_store::SharedStore;
use lowroad_store::changes::Changes;
use lowroad_tls_listener::Tls;

use crate::level::LevelHealth;

/// A way to one worker.
pub type WorkerBox = Mailbox<WorkerMessage<EpollDriver, Web>>;

/// Bytes that an idle connection may take: ten thousand of them are nothing special.
const CONNECTION_LEN_MAX: usize = 128;
const _: () = assert!(Worker::<EpollDriver, Web>::CONNECTION_LEN <= CONNECTION_LEN_MAX);

/// What the parts of a running server share.
pub struct Running {
    /// The configuration in force.
    pub config: Config,
    /// Its sites.
    pub sites: Arc<Sites>,
    /// Where it listens.
    pub listeners: Listeners,
    /// What is offered where TLS is spoken.
    pub tls: Tls,
    /// The programs of sites.
    pub programs: Programs,
    /// The kinds of their handlers.
    pub handlers: OpenedKinds,
    /// What it keeps alive.
    pub applications: Applications,
    /// Word of all that changes answers.
    pub changes: Arc<Changes>,
    /// Stored answers.
    pub store: Arc<SharedStore>,
    /// Who loads them.
    pub fetcher: Arc<Fetcher<Waiter>>,
    /// The workers' mailboxes.
    pub workers: Vec<WorkerBox>,
    /// The workers' counters.
    pub counters: Vec<Arc<Counters>>,
    /// How the cache served the workers' requests.
    pub cache_counters: Vec<Arc<CacheCounters>>,
    /// Open connections.
    pub admission: Arc<ConnectionLimit>,
    /// The limit of descriptors.
    pub fd_limit: u64,
    /// The error log.
    pub logger: Logger,
    /// Ways into all logs, for what they lost.
    pub sinks: Vec<Sink>,
    /// How often it was told to read its configuration again.
    pub reloads: u64,
    /// How the level below is, if it is wanted.
    pub softirq: Option<LevelHealth>,
    /// Since when it runs.
    pub started: Instant,
}

/// Has these applications kept alive, and no others, and waits until they accept connections, or `is_over`. Blocks, but
/// nobody else: what is shared is locked for moments. To be called by the main thread alone.
///
/// # Errors
/// As [`Applications::keep`].
pub fn keep_applications(
    running: &Mutex<Running>,
    wanted: &[Application],
    is_over: impl Fn() -> bool,
) -> Result<Changed, String> {
    let (mut applications, logger) = {
        let mut running = lock(running);
        let applications = std::mem::take(&mut running.applications);
        (applications, running.logger.clone())
    };
    let changed = applications.keep(wanted, &logger);
    lock(running).applications = applications;
    let changed = changed?;
    changed.wait(&logger, is_over);
    Ok(changed)
}

/// Locks what is shared. A thread beside the workers that panicked has left it as it was: a reload
/// puts nothing in force before all is there.
pub fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
