//! The writers of the error log and the access log.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::time::Duration;

use lowroad_binary_log::files::{FileEvent, FileLimits, LogFiles, OnFileEvent, count_records};
use lowroad_config::{
    AccessLogConfig, AccessLogFormat, BinaryLogConfig, Config, ErrorLogLevel, LogTarget,
};
use lowroad_log::{ErrorLogger, LineSink, LogDestination, LogLevel, LogWriter, WriterLimits};
use lowroad_privileges::account::ServerAccount;
use lowroad_privileges::helper;
use lowroad_site::access::WRITE_DELAY;

/// Maximum pending bytes of the binary log's records: 50 ms at a million requests a second.
const BINARY_PENDING_LEN_MAX: usize = 16 << 20;
/// This many bytes of records become blocks without further delay.
const BINARY_WAKE_LEN: usize = 4 << 20;

/// The writers of the error log and the access log.
pub struct LogWriters {
    errors: LogWriter,
    access: Option<(LogWriter, AccessLogFormat)>,
    level: LogLevel,
}

impl LogWriters {
    /// Opens the configured logs, with root's rights if the process has them.
    ///
    /// # Errors
    /// A log can't be opened.
    pub fn open(config: &Config, account: Option<&ServerAccount>) -> Result<LogWriters, String> {
        let level = level(config.log.level);
        // Opened first, since the access log reports its failures to it; without delay, as a message may be the last.
        let errors = open_lines(&config.log.error, Duration::ZERO, account)?;
        let access = match &config.log.access {
            Some(access) => {
                let logger = ErrorLogger::new(errors.sink(), level);
                Some((open_access(access, logger, account)?, access.format))
            }
            None => None,
        };
        Ok(LogWriters {
            errors,
            access,
            level,
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

    /// A new sink of the access log.
    pub fn access_sink(&self) -> Option<(LineSink, AccessLogFormat)> {
        self.access
            .as_ref()
            .map(|(writer, format)| (writer.sink(), *format))
    }

    /// Reopens the log files. A log that can't be reopened keeps its old file, and `logger` reports the error.
    pub fn reopen(&self, logger: &ErrorLogger) {
        let all = std::iter::once((&self.errors, "error"));
        for (writer, name) in all.chain(self.access.iter().map(|(writer, _)| (writer, "access"))) {
            let logger = logger.clone();
            writer.reopen(helper::reopen_log, move |error| {
                logger.error(format_args!(
                    "can't reopen the {name} log, so it continues in the previous file: {error}"
                ));
            });
        }
    }

    /// Writes the pending entries, and ends both logs.
    pub fn close(self) {
        // The access log ends first, since its thread may still report to the error log.
        if let Some((writer, _)) = self.access {
            writer.close();
        }
        self.errors.close();
    }
}

fn open_access(
    access: &AccessLogConfig,
    logger: ErrorLogger,
    account: Option<&ServerAccount>,
) -> Result<LogWriter, String> {
    match (access.format, &access.path) {
        (AccessLogFormat::Binary, LogTarget::File(_)) => {
            let target = destination(&access.path);
            let opened = open_file(&target, account)
                .and_then(|file| open_binary(&target, file, access.binary, logger));
            opened.map_err(|error| format!("can't write the log {target:?}: {error}"))
        }
        // Standard output can't be rotated, so a binary log needs a file; the configuration is checked for this.
        _ => open_lines(&access.path, WRITE_DELAY, account),
    }
}

fn open_binary(
    target: &LogDestination,
    file: File,
    binary: BinaryLogConfig,
    logger: ErrorLogger,
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
    let files = LogFiles::new(path.clone(), file, limits, session, reporter(logger))?;
    let limits = WriterLimits {
        delay: Duration::from_millis(binary.block_age_max_ms),
        wake_len: BINARY_WAKE_LEN,
        pending_len_max: BINARY_PENDING_LEN_MAX,
        count_entries: count_records,
    };
    LogWriter::start(limits, files)
}

/// Reports events of the binary log's files.
fn reporter(logger: ErrorLogger) -> OnFileEvent {
    Box::new(move |event| {
        match event {
        FileEvent::Dropping(error) => logger.error(format_args!(
            "the access log can't be written, its records are dropped and counted: {error}"
        )),
        FileEvent::WrittenAgain { lost } => logger.warn(format_args!(
            "the access log is written again; {lost} records were dropped"
        )),
        FileEvent::NotRotated(error) => logger.error(format_args!(
            "the access log can't be rotated and grows, up to total_len_max: {error}; the server's user needs \
             write access to its folder"
        )),
        FileEvent::NotDeleted(path, error) => logger.error(format_args!(
            "the old access log {} can't be deleted: {error}",
            path.display()
        )),
    }
    })
}

fn open_lines(
    target: &LogTarget,
    delay: Duration,
    account: Option<&ServerAccount>,
) -> Result<LogWriter, String> {
    let target = destination(target);
    open_file(&target, account)
        .and_then(|file| LogWriter::open_file(&target, file, delay))
        .map_err(|error| format!("can't write the log {target:?}: {error}"))
}

fn open_file(target: &LogDestination, account: Option<&ServerAccount>) -> io::Result<File> {
    match (target, account) {
        // The file gets the server's user as its owner, so that it can be reopened after root is given up.
        (LogDestination::File(path), Some(account)) => account.open_log(path),
        _ => LogWriter::open_target(target),
    }
}

fn destination(target: &LogTarget) -> LogDestination {
    match target {
        LogTarget::Stdout => LogDestination::Stdout,
        LogTarget::Stderr => LogDestination::Stderr,
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
