//! The index of the objects, in memory: an entry of 32 bytes for each, and a hash table of slot numbers.
//!
//! Objects are indexed by a 64-bit hash of the key. Two keys with the same hash replace each other; the key itself is
//! compared when the head is read from disk. Entries are in chunks, so that growing copies none of them and leaves no
//! half-empty vector.

use hashbrown::HashTable;

use crate::record::{self, BODY_LEN_MAX, UNIT};

const CHUNK_LEN: usize = 4096;
const FLAG_VERIFIED: u32 = 1 << 31;
const HITS_SHIFT: u32 = 28;
const HITS_MAX: u32 = 3;
const HEAD_LEN_MASK: u32 = 0x00ff_ffff;

/// The location of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The hash of the key.
    pub hash: u64,
    /// The length of the body in bytes.
    pub body_len: u64,
    /// The segment's number.
    pub segment: u32,
    /// The offset of the record, in units of [`UNIT`] bytes.
    pub offset_units: u32,
    /// The time after which the object is unusable, in seconds since 1970, rounded up; `u32::MAX` is never.
    pub expires_s: u32,
    /// The length of the head (24 bits), hits (2 bits), and whether the record was verified. 0 if the slot is empty.
    bits: u32,
}

impl IndexEntry {
    const NONE: IndexEntry = IndexEntry {
        hash: 0,
        body_len: 0,
        segment: 0,
        offset_units: 0,
        expires_s: 0,
        bits: 0,
    };

    /// Creates an entry without a location; `None` if the lengths are invalid.
    pub fn new(hash: u64, head_len: u32, body_len: u64) -> Option<IndexEntry> {
        let is_valid = head_len > 0 && head_len <= HEAD_LEN_MASK && body_len <= BODY_LEN_MAX;
        is_valid.then_some(IndexEntry {
            hash,
            body_len,
            bits: head_len,
            ..IndexEntry::NONE
        })
    }

    /// The length of the head with key and metadata.
    pub fn head_len(&self) -> u32 {
        self.bits & HEAD_LEN_MASK
    }

    /// The offset of the record in its segment, in bytes.
    pub fn offset(&self) -> u64 {
        u64::from(self.offset_units) * UNIT
    }

    /// The offset of the body in the segment.
    pub fn body_offset(&self) -> u64 {
        record::body_offset(self.offset(), u64::from(self.head_len()), self.body_len)
    }

    /// The end of the record.
    pub fn end(&self) -> u64 {
        record::end(self.offset(), u64::from(self.head_len()), self.body_len)
    }

    /// Whether the record's checksums were verified, or this process wrote the record.
    pub fn is_verified(&self) -> bool {
        self.bits & FLAG_VERIFIED != 0
    }

    /// The same entry, marked as verified.
    pub fn verified(mut self) -> IndexEntry {
        self.bits |= FLAG_VERIFIED;
        self
    }

    /// The number of hits since the record was written or rewritten, up to three.
    pub fn hits(&self) -> u32 {
        (self.bits >> HITS_SHIFT) & HITS_MAX
    }

    /// The same entry with half as many hits, rounded down.
    pub fn with_halved_hits(mut self) -> IndexEntry {
        let hits = self.hits() / 2;
        self.bits = self.bits & !(HITS_MAX << HITS_SHIFT) | hits << HITS_SHIFT;
        self
    }

    /// Whether both entries refer to the same record.
    pub fn has_same_record(&self, other: &IndexEntry) -> bool {
        (self.segment, self.offset_units) == (other.segment, other.offset_units)
            && self.exists() == other.exists()
    }

    fn exists(&self) -> bool {
        self.bits != 0
    }

    fn hit(&mut self) {
        if self.hits() < HITS_MAX {
            self.bits += 1 << HITS_SHIFT;
        }
    }
}

/// All entries.
#[derive(Default)]
pub struct ObjectIndex {
    table: HashTable<u32>,
    chunks: Vec<Box<[IndexEntry]>>,
    /// Empty slots below `len`.
    free: Vec<u32>,
    /// The number of slots that were ever used: len <= chunks.len() * CHUNK_LEN.
    len: u32,
}

impl ObjectIndex {
    /// The number of objects.
    pub fn objects(&self) -> usize {
        self.table.len()
    }

    /// The number of slots, including empty ones.
    pub fn slots(&self) -> u32 {
        self.len
    }

    /// The memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.table.allocation_size()
            + self.chunks.len() * CHUNK_LEN * size_of::<IndexEntry>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Reserves memory for more objects.
    pub fn reserve(&mut self, objects: usize) {
        let (table, chunks) = (&mut self.table, &self.chunks);
        table.reserve(objects, |&slot| entry(chunks, slot).hash);
    }

    /// The object with this hash, and its slot.
    pub fn find(&self, hash: u64) -> Option<(u32, IndexEntry)> {
        let has_hash = |&slot: &u32| entry(&self.chunks, slot).hash == hash;
        let slot = *self.table.find(hash, has_hash)?;
        Some((slot, *entry(&self.chunks, slot)))
    }

    /// The entry in a slot.
    pub fn get(&self, slot: u32) -> Option<IndexEntry> {
        let entry = (slot < self.len).then(|| *entry(&self.chunks, slot))?;
        entry.exists().then_some(entry)
    }

    /// Counts a hit of the object in a slot.
    pub fn hit(&mut self, slot: u32) {
        self.entry_mut(slot).hit();
    }

    /// Marks the object in a slot as verified, if the slot still has the expected one.
    pub fn set_verified(&mut self, slot: u32, expected: &IndexEntry) {
        // The slot may have been reused during the verification.
        if self
            .get(slot)
            .is_some_and(|current| current.has_same_record(expected))
        {
            *self.entry_mut(slot) = self.entry_mut(slot).verified();
        }
    }

    /// Inserts an object. Returns its slot and the replaced entry.
    pub fn insert(&mut self, new: IndexEntry) -> (u32, Option<IndexEntry>) {
        if let Some((slot, old)) = self.find(new.hash) {
            *self.entry_mut(slot) = new;
            return (slot, Some(old));
        }
        let slot = self.free.pop().unwrap_or_else(|| self.new_slot());
        *self.entry_mut(slot) = new;
        let (table, chunks) = (&mut self.table, &self.chunks);
        table.insert_unique(new.hash, slot, |&slot| entry(chunks, slot).hash);
        (slot, None)
    }

    /// Removes the object with this hash.
    pub fn remove(&mut self, hash: u64) -> Option<IndexEntry> {
        let chunks = &self.chunks;
        let has_hash = |&slot: &u32| entry(chunks, slot).hash == hash;
        let (slot, _) = self.table.find_entry(hash, has_hash).ok()?.remove();
        self.free.push(slot);
        Some(std::mem::replace(self.entry_mut(slot), IndexEntry::NONE))
    }

    fn new_slot(&mut self) -> u32 {
        let slot = self.len;
        if slot as usize == self.chunks.len() * CHUNK_LEN {
            // Growing by chunks moves no entries, and never needs twice the memory.
            let chunk = vec![IndexEntry::NONE; CHUNK_LEN].into_boxed_slice();
            self.chunks.push(chunk);
        }
        self.len += 1;
        slot
    }

    fn entry_mut(&mut self, slot: u32) -> &mut IndexEntry {
        &mut self.chunks[slot as usize / CHUNK_LEN][slot as usize % CHUNK_LEN]
    }
}

fn entry(chunks: &[Box<[IndexEntry]>], slot: u32) -> &IndexEntry {
    &chunks[slot as usize / CHUNK_LEN][slot as usize % CHUNK_LEN]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_at(hash: u64, segment: u32) -> IndexEntry {
        let mut entry = IndexEntry::new(hash, 100, 5).expect("fits");
        entry.segment = segment;
        entry
    }

    #[test]
    fn index_entry_has_32_bytes() {
        assert_eq!(size_of::<IndexEntry>(), 32);
    }

    #[test]
    fn object_with_equal_hash_is_replaced_in_its_slot() {
        let mut index = ObjectIndex::default();
        let (slot, old) = index.insert(entry_at(7, 1));
        assert_eq!(old, None);
        let (again, old) = index.insert(entry_at(7, 2));
        assert_eq!((again, old.map(|old| old.segment)), (slot, Some(1)));
        assert_eq!(index.find(7).map(|(_, entry)| entry.segment), Some(2));
        assert_eq!(index.remove(7).map(|entry| entry.segment), Some(2));
        assert_eq!(
            (index.find(7), index.get(slot), index.objects()),
            (None, None, 0)
        );
        assert_eq!(index.insert(entry_at(8, 1)).0, slot, "slots are used again");
    }

    #[test]
    fn hits_saturate_at_three_and_preserve_other_bits() {
        let mut index = ObjectIndex::default();
        let (slot, _) = index.insert(entry_at(7, 1).verified());
        (0..9).for_each(|_| index.hit(slot));
        let entry = index.get(slot).expect("there");
        assert_eq!(
            (entry.hits(), entry.head_len(), entry.is_verified()),
            (3, 100, true)
        );
        let half = entry.with_halved_hits();
        assert_eq!(
            (half.hits(), half.head_len(), half.is_verified()),
            (1, 100, true)
        );
        assert_eq!(half.with_halved_hits().hits(), 0);
    }

    #[test]
    fn index_memory_is_at_most_44_bytes_per_object() {
        let mut index = ObjectIndex::default();
        for n in 0..1_000_000_u64 {
            index.insert(entry_at(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0));
        }
        // In addition, a segment's list of slots takes 4 bytes for each object.
        assert!(
            index.memory_bytes() <= 44_000_000,
            "{}",
            index.memory_bytes()
        );
    }
}
