//! The journal file: appends entries, and replays them after a restart. [`crate::log`] has the format of the records.

use std::io;
use std::sync::Arc;

use crate::files::SegmentFiles;
use crate::log::{JournalEntry, JournalIdentity, RECORD_LEN};

/// The maximum number of removals that are retried after a failed write.
const PENDING_MAX: usize = 64 * 1024;
/// The number of records that are read at a time.
const BLOCK_RECORDS: usize = 16 * 1024;

/// The open journal.
pub struct IndexJournal<F: SegmentFiles> {
    /// The store and the generation.
    pub identity: JournalIdentity,
    /// The length of the valid records in bytes; later bytes will be overwritten.
    pub end: u64,
    file: Arc<F::File>,
    /// Hashes with removals that are not yet written.
    pending: Vec<u64>,
}

impl<F: SegmentFiles> IndexJournal<F> {
    /// Creates a journal.
    ///
    /// # Errors
    /// The journal can't be written.
    pub fn create(files: &F, identity: JournalIdentity) -> io::Result<IndexJournal<F>> {
        let file = files.create(&journal_name(identity.generation))?;
        let begin = JournalEntry::Begin(identity).encode(identity, 0);
        files.write_all(&file, &begin, 0)?;
        Ok(IndexJournal::resume(file, identity, RECORD_LEN as u64))
    }

    /// Continues a journal with `end` valid bytes.
    pub fn resume(file: F::File, identity: JournalIdentity, end: u64) -> IndexJournal<F> {
        IndexJournal {
            identity,
            end,
            file: Arc::new(file),
            pending: Vec::new(),
        }
    }

    /// Appends an entry, after retrying removals that could not be written before. An entry that was written only
    /// partly is overwritten by the next one.
    ///
    /// # Errors
    /// The entry can't be written. A removal is remembered and retried before the next entry.
    pub fn append(&mut self, files: &F, entry: JournalEntry) -> io::Result<()> {
        let written = self
            .write_pending(files)
            .and_then(|()| self.write(files, entry));
        // A lost commit costs only a fetch; a lost removal would restore an invalidated object.
        if let (Err(_), JournalEntry::Remove(hash)) = (&written, entry)
            && self.pending.len() < PENDING_MAX
        {
            self.pending.push(hash);
        }
        written
    }

    /// Waits until all entries are durable.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&mut self, files: &F) -> io::Result<()> {
        self.write_pending(files)?;
        files.sync(&self.file)
    }

    fn write_pending(&mut self, files: &F) -> io::Result<()> {
        // Pending removals are written before newer entries, since a removal must not undo a later commit with the same
        // hash.
        while let Some(&hash) = self.pending.first() {
            self.write(files, JournalEntry::Remove(hash))?;
            self.pending.remove(0);
        }
        Ok(())
    }

    fn write(&mut self, files: &F, entry: JournalEntry) -> io::Result<()> {
        let record = entry.encode(self.identity, self.end);
        files.write_all(&self.file, &record, self.end)?;
        // Advanced only after success, so that the next entry overwrites a torn one.
        self.end += RECORD_LEN as u64;
        Ok(())
    }
}

/// The result of replaying a journal or checkpoint.
pub struct JournalReplay {
    /// The store and the generation.
    pub identity: JournalIdentity,
    /// The number of valid bytes.
    pub end: u64,
    /// Whether the file ends with the last record of a checkpoint.
    pub is_complete: bool,
}

/// Reads a journal or checkpoint up to the first torn record. `None` if its first record is invalid.
///
/// # Errors
/// The file can't be read.
pub fn replay<F: SegmentFiles>(
    files: &F,
    file: &F::File,
    mut apply: impl FnMut(JournalEntry),
) -> io::Result<Option<JournalReplay>> {
    let len = files.len(file)?;
    let mut first_record = [0; RECORD_LEN];
    if len < RECORD_LEN as u64 {
        return Ok(None);
    }
    files.read_all(file, &mut first_record, 0)?;
    let Some(identity) = JournalIdentity::decode(&first_record) else {
        return Ok(None);
    };
    let mut end = RECORD_LEN as u64;
    let mut block = vec![0; RECORD_LEN * BLOCK_RECORDS];
    loop {
        let record_count = (len - end) / RECORD_LEN as u64;
        let count = usize::try_from(record_count)
            .unwrap_or(usize::MAX)
            .min(BLOCK_RECORDS);
        let bytes = &mut block[..count * RECORD_LEN];
        files.read_all(file, bytes, end)?;
        for record in bytes.chunks_exact(RECORD_LEN) {
            let record_entry = JournalEntry::decode(record, identity, end);
            if let Some(JournalEntry::End(count)) = record_entry {
                let is_complete = count == end / RECORD_LEN as u64;
                return Ok(Some(JournalReplay {
                    identity,
                    end,
                    is_complete,
                }));
            }
            // `None` for a torn record, or for the bytes of an earlier record at this position.
            let Some(record_entry) = record_entry else {
                return Ok(Some(JournalReplay {
                    identity,
                    end,
                    is_complete: false,
                }));
            };
            apply(record_entry);
            end += RECORD_LEN as u64;
        }
        if count == 0 {
            return Ok(Some(JournalReplay {
                identity,
                end,
                is_complete: false,
            }));
        }
    }
}

/// The name of a journal.
pub fn journal_name(generation: u64) -> String {
    format!("{generation:016x}.journal")
}

/// The name of a checkpoint.
pub fn checkpoint_name(generation: u64) -> String {
    format!("{generation:016x}.checkpoint")
}

/// The name of a segment, which includes its kind.
pub fn segment_name(id: u32, is_sole: bool) -> String {
    let kind = if is_sole { "sole" } else { "segment" };
    format!("{id:08x}.{kind}")
}
