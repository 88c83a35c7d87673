//! Targets and formats of the logs.

use std::path::PathBuf;

/// The logs. `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The access log; None = off, the default.
    pub access: Option<AccessLogConfig>,
    /// The error log. Default [`LogTarget::Stderr`].
    pub error: LogTarget,
    /// The least severe level that is written to the error log. Default `ErrorLogLevel::Info`.
    pub level: ErrorLogLevel,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            access: None,
            error: LogTarget::Stderr,
            level: ErrorLogLevel::Info,
        }
    }
}

/// An enabled access log. Keys `log.access` and `log.format`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// The target of the lines; a file, if the format is `AccessLogFormat::Binary`.
    pub path: LogTarget,
    /// The format of the lines. Default `AccessLogFormat::Combined`.
    pub format: AccessLogFormat,
    /// Blocks and files of `AccessLogFormat::Binary`.
    pub binary: BinaryLogConfig,
}

/// Blocks and files of a binary access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryLogConfig {
    /// The maximum time that a record waits to be written with others. Default 2,000.
    pub block_age_max_ms: u64,
    /// A file is rotated at this length. Default 64 MiB.
    pub file_len_max: u64,
    /// A file is rotated at this age. Default a day.
    pub file_age_max_ms: u64,
    /// The length of all files; the oldest are deleted. Default 1 GiB.
    pub total_len_max: u64,
}

impl Default for BinaryLogConfig {
    fn default() -> BinaryLogConfig {
        BinaryLogConfig {
            block_age_max_ms: 2000,
            file_len_max: 64 << 20,
            file_age_max_ms: 86_400_000,
            total_len_max: 1 << 30,
        }
    }
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
pub enum AccessLogFormat {
    /// The combined log format of Apache. `"combined"`
    #[default]
    Combined,
    /// The combined format, followed by the cache status, the duration and the host. `"extended"`
    Extended,
    /// One JSON object a line. `"json"`
    Json,
    /// Compressed columns. `"binary"`
    Binary,
}

/// The severity of a line in the error log, the most severe first (a line is written if `line <= level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorLogLevel {
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
