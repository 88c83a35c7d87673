//! Keeps the applications of a configuration alive, as they are from one configuration to the next. What that takes is
//! told in `lowroad_dynamic::supervise`.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lowroad_config::{Application, OriginUrl};
use lowroad_dynamic::notice::Notice;
use lowroad_dynamic::supervise::{self, Supervisor};
use lowroad_log::Logger;

/// Between two looks whether an application accepts connections.
const READY_PAUSE: Duration = Duration::from_millis(20);

/// Those that are kept alive.
#[derive(Default)]
pub struct Applications(Vec<(Application, Supervisor)>);

impl Applications {
    /// Has these kept alive, and no others: those that are the same go on.
    ///
    /// # Errors
    /// The machine gives no threads.
    pub fn keep(&mut self, wanted: &[Application], logger: &Logger) -> Result<(), String> {
        let old = std::mem::take(&mut self.0);
        let (mut same, gone): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|(application, _)| wanted.contains(application));
        gone.iter().for_each(|(_, supervisor)| supervisor.end());
        for application in wanted {
            if same.iter().any(|(known, _)| known == application) {
                continue;
            }
            let supervisor = start(application, logger)
                .map_err(|error| format!("application {}: {error}", application.name))?;
            same.push((application.clone(), supervisor));
        }
        self.0 = same;
        Ok(())
    }

    /// Waits until all of them accept connections that say where, each as long as it may take, or until `is_over`. Blocks.
    pub fn wait(&self, logger: &Logger, is_over: impl Fn() -> bool) {
        for (application, _) in &self.0 {
            let Some(url) = &application.ready else {
                continue;
            };
            let end = Instant::now() + Duration::from_millis(application.start_timeout_ms);
            while !is_over() && !accepts(url) {
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

    /// Stops all of them, in order.
    pub fn end(&mut self) {
        // Told first, so that they end side by side.
        self.0.iter().for_each(|(_, supervisor)| supervisor.end());
        self.0.clear();
    }
}

fn start(application: &Application, logger: &Logger) -> std::io::Result<Supervisor> {
    let (logger, name) = (logger.clone(), application.name.clone());
    let notice: Notice = Arc::new(move |line| logger.info(format_args!("{name}: {line}")));
    let application = supervise::Application {
        command: application.command.clone(),
        folder: application.folder.clone(),
        env: application.env.clone(),
        user: None,
        stop_timeout: Duration::from_millis(application.stop_timeout_ms),
    };
    Supervisor::start(application, notice)
}

fn accepts(url: &OriginUrl) -> bool {
    match url {
        OriginUrl::Unix(path) => UnixStream::connect(path).is_ok(),
        OriginUrl::Http { host, port, .. } => TcpStream::connect((host.as_str(), *port)).is_ok(),
    }
}
