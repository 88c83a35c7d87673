//! Partial content: which 206 responses can be combined, and whether the stored parts answer a range request. Read RFC
//! 9111 §3.3, §3.4 and RFC 9110 §14.4.
//!
//! A part with a strong validator is combined with others of the same version. A part without one is reused for ranges
//! within it, and never combined.

use alloc::vec::Vec;

use lowroad_http::range::{self, ByteRange, RangesSpecifier};

use crate::validation::{RawFieldLine, StoredValidators};

/// The stored parts of a representation: sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSet {
    /// The length of the whole representation.
    pub len: u64,
    ranges: Vec<ByteRange>,
}

/// The part of a representation that is enclosed in a 206 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange<'f> {
    /// The range of the part.
    pub range: ByteRange,
    /// The length of the whole representation.
    pub len: u64,
    /// The strong validator. A part without one is not combined with others.
    pub etag: Option<&'f [u8]>,
}

impl<'f> ContentRange<'f> {
    /// The part in a 206 response with these fields, if it may be stored: a single range, within the one range that the
    /// request's Range field `requested` asks for, of a representation of known length, with at most one entity tag.
    #[must_use]
    pub fn from_fields(
        requested: &[u8],
        fields: impl Iterator<Item = RawFieldLine<'f>> + Clone,
    ) -> Option<ContentRange<'f>> {
        let lines_named = |name: &'static [u8]| {
            let has_name =
                move |(field_name, _): &RawFieldLine<'f>| field_name.eq_ignore_ascii_case(name);
            fields.clone().filter(has_name)
        };
        let mut ranges = lines_named(b"content-range");
        let (Some((_, value)), None) = (ranges.next(), ranges.next()) else {
            return None;
        };
        // Two tags denote two versions, but preconditions would be compared with only one of them.
        if lines_named(b"etag").nth(1).is_some() {
            return None;
        }
        let (range, len) = content_range(value.trim_ascii())?;
        let RangesSpecifier::One(requested) = range::evaluate(requested, len) else {
            return None;
        };
        let is_within = requested.start <= range.start && range.end <= requested.end;
        let etag = StoredValidators::from_fields(fields)
            .etag
            .filter(|tag| is_strong(tag));
        is_within.then_some(ContentRange { range, len, etag })
    }
}

fn is_strong(tag: &[u8]) -> bool {
    tag.starts_with(b"\"")
}

/// Parses Content-Range; `None` if it is malformed, unsatisfied or of unknown length.
#[must_use]
pub fn content_range(value: &[u8]) -> Option<(ByteRange, u64)> {
    let (unit, rest) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes ").then_some(())?;
    let text = core::str::from_utf8(rest).ok()?;
    let (range, len) = text.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |digits: &str| -> Option<u64> {
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let (start, last, len) = (number(first)?, number(last)?, number(len)?);
    let end = last.checked_add(1)?;
    (start < end && end <= len).then_some((ByteRange { start, end }, len))
}

impl PartSet {
    /// No parts of a representation of `len` bytes.
    #[must_use]
    pub fn with_len(len: u64) -> PartSet {
        PartSet {
            len,
            ranges: Vec::new(),
        }
    }

    /// One part of a representation of `len` bytes, which must contain it.
    #[must_use]
    pub fn with_part(len: u64, part: ByteRange) -> PartSet {
        PartSet {
            len,
            ranges: Vec::from([part]),
        }
    }

    /// Adds a part of a representation of `len` bytes. Returns false, and adds nothing, unless the part fits, and
    /// `part_validator` is strong and equal to the `stored` validator (§3.4).
    pub fn add(&mut self, part: ByteRange, len: u64, stored: &[u8], part_validator: &[u8]) -> bool {
        let is_valid_part = len == self.len && part.start < part.end && part.end <= len;
        // RFC 9111 §3.4: only parts with the same strong validator are combined.
        if !is_strong(stored) || stored != part_validator || !is_valid_part {
            return false;
        }
        let mut merged = part;
        // Merge all ranges that overlap or touch the new part.
        self.ranges.retain(|range| {
            let touches = range.start <= merged.end && merged.start <= range.end;
            if touches {
                merged.start = merged.start.min(range.start);
                merged.end = merged.end.max(range.end);
            }
            !touches
        });
        let at = self
            .ranges
            .partition_point(|range| range.start < merged.start);
        self.ranges.insert(at, merged);
        true
    }

    /// Whether all parts are present.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.contains(ByteRange {
            start: 0,
            end: self.len,
        })
    }

    /// Whether the whole range is present.
    #[must_use]
    pub fn contains(&self, requested: ByteRange) -> bool {
        let covers =
            |range: &ByteRange| range.start <= requested.start && requested.end <= range.end;
        requested.start >= requested.end || self.ranges.iter().any(covers)
    }

    /// Whether a request for these ranges of the whole representation can be answered. An unsatisfiable range needs no
    /// stored part: the response (416) contains only the length.
    #[must_use]
    pub fn can_answer(&self, requested: &RangesSpecifier) -> bool {
        match requested {
            RangesSpecifier::Whole => self.is_whole(),
            RangesSpecifier::One(range) => self.contains(*range),
            RangesSpecifier::Many(set) => set.iter().all(|range| self.contains(*range)),
            RangesSpecifier::Unsatisfiable => true,
        }
    }

    /// The ranges within `part` that are missing, sorted.
    #[must_use]
    pub fn missing_in(&self, part: ByteRange) -> Vec<ByteRange> {
        let intersection = |gap: ByteRange| ByteRange {
            start: gap.start.max(part.start),
            end: gap.end.min(part.end),
        };
        let missing_parts = self.missing().into_iter().map(intersection);
        missing_parts
            .filter(|range| range.start < range.end)
            .collect()
    }

    /// All missing ranges, sorted.
    #[must_use]
    pub fn missing(&self) -> Vec<ByteRange> {
        let ends = core::iter::once(0).chain(self.ranges.iter().map(|r| r.end));
        let starts = self.ranges.iter().map(|r| r.start).chain([self.len]);
        let gaps = ends
            .zip(starts)
            .map(|(start, end)| ByteRange { start, end });
        gaps.filter(|gap| gap.start < gap.end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &[u8] = b"\"a\"";

    fn bytes(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn parts_with_the_same_strong_validator_are_combined() {
        let mut parts = PartSet::with_len(10);
        assert!(parts.add(bytes(0, 3), 10, TAG, TAG) && parts.add(bytes(6, 10), 10, TAG, TAG));
        assert_eq!(parts.missing(), [bytes(3, 6)]);
        assert!(parts.contains(bytes(7, 9)) && !parts.contains(bytes(2, 4)) && !parts.is_whole());
        assert!(parts.add(bytes(2, 6), 10, TAG, TAG));
        assert!(
            parts.is_whole()
                && parts.missing().is_empty()
                && parts.can_answer(&RangesSpecifier::Whole)
        );
    }

    #[test]
    fn part_set_agrees_with_a_byte_map() {
        // The reference is one flag per byte.
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let (mut parts, mut set) = (PartSet::with_len(40), [false; 40]);
            for _ in 0..12 {
                let (start, len) = (random(40), 1 + random(9));
                let part = bytes(start, (start + len).min(40));
                let part_indices = part.start as usize..part.end as usize;
                let news: u64 = parts
                    .missing_in(part)
                    .iter()
                    .map(|new| new.end - new.start)
                    .sum();
                let missing = set[part_indices.clone()]
                    .iter()
                    .filter(|has| !**has)
                    .count();
                assert_eq!(news, missing as u64);
                assert!(parts.add(part, 40, TAG, TAG));
                set[part_indices].fill(true);
                let gaps: u64 = parts.missing().iter().map(|gap| gap.end - gap.start).sum();
                assert_eq!(gaps, set.iter().filter(|has| !**has).count() as u64);
                assert_eq!(parts.is_whole(), set.iter().all(|has| *has));
                let (from, to) = (random(40), random(40));
                if from < to {
                    let has = set[from as usize..to as usize].iter().all(|has| *has);
                    assert_eq!(parts.contains(bytes(from, to)), has);
                }
            }
        }
    }

    #[test]
    fn weak_different_or_missing_validators_are_not_combined() {
        // RFC 9111 §3.4: weak, different and missing validators.
        let mut parts = PartSet::with_len(10);
        for (stored, part_validator) in [
            (&b"W/\"a\""[..], &b"W/\"a\""[..]),
            (b"\"a\"", b"\"b\""),
            (b"", b""),
        ] {
            assert!(!parts.add(bytes(0, 3), 10, stored, part_validator));
        }
        assert!(!parts.add(bytes(0, 3), 11, TAG, TAG) && !parts.add(bytes(9, 11), 10, TAG, TAG));
    }

    #[test]
    fn missing_in_returns_the_gaps_inside_a_part() {
        let mut parts = PartSet::with_len(10);
        assert_eq!(parts.missing_in(bytes(2, 4)), [bytes(2, 4)]);
        assert!(parts.add(bytes(2, 4), 10, TAG, TAG) && parts.add(bytes(6, 8), 10, TAG, TAG));
        let news = [bytes(1, 2), bytes(4, 6), bytes(8, 9)];
        assert_eq!(parts.missing_in(bytes(1, 9)), news);
        assert!(parts.missing_in(bytes(6, 8)).is_empty());
    }

    #[test]
    fn content_range_must_be_within_the_requested_range() {
        // A broken origin must not be able to fill gaps with other bytes.
        let part = |asked: &str, range: &'static str, tag: &'static str| {
            let fields: [RawFieldLine<'static>; 2] = [
                (b"Content-Range", range.as_bytes()),
                (b"ETag", tag.as_bytes()),
            ];
            ContentRange::from_fields(asked.as_bytes(), fields.into_iter())
                .map(|part| (part.range, part.len))
        };
        let tag = "\"a\"";
        let five = Some((bytes(5, 10), 10));
        for asked in [
            "bytes=5-",
            "bytes=-5",
            "bytes=5-99",
            "bytes=0-",
            "bytes=4-9",
        ] {
            assert_eq!(part(asked, "bytes 5-9/10", tag), five, "{asked}");
        }
        for (asked, range, tag) in [
            // More than requested.
            ("bytes=6-", "bytes 5-9/10", tag),
            ("bytes=0-8", "bytes 5-9/10", tag),
            // Several ranges were requested.
            ("bytes=0-1, 5-9", "bytes 5-9/10", tag),
            ("bytes=10-", "bytes 5-9/10", tag),
            // The complete length is unknown.
            ("bytes=5-", "bytes 5-9/*", tag),
            ("bytes=5-", "bytes 5-10/10", tag),
            ("lines=5-", "bytes 5-9/10", tag),
        ] {
            assert_eq!(part(asked, range, tag), None, "{asked} {range} {tag}");
        }
        let twice: [RawFieldLine<'_>; 3] = [
            (b"Content-Range", b"bytes 5-9/10"),
            (b"content-range", b"bytes 5-9/10"),
            (b"ETag", b"\"a\""),
        ];
        assert_eq!(
            ContentRange::from_fields(b"bytes=5-", twice.into_iter()),
            None
        );
        assert!(ContentRange::from_fields(b"bytes=5-", twice.into_iter().skip(1)).is_some());
        let tags: [RawFieldLine<'_>; 2] = [(b"ETag", b"\"b\""), (b"etag", b"\"b\"")];
        let two_tags = twice.into_iter().take(1).chain(tags);
        assert_eq!(ContentRange::from_fields(b"bytes=5-", two_tags), None);
    }

    #[test]
    fn only_strong_etags_are_combinable() {
        let range: RawFieldLine<'_> = (b"Content-Range", b"bytes 5-9/10");
        let etag = |tags: &[&'static [u8]]| {
            let tags = tags.iter().map(|tag| (&b"ETag"[..], *tag));
            let part = ContentRange::from_fields(b"bytes=5-", [range].into_iter().chain(tags));
            part.expect("it is what was asked for").etag
        };
        assert_eq!(etag(&[b"\"a\""]), Some(&b"\"a\""[..]));
        let others: [&[&'static [u8]]; 3] = [&[], &[b"W/\"a\""], &[b"a"]];
        for tags in others {
            assert_eq!(etag(tags), None, "{tags:?}");
        }
        let parts = PartSet::with_part(10, bytes(5, 10));
        assert!(parts.contains(bytes(6, 8)) && !parts.contains(bytes(4, 6)) && !parts.is_whole());
        assert_eq!(parts.missing(), [bytes(0, 5)]);
    }

    #[test]
    fn malformed_content_range_is_rejected() {
        // RFC 9110 §14.4.
        assert_eq!(content_range(b"bytes 4-9/10"), Some((bytes(4, 10), 10)));
        for bad in [
            "bytes */10",
            "bytes 0-1/*",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes 0-/1",
            "x 0-1/2",
            "bytes +0-1/2",
        ] {
            assert_eq!(content_range(bad.as_bytes()), None, "{bad}");
        }
    }
}
