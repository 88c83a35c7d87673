//! The events that the main thread handles.

use std::sync::mpsc::Sender;

use crate::upgrade::successor::ReadySuccessor;

/// Where the result of a command goes: a message of success, or of failure.
pub type CommandReply = Sender<Result<String, String>>;

/// An event for the main thread.
pub enum MainEvent {
    /// A signal was received.
    Signal(i32),
    /// Reload the configuration file.
    Reload(CommandReply),
    /// Start a new process of the program that takes over from this one.
    Upgrade(CommandReply),
    /// The new process is ready to take over, or can't.
    UpgradePrepared(Result<ReadySuccessor, String>),
    /// The process from which this one has taken over has ended.
    PredecessorEnded,
    /// A worker's drain is complete.
    WorkerEnded,
}
