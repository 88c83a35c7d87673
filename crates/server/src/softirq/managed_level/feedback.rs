//! Reads the output of the level's processes. Access log lines go to the server's access log; state reports go to the
//! error log and to `lowroad status`.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use lowroad_binary_log::batch::{self, BatchRecord};
use lowroad_binary_log::batch_line;
use lowroad_log::{EntryDetails, ErrorLogger, LogProcess};
use lowroad_site::access_sink::AccessSink;

use super::health::{LevelHealthState, OFF};
use super::messages::{ATTACHED, GONE, HOSTS, NUMBERS, URLS};
use crate::level::LevelReport;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::clock;

/// Reads and applies the level's output.
pub struct LevelFeedback<R> {
    /// The standard output of both processes.
    pub output: BufReader<R>,
    /// The access logs.
    pub access: Vec<AccessSink>,
    /// The host, for the access logs.
    pub hostname: String,
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
        let (mut line, mut record) = (Vec::new(), Vec::new());
        while self.next(&mut line) {
            match line.first() {
                Some(b'=') => self.apply_report(&line),
                Some(_) => self.log(&line, &mut record),
                None => {}
            }
            // Entries are collected while more input is buffered, and passed on before the next read might block.
            if self.output.buffer().is_empty() {
                self.access.iter_mut().for_each(AccessSink::flush);
            }
        }
        self.access.iter_mut().for_each(AccessSink::flush);
        if self.health.record_off() {
            self.logger.error(format_args!("softirq: {OFF}"));
        }
    }

    /// Writes the record of a line to the access logs, if the line is complete. A killed process may leave an incomplete
    /// last line.
    fn log(&mut self, line: &[u8], record: &mut Vec<u8>) {
        record.clear();
        batch_line::append_record_of_line(line, record);
        for entry in batch::records(record).filter_map(BatchRecord::entry) {
            let host = String::from_utf8_lossy(entry.host);
            let name = host.rsplit_once(':').map_or(&*host, |(name, _)| name);
            let sites = self.health.sites();
            let details = EntryDetails {
                scheme: "http",
                // The level knows only the host. Before the server has started, that is also the best name.
                site: sites.as_ref().map_or(name, |sites| sites.label(&host)),
                process: LogProcess {
                    hostname: &self.hostname,
                    pid: std::process::id(),
                },
                ..EntryDetails::default()
            };
            for log in &mut self.access {
                log.push_entry(&entry, &details);
            }
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
        } else if let Some(hosts) = line.strip_prefix(HOSTS) {
            self.health.record_hosts(hosts);
        } else if let Some(description) = line.strip_prefix(GONE) {
            self.logger.error(format_args!(
                "softirq: the level's process has ended: {description}"
            ));
            self.health.record_gone(description);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lowroad_config::{AccessLogConfig, AccessLogFormat, LogTarget};
    use lowroad_log::{AccessEntry, LogDestination, LogLevel, LogWriter};

    use super::*;
    use crate::level::LevelHealth;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("lowroad-heard-{name}-{}", std::process::id()))
    }

    /// Applies this output. Returns the access log, the error log, and the level's state.
    fn after(name: &str, said: &[u8]) -> (String, String, String) {
        let files = [
            file(&format!("{name}-access")),
            file(&format!("{name}-error")),
        ];
        let open =
            |path: &PathBuf| LogWriter::open(&LogDestination::File(path.clone())).expect("a log");
        let (access, errors) = (open(&files[0]), open(&files[1]));
        let health = Arc::new(LevelHealthState::default());
        let mut hearing = LevelFeedback {
            output: BufReader::new(said),
            access: vec![AccessSink::new(
                access.sink(),
                AccessLogConfig::new(LogTarget::Stdout, AccessLogFormat::Extended),
            )],
            hostname: String::new(),
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

    /// The line of a record.
    fn record(path: &str) -> Vec<u8> {
        let mut line = Vec::new();
        let request = format!("GET {path} HTTP/1.1");
        let entry = AccessEntry {
            peer: [192, 0, 2, 7].into(),
            user: b"",
            unix_ms: 1000,
            line: request.as_bytes(),
            host: b"example.com",
            status: 200,
            body_bytes: 5,
            whole: true,
            referer: b"",
            user_agent: b"",
            duration_us: 0,
            outcome: "hit",
            level: "softirq",
            tls: "",
        };
        batch_line::append_line(&entry, &mut line);
        line
    }

    #[test]
    fn complete_log_lines_are_forwarded_and_incomplete_ones_dropped() {
        let cut = &record("/cut")[..40];
        let said = [
            b"\n=attached: to port 80\n",
            &record("/a")[..],
            cut,
            b"\n=gone: signal 9\n\n=attached: to port 80\n",
            &record("/b"),
        ];
        let (access, errors, healthy) = after("cut", &said.concat());
        let line = |path: &str| {
            format!(
                "192.0.2.7 - - [01/Jan/1970:00:00:01 +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"-\" hit 0.000 \
                 \"example.com\"\n"
            )
        };
        assert_eq!(access, line("/a") + &line("/b"));
        assert_eq!(healthy, "attached");
        for part in ["has ended: signal 9", "running again (start 1)", OFF] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
    }

    #[test]
    fn daemon_that_ends_without_report_is_not_attached() {
        assert_eq!(after("dies", b"\n=gone: signal 9\n").2, "no");
        assert_eq!(after("silent", b"").2, "no");
    }
}
