//! What the user sees while an experiment runs: a line for each measurement, and on a terminal a
//! line that is rewritten within it.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::units::{number, span};
use crate::load::LoadSnapshot;

/// Where progress goes.
pub trait ProgressSink {
    /// A line that stays.
    fn line(&mut self, text: &str);
    /// A line that the next one replaces.
    fn passing(&mut self, text: &str);
}

/// Standard error.
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

/// Standard error for one of several experiments that run at a time: whole lines, with its name.
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

/// How far a run is. Shared by all who measure.
#[derive(Debug)]
pub struct ProgressCounter {
    all: AtomicUsize,
    begun: AtomicUsize,
    missing: AtomicUsize,
    measured: AtomicUsize,
    since: Instant,
    /// Seconds of a measurement, before one is known.
    expected_s: f64,
}

impl ProgressCounter {
    /// For so many measurements, of which so many are not there yet; `expected_s` is what one takes, roughly.
    #[must_use]
    pub fn new(all: usize, missing: usize, expected_s: f64) -> Self {
        Self {
            all: AtomicUsize::new(all),
            begun: AtomicUsize::new(0),
            missing: AtomicUsize::new(missing),
            measured: AtomicUsize::new(0),
            since: Instant::now(),
            expected_s,
        }
    }

    /// There is one more than was known, which may be there already.
    pub fn expect_another(&self, is_missing: bool) {
        self.all.fetch_add(1, Relaxed);
        self.missing.fetch_add(is_missing.into(), Relaxed);
    }

    /// Passes one that was found.
    pub fn pass(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    /// The place of the next, which is measured now.
    #[must_use]
    pub fn next(&self) -> RunPosition {
        let number = self.begun.fetch_add(1, Relaxed) + 1;
        let missing = self.missing.fetch_sub(1, Relaxed).saturating_sub(1);
        let each_s = match self.measured.load(Relaxed) {
            0 => self.expected_s,
            measured => self.since.elapsed().as_secs_f64() / measured as f64,
        };
        RunPosition {
            number,
            all: self.all.load(Relaxed),
            left_s: each_s * missing as f64,
        }
    }

    /// One was measured.
    pub fn measured(&self) {
        self.measured.fetch_add(1, Relaxed);
    }
}

/// Where in a run a measurement stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunPosition {
    /// Measurements made or found, this one included.
    pub number: usize,
    /// Of all.
    pub all: usize,
    /// Seconds left after it.
    pub left_s: f64,
}

/// The beginning of a line.
#[must_use]
pub fn prefix(place: RunPosition, server: &str, x: &str, repeat: u32) -> String {
    let width = place.all.to_string().len();
    format!(
        "[{:>width$}/{}] {:>9} left  {server:<20} {x}  (repeat {})",
        place.number,
        place.all,
        span(place.left_s),
        repeat + 1
    )
}

/// What is known within a measurement.
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
