//! Reads the files of a log.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lowroad_binary_log::files::log_files;
use lowroad_binary_log::filter::RecordFilter;
use lowroad_binary_log::{LogReader, ReadDamage, ReadEvent};
use lowroad_log::AccessEntry;
use lowroad_log::quantity::quantity;

use crate::terminal_output;

/// Bytes that are read at a time.
const READ_LEN: usize = 256 * 1024;

/// Whether more records are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFlow {
    /// More records are wanted.
    Continue,
    /// The output has been closed.
    Stop,
}

/// Whether all records were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// All records were read, or all that the output accepted.
    Complete,
    /// Records are missing, which was reported.
    Incomplete,
    /// All records were read, without a match of the expression.
    Unmatched,
}

impl ReadOutcome {
    /// The outcome of both.
    pub fn and(self, other: ReadOutcome) -> ReadOutcome {
        match (self, other) {
            (ReadOutcome::Incomplete, _) | (_, ReadOutcome::Incomplete) => ReadOutcome::Incomplete,
            (ReadOutcome::Unmatched, ReadOutcome::Unmatched) => ReadOutcome::Unmatched,
            _ => ReadOutcome::Complete,
        }
    }

    /// The outcome of a search that has read all its records, with or without a match.
    #[must_use]
    pub fn with_match(self, has_match: bool) -> ReadOutcome {
        match self {
            ReadOutcome::Complete if !has_match => ReadOutcome::Unmatched,
            outcome => outcome,
        }
    }

    /// The outcome of reading a file.
    pub fn from_file(file: &LogFileReader) -> ReadOutcome {
        match file.is_damaged() {
            true => ReadOutcome::Incomplete,
            false => ReadOutcome::Complete,
        }
    }
}

/// Receives records.
pub type OnRecord<'a> = dyn FnMut(&AccessEntry<'_>) -> Result<ReadFlow, String> + 'a;

/// A file of a log, to be read.
pub struct LogInput {
    /// The path.
    pub path: PathBuf,
    /// The current file, which was opened before the others were listed.
    file: Option<File>,
}

impl LogInput {
    /// A single file.
    pub fn from_path(path: PathBuf) -> LogInput {
        LogInput { path, file: None }
    }

    /// A single file, which is opened now.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn open(path: PathBuf) -> Result<LogInput, String> {
        let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(LogInput {
            path,
            file: Some(file),
        })
    }

    /// Whether a path names this file.
    pub fn is_file(&self, path: &Path) -> bool {
        let id = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino()))
        };
        id(path).is_some_and(|other| Some(other) == id(&self.path))
    }

    /// The files of the log at a path, the oldest first, the current one last.
    ///
    /// The current file is opened before the rotated ones are listed. If it is rotated in between, it is in the list under
    /// its new name and would be read twice; if it were opened afterwards, a file rotated in between would be missed.
    pub fn files_of_log(path: &Path) -> Vec<LogInput> {
        let opened = File::open(path);
        let is_absent = matches!(&opened, Err(error) if error.kind() == ErrorKind::NotFound);
        let current = opened.ok();
        let id = |meta: Metadata| (meta.dev(), meta.ino());
        let current_id = current
            .as_ref()
            .and_then(|file| file.metadata().ok())
            .map(id);
        let mut inputs: Vec<_> = log_files(path)
            .into_iter()
            .filter(|file| file != path)
            .filter(|file| {
                let file_id = std::fs::metadata(file).ok().map(id);
                current_id.is_none() || file_id != current_id
            })
            .map(LogInput::from_path)
            .collect();
        // A file that can't be opened is reported when it is read.
        if !is_absent {
            inputs.push(LogInput {
                path: path.to_owned(),
                file: current,
            });
        }
        inputs
    }
}

/// A file of a log that is being read.
pub struct LogFileReader {
    /// The path, for messages.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
    chunk: Vec<u8>,
    /// Records that are known to be lost in this file.
    lost: u64,
    is_damaged: bool,
}

impl LogFileReader {
    /// Opens a file, for a reader that has read the files before it.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn open(input: LogInput, reader: &mut LogReader) -> Result<LogFileReader, String> {
        let LogInput { path, file } = input;
        let opened = file.map_or_else(|| File::open(&path), Ok);
        let file = opened.map_err(|error| format!("{}: {error}", path.display()))?;
        reader.begin_file();
        Ok(LogFileReader {
            path,
            file,
            chunk: vec![0; READ_LEN],
            lost: 0,
            is_damaged: false,
        })
    }

    /// Whether damage was reported: records of the file are missing.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Reads up to the current end of the file.
    ///
    /// # Errors
    /// Of read(2), and of `on_record`.
    pub fn read(
        &mut self,
        reader: &mut LogReader,
        filter: &RecordFilter,
        on_record: &mut OnRecord<'_>,
    ) -> Result<ReadFlow, String> {
        loop {
            let read = self.file.read(&mut self.chunk);
            let len = read.map_err(|error| format!("{}: {error}", self.path.display()))?;
            if len == 0 {
                return Ok(ReadFlow::Continue);
            }
            reader.push(&self.chunk[..len]);
            // All events before the next bytes: this bounds the reader's buffer to a block and a chunk.
            while let Some(event) = reader.next_event() {
                if self.handle(&event, filter, on_record)? == ReadFlow::Stop {
                    return Ok(ReadFlow::Stop);
                }
            }
        }
    }

    /// Ends the file, and reports the damage at its end.
    ///
    /// # Errors
    /// It is no binary log.
    pub fn finish(&mut self, reader: &mut LogReader) -> Result<(), String> {
        let path = self.path.display().to_string();
        while let Some(event) = reader.finish() {
            if let ReadEvent::Damage(damage) = event {
                // A file without a single block is a mistake of the user, not a damaged log.
                if !reader.is_log() {
                    return Err(format!("{path} is no binary access log: {damage}"));
                }
                self.report(&damage);
            }
        }
        if self.lost > 0 {
            let lost = quantity(self.lost, "record is missing", "records are missing");
            terminal_output::note(format_args!("{path}: {lost}"));
        }
        Ok(())
    }

    fn handle(
        &mut self,
        event: &ReadEvent,
        filter: &RecordFilter,
        on_record: &mut OnRecord<'_>,
    ) -> Result<ReadFlow, String> {
        let block = match event {
            ReadEvent::Damage(damage) => {
                self.report(damage);
                return Ok(ReadFlow::Continue);
            }
            ReadEvent::Records(block) => block,
        };
        // Skipped by its period, before the records are put together.
        if !filter.may_match(&block.header) {
            return Ok(ReadFlow::Continue);
        }
        let mut line = Vec::new();
        for record in 0..block.len() {
            let entry = block.entry(record, &mut line);
            if filter.matches(&entry) && on_record(&entry)? == ReadFlow::Stop {
                return Ok(ReadFlow::Stop);
            }
        }
        Ok(ReadFlow::Continue)
    }

    fn report(&mut self, damage: &ReadDamage) {
        self.is_damaged = true;
        self.lost = self.lost.saturating_add(damage.lost_records());
        terminal_output::note(format_args!("{}: {damage}", self.path.display()));
    }
}

/// Reads the files of a log, the oldest first.
///
/// # Errors
/// A file can't be opened or read, or is no binary log; errors of `on_record`.
pub fn read_files(
    files: Vec<LogInput>,
    filter: &RecordFilter,
    on_record: &mut OnRecord<'_>,
) -> Result<(ReadFlow, ReadOutcome), String> {
    let mut reader = new_reader()?;
    let mut outcome = ReadOutcome::Complete;
    // A file that can't be read does not keep the others from being read.
    let mut failed = Vec::new();
    for input in files {
        let mut file = match LogFileReader::open(input, &mut reader) {
            Ok(file) => file,
            Err(error) => {
                failed.push(error);
                continue;
            }
        };
        let flow = file.read(&mut reader, filter, on_record)?;
        if flow == ReadFlow::Continue {
            failed.extend(file.finish(&mut reader).err());
        }
        outcome = outcome.and(ReadOutcome::from_file(&file));
        if flow == ReadFlow::Stop {
            return Ok((flow, outcome));
        }
    }
    match failed.is_empty() {
        true => Ok((ReadFlow::Continue, outcome)),
        false => Err(failed.join("\n")),
    }
}

/// A reader for the first file of a log.
///
/// # Errors
/// There is no memory.
pub fn new_reader() -> Result<LogReader, String> {
    LogReader::new().map_err(|error| format!("zstd: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lowroad_testkit::TempFolder;

    use super::*;

    /// The content of each file, in order.
    fn contents(inputs: Vec<LogInput>) -> Vec<String> {
        let read = |input: LogInput| {
            let mut text = String::new();
            let mut file = input
                .file
                .unwrap_or_else(|| File::open(&input.path).expect("a file"));
            file.read_to_string(&mut text).expect("a text");
            text
        };
        inputs.into_iter().map(read).collect()
    }

    #[test]
    fn rotation_during_listing_neither_skips_nor_repeats_a_file() {
        let folder = TempFolder::new();
        let log = folder.file("acc", "new");
        folder.file("acc.20261129T051846123Z", "old");
        let rotated = folder.path().join("acc.20261129T061846123Z");
        let inputs = LogInput::files_of_log(&log);
        fs::rename(&log, &rotated).expect("renamed");
        folder.file("acc", "newest");
        assert_eq!(contents(inputs), ["old", "new"]);
        // As if the rotation came between opening and listing: the open file has another name, too.
        fs::remove_file(&log).expect("removed");
        fs::hard_link(&rotated, &log).expect("a link");
        assert_eq!(contents(LogInput::files_of_log(&log)), ["old", "new"]);
        fs::remove_file(&log).expect("removed");
        assert_eq!(contents(LogInput::files_of_log(&log)), ["old", "new"]);
        assert!(LogInput::files_of_log(&folder.path().join("none")).is_empty());
    }
}
