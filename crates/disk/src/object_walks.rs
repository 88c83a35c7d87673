//! Walks over all objects, in steps: to verify objects of earlier processes, and to remove objects by key and metadata.

use std::sync::Arc;

use crate::counters::count;
use crate::files::SegmentFiles;
use crate::index::IndexEntry;
use crate::store::{DiskStore, lock};

/// The position of a walk. A walk visits every object that exists from its start to its end, and some of those that are
/// added in the meantime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkCursor {
    slot: u32,
}

impl<F: SegmentFiles> DiskStore<F> {
    /// Verifies up to `count` objects that an earlier process wrote. Returns whether there may be more. Blocks on the
    /// disk, since it reads whole bodies.
    pub fn verify(&self, cursor: &mut WalkCursor, count: u32) -> bool {
        self.walk(cursor, count, |store, slot, entry, file| {
            if entry.is_verified() {
                return;
            }
            let mut bytes = Vec::new();
            if let Some(head) = store.0.read_head(entry, file, &mut bytes) {
                let _ = store.0.verify(slot, entry, file, head.body_check);
            }
        })
    }

    /// Examines up to `count` objects, and removes those with matching key and metadata. Returns whether there may be
    /// more. Objects committed during the walk may be missed. Blocks on the disk.
    pub fn purge(
        &self,
        cursor: &mut WalkCursor,
        count_max: u32,
        mut should_remove: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> bool {
        self.walk(cursor, count_max, |store, _, entry, file| {
            let mut bytes = Vec::new();
            let head = store.0.read_head(entry, file, &mut bytes);
            if head.is_some_and(|head| should_remove(head.key, head.meta)) {
                // `remove` counts a failure; the removal is then retried with the next journal entry.
                let _ = store.0.remove(entry, false);
                count(&store.0.tallies.removed);
            }
        })
    }

    fn walk(
        &self,
        cursor: &mut WalkCursor,
        count: u32,
        mut visit: impl FnMut(&DiskStore<F>, u32, &IndexEntry, &F::File),
    ) -> bool {
        let end = cursor.slot.saturating_add(count);
        while cursor.slot < end {
            let slot = cursor.slot;
            // Locked only for one entry at a time, so that requests don't wait for the walk.
            let next = {
                let state = lock(&self.0.state);
                if slot >= state.index.slots() {
                    return false;
                }
                let entry = state.index.get(slot);
                entry.and_then(|entry| {
                    Some((entry, Arc::clone(&state.segment(entry.segment)?.file)))
                })
            };
            cursor.slot += 1;
            if let Some((entry, file)) = next {
                visit(self, slot, &entry, &file);
            }
        }
        true
    }
}
