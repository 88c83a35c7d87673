//! The soft-interrupt level as the server's process sees it: in front of this server, or together with it in front of another.
//! A build may lack the level, so both are behind traits.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use lowroad_site::listeners::{Listeners, Opened};

use crate::news::News;
use crate::running::Running;

/// Describes the level for `lowroad status`.
pub type LevelHealth = Arc<dyn Fn() -> String + Send + Sync>;

/// What a server has of its level.
#[derive(Default)]
pub struct ManagedLevel {
    /// The processes, if they could be started.
    pub keeper: Option<Box<dyn LevelKeeper>>,
    /// How it is, if it was wanted.
    pub health: Option<LevelHealth>,
    /// A note for the log.
    pub note: Option<String>,
}

/// The processes that keep the level in front of this server.
pub trait LevelKeeper {
    /// Has the level's questions answered, from now on.
    ///
    /// # Errors
    /// When the machine gives no thread.
    fn answer(&self, running: Arc<Mutex<Running>>) -> io::Result<()>;

    /// Ends the level: live connections come up with their next request, so the server must still accept them.
    fn end(self: Box<Self>);
}

/// What a server does that stands in front of another one.
pub trait FrontServer {
    /// Takes the connections, from now on: they wait for the workers. The addresses of listeners are those that clients ask
    /// from now on.
    ///
    /// # Errors
    /// A text for the user.
    fn intercept(&mut self, listeners: &mut Listeners, opened: &Opened) -> Result<(), String>;

    /// Reports that the server serves, and sends SIGTERM as news when the process is gone that waits for its end.
    ///
    /// # Errors
    /// When the machine gives no thread, or descriptor.
    fn serves(&self, news: Sender<News>) -> io::Result<()>;

    /// New connections go to the other server, from now on.
    fn let_go(&mut self);
}
