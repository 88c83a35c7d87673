//! Checkpoints: write all objects, so that a new journal can begin.
//!
//! The new journal begins first; then the index is copied in batches while it changes. Changes in the meantime are in
//! the new journal. Each entry has the final state of its hash, so replaying it is correct whether or not the copy
//! contains it.

use std::io;

use crate::counters::count;
use crate::files::SegmentFiles;
use crate::journal::{IndexJournal, checkpoint_name, journal_name};
use crate::log::{JournalEntry, JournalIdentity, RECORD_LEN};
use crate::store::{DiskContext, DiskStore, lock};

const NEW_NAME: &str = "new";
/// The number of entries copied under one lock.
const BATCH_LEN: u32 = 4096;
/// A journal of this many records is short.
const JOURNAL_RECORDS_MIN: u64 = 64 * 1024;

impl<F: SegmentFiles> DiskStore<F> {
    /// Whether the journal is as long as a checkpoint would be. Does not wait for the disk, but for the holder of the
    /// journal's lock.
    pub fn wants_checkpoint(&self) -> bool {
        let records = lock(&self.0.journal).end / RECORD_LEN as u64;
        let objects = lock(&self.0.state).index.objects() as u64;
        records > objects.max(JOURNAL_RECORDS_MIN)
    }

    /// Writes a checkpoint. Blocks on the disk.
    ///
    /// # Errors
    /// It can't be written; the existing files stay valid.
    pub fn checkpoint(&self) -> io::Result<()> {
        let written = self.0.checkpoint();
        if written.is_err() {
            count(&self.0.tallies.checkpoint_errors);
        }
        written
    }

    /// Makes the journal durable, so that all removals so far survive a power failure. Blocks.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&self) -> io::Result<()> {
        lock(&self.0.journal).sync(&self.0.files)
    }
}

impl<F: SegmentFiles> DiskContext<F> {
    fn checkpoint(&self) -> io::Result<()> {
        let mut maintenance = lock(&self.maintenance);
        // The new journal first: changes during the checkpoint go there. Replaying those that the checkpoint already
        // contains changes nothing.
        let identity = self.next_journal()?;
        // Under a temporary name: only a complete checkpoint gets its own.
        self.write_checkpoint(identity)?;
        self.files
            .rename(NEW_NAME, &checkpoint_name(identity.generation))?;
        for generation in maintenance.first_generation..identity.generation {
            // A file that can't be removed now is removed at the next start.
            let _ = self.files.remove(&journal_name(generation));
            let _ = self.files.remove(&checkpoint_name(generation));
        }
        maintenance.first_generation = identity.generation;
        Ok(())
    }

    /// Continues in a new journal once the previous one is durable.
    fn next_journal(&self) -> io::Result<JournalIdentity> {
        let mut journal = lock(&self.journal);
        // If the checkpoint fails, recovery replays this journal before the new one, so it must be complete.
        journal.sync(&self.files)?;
        let generation = journal.identity.generation + 1;
        let identity = JournalIdentity {
            generation,
            ..journal.identity
        };
        *journal = IndexJournal::create(&self.files, identity)?;
        Ok(identity)
    }

    fn write_checkpoint(&self, identity: JournalIdentity) -> io::Result<()> {
        let file = self.files.create(NEW_NAME)?;
        let mut bytes = JournalEntry::Begin(identity).encode(identity, 0).to_vec();
        let (mut written, mut slot) = (0, 0);
        loop {
            let slots = self.copy_entries(slot, identity, written, &mut bytes);
            self.files.write_all(&file, &bytes, written)?;
            written += bytes.len() as u64;
            bytes.clear();
            slot += BATCH_LEN;
            if slot >= slots {
                break;
            }
        }
        let records = written / RECORD_LEN as u64;
        // Without this record, recovery ignores the checkpoint.
        let end = JournalEntry::End(records).encode(identity, written);
        self.files.write_all(&file, &end, written)?;
        // Durable before the rename makes it valid.
        self.files.sync(&file)
    }

    /// Appends the records of some slots. Returns the number of slots.
    fn copy_entries(
        &self,
        first_slot: u32,
        identity: JournalIdentity,
        at: u64,
        bytes: &mut Vec<u8>,
    ) -> u32 {
        // Locked for one batch, so that look-ups don't wait for the whole index.
        let state = lock(&self.state);
        let entries = (first_slot..first_slot + BATCH_LEN).filter_map(|slot| state.index.get(slot));
        for entry in entries {
            let position = at + bytes.len() as u64;
            bytes.extend_from_slice(&JournalEntry::Put(entry).encode(identity, position));
        }
        state.index.slots()
    }
}
