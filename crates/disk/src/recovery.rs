//! Recovery: opens a store from its checkpoint, journals and segments.
//!
//! The newest complete checkpoint is read first, then the journals that follow it. Bodies are not read.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex};

use crate::counters::DiskTallies;
use crate::files::SegmentFiles;
use crate::index::IndexEntry;
use crate::journal::{
    IndexJournal, JournalReplay, checkpoint_name, journal_name, replay, segment_name,
};
use crate::log::{JournalEntry, JournalIdentity, RECORD_LEN};
use crate::segments::DiskState;
use crate::store::{DiskContext, DiskOptions, DiskStore, MaintenanceState};

/// The files of a store, classified by name.
#[derive(Default)]
struct FolderListing {
    /// The numbers of the segments, and whether each is sole.
    segments: BTreeMap<u32, bool>,
    journals: Vec<u64>,
    checkpoints: Vec<u64>,
}

/// The state of the recovery.
struct StoreRecovery<'a, F: SegmentFiles> {
    files: &'a F,
    state: DiskState<F::File>,
    /// The lengths of the segment files.
    lens: BTreeMap<u32, u64>,
}

impl<F: SegmentFiles> DiskStore<F> {
    /// Opens the store in a folder. Blocks on the disk: reads 40 bytes for each object.
    ///
    /// # Errors
    /// The folder can't be read, or no journal can be written.
    pub fn open(files: F, options: DiskOptions) -> io::Result<DiskStore<F>> {
        let listing = list(&files)?;
        let mut recovery = StoreRecovery::new(&files, &listing)?;
        let base = recovery.read_base(&listing)?;
        let journal = match base {
            Some(base) => recovery.replay_journals(base)?,
            None => None,
        };
        let journal = match (journal, base) {
            (Some(journal), _) => journal,
            // The checkpoint is complete, but the journal that continues it is missing or torn.
            (None, Some(base)) => IndexJournal::create(&files, base)?,
            // Without a log, it is not known which records are committed: the store starts empty.
            (None, None) => {
                recovery.state = DiskState::new();
                IndexJournal::create(
                    &files,
                    JournalIdentity {
                        store: random(),
                        generation: 0,
                    },
                )?
            }
        };
        let mut state = recovery.state;
        // A file that could not be removed still has its name, so no new segment may get its number.
        listing
            .segments
            .keys()
            .for_each(|&id| state.mark_id_used(id));
        clean(
            &files,
            &listing,
            &mut state,
            base,
            journal.identity.generation,
        );
        // Done last, since the ends of the segments depend on the objects that were recovered.
        state.finish_recovery(options.segment_bytes);
        let shared = DiskContext {
            sizes: options.into(),
            seed: journal.identity.store,
            tallies: DiskTallies::default(),
            maintenance: Mutex::new(MaintenanceState {
                first_generation: base.map_or(0, |base| base.generation),
            }),
            journal: Mutex::new(journal),
            state: Mutex::new(state),
            files,
        };
        Ok(DiskStore(Arc::new(shared)))
    }
}

impl<'a, F: SegmentFiles> StoreRecovery<'a, F> {
    fn new(files: &'a F, listing: &FolderListing) -> io::Result<StoreRecovery<'a, F>> {
        let mut recovery = StoreRecovery {
            files,
            state: DiskState::new(),
            lens: BTreeMap::new(),
        };
        recovery.add_segments(listing)?;
        Ok(recovery)
    }

    fn add_segments(&mut self, listing: &FolderListing) -> io::Result<()> {
        for (&id, &is_sole) in &listing.segments {
            let file = self.files.open(&segment_name(id, is_sole))?;
            self.lens.insert(id, self.files.len(&file)?);
            self.state.add(id, file, is_sole);
        }
        Ok(())
    }

    /// Reads the newest complete checkpoint; if there is none, the first record of the first journal.
    fn read_base(&mut self, listing: &FolderListing) -> io::Result<Option<JournalIdentity>> {
        for &generation in listing.checkpoints.iter().rev() {
            let file = self.files.open(&checkpoint_name(generation))?;
            let replayed = self.replay(&file)?;
            if let Some(replayed) = replayed.filter(|replayed| replayed.is_complete) {
                return Ok(Some(replayed.identity));
            }
            // Discards the entries of an incomplete checkpoint.
            self.state = DiskState::new();
            self.add_segments(listing)?;
        }
        // Without a checkpoint, all journals since the creation of the store are needed.
        if listing.journals.first() != Some(&0) {
            return Ok(None);
        }
        let file = self.files.open(&journal_name(0))?;
        let replayed = replay(self.files, &file, |_| ())?;
        Ok(replayed.map(|replayed| replayed.identity))
    }

    /// Replays the journals from the base's generation on. Returns the last one, to be continued.
    fn replay_journals(&mut self, base: JournalIdentity) -> io::Result<Option<IndexJournal<F>>> {
        let mut last = None;
        for generation in base.generation.. {
            let Ok(file) = self.files.open(&journal_name(generation)) else {
                break;
            };
            let Some(replayed) = self.replay(&file)? else {
                break;
            };
            // A journal of another store ends the sequence.
            if replayed.identity != (JournalIdentity { generation, ..base }) {
                break;
            }
            last = Some((file, replayed));
        }
        let Some((file, replayed)) = last else {
            return Ok(None);
        };
        // Truncated, since records after a torn one must not become valid when the torn one is overwritten.
        self.files.truncate(&file, replayed.end)?;
        Ok(Some(IndexJournal::resume(
            file,
            replayed.identity,
            replayed.end,
        )))
    }

    fn replay(&mut self, file: &F::File) -> io::Result<Option<JournalReplay>> {
        let (files, state, lens) = (self.files, &mut self.state, &self.lens);
        // Reserved beforehand, since a table that grows by doubling moves all entries each time. A checkpoint has about
        // as many entries as objects; the entries of a journal after a checkpoint mostly replace others.
        let steps = usize::try_from(files.len(file)? / RECORD_LEN as u64).unwrap_or(0);
        let additional = steps.saturating_sub(state.index.objects());
        state.index.reserve(additional);
        replay(files, file, |record| match record {
            JournalEntry::Put(entry) => {
                state.mark_id_used(entry.segment);
                match is_within_file(&entry, lens) {
                    true => state.insert(entry),
                    // If the newer object's segment is gone, an older object with this hash must not reappear.
                    false => state.remove(entry.hash),
                };
            }
            JournalEntry::Remove(hash) => drop(state.remove(hash)),
            JournalEntry::Begin(_) | JournalEntry::End(_) => {}
        })
    }
}

fn is_within_file(entry: &IndexEntry, lens: &BTreeMap<u32, u64>) -> bool {
    let len = lens.get(&entry.segment).copied().unwrap_or(0);
    // After a power failure, the segment file may be shorter than the log requires.
    entry.body_offset() + entry.body_len <= len
}

fn list<F: SegmentFiles>(files: &F) -> io::Result<FolderListing> {
    let mut listing = FolderListing::default();
    for name in files.names()? {
        let Some((number, kind)) = name.split_once('.') else {
            continue;
        };
        let Ok(number) = u64::from_str_radix(number, 16) else {
            continue;
        };
        match (kind, u32::try_from(number)) {
            ("segment", Ok(id)) => drop(listing.segments.insert(id, false)),
            ("sole", Ok(id)) => drop(listing.segments.insert(id, true)),
            ("journal", _) => listing.journals.push(number),
            ("checkpoint", _) => listing.checkpoints.push(number),
            _ => {}
        }
    }
    listing.journals.sort_unstable();
    listing.checkpoints.sort_unstable();
    Ok(listing)
}

/// Removes unreferenced files. If a file can't be removed, this is retried at the next start.
fn clean<F: SegmentFiles>(
    files: &F,
    listing: &FolderListing,
    state: &mut DiskState<F::File>,
    base: Option<JournalIdentity>,
    last: u64,
) {
    let first = base.map_or(0, |base| base.generation);
    for &generation in listing
        .journals
        .iter()
        .filter(|it| !(first..=last).contains(it))
    {
        let _ = files.remove(&journal_name(generation));
    }
    for &generation in listing.checkpoints.iter().filter(|it| **it != first) {
        let _ = files.remove(&checkpoint_name(generation));
    }
    let idle = state.idle();
    for (&id, &is_sole) in &listing.segments {
        if idle.contains(&id) || state.segment(id).is_none() {
            state.drop_segment(id);
            let _ = files.remove(&segment_name(id, is_sole));
        }
    }
}

/// A number that clients can't guess.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
