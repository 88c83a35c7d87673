//! Checkpoints: write the whole index to a file, so that older journals can be removed.
//!
//! A new journal is begun first; then the index is copied in batches, while requests change it. These changes are in
//! the new journal. Since a journal entry contains the new state of its hash, replaying it is correct whether or not
//! the checkpoint already includes the change.

use std::io;

use crate::counters::count;
use crate::files::SegmentFiles;
use crate::journal::{IndexJournal, checkpoint_name, journal_name};
use crate::log::{JournalEntry, JournalIdentity, RECORD_LEN};
use crate::store::{DiskContext, DiskStore, lock};

const NEW_NAME: &str = "new";
/// The number of entries that are copied while the state is locked once.
const BATCH_LEN: u32 = 4096;
/// A journal with at most this many records needs no checkpoint.
const JOURNAL_RECORDS_MIN: u64 = 64 * 1024;

impl<F: SegmentFiles> DiskStore<F> {
    /// Whether the journal has become longer than a checkpoint would be. Does no file operation, but may wait for the
    /// journal's lock.
    pub fn wants_checkpoint(&self) -> bool {
        let records = lock(&self.0.journal).end / RECORD_LEN as u64;
        let objects = lock(&self.0.state).index.objects() as u64;
        records > objects.max(JOURNAL_RECORDS_MIN)
    }

    /// Writes a checkpoint. Blocks on the disk.
    ///
    /// # Errors
    /// The checkpoint can't be written. The existing files are still valid.
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
        // The new journal is begun first, for the changes during the checkpoint. Replaying changes that the checkpoint
        // already contains has no effect.
        let identity = self.next_journal()?;
        // Written under a temporary name, since only a complete checkpoint may get the final name.
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

    /// Makes the current journal durable and begins a new one.
    fn next_journal(&self) -> io::Result<JournalIdentity> {
        let mut journal = lock(&self.journal);
        // If the checkpoint fails, recovery replays the current journal before the new one, so it must be complete.
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
        // The checkpoint must be durable before the rename makes it valid.
        self.files.sync(&file)
    }

    /// Appends the records of one batch of slots. Returns the number of all slots.
    fn copy_entries(
        &self,
        first_slot: u32,
        identity: JournalIdentity,
        at: u64,
        bytes: &mut Vec<u8>,
    ) -> u32 {
        // Locked only for one batch, so that look-ups don't wait for the whole index.
        let state = lock(&self.state);
        let entries = (first_slot..first_slot + BATCH_LEN).filter_map(|slot| state.index.get(slot));
        for entry in entries {
            let position = at + bytes.len() as u64;
            bytes.extend_from_slice(&JournalEntry::Put(entry).encode(identity, position));
        }
        state.index.slots()
    }
}
