//! Follows a log: new records, and the files that rotation makes.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use lowroad_binary_log::LogReader;
use lowroad_binary_log::files::log_files;
use lowroad_binary_log::filter::RecordFilter;
use lowroad_log::AccessEntry;

use super::printer::RecordPrinter;
use super::source::{LogFileReader, ReadFlow, new_reader};

/// The interval between two looks at the file. A block comes once in `block_age` at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A log that is being followed.
pub struct LogFollower {
    /// The current file's path, whichever file has it.
    path: PathBuf,
    reader: LogReader,
    file: LogFileReader,
}

impl LogFollower {
    /// Reads a file. Returns the lines of its last records, too.
    ///
    /// # Errors
    /// The file can't be opened or read.
    pub fn read(
        path: &Path,
        filter: &RecordFilter,
        count: usize,
        printer: &mut RecordPrinter,
    ) -> Result<(LogFollower, VecDeque<Vec<u8>>), String> {
        let mut reader = new_reader()?;
        let mut file = LogFileReader::open(path, &mut reader)?;
        let mut lines = VecDeque::new();
        file.read(&mut reader, filter, &mut |entry| {
            if lines.len() >= count {
                lines.pop_front();
            }
            if count > 0 {
                lines.push_back(printer.line(entry));
            }
            Ok(ReadFlow::Continue)
        })?;
        let path = path.to_owned();
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
            // Looked at before the file is read: after a rotation nothing more is written to it.
            let next = self.next_file();
            let mut print = |entry: &AccessEntry<'_>| printer.print(entry, None);
            if self.file.read(&mut self.reader, filter, &mut print)? == ReadFlow::Stop
                || printer.flush()? == ReadFlow::Stop
            {
                return Ok(());
            }
            match next {
                Some(next) => {
                    self.finish()?;
                    self.file = LogFileReader::open(&next, &mut self.reader)?;
                }
                None => thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// The file that follows the open one, if that was rotated.
    fn next_file(&self) -> Option<PathBuf> {
        let own = self.file.file.metadata().ok()?;
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
