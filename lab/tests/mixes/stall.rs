//! Reports the state of all connections when a run stalls, while they still exist.

use lowroad_lab::load::LoadSnapshot;

use crate::line::Line;

/// Number of consecutive snapshots (one a second) without a response after which a run has stalled.
const SILENT_LOOKS: u32 = 5;

/// Watches the progress of one run.
pub struct Watch<'l> {
    line: &'l Line,
    silent: u32,
}

impl<'l> Watch<'l> {
    /// Watches a run over this line.
    pub fn new(line: &'l Line) -> Watch<'l> {
        Watch { line, silent: 0 }
    }

    /// Handles a snapshot, once a second.
    pub fn look(&mut self, now: &LoadSnapshot) {
        if now.requests_per_s > 0.0 {
            self.silent = 0;
            return;
        }
        self.silent += 1;
        if self.silent == SILENT_LOOKS {
            eprintln!("no answer for {SILENT_LOOKS} s: {}", self.line.state());
        }
    }
}
