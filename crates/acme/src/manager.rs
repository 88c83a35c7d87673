//! The certificate manager: its public interface, and the state that its parts share.

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

/// An event for the callback, which updates the listeners and the log.
#[derive(Clone, Copy, Debug)]
pub enum AcmeEvent<'a> {
    /// Certificates or challenges have changed. Before the callback returns, it must make handshakes use the current
    /// output of `CertificateManager::add_to`.
    Changed,
    /// A line for the log, and its severity.
    Message(Severity, &'a str),
}

type EventCallback = Box<dyn Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync>;

/// Access to the certificates for the callback, which can run before `CertificateManager::start` has returned.
pub struct CertificateView(Arc<ManagerContext>);

/// Obtains certificates and renews them. Dropping the manager stops it; the certificates stay in the folder.
pub struct CertificateManager {
    shared: Arc<ManagerContext>,
    task: JoinHandle<()>,
}

/// The state shared by the manager, its tasks and its orders.
pub(crate) struct ManagerContext {
    pub settings: AcmeSettings,
    pub folder: AcmeFolder,
    pub tokens: ChallengeTokens,
    pub history: Arc<OrderHistory>,
    callback: EventCallback,
    /// Wakes the task runner (`tasks::run`).
    wake: Notify,
    /// Certificate files may have changed; the task runner must check them.
    files_changed: AtomicBool,
    /// A successor has replaced this manager.
    is_over: AtomicBool,
    /// The number of ended tasks; waiters for a certificate subscribe to it.
    ended: watch::Sender<u64>,
    inner: Mutex<ManagerState>,
    /// HTTP clients, by the index of their authority.
    clients: Mutex<Vec<Option<AcmeConnections>>>,
}

/// The state of a manager that is protected by its lock.
struct ManagerState {
    entries: BTreeMap<String, CertificateEntry>,
    /// The running task of each certificate, including tasks of certificates that are no longer wanted.
    busy: HashMap<String, EntryActivity>,
    /// Certificates for `tls-alpn-01`, by host name.
    challenges: HashMap<String, CertificatePair>,
    orders: SlidingWindow,
    /// Limits the new names requested on demand.
    demand_window: SlidingWindow,
    /// Names with refused requests: the second until which they are refused, and the reason.
    denied: HashMap<String, (u64, DemandRefusal)>,
}

impl CertificateManager {
    /// Reads the folder and starts a manager on `runtime`. The callback runs on the runtime's threads: it must be quick
    /// and must not call the manager, but may use the `CertificateView`. May block.
    ///
    /// # Errors
    /// The settings are invalid. An unusable folder is not an error, since the manager retries.
    pub fn start(
        settings: AcmeSettings,
        runtime: &Handle,
        callback: impl Fn(&CertificateView, AcmeEvent<'_>) + Send + Sync + 'static,
    ) -> Result<CertificateManager, AcmeProblem> {
        CertificateManager::start_with(settings, runtime, callback, None)
    }

    /// Starts a manager with other settings in place of `previous`. Certificates in use stay in use, even if their
    /// files are damaged; orders in progress are abandoned.
    ///
    /// # Errors
    /// As for `CertificateManager::start`; `previous` continues to run.
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
        // The previous manager ends after all checks, so that it continues if the settings are invalid.
        if let Some(previous) = previous {
            // The flag is set first, since the previous task can still call back until the abort takes effect.
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
        // Certificates in use are passed on, since their files may have been damaged in the meantime.
        let in_use = previous.map(|it| it.shared.in_use()).unwrap_or_default();
        shared.add_site_entries(sites, &in_use);
        shared.add_on_demand_entries(&in_use);
        let task = runtime.spawn(tasks::run(shared.clone()));
        Ok(CertificateManager { shared, task })
    }

    /// The responses for `http-01`, for the workers.
    pub fn tokens(&self) -> ChallengeTokens {
        self.shared.tokens.clone()
    }

    /// Adds all current certificates and challenges to `certificates`.
    pub fn add_to(&self, certificates: &mut CertificateMap) {
        self.shared.add_to(certificates);
    }

    /// The certificate with the first name `name`, for example for clients without SNI.
    pub fn pair(&self, name: &str) -> Option<CertificatePair> {
        self.shared.pair(name)
    }

    /// The state of each certificate, sorted by its first name.
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

    /// Counters and gauges, by name; see `docs/acme.md`.
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

    /// The paths of the certificate files.
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let inner = self.shared.inner();
        let keys = inner.entries.keys();
        keys.map(|key| self.shared.folder.certificate_file(key))
            .collect()
    }

    /// Requests a check of the certificate files. Otherwise they are checked once a minute.
    pub fn check_files(&self) {
        self.shared.request_file_check();
    }

    /// Sets the names of the wanted certificates after a reload. Files of certificates that are no longer wanted stay
    /// in the folder.
    ///
    /// # Errors
    /// As for `CertificateManager::start`; the names are unchanged.
    pub fn replace_sites(&self, sites: &[Vec<String>]) -> Result<(), AcmeProblem> {
        let sites = self.shared.settings.checked_sites(sites)?;
        self.shared.add_site_entries(sites, &self.shared.in_use());
        self.shared.changed();
        self.shared.request_file_check();
        Ok(())
    }

    /// Makes the renewal of the certificate with this name due, at the operator's request. An order in progress goes on;
    /// the limit of orders in an hour and the delays after failures of authorities apply. Returns whether the
    /// certificate exists.
    pub fn renew(&self, name: &str) -> bool {
        let now_s = self.shared.settings.clock.unix_s();
        let mut inner = self.shared.inner();
        let mut entries = inner.entries.values_mut();
        let has_name = |entry: &&mut CertificateEntry| entry.names.iter().any(|it| it == name);
        let Some(entry) = entries.find(has_name) else {
            return false;
        };
        // A renewal in progress is not repeated: the plan gets its result, and with it the next time.
        entry.plan.request_order(now_s);
        drop(inner);
        self.shared.wake.notify_one();
        true
    }

    /// Ends all delays after failures, at the operator's request.
    pub fn retry(&self) {
        for entry in self.shared.inner().entries.values_mut() {
            entry.plan.reset_failures();
        }
        // The task runner would otherwise sleep until its next known event.
        self.shared.wake.notify_one();
    }

    /// Requests a certificate for a name that a client requested, and waits for it. Concurrent calls for the same name
    /// share one order, which continues if the callers stop waiting.
    ///
    /// # Errors
    /// The reason for which there is no certificate.
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
        // The certificates of the successor must not be overwritten.
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
        // The flag is set before the wake-up, so that the woken task sees it.
        self.files_changed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Publishes the certificate for a `tls-alpn-01` challenge; `None` withdraws it.
    pub(crate) fn show_challenge(self: &Arc<Self>, name: &str, pair: Option<CertificatePair>) {
        let mut inner = self.inner();
        match pair {
            Some(pair) => inner.challenges.insert(name.into(), pair),
            None => inner.challenges.remove(name),
        };
        // The lock is released before the callback, which may take it through the view.
        drop(inner);
        self.changed();
    }

    /// The HTTP client for an authority.
    pub(crate) fn http(&self, authority_index: usize) -> Result<AcmeConnections, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // One client per authority, so that all orders share its connections.
        if let Some(http) = &clients[authority_index] {
            return Ok(http.clone());
        }
        let http =
            AcmeConnections::new(self.settings.authorities[authority_index].roots.as_deref())?;
        clients[authority_index] = Some(http.clone());
        Ok(http)
    }
}

/// A random fraction, to spread renewals and retries.
pub(crate) fn jitter() -> RenewalJitter {
    let mut bytes = [0; 4];
    // The error is ignored: without random bytes TLS does not work either.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    RenewalJitter(u32::from_le_bytes(bytes))
}
