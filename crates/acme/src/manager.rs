//! The manager: its interface, and the state that its parts share.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::SlidingWindow;
use lowroad_tls::certificates::{Certificates, Pair};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

mod apply;
mod demand;
mod entry;
mod file_check;
mod history;
mod load;
mod note;
mod run;

pub use demand::Denied;
use entry::{Busy, Entry};
use history::OrderHistory;

use crate::folder::Folder;
use crate::http::Http;
use crate::name;
use crate::plan::{Jitter, LifetimeStage};
use crate::settings::{Problem, Settings};
use crate::severity::Severity;
use crate::state::State;
use crate::tokens::Tokens;

const HOUR_S: u64 = 3600;
const MINUTE_S: u64 = 60;

/// An event for listeners and the log.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Certificates or challenges have changed: when the callback returns, handshakes must use the current output of
    /// `CertificateManager::add_to`.
    Changed,
    /// A line for the log.
    Message(Severity, &'a str),
}

type Callback = Box<dyn Fn(&View, Event<'_>) + Send + Sync>;

/// Access to the certificates for a callback that has no manager yet.
pub struct View(Arc<Shared>);

/// Obtains certificates and renews them. Dropping it stops it; its certificates stay in the folder.
pub struct Manager {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// The context shared by orders, tasks and callers.
pub(crate) struct Shared {
    pub settings: Settings,
    pub folder: Folder,
    pub tokens: Tokens,
    pub history: Arc<OrderHistory>,
    callback: Callback,
    /// Wakes the task runner.
    wake: Notify,
    /// Files of certificates may have changed.
    files_changed: AtomicBool,
    /// A successor has replaced this manager.
    is_over: AtomicBool,
    /// Counts the tasks that have ended.
    ended: watch::Sender<u64>,
    inner: Mutex<Inner>,
    /// By the authority's index.
    clients: Mutex<Vec<Option<Http>>>,
}

/// The mutable state.
struct Inner {
    entries: BTreeMap<String, Entry>,
    /// The running task of each certificate, also of those that are no longer wanted.
    busy: HashMap<String, Busy>,
    /// Certificates for `tls-alpn-01`, by name.
    challenges: HashMap<String, Pair>,
    orders: SlidingWindow,
    /// Names requested on demand.
    asked: SlidingWindow,
    /// Refused names: not requested again before this second, and the reason.
    denied: HashMap<String, (u64, Denied)>,
}

impl Manager {
    /// Reads the folder, and starts on a runtime. The callback runs on the runtime's threads: it must be quick, and
    /// must not call the manager, but may use the `CertificateView`. May block while it reads.
    ///
    /// # Errors
    /// The settings are invalid. An unusable folder is no error, since it is tried again.
    pub fn start(
        settings: Settings,
        runtime: &Handle,
        callback: impl Fn(&View, Event<'_>) + Send + Sync + 'static,
    ) -> Result<Manager, Problem> {
        Manager::start_with(settings, runtime, callback, None)
    }

    /// Replaces another manager, with other settings. Certificates in use stay in use, even if their files are damaged;
    /// orders in progress are abandoned.
    ///
    /// # Errors
    /// As with `CertificateManager::start`; the other manager continues.
    pub fn succeed(
        previous: &Manager,
        settings: Settings,
        runtime: &Handle,
        callback: impl Fn(&View, Event<'_>) + Send + Sync + 'static,
    ) -> Result<Manager, Problem> {
        Manager::start_with(settings, runtime, callback, Some(previous))
    }

    fn start_with(
        settings: Settings,
        runtime: &Handle,
        callback: impl Fn(&View, Event<'_>) + Send + Sync + 'static,
        previous: Option<&Manager>,
    ) -> Result<Manager, Problem> {
        settings.check()?;
        let sites = settings.checked_sites(&settings.sites)?;
        let per_minute_max = settings
            .on_demand
            .as_ref()
            .map_or(0, |demand| demand.per_minute_max);
        // After all checks, so that invalid settings leave the previous manager running.
        if let Some(previous) = previous {
            previous.shared.is_over.store(true, Ordering::Relaxed);
            previous.task.abort();
        }
        let shared = Arc::new(Shared {
            folder: Folder::new(&settings.folder),
            tokens: Tokens::default(),
            history: previous
                .map(|it| it.shared.history.clone())
                .unwrap_or_default(),
            callback: Box::new(callback),
            wake: Notify::new(),
            files_changed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            ended: watch::Sender::new(0),
            inner: Mutex::new(Inner {
                entries: BTreeMap::new(),
                busy: HashMap::new(),
                challenges: HashMap::new(),
                orders: SlidingWindow::new(settings.orders_per_hour_max, HOUR_S),
                asked: SlidingWindow::new(per_minute_max, MINUTE_S),
                denied: HashMap::new(),
            }),
            clients: Mutex::new(vec![None; settings.authorities.len()]),
            settings,
        });
        let in_use = previous.map(|it| it.shared.in_use()).unwrap_or_default();
        shared.take_sites(sites, &in_use);
        shared.take_asked_before(&in_use);
        let task = runtime.spawn(run::run(shared.clone()));
        Ok(Manager { shared, task })
    }

    /// The workers' responses for `http-01`.
    pub fn tokens(&self) -> Tokens {
        self.shared.tokens.clone()
    }

    /// Adds all current certificates and challenges.
    pub fn add_to(&self, certificates: &mut Certificates) {
        self.shared.add_to(certificates);
    }

    /// The certificate of this key (its first name), for example for clients without SNI.
    pub fn pair(&self, name: &str) -> Option<Pair> {
        self.shared.pair(name)
    }

    /// The state of each certificate, by name.
    pub fn state(&self) -> Vec<State> {
        let now_s = self.shared.settings.clock.unix_s();
        let inner = self.shared.inner();
        let entries = inner.entries.values();
        let state = |entry: &Entry| {
            let busy = inner.busy.get(entry.name()).copied();
            entry.state(busy, &self.shared.settings, now_s)
        };
        entries.map(state).collect()
    }

    /// Counters and gauges by name: see `docs/acme.md`.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let now_s = self.shared.settings.clock.unix_s();
        let (mut valid, mut missing, mut expiring, mut expired) = (0, 0, 0, 0);
        for entry in self.shared.inner().entries.values() {
            *match entry.stage(now_s) {
                Some(LifetimeStage::Valid) => &mut valid,
                Some(LifetimeStage::Expiring) => &mut expiring,
                Some(LifetimeStage::Expired) => &mut expired,
                None => &mut missing,
            } += 1;
        }
        let gauges = [
            ("acme.valid", valid),
            ("acme.expiring", expiring),
            ("acme.expired", expired),
            ("acme.missing", missing),
        ];
        let counters = self.shared.history.counters.list();
        gauges.into_iter().chain(counters).collect()
    }

    /// The files of the certificates in use.
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let inner = self.shared.inner();
        let keys = inner.entries.keys();
        keys.map(|key| self.shared.folder.certificate_file(key))
            .collect()
    }

    /// Requests a check of the certificates' files. Without it they are checked once a minute.
    pub fn check_files(&self) {
        self.shared.request_file_check();
    }

    /// Sets the wanted names, as after a reload. Certificates that are no longer wanted stay in the folder.
    ///
    /// # Errors
    /// As with `CertificateManager::start`; the names are unchanged.
    pub fn replace_sites(&self, sites: &[Vec<String>]) -> Result<(), Problem> {
        let sites = self.shared.settings.checked_sites(sites)?;
        self.shared.take_sites(sites, &self.shared.in_use());
        self.shared.changed();
        self.shared.request_file_check();
        Ok(())
    }

    /// Ends all waits after failures, at the operator's request.
    pub fn retry(&self) {
        for entry in self.shared.inner().entries.values_mut() {
            entry.plan.forgive();
        }
        // The runner sleeps until its next known event.
        self.shared.wake.notify_one();
    }

    /// Requests a certificate for a client's name, and returns when there is one. Concurrent calls for a name share one
    /// order. If the caller stops waiting, the order continues.
    ///
    /// # Errors
    /// `DemandRefusal`
    pub async fn on_demand(&self, name: &str) -> Result<(), Denied> {
        demand::get(&self.shared, name).await
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl View {
    /// See `CertificateManager::add_to`.
    pub fn add_to(&self, certificates: &mut Certificates) {
        self.0.add_to(certificates);
    }

    /// See `CertificateManager::pair`.
    pub fn pair(&self, name: &str) -> Option<Pair> {
        self.0.pair(name)
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_to(&self, certificates: &mut Certificates) {
        let inner = self.inner();
        for issued in inner
            .entries
            .values()
            .filter_map(|entry| entry.issued.as_ref())
        {
            certificates.add(&issued.pair);
        }
        for (name, pair) in &inner.challenges {
            certificates.add_challenge(name, pair);
        }
    }

    fn pair(&self, name: &str) -> Option<Pair> {
        let name = name::check(name).ok()?;
        let inner = self.inner();
        let issued = inner.entries.get(&name)?.issued.as_ref()?;
        Some(issued.pair.clone())
    }

    fn changed(self: &Arc<Self>) {
        // A successor's certificates must not be overwritten.
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        (self.callback)(&View(self.clone()), Event::Changed);
    }

    pub(crate) fn log(self: &Arc<Self>, severity: Severity, line: &str) {
        (self.callback)(&View(self.clone()), Event::Message(severity, line));
    }

    fn request_file_check(&self) {
        self.files_changed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Publishes a certificate of `tls-alpn-01`, or withdraws it.
    pub(crate) fn show_challenge(self: &Arc<Self>, name: &str, pair: Option<Pair>) {
        let mut inner = self.inner();
        match pair {
            Some(pair) => inner.challenges.insert(name.into(), pair),
            None => inner.challenges.remove(name),
        };
        // Released before the callback, which may take the lock through the view.
        drop(inner);
        self.changed();
    }

    /// The client for an authority.
    pub(crate) fn http(&self, place: usize) -> Result<Http, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(http) = &clients[place] {
            return Ok(http.clone());
        }
        let http = Http::new(self.settings.authorities[place].roots.as_deref())?;
        clients[place] = Some(http.clone());
        Ok(http)
    }
}

/// A random jitter.
pub(crate) fn jitter() -> Jitter {
    let mut bytes = [0; 4];
    // Without a random source TLS does not work either.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    Jitter(u32::from_le_bytes(bytes))
}
