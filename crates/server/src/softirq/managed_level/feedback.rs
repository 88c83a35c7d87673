//! Reads the output of the level's processes. Access log lines go to the server's access log; state reports go to the
//! error log and to `lowroad status`.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use lowroad_binary_log::batch_line;
use lowroad_config::AccessLogFormat;
use lowroad_log::{ErrorLogger, LineSink};

use super::health::{LevelHealthState, OFF};
use super::messages::{ATTACHED, GONE, NUMBERS, URLS};
use crate::level::LevelReport;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;

/// Maximum bytes of lines that are passed to the log at once.
const BATCH_LEN: usize = 64 * 1024;

/// Reads and applies the level's output.
pub struct LevelFeedback<R> {
    /// The standard output of both processes.
    pub output: BufReader<R>,
    /// The access log.
    pub access: Option<(LineSink, AccessLogFormat)>,
    /// The error log.
    pub logger: ErrorLogger,
    /// The level's state.
    pub health: Arc<LevelHealthState>,
    /// Notified when a daemon restarts, because the new daemon has not received earlier changes.
    pub changes: Arc<ChangeFeed>,
}

impl<R: Read> LevelFeedback<R> {
    /// Reads until the level answers requests. Returns false if the output ends first.
    pub fn wait_until_attached(&mut self) -> bool {
        let mut line = Vec::new();
        while self.next(&mut line) {
            if line.starts_with(b"=") {
                self.apply_report(&line);
                return line.starts_with(ATTACHED.as_bytes());
            }
        }
        false
    }

    /// Reads and applies the output until the processes have ended.
    pub fn forward_output(&mut self) {
        let (mut line, mut batch) = (Vec::new(), Vec::new());
        while self.next(&mut line) {
            match (line.first(), &self.access) {
                (Some(b'='), _) => self.apply_report(&line),
                (Some(_), Some((_, format))) => append_entry(&line, *format, &mut batch),
                _ => {}
            }
            // Lines are collected while more input is buffered, and passed on before the next read might block.
            let is_drained = self.output.buffer().is_empty();
            if let Some((sink, _)) = &self.access
                && (batch.len() >= BATCH_LEN || is_drained && !batch.is_empty())
            {
                // The log itself counts the lines that it drops.
                let _ = sink.push(&batch);
                batch.clear();
            }
        }
        if let Some((sink, _)) = &self.access {
            let _ = sink.push(&batch);
        }
        if self.health.record_off() {
            self.logger.error(format_args!("softirq: {OFF}"));
        }
    }

    /// Reads the next line. Returns false at the end of the output.
    fn next(&mut self, line: &mut Vec<u8>) -> bool {
        line.clear();
        matches!(self.output.read_until(b'\n', line), Ok(1..))
    }

    fn apply_report(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        if line.starts_with(ATTACHED) {
            // The first start is not a restart, so no warning is logged.
            if let restarts @ 1.. = self.health.record_attached() {
                self.logger.warn(format_args!(
                    "softirq: the level is running again (start {restarts})"
                ));
            }
            // Changes before this start were reported to the previous daemon only.
            self.changes.notify();
        } else if let Some(numbers) = line.strip_prefix(NUMBERS) {
            self.health.record_report(LevelReport::from_line(numbers));
        } else if let Some(urls) = line.strip_prefix(URLS) {
            self.health.record_urls(urls, clock::now_ms());
        } else if let Some(description) = line.strip_prefix(GONE) {
            self.logger.error(format_args!(
                "softirq: the level's process has ended: {description}"
            ));
            self.health.record_gone(description);
        }
    }
}

/// Appends the entry of a line, if the line is complete. A killed process may leave an incomplete last line.
fn append_entry(line: &[u8], format: AccessLogFormat, batch: &mut Vec<u8>) {
    let end: &[u8] = match format {
        AccessLogFormat::Combined | AccessLogFormat::Extended => b"\"\n",
        AccessLogFormat::Json => b"}\n",
        AccessLogFormat::Binary => {
            batch_line::append_record_of_line(line, batch);
            return;
        }
    };
    if line.ends_with(end) {
        batch.extend_from_slice(line);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lowroad_log::{LogDestination, LogLevel, LogWriter};

    use super::*;
    use crate::level::LevelHealth;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lowroad-heard-{name}-{}", std::process::id()))
    }

    /// Applies this output. Returns the access log, the error log, and the level's state.
    fn after(name: &str, said: &str) -> (String, String, String) {
        let files = [
            file(&format!("{name}-access")),
            file(&format!("{name}-error")),
        ];
        let open =
            |path: &PathBuf| LogWriter::open(&LogDestination::File(path.clone())).expect("a log");
        let (access, errors) = (open(&files[0]), open(&files[1]));
        let health = Arc::new(LevelHealthState::default());
        let mut hearing = LevelFeedback {
            output: BufReader::new(said.as_bytes()),
            access: Some((access.sink(), AccessLogFormat::Combined)),
            logger: ErrorLogger::new(errors.sink(), LogLevel::Info),
            health: health.clone(),
            changes: Arc::default(),
        };
        let healthy = match hearing.wait_until_attached() {
            true => health.text(),
            false => "no".into(),
        };
        hearing.forward_output();
        drop(hearing);
        access.close();
        errors.close();
        let [access, errors] = files.map(|path| {
            let text = std::fs::read_to_string(&path).expect("a log");
            std::fs::remove_file(path).expect("removed");
            text
        });
        assert_eq!(health.text(), OFF);
        (access, errors, healthy)
    }

    #[test]
    fn complete_log_lines_are_forwarded_and_incomplete_ones_dropped() {
        let said = "\n=attached: to port 80\n1.2.3.4 - \"a\"\n1.2.3.5 - \"cu\n=gone: signal 9\n\
                    \n=attached: to port 80\n1.2.3.6 - \"b\"\n";
        let (access, errors, healthy) = after("cut", said);
        assert_eq!(access, "1.2.3.4 - \"a\"\n1.2.3.6 - \"b\"\n");
        assert_eq!(healthy, "attached");
        for part in ["has ended: signal 9", "running again (start 1)", OFF] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
    }

    #[test]
    fn daemon_that_ends_without_report_is_not_attached() {
        assert_eq!(after("dies", "\n=gone: signal 9\n").2, "no");
        assert_eq!(after("silent", "").2, "no");
    }
}
