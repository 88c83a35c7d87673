//! Keeps the applications of a configuration alive, as they are from one configuration to the next. What that takes is
//! told in `lowroad_children::supervisor`.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lowroad_children::supervisor::{self, Begins, Supervisor};
use lowroad_config::{Application, OriginUrl};
use lowroad_handler::notice::Notice;
use lowroad_log::Logger;

/// Between two looks whether an application accepts connections.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// Those that are kept alive.
#[derive(Default)]
pub struct Applications(Vec<(Application, Supervisor)>);

/// What has changed, until it is in force.
#[derive(Default)]
pub struct Changed {
    /// What has begun.
    begun: Vec<(Application, Begins)>,
    /// What is no longer wanted, and goes on as long as this is here.
    gone: Vec<(Application, Supervisor)>,
}

/// Looks whether applications could be started: a warning for each that could not, without which a server goes on.
///
/// # Errors
/// A server refuses to start with them.
pub fn check(wanted: &[Application]) -> Result<Vec<String>, String> {
    let failure = |application: &Application| {
        let failed = supervisor::check(&supervised(application)).err()?;
        Some(format!("application {}: {failed}", application.name))
    };
    Ok(wanted.iter().filter_map(failure).collect())
}

impl Applications {
    /// Has these kept alive: those that are the same go on. What is no longer wanted goes on until the result is dropped,
    /// unless another is to listen where it does: then it has ended before that begins. Blocks meanwhile.
    ///
    /// # Errors
    /// The machine gives no threads.
    pub fn keep(&mut self, wanted: &[Application], logger: &Logger) -> Result<Changed, String> {
        let old = std::mem::take(&mut self.0);
        let (same, gone): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|(application, _)| wanted.contains(application));
        self.0 = same;
        let is_new = |it: &&Application| !self.0.iter().any(|(known, _)| known == *it);
        let begun: Vec<Application> = wanted.iter().filter(is_new).cloned().collect();
        let (replaced, gone): (Vec<_>, Vec<_>) = gone
            .into_iter()
            .partition(|(old, _)| begun.iter().any(|new| is_in_the_way(old, new)));
        // Told first, so that they end side by side.
        replaced.iter().for_each(|(_, supervisor)| supervisor.end());
        drop(replaced);
        let mut changed = Changed {
            begun: Vec::new(),
            gone,
        };
        for application in begun {
            let supervisor = start(&application, logger)
                .map_err(|error| format!("application {}: {error}", application.name))?;
            changed
                .begun
                .push((application.clone(), supervisor.begins()));
            self.0.push((application, supervisor));
        }
        Ok(changed)
    }

    /// Stops all of them, in order.
    pub fn end(&mut self) {
        // Told first, so that they end side by side.
        self.0.iter().for_each(|(_, supervisor)| supervisor.end());
        self.0.clear();
    }
}

impl Changed {
    /// Waits until all that have begun accept connections that say where, each as long as it may take and not if it can't be
    /// started, or until `is_over`. Blocks.
    pub fn wait(&self, logger: &Logger, is_over: impl Fn() -> bool) {
        for (application, begins) in &self.begun {
            let Some(url) = &application.ready else {
                continue;
            };
            let end = Instant::now() + Duration::from_millis(application.start_timeout_ms);
            while !is_over() && !accepts(url) {
                if begins.never() {
                    let name = &application.name;
                    logger.warn(format_args!(
                        "application {name} can't be started; the server goes on without it"
                    ));
                    break;
                }
                if Instant::now() >= end {
                    let (name, ms) = (&application.name, application.start_timeout_ms);
                    logger.warn(format_args!(
                        "application {name} accepts no connections at {url} after {ms} ms; the server goes on without it"
                    ));
                    break;
                }
                thread::sleep(READY_PAUSE);
            }
        }
    }

    /// Ends what is no longer wanted as soon as nobody asks it (`is_over`), or after the longest of their `stop_timeout`s. Blocks.
    pub fn let_go(self, is_over: impl Fn() -> bool) {
        let stop_ms = self.gone.iter().map(|(old, _)| old.stop_timeout_ms);
        let Some(stop_ms) = stop_ms.max() else {
            return;
        };
        let end = Instant::now() + Duration::from_millis(stop_ms);
        while !is_over() && Instant::now() < end {
            thread::sleep(READY_PAUSE);
        }
        // Told first, so that they end side by side.
        self.gone
            .iter()
            .for_each(|(_, supervisor)| supervisor.end());
    }
}

/// Whether an application can't begin while another runs.
fn is_in_the_way(old: &Application, new: &Application) -> bool {
    match (&old.ready, &new.ready) {
        (Some(old), Some(new)) => old == new,
        // Who does not say where it listens may listen there, too.
        _ => old.name == new.name,
    }
}

fn start(application: &Application, logger: &Logger) -> std::io::Result<Supervisor> {
    let (logger, name) = (logger.clone(), application.name.clone());
    let notice: Notice = Arc::new(move |line| logger.info(format_args!("{name}: {line}")));
    Supervisor::start(supervised(application), notice)
}

fn supervised(application: &Application) -> supervisor::Application {
    supervisor::Application {
        command: application.command.clone(),
        folder: application.folder.clone(),
        env: application.env.clone(),
        stop_timeout: Duration::from_millis(application.stop_timeout_ms),
    }
}

fn accepts(url: &OriginUrl) -> bool {
    match url {
        OriginUrl::Unix(path) => UnixStream::connect(path).is_ok(),
        OriginUrl::Http { host, port, .. } => TcpStream::connect((host.as_str(), *port)).is_ok(),
    }
}
