//! The manager: its interface, and the state that its parts share.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_limits::SlidingWindow;
use lowroad_tls::certificates::{CertificateMap, CertificatePair};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

mod demand;
mod effects;
mod entry;
mod file_check;
mod history;
mod load;
mod outcomes;
mod tasks;

pub use demand::DemandRefusal;
use entry::{CertificateEntry, EntryActivity};
use history::OrderHistory;

use crate::authority_client::AcmeConnections;
use crate::folder::AcmeFolder;
use crate::name;
use crate::plan::{LifetimeStage, RenewalJitter};
use crate::settings::{AcmeProblem, AcmeSettings};
use crate::severity::Severity;
use crate::state::CertificateState;
use crate::tokens::ChallengeTokens;

const HOUR_S: u64 = 3600;
const MINUTE_S: u64 = 60;

/// An event for listeners and the log.
#[derive(Clone, Copy, Debug)]
pub enum AcmeEvent<'a> {
    /// Certificates or challenges have changed: when the callback returns, handshakes must use the current output of
    /// `CertificateManager::add_to`.
    Changed,
    /// A line for the log.
    Message(Severity, &'a str),
}

type EventCallback = Box<dyn Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync>;

/// Access to the certificates for a callback that has no manager yet.
pub struct CertificateView(Arc<ManagerContext>);

/// Obtains certificates and renews them. Dropping it stops it; its certificates stay in the folder.
pub struct CertificateManager {
    shared: Arc<ManagerContext>,
    task: JoinHandle<()>,
}

/// The context shared by orders, tasks and callers.
pub(crate) struct ManagerContext {
    pub settings: AcmeSettings,
    pub folder: AcmeFolder,
    pub tokens: ChallengeTokens,
    pub history: Arc<OrderHistory>,
    callback: EventCallback,
    /// Wakes the task runner.
    wake: Notify,
    /// Files of certificates may have changed.
    files_changed: AtomicBool,
    /// A successor has replaced this manager.
    is_over: AtomicBool,
    /// Counts the tasks that have ended.
    ended: watch::Sender<u64>,
    inner: Mutex<ManagerState>,
    /// By the authority's index.
    clients: Mutex<Vec<Option<AcmeConnections>>>,
}

/// The mutable state.
struct ManagerState {
    entries: BTreeMap<String, CertificateEntry>,
    /// The running task of each certificate, also of those that are no longer wanted.
    busy: HashMap<String, EntryActivity>,
    /// Certificates for `tls-alpn-01`, by name.
    challenges: HashMap<String, CertificatePair>,
    orders: SlidingWindow,
    /// Names requested on demand.
    demand_window: SlidingWindow,
    /// Refused names: not requested again before this second, and the reason.
    denied: HashMap<String, (u64, DemandRefusal)>,
}

impl CertificateManager {
    /// Reads the folder, and starts on a runtime. The callback runs on the runtime's threads: it must be quick, and
    /// must not call the manager, but may use the `CertificateView`. May block while it reads.
    ///
    /// # Errors
    /// The settings are invalid. An unusable folder is no error, since it is tried again.
    pub fn start(
        settings: AcmeSettings,
        runtime: &Handle,
        callback: impl Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync + 'static,
    ) -> Result<CertificateManager, AcmeProblem> {
        CertificateManager::start_with(settings, runtime, callback, None)
    }

    /// Replaces another manager, with other settings. Certificates in use stay in use, even if their files are damaged;
    /// orders in progress are abandoned.
    ///
    /// # Errors
    /// As with `CertificateManager::start`; the other manager continues.
    pub fn succeed(
        previous: &CertificateManager,
        settings: AcmeSettings,
        runtime: &Handle,
        callback: impl Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync + 'static,
    ) -> Result<CertificateManager, AcmeProblem> {
        CertificateManager::start_with(settings, runtime, callback, Some(previous))
    }

    fn start_with(
        settings: AcmeSettings,
        runtime: &Handle,
        callback: impl Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync + 'static,
        previous: Option<&CertificateManager>,
    ) -> Result<CertificateManager, AcmeProblem> {
        settings.check()?;
        let sites = settings.checked_sites(&settings.sites)?;
        let per_minute_max = settings
            .on_demand
            .as_ref()
            .map_or(0, |demand| demand.per_minute_max);
        // After all checks, so that invalid settings leave the previous manager running.
        if let Some(previous) = previous {
            // The flag comes first, since the old task may still call back until the abort takes effect.
            previous.shared.is_over.store(true, Ordering::Relaxed);
            previous.task.abort();
        }
        let shared = Arc::new(ManagerContext {
            folder: AcmeFolder::new(&settings.folder),
            tokens: ChallengeTokens::default(),
            history: previous
                .map(|it| it.shared.history.clone())
                .unwrap_or_default(),
            callback: Box::new(callback),
            wake: Notify::new(),
            files_changed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            ended: watch::Sender::new(0),
            inner: Mutex::new(ManagerState {
                entries: BTreeMap::new(),
                busy: HashMap::new(),
                challenges: HashMap::new(),
                orders: SlidingWindow::new(settings.orders_per_hour_max, HOUR_S),
                demand_window: SlidingWindow::new(per_minute_max, MINUTE_S),
                denied: HashMap::new(),
            }),
            clients: Mutex::new(vec![None; settings.authorities.len()]),
            settings,
        });
        // A certificate in use is passed on, since its file may have been damaged meanwhile.
        let in_use = previous.map(|it| it.shared.in_use()).unwrap_or_default();
        shared.add_site_entries(sites, &in_use);
        shared.add_on_demand_entries(&in_use);
        let task = runtime.spawn(tasks::run(shared.clone()));
        Ok(CertificateManager { shared, task })
    }

    /// The workers' responses for `http-01`.
    pub fn tokens(&self) -> ChallengeTokens {
        self.shared.tokens.clone()
    }

    /// Adds all current certificates and challenges.
    pub fn add_to(&self, certificates: &mut CertificateMap) {
        self.shared.add_to(certificates);
    }

    /// The certificate of this key (its first name), for example for clients without SNI.
    pub fn pair(&self, name: &str) -> Option<CertificatePair> {
        self.shared.pair(name)
    }

    /// The state of each certificate, by name.
    pub fn state(&self) -> Vec<CertificateState> {
        let now_s = self.shared.settings.clock.unix_s();
        let inner = self.shared.inner();
        let entries = inner.entries.values();
        let state = |entry: &CertificateEntry| {
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
    pub fn replace_sites(&self, sites: &[Vec<String>]) -> Result<(), AcmeProblem> {
        let sites = self.shared.settings.checked_sites(sites)?;
        self.shared.add_site_entries(sites, &self.shared.in_use());
        self.shared.changed();
        self.shared.request_file_check();
        Ok(())
    }

    /// Ends all waits after failures, at the operator's request.
    pub fn retry(&self) {
        for entry in self.shared.inner().entries.values_mut() {
            entry.plan.reset_failures();
        }
        // The runner sleeps until its next known event.
        self.shared.wake.notify_one();
    }

    /// Requests a certificate for a client's name, and returns when there is one. Concurrent calls for a name share one
    /// order. If the caller stops waiting, the order continues.
    ///
    /// # Errors
    /// `DemandRefusal`
    pub async fn on_demand(&self, name: &str) -> Result<(), DemandRefusal> {
        demand::get(&self.shared, name).await
    }
}

impl Drop for CertificateManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CertificateView {
    /// See `CertificateManager::add_to`.
    pub fn add_to(&self, certificates: &mut CertificateMap) {
        self.0.add_to(certificates);
    }

    /// See `CertificateManager::pair`.
    pub fn pair(&self, name: &str) -> Option<CertificatePair> {
        self.0.pair(name)
    }
}

impl ManagerContext {
    fn inner(&self) -> MutexGuard<'_, ManagerState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_to(&self, certificates: &mut CertificateMap) {
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

    fn pair(&self, name: &str) -> Option<CertificatePair> {
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
        (self.callback)(&CertificateView(self.clone()), AcmeEvent::Changed);
    }

    pub(crate) fn log(self: &Arc<Self>, severity: Severity, line: &str) {
        (self.callback)(
            &CertificateView(self.clone()),
            AcmeEvent::Message(severity, line),
        );
    }

    fn request_file_check(&self) {
        // The flag comes before the wake-up, so that the woken runner sees it.
        self.files_changed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Publishes a certificate of `tls-alpn-01`, or withdraws it.
    pub(crate) fn show_challenge(self: &Arc<Self>, name: &str, pair: Option<CertificatePair>) {
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
    pub(crate) fn http(&self, authority_index: usize) -> Result<AcmeConnections, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // One client for each authority, so that all orders share its connections.
        if let Some(http) = &clients[authority_index] {
            return Ok(http.clone());
        }
        let http =
            AcmeConnections::new(self.settings.authorities[authority_index].roots.as_deref())?;
        clients[authority_index] = Some(http.clone());
        Ok(http)
    }
}

/// A random jitter.
pub(crate) fn jitter() -> RenewalJitter {
    let mut bytes = [0; 4];
    // Without a random source TLS does not work either.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    RenewalJitter(u32::from_le_bytes(bytes))
}
