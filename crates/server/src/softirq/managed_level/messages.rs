//! Reports from a level's processes to the server above.

use crate::terminal_output;

/// Line prefix of the report that the level answers. Access log lines never begin so.
pub const ATTACHED: &str = "=attached: ";
/// Line prefix of the report that the daemon has ended. See [`ATTACHED`].
pub const GONE: &str = "=gone: ";

/// Line prefix of the report of the level's numbers. See [`ATTACHED`].
pub const NUMBERS: &str = "=numbers: ";

/// Writes a report to the server.
pub fn report_to_server(prefix: &str, text: &str) {
    // Begins with a line end: a killed process may have left an incomplete log line. A write error means that the
    // server has ended.
    let _ = terminal_output::out(format_args!("\n{prefix}{text}\n"));
}
