//! Globs over decoded paths.
//!
//! The caller passes paths that are percent-decoded and free of dot segments. *Path* and *segment* are the terms of RFC
//! 3986 §3.3; percent-encoding is defined in §2.1.

use std::fmt;

mod notation;
#[cfg(test)]
mod tests;

pub(crate) use notation::UnsupportedNotation;

/// The maximum length of a pattern, in bytes.
const LEN_MAX: usize = 1024;

/// The maximum number of wildcards: each may cost one pass over the path.
const WILDCARDS_MAX: usize = 16;

/// A glob over a decoded path.
///
/// `*` matches any bytes except `/`; `**` matches any bytes; both also match the empty text. Other characters match
/// themselves. A pattern with a leading `/` is matched against the whole path, any other pattern against the last
/// segment (the file name): `*.css` matches every style sheet, `/img/**` all paths below `/img/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    /// The literals and wildcards; never empty. No two wildcards are adjacent, and no two literals.
    parts: Vec<PatternPart>,
}

/// A literal or a wildcard of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternPart {
    /// Text that matches itself.
    Literal(Vec<u8>),
    /// `*`: any bytes within a segment.
    Within,
    /// `**`: any bytes, across segments.
    Across,
}

/// The reason why a text is not a valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPatternError {
    /// The text is empty.
    Empty,
    /// The text contains a `/`, but not at the start.
    NotAbsolute,
    /// The text has more than 1024 bytes, or more than 16 wildcards.
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
        // A pattern without a leading slash is compared with file names, which contain no slash.
        if !text.starts_with('/') && text.contains('/') {
            return Err(PathPatternError::NotAbsolute);
        }
        // Wildcards are counted after `split`, which merges stars: `***` is one wildcard.
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

    /// The pattern `/**`, which matches all paths.
    pub fn everything() -> PathPattern {
        PathPattern {
            text: "/**".to_string(),
            parts: split(b"/**"),
        }
    }

    /// Whether the pattern is matched against the whole path, not against the last segment.
    pub fn is_absolute(&self) -> bool {
        self.text.starts_with('/')
    }

    /// Whether the pattern matches a decoded path, which begins with `/`.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.capture(path).is_some()
    }

    /// Matches a decoded path; returns the text of the trailing wildcard (the longest possible one), or an empty text
    /// if the pattern does not end in a wildcard. None if the pattern does not match.
    pub fn capture<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        // A pattern without a leading slash is matched against the file name.
        let path = if self.text.starts_with('/') {
            path
        } else {
            last_segment(path)
        };
        match self.parts.as_slice() {
            // Common shapes are matched without allocating memory.
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

    /// The text before the first wildcard, with which all matching paths begin; the whole text if there is no wildcard.
    /// Empty for a pattern without a leading slash.
    pub fn front(&self) -> &str {
        let end = self.text.find('*').unwrap_or(self.text.len());
        if self.text.starts_with('/') {
            &self.text[..end]
        } else {
            ""
        }
    }

    /// The parts of an equivalent pattern for whole paths: `*.css` becomes `**`, `/`, `*`, `.css`.
    pub(crate) fn absolute_parts(&self) -> Vec<PatternPart> {
        if self.is_absolute() {
            return self.parts.clone();
        }
        let mut parts = vec![PatternPart::Across];
        let mut name = self.parts.iter();
        // The slash and a leading literal become one part: literals are never adjacent.
        match name.as_slice() {
            [PatternPart::Literal(text), rest @ ..] => {
                parts.push(PatternPart::Literal([b"/", text.as_slice()].concat()));
                name = rest.iter();
            }
            _ => parts.push(PatternPart::Literal(b"/".to_vec())),
        }
        // In a file name `**` equals `*`, as there is no slash; in a whole path it has to become `*`.
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

    /// Whether this part alone matches all of `bytes`.
    fn spans(&self, bytes: &[u8]) -> bool {
        match self {
            PatternPart::Literal(text) => text == bytes,
            // `*` does not match a slash.
            PatternPart::Within => !bytes.contains(&b'/'),
            PatternPart::Across => true,
        }
    }
}

/// Splits a pattern into literals and wildcards; two or more stars are one `**`.
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
            // Three or more stars mean the same as two.
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

/// Matches any sequence of parts. The time is bounded by the path's length times the number of parts: there is no
/// backtracking.
fn capture_any<'a>(parts: &[PatternPart], path: &'a [u8]) -> Option<&'a [u8]> {
    let (last, front) = parts.split_last()?;
    // A literal at the end has one possible position; only a trailing wildcard needs a search.
    let ends = match_ends(front, path);
    // The earliest start of the trailing wildcard gives the longest capture.
    let first_from = |from: usize| (from..ends.len()).find(|start| ends[*start]);
    let start = match last {
        PatternPart::Literal(text) => {
            let start = path.strip_suffix(text.as_slice())?.len();
            return ends[start].then_some(&[]);
        }
        // `*` cannot match a slash, so it starts after the last slash or later.
        PatternPart::Within => first_from(path.len() - last_segment(path).len())?,
        PatternPart::Across => first_from(0)?,
    };
    path.get(start..)
}

/// For each position of a text: whether all `parts` can match the text before it. Instead of backtracking, the set of
/// possible end positions is updated part by part.
pub(crate) fn match_ends(parts: &[PatternPart], text: &[u8]) -> Vec<bool> {
    let mut ends = vec![false; text.len() + 1];
    // An empty sequence of parts matches the empty text.
    ends[0] = true;
    for part in parts {
        advance(part, text, &mut ends);
    }
    ends
}

/// Replaces the end positions of the previous parts by those after `part`.
fn advance(part: &PatternPart, path: &[u8], ends: &mut [bool]) {
    match part {
        PatternPart::Literal(text) => {
            // The loop runs backwards, so that each start is read before it is overwritten.
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
