//! The writers of the error log and the access logs.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lowroad_binary_log::files::{FileEvent, FileLimits, LogFiles, OnFileEvent, count_records};
use lowroad_config::{
    AccessLogConfig, AccessLogFormat, BinaryLogConfig, Config, ErrorLogLevel, LogTarget,
};
use lowroad_log::quantity::quantity;
use lowroad_log::syslog::{MessageEvent, MessageFields, MessageOutput, MessageTarget};
use lowroad_log::writer::{LineEvent, OnLineEvent};
use lowroad_log::{ErrorLogger, LineSink, LogDestination, LogLevel, LogWriter, WriterLimits};
use lowroad_privileges::account::ServerAccount;
use lowroad_privileges::helper;
use lowroad_site::access::WRITE_DELAY;
use nix::unistd::{User, geteuid};

/// Maximum pending bytes of the binary log's records: 50 ms at a million requests a second.
const BINARY_PENDING_LEN_MAX: usize = 16 << 20;
/// This many bytes of records become blocks without further delay.
const BINARY_WAKE_LEN: usize = 4 << 20;

/// The writers of the error log and the access logs.
pub struct LogWriters {
    errors: LogWriter,
    error_target: String,
    access: Vec<(LogWriter, AccessLogConfig)>,
    level: LogLevel,
    /// The number of failed rotations of binary logs.
    rotations_failed: Arc<AtomicU64>,
}

impl LogWriters {
    /// Opens the configured logs, with root's rights if the process has them.
    ///
    /// # Errors
    /// A log can't be opened.
    pub fn open(config: &Config, account: Option<&ServerAccount>) -> Result<LogWriters, String> {
        let level = level(config.log.level);
        // Opened first, since the access log reports its failures to it; without delay, as a message may be the last.
        let errors = open_lines(&config.log.error, Duration::ZERO, account, Box::new(drop))?;
        let rotations_failed = Arc::<AtomicU64>::default();
        let access = config.log.access.iter().map(|access| {
            let reporter = FileReporter {
                logger: ErrorLogger::new(errors.sink(), level),
                rotations_failed: rotations_failed.clone(),
            };
            Ok((open_access(access, reporter, account)?, access.clone()))
        });
        let access = access.collect::<Result<_, String>>()?;
        Ok(LogWriters {
            errors,
            error_target: target_text(&config.log.error),
            access,
            level,
            rotations_failed,
        })
    }

    /// A logger into the error log.
    pub fn logger(&self) -> ErrorLogger {
        ErrorLogger::new(self.errors.sink(), self.level)
    }

    /// A sink of each log.
    pub fn sinks(&self) -> Vec<LineSink> {
        let access = self.access.iter().map(|(writer, _)| writer);
        std::iter::once(&self.errors)
            .chain(access)
            .map(LogWriter::sink)
            .collect()
    }

    /// The number of failed rotations of binary logs.
    pub fn rotations_failed(&self) -> Arc<AtomicU64> {
        self.rotations_failed.clone()
    }

    /// A new sink of each access log.
    pub fn access_sinks(&self) -> Vec<(LineSink, AccessLogConfig)> {
        let access = self.access.iter();
        access
            .map(|(writer, log)| (writer.sink(), log.clone()))
            .collect()
    }

    /// Reopens the log files. A log that can't be reopened keeps its old file, and `logger` reports the error.
    pub fn reopen(&self, logger: &ErrorLogger) {
        let error = std::iter::once((&self.errors, format!("error log {}", self.error_target)));
        let access = self.access.iter();
        let access =
            access.map(|(writer, log)| (writer, format!("access log {}", target_text(&log.path))));
        for (writer, name) in error.chain(access) {
            let logger = logger.clone();
            writer.reopen(helper::reopen_log, move |error| {
                logger.error(format_args!(
                    "can't reopen the {name}, so it continues in the previous file: {error}"
                ));
            });
        }
    }

    /// Writes the pending entries, and ends all logs.
    pub fn close(self) {
        // The access logs end first, since their threads may still report to the error log.
        for (writer, _) in self.access {
            writer.close();
        }
        self.errors.close();
    }
}

fn open_access(
    access: &AccessLogConfig,
    reporter: FileReporter,
    account: Option<&ServerAccount>,
) -> Result<LogWriter, String> {
    match (&access.format, &access.path) {
        (AccessLogFormat::Binary, LogTarget::File(_)) => {
            let target = destination(&access.path);
            let opened = open_file(&target, account)
                .and_then(|file| open_binary(&target, file, access.binary, reporter));
            opened.map_err(|error| format!("can't write the log {target}: {error}"))
        }
        (_, LogTarget::Messages(target)) => open_messages(target, access, reporter.logger),
        // Standard output can't be rotated, so a binary log needs a file; the configuration is checked for this.
        _ => open_lines(
            &access.path,
            WRITE_DELAY,
            account,
            report_lines(destination(&access.path), reporter.logger),
        ),
    }
}

/// Reports the losses of an access log of lines.
fn report_lines(target: LogDestination, logger: ErrorLogger) -> OnLineEvent {
    Box::new(move |event| match event {
        LineEvent::Dropping(error) => logger.error(format_args!(
            "the access log {target} can't be written, its lines are dropped and counted: {error}"
        )),
        LineEvent::WrittenAgain { lost } => logger.warn(format_args!(
            "the access log {target} is written again; {}",
            quantity(lost, "line was dropped", "lines were dropped")
        )),
    })
}

/// Starts the thread that sends a log as messages.
fn open_messages(
    target: &MessageTarget,
    access: &AccessLogConfig,
    logger: ErrorLogger,
) -> Result<LogWriter, String> {
    let host = hostname();
    let fields = MessageFields {
        facility: access.facility,
        tag: access.tag.clone(),
        host: match host.is_empty() {
            // The value of an unknown host (RFC 5424 §6.2.4).
            true => "-".to_owned(),
            false => host,
        },
    };
    let target_text = target.to_string();
    let on_event = move |event| {
        match event {
        MessageEvent::Dropping(error) => logger.error(format_args!(
            "the access log can't be sent to {target_text}, its entries are dropped and counted: {error}"
        )),
        MessageEvent::SentAgain { lost } => logger.warn(format_args!(
            "the access log is sent to {target_text} again; {}",
            quantity(lost, "entry was dropped", "entries were dropped")
        )),
    }
    };
    let output = MessageOutput::new(target.clone(), fields, Box::new(on_event));
    LogWriter::start(WriterLimits::of_lines(WRITE_DELAY), output)
        .map_err(|error| format!("can't start the thread of a log: {error}"))
}

/// The name of this host; empty if it is unknown.
pub fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn open_binary(
    target: &LogDestination,
    file: File,
    binary: BinaryLogConfig,
    reporter: FileReporter,
) -> io::Result<LogWriter> {
    let LogDestination::File(path) = target else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // Rotation would rename a device such as /dev/null.
    if !file.metadata()?.is_file() {
        let text = "a binary access log must be a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let limits = FileLimits {
        file_len_max: binary.file_len_max,
        file_age_max_ms: binary.file_age_max_ms,
        total_len_max: binary.total_len_max,
    };
    // The keys of a new state are random.
    let session = RandomState::new().build_hasher().finish() as u32;
    let files = LogFiles::new(
        path.clone(),
        file,
        limits,
        session,
        reporter.for_log(path.clone()),
    )?;
    let limits = WriterLimits {
        delay: Duration::from_millis(binary.block_age_max_ms),
        wake_len: BINARY_WAKE_LEN,
        pending_len_max: BINARY_PENDING_LEN_MAX,
        count_entries: count_records,
    };
    LogWriter::start(limits, files)
}

/// Reports events of the files of binary logs.
struct FileReporter {
    logger: ErrorLogger,
    rotations_failed: Arc<AtomicU64>,
}

impl FileReporter {
    /// The reporter of the log at a path.
    fn for_log(self, path: PathBuf) -> OnFileEvent {
        Box::new(move |event| self.report(&path, event))
    }

    fn report(&self, path: &Path, event: FileEvent) {
        let (logger, log) = (&self.logger, path.display());
        match event {
            FileEvent::Dropping(error) => logger.error(format_args!(
                "the access log {log} can't be written, its records are dropped and counted: {error}"
            )),
            FileEvent::WrittenAgain { lost } => logger.warn(format_args!(
                "the access log {log} is written again; {}",
                quantity(lost, "record was dropped", "records were dropped")
            )),
            FileEvent::NotRotated(error) => {
                self.rotations_failed.fetch_add(1, Relaxed);
                let hint = match error.kind() {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        let folder = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                        let folder = folder.parent().unwrap_or(Path::new("/")).display();
                        let user = user_name();
                        format!("; the user {user} needs write access to the folder {folder}")
                    }
                    _ => String::new(),
                };
                logger.error(format_args!(
                    "the access log {log} can't be rotated and grows, up to total_len_max: {error}{hint}"
                ));
            }
            FileEvent::NotDeleted(path, error) => logger.error(format_args!(
                "the old access log {} can't be deleted: {error}",
                path.display()
            )),
        }
    }
}

/// The name of the server's user, or else its number.
fn user_name() -> String {
    let id = geteuid();
    let user = User::from_uid(id).ok().flatten();
    user.map_or_else(|| id.to_string(), |user| user.name)
}

fn open_lines(
    target: &LogTarget,
    delay: Duration,
    account: Option<&ServerAccount>,
    on_event: OnLineEvent,
) -> Result<LogWriter, String> {
    let target = destination(target);
    open_file(&target, account)
        .and_then(|file| LogWriter::open_file(&target, file, delay, on_event))
        .map_err(|error| format!("can't write the log {target}: {error}"))
}

fn open_file(target: &LogDestination, account: Option<&ServerAccount>) -> io::Result<File> {
    match (target, account) {
        // The file gets the server's user as its owner, so that it can be reopened after root is given up.
        (LogDestination::File(path), Some(account)) => account.open_log(path),
        _ => LogWriter::open_target(target),
    }
}

/// A target as in the configuration.
fn target_text(target: &LogTarget) -> String {
    match target {
        LogTarget::Messages(target) => target.to_string(),
        target => destination(target).to_string(),
    }
}

fn destination(target: &LogTarget) -> LogDestination {
    match target {
        LogTarget::Stdout => LogDestination::Stdout,
        // The configuration refuses messages for the error log, and access logs of messages have their own thread.
        LogTarget::Stderr | LogTarget::Messages(_) => LogDestination::Stderr,
        LogTarget::File(path) => LogDestination::File(path.clone()),
    }
}

fn level(level: ErrorLogLevel) -> LogLevel {
    match level {
        ErrorLogLevel::Error => LogLevel::Error,
        ErrorLogLevel::Warn => LogLevel::Warn,
        ErrorLogLevel::Info => LogLevel::Info,
        ErrorLogLevel::Debug => LogLevel::Debug,
    }
}
