//! Eviction: the oldest segment is dropped, except for its used objects.
//!
//! FIFO order needs no additional writes and frees whole files. Second chance: if the used objects of the oldest
//! segment are at most half of a segment, they are rewritten to another segment, so that each eviction frees at least
//! half a segment. If they are more than half, the whole segment becomes the youngest instead; this costs no writes,
//! but also retains the segment's unused objects and the space of removed ones. The hits of all its objects are then
//! halved, so that the segment is retained only while it is used.

use std::cmp::Reverse;
use std::io;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::counters::count;
use crate::files::SegmentFiles;
use crate::index::IndexEntry;
use crate::record::RecordHead;
use crate::segments::{DiskState, RecordLocation};
use crate::store::{DiskContext, lock, set_entry_location};

/// At most the segment length divided by this is rewritten when a segment is evicted.
const REWRITTEN_SHARE: u64 = 2;

impl<F: SegmentFiles> DiskContext<F> {
    /// The bytes that are kept free for rewriting the used objects of an evicted segment.
    fn rewrite_bytes_max(&self) -> u64 {
        self.options().segment_bytes / REWRITTEN_SHARE
    }

    pub fn has_room(&self, state: &DiskState<F::File>, len: u64) -> bool {
        state.used_bytes() + len + self.rewrite_bytes_max() <= self.options().capacity_bytes
    }

    /// Drops the oldest segments until `len` bytes are free.
    pub fn make_room(&self, len: u64) -> io::Result<()> {
        // The loop ends, since each segment gets at most one second chance.
        let mut chances = lock(&self.state).segments();
        loop {
            let oldest = {
                let state = lock(&self.state);
                if self.has_room(&state, len) {
                    return Ok(());
                }
                state.oldest()
            };
            let Some(id) = oldest else {
                return Err(io::ErrorKind::StorageFull.into());
            };
            if chances == 0 || !self.give_second_chance(id) {
                // Used objects are rewritten before their segment is dropped.
                self.rewrite_used(id, len);
                self.drop_segment(id);
            }
            chances = chances.saturating_sub(1);
        }
    }

    /// Evicts the oldest segment if the store exceeds its capacity. Returns whether it may still exceed it.
    pub fn shrink(&self) -> io::Result<bool> {
        let _maintenance_guard = lock(&self.maintenance);
        let mut chances = lock(&self.state).segments();
        loop {
            let oldest = {
                let state = lock(&self.state);
                if self.has_room(&state, 0) {
                    return Ok(false);
                }
                state.oldest()
            };
            // Segments with writers can't be evicted until the writes end.
            let Some(id) = oldest else { return Ok(false) };
            if chances == 0 || !self.give_second_chance(id) {
                self.rewrite_used(id, 0);
                self.drop_segment(id);
                return Ok(true);
            }
            chances -= 1;
        }
    }

    /// Makes a segment the youngest if too much of it is used to be rewritten. Returns whether it did so.
    fn give_second_chance(&self, id: u32) -> bool {
        let mut state = lock(&self.state);
        let Some(segment) = state.segment(id) else {
            return false;
        };
        let (is_sole, end) = (segment.is_sole, segment.end);
        let used = state.objects_in(id);
        let used = used.iter().filter(|entry| entry.hits() > 0);
        let used_bytes: u64 = used.map(record_len).sum();
        // The object of a sole segment is too long to be rewritten, so the segment is retained if the object is used.
        let is_retained = match is_sole {
            true => used_bytes > 0,
            // A segment from before a resize may be too large for the store now.
            false => used_bytes > self.rewrite_bytes_max() && end <= self.options().segment_bytes,
        };
        if is_retained {
            state.make_youngest(id);
        }
        is_retained
    }

    /// Rewrites the used objects of a shared segment, the most used first. A segment from before a resize may be most
    /// of the store; of such a segment, unused objects are rewritten, too, as long as `len` bytes remain free.
    fn rewrite_used(&self, id: u32, len: u64) {
        let options = self.options();
        // Copied, so that objects are read and written without the lock.
        let (file, mut objects, free_bytes) = {
            let state = lock(&self.state);
            let Some(segment) = state.segment(id).filter(|segment| !segment.is_sole) else {
                return;
            };
            let other_bytes = state.used_bytes() - segment.end;
            let free_bytes = match segment.end > options.segment_bytes {
                true => options
                    .capacity_bytes
                    .saturating_sub(other_bytes + len + self.rewrite_bytes_max()),
                false => 0,
            };
            (Arc::clone(&segment.file), state.objects_in(id), free_bytes)
        };
        objects.sort_by_key(|entry| Reverse((entry.hits(), entry.offset())));
        let mut written = 0;
        for entry in objects {
            let allowed = match entry.hits() {
                0 => free_bytes,
                _ => free_bytes.max(self.rewrite_bytes_max()),
            };
            let len = record_len(&entry);
            // A shorter object may still fit.
            if written + len > allowed {
                continue;
            }
            written += len;
            if self.rewrite(&entry, &file) == Some(true) {
                count(&self.tallies.rewritten);
            }
        }
    }

    fn rewrite(&self, entry: &IndexEntry, file: &F::File) -> Option<bool> {
        let mut bytes = Vec::new();
        let head = self.read_head(entry, file, &mut bytes)?;
        let (head_len, body_len) = (u64::from(entry.head_len()), entry.body_len);
        // Reserved without `DiskContext::reserve`, which may evict, and takes the maintenance lock that the caller has
        // locked.
        let reserved = lock(&self.state).reserve(head_len, body_len, self.options().segment_bytes);
        let location = match reserved {
            Some(location) => location,
            None => self.reserve_new_segment(head_len, body_len, false).ok()?,
        };
        let copied = self.copy(entry, file, head, &location);
        // If the object was replaced during the copy, the reserved space becomes free again.
        self.release(&location, matches!(copied, Ok(true)));
        copied.ok()
    }

    /// Copies a record to another location and makes it visible there.
    fn copy(
        &self,
        entry: &IndexEntry,
        file: &F::File,
        head: RecordHead<'_>,
        location: &RecordLocation<F::File>,
    ) -> io::Result<bool> {
        let mut new = IndexEntry::new(entry.hash, entry.head_len(), entry.body_len)
            .ok_or(io::ErrorKind::InvalidInput)?;
        new.expires_s = entry.expires_s;
        set_entry_location(&mut new, location)?;
        let mut sum = Xxh3::new();
        self.each_block(entry, file, |at, bytes| {
            sum.update(bytes);
            self.write(location, bytes, new.body_offset() + at)
        })?;
        // A damaged body must not be copied, since new records count as verified.
        if sum.digest() != head.body_check {
            self.remove_damaged(entry);
            return Ok(false);
        }
        let mut bytes = Vec::new();
        // Encoded again, since the checksum depends on the location.
        head.encode(self.origin(location.segment, location.offset), &mut bytes);
        self.write(location, &bytes, location.offset)?;
        // Replaces only the entry that was copied, and not a newer object.
        self.commit_entry(new, Some(entry))
    }
}

/// The length of a record in bytes.
fn record_len(entry: &IndexEntry) -> u64 {
    entry.end() - entry.offset()
}
