//! The path of a request in the forms that rules are matched with. RFC 3986 §2.2: an encoded slash is not a slash to
//! everyone. So a path that has some is matched in two forms: with the slashes decoded, and with them kept as `%2F` within
//! their segment.

use super::{CAPTURES_MAX, Captured, Paths};

/// A valid path as the client sent it and as it is matched.
#[derive(Clone, Copy, Debug)]
pub struct RequestPath<'p> {
    raw: &'p [u8],
    decoded: &'p [u8],
}

impl<'p> RequestPath<'p> {
    /// A path: percent-encoded, and the same decoded, with its slashes merged.
    pub fn new(raw: &'p [u8], decoded: &'p [u8]) -> RequestPath<'p> {
        RequestPath { raw, decoded }
    }

    /// As the client sent it, percent-encoded.
    pub fn raw(self) -> &'p [u8] {
        self.raw
    }

    /// Decoded.
    pub fn decoded(self) -> &'p [u8] {
        self.decoded
    }

    /// Its captures in the form that the client sent; `None` if `paths` do not match it.
    pub(super) fn capture(self, paths: &Paths) -> Option<Captured<'p>> {
        if self.raw == self.decoded {
            let ranges = paths.capture(self.raw)?;
            return Some(ranges.map(|range| self.raw.get(range).unwrap_or_default()));
        }
        let kept = PathForm::new(self.raw, EncodedSlash::Kept);
        if let Some(captured) = kept.capture(paths, self.raw) {
            return Some(captured);
        }
        // Without encoded slashes both forms are one.
        match kept.bytes == self.decoded {
            true => None,
            false => PathForm::new(self.raw, EncodedSlash::Decoded).capture(paths, self.raw),
        }
    }
}

/// The forms, beside the decoded one, of a path with encoded slashes or backslashes: with encoded slashes kept within
/// their segment, and with backslashes as slashes.
pub fn slash_forms(raw: &[u8], decoded: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let kept = PathForm::new(raw, EncodedSlash::Kept).bytes;
    let with_slashes = decoded.contains(&b'\\').then(|| {
        let mut bytes = decoded.to_vec();
        for byte in &mut bytes {
            if *byte == b'\\' {
                *byte = b'/';
            }
        }
        bytes.dedup_by(|byte, before| (*byte, *before) == (b'/', b'/'));
        bytes
    });
    std::iter::once(kept).chain(with_slashes)
}

/// What an encoded slash becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodedSlash {
    Decoded,
    Kept,
}

/// A decoded path, and where its bytes come from.
struct PathForm {
    bytes: Vec<u8>,
    /// For each byte, and for the end: the position in the path as it was sent.
    raw_starts: Vec<usize>,
}

impl PathForm {
    fn new(raw: &[u8], encoded_slash: EncodedSlash) -> PathForm {
        let mut form = PathForm {
            bytes: Vec::with_capacity(raw.len()),
            raw_starts: Vec::with_capacity(raw.len() + 1),
        };
        let mut at = 0;
        while let Some(byte) = raw.get(at) {
            let escaped = raw.get(at..at + 3).and_then(unescape);
            let (single, raw_len) = match escaped {
                Some(byte) => ([byte], 3),
                None => ([*byte], 1),
            };
            let text: &[u8] = match (escaped, encoded_slash) {
                (Some(b'/'), EncodedSlash::Kept) => b"%2F",
                _ => &single,
            };
            let is_merged = text == b"/" && form.bytes.last() == Some(&b'/');
            if !is_merged {
                form.raw_starts.extend(text.iter().map(|_| at));
                form.bytes.extend_from_slice(text);
            }
            at += raw_len;
        }
        form.raw_starts.push(raw.len());
        form
    }

    fn capture<'p>(&self, paths: &Paths, raw: &'p [u8]) -> Option<Captured<'p>> {
        let ranges = paths.capture(&self.bytes)?;
        let start_of = |at: usize| self.raw_starts.get(at).copied().unwrap_or(raw.len());
        let mut captured = [&[][..]; CAPTURES_MAX];
        for (slice, range) in captured.iter_mut().zip(ranges) {
            if !range.is_empty() {
                *slice = raw
                    .get(start_of(range.start)..start_of(range.end))
                    .unwrap_or_default();
            }
        }
        Some(captured)
    }
}

/// The byte that `%` and two digits stand for.
fn unescape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low] = text else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}
