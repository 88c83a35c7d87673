//! What the parts of a running server share: looked at by the admin socket, changed by a reload.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lowroad_config::Config;
use lowroad_engine::admission::Admission;
use lowroad_engine::counters::Counters;
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::mailbox::Mailbox;
use lowroad_engine::worker::{Worker, WorkerMessage};
use lowroad_log::{Logger, Sink};

use crate::answer::Web;
use crate::changes::Changes;
use crate::fetch::Fetcher;
use crate::listeners::Listeners;
use crate::programs::applications::Applications;
use crate::programs::build::Programs;
use crate::programs::modules::Catalog;
use crate::sites::Sites;
use crate::softirq::own::health::Health;
use crate::store::SharedStore;

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
    /// The programs of sites.
    pub programs: Programs,
    /// Their modules.
    pub modules: Catalog,
    /// What it keeps alive.
    pub applications: Applications,
    /// Word of all that changes answers.
    pub changes: Arc<Changes>,
    /// Stored answers.
    pub store: Arc<SharedStore>,
    /// Who loads them.
    pub fetcher: Arc<Fetcher>,
    /// The workers' mailboxes.
    pub workers: Vec<WorkerBox>,
    /// The workers' counters.
    pub counters: Vec<Arc<Counters>>,
    /// Open connections.
    pub admission: Arc<Admission>,
    /// The limit of descriptors.
    pub fd_limit: u64,
    /// The error log.
    pub logger: Logger,
    /// Ways into all logs, for what they lost.
    pub sinks: Vec<Sink>,
    /// How often it was told to read its configuration again.
    pub reloads: u64,
    /// How the level below is, if it is wanted.
    pub softirq: Option<Arc<Health>>,
    /// Since when it runs.
    pub started: Instant,
}

impl Running {
    /// Has the applications of the configuration in force kept alive.
    ///
    /// # Errors
    /// As [`Applications::keep`].
    pub fn keep_applications(&mut self) -> Result<(), String> {
        self.applications
            .keep(&self.config.applications, &self.logger)
    }

    /// Waits until they accept connections, or `is_over`. Blocks.
    pub fn wait_for_applications(&self, is_over: impl Fn() -> bool) {
        self.applications.wait(&self.logger, is_over);
    }
}

/// Locks what is shared. A thread beside the workers that panicked has left it as it was: a reload
/// puts nothing in force before all is there.
pub fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
