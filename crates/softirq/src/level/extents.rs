//! Free-space management of the store. Independent of the store and its content.

use std::collections::{BTreeMap, BTreeSet};

/// A range of the store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreExtent {
    /// Offset, a multiple of `FreeExtents::GRAIN`.
    pub at: u32,
    /// Length, also a multiple of it.
    pub len: u32,
}

/// Free extents, indexed by offset and by length. Adjacent ones are merged.
#[derive(Clone, Debug, Default)]
pub struct FreeExtents {
    by_offset: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
}

impl FreeExtents {
    /// Offsets and lengths are multiples of this.
    pub const GRAIN: u32 = 8;

    /// Starts with a free store of this length.
    #[must_use]
    pub fn new(len: u32) -> FreeExtents {
        let mut extents = FreeExtents::default();
        // An incomplete grain at the end stays unused.
        extents.insert(0, len / Self::GRAIN * Self::GRAIN);
        extents
    }

    /// The extent length for this many bytes.
    #[must_use]
    pub fn rounded(len: usize) -> u32 {
        u32::try_from(len)
            // Longer than any store, and without overflow when it is rounded up.
            .unwrap_or(u32::MAX - Self::GRAIN)
            .next_multiple_of(Self::GRAIN)
    }

    /// Best fit: takes the smallest free extent that holds this many bytes, and returns the rest of it.
    pub fn take(&mut self, len: usize) -> Option<StoreExtent> {
        let needed_len = Self::rounded(len);
        // Sorted by length, then offset: the first long enough extent is the shortest one.
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
        // Free extents do not overlap, so only the last one that begins at or before the offset can contain it.
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
        // Merged with both neighbours, so that long responses find room again.
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
    fn the_smallest_piece_that_fits_is_taken() {
        let mut free = FreeExtents::new(1000);
        let pieces: Vec<StoreExtent> = (0..4).filter_map(|_| free.take(200)).collect();
        free.free(pieces[1]);
        // The freed extent is the best fit; lengths are rounded up.
        assert_eq!(free.take(190), Some(StoreExtent { at: 200, len: 192 }));
        assert_eq!(free.take(201), None);
        assert_eq!(free.take(200), Some(StoreExtent { at: 800, len: 200 }));
        assert_eq!(free.take(9), None);
        assert_eq!(free.take(8), Some(StoreExtent { at: 392, len: 8 }));
    }

    #[test]
    fn what_is_given_back_is_joined() {
        let mut free = FreeExtents::new(800);
        let pieces: Vec<StoreExtent> = (0..8).filter_map(|_| free.take(100)).collect();
        assert_eq!(pieces.len(), 7, "100 bytes take 104");
        // First without free neighbours, then with two each.
        for at in [0, 2, 4, 6, 1, 3, 5] {
            free.free(pieces[at]);
        }
        assert_eq!(free.take(800), Some(StoreExtent { at: 0, len: 800 }));
    }

    #[test]
    fn a_piece_in_use_is_not_taken_again() {
        let mut free = FreeExtents::new(800);
        assert!(free.take_at(StoreExtent { at: 96, len: 200 }));
        assert!(!free.take_at(StoreExtent { at: 288, len: 16 }));
        assert!(!free.take_at(StoreExtent { at: 0, len: 104 }));
        assert!(free.take_at(StoreExtent { at: 0, len: 96 }));
        assert!(!free.take_at(StoreExtent { at: 792, len: 16 }));
        assert_eq!(free.take(504), Some(StoreExtent { at: 296, len: 504 }));
    }
}
