//! Free-space management for the response store. Knows only offsets and lengths.

use std::collections::{BTreeMap, BTreeSet};

/// A range of the store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreExtent {
    /// Offset, a multiple of `FreeExtents::EXTENT_UNIT`.
    pub at: u32,
    /// Length, a multiple of `FreeExtents::EXTENT_UNIT`.
    pub len: u32,
}

/// The free extents, indexed by offset and by length. Adjacent free extents are merged.
#[derive(Clone, Debug, Default)]
pub struct FreeExtents {
    by_offset: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
}

impl FreeExtents {
    /// Unit of all offsets and lengths, in bytes.
    pub const EXTENT_UNIT: u32 = 8;

    /// Starts with a store of this length, all free.
    #[must_use]
    pub fn new(len: u32) -> FreeExtents {
        let mut extents = FreeExtents::default();
        // An incomplete unit at the end stays unused.
        extents.insert(0, len / Self::EXTENT_UNIT * Self::EXTENT_UNIT);
        extents
    }

    /// The length of the extent that holds this many bytes.
    #[must_use]
    pub fn rounded(len: usize) -> u32 {
        u32::try_from(len)
            // This length exceeds any store, and can be rounded up without overflow.
            .unwrap_or(u32::MAX - Self::EXTENT_UNIT)
            .next_multiple_of(Self::EXTENT_UNIT)
    }

    /// Best fit: takes the start of the smallest free extent that holds this many bytes; the remainder stays free.
    pub fn take(&mut self, len: usize) -> Option<StoreExtent> {
        let needed_len = Self::rounded(len);
        // The set is sorted by length, then offset, so the first sufficient extent is the shortest one.
        let (found_len, at) = *self.by_len.range((needed_len, 0)..).next()?;
        self.remove(at, found_len);
        self.insert(at + needed_len, found_len - needed_len);
        Some(StoreExtent {
            at,
            len: needed_len,
        })
    }

    /// Takes this exact extent; false if it is not completely free.
    pub fn take_at(&mut self, extent: StoreExtent) -> bool {
        // Free extents do not overlap, so only the last one that begins at or before the offset can contain this
        // extent.
        let preceding = self.by_offset.range(..=extent.at).next_back();
        let Some((at, len)) = preceding.map(|(at, len)| (*at, *len)) else {
            return false;
        };
        let (end, extent_end) = (at + len, extent.at.saturating_add(extent.len));
        if extent_end > end {
            return false;
        }
        self.remove(at, len);
        self.insert(at, extent.at - at);
        self.insert(extent_end, end - extent_end);
        true
    }

    /// Frees an extent.
    pub fn free(&mut self, extent: StoreExtent) {
        let StoreExtent { mut at, mut len } = extent;
        // The extent is merged with its free neighbours, so that there is room for long responses again.
        let preceding = self.by_offset.range(..at).next_back();
        if let Some((before_at, before_len)) = preceding.map(|(at, len)| (*at, *len))
            && before_at + before_len == at
        {
            self.remove(before_at, before_len);
            (at, len) = (before_at, before_len + len);
        }
        if let Some(behind_len) = self.by_offset.get(&(at + len)).copied() {
            self.remove(at + len, behind_len);
            len += behind_len;
        }
        self.insert(at, len);
    }

    fn insert(&mut self, at: u32, len: u32) {
        if len > 0 {
            self.by_offset.insert(at, len);
            self.by_len.insert((len, at));
        }
    }

    fn remove(&mut self, at: u32, len: u32) {
        self.by_offset.remove(&at);
        self.by_len.remove(&(len, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_sufficient_extent_is_taken() {
        let mut free = FreeExtents::new(1000);
        let extents: Vec<StoreExtent> = (0..4).filter_map(|_| free.take(200)).collect();
        free.free(extents[1]);
        // The freed extent is the best fit; lengths are rounded up.
        assert_eq!(free.take(190), Some(StoreExtent { at: 200, len: 192 }));
        assert_eq!(free.take(201), None);
        assert_eq!(free.take(200), Some(StoreExtent { at: 800, len: 200 }));
        assert_eq!(free.take(9), None);
        assert_eq!(free.take(8), Some(StoreExtent { at: 392, len: 8 }));
    }

    #[test]
    fn freed_extents_are_merged() {
        let mut free = FreeExtents::new(800);
        let extents: Vec<StoreExtent> = (0..8).filter_map(|_| free.take(100)).collect();
        assert_eq!(extents.len(), 7, "100 bytes take 104");
        // First extents without free neighbours, then those with two each.
        for at in [0, 2, 4, 6, 1, 3, 5] {
            free.free(extents[at]);
        }
        assert_eq!(free.take(800), Some(StoreExtent { at: 0, len: 800 }));
    }

    #[test]
    fn take_at_rejects_extents_in_use() {
        let mut free = FreeExtents::new(800);
        assert!(free.take_at(StoreExtent { at: 96, len: 200 }));
        assert!(!free.take_at(StoreExtent { at: 288, len: 16 }));
        assert!(!free.take_at(StoreExtent { at: 0, len: 104 }));
        assert!(free.take_at(StoreExtent { at: 0, len: 96 }));
        assert!(!free.take_at(StoreExtent { at: 792, len: 16 }));
        assert_eq!(free.take(504), Some(StoreExtent { at: 296, len: 504 }));
    }
}
