//! Parts of a representation: which 206 fit together, and whether what there is answers a request for a range. It knows
//! neither bytes nor where they lie. Read RFC 9111 §3.3, §3.4 and RFC 9110 §14.4.

use alloc::vec::Vec;

use lowroad_http::range::{ByteRange, Ranges};

/// Parts that neither overlap nor touch, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The length of the whole.
    pub len: u64,
    ranges: Vec<ByteRange>,
}

/// The part and the length in Content-Range; `None` if it is malformed, unsatisfied or of unknown length.
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

impl Parts {
    /// Nothing of a representation of `len` bytes.
    #[must_use]
    pub fn of(len: u64) -> Parts {
        Parts {
            len,
            ranges: Vec::new(),
        }
    }

    /// Adds a part of a representation of `len` bytes whose validator is `own` if what there is has the same strong one;
    /// says whether it was added (§3.4).
    pub fn add(&mut self, part: ByteRange, len: u64, (stored, own): (&[u8], &[u8])) -> bool {
        let is_strong = stored.starts_with(b"\"") && stored == own;
        let fits = len == self.len && part.start < part.end && part.end <= len;
        if !is_strong || !fits {
            return false;
        }
        let mut joined = part;
        self.ranges.retain(|range| {
            let touches = range.start <= joined.end && joined.start <= range.end;
            if touches {
                joined.start = joined.start.min(range.start);
                joined.end = joined.end.max(range.end);
            }
            !touches
        });
        let at = self
            .ranges
            .partition_point(|range| range.start < joined.start);
        self.ranges.insert(at, joined);
        true
    }

    /// Whether nothing is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.has(ByteRange {
            start: 0,
            end: self.len,
        })
    }

    /// Whether all of a range is there.
    #[must_use]
    pub fn has(&self, asked: ByteRange) -> bool {
        let holds = |range: &ByteRange| range.start <= asked.start && asked.end <= range.end;
        asked.start >= asked.end || self.ranges.iter().any(holds)
    }

    /// Whether a request for these ranges, evaluated for the length of the whole, can be answered. That a range is not
    /// satisfiable is known from the length alone.
    #[must_use]
    pub fn answers(&self, asked: &Ranges) -> bool {
        match asked {
            Ranges::Whole => self.is_whole(),
            Ranges::One(range) => self.has(*range),
            Ranges::Many(set) => set.iter().all(|range| self.has(*range)),
            Ranges::Unsatisfiable => true,
        }
    }

    /// What is missing, in its order.
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

    const TAG: (&[u8], &[u8]) = (b"\"a\"", b"\"a\"");

    fn bytes(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    #[test]
    fn parts_with_the_same_strong_validator_are_joined() {
        let mut parts = Parts::of(10);
        assert!(parts.add(bytes(0, 3), 10, TAG) && parts.add(bytes(6, 10), 10, TAG));
        assert_eq!(parts.missing(), [bytes(3, 6)]);
        assert!(parts.has(bytes(7, 9)) && !parts.has(bytes(2, 4)) && !parts.is_whole());
        assert!(parts.add(bytes(2, 6), 10, TAG));
        assert!(parts.is_whole() && parts.missing().is_empty() && parts.answers(&Ranges::Whole));
    }

    #[test]
    fn others_are_not() {
        let mut parts = Parts::of(10);
        for validators in [
            (&b"W/\"a\""[..], &b"W/\"a\""[..]),
            (b"\"a\"", b"\"b\""),
            (b"", b""),
        ] {
            assert!(!parts.add(bytes(0, 3), 10, validators));
        }
        assert!(!parts.add(bytes(0, 3), 11, TAG) && !parts.add(bytes(9, 11), 10, TAG));
    }

    #[test]
    fn content_range_is_read_strictly() {
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
