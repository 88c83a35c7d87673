//! The forms of a request path with which rules are compared.
//!
//! Servers disagree on whether an encoded slash separates segments (RFC 3986 §2.2). Rules are therefore compared with
//! two forms of a path with encoded slashes: with each `%2F` decoded, and with each `%2F` kept as text within its
//! segment.

use std::ops::Range;

use super::{CAPTURES_MAX, CaptureRanges, CapturedText, PathSelector};

/// A valid request path, as sent and decoded.
#[derive(Clone, Copy, Debug)]
pub struct RequestPath<'p> {
    raw: &'p [u8],
    decoded: &'p [u8],
}

impl<'p> RequestPath<'p> {
    /// `raw` is the percent-encoded path; `decoded` is the same path decoded, with repeated slashes merged.
    pub fn new(raw: &'p [u8], decoded: &'p [u8]) -> RequestPath<'p> {
        RequestPath { raw, decoded }
    }

    /// The path as the client sent it, percent-encoded.
    pub fn raw(self) -> &'p [u8] {
        self.raw
    }

    /// The path percent-decoded, with repeated slashes merged.
    pub fn decoded(self) -> &'p [u8] {
        self.decoded
    }

    /// Matches `paths` and returns the captures in the bytes that the client sent; `None` if no form of the path
    /// matches.
    pub(super) fn capture(self, paths: &PathSelector) -> Option<CapturedText<'p>> {
        // The common case needs no copy of the path.
        if self.raw == self.decoded {
            let ranges = paths.capture(self.raw)?;
            return Some(ranges.map(|range| self.raw.get(range).unwrap_or_default()));
        }
        let form = PathForm::new(self.raw, EncodedSlash::Kept);
        if let Some(captured) = form.capture(paths) {
            return Some(captured);
        }
        // Without encoded slashes, the form with `%2F` kept was equal to the decoded path.
        match form.bytes == self.decoded {
            true => None,
            false => PathForm::new(self.raw, EncodedSlash::Decoded).capture(paths),
        }
    }
}

/// Further forms of a path for access rules: with encoded slashes kept as `%2F`, and with backslashes replaced by
/// slashes.
pub fn slash_forms(raw: &[u8], decoded: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let form_bytes = PathForm::new(raw, EncodedSlash::Kept).bytes;
    let slashed = decoded.contains(&b'\\').then(|| with_slashes(decoded));
    std::iter::once(form_bytes).chain(slashed)
}

/// A decoded path with slashes in place of backslashes.
pub fn with_slashes(decoded: &[u8]) -> Vec<u8> {
    let mut bytes = decoded.to_vec();
    for byte in &mut bytes {
        if *byte == b'\\' {
            *byte = b'/';
        }
    }
    // Repeated slashes are merged, as in all forms.
    bytes.dedup_by(|byte, before| (*byte, *before) == (b'/', b'/'));
    bytes
}

/// The representation of an encoded slash in a form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodedSlash {
    Decoded,
    Kept,
}

/// A decoded path that maps each of its bytes back to the raw path.
struct PathForm<'p> {
    raw: &'p [u8],
    encoded_slash: EncodedSlash,
    bytes: Vec<u8>,
    /// For each byte of `bytes`, and for the end: its position in `raw`.
    raw_starts: Vec<usize>,
    /// Whether repeated slashes of `raw` were merged.
    is_merged: bool,
}

impl<'p> PathForm<'p> {
    fn new(raw: &'p [u8], encoded_slash: EncodedSlash) -> PathForm<'p> {
        PathForm::restoring(raw, encoded_slash, &[])
    }

    /// The form in which slashes within the ranges `restored` of the raw path are not merged.
    fn restoring(
        raw: &'p [u8],
        encoded_slash: EncodedSlash,
        restored: &[Range<usize>],
    ) -> PathForm<'p> {
        let mut form = PathForm {
            raw,
            encoded_slash,
            bytes: Vec::with_capacity(raw.len()),
            raw_starts: Vec::with_capacity(raw.len() + 1),
            is_merged: false,
        };
        let mut offset = 0;
        while let Some(byte) = raw.get(offset) {
            let escaped = raw.get(offset..offset + 3).and_then(unescape);
            let (single, raw_len) = match escaped {
                Some(byte) => ([byte], 3),
                None => ([*byte], 1),
            };
            let text: &[u8] = match (escaped, encoded_slash) {
                // The encoded slash is kept as `%2F`, so that `*` matches it within the segment.
                (Some(b'/'), EncodedSlash::Kept) => b"%2F",
                _ => &single,
            };
            // Repeated slashes are merged, as in the paths of files; a kept `%2F` is not a slash.
            let follows_slash = text == b"/" && form.bytes.last() == Some(&b'/');
            if follows_slash && !restored.iter().any(|range| range.contains(&offset)) {
                form.is_merged = true;
            } else {
                // Each byte maps to the start of the (possibly escaped) raw byte.
                form.raw_starts.extend(text.iter().map(|_| offset));
                form.bytes.extend_from_slice(text);
            }
            offset += raw_len;
        }
        // The end of a range may be the end of the path.
        form.raw_starts.push(raw.len());
        form
    }

    fn capture(&self, paths: &PathSelector) -> Option<CapturedText<'p>> {
        let ranges = paths.capture(&self.bytes)?;
        let raw = self.raw;
        let mut spans = self.spans(&ranges);
        // If no slashes were merged, the captures are already exact.
        if self.is_merged {
            spans = self.widen(paths, ranges, spans);
        }
        Some(spans.map(|span| raw.get(span).unwrap_or_default()))
    }

    /// Extends captures by slashes that were merged at their ends. A pattern is matched against the merged path, but a
    /// capture contains all slashes that the client sent. Only both ends of each capture are tried, so the cost is
    /// bounded.
    fn widen(
        &self,
        paths: &PathSelector,
        mut ranges: CaptureRanges,
        mut spans: CaptureRanges,
    ) -> CaptureRanges {
        let (mut longest, mut restored) = (None, Vec::new());
        for border in 0..2 * CAPTURES_MAX {
            let range = &ranges[border / 2];
            // An unused group also has the range 0..0.
            if *range == (0..0) {
                continue; // no such group, or not part of the match
            }
            // After a capture, the slash belongs to the next literal of the pattern; merged slashes follow that slash.
            let index = match border % 2 {
                0 => range.start,
                _ => range.end + 1,
            };
            let form = longest.as_ref().unwrap_or(self);
            let Some(run) = form.merged_before(index) else {
                continue;
            };
            restored.push(run);
            // Runs of slashes are restored one at a time: at most two trials per group.
            let longer = PathForm::restoring(form.raw, form.encoded_slash, &restored);
            let capture = paths.capture(&longer.bytes);
            let capture = capture.map(|capture| (longer.spans(&capture), capture));
            match capture.filter(|(wider, _)| gain_slashes(form.raw, &spans, wider)) {
                Some(capture) => ((spans, ranges), longest) = (capture, Some(longer)),
                // The pattern does not match with this run of slashes, or the captures differ by more than slashes.
                None => drop(restored.pop()),
            }
        }
        spans
    }

    /// The range of `raw` with the slashes that were merged away before byte `index`.
    fn merged_before(&self, index: usize) -> Option<Range<usize>> {
        let previous = *self.raw_starts.get(index.checked_sub(1)?)?;
        let end = previous + raw_len(self.raw, previous);
        let start = *self.raw_starts.get(index)?;
        (end < start).then_some(end..start)
    }

    /// Converts ranges of this form to ranges of the raw path.
    fn spans(&self, ranges: &CaptureRanges) -> CaptureRanges {
        let start_of = |index: usize| *self.raw_starts.get(index).unwrap_or(&self.raw.len());
        ranges
            .each_ref()
            .map(|range| start_of(range.start)..start_of(range.end))
    }
}

/// Whether `wider` differs from `spans` only by additional slashes at either end.
fn gain_slashes(raw: &[u8], spans: &CaptureRanges, wider: &CaptureRanges) -> bool {
    let are_slashes = |range: Range<usize>| {
        let mut offset = range.start;
        while offset < range.end && matches!(raw.get(offset..).and_then(first_byte), Some(b'/')) {
            offset += raw_len(raw, offset);
        }
        offset == range.end
    };
    let mut pairs = spans.iter().zip(wider);
    pairs.all(|(span, wider)| {
        are_slashes(wider.start..span.start) && are_slashes(span.end..wider.end)
    })
}

/// The first byte of a raw path, decoded.
fn first_byte(raw: &[u8]) -> Option<u8> {
    let escaped = raw.get(..3).and_then(unescape);
    escaped.or(raw.first().copied())
}

/// The length in the raw path of the (possibly encoded) byte at a position.
fn raw_len(raw: &[u8], offset: usize) -> usize {
    match raw.get(offset..offset + 3).and_then(unescape) {
        Some(_) => 3,
        None => 1,
    }
}

/// Decodes `%` with two hexadecimal digits.
fn unescape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}
