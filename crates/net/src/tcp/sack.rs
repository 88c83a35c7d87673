//! The SACK scoreboard: data that the peer has received beyond its cumulative ACK (RFC 2018, RFC 6675).

use crate::bytes::before;

const RANGES_MAX: usize = 4;

/// Disjoint ranges `[start, end)` of sequence numbers, in ascending order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SackScoreboard {
    ranges: [(u32, u32); RANGES_MAX],
    count: u8,
}

impl SackScoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Adds the SACK blocks that are within the data in flight. Returns whether a block was new.
    pub(crate) fn read(&mut self, options: &[u8], una: u32, nxt: u32) -> bool {
        let previous_total = self.total();
        let mut blocks = blocks(options);
        while let Some((block, rest)) = blocks.split_first_chunk::<8>() {
            let start = crate::bytes::be32(block, 0);
            let end = crate::bytes::be32(block, 4);
            // Blocks are compared relative to `una`, since comparisons of distant sequence numbers wrap.
            let (from, to) = (start.wrapping_sub(una), end.wrapping_sub(una));
            if 0 < from && from < to && to <= nxt.wrapping_sub(una) {
                self.add(start, end);
            }
            blocks = rest;
        }
        self.total() > previous_total
    }

    /// The number of bytes in the ranges.
    pub(crate) fn total(&self) -> u32 {
        self.ranges()
            .iter()
            .map(|(start, end)| end.wrapping_sub(*start))
            .sum()
    }

    fn add(&mut self, mut start: u32, mut end: u32) {
        let mut merged = SackScoreboard::default();
        for range in self.ranges() {
            // Adjacent ranges are merged too.
            if before(range.1, start) || before(end, range.0) {
                merged.ranges[usize::from(merged.count)] = *range;
                merged.count += 1;
            } else {
                start = if before(range.0, start) {
                    range.0
                } else {
                    start
                };
                end = if before(end, range.1) { range.1 } else { end };
            }
        }
        // Ranges beyond the capacity are dropped, so their data is retransmitted unnecessarily.
        if usize::from(merged.count) == RANGES_MAX {
            return;
        }
        let at = merged
            .ranges()
            .iter()
            .position(|range| before(start, range.0))
            .unwrap_or(usize::from(merged.count));
        merged.ranges[at..].rotate_right(1);
        merged.ranges[at] = (start, end);
        merged.count += 1;
        *self = merged;
    }

    /// Removes the data below `una`, which is acknowledged.
    pub(crate) fn advance(&mut self, una: u32) {
        while let Some(first) = self.ranges().first().copied() {
            if before(una, first.0) {
                return;
            }
            if before(una, first.1) {
                self.ranges[0].0 = una;
                return;
            }
            self.ranges.rotate_left(1);
            self.count -= 1;
        }
    }

    /// Removes all ranges.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// The end of the last range.
    pub(crate) fn highest(&self) -> Option<u32> {
        self.ranges().last().map(|range| range.1)
    }

    /// The number of bytes of `[from, to)` that are in no range.
    pub(crate) fn missing(&self, from: u32, to: u32) -> u32 {
        let all = to.wrapping_sub(from);
        if all.cast_signed() <= 0 {
            return 0;
        }
        let covered: u32 = self
            .ranges()
            .iter()
            .map(|(start, end)| {
                let start = start.wrapping_sub(from).cast_signed().max(0);
                let end = end.wrapping_sub(from).cast_signed().min(all.cast_signed());
                (end - start).max(0).cast_unsigned()
            })
            .sum();
        all - covered
    }

    /// The first gap between the ranges within `[from, to)`.
    pub(crate) fn hole(&self, mut from: u32, to: u32) -> Option<(u32, u32)> {
        for (start, end) in self.ranges() {
            if before(from, *start) {
                let end = if before(*start, to) { *start } else { to };
                return before(from, end).then_some((from, end));
            }
            from = if before(from, *end) { *end } else { from };
        }
        before(from, to).then_some((from, to))
    }
}

/// The blocks of the SACK option.
fn blocks(mut options: &[u8]) -> &[u8] {
    loop {
        match options {
            [1, rest @ ..] => options = rest,
            [0, ..] | [] | [_] => return &[],
            [5, len, ..] => {
                return options.get(2..usize::from(*len)).unwrap_or_default();
            }
            [_, 0 | 1, ..] => return &[],
            [_, len, ..] => options = options.get(usize::from(*len)..).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn option(ranges: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = vec![1, 1, 5, (2 + ranges.len() * 8) as u8];
        for (start, end) in ranges {
            bytes.extend(start.to_be_bytes());
            bytes.extend(end.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn adjacent_ranges_merge_and_acknowledged_ones_are_removed() {
        let mut board = SackScoreboard::default();
        // Crosses the wrap of sequence numbers.
        let una = u32::MAX - 100;
        let at = |offset: u32| una.wrapping_add(offset);
        assert!(board.read(
            &option(&[(at(200), at(300)), (at(50), at(60))]),
            una,
            at(1000)
        ));
        assert!(!board.read(&option(&[(at(210), at(220))]), una, at(1000)));
        assert_eq!(board.missing(una, at(1000)), 890);
        assert_eq!(board.missing(at(55), at(250)), 140);
        assert_eq!(board.hole(una, at(1000)), Some((una, at(50))));
        assert_eq!(board.hole(at(50), at(1000)), Some((at(60), at(200))));
        assert_eq!(board.hole(at(70), at(100)), Some((at(70), at(100))));
        assert_eq!(board.hole(at(200), at(300)), None);
        assert!(board.read(&option(&[(at(60), at(200))]), una, at(1000)));
        assert_eq!(board.ranges(), [(at(50), at(300))]);
        board.advance(at(100));
        assert_eq!(board.ranges(), [(at(100), at(300))]);
        board.advance(at(300));
        assert!(board.is_empty());
    }

    #[test]
    fn malformed_sack_options_are_ignored() {
        let mut board = SackScoreboard::default();
        for ranges in [
            [(90, 95)],
            [(100, 110)],
            [(120, 120)],
            [(130, 120)],
            [(150, 201)],
        ] {
            assert!(!board.read(&option(&ranges), 100, 200), "{ranges:?}");
        }
        for options in [
            &[5][..],
            &[5, 0],
            &[5, 1],
            &[5, 10, 0],
            &[9, 0, 5],
            &[0, 5, 10],
        ] {
            assert!(!board.read(options, 100, 200));
        }
    }
}
