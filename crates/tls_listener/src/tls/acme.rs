//! Automatic certificates (ACME): the manager that obtains and renews them outlives configurations, and reports
//! changes. [`lowroad_acme`] obtains them; `certificates` assigns them to addresses.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use lowroad_acme::{
    AcmeEvent, AcmeSettings, AuthoritySettings, CertificateManager, CertificateState,
    CertificateView, ChallengeMethod, ChallengeTokens, DnsHook, ExternalAccount, OnDemandSettings,
    RenewalStep, Severity,
};
use lowroad_config::{self as config, AcmeChallenge, AcmeConfig, Config, SiteName};
use lowroad_engine::panic_policy;
use lowroad_log::{ErrorLogger, LogLevel};
use lowroad_privileges::helper;
use lowroad_store::watch::{FolderWatcher, PathWatch};
use lowroad_tls::certificates::{CertificateMap, CertificatePair};
use tokio::runtime::Handle;

use super::TlsContext;
use crate::certificate_status::CertificateStatus;

/// Time limit for starting the runtime.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two checks of files is at least this many times the duration of a check.
const LOOK_PAUSE: u32 = 20;

/// The state of automatic certificates. One per process.
#[derive(Default)]
pub struct AutomaticTls {
    running: Mutex<Option<AcmeRuntime>>,
    tokens: RwLock<Option<ChallengeTokens>>,
    /// The context with the endpoints in force.
    current: Mutex<Weak<TlsContext>>,
    file_watch: Mutex<FileWatch>,
    /// The runtime of all managers, one after the other; started with the first.
    runtime: OnceLock<Handle>,
}

/// Reports changes of certificate files since the last check.
#[derive(Default)]
enum FileWatch {
    /// The watch is to be made.
    #[default]
    Missing,
    /// After a change, files are checked no sooner than at this time.
    Active(PathWatch, Instant),
    /// The files cannot be watched.
    Impossible,
}

struct AcmeRuntime {
    acme: AcmeConfig,
    manager: Arc<CertificateManager>,
}

/// A source of certificates besides files.
pub trait CertificateSource {
    /// Adds all certificates and challenges.
    fn add_to(&self, certificates: &mut CertificateMap);
    /// The certificate of this key.
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
    /// The current manager, if there is one.
    pub fn source(&self) -> Option<Arc<CertificateManager>> {
        self.running()
            .as_ref()
            .map(|running| running.manager.clone())
    }

    /// Applies a configuration's settings, for endpoints that are in force from now on. Must be called after root
    /// rights were dropped, since the files that it writes must belong to the server.
    ///
    /// # Errors
    /// The fault of the settings.
    pub fn keep(
        self: &Arc<Self>,
        config: &Config,
        offers: &Arc<TlsContext>,
        logger: &ErrorLogger,
    ) -> Result<(), String> {
        // Set first, so that changes during the following steps reach the new endpoints.
        *lock(&self.current) = Arc::downgrade(offers);
        let sites = automatic_names(config);
        // Without names there is nothing to order, unless clients' names are ordered on demand.
        let Some(acme) = config
            .acme
            .as_ref()
            .filter(|it| !sites.is_empty() || it.on_demand.is_some())
        else {
            // Dropping the manager ends its tasks; its certificates stay on disk.
            *self.running() = None;
            *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(());
        };
        let mut running = self.running();
        match running.as_ref().filter(|running| running.acme == *acme) {
            // Only the sites have changed, so orders in progress continue.
            Some(running) => {
                let replaced = running.manager.replace_sites(&sites);
                replaced.map_err(|problem| format!("acme: {problem}"))?;
            }
            None => {
                // Other settings need another manager, which takes over the certificates in use.
                let previous = running.as_ref().map(|running| running.manager.clone());
                *running = Some(self.start(acme, sites, logger, previous.as_deref())?);
            }
        }
        let manager = running.as_ref().map(|running| running.manager.clone());
        drop(running);
        // The certificates may have other files now.
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
        // A weak reference: the manager is owned by this value, and must not keep it alive.
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

    /// Has certificate files checked that have changed since the last call: another process may have written them, and
    /// damaged ones are restored. Without a watch the manager checks them itself, less often.
    pub fn follow(&self, watcher: Option<&FolderWatcher>) {
        let mut watch = lock(&self.file_watch);
        let (Some(watcher), Some(manager)) = (watcher, self.source()) else {
            // Retried at the next call, in a minute.
            if matches!(*watch, FileWatch::Impossible) {
                *watch = FileWatch::Missing;
            }
            return;
        };
        match &*watch {
            FileWatch::Missing => {}
            // The pause bounds the cost if files change all the time.
            FileWatch::Active(watch, next) if !watch.is_unchanged() && Instant::now() >= *next => {}
            FileWatch::Active(..) | FileWatch::Impossible => return,
        }
        let started = Instant::now();
        // Made before the files are checked, so that a change in between is seen by the next check.
        *watch = match PathWatch::new(watcher, manager.certificate_files()) {
            Some(watch) => {
                // In a folder shared with other programs, unrelated files may change constantly.
                let pause = started.elapsed() * LOOK_PAUSE;
                FileWatch::Active(watch, Instant::now() + pause)
            }
            None => FileWatch::Impossible,
        };
        manager.check_files();
    }

    /// Counters and gauges by name.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let manager = self.source();
        manager.map(|manager| manager.counts()).unwrap_or_default()
    }

    /// The response to a request below `/.well-known/acme-challenge/`.
    pub fn challenge(&self, token: &str) -> Option<Arc<str>> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.as_ref()?.find(token)
    }

    /// Requests a certificate for a client's name that has none; the client may get it at its next attempt.
    pub fn request_on_demand(&self, name: &str) {
        let running = self.running();
        let Some(running) = running.as_ref().filter(|it| it.acme.on_demand.is_some()) else {
            return;
        };
        let (manager, name) = (running.manager.clone(), name.to_owned());
        // Without a runtime there is no manager yet that could order.
        let Some(runtime) = self.runtime.get() else {
            return;
        };
        runtime.spawn(async move {
            // The manager logs failures itself.
            let _ = manager.on_demand(&name).await;
        });
    }

    /// The state of each certificate.
    pub fn texts(&self) -> Vec<String> {
        let states = self.states().into_iter();
        states.map(|state| state.to_string()).collect()
    }

    /// Each certificate, for metrics.
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

    fn states(&self) -> Vec<CertificateState> {
        let states = self.source().map(|manager| manager.state());
        states.unwrap_or_default()
    }

    fn runtime(&self) -> Result<&Handle, String> {
        if self.runtime.get().is_none() {
            // Configurations are applied one at a time, so no other thread sets it.
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

/// The names of each wanted certificate.
pub fn automatic_names(config: &Config) -> Vec<Vec<String>> {
    let is_automatic =
        |site: &&config::SiteConfig| site.tls.as_ref().is_some_and(|tls| tls.automatic);
    let names = |site: &config::SiteConfig| -> Vec<String> {
        let names = site.names.iter().filter_map(|name| match name {
            SiteName::Exact(host) => Some(host.clone()),
            SiteName::Wildcard(host) => Some(format!("*.{host}")),
            // The default site has no name that an authority could verify.
            SiteName::Default => None,
        });
        names.collect()
    };
    let sites = config.sites.iter().filter(is_automatic).map(names);
    sites.filter(|names| !names.is_empty()).collect()
}

/// Converts the configuration to the manager's settings.
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
    let external = named.external.as_ref().map(|(key_id, file)| {
        let key = helper::open(file)
            .and_then(std::io::read_to_string)
            .map_err(|error| format!("acme: {}: {error}", file.display()))?;
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

/// Starts a runtime on a separate thread, since its tasks may wait for days.
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
