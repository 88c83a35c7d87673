//! A best-fit allocator for the bytes of one arena: it keeps the free extents in two trees, by offset and by length.
//!
//! The allocator owns no memory and works with offsets from 0. It is called when a response is stored or evicted, never
//! on a hit, so it is written for clarity: O(log n) in the number of free extents.

use alloc::collections::{BTreeMap, BTreeSet};
use core::num::NonZeroU64;

#[cfg(test)]
mod tests;

/// The allocation granularity in bytes. Extents may share a cache line: they are written once, and cache-line alignment
/// would waste 32 MB with a million extents.
pub const UNIT: u64 = 8;

/// The size of a page in bytes, for [`ExtentAlign::Page`].
pub const PAGE: u64 = 4096;

/// The maximum number of free extents of sufficient length in which a page-aligned position is tried. If none of them
/// has one, an extent is used that is long enough for any alignment. This bounds the search.
const ALIGNED_TRIES_MAX: usize = 8;

/// The alignment of both ends of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentAlign {
    /// Multiples of [`UNIT`].
    Unit,
    /// Multiples of [`PAGE`], so that no other extent shares its pages.
    Page,
}

impl ExtentAlign {
    const fn bytes(self) -> u64 {
        match self {
            ExtentAlign::Unit => UNIT,
            ExtentAlign::Page => PAGE,
        }
    }
}

/// An allocated run of bytes. It can be freed only once, since it is neither `Clone` nor `Copy`.
///
/// Dropping the value does not free the bytes: they stay allocated for as long as the allocator exists.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the bytes stay in use until the extent is given to Extents::free"]
pub struct ArenaExtent {
    /// The offset of the first byte, a multiple of [`UNIT`], with bit 0 set for page alignment. Packed, since there are
    /// many extents.
    packed_offset: u64,
    requested_len: NonZeroU64,
}

impl ArenaExtent {
    /// The offset of the first byte in the arena.
    pub fn offset(&self) -> u64 {
        self.packed_offset & !1
    }

    /// The requested length in bytes, at least 1.
    pub fn requested_len(&self) -> u64 {
        self.requested_len.get()
    }

    /// The length in bytes: the requested length, rounded up to whole units or pages.
    #[expect(clippy::len_without_is_empty, reason = "an extent is never empty")]
    pub fn len(&self) -> u64 {
        self.requested_len().next_multiple_of(self.align().bytes())
    }

    fn align(&self) -> ExtentAlign {
        match self.packed_offset & 1 {
            0 => ExtentAlign::Unit,
            _ => ExtentAlign::Page,
        }
    }

    fn end(&self) -> u64 {
        self.offset() + self.len()
    }
}

/// A short, unit-aligned extent, packed into one number. There is one for each stored response.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the bytes stay in use until the extent is given to Extents::free"]
pub struct ShortExtent(NonZeroU64);

impl ShortExtent {
    /// The number of bits for the length; the other bits are the offset in units.
    const LEN_BITS: u32 = 24;
    /// The longest extent that can be packed.
    pub const LEN_MAX: u64 = (1 << Self::LEN_BITS) - 1;
    const UNITS_MAX: u64 = u64::MAX >> Self::LEN_BITS;

    /// Packs an extent.
    ///
    /// # Errors
    /// Returns the extent if it is too long, page-aligned, or its offset is too large.
    pub fn new(extent: ArenaExtent) -> Result<ShortExtent, ArenaExtent> {
        let (unit, requested_len) = (extent.offset() / UNIT, extent.requested_len);
        let is_short = requested_len.get() <= Self::LEN_MAX && unit <= Self::UNITS_MAX;
        // The packed form has no bit for the alignment.
        match is_short && extent.align() == ExtentAlign::Unit {
            true => Ok(ShortExtent(requested_len | unit << Self::LEN_BITS)),
            false => Err(extent),
        }
    }

    /// See [`ArenaExtent::offset`].
    #[inline]
    pub fn offset(&self) -> u64 {
        (self.0.get() >> Self::LEN_BITS) * UNIT
    }

    /// See [`ArenaExtent::requested_len`].
    #[inline]
    pub fn requested_len(&self) -> u64 {
        self.0.get() & Self::LEN_MAX
    }

    /// Unpacks the extent.
    pub fn extent(self) -> ArenaExtent {
        ArenaExtent {
            packed_offset: self.offset(),
            requested_len: NonZeroU64::new(self.requested_len()).unwrap_or(NonZeroU64::MIN),
        }
    }
}

/// Allocates extents of an arena `[0, len)`.
#[derive(Debug)]
pub struct ExtentAllocator {
    /// A multiple of [`UNIT`].
    len: u64,
    /// `used` + the sum of all free lengths == `len`.
    used: u64,
    /// Length of each free extent by offset. Adjacent free extents are always merged.
    free: BTreeMap<u64, u64>,
    /// The same extents as (length, offset): the first one not below (n, 0) is the best fit for n bytes.
    by_len: BTreeSet<(u64, u64)>,
}

impl ExtentAllocator {
    /// An allocator with all of `[0, len)` free; `len` is rounded down to a multiple of [`UNIT`].
    pub fn new(len: u64) -> ExtentAllocator {
        let len = len - len % UNIT;
        let mut extents = ExtentAllocator {
            len,
            used: 0,
            free: BTreeMap::new(),
            by_len: BTreeSet::new(),
        };
        if len > 0 {
            extents.add(0, len);
        }
        extents
    }

    /// Allocates `len` bytes (0 counts as 1) from the smallest free extent that can hold them. The remainder of that
    /// extent stays free.
    ///
    /// `None` if no extent is long enough, even if enough bytes are free in total; freeing extents may help. With page
    /// alignment a suitable extent may be missed if many free extents of the same length are not aligned, since the
    /// search is bounded.
    pub fn allocate(&mut self, len: u64, align: ExtentAlign) -> Option<ArenaExtent> {
        let requested_len = NonZeroU64::new(len).unwrap_or(NonZeroU64::MIN);
        let len = requested_len
            .get()
            .checked_next_multiple_of(align.bytes())?;
        let (found_len, found_offset, offset) = self.best_fit(len, align)?;
        self.take(found_offset, found_len);
        // The gap in front of an aligned extent stays free.
        if offset > found_offset {
            self.add(found_offset, offset - found_offset);
        }
        let (end, found_end) = (offset + len, found_offset + found_len);
        if found_end > end {
            self.add(end, found_end - end);
        }
        self.used += len;
        Some(ArenaExtent {
            packed_offset: offset | u64::from(align == ExtentAlign::Page),
            requested_len,
        })
    }

    /// Frees an extent, which must have been allocated by the same allocator.
    pub fn free(&mut self, extent: ArenaExtent) {
        debug_assert!(extent.end() <= self.len, "an extent of another arena");
        self.used -= extent.len();
        let (mut offset, mut end) = (extent.offset(), extent.end());
        // Merge with both neighbours, since free extents must never be adjacent.
        if let Some((&left, &left_len)) = self.free.range(..offset).next_back() {
            debug_assert!(left + left_len <= offset, "an extent of another arena");
            if left + left_len == offset {
                self.take(left, left_len);
                offset = left;
            }
        }
        if let Some(&right_len) = self.free.get(&end) {
            self.take(end, right_len);
            end += right_len;
        }
        self.add(offset, end - offset);
    }

    /// Bytes in use, rounding included.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the arena, used and free.
    #[expect(
        clippy::len_without_is_empty,
        reason = "the length of the arena, not a count of extents"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The length of the longest free extent in bytes; 0 if everything is in use.
    pub fn largest_free(&self) -> u64 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    /// The free extent to allocate from, as (length, offset, first aligned offset in it).
    fn best_fit(&self, len: u64, align: ExtentAlign) -> Option<(u64, u64, u64)> {
        let padded_len = len.checked_add(align.bytes() - UNIT)?;
        self.by_len
            .range((len, 0)..)
            .take(ALIGNED_TRIES_MAX)
            // If none of these fits, an extent is used that is long enough for any alignment.
            .chain(self.by_len.range((padded_len, 0)..).take(1))
            .map(|&(found_len, found_offset)| {
                (
                    found_len,
                    found_offset,
                    found_offset.next_multiple_of(align.bytes()),
                )
            })
            .find(|&(found_len, found_offset, offset)| offset - found_offset + len <= found_len)
    }

    fn add(&mut self, offset: u64, len: u64) {
        self.free.insert(offset, len);
        self.by_len.insert((len, offset));
    }

    fn take(&mut self, offset: u64, len: u64) {
        self.free.remove(&offset);
        self.by_len.remove(&(len, offset));
    }
}
