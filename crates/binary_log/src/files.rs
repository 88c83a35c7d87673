//! The files of a binary log: written by the log's thread, rotated by size and age, bounded in total.
//!
//! The records of a round, those of all workers, are sorted by time and become blocks. If the disk is full, the written
//! part of a block is removed and its records are lost, so that the file has complete blocks only.

pub mod names;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lowroad_log::LogDestination;
use lowroad_log::writer::{self, EntryOutput, OpenOtherwise};

use crate::batch::{self, BatchRecord, record_count};
use crate::encoder::BlockEncoder;
use crate::frame::MAGIC;

/// A longer buffer of gathered batches is freed after a round.
const CAPACITY_KEPT_MAX: usize = 1 << 20;
/// Pause after a failed rotation.
const RETRY_MS: u64 = 60_000;

/// The bounds of a log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// A file is rotated before it exceeds this.
    pub file_len_max: u64,
    /// A file is rotated at this age, ms.
    pub file_age_max_ms: u64,
    /// Maximum length of all files together. The oldest are deleted.
    pub total_len_max: u64,
}

/// An event for the error log. [`FileEvent::Dropping`] is reported once, until [`FileEvent::WrittenAgain`].
#[derive(Debug)]
pub enum FileEvent {
    /// Blocks are dropped, because the file can't be written or has reached its limit.
    Dropping(io::Error),
    /// Blocks are written again.
    WrittenAgain {
        /// The number of records that were lost before.
        lost: u64,
    },
    /// The file can't be rotated, and grows beyond its limit.
    NotRotated(io::Error),
    /// An old file can't be deleted.
    NotDeleted(PathBuf, io::Error),
}

/// Receives events, on the log's thread.
pub type OnFileEvent = Box<dyn FnMut(FileEvent) + Send>;

/// The files of a binary log.
pub struct LogFiles {
    /// The configured path, for opening the log again.
    path: PathBuf,
    /// The file at the path, behind symbolic links: this one is renamed, so that a link keeps its meaning.
    real_path: PathBuf,
    file: File,
    len: u64,
    created_ms: u64,
    limits: FileLimits,
    encoder: BlockEncoder,
    /// Whether this process has written the blocks that others need (see [`BlockEncoder::begin_file`]).
    is_begun: bool,
    /// The batches of a round.
    gathered: Vec<u8>,
    /// The number of records lost so far, while blocks are dropped.
    dropped: Option<u64>,
    /// The time before which no rotation is tried.
    rotate_after_ms: u64,
    on_event: OnFileEvent,
}

impl LogFiles {
    /// Continues the log at a path with its open file. The session is a random number.
    ///
    /// # Errors
    /// The file's length is not available, or zstd has no memory.
    pub fn new(
        path: PathBuf,
        file: File,
        limits: FileLimits,
        session: u32,
        on_event: OnFileEvent,
    ) -> io::Result<LogFiles> {
        let mut encoder = BlockEncoder::new(session)?;
        encoder.fit_into_files(limits.file_len_max);
        let mut files = LogFiles {
            len: 0,
            created_ms: 0,
            real_path: path.clone(),
            path,
            file,
            limits,
            encoder,
            is_begun: false,
            gathered: Vec::new(),
            dropped: None,
            rotate_after_ms: 0,
            on_event,
        };
        files.note_file()?;
        Ok(files)
    }

    /// Reads length and age of the open file.
    fn note_file(&mut self) -> io::Result<()> {
        let meta = self.file.metadata()?;
        self.len = meta.len();
        self.real_path = real_path(&self.path);
        // Not all file systems have a time of creation.
        let created = meta.created().or_else(|_| meta.modified());
        // Its age, not the time of this start, decides about rotation: frequent restarts must not postpone it.
        self.created_ms = created.map_or_else(|_| now_ms(), unix_ms);
        // Each file is readable alone, so it needs the schema, and a dictionary of its own.
        self.is_begun = false;
        Ok(())
    }

    /// Whether the file does not begin with a block. A reader would report its whole content as damage.
    fn is_foreign(&self) -> bool {
        let mut start = [0; MAGIC.len()];
        // Another handle, since the log's is for appending only. A file that can't be read is treated as a log.
        let Ok(mut file) = File::open(&self.path) else {
            return false;
        };
        self.len > 0 && (file.read_exact(&mut start).is_err() || start != MAGIC)
    }

    fn write_records(&mut self, records: &[BatchRecord<'_>]) -> u64 {
        let mut lost = 0;
        let mut blocks = Vec::new();
        let mut rest = records.iter().copied().peekable();
        while rest.peek().is_some() {
            // Checked for each block, since the records of one round may exceed the length of a file.
            self.rotate_if_due();
            blocks.clear();
            // The beginning is written with the first block, so that a full disk takes both or neither.
            let begun = match self.is_begun {
                true => Ok(()),
                false => self.encoder.begin_file(&mut blocks),
            };
            let (mut count, mut previous) = (0, None);
            while !self.encoder.is_full()
                && let Some(record) = rest.next()
            {
                if self.encoder.push_record(record, previous) {
                    previous = Some(record);
                    count += 1;
                }
            }
            let finished = self.encoder.finish_block(&mut blocks);
            let written = begun.and(finished).and_then(|_| self.append(&blocks));
            lost += self.note_outcome(written, count);
        }
        lost
    }

    /// Appends all blocks, or on an error none.
    fn append(&mut self, blocks: &[u8]) -> io::Result<()> {
        let len = blocks.len() as u64;
        // Asked for each block: another process may write the same file.
        self.len = self.file.metadata()?.len();
        // A log that can't be rotated must not fill the disk.
        if self.len + len > self.limits.total_len_max {
            let text = "it has the length of all files together, and can't be rotated";
            return Err(io::Error::new(ErrorKind::StorageFull, text));
        }
        let mut rest = blocks;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => {
                    return self
                        .remove_part(blocks.len() - rest.len(), ErrorKind::WriteZero.into());
                }
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.remove_part(blocks.len() - rest.len(), error),
            }
        }
        self.len += len;
        Ok(())
    }

    /// Removes the part of the blocks that was written before an error, which is returned.
    fn remove_part(&mut self, written: usize, error: io::Error) -> io::Result<()> {
        let grown_len = self.len + written as u64;
        let is_last = |file: &File| file.metadata().is_ok_and(|meta| meta.len() == grown_len);
        // Not if another process has written behind the part: its blocks would be removed too. A reader finds the next
        // block behind an incomplete one.
        if written > 0 && is_last(&self.file) {
            let _ = self.file.set_len(self.len);
        }
        self.len = self.file.metadata().map_or(self.len, |meta| meta.len());
        Err(error)
    }

    /// Counts the records of a block. Returns the number of lost ones.
    fn note_outcome(&mut self, written: io::Result<()>, count: u64) -> u64 {
        match written {
            Ok(()) => {
                self.is_begun = true;
                if let Some(lost) = self.dropped.take() {
                    (self.on_event)(FileEvent::WrittenAgain { lost });
                }
                0
            }
            Err(error) => {
                // The next block must not need a dictionary that was dropped with this one.
                self.is_begun = false;
                if self.dropped.is_none() {
                    (self.on_event)(FileEvent::Dropping(error));
                }
                // Only the first failure is reported: a full disk would fill the error log with one message a round.
                *self.dropped.get_or_insert(0) += count;
                count
            }
        }
    }

    fn rotate_if_due(&mut self) {
        let now_ms = now_ms();
        self.replace_deleted();
        let age_ms = now_ms.saturating_sub(self.created_ms);
        // An empty file is not rotated by age: a server without requests would leave a file for each period.
        let is_due = self.len >= self.limits.file_len_max
            || (self.len > 0 && age_ms >= self.limits.file_age_max_ms)
            || (!self.is_begun && self.is_foreign());
        if is_due && now_ms >= self.rotate_after_ms {
            if let Err(error) = self.rotate(now_ms) {
                // Without this pause a missing permission would cost a rename and a message for each block.
                self.rotate_after_ms = now_ms + RETRY_MS;
                (self.on_event)(FileEvent::NotRotated(error));
            }
            // Also after a failed rotation: the current file grows then, and the old ones must make room for it.
            self.delete_oldest();
        }
    }

    /// Creates the file again if it was deleted: its records would be lost at the end of the process.
    fn replace_deleted(&mut self) {
        if self.file.metadata().is_ok_and(|meta| meta.nlink() > 0) {
            return;
        }
        // If this process may not create it, records go to the deleted file until a signal opens the log again.
        if let Ok(file) = writer::open(&LogDestination::File(self.path.clone())) {
            self.file = file;
            let _ = self.note_file();
        }
    }

    /// Renames the file, and opens a new one.
    fn rotate(&mut self, now_ms: u64) -> io::Result<()> {
        // Renamed, not copied: readers that have it open keep reading, and no record is written twice.
        let rotated = names::unused(&self.real_path, now_ms);
        match std::fs::rename(&self.real_path, &rotated) {
            Ok(()) => {}
            // The file was moved, but the log was not opened again. A new file begins, and the moved one is complete.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.file = writer::open(&LogDestination::File(self.path.clone()))?;
                return self.note_file();
            }
            Err(error) => return Err(error),
        }
        match writer::open(&LogDestination::File(self.real_path.clone())) {
            Ok(file) => {
                self.file = file;
                self.note_file()
            }
            Err(error) => {
                // Without a new file the log continues in the old one, which gets its name back.
                let _ = std::fs::rename(&rotated, &self.real_path);
                Err(error)
            }
        }
    }

    /// Deletes the oldest files until the total is within its limit, with a current file of maximum length.
    fn delete_oldest(&mut self) {
        let rotated = names::rotated(&self.real_path);
        let mut total: u64 = rotated.iter().map(|file| file.len).sum();
        let room = self
            .limits
            .total_len_max
            .saturating_sub(self.limits.file_len_max.max(self.len));
        for file in rotated {
            if total <= room {
                return;
            }
            match std::fs::remove_file(&file.path) {
                Ok(()) => total -= file.len,
                // A file that can't be deleted still counts, so the next ones are deleted instead.
                Err(error) => (self.on_event)(FileEvent::NotDeleted(file.path, error)),
            }
        }
    }
}

impl EntryOutput for LogFiles {
    const IS_GATHERING: bool = true;

    fn part_len(&self, entries: &[u8]) -> usize {
        entries.len()
    }

    fn write(&mut self, entries: &[u8]) -> u64 {
        self.gathered.extend_from_slice(entries);
        0
    }

    fn end_round(&mut self) -> u64 {
        // Taken out, since the records borrow it while `write_records` needs `self`.
        let gathered = std::mem::take(&mut self.gathered);
        let mut records: Vec<_> = batch::records(&gathered).collect();
        // A record is written when its response ends; its time is the response's beginning. The runs of workers are
        // nearly sorted, which this sort is fast for.
        records.sort_by_key(|record| record.unix_ms());
        let lost = self.write_records(&records);
        drop(records);
        self.gathered = gathered;
        self.gathered.clear();
        // A burst of requests must not keep its memory until the process ends.
        if self.gathered.capacity() > CAPACITY_KEPT_MAX {
            self.gathered = Vec::new();
        }
        lost
    }

    fn reopen(&mut self, open_otherwise: OpenOtherwise) -> io::Result<()> {
        let target = LogDestination::File(self.path.clone());
        // The folder may belong to root, and the process has given up root's rights; a helper opens the file then.
        let opened = writer::open(&target).or_else(|error| open_otherwise(&self.path, error));
        self.file = opened?;
        // The operator may have removed the cause of a failed rotation.
        self.rotate_after_ms = 0;
        self.note_file()
    }
}

/// Counts the records of a batch, for [`lowroad_log::WriterLimits`].
pub fn count_records(batch: &[u8]) -> u64 {
    record_count(batch)
}

fn now_ms() -> u64 {
    unix_ms(SystemTime::now())
}

fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The path behind symbolic links. A missing file is in the folder that the path names.
fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The existing files of a log, the oldest first, the current one last.
pub fn log_files(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = names::rotated(&real_path(path))
        .into_iter()
        .map(|file| file.path)
        .collect();
    if path.exists() {
        files.push(path.to_owned());
    }
    files
}

#[cfg(test)]
mod tests;
