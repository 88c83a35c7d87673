//! Automatic certificates (ACME): runs the manager of [`lowroad_acme`], which obtains and renews certificates, and
//! updates the endpoints when certificates change. The manager continues across reloads. `certificates` assigns
//! certificates to addresses.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use lowroad_acme::{
    AcmeEvent, AcmeSettings, AuthoritySettings, CertificateManager, CertificateState,
    CertificateView, ChallengeMethod, ChallengeTokens, DnsHook, ExternalAccount, OnDemandSettings,
    RenewalStep, Severity,
};
use lowroad_config::{self as config, AcmeChallenge, AcmeConfig, Config, ExternalKey, SiteName};
use lowroad_engine::panic_policy;
use lowroad_log::{ErrorLogger, LogLevel};
use lowroad_privileges::helper;
use lowroad_store::watch::{FolderWatcher, PathWatch};
use lowroad_tls::certificates::{CertificateMap, CertificatePair};
use tokio::runtime::Handle;

use super::TlsContext;
use crate::certificate_status::CertificateStatus;

/// Time limit for starting the tokio runtime.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// After a file check, the next one follows at the earliest after this many times its duration.
const CHECK_PAUSE_FACTOR: u32 = 20;

/// The state of automatic certificates. One per process.
#[derive(Default)]
pub struct AutomaticTls {
    running: Mutex<Option<AcmeRuntime>>,
    tokens: RwLock<Option<ChallengeTokens>>,
    /// The listeners of the current configuration.
    current: Mutex<Weak<TlsContext>>,
    file_watch: Mutex<FileWatch>,
    /// The runtime of the current manager and its successors; started with the first manager.
    runtime: OnceLock<Handle>,
}

/// Watches certificate files for changes since the last check.
#[derive(Default)]
enum FileWatch {
    /// The watch must be created.
    #[default]
    Missing,
    /// The watch, and the earliest time of the next file check.
    Active(PathWatch, Instant),
    /// Watching the files has failed.
    Impossible,
}

struct AcmeRuntime {
    acme: AcmeConfig,
    manager: Arc<CertificateManager>,
}

/// A source of certificates other than files.
pub trait CertificateSource {
    /// Adds all certificates and challenges to `certificates`.
    fn add_to(&self, certificates: &mut CertificateMap);
    /// The certificate with the first name `name`.
    fn pair(&self, name: &str) -> Option<CertificatePair>;
}

impl CertificateSource for CertificateView {
    fn add_to(&self, certificates: &mut CertificateMap) {
        CertificateView::add_to(self, certificates);
    }

    fn pair(&self, name: &str) -> Option<CertificatePair> {
        CertificateView::pair(self, name)
    }
}

impl CertificateSource for CertificateManager {
    fn add_to(&self, certificates: &mut CertificateMap) {
        CertificateManager::add_to(self, certificates);
    }

    fn pair(&self, name: &str) -> Option<CertificatePair> {
        CertificateManager::pair(self, name)
    }
}

impl AutomaticTls {
    /// The current manager; `None` if no certificates are managed.
    pub fn source(&self) -> Option<Arc<CertificateManager>> {
        self.running()
            .as_ref()
            .map(|running| running.manager.clone())
    }

    /// Applies the settings of the configuration that is now in use. Must be called after root privileges were dropped,
    /// since the files that it creates must belong to the server's user.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn apply_config(
        self: &Arc<Self>,
        config: &Config,
        offers: &Arc<TlsContext>,
        logger: &ErrorLogger,
    ) -> Result<(), String> {
        // `current` is set first, so that certificate changes during the following steps reach the new endpoints.
        *lock(&self.current) = Arc::downgrade(offers);
        let sites = automatic_names(config);
        // Without site names there is nothing to order, except on demand for the names that clients request.
        let Some(acme) = config
            .acme
            .as_ref()
            .filter(|it| !sites.is_empty() || it.on_demand.is_some())
        else {
            // Dropping the manager cancels its tasks; the certificates stay on disk.
            *self.running() = None;
            *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(());
        };
        let mut running = self.running();
        match running.as_ref().filter(|running| running.acme == *acme) {
            // At most the sites have changed, so orders in progress continue.
            Some(running) => {
                let replaced = running.manager.replace_sites(&sites);
                replaced.map_err(|problem| format!("acme: {problem}"))?;
            }
            None => {
                // Other settings require a new manager, which takes over the certificates in use.
                let previous = running.as_ref().map(|running| running.manager.clone());
                *running = Some(self.start(acme, sites, logger, previous.as_deref())?);
            }
        }
        let manager = running.as_ref().map(|running| running.manager.clone());
        drop(running);
        // The set of certificate files may have changed.
        *lock(&self.file_watch) = FileWatch::Missing;
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) =
            manager.as_ref().map(|manager| manager.tokens());
        if let Some(manager) = manager {
            offers.publish(Some(&*manager));
        }
        Ok(())
    }

    fn start(
        self: &Arc<Self>,
        acme: &AcmeConfig,
        sites: Vec<Vec<String>>,
        logger: &ErrorLogger,
        previous: Option<&CertificateManager>,
    ) -> Result<AcmeRuntime, String> {
        let settings = settings(acme, sites)?;
        let runtime = self.runtime()?;
        // A weak reference, to avoid a cycle: this value owns the manager, which owns the callback.
        let (weak_self, logger) = (Arc::downgrade(self), logger.clone());
        let on_event = move |view: &CertificateView, event: AcmeEvent<'_>| match event {
            AcmeEvent::Message(severity, text) => {
                logger.log(level(severity), format_args!("certificates: {text}"));
            }
            AcmeEvent::Changed => {
                let offers = weak_self
                    .upgrade()
                    .and_then(|automatic| lock(&automatic.current).upgrade());
                if let Some(offers) = offers {
                    offers.publish(Some(view));
                }
            }
        };
        let manager = match previous {
            Some(previous) => CertificateManager::succeed(previous, settings, runtime, on_event),
            None => CertificateManager::start(settings, runtime, on_event),
        };
        Ok(AcmeRuntime {
            acme: acme.clone(),
            manager: Arc::new(manager.map_err(|problem| format!("acme: {problem}"))?),
        })
    }

    /// Lets the manager check certificate files if they have changed since the last call: another process may have
    /// replaced them, and damaged files are restored. Without a watch the manager checks them itself, less often.
    pub fn follow(&self, watcher: Option<&FolderWatcher>) {
        let mut watch = lock(&self.file_watch);
        let (Some(watcher), Some(manager)) = (watcher, self.source()) else {
            // The next call, in a minute, tries again.
            if matches!(*watch, FileWatch::Impossible) {
                *watch = FileWatch::Missing;
            }
            return;
        };
        match &*watch {
            FileWatch::Missing => {}
            // The pause bounds the cost if files change constantly.
            FileWatch::Active(watch, next) if !watch.is_unchanged() && Instant::now() >= *next => {}
            FileWatch::Active(..) | FileWatch::Impossible => return,
        }
        let started = Instant::now();
        // The watch is created before the files are checked, so that a change in between triggers the next check.
        *watch = match PathWatch::new(watcher, manager.certificate_files()) {
            Some(watch) => {
                // In a folder shared with other programs, unrelated files may change constantly.
                let pause = started.elapsed() * CHECK_PAUSE_FACTOR;
                FileWatch::Active(watch, Instant::now() + pause)
            }
            None => FileWatch::Impossible,
        };
        manager.check_files();
    }

    /// Counters and gauges, by name.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let manager = self.source();
        manager.map(|manager| manager.counts()).unwrap_or_default()
    }

    /// The response to a validation request below `/.well-known/acme-challenge/`.
    pub fn challenge(&self, token: &str) -> Option<Arc<str>> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.as_ref()?.find(token)
    }

    /// Requests a certificate for a name that a client requested and that has none; the client's next attempt can
    /// succeed.
    pub fn request_on_demand(&self, name: &str) {
        let running = self.running();
        let Some(running) = running.as_ref().filter(|it| it.acme.on_demand.is_some()) else {
            return;
        };
        let (manager, name) = (running.manager.clone(), name.to_owned());
        // Without a runtime there is no manager that could order.
        let Some(runtime) = self.runtime.get() else {
            return;
        };
        runtime.spawn(async move {
            // The manager logs failures itself.
            let _ = manager.on_demand(&name).await;
        });
    }

    /// The state of each certificate, as text.
    pub fn texts(&self) -> Vec<String> {
        let states = self.states().into_iter();
        states.map(|state| state.to_string()).collect()
    }

    /// The state of each certificate, for metrics.
    pub fn certificates(&self) -> Vec<CertificateStatus> {
        let states = self.states().into_iter();
        let statuses = states.map(|state| CertificateStatus {
            names: state.names.join(" "),
            source: "acme".into(),
            not_after_s: state.not_after_s,
            renewal_s: match state.next {
                RenewalStep::Ordering => Some(state.now_s),
                RenewalStep::Order(at_s) => Some(at_s),
            },
            last_error: state.last_error.map(|error| error.text),
        });
        statuses.collect()
    }

    /// Makes the renewal of the certificate with this name due. Returns whether there is such a certificate.
    pub fn renew(&self, name: &str) -> bool {
        self.source().is_some_and(|manager| manager.renew(name))
    }

    fn states(&self) -> Vec<CertificateState> {
        let states = self.source().map(|manager| manager.state());
        states.unwrap_or_default()
    }

    fn runtime(&self) -> Result<&Handle, String> {
        if self.runtime.get().is_none() {
            // Configurations are applied one at a time, so no other thread sets the runtime concurrently.
            let _ = self.runtime.set(runtime()?);
        }
        self.runtime
            .get()
            .ok_or_else(|| "acme: the runtime has not started".into())
    }

    fn running(&self) -> MutexGuard<'_, Option<AcmeRuntime>> {
        lock(&self.running)
    }
}

fn level(severity: Severity) -> LogLevel {
    match severity {
        Severity::Info => LogLevel::Info,
        Severity::Warning => LogLevel::Warn,
        Severity::Error => LogLevel::Error,
    }
}

/// The names of each certificate to be obtained: one list per site with automatic TLS.
pub fn automatic_names(config: &Config) -> Vec<Vec<String>> {
    let is_automatic =
        |site: &&config::SiteConfig| site.tls.as_ref().is_some_and(|tls| tls.automatic);
    let names = |site: &config::SiteConfig| -> Vec<String> {
        let names = site.names.iter().filter_map(|name| match name {
            SiteName::Exact(host) => Some(host.clone()),
            SiteName::Wildcard(host) => Some(format!("*.{host}")),
            // The default site has no name that an authority could validate.
            SiteName::Default => None,
        });
        names.collect()
    };
    let sites = config.sites.iter().filter(is_automatic).map(names);
    sites.filter(|names| !names.is_empty()).collect()
}

/// Converts the configuration to settings of the ACME manager.
pub fn settings(acme: &AcmeConfig, sites: Vec<Vec<String>>) -> Result<AcmeSettings, String> {
    let mut settings = AcmeSettings::new(&acme.folder);
    settings.terms_agreed = acme.terms_agreed;
    settings.contact = acme.contact.clone();
    settings.sites = sites;
    settings.orders_per_hour_max = usize::try_from(acme.orders_per_hour).unwrap_or(usize::MAX);
    settings.challenge = match &acme.challenge {
        AcmeChallenge::Http01 => ChallengeMethod::Http01,
        AcmeChallenge::TlsAlpn01 => ChallengeMethod::TlsAlpn01,
        AcmeChallenge::Dns01 { hook, timeout_ms } => ChallengeMethod::Dns01(DnsHook {
            command: hook.clone(),
            timeout_s: timeout_ms / 1000,
        }),
    };
    settings.authorities = acme
        .authorities
        .iter()
        .map(authority)
        .collect::<Result<_, _>>()?;
    settings.on_demand = acme.on_demand.as_ref().map(|demand| OnDemandSettings {
        per_minute_max: usize::try_from(demand.per_minute).unwrap_or(usize::MAX),
        names_max: usize::try_from(demand.names_max).unwrap_or(usize::MAX),
        ..OnDemandSettings::new(demand.ask.clone())
    });
    Ok(settings)
}

fn authority(named: &config::AcmeAuthority) -> Result<AuthoritySettings, String> {
    let external = named.external.as_ref().map(|(key_id, key)| {
        let key = match key {
            ExternalKey::Text(text) => text.expose().to_owned(),
            ExternalKey::File(file) => helper::open(file)
                .and_then(std::io::read_to_string)
                .map_err(|error| format!("acme: {}: {error}", file.display()))?,
        };
        Ok::<_, String>(ExternalAccount {
            key_id: key_id.clone(),
            key: key.trim().to_owned(),
        })
    });
    Ok(AuthoritySettings {
        directory: named.directory.clone(),
        external_account: external.transpose()?,
        profile: named.profile.clone(),
        roots: named.roots.clone(),
    })
}

/// Starts a tokio runtime on a separate thread, since its tasks can wait for days.
fn runtime() -> Result<Handle, String> {
    let text = |error: std::io::Error| format!("acme: can't start: {error}");
    let (sender, receiver) = std::sync::mpsc::channel();
    panic_policy::start("acme", move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => {
                let _ = sender.send(Ok(runtime.handle().clone()));
                runtime.block_on(std::future::pending::<()>());
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    })
    .map_err(text)?;
    let result = receiver.recv_timeout(START_TIMEOUT);
    result
        .map_err(|_| "acme: the runtime did not start in time".to_owned())?
        .map_err(text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
