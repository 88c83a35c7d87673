//! Where the logs go, and what they look like.

use std::path::PathBuf;

/// Where the logs go. `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The access log; None = off, the default.
    pub access: Option<AccessLog>,
    /// The error log. Default [`LogTarget::Stderr`].
    pub error: LogTarget,
    /// The least grave line that is written to the error log. Default [`Level::Info`].
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

/// An access log that is switched on. Keys `log.access` and `log.format`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where the lines go.
    pub path: LogTarget,
    /// What the lines look like. Default [`Format::Combined`].
    pub format: Format,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// `"stdout"`
    Stdout,
    /// `"stderr"`
    Stderr,
    /// Appended to this file. Any other text.
    File(PathBuf),
}

/// The form of the access log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The combined form that Apache made common. `"combined"`
    #[default]
    Combined,
    /// The same, and behind it what the cache did, how long it took and the host. `"extended"`
    Extended,
    /// One JSON object a line. `"json"`
    Json,
}

/// How grave a line of the error log is, the gravest first (so `line <= level` is written).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something is lost or refused by a fault of the server or its machine. `"error"`
    Error,
    /// Something is near a limit or not as configured. `"warn"`
    Warn,
    /// Start, stop, reload. `"info"`
    #[default]
    Info,
    /// What helps to find a fault. `"debug"`
    Debug,
}
