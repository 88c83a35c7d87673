//! Reads the files of a log.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use lowroad_binary_log::filter::RecordFilter;
use lowroad_binary_log::{LogReader, ReadDamage, ReadEvent};
use lowroad_log::AccessEntry;

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

/// Receives records.
pub type OnRecord<'a> = dyn FnMut(&AccessEntry<'_>) -> Result<ReadFlow, String> + 'a;

/// A file of a log that is being read.
pub struct LogFileReader {
    /// The path, for messages.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
    chunk: Vec<u8>,
    /// Records that are known to be lost in this file.
    lost: u64,
}

impl LogFileReader {
    /// Opens a file, for a reader that has read the files before it.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn open(path: &Path, reader: &mut LogReader) -> Result<LogFileReader, String> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        reader.begin_file();
        Ok(LogFileReader {
            path: path.to_owned(),
            file,
            chunk: vec![0; READ_LEN],
            lost: 0,
        })
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
            let lost = self.lost;
            terminal_output::note(format_args!("{path}: {lost} records are missing"));
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
        self.lost = self.lost.saturating_add(damage.lost_records());
        terminal_output::note(format_args!("{}: {damage}", self.path.display()));
    }
}

/// Reads the files of a log, the oldest first.
///
/// # Errors
/// A file can't be opened or read, or is no binary log; errors of `on_record`.
pub fn read_files(
    files: &[PathBuf],
    filter: &RecordFilter,
    on_record: &mut OnRecord<'_>,
) -> Result<ReadFlow, String> {
    let mut reader = new_reader()?;
    // A file that can't be read does not keep the others from being read.
    let mut failed = Vec::new();
    for path in files {
        let mut file = match LogFileReader::open(path, &mut reader) {
            Ok(file) => file,
            Err(error) => {
                failed.push(error);
                continue;
            }
        };
        if file.read(&mut reader, filter, on_record)? == ReadFlow::Stop {
            return Ok(ReadFlow::Stop);
        }
        failed.extend(file.finish(&mut reader).err());
    }
    match failed.is_empty() {
        true => Ok(ReadFlow::Continue),
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
