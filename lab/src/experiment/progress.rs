//! Progress of experiments: a line for each measurement, and on a terminal a status line during the measurement, which
//! is overwritten.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::units::{number, span};
use crate::load::LoadSnapshot;

/// A destination of progress lines.
pub trait ProgressSink {
    /// Prints a permanent line.
    fn line(&mut self, text: &str);
    /// Prints a line that the next one overwrites.
    fn passing(&mut self, text: &str);
}

/// Prints on standard error.
#[derive(Debug)]
pub struct StderrProgress {
    terminal: bool,
    passing: bool,
}

impl Default for StderrProgress {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            passing: false,
        }
    }
}

impl ProgressSink for StderrProgress {
    fn line(&mut self, text: &str) {
        // A passing line has no line break, so this text must replace it.
        let clear = if self.passing { "\r\x1b[K" } else { "" };
        self.passing = false;
        // A closed standard error is no reason to stop measuring.
        let _ = writeln!(std::io::stderr(), "{clear}{text}");
    }

    fn passing(&mut self, text: &str) {
        if self.terminal {
            self.passing = true;
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }
}

/// Prints on standard error for one of several concurrent experiments: only complete lines, each with the experiment's
/// name.
#[derive(Debug)]
pub struct NamedProgress {
    name: String,
}

impl NamedProgress {
    /// For the experiment of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl ProgressSink for NamedProgress {
    fn line(&mut self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}: {text}", self.name);
    }

    fn passing(&mut self, _text: &str) {}
}

/// Counts the measurements of a run, for all its threads.
#[derive(Debug)]
pub struct ProgressCounter {
    total: AtomicUsize,
    started: AtomicUsize,
    missing: AtomicUsize,
    measured: AtomicUsize,
    start: Instant,
    /// Assumed seconds for a measurement, until the first one is complete.
    expected_s: f64,
}

impl ProgressCounter {
    /// Counts `total` measurements, of which `missing` must be made; each takes about `expected_s`.
    #[must_use]
    pub fn new(total: usize, missing: usize, expected_s: f64) -> Self {
        Self {
            total: AtomicUsize::new(total),
            started: AtomicUsize::new(0),
            missing: AtomicUsize::new(missing),
            measured: AtomicUsize::new(0),
            start: Instant::now(),
            expected_s,
        }
    }

    /// Adds a measurement beyond the plan, which may be stored already.
    pub fn add_expected(&self, is_missing: bool) {
        self.total.fetch_add(1, Relaxed);
        self.missing.fetch_add(is_missing.into(), Relaxed);
    }

    /// Counts a stored measurement.
    pub fn skip(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    /// Starts the next measurement and returns its position.
    #[must_use]
    pub fn next(&self) -> RunPosition {
        let number = self.started.fetch_add(1, Relaxed) + 1;
        let missing = self.missing.fetch_sub(1, Relaxed).saturating_sub(1);
        let measurement_s = match self.measured.load(Relaxed) {
            // Until the first measurement is complete, only the estimate is available.
            0 => self.expected_s,
            // By elapsed time, which is shorter for each measurement if several threads measure.
            measured => self.start.elapsed().as_secs_f64() / measured as f64,
        };
        RunPosition {
            number,
            total: self.total.load(Relaxed),
            remaining_s: measurement_s * missing as f64,
        }
    }

    /// Counts a completed measurement.
    pub fn measured(&self) {
        self.measured.fetch_add(1, Relaxed);
    }
}

/// The position of a measurement in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunPosition {
    /// Its number among all measurements, stored ones included.
    pub number: usize,
    /// Number of all measurements.
    pub total: usize,
    /// Estimated seconds left after it.
    pub remaining_s: f64,
}

/// The beginning of a progress line.
#[must_use]
pub fn prefix(position: RunPosition, server: &str, x: &str, repeat: u32) -> String {
    let width = position.total.to_string().len();
    format!(
        "[{:>width$}/{}] {:>9} left  {server:<20} {x}  (repeat {})",
        position.number,
        position.total,
        span(position.remaining_s),
        repeat + 1
    )
}

/// The current figures during a measurement, as text.
#[must_use]
pub fn snapshot(snapshot: &LoadSnapshot) -> String {
    if snapshot.warming {
        return "warming up".into();
    }
    format!(
        "{:.0}/{:.0} s  {} requests/s  p50 {} µs  p99 {} µs  {} errors",
        snapshot.elapsed_s,
        snapshot.duration_s,
        number(snapshot.requests_per_s),
        snapshot.p50_us,
        snapshot.p99_us,
        snapshot.errors
    )
}
