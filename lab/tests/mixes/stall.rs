//! Tells what is where when nothing comes any more, as long as the connections are still there to be looked at.

use lowroad_lab::load::LoadSnapshot;

use crate::line::Line;

/// Looks in a row, of one a second, without an answer.
const SILENT_LOOKS: u32 = 5;

/// Watches the progress of one run.
pub struct Watch<'l> {
    line: &'l Line,
    silent: u32,
}

impl<'l> Watch<'l> {
    /// Of a run over this line.
    pub fn new(line: &'l Line) -> Watch<'l> {
        Watch { line, silent: 0 }
    }

    /// Once a second.
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
