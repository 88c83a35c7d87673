//! Certificates that come by themselves: the manager that gets and keeps them outlives configurations, and says when
//! there are others. How they are got is [`lowroad_acme`]'s; where they are shown, `certificates`'.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use lowroad_acme::{
    Authority, Challenge, Event, ExternalAccount, Hook, Manager, OnDemand, Settings, Severity,
    Tokens, View,
};
use lowroad_config::{self as config, Acme, AcmeChallenge, Config, Name};
use lowroad_engine::background;
use lowroad_log::{Level, Logger};
use lowroad_privileges::helper;
use lowroad_store::watch::{PathWatch, Watcher};
use lowroad_tls::certificates::{Certificates, Pair};
use tokio::runtime::Handle;

use super::Shared;

/// How long is waited for a runtime to be there.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at files this many times as long as a look takes.
const LOOK_PAUSE: u32 = 20;

/// What a configuration wants of it, and who does it. One for a process.
#[derive(Default)]
pub struct Automatic {
    running: Mutex<Option<Running>>,
    tokens: RwLock<Option<Tokens>>,
    /// Whose offers are in force.
    current: Mutex<Weak<Shared>>,
    file_watch: Mutex<FileWatch>,
    /// On which all managers run, one after the other; begun with the first.
    runtime: OnceLock<Handle>,
}

/// Reports changes of the files of certificates since they were looked at last.
#[derive(Default)]
enum FileWatch {
    /// It is to be made.
    #[default]
    Missing,
    /// After a change they are looked at no sooner than at this time.
    Active(PathWatch, Instant),
    /// They can't be watched.
    Impossible,
}

struct Running {
    acme: Acme,
    manager: Arc<Manager>,
}

/// Where certificates can be had besides files.
pub trait Source {
    /// Adds all that there are, and challenges.
    fn add_to(&self, certificates: &mut Certificates);
    /// The certificate that is called so.
    fn pair(&self, name: &str) -> Option<Pair>;
}

impl Source for View {
    fn add_to(&self, certificates: &mut Certificates) {
        View::add_to(self, certificates);
    }

    fn pair(&self, name: &str) -> Option<Pair> {
        View::pair(self, name)
    }
}

impl Source for Manager {
    fn add_to(&self, certificates: &mut Certificates) {
        Manager::add_to(self, certificates);
    }

    fn pair(&self, name: &str) -> Option<Pair> {
        Manager::pair(self, name)
    }
}

impl Automatic {
    /// Who has certificates now, if anybody.
    pub fn source(&self) -> Option<Arc<Manager>> {
        self.running()
            .as_ref()
            .map(|running| running.manager.clone())
    }

    /// Gets and keeps what a configuration wants, for offers that are in force from now on. To be called once root was
    /// given up: what it writes is the server's.
    ///
    /// # Errors
    /// What can't be used, and why.
    pub fn keep(
        self: &Arc<Self>,
        config: &Config,
        offers: &Arc<Shared>,
        logger: &Logger,
    ) -> Result<(), String> {
        *lock(&self.current) = Arc::downgrade(offers);
        let sites = wanted(config);
        let Some(acme) = config
            .acme
            .as_ref()
            .filter(|it| !sites.is_empty() || it.on_demand.is_some())
        else {
            *self.running() = None;
            *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = None;
            return Ok(());
        };
        let mut running = self.running();
        match running.as_ref().filter(|running| running.acme == *acme) {
            Some(running) => {
                let replaced = running.manager.replace_sites(&sites);
                replaced.map_err(|problem| format!("acme: {problem}"))?;
            }
            None => {
                let previous = running.as_ref().map(|running| running.manager.clone());
                *running = Some(self.start(acme, sites, logger, previous.as_deref())?);
            }
        }
        let manager = running.as_ref().map(|running| running.manager.clone());
        drop(running);
        *lock(&self.file_watch) = FileWatch::Missing;
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) =
            manager.as_ref().map(|manager| manager.tokens());
        if let Some(manager) = manager {
            offers.show(Some(&*manager));
        }
        Ok(())
    }

    fn start(
        self: &Arc<Self>,
        acme: &Acme,
        sites: Vec<Vec<String>>,
        logger: &Logger,
        previous: Option<&Manager>,
    ) -> Result<Running, String> {
        let settings = settings(acme, sites)?;
        let runtime = self.runtime()?;
        let (this, logger) = (Arc::downgrade(self), logger.clone());
        let told = move |view: &View, event: Event<'_>| match event {
            Event::Message(severity, text) => {
                logger.log(level(severity), format_args!("certificates: {text}"));
            }
            Event::Changed => {
                let offers = this
                    .upgrade()
                    .and_then(|this| lock(&this.current).upgrade());
                if let Some(offers) = offers {
                    offers.show(Some(view));
                }
            }
        };
        let manager = match previous {
            Some(previous) => Manager::succeed(previous, settings, runtime, told),
            None => Manager::start(settings, runtime, told),
        };
        Ok(Running {
            acme: acme.clone(),
            manager: Arc::new(manager.map_err(|problem| format!("acme: {problem}"))?),
        })
    }

    /// Has the files of certificates looked at that have changed since the last call: another process may have written
    /// them, and damaged ones are written back. Where they can't be watched, the manager looks at them by itself, less often.
    pub fn follow(&self, watcher: Option<&Watcher>) {
        let mut watch = lock(&self.file_watch);
        let (Some(watcher), Some(manager)) = (watcher, self.source()) else {
            // Perhaps the next time, in a minute.
            if matches!(*watch, FileWatch::Impossible) {
                *watch = FileWatch::Missing;
            }
            return;
        };
        match &*watch {
            FileWatch::Missing => {}
            FileWatch::Active(watch, next) if !watch.is_unchanged() && Instant::now() >= *next => {}
            FileWatch::Active(..) | FileWatch::Impossible => return,
        }
        let started = Instant::now();
        // Before the files are looked at: what changes meanwhile is looked at again.
        *watch = match PathWatch::new(watcher, manager.certificate_files()) {
            Some(watch) => {
                // Files of others may change all the time in a folder on the way to thousands of ours.
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

    /// What is answered below `/.well-known/acme-challenge/`.
    pub fn challenge(&self, token: &str) -> Option<Arc<str>> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        tokens.as_ref()?.find(token)
    }

    /// A client has asked for a name without a certificate: it may have one when the client asks again.
    pub fn wish(&self, name: &str) {
        let running = self.running();
        let Some(running) = running.as_ref().filter(|it| it.acme.on_demand.is_some()) else {
            return;
        };
        let (manager, name) = (running.manager.clone(), name.to_owned());
        let Some(runtime) = self.runtime.get() else {
            return;
        };
        runtime.spawn(async move {
            // Why not, it has said to the log.
            let _ = manager.on_demand(&name).await;
        });
    }

    /// How it stands with each certificate.
    pub fn texts(&self) -> Vec<String> {
        let states = self.source().map(|manager| manager.state());
        states
            .into_iter()
            .flatten()
            .map(|state| state.to_string())
            .collect()
    }

    fn runtime(&self) -> Result<&Handle, String> {
        if self.runtime.get().is_none() {
            // Only one configuration is put in force at a time.
            let _ = self.runtime.set(runtime()?);
        }
        self.runtime.get().ok_or_else(|| "acme: no runtime".into())
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        lock(&self.running)
    }
}

fn level(severity: Severity) -> Level {
    match severity {
        Severity::Info => Level::Info,
        Severity::Warning => Level::Warn,
        Severity::Error => Level::Error,
    }
}

/// The names of each certificate that is wanted.
pub fn wanted(config: &Config) -> Vec<Vec<String>> {
    let is_automatic = |site: &&config::Site| site.tls.as_ref().is_some_and(|tls| tls.automatic);
    let names = |site: &config::Site| -> Vec<String> {
        let names = site.names.iter().filter_map(|name| match name {
            Name::Exact(host) => Some(host.clone()),
            Name::Wildcard(host) => Some(format!("*.{host}")),
            Name::Default => None,
        });
        names.collect()
    };
    let sites = config.sites.iter().filter(is_automatic).map(names);
    sites.filter(|names| !names.is_empty()).collect()
}

/// As the manager wants it.
pub fn settings(acme: &Acme, sites: Vec<Vec<String>>) -> Result<Settings, String> {
    let mut settings = Settings::new(&acme.folder);
    settings.terms_agreed = acme.terms_agreed;
    settings.contact = acme.contact.clone();
    settings.sites = sites;
    settings.orders_per_hour_max = usize::try_from(acme.orders_per_hour).unwrap_or(usize::MAX);
    settings.challenge = match &acme.challenge {
        AcmeChallenge::Http01 => Challenge::Http01,
        AcmeChallenge::TlsAlpn01 => Challenge::TlsAlpn01,
        AcmeChallenge::Dns01 { hook, timeout_ms } => Challenge::Dns01(Hook {
            command: hook.clone(),
            timeout_s: timeout_ms / 1000,
        }),
    };
    settings.authorities = acme
        .authorities
        .iter()
        .map(authority)
        .collect::<Result<_, _>>()?;
    settings.on_demand = acme.on_demand.as_ref().map(|demand| OnDemand {
        per_minute_max: usize::try_from(demand.per_minute).unwrap_or(usize::MAX),
        names_max: usize::try_from(demand.names_max).unwrap_or(usize::MAX),
        ..OnDemand::new(demand.ask.clone())
    });
    Ok(settings)
}

fn authority(named: &config::AcmeAuthority) -> Result<Authority, String> {
    let external = named.external.as_ref().map(|(key_id, file)| {
        let key = helper::open(file)
            .and_then(std::io::read_to_string)
            .map_err(|error| format!("acme: {}: {error}", file.display()))?;
        Ok::<_, String>(ExternalAccount {
            key_id: key_id.clone(),
            key: key.trim().to_owned(),
        })
    });
    Ok(Authority {
        directory: named.directory.clone(),
        external_account: external.transpose()?,
        profile: named.profile.clone(),
        roots: named.roots.clone(),
    })
}

/// A runtime on a thread of its own: what is waited for may take days.
fn runtime() -> Result<Handle, String> {
    let text = |error: std::io::Error| format!("acme: can't start: {error}");
    let (sender, receiver) = std::sync::mpsc::channel();
    background::start("acme", move || {
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
    let made = receiver.recv_timeout(START_TIMEOUT);
    made.map_err(|_| "acme: no runtime came".to_owned())?
        .map_err(text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
