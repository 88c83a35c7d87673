//! Reports from the level's processes to the server that started them.

use crate::terminal_output;

/// The server's message to a supervisor that waits: attach the level now.
pub const ATTACH: &[u8] = b"attach";

/// Line prefix of the report that the level answers requests. No access log line begins with it.
pub const ATTACHED: &str = "=attached: ";
/// Line prefix of the report that the daemon has ended.
pub const GONE: &str = "=gone: ";

/// Line prefix of the report of the level's numbers.
pub const NUMBERS: &str = "=numbers: ";

/// Line prefix of the report of hits by URL.
pub const URLS: &str = "=urls: ";

/// Line prefix of the report of hits by host.
pub const HOSTS: &str = "=hosts: ";

/// Writes a report to the server.
pub fn report_to_server(prefix: &str, text: &str) {
    // The report begins with a line end, because a killed process may have left an incomplete log line. A write error
    // means that the server has ended, so it is ignored.
    let _ = terminal_output::out(format_args!("\n{prefix}{text}\n"));
}
