//! What the user sees while an experiment runs: a line for each measurement, and on a terminal a
//! line that is rewritten within it.

use std::io::{IsTerminal, Write};

use super::units::{number, span};
use crate::load::Snapshot;

/// Where progress goes.
pub trait Progress {
    /// A line that stays.
    fn line(&mut self, text: &str);
    /// A line that the next one replaces.
    fn passing(&mut self, text: &str);
}

/// Standard error.
#[derive(Debug)]
pub struct Stderr {
    terminal: bool,
    passing: bool,
}

impl Default for Stderr {
    fn default() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            passing: false,
        }
    }
}

impl Progress for Stderr {
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
pub struct Named {
    name: String,
}

impl Named {
    /// For the experiment of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }
}

impl Progress for Named {
    fn line(&mut self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{}: {text}", self.name);
    }

    fn passing(&mut self, _text: &str) {}
}

/// Where in an experiment a measurement stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Measurements made or found, this one included.
    pub number: usize,
    /// Of all.
    pub all: usize,
    /// Seconds left after it.
    pub left_s: f64,
}

/// The beginning of a line.
#[must_use]
pub fn prefix(place: Place, server: &str, x: &str, repeat: u32) -> String {
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
pub fn snapshot(snapshot: &Snapshot) -> String {
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
