//! The memory map: regions of physical memory, those that are occupied, and the free one for the heap.

/// A region of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Its first byte.
    pub start: u64,
    /// The end, exclusive.
    pub end: u64,
}

impl MemoryRegion {
    /// A region of `len` bytes from `start` on.
    #[must_use]
    pub fn new(start: u64, len: u64) -> MemoryRegion {
        MemoryRegion {
            start,
            end: start.saturating_add(len),
        }
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A set of at most `MemoryMap::MAX` regions; further ones are dropped, so that their memory is unused.
#[derive(Clone)]
pub struct MemoryMap {
    all: [MemoryRegion; MemoryMap::MAX],
    count: usize,
}

impl Default for MemoryMap {
    fn default() -> MemoryMap {
        MemoryMap {
            all: [MemoryRegion::default(); MemoryMap::MAX],
            count: 0,
        }
    }
}

impl MemoryMap {
    /// Maximum number of regions.
    pub const MAX: usize = 64;

    /// Adds a region unless it is empty. Merges it with the region directly before it, since firmware often splits
    /// memory.
    pub fn add(&mut self, region: MemoryRegion) {
        if region.is_empty() {
            return;
        }
        if let Some(preceding) = self.all[..self.count]
            .iter_mut()
            .find(|other| other.end == region.start)
        {
            preceding.end = region.end;
        } else if let Some(slot) = self.all.get_mut(self.count) {
            *slot = region;
            self.count += 1;
        }
    }

    /// Whether one of the regions contains all of `region`.
    #[must_use]
    pub fn contains(&self, region: MemoryRegion) -> bool {
        self.iter()
            .any(|other| other.start <= region.start && region.end <= other.end)
    }

    /// The regions.
    pub fn iter(&self) -> impl Iterator<Item = &MemoryRegion> {
        self.all[..self.count].iter()
    }

    /// The sum of the lengths.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.iter().map(MemoryRegion::len).sum()
    }

    /// The largest region within `limits` that is disjoint from `occupied`.
    #[must_use]
    pub fn largest_free(&self, occupied: &MemoryMap, limits: MemoryRegion) -> MemoryRegion {
        let mut best = MemoryRegion::default();
        for region in self.iter() {
            let mut at = region.start.max(limits.start);
            let end = region.end.min(limits.end);
            while at < end {
                // The lowest occupied region that does not end before `at`.
                let next = occupied
                    .iter()
                    .filter(|other| other.end > at)
                    .min_by_key(|other| other.start);
                let (free_end, occupied_end) = match next {
                    Some(other) => (other.start.clamp(at, end), other.end),
                    None => (end, end),
                };
                let free = MemoryRegion {
                    start: at,
                    end: free_end,
                };
                if free.len() > best.len() {
                    best = free;
                }
                at = occupied_end.max(free_end);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(all: &[(u64, u64)]) -> MemoryMap {
        let mut regions = MemoryMap::default();
        for &(start, end) in all {
            regions.add(MemoryRegion { start, end });
        }
        regions
    }

    #[test]
    fn largest_free_region_is_found() {
        let ram = regions(&[(0, 0xa0), (0x100, 0x1000)]);
        let limits = MemoryRegion {
            start: 0x100,
            end: 0x900,
        };
        assert_eq!(ram.largest_free(&regions(&[]), limits), limits);
        let taken = regions(&[
            (0x300, 0x400),
            (0x100, 0x110),
            (0x3f0, 0x480),
            (0x8f0, 0xf00),
        ]);
        assert_eq!(
            ram.largest_free(&taken, limits),
            MemoryRegion {
                start: 0x480,
                end: 0x8f0
            }
        );
        assert!(
            ram.largest_free(&regions(&[(0, u64::MAX)]), limits)
                .is_empty()
        );
    }

    #[test]
    fn adjacent_regions_are_merged() {
        let ram = regions(&[(0, 0x100), (0x100, 0x300), (0x400, 0x500)]);
        assert!(ram.contains(MemoryRegion {
            start: 0x80,
            end: 0x300
        }));
        assert!(!ram.contains(MemoryRegion {
            start: 0x80,
            end: 0x301
        }));
    }

    #[test]
    fn regions_beyond_the_maximum_are_dropped() {
        let mut ram = MemoryMap::default();
        for n in 0..100 {
            ram.add(MemoryRegion::new(n * 10, 5));
        }
        assert_eq!(ram.total_len(), 5 * MemoryMap::MAX as u64);
    }
}
