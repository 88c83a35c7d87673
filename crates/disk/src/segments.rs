//! The state of the segments and their objects in memory, without file operations.
//!
//! A **shared** segment gets consecutive records until it is full. A **sole** segment has a single record: a large one,
//! or one with a length that was unknown when its write began. The oldest segment is evicted first.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index::{IndexEntry, ObjectIndex};
use crate::record::{self, UNIT};

/// A segment: a file of records.
pub struct SegmentFile<T> {
    /// The file; readers share it.
    pub file: Arc<T>,
    /// The end of the last record, including records that are being written or were replaced.
    pub end: u64,
    /// Whether the segment has a single record only.
    pub is_sole: bool,
    /// The number of writers; the segment is not dropped while there are any.
    pub writers: u32,
    /// The order of eviction, lowest first. A segment that gets a second chance gets a new age.
    pub age: u64,
    /// The index slots of the objects that were put into the segment; some slots may have been reused for others.
    slots: Vec<u32>,
    /// The number of live objects.
    live: u32,
}

/// The location of a record.
pub struct RecordLocation<T> {
    /// The segment's file.
    pub file: Arc<T>,
    /// The segment's number.
    pub segment: u32,
    /// The offset of the record.
    pub offset: u64,
    /// The offset of the next record.
    pub end: u64,
}

/// The segments, and the index of their objects.
pub struct DiskState<T> {
    /// The objects.
    pub index: ObjectIndex,
    segments: BTreeMap<u32, SegmentFile<T>>,
    /// The shared segment that takes new records.
    active: Option<u32>,
    next_id: u32,
    next_age: u64,
    /// The sum of all segments' ends.
    used: u64,
}

impl<T> DiskState<T> {
    /// Creates an empty state.
    pub fn new() -> DiskState<T> {
        DiskState {
            index: ObjectIndex::default(),
            segments: BTreeMap::new(),
            active: None,
            next_id: 1,
            next_age: 1,
            used: 0,
        }
    }

    /// The length of all segments in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// The number of segments.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// A segment.
    pub fn segment(&self, id: u32) -> Option<&SegmentFile<T>> {
        self.segments.get(&id)
    }

    /// A new segment number.
    pub fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Marks a number as used.
    pub fn mark_id_used(&mut self, id: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
    }

    /// Adds a segment. Numbers increase, so a segment with a higher number is younger.
    pub fn add(&mut self, id: u32, file: T, is_sole: bool) {
        self.mark_id_used(id);
        let segment = SegmentFile {
            file: Arc::new(file),
            end: 0,
            is_sole,
            writers: 0,
            age: self.next_age,
            slots: Vec::new(),
            live: 0,
        };
        self.next_age += 1;
        self.segments.insert(id, segment);
    }

    /// Makes a segment the active one. Returns the previously active one if that is idle.
    pub fn activate(&mut self, id: u32) -> Option<u32> {
        let previous = self.active.replace(id)?;
        self.close_segment(previous);
        self.is_idle(previous).then_some(previous)
    }

    /// Ensures that no more records are appended to a segment.
    pub fn close_segment(&mut self, id: u32) {
        self.active.take_if(|active| *active == id);
        if let Some(segment) = self.segments.get_mut(&id) {
            segment.slots.shrink_to_fit();
        }
    }

    /// Closes the active segment if it exceeds the segment length.
    pub fn close_full(&mut self, segment_len: u64) {
        let active = self
            .active
            .and_then(|id| Some((id, self.segments.get(&id)?)));
        if let Some((id, segment)) = active
            && segment.end > segment_len
        {
            self.close_segment(id);
        }
    }

    /// Reserves space for a record in the active segment, if it has room.
    pub fn reserve(
        &mut self,
        head_len: u64,
        body_len: u64,
        segment_len: u64,
    ) -> Option<RecordLocation<T>> {
        let id = self.active?;
        let offset = self.segments.get(&id)?.end;
        let fits = record::end(offset, head_len, body_len) <= segment_len;
        fits.then(|| self.extend(id, head_len, body_len))?
    }

    /// Reserves space for a record at the end of a segment.
    pub fn extend(&mut self, id: u32, head_len: u64, body_len: u64) -> Option<RecordLocation<T>> {
        let segment = self.segments.get_mut(&id)?;
        let offset = segment.end;
        let end = record::end(offset, head_len, body_len);
        // Counted under the same lock, so that the segment can't be dropped while it has a writer.
        segment.writers += 1;
        let file = Arc::clone(&segment.file);
        self.grow(id, end);
        Some(RecordLocation {
            file,
            segment: id,
            offset,
            end,
        })
    }

    /// Sets the end of a segment.
    pub fn grow(&mut self, id: u32, end: u64) {
        if let Some(segment) = self.segments.get_mut(&id) {
            self.used += end.saturating_sub(segment.end);
            segment.end = segment.end.max(end);
        }
    }

    /// Ends a writer's use of a reserved location. Returns whether the segment is idle now.
    pub fn release(&mut self, location: &RecordLocation<T>, is_committed: bool) -> bool {
        if let Some(segment) = self.segments.get_mut(&location.segment) {
            segment.writers = segment.writers.saturating_sub(1);
            // The bytes were never visible, so the next record may overwrite them.
            if !is_committed && !segment.is_sole && segment.end == location.end {
                self.used -= segment.end - location.offset;
                segment.end = location.offset;
            }
        }
        self.is_idle(location.segment)
    }

    /// Puts an object into the index. Returns the segment that became idle because an object was replaced.
    pub fn insert(&mut self, entry: IndexEntry) -> Option<u32> {
        let (slot, old) = self.index.insert(entry);
        if let Some(segment) = self.segments.get_mut(&entry.segment) {
            segment.slots.push(slot);
            segment.live += 1;
        }
        self.release_object(old?)
    }

    /// Removes an object from the index. Returns its segment if that became idle.
    pub fn remove(&mut self, hash: u64) -> Option<u32> {
        let old = self.index.remove(hash)?;
        self.release_object(old)
    }

    fn release_object(&mut self, old: IndexEntry) -> Option<u32> {
        let segment = self.segments.get_mut(&old.segment)?;
        segment.live = segment.live.saturating_sub(1);
        self.is_idle(old.segment).then_some(old.segment)
    }

    /// Whether a segment has neither objects nor writers.
    fn is_idle(&self, id: u32) -> bool {
        let idle = |segment: &SegmentFile<T>| segment.live == 0 && segment.writers == 0;
        self.active != Some(id) && self.segments.get(&id).is_some_and(idle)
    }

    /// All idle segments.
    pub fn idle(&self) -> Vec<u32> {
        let idle = |id: &u32| self.is_idle(*id);
        self.segments.keys().copied().filter(idle).collect()
    }

    /// Removes a segment with all its objects. Returns their number.
    pub fn drop_segment(&mut self, id: u32) -> Option<u32> {
        for entry in self.objects_in(id) {
            self.index.remove(entry.hash);
        }
        let segment = self.segments.remove(&id)?;
        self.used -= segment.end;
        self.active.take_if(|active| *active == id);
        Some(segment.live)
    }

    /// The objects in a segment.
    pub fn objects_in(&self, id: u32) -> Vec<IndexEntry> {
        let slots = self.segments.get(&id).map_or(&[][..], |it| &it.slots);
        let entries = slots.iter().filter_map(|&slot| self.index.get(slot));
        // A slot may have been reused for an object of another segment.
        let mut entries: Vec<_> = entries.filter(|entry| entry.segment == id).collect();
        entries.sort_unstable_by_key(|entry| entry.offset_units);
        // A slot that was reused for an object in the same segment is listed twice.
        entries.dedup_by_key(|entry| entry.offset_units);
        entries
    }

    /// The oldest segment that may be evicted.
    pub fn oldest(&self) -> Option<u32> {
        let is_evictable =
            |id: u32, it: &SegmentFile<T>| it.writers == 0 && self.active != Some(id);
        let evictable = self
            .segments
            .iter()
            .filter(|(id, it)| is_evictable(**id, it));
        evictable.min_by_key(|(_, it)| it.age).map(|(id, _)| *id)
    }

    /// Makes a used segment the youngest and halves its objects' hits.
    pub fn make_youngest(&mut self, id: u32) {
        let age = self.next_age;
        self.next_age += 1;
        let Some(segment) = self.segments.get_mut(&id) else {
            return;
        };
        segment.age = age;
        for slot in segment.slots.clone() {
            let current = self.index.get(slot).filter(|entry| entry.segment == id);
            if let Some(entry) = current {
                // Hits decay, so that an object is retained only while it is used.
                self.index.insert(entry.with_halved_hits());
            }
        }
    }

    /// After recovery: sets the end of each segment after its last object, and activates the youngest shared segment if
    /// it has room.
    pub fn finish_recovery(&mut self, segment_len: u64) {
        self.used = 0;
        for segment in self.segments.values_mut() {
            let slots = segment
                .slots
                .iter()
                .filter_map(|&slot| self.index.get(slot));
            // Bytes after the last committed object will be overwritten.
            segment.end = slots.map(|entry| entry.end()).max().unwrap_or(0);
            segment.slots.shrink_to_fit();
            self.used += segment.end;
        }
        let mut shared = self.segments.iter().filter(|(_, it)| !it.is_sole);
        // The last one has the highest number, so it is the youngest.
        let youngest = shared.next_back();
        self.active = youngest.and_then(|(id, it)| (it.end + UNIT < segment_len).then_some(*id));
    }
}
