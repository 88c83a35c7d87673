//! The interface between the log's thread and the destination of entries: lines, or records of another form.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::output::line_count;
use super::{PENDING_LEN_MAX, WAKE_LEN};

/// Opens a log's file in another way, after an error.
pub type OpenOtherwise = fn(&Path, io::Error) -> io::Result<File>;

/// The destination of a log's entries. Only the log's thread calls it, so it may block.
pub trait EntryOutput: Send + 'static {
    /// Whether [`EntryOutput::write`] only gathers the entries, and [`EntryOutput::end_round`] writes them.
    const IS_GATHERING: bool;

    /// The length of the entries at the front that are written at once. Not 0.
    fn part_len(&self, entries: &[u8]) -> usize;

    /// Writes whole entries of one sink; returns the number of lost ones.
    fn write(&mut self, entries: &[u8]) -> u64;

    /// Ends a round, in which the pending entries of all sinks were written. Returns the number of lost ones.
    fn end_round(&mut self) -> u64;

    /// Opens the file again, after it was renamed.
    ///
    /// # Errors
    /// When neither this process nor `open_otherwise` can open it. The open file stays in use.
    fn reopen(&mut self, open_otherwise: OpenOtherwise) -> io::Result<()>;
}

/// The bounds of a log's buffers.
#[derive(Clone, Copy, Debug)]
pub struct WriterLimits {
    /// Maximum time that an entry waits to be written with others.
    pub delay: Duration,
    /// This many pending bytes are written without further delay.
    pub wake_len: usize,
    /// Maximum pending bytes, in all buffers.
    pub pending_len_max: usize,
    /// Counts the entries in whole entries of a sink.
    pub count_entries: fn(&[u8]) -> u64,
}

impl WriterLimits {
    /// The bounds of a log of lines, each of which may wait this long.
    pub fn of_lines(delay: Duration) -> WriterLimits {
        WriterLimits {
            delay,
            wake_len: WAKE_LEN,
            pending_len_max: PENDING_LEN_MAX,
            count_entries: line_count,
        }
    }
}
