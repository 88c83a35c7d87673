//! Targets and formats of the logs.

use std::path::PathBuf;

/// The logs. `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The access log; None = off, the default.
    pub access: Option<AccessLog>,
    /// The error log. Default [`LogTarget::Stderr`].
    pub error: LogTarget,
    /// The least severe level that is written to the error log. Default `ErrorLogLevel::Info`.
    pub level: Level,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            access: None,
            error: LogTarget::Stderr,
            level: Level::Info,
        }
    }
}

/// An enabled access log. Keys `log.access` and `log.format`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The target of the lines.
    pub path: LogTarget,
    /// The format of the lines. Default `AccessLogFormat::Combined`.
    pub format: Format,
}

/// The target of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// `"stdout"`
    Stdout,
    /// `"stderr"`
    Stderr,
    /// Appended to this file. Any other text.
    File(PathBuf),
}

/// The format of the access log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The combined log format of Apache. `"combined"`
    #[default]
    Combined,
    /// The combined format, followed by the cache status, the duration and the host. `"extended"`
    Extended,
    /// One JSON object a line. `"json"`
    Json,
}

/// The severity of a line in the error log, the most severe first (a line is written if `line <= level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A loss or refusal that is a fault of the server or its machine. `"error"`
    Error,
    /// A limit is near, or a setting cannot take effect as configured. `"warn"`
    Warn,
    /// Start, stop, reload. `"info"`
    #[default]
    Info,
    /// Details for debugging. `"debug"`
    Debug,
}
