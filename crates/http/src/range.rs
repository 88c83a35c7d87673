//! Byte ranges: evaluates a Range field. Range applies to GET only, and only if If-Range permits it
//! (`crate::preconditions::if_range_holds`). Read RFC 9110 §14.
//!
//! The response to a range request is never larger than the representation: if there are too many ranges, or their sum
//! exceeds the length of the representation, the whole representation is sent (§14.2, §17.15).

use crate::list_values;

/// The most ranges in one response.
pub const RANGES_MAX: usize = 16;

/// Bytes `start..end` of a representation: `start < end <= length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

/// The result of evaluating a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangesSpecifier {
    /// The field is ignored and the whole representation is sent: the field is malformed, has another unit, or is
    /// abusive.
    Whole,
    /// One range (which may cover the whole representation).
    One(ByteRange),
    /// Two or more ranges that do not overlap or touch.
    Many(RangeSet),
    /// 416 (Range Not Satisfiable).
    Unsatisfiable,
}

/// Up to [`RANGES_MAX`] ranges in the client's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSet {
    ranges: [ByteRange; RANGES_MAX],
    len: usize,
}

impl RangeSet {
    const EMPTY: RangeSet = RangeSet {
        ranges: [ByteRange { start: 0, end: 0 }; RANGES_MAX],
        len: 0,
    };

    /// The ranges in the client's order.
    pub fn iter(&self) -> core::slice::Iter<'_, ByteRange> {
        self.ranges[..self.len].iter()
    }

    /// Adds a range; `None` if there is no room.
    fn push(&mut self, range: ByteRange) -> Option<()> {
        *self.ranges.get_mut(self.len)? = range;
        self.len += 1;
        Some(())
    }

    /// Merges ranges that overlap or touch. A merged range takes the position of its first part.
    fn coalesced(&self) -> RangeSet {
        let mut set = RangeSet::EMPTY;
        for range in self.iter() {
            set.join(*range);
        }
        set
    }

    fn join(&mut self, mut range: ByteRange) {
        let mut merged_index = None;
        let mut retained = 0;
        for at in 0..self.len {
            let other = self.ranges[at];
            // RFC 9110 §15.3.7.2: overlapping and adjacent ranges may be coalesced.
            if other.start <= range.end && range.start <= other.end {
                range.start = range.start.min(other.start);
                range.end = range.end.max(other.end);
                if merged_index.is_some() {
                    continue;
                }
                merged_index = Some(retained);
            }
            self.ranges[retained] = other;
            retained += 1;
        }
        // Merging never increases the number of ranges, so there is room for this one.
        let merged_index = merged_index.unwrap_or_else(|| {
            retained += 1;
            retained - 1
        });
        self.ranges[merged_index] = range;
        self.len = retained;
    }
}

impl<'s> IntoIterator for &'s RangeSet {
    type Item = &'s ByteRange;
    type IntoIter = core::slice::Iter<'s, ByteRange>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Evaluates the value of Range for a representation of `len` bytes.
pub fn evaluate(value: &[u8], len: u64) -> RangesSpecifier {
    // RFC 9110 §14.2: an unknown range unit is ignored.
    let Some(specs) = strip_unit(value) else {
        return RangesSpecifier::Whole;
    };
    let mut set = RangeSet::EMPTY;
    let mut sum = 0_u64;
    let mut has_specs = false;
    for spec in list_values::members(specs).filter(|s| !s.is_empty()) {
        has_specs = true;
        let range = match RangeSpec::parse(spec).map(|s| s.resolve(len)) {
            // RFC 9110 §14.2: an invalid Range field may be ignored.
            None => return RangesSpecifier::Whole,
            // This range is unsatisfiable; others may still be satisfiable.
            Some(None) => continue,
            Some(Some(range)) => range,
        };
        sum = sum.saturating_add(range.end - range.start);
        // Overlapping ranges must not multiply the size of the response.
        if sum > len || set.push(range).is_none() {
            return RangesSpecifier::Whole;
        }
    }
    let set = set.coalesced();
    match *set.ranges.get(..set.len).unwrap_or_default() {
        // An empty representation is sent whole: Content-Range could not express it, and some clients always send Range
        // (§14.2).
        [] if !has_specs || len == 0 => RangesSpecifier::Whole,
        [] => RangesSpecifier::Unsatisfiable,
        [range] => RangesSpecifier::One(range),
        _ => RangesSpecifier::Many(set),
    }
}

/// The ranges after `bytes=`; the unit is case-insensitive (§14.1).
fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, specs) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(specs)
}

/// A range as written in the field.
enum RangeSpec {
    /// The first and the last byte, both included; `u64::MAX` if the last is missing.
    From(u64, u64),
    /// The number of bytes at the end.
    Suffix(u64),
}

impl RangeSpec {
    /// Parses a range; `None` if malformed.
    fn parse(spec: &[u8]) -> Option<RangeSpec> {
        let dash = spec.iter().position(|b| *b == b'-')?;
        let (first, last) = (spec.get(..dash)?, spec.get(dash + 1..)?);
        match (first, last) {
            ([], last) => Some(RangeSpec::Suffix(saturating(last)?)),
            (first, []) => Some(RangeSpec::From(saturating(first)?, u64::MAX)),
            (first, last) => {
                let (first, last) = (saturating(first)?, saturating(last)?);
                // RFC 9110 §14.1.1: a range that ends before its start is invalid.
                (first <= last).then_some(RangeSpec::From(first, last))
            }
        }
    }

    /// The range within `len` bytes; `None` if it is empty.
    fn resolve(self, len: u64) -> Option<ByteRange> {
        let (start, end) = match self {
            // RFC 9110 §14.1.2: a last position beyond the end means the end.
            RangeSpec::From(first, last) => (first, last.saturating_add(1).min(len)),
            RangeSpec::Suffix(suffix) => (len.saturating_sub(suffix), len),
        };
        (start < end).then_some(ByteRange { start, end })
    }
}

/// Parses a decimal number, saturating at `u64::MAX`, which exceeds the length of any representation.
fn saturating(digits: &[u8]) -> Option<u64> {
    match list_values::decimal(digits) {
        Some(number) => Some(number),
        // A position beyond 64 bits is valid, and beyond the end of any representation.
        None if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => Some(u64::MAX),
        None => None,
    }
}

#[cfg(test)]
mod tests;
