//! The events that the main thread handles.

use std::sync::mpsc::Sender;

/// An event for the main thread.
pub enum MainEvent {
    /// A signal was received.
    Signal(i32),
    /// Reload the configuration file, and send the result to this channel.
    Reload(Sender<Result<String, String>>),
    /// A worker's drain is complete.
    WorkerEnded,
}
