//! The supervised applications of a configuration, across reloads; see `lowroad_child_processes::supervisor`.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lowroad_child_processes::supervisor::{self, ApplicationSupervisor, StartDecision};
use lowroad_config::{ApplicationConfig, OriginUrl};
use lowroad_log::ErrorLogger;

/// The interval between checks whether an application accepts connections.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// The supervised applications.
#[derive(Default)]
pub struct ApplicationSet(Vec<(ApplicationConfig, ApplicationSupervisor)>);

/// The changes that a reload makes; kept until the new configuration is in force.
#[derive(Default)]
pub struct ApplicationChanges {
    /// The applications that were started.
    started: Vec<(ApplicationConfig, StartDecision)>,
    /// The applications to be stopped; they run until this value is dropped.
    stopping: Vec<(ApplicationConfig, ApplicationSupervisor)>,
}

/// Checks that applications can be started; returns a warning for each failure with which the server can start.
///
/// # Errors
/// A failure with which the server refuses to start.
pub fn check(configs: &[ApplicationConfig]) -> Result<Vec<String>, String> {
    let failure = |application: &ApplicationConfig| {
        let error = supervisor::check(&application_spec(application)).err()?;
        Some(format!("application {}: {error}", application.name))
    };
    Ok(configs.iter().filter_map(failure).collect())
}

impl ApplicationSet {
    /// Starts the applications of a new configuration; unchanged ones keep running. Removed applications run until the
    /// result is dropped. Only those with an address that a new application needs are stopped first, for which this
    /// call blocks.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn update(
        &mut self,
        configs: &[ApplicationConfig],
        logger: &ErrorLogger,
    ) -> Result<ApplicationChanges, String> {
        let old = std::mem::take(&mut self.0);
        let (unchanged, removed): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|(application, _)| configs.contains(application));
        self.0 = unchanged;
        let is_new = |it: &&ApplicationConfig| !self.0.iter().any(|(running, _)| running == *it);
        let new_configs: Vec<ApplicationConfig> = configs.iter().filter(is_new).cloned().collect();
        let (replaced, stopping): (Vec<_>, Vec<_>) = removed
            .into_iter()
            // Two applications cannot listen on the same address: these are stopped before their successors start.
            .partition(|(old, _)| {
                let old = ApplicationPlace::from(old);
                new_configs
                    .iter()
                    .any(|new| old.conflicts_with(&new.into()))
            });
        // All are signalled before the first is waited for, so that they stop in parallel.
        replaced.iter().for_each(|(_, supervisor)| supervisor.end());
        drop(replaced);
        let mut changed = ApplicationChanges {
            started: Vec::new(),
            stopping,
        };
        for application in new_configs {
            let supervisor = start(&application, logger)
                .map_err(|error| format!("application {}: {error}", application.name))?;
            changed
                .started
                .push((application.clone(), supervisor.start_decision()));
            self.0.push((application, supervisor));
        }
        Ok(changed)
    }

    /// Stops all applications.
    pub fn end(&mut self) {
        // All are signalled before the first is waited for, so that they stop in parallel.
        self.0.iter().for_each(|(_, supervisor)| supervisor.end());
        self.0.clear();
    }
}

impl ApplicationChanges {
    /// Waits until each started application with a `ready` URL accepts connections, cannot be started, or exceeds its
    /// time limit; or until `is_ending`. Blocks.
    pub fn wait(&self, logger: &ErrorLogger, is_ending: impl Fn() -> bool) {
        for (application, decision) in &self.started {
            let Some(url) = &application.ready else {
                continue;
            };
            let deadline = Instant::now() + Duration::from_millis(application.start_timeout_ms);
            while !is_ending() && !accepts_connections(url) {
                // The supervisor has given up, so waiting longer is useless.
                if decision.is_impossible() {
                    let name = &application.name;
                    logger.warn(format_args!(
                        "application {name} can't be started; the server continues without it"
                    ));
                    break;
                }
                if Instant::now() >= deadline {
                    let (name, ms) = (&application.name, application.start_timeout_ms);
                    logger.warn(format_args!(
                        "application {name} accepts no connections at {url} after {ms} ms; the \
                         server continues without it"
                    ));
                    break;
                }
                thread::sleep(READY_PAUSE);
            }
        }
    }

    /// Stops the removed applications when they have no more requests (`can_stop`), at the latest after the longest
    /// `stop_timeout` among them. Blocks.
    pub fn stop_removed(self, can_stop: impl Fn() -> bool) {
        let stop_ms = self.stopping.iter().map(|(old, _)| old.stop_timeout_ms);
        let Some(stop_ms) = stop_ms.max() else {
            return;
        };
        let deadline = Instant::now() + Duration::from_millis(stop_ms);
        // Requests in progress may still need a removed application.
        while !can_stop() && Instant::now() < deadline {
            thread::sleep(READY_PAUSE);
        }
        // All are signalled before the first is waited for, so that they stop in parallel.
        self.stopping
            .iter()
            .for_each(|(_, supervisor)| supervisor.end());
    }
}

/// An application, and the URL at which it accepts connections, if it is known.
pub struct ApplicationPlace<'a, U> {
    /// The name in the configuration.
    pub name: &'a str,
    /// The URL.
    pub ready: Option<&'a U>,
}

impl<'a> From<&'a ApplicationConfig> for ApplicationPlace<'a, OriginUrl> {
    fn from(application: &'a ApplicationConfig) -> Self {
        ApplicationPlace {
            name: &application.name,
            ready: application.ready.as_ref(),
        }
    }
}

impl<U: PartialEq> ApplicationPlace<'_, U> {
    /// Whether two applications cannot run at the same time.
    pub fn conflicts_with(&self, other: &ApplicationPlace<'_, U>) -> bool {
        match (self.ready, other.ready) {
            (Some(own), Some(other)) => own == other,
            // Without `ready`, the address is unknown and might be the same.
            _ => self.name == other.name,
        }
    }
}

fn start(
    application: &ApplicationConfig,
    logger: &ErrorLogger,
) -> std::io::Result<ApplicationSupervisor> {
    let (logger, name) = (logger.clone(), application.name.clone());
    let notice = Arc::new(move |line: &str| logger.info(format_args!("{name}: {line}")));
    ApplicationSupervisor::start(application_spec(application), notice)
}

fn application_spec(application: &ApplicationConfig) -> supervisor::ApplicationSpec {
    supervisor::ApplicationSpec {
        command: application.command.clone(),
        folder: application.folder.clone(),
        env: application.env.clone(),
        stop_timeout: Duration::from_millis(application.stop_timeout_ms),
    }
}

fn accepts_connections(url: &OriginUrl) -> bool {
    match url {
        OriginUrl::Unix(path) => UnixStream::connect(path).is_ok(),
        OriginUrl::Http { host, port, .. } => TcpStream::connect((host.as_str(), *port)).is_ok(),
    }
}
