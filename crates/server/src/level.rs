//! The softirq level as the server process sees it: in front of this server, or with it in front of another. A build
//! may lack the level, so both are traits.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use lowroad_site::listeners::{ListenerSet, NewSockets};

use crate::events::MainEvent;
use crate::running_server::RunningServer;

/// Describes the level for `lowroad status`.
pub type LevelHealth = Arc<dyn Fn() -> String + Send + Sync>;

/// The server's softirq level.
#[derive(Default)]
pub struct ManagedLevel {
    /// The level's processes, if they were started.
    pub keeper: Option<Box<dyn LevelKeeper>>,
    /// Describes the level's state, if it is configured.
    pub health: Option<LevelHealth>,
    /// A message for the log.
    pub note: Option<String>,
}

/// The supervised processes of the level in front of this server.
pub trait LevelKeeper {
    /// Answers the level's requests from now on.
    ///
    /// # Errors
    /// When no thread can be started.
    fn answer(&self, running: Arc<Mutex<RunningServer>>) -> io::Result<()>;

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
    fn intercept(&mut self, listeners: &mut ListenerSet, opened: &NewSockets)
    -> Result<(), String>;

    /// Reports readiness, and sends SIGTERM as an event when the supervising process has ended.
    ///
    /// # Errors
    /// When no thread or descriptor is available.
    fn serves(&self, news: Sender<MainEvent>) -> io::Result<()>;

    /// Ends the interception: new connections go to the other server.
    fn let_go(&mut self);
}
