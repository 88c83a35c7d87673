//! The server process's interface to the softirq level; it consists of traits, because a build may lack the level. A
//! server with a level in front of it uses [`LevelProcesses`] and [`LevelHealth`]. The server that `lowroad attach
//! --worker` starts uses [`ConnectionInterceptor`], because it intercepts connections to another server.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use lowroad_site::listeners::{ListenerSet, NewSockets};
use lowroad_site::url_table::UrlSnapshot;

use crate::deny_list::DenyList;
use crate::events::MainEvent;
use crate::level_sites::LevelSites;
use crate::running_server::RunningServer;

/// The state of the softirq level, for `lowroad status` and for metrics.
pub trait LevelHealth: Send + Sync {
    /// The level's state in words.
    fn text(&self) -> String;

    /// The numbers that the level's daemon reported last; empty before its first report.
    fn report(&self) -> LevelReport;

    /// The URLs that the level answers most often.
    fn urls(&self, now_ms: u64) -> UrlSnapshot;

    /// The hits of the level by name of the site, since the start of the server; under an empty name those without a
    /// site.
    fn site_hits(&self) -> BTreeMap<String, u64>;

    /// Sets the sites that name the requests of the level in access logs.
    fn set_sites(&self, sites: LevelSites);

    /// Sets the client addresses that the level drops.
    fn set_denied(&self, list: &DenyList);
}

/// Counters and gauges of the level. A name begins with its group: `answer_hit` counts answers of the kind `hit`,
/// `up_miss` counts requests that were passed to the server because of a miss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelReport {
    /// Names and values.
    pub numbers: Vec<(String, u64)>,
}

impl LevelReport {
    /// Formats the numbers as one line of `NAME=VALUE` words.
    pub fn to_line(&self) -> String {
        let words = self.numbers.iter();
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }

    /// Parses a line of [`LevelReport::to_line`]. Words without a valid number are skipped.
    pub fn from_line(line: &str) -> LevelReport {
        let numbers = line.split_whitespace().filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        LevelReport {
            numbers: numbers.collect(),
        }
    }
}

/// The softirq level in front of this server.
#[derive(Default)]
pub struct ManagedLevel {
    /// The level's supervisor and daemon, if they were started.
    pub processes: Option<Box<dyn LevelProcesses>>,
    /// The level's state, if the level is configured.
    pub health: Option<Arc<dyn LevelHealth>>,
    /// A warning for the error log at the start.
    pub startup_warning: Option<String>,
}

/// When a level attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelStart {
    /// At once.
    Now,
    /// At the server's request, because its predecessor's level is attached until then.
    Later,
}

/// The child processes of the level in front of this server: the level's supervisor and daemon.
pub trait LevelProcesses {
    /// Starts a thread that receives the daemon's requests for responses and passes them to this server's workers.
    ///
    /// # Errors
    /// When no thread can be started.
    fn start_answering(&self, running: Arc<Mutex<RunningServer>>) -> io::Result<()>;

    /// Returns a function that attaches a level that was started with [`LevelStart::Later`].
    fn attach_later(&self) -> Box<dyn FnOnce() + Send>;

    /// Ends the level, and waits until its supervisor and daemon have ended. Meanwhile each open connection migrates to
    /// a kernel socket with its next segment, so this server's listeners must still be open.
    fn end(self: Box<Self>);
}

/// Intercepts new connections to another server.
pub trait ConnectionInterceptor {
    /// Starts the interception: the kernel queues new connections to the other server at `new_sockets`, the listening
    /// sockets of this server's workers. In `listeners`, replaces each worker listen address by the intercepted
    /// address, to which clients connect.
    ///
    /// # Errors
    /// A message for the user.
    fn intercept(
        &mut self,
        listeners: &mut ListenerSet,
        new_sockets: &NewSockets,
    ) -> Result<(), String>;

    /// Tells the supervisor process of `attach --worker` that this server is ready. Starts a thread that sends
    /// `MainEvent::Signal(SIGTERM)` to `events` when the supervisor ends.
    ///
    /// # Errors
    /// When no thread or descriptor is available.
    fn report_ready(&self, events: Sender<MainEvent>) -> io::Result<()>;

    /// Ends the interception: the kernel gives new connections to the other server again.
    fn end_interception(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_line_parses_to_the_same_numbers() {
        let report = LevelReport {
            numbers: vec![("answer_hit".into(), 7), ("up_miss".into(), u64::MAX)],
        };
        assert_eq!(LevelReport::from_line(&report.to_line()), report);
        // A killed process may leave an incomplete line.
        let cut = LevelReport::from_line("answer_hit=7 up_mi");
        assert_eq!(cut.numbers.len(), 1);
        assert!(LevelReport::from_line("").numbers.is_empty());
    }
}
