//! Targets and formats of the logs.

use crate::{ConfigPlace, PathPattern};
use lowroad_log::TextFormat;
use lowroad_log::syslog::MessageTarget;
use std::path::PathBuf;
use std::sync::Arc;

/// The logs. `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The access logs; by default none.
    pub access: Vec<AccessLogConfig>,
    /// The error log. Default [`LogTarget::Stderr`].
    pub error: LogTarget,
    /// The least severe level that is written to the error log. Default `ErrorLogLevel::Info`.
    pub level: ErrorLogLevel,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            access: Vec::new(),
            error: LogTarget::Stderr,
            level: ErrorLogLevel::Info,
        }
    }
}

/// An access log. `[[log.access]]`, or the keys `access` and `format` of `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConfig {
    /// The target of the lines; a file, if the format is `AccessLogFormat::Binary`.
    pub path: LogTarget,
    /// The format of the lines. Default `AccessLogFormat::Combined`.
    pub format: AccessLogFormat,
    /// Blocks and files of `AccessLogFormat::Binary`.
    pub binary: BinaryLogConfig,
    /// The conditions of an entry. By default all requests are logged.
    pub conditions: AccessLogConditions,
    /// The number of the facility of messages. Default 23 (`local7`).
    pub facility: u8,
    /// The name of the application in messages. Default `lowroad`.
    pub tag: String,
}

impl AccessLogConfig {
    /// A log of all requests.
    pub fn new(path: LogTarget, format: AccessLogFormat) -> AccessLogConfig {
        AccessLogConfig {
            path,
            format,
            binary: BinaryLogConfig::default(),
            conditions: AccessLogConditions::default(),
            facility: 23,
            tag: "lowroad".to_string(),
        }
    }
}

/// The conditions of an entry: all of them must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogConditions {
    /// The names of sites; empty: all requests.
    pub sites: Vec<SiteCondition>,
    /// The statuses; empty: all.
    pub statuses: Vec<StatusCondition>,
    /// The paths; empty: all.
    pub paths: Vec<PathCondition>,
    /// The minimum duration of the response. Default 0.
    pub duration_min_ms: u64,
    /// Only one of this many entries that fulfil the other conditions is written. Default 1.
    pub sample: u64,
}

impl Default for AccessLogConditions {
    fn default() -> AccessLogConditions {
        AccessLogConditions {
            sites: Vec::new(),
            statuses: Vec::new(),
            paths: Vec::new(),
            duration_min_ms: 0,
            sample: 1,
        }
    }
}

/// The name of a site, and its place in the configuration.
#[derive(Clone, Debug, Eq)]
pub struct SiteCondition {
    /// The name.
    pub name: String,
    /// The place of the name.
    pub place: ConfigPlace,
}

impl PartialEq for SiteCondition {
    fn eq(&self, other: &SiteCondition) -> bool {
        // A moved name is no change of the log, which would need an upgrade.
        self.name == other.name
    }
}

/// A range of statuses: `404`, `5xx`, or `!304`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusCondition {
    /// The lowest status.
    pub first: u16,
    /// The highest status.
    pub last: u16,
    /// These statuses are not logged.
    pub is_excluded: bool,
}

/// A pattern of paths: `/shop/**`, or `!/health`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCondition {
    /// The pattern.
    pub pattern: PathPattern,
    /// These paths are not logged.
    pub is_excluded: bool,
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
    /// Sent as messages, only for access logs. `"journald"`, `"syslog"`, `"syslog:udp:HOST:PORT"`
    Messages(MessageTarget),
}

/// The format of the access log's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// A format with variables, or JSON with chosen members. A text with a `$`, or `"json"` with `fields`
    Text(Arc<TextFormat>),
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
