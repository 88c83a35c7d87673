//! What the processes of a level tell the server in front of which they are.

use crate::say;

/// Beginnings of lines to the server, which no line of a log has: it answers; it does so no longer.
pub const ATTACHED: &str = "=attached: ";
/// See [`ATTACHED`].
pub const GONE: &str = "=gone: ";

/// Tells the server, from one of its processes.
pub fn say_to_server(begin: &str, text: &str) {
    // A line of the log may have been cut where its process died. A server that is gone hears nothing.
    let _ = say::out(format_args!("\n{begin}{text}\n"));
}
