//! Follows a log: prints new records, across rotations.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use lowroad_binary_log::LogReader;
use lowroad_binary_log::files::log_files;
use lowroad_binary_log::filter::RecordFilter;
use lowroad_log::AccessEntry;

use super::printer::RecordPrinter;
use super::source::{LogFileReader, LogInput, ReadFlow, new_reader};

/// Interval at which the file is checked for new blocks, which a server writes once in `block_age` or when they are
/// full.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A log that is being followed.
pub struct LogFollower {
    /// The path of the log's current file, which changes with each rotation.
    path: PathBuf,
    reader: LogReader,
    file: LogFileReader,
}

impl LogFollower {
    /// Reads a file. Also returns the lines of its last records.
    ///
    /// # Errors
    /// The file can't be opened or read.
    pub fn read(
        input: LogInput,
        filter: &RecordFilter,
        count: usize,
        printer: &mut RecordPrinter,
    ) -> Result<(LogFollower, VecDeque<Vec<u8>>), String> {
        let mut reader = new_reader()?;
        let path = input.path.clone();
        let mut file = LogFileReader::open(input, &mut reader)?;
        let mut lines = VecDeque::new();
        file.read(&mut reader, filter, &mut |entry| {
            // Only the last lines are kept, so memory does not grow with the file.
            if lines.len() >= count {
                lines.pop_front();
            }
            if count > 0 {
                lines.push_back(printer.line(entry));
            }
            Ok(ReadFlow::Continue)
        })?;
        Ok((LogFollower { path, reader, file }, lines))
    }

    /// Ends the reading, and reports the damage at the end of the file.
    ///
    /// # Errors
    /// It is no binary log.
    pub fn finish(&mut self) -> Result<(), String> {
        self.file.finish(&mut self.reader)
    }

    /// Prints new records until the output is closed or the process is ended.
    ///
    /// # Errors
    /// A file can't be read, or the output can't be written.
    pub fn follow(
        &mut self,
        filter: &RecordFilter,
        printer: &mut RecordPrinter,
    ) -> Result<(), String> {
        loop {
            // Checked before the file is read: after a rotation nothing more is written to it, so the read gets its
            // rest.
            let next = self.next_file();
            let mut print = |entry: &AccessEntry<'_>| printer.print(entry, None);
            if self.file.read(&mut self.reader, filter, &mut print)? == ReadFlow::Stop
                || printer.flush()? == ReadFlow::Stop
            {
                return Ok(());
            }
            match next {
                Some(next) => {
                    // The file is complete: what is left unread of it is damage, not a block to wait for.
                    self.finish()?;
                    self.file = LogFileReader::open(LogInput::from_path(next), &mut self.reader)?;
                }
                None => thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// The file that follows the open one, if that was rotated.
    fn next_file(&self) -> Option<PathBuf> {
        let own = self.file.file.metadata().ok()?;
        // A rotation renames the file, so its inode identifies it, not its name.
        let is_own = |path: &PathBuf| {
            let other = std::fs::metadata(path);
            other.is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
        };
        let files = log_files(&self.path);
        match files.iter().position(is_own) {
            // Several rotations may have passed.
            Some(place) => files.get(place + 1).cloned(),
            // Renamed by another program, or deleted.
            None => Some(self.path.clone()).filter(|path| path.exists()),
        }
    }
}
