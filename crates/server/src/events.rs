//! Events for the main thread.

use std::sync::mpsc::Sender;

/// An event for the main thread.
pub enum MainEvent {
    /// A signal was received.
    Signal(i32),
    /// Read the configuration again, and report the result.
    Reload(Sender<Result<String, String>>),
    /// A worker has drained.
    WorkerEnded,
}
