//! The error log: messages with a level and a time. A message below the configured level costs only one comparison.
//!
//! A message that is repeated within a second is counted, not written, so that a flood of errors does not become a
//! flood of lines. The lines are pushed into a `LineSink`. The last errors and warnings are kept in memory, for
//! dashboards.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::civil_date;
use crate::escape::is_invisible;
use crate::writer::LineSink;

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// A possible failure, or reduced operation.
    Warn,
    /// A normal event.
    Info,
    /// Details for debugging.
    Debug,
}

impl LogLevel {
    /// All levels, the most severe first.
    pub const ALL: [LogLevel; 4] = [
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
    ];

    /// The level with this name.
    pub fn from_name(name: &str) -> Option<LogLevel> {
        let mut levels = LogLevel::ALL.into_iter();
        levels.find(|level| level.as_str() == name)
    }

    /// The level as written in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}

/// The number of errors and warnings that are kept in memory.
const KEPT_MAX: usize = 100;

/// An error or a warning that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedMessage {
    /// The time of the message in milliseconds since 1970.
    pub unix_ms: u64,
    /// The severity of the message.
    pub level: LogLevel,
    /// The text, without control characters.
    pub text: String,
}

/// A handle to the error log. Clones share the log, its level and its counts of repetitions.
#[derive(Clone)]
pub struct ErrorLogger {
    shared: Arc<ErrorLogState>,
}

struct ErrorLogState {
    /// The least severe level that is written, as a number.
    level: AtomicU8,
    sink: LineSink,
    recent: Mutex<RecentMessages>,
}

impl ErrorLogger {
    /// A logger that writes to `sink` the messages that are at least as severe as `level`.
    pub fn new(sink: LineSink, level: LogLevel) -> ErrorLogger {
        ErrorLogger {
            shared: Arc::new(ErrorLogState {
                level: AtomicU8::new(level as u8),
                sink,
                recent: Mutex::default(),
            }),
        }
    }

    /// The least severe level that is written.
    pub fn level(&self) -> LogLevel {
        let level = usize::from(self.shared.level.load(Relaxed));
        LogLevel::ALL[level.min(LogLevel::ALL.len() - 1)]
    }

    /// Changes the least severe level that is written, for all clones.
    pub fn set_level(&self, level: LogLevel) {
        self.shared.level.store(level as u8, Relaxed);
    }

    /// Writes a line about an act of an operator, at any level, and also if it is repeated.
    pub fn audit(&self, message: fmt::Arguments<'_>) {
        // Neither counted as a repetition nor kept for dashboards: each act has its own line.
        let time = civil_date::rfc3339(unix_ms());
        let line = format!("{time} audit {}\n", printable(&message.to_string()));
        self.shared.push(line);
    }

    /// Logs a message at this level.
    pub fn log(&self, level: LogLevel, message: fmt::Arguments<'_>) {
        self.log_with(level, message, None);
    }

    /// Logs a message about a request. The label, which identifies the request, follows the message; messages that
    /// differ only in their labels are repetitions.
    pub fn log_request(
        &self,
        level: LogLevel,
        message: fmt::Arguments<'_>,
        label: &dyn fmt::Display,
    ) {
        self.log_with(level, message, Some(label));
    }

    fn log_with(
        &self,
        level: LogLevel,
        message: fmt::Arguments<'_>,
        label: Option<&dyn fmt::Display>,
    ) {
        if level as u8 > self.shared.level.load(Relaxed) {
            return;
        }
        // The message is formatted before the lock is taken, since other threads wait for the lock.
        let message = message.to_string();
        let label = label.map(|label| format!(", {label}"));
        let unix_ms = unix_ms();
        let mut recent = self
            .shared
            .recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let label = label.as_deref().unwrap_or_default();
        self.shared
            .push(recent.lines(level, message, label, unix_ms));
    }

    /// The last errors and warnings, oldest first.
    pub fn latest(&self) -> Vec<LoggedMessage> {
        let recent = self.shared.recent.lock();
        let recent = recent.unwrap_or_else(PoisonError::into_inner);
        recent.kept.iter().cloned().collect()
    }

    /// Logs a failure.
    pub fn error(&self, message: fmt::Arguments<'_>) {
        self.log(LogLevel::Error, message);
    }

    /// Logs a possible failure, or reduced operation.
    pub fn warn(&self, message: fmt::Arguments<'_>) {
        self.log(LogLevel::Warn, message);
    }

    /// Logs a normal event.
    pub fn info(&self, message: fmt::Arguments<'_>) {
        self.log(LogLevel::Info, message);
    }

    /// Logs details for debugging.
    pub fn debug(&self, message: fmt::Arguments<'_>) {
        self.log(LogLevel::Debug, message);
    }
}

/// Milliseconds since 1970.
fn unix_ms() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

impl ErrorLogState {
    fn push(&self, lines: String) {
        if !lines.is_empty() {
            let _ = self.sink.push(lines.as_bytes()); // lost lines are counted there
        }
    }
}

impl Drop for ErrorLogState {
    /// Writes the counts of pending repetitions.
    fn drop(&mut self) {
        let recent = self
            .recent
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let lines = recent.lines_counted(|_| true);
        self.push(lines);
    }
}

/// The number of messages remembered: several threads may report several problems alternately.
const RECENT_MAX: usize = 8;
/// How long a repeated message is counted instead of written.
const REPEAT_MS: u64 = 1000;

/// The messages of the last second, at most [`RECENT_MAX`], oldest first.
#[derive(Default)]
struct RecentMessages {
    messages: Vec<LogMessage>,
    /// The last errors and warnings, at most [`KEPT_MAX`], oldest first.
    kept: VecDeque<LoggedMessage>,
}

struct LogMessage {
    level: LogLevel,
    text: String,
    /// When the message was written.
    written_ms: u64,
    /// The time of the message's last occurrence.
    last_ms: u64,
    /// The number of occurrences since the message was written.
    repeated: u64,
}

impl RecentMessages {
    /// The lines to write for a message: no line if the message was written within the last second. Lines with the
    /// counts of earlier repetitions come first. `label` follows the message.
    fn lines(&mut self, level: LogLevel, text: String, label: &str, now_ms: u64) -> String {
        let mut lines =
            // The clock may be set back, hence the absolute difference.
            self.lines_counted(|message| now_ms.abs_diff(message.written_ms) >= REPEAT_MS);
        let known = |message: &&mut LogMessage| message.level == level && message.text == text;
        if let Some(message) = self.messages.iter_mut().find(known) {
            message.repeated += 1;
            message.last_ms = now_ms;
            return lines;
        }
        // The oldest message is evicted; its count is written, not lost.
        if self.messages.len() == RECENT_MAX {
            let oldest = self.messages.remove(0);
            self.write_count(&oldest, &mut lines);
        }
        let line = printable(&format!("{text}{label}"));
        self.write(&mut lines, now_ms, level, line);
        self.messages.push(LogMessage {
            level,
            text,
            written_ms: now_ms,
            last_ms: now_ms,
            repeated: 0,
        });
        lines
    }

    /// Forgets the messages for which `over` returns true. Returns lines with the counts of their repetitions.
    fn lines_counted(&mut self, over: impl Fn(&LogMessage) -> bool) -> String {
        let mut lines = String::new();
        let ended = self.messages.extract_if(.., |message| over(message));
        for message in ended.collect::<Vec<_>>() {
            self.write_count(&message, &mut lines);
        }
        lines
    }

    /// Writes how often a message was repeated.
    fn write_count(&mut self, message: &LogMessage, lines: &mut String) {
        if message.repeated > 0 {
            let (text, repeated) = (printable(&message.text), message.repeated);
            let times = if repeated == 1 { "time" } else { "times" };
            let text = format!("{text} (repeated {repeated} {times})");
            self.write(lines, message.last_ms, message.level, text);
        }
    }

    fn write(&mut self, lines: &mut String, unix_ms: u64, level: LogLevel, text: String) {
        let (time, word) = (civil_date::rfc3339(unix_ms), level.as_str());
        // Writing into memory cannot fail.
        let _ = writeln!(lines, "{time} {word} {text}");
        if level <= LogLevel::Warn {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(LoggedMessage {
                unix_ms,
                level,
                text,
            });
        }
    }
}

/// The text as one line of visible characters: a line break could forge a second message, an escape sequence could control
/// a terminal, and an override of the direction could show another text. The escapes are those of JSON, so that an object
/// stays one with the same members.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => printable.push(' '),
            // Writing into memory does not fail.
            c if is_invisible(c) => drop(write!(printable, "\\u{:04x}", u32::from(c))),
            c => printable.push(c),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::{LogDestination, LogWriter};

    const SECOND: &str = "1970-01-01T00:00:0";

    fn warn(recent: &mut RecentMessages, text: &str, ms: u64) -> String {
        recent
            .lines(LogLevel::Warn, text.into(), "", ms)
            .replace(SECOND, "")
    }

    #[test]
    fn characters_that_forge_or_reorder_lines_are_escaped() {
        for (text, expected) in [
            ("a\nb\tc", "a b c"),
            ("\u{1b}[2J\u{9b}", "\\u001b[2J\\u009b"),
            ("\u{202e}\u{200b}\u{2028}", "\\u202e\\u200b\\u2028"),
            ("\u{e4}\u{1f600}", "\u{e4}\u{1f600}"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn repetitions_within_a_second_are_counted() {
        let mut recent = RecentMessages::default();
        assert_eq!(warn(&mut recent, "full", 0), "0.000Z warn full\n");
        for ms in 1..=57 {
            assert_eq!(warn(&mut recent, "full", ms), "");
        }
        assert_eq!(
            warn(&mut recent, "a\nb", 1001),
            "0.057Z warn full (repeated 57 times)\n1.001Z warn a b\n"
        );
        assert_eq!(
            warn(&mut recent, "full", 1002),
            "1.002Z warn full\n",
            "news again"
        );
    }

    #[test]
    fn messages_that_differ_in_labels_are_repetitions() {
        let mut recent = RecentMessages::default();
        let mut lines = |label, ms| {
            let lines = recent.lines(LogLevel::Warn, "late".into(), label, ms);
            lines.replace(SECOND, "")
        };
        assert_eq!(lines(", client: a\n", 0), "0.000Z warn late, client: a \n");
        assert_eq!(lines(", client: b", 1), "");
        let counted = "0.001Z warn late (repeated 1 time)\n2.000Z warn late, client: c\n";
        assert_eq!(lines(", client: c", 2000), counted);
    }

    #[test]
    fn persistent_message_is_written_once_a_second() {
        // A lasting problem must stay visible.
        let mut recent = RecentMessages::default();
        let lines: String = (0..3000).map(|ms| warn(&mut recent, "full", ms)).collect();
        assert_eq!(
            lines,
            "0.000Z warn full\n0.999Z warn full (repeated 999 times)\n1.000Z warn full\n\
             1.999Z warn full (repeated 999 times)\n2.000Z warn full\n"
        );
    }

    #[test]
    fn alternating_messages_are_collapsed() {
        // A memory of only the last message would write both each time.
        let mut recent = RecentMessages::default();
        let lines: String = (0..100)
            .map(|ms| warn(&mut recent, if ms % 2 == 0 { "even" } else { "odd" }, ms))
            .collect();
        assert_eq!(lines, "0.000Z warn even\n0.001Z warn odd\n");
        assert_eq!(
            recent
                .lines(LogLevel::Error, "odd".into(), "", 100)
                .lines()
                .count(),
            1,
            "a level more"
        );
    }

    #[test]
    fn number_of_remembered_messages_is_bounded() {
        let mut recent = RecentMessages::default();
        for ms in 0..1000 {
            let _ = warn(&mut recent, "first", ms);
            assert_eq!(
                warn(&mut recent, &format!("message {ms}"), ms)
                    .lines()
                    .count(),
                {
                    // Each eighth new message evicts "first", with seven repetitions.
                    if ms > 0 && ms % RECENT_MAX as u64 == 7 {
                        2
                    } else {
                        1
                    }
                }
            );
            assert!(recent.messages.len() <= RECENT_MAX);
        }
    }

    #[test]
    fn a_clock_set_back_does_not_silence_a_message() {
        // The time since the last line is an absolute difference.
        let mut recent = RecentMessages::default();
        assert_eq!(warn(&mut recent, "full", 9000), "9.000Z warn full\n");
        assert_eq!(warn(&mut recent, "full", 5000), "5.000Z warn full\n");
    }

    #[test]
    fn the_last_errors_and_warnings_are_kept() {
        let mut recent = RecentMessages::default();
        recent.lines(LogLevel::Info, "started".into(), "", 0);
        for ms in 0..1000 {
            warn(&mut recent, &format!("message\n{ms}"), ms);
            warn(&mut recent, "again", ms);
        }
        assert_eq!(recent.kept.len(), KEPT_MAX);
        let texts: Vec<&str> = recent.kept.iter().map(|it| &*it.text).collect();
        assert_eq!(texts[KEPT_MAX - 1], "message 999");
        let is_count = |text: &&&str| text.starts_with("again (repeated ");
        assert!(texts.iter().any(|text| is_count(&text)), "{texts:?}");
    }

    #[test]
    fn levels_cut_and_the_last_count_is_said() {
        let path = std::env::temp_dir().join(format!("lowroad-log-levels-{}", std::process::id()));
        let writer = LogWriter::open(&LogDestination::File(path.clone())).expect("open");
        let log = ErrorLogger::new(writer.sink(), LogLevel::Info);
        log.debug(format_args!("not shown"));
        log.info(format_args!("shown"));
        log.clone().info(format_args!("shown"));
        drop(log);
        writer.close();
        let lines = std::fs::read_to_string(&path).expect("read");
        let ends: Vec<&str> = lines
            .lines()
            .filter_map(|line| line.split_once("Z "))
            .map(|l| l.1)
            .collect();
        assert_eq!(ends, ["info shown", "info shown (repeated 1 time)"]);
        std::fs::remove_file(path).expect("remove");
    }
}
