//! The softirq level as the server process sees it: in front of this server, or with it in front of another. A build
//! may lack the level, so both are traits.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use lowroad_site::listeners::{ListenerSet, NewSockets};

use crate::events::MainEvent;
use crate::running_server::RunningServer;

/// Describes the level for `lowroad status` and for metrics.
pub trait LevelHealth: Send + Sync {
    /// The level's state in words.
    fn text(&self) -> String;

    /// The latest numbers of the level's process; empty before the first report.
    fn report(&self) -> LevelReport;
}

/// Numbers of the level: counters by reason, and gauges. Names have a prefix for their kind, as `answer_hit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelReport {
    /// Names and values.
    pub numbers: Vec<(String, u64)>,
}

impl LevelReport {
    /// The numbers in one line.
    pub fn to_line(&self) -> String {
        let words = self.numbers.iter();
        let words: Vec<String> = words
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        words.join(" ")
    }

    /// Reads such a line. Words that are no numbers are skipped.
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

/// The server's softirq level.
#[derive(Default)]
pub struct ManagedLevel {
    /// The level's processes, if they were started.
    pub keeper: Option<Box<dyn LevelKeeper>>,
    /// Describes the level's state, if it is configured.
    pub health: Option<Arc<dyn LevelHealth>>,
    /// A message for the log.
    pub note: Option<String>,
}

/// The supervised processes of the level in front of this server.
pub trait LevelKeeper {
    /// Answers the level's requests from now on.
    ///
    /// # Errors
    /// When no thread can be started.
    fn start_answering(&self, running: Arc<Mutex<RunningServer>>) -> io::Result<()>;

    /// Ends the level. The kernel gets its connections with their next segments, so the server must still accept.
    fn end(self: Box<Self>);
}

/// A server that intercepts the connections of another one.
pub trait FrontServer {
    /// Intercepts connections from now on; they wait for the workers. The listeners' addresses become the addresses
    /// that clients connect to.
    ///
    /// # Errors
    /// A message for the user.
    fn intercept(
        &mut self,
        listeners: &mut ListenerSet,
        new_sockets: &NewSockets,
    ) -> Result<(), String>;

    /// Reports readiness, and sends SIGTERM as an event when the supervising process has ended.
    ///
    /// # Errors
    /// When no thread or descriptor is available.
    fn report_ready(&self, events: Sender<MainEvent>) -> io::Result<()>;

    /// Ends the interception: new connections go to the other server.
    fn end_interception(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_a_line() {
        let report = LevelReport {
            numbers: vec![("answer_hit".into(), 7), ("up_miss".into(), u64::MAX)],
        };
        assert_eq!(LevelReport::from_line(&report.to_line()), report);
        // A line of a killed process may be cut.
        let cut = LevelReport::from_line("answer_hit=7 up_mi");
        assert_eq!(cut.numbers.len(), 1);
        assert!(LevelReport::from_line("").numbers.is_empty());
    }
}
