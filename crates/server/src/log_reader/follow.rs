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
use super::source::{LogFileReader, LogInput, ReadFlow, ReadOutcome, new_reader};

/// Interval at which the file is checked for new blocks, which a server writes once in `block_age` or when they are
/// full.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A log that is being followed.
pub struct LogFollower {
    /// The path of the log's current file, which changes with each rotation.
    path: PathBuf,
    reader: LogReader,
    file: LogFileReader,
    /// The rotated files up to the open one, as listed when that was last found. If it is deleted, they tell which file
    /// follows it.
    known: Vec<PathBuf>,
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
        let mut follower = LogFollower {
            path,
            reader,
            file,
            known: Vec::new(),
        };
        // Lists the files before this one, in case it is deleted before it is followed.
        follower.next_file();
        Ok((follower, lines))
    }

    /// Ends the reading, and reports the damage at the end of the file.
    ///
    /// # Errors
    /// It is no binary log.
    pub fn finish(&mut self) -> Result<ReadOutcome, String> {
        self.file.finish(&mut self.reader)?;
        Ok(ReadOutcome::from_file(&self.file))
    }

    /// Prints new records until the output is closed or the process is ended.
    ///
    /// # Errors
    /// A file can't be read, or the output can't be written.
    pub fn follow(
        &mut self,
        filter: &RecordFilter,
        printer: &mut RecordPrinter,
    ) -> Result<ReadOutcome, String> {
        let mut outcome = ReadOutcome::Complete;
        loop {
            // Checked before the file is read: after a rotation nothing more is written to it, so the read gets its
            // rest.
            let next = self.next_file();
            let mut print = |entry: &AccessEntry<'_>| printer.print(entry, None);
            if self.file.read(&mut self.reader, filter, &mut print)? == ReadFlow::Stop
                || printer.flush()? == ReadFlow::Stop
            {
                return Ok(outcome.and(ReadOutcome::from_file(&self.file)));
            }
            match next {
                Some(next) => {
                    // The file is complete: any unread rest of it is damage, not a block to wait for.
                    outcome = outcome.and(self.finish()?);
                    self.file = LogFileReader::open(LogInput::from_path(next), &mut self.reader)?;
                }
                None => thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// The file that follows the open one, if that was rotated or deleted.
    fn next_file(&mut self) -> Option<PathBuf> {
        let own = self.file.file.metadata().ok()?;
        // A rotation renames the file, so its inode identifies it, not its name.
        let is_own = |path: &PathBuf| {
            let other = std::fs::metadata(path);
            other.is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
        };
        let mut files = log_files(&self.path);
        match files.iter().position(is_own) {
            Some(place) => {
                // Several rotations may have passed.
                let next = files.get(place + 1).cloned();
                files.truncate(place + 1);
                // The next file will have the path of the current one.
                self.known = files;
                self.known.retain(|file| *file != self.path);
                next
            }
            // Renamed by another program, or deleted: it is followed by the first file that came after it.
            None => files.into_iter().find(|file| !self.known.contains(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use lowroad_binary_log::export::{ExportFormat, RecordExporter};
    use lowroad_testkit::TempFolder;

    use super::*;

    /// A follower of a log with files that have no records.
    fn follower(log: &std::path::Path) -> LogFollower {
        let mut printer = RecordPrinter::to_stdout(RecordExporter::new(ExportFormat::Combined));
        let input = LogInput::open(log.to_path_buf()).expect("a file");
        let read = LogFollower::read(input, &RecordFilter::default(), 0, &mut printer);
        read.expect("a follower").0
    }

    #[test]
    fn no_file_is_skipped_if_the_open_one_is_deleted() {
        let folder = TempFolder::new();
        let rotated = |hour: u32| format!("acc.20261129T{hour:02}1846123Z");
        folder.file(rotated(3), "");
        let log = folder.file("acc", "");
        let mut open = follower(&log);
        assert_eq!(open.next_file(), None);
        // Rotated three times, and the file that was open is deleted, as by `total_len_max`.
        std::fs::remove_file(&log).expect("removed");
        assert_eq!(open.next_file(), None);
        let next = folder.file(rotated(5), "");
        folder.file(rotated(6), "");
        folder.file("acc", "");
        assert_eq!(open.next_file(), Some(next.clone()));
        // The same for a rotated file.
        let mut open = LogFollower {
            file: LogFileReader::open(
                LogInput::from_path(next.clone()),
                &mut new_reader().expect("a reader"),
            )
            .expect("a file"),
            ..open
        };
        let after = folder.path().join(rotated(6));
        assert_eq!(open.next_file(), Some(after.clone()));
        std::fs::remove_file(next).expect("removed");
        assert_eq!(open.next_file(), Some(after));
    }
}
