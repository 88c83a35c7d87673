//! Globs over decoded paths.
//!
//! Patterns are independent of requests: the caller passes a path that is percent-decoded and free of dot segments.
//! RFC 3986 §3.3 defines *path* and *segment*, §2.1 and §2.3 percent-encoding.

use std::fmt;

mod notation;
#[cfg(test)]
mod tests;

pub(crate) use notation::UnsupportedNotation;

/// The longest accepted pattern, in bytes.
const LEN_MAX: usize = 1024;

/// The most wildcards: each may cost one pass over the path.
const WILDCARDS_MAX: usize = 16;

/// A glob over a decoded path.
///
/// `*` matches any bytes except `/`, `**` any bytes, both also the empty text; all else matches itself. With a
/// leading `/` the whole path is matched, without one its last segment: `*.css` is any style sheet at
/// any depth, `/img/**` all paths below `/img/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    /// Not empty; no two wildcards and no two literals are adjacent.
    parts: Vec<PatternPart>,
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternPart {
    /// Matches itself.
    Literal(Vec<u8>),
    /// `*`
    Within,
    /// `**`
    Across,
}

/// The reason why a text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPatternError {
    /// The text is empty.
    Empty,
    /// It has a `/`, but not in front.
    NotAbsolute,
    /// More than 1024 bytes, or more than 16 wildcards.
    TooLong,
}

impl PathPattern {
    /// Reads a pattern: `/img/**`, `/a/*/b`, `*.css`.
    ///
    /// # Errors
    /// See [`PathPatternError`].
    pub fn parse(text: &str) -> Result<PathPattern, PathPatternError> {
        if text.is_empty() {
            return Err(PathPatternError::Empty);
        }
        // A relative pattern is compared with file names, which have no slash.
        if !text.starts_with('/') && text.contains('/') {
            return Err(PathPatternError::NotAbsolute);
        }
        // Counted after merging: `***` is one wildcard.
        let parts = split(text.as_bytes());
        let wildcards = parts.iter().filter(|part| part.is_wildcard()).count();
        // The time of a match grows with the number of parts.
        if text.len() > LEN_MAX || wildcards > WILDCARDS_MAX {
            return Err(PathPatternError::TooLong);
        }
        Ok(PathPattern {
            text: text.to_string(),
            parts,
        })
    }

    /// The pattern of all paths: `/**`.
    pub fn everything() -> PathPattern {
        PathPattern {
            text: "/**".to_string(),
            parts: split(b"/**"),
        }
    }

    /// Whether the whole path is matched, not only its last segment.
    pub fn is_absolute(&self) -> bool {
        self.text.starts_with('/')
    }

    /// Whether it matches this decoded path, which begins with `/`.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.capture(path).is_some()
    }

    /// The text of the wildcard at the end, the longest if there is a choice; empty if the pattern
    /// does not end in one. None = the pattern does not match.
    pub fn capture<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        // A pattern without a slash is for file names.
        let path = if self.text.starts_with('/') {
            path
        } else {
            last_segment(path)
        };
        match self.parts.as_slice() {
            // The common shapes first: they allocate no memory.
            [PatternPart::Literal(text)] => (path == text.as_slice()).then_some(&[]),
            [PatternPart::Literal(front), wildcard] => path
                .strip_prefix(front.as_slice())
                .filter(|rest| wildcard.spans(rest)),
            [wildcard, PatternPart::Literal(end)] => {
                let front = path.strip_suffix(end.as_slice())?;
                wildcard.spans(front).then_some(&[])
            }
            parts => capture_any(parts, path),
        }
    }

    /// The text before the first wildcard, with which all matching paths begin; empty if the
    /// pattern is for file names. Without a wildcard it is the whole text.
    pub fn front(&self) -> &str {
        let end = self.text.find('*').unwrap_or(self.text.len());
        if self.text.starts_with('/') {
            &self.text[..end]
        } else {
            ""
        }
    }

    /// The parts of an equivalent pattern for whole paths.
    pub(crate) fn absolute_parts(&self) -> Vec<PatternPart> {
        if self.is_absolute() {
            return self.parts.clone();
        }
        let mut parts = vec![PatternPart::Across];
        let mut name = self.parts.iter();
        // Joined into one literal, since no two literals may be adjacent.
        match name.as_slice() {
            [PatternPart::Literal(text), rest @ ..] => {
                parts.push(PatternPart::Literal([b"/", text.as_slice()].concat()));
                name = rest.iter();
            }
            _ => parts.push(PatternPart::Literal(b"/".to_vec())),
        }
        // A file name contains no slash, so `**` and `*` are equal in it; in a whole path they differ.
        parts.extend(name.map(|part| match part {
            PatternPart::Literal(_) => part.clone(),
            PatternPart::Within | PatternPart::Across => PatternPart::Within,
        }));
        parts
    }

    /// Whether [`PathPattern::capture`] can return text.
    pub fn has_capture(&self) -> bool {
        self.parts.last().is_some_and(PatternPart::is_wildcard)
    }
}

impl fmt::Display for PathPattern {
    /// The original text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PatternPart {
    fn is_wildcard(&self) -> bool {
        !matches!(self, PatternPart::Literal(_))
    }

    /// Whether this one part matches exactly these bytes.
    fn spans(&self, bytes: &[u8]) -> bool {
        match self {
            PatternPart::Literal(text) => text == bytes,
            // `*` stays within a segment.
            PatternPart::Within => !bytes.contains(&b'/'),
            PatternPart::Across => true,
        }
    }
}

/// Splits into literals and wildcards; two or more stars are one `**`.
fn split(mut text: &[u8]) -> Vec<PatternPart> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let stars = text.iter().take_while(|&&byte| byte == b'*').count();
        let (part, len) = match stars {
            0 => {
                let len = text
                    .iter()
                    .position(|&byte| byte == b'*')
                    .unwrap_or(text.len());
                (
                    PatternPart::Literal(text.iter().take(len).copied().collect()),
                    len,
                )
            }
            1 => (PatternPart::Within, 1),
            // More stars than two mean the same.
            _ => (PatternPart::Across, stars),
        };
        parts.push(part);
        text = text.get(len..).unwrap_or_default();
    }
    parts
}

fn last_segment(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Matches any list of parts, in steps bounded by path length times parts: exponential backtracking is impossible.
fn capture_any<'a>(parts: &[PatternPart], path: &'a [u8]) -> Option<&'a [u8]> {
    let (last, front) = parts.split_last()?;
    // A literal at the end is anchored, so only a wildcard there needs a search.
    let ends = match_ends(front, path);
    // The earliest start gives the longest capture.
    let first_from = |from: usize| (from..ends.len()).find(|start| ends[*start]);
    let start = match last {
        PatternPart::Literal(text) => {
            let start = path.strip_suffix(text.as_slice())?.len();
            return ends[start].then_some(&[]);
        }
        // `*` at the end cannot span a slash, so it starts after the last one or later.
        PatternPart::Within => first_from(path.len() - last_segment(path).len())?,
        PatternPart::Across => first_from(0)?,
    };
    path.get(start..)
}

/// The positions of a text at which a match of all these parts, from the start of the text, can end. Keeps the set of
/// all end positions of the parts so far instead of backtracking.
pub(crate) fn match_ends(parts: &[PatternPart], text: &[u8]) -> Vec<bool> {
    let mut ends = vec![false; text.len() + 1];
    // Nothing is matched before the first part.
    ends[0] = true;
    for part in parts {
        advance(part, text, &mut ends);
    }
    ends
}

/// Replaces the end positions of the previous parts by those of this one.
fn advance(part: &PatternPart, path: &[u8], ends: &mut [bool]) {
    match part {
        PatternPart::Literal(text) => {
            // From the back, so that a position is read before it is overwritten.
            for end in (0..ends.len()).rev() {
                let start = end.checked_sub(text.len());
                let fits = |start: usize| ends[start] && path[start..end] == **text;
                ends[end] = start.is_some_and(fits);
            }
        }
        PatternPart::Within | PatternPart::Across => {
            for end in 1..ends.len() {
                let may_extend = *part == PatternPart::Across || path[end - 1] != b'/';
                ends[end] |= ends[end - 1] && may_extend;
            }
        }
    }
}

/// Percent-encodes every byte that is not `plain`.
pub(crate) fn encode(bytes: &[u8], plain: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    for &byte in bytes {
        if plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}
