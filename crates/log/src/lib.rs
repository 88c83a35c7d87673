//! Logs with producers that never block: the lines of the access log, the error log, and the thread that writes both.
//!
//! The crate does not depend on the server: [`access`] formats the line of a response, [`format`] parses formats of
//! operators, [`writer`] passes entries to a file, and [`error`] prefixes messages with level and time.

#![forbid(unsafe_code)]

pub mod access;
pub mod civil_date;
pub mod decimal;
pub mod error;
pub mod escape;
pub mod format;
pub mod line_limit;
mod loss_report;
pub mod quantity;
pub mod syslog;
mod text_formatter;
pub mod variable;
pub mod writer;

pub use access::{AccessEntry, LineFormat, LineFormatter};
pub use error::{ErrorLogger, LogLevel, LoggedMessage};
pub use format::TextFormat;
pub use line_limit::LineLimit;
pub use text_formatter::{
    EntryDetails, LogProcess, RequestLine, TextFormatter, TlsTexts, UpstreamTexts, ValueTexts,
};
pub use writer::{EntryOutput, LineSink, LogDestination, LogWriter, WriterLimits};
