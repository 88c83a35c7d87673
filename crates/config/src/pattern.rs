//! Globs over decoded paths.
//!
//! The caller passes paths that are percent-decoded and free of dot segments. *Path* and *segment* are the terms of RFC
//! 3986 §3.3; percent-encoding is defined in §2.1.

use std::fmt;

mod notation;
mod parts;
#[cfg(test)]
mod tests;

pub(crate) use notation::UnsupportedNotation;
pub(crate) use parts::PatternPart;

/// The maximum length of a pattern, in bytes.
const LEN_MAX: usize = 1024;

/// The maximum number of wildcards: each may cost one pass over the path.
const WILDCARDS_MAX: usize = 16;

/// The start of a pattern that ignores case.
const IGNORE_CASE: &str = "(?i)";

/// A glob over a decoded path.
///
/// `*` matches any bytes except `/`; `**` matches any bytes; both also match the empty text. Other characters match
/// themselves. `{a,b}` matches one of the texts. A pattern with a leading `/` is matched against the whole path, any
/// other pattern against the last segment (the file name): `*.css` matches every style sheet, `/img/**` all paths below
/// `/img/`. After a leading `(?i)`, ASCII letters match in both cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: String,
    /// The texts and wildcards; never empty. No two wildcards are adjacent, and no two other parts. In lower case if
    /// `ignores_case`.
    parts: Vec<PatternPart>,
    ignores_case: bool,
}

/// The reason why a text is not a valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPatternError {
    /// The text is empty.
    Empty,
    /// The text contains a `/`, but not at the start.
    NotAbsolute,
    /// The text has more than 1024 bytes, more than 16 wildcards, or more than 64 alternatives between two
    /// wildcards: the product of the numbers in the braces there.
    TooLong,
    /// A brace without its counterpart; alternatives without a comma, or with a wildcard or a brace in them.
    Braces,
}

impl PathPattern {
    /// Reads a pattern: `/img/**`, `/a/*/b`, `*.css`.
    ///
    /// # Errors
    /// See [`PathPatternError`].
    pub fn parse(text: &str) -> Result<PathPattern, PathPatternError> {
        let glob = text.strip_prefix(IGNORE_CASE).unwrap_or(text);
        if glob.is_empty() {
            return Err(PathPatternError::Empty);
        }
        // A pattern without a leading slash is compared with file names, which contain no slash.
        if !glob.starts_with('/') && glob.contains('/') {
            return Err(PathPatternError::NotAbsolute);
        }
        let ignores_case = glob.len() < text.len();
        // Wildcards are counted after `split`, which merges stars: `***` is one wildcard.
        let parts = match ignores_case {
            true => parts::split(&glob.to_ascii_lowercase())?,
            false => parts::split(glob)?,
        };
        let wildcards = parts.iter().filter(|part| part.is_wildcard()).count();
        // The time of a match grows with the number of parts.
        if text.len() > LEN_MAX || wildcards > WILDCARDS_MAX {
            return Err(PathPatternError::TooLong);
        }
        Ok(PathPattern {
            text: text.to_string(),
            parts,
            ignores_case,
        })
    }

    /// The pattern `/**`, which matches all paths.
    pub fn everything() -> PathPattern {
        PathPattern {
            text: "/**".to_string(),
            parts: vec![PatternPart::Literal(b"/".to_vec()), PatternPart::Across],
            ignores_case: false,
        }
    }

    /// The original text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches one path only: it has neither wildcards nor alternatives, and respects case.
    pub(crate) fn is_literal(&self) -> bool {
        self.front() == self.text
    }

    /// Whether the pattern is matched against the whole path, not against the last segment.
    pub fn is_absolute(&self) -> bool {
        self.glob().starts_with('/')
    }

    /// Whether ASCII letters match in both cases.
    pub(crate) fn ignores_case(&self) -> bool {
        self.ignores_case
    }

    /// The pattern without `(?i)`.
    fn glob(&self) -> &str {
        match self.ignores_case {
            true => &self.text[IGNORE_CASE.len()..],
            false => &self.text,
        }
    }

    /// Whether the pattern matches a decoded path, which begins with `/`.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.capture(path).is_some()
    }

    /// Matches a decoded path; returns the text of the trailing wildcard (the longest possible one), or an empty text
    /// if the pattern does not end in a wildcard. None if the pattern does not match.
    pub fn capture<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        if self.ignores_case {
            let lower = path.to_ascii_lowercase();
            let len = self.capture_exact(&lower)?.len();
            // A capture is at the end of the path.
            return Some(&path[path.len() - len..]);
        }
        self.capture_exact(path)
    }

    fn capture_exact<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        // A pattern without a leading slash is matched against the file name.
        let path = if self.is_absolute() {
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

    /// The text before the first wildcard or alternatives, with which all matching paths begin; the whole text if there
    /// are none. Empty for a pattern without a leading slash, and for one that ignores case.
    pub fn front(&self) -> &str {
        let end = self.text.find(['*', '{']).unwrap_or(self.text.len());
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
        // The slash and a leading text become one part: texts are never adjacent.
        let with_slash = |text: &Vec<u8>| [b"/", text.as_slice()].concat();
        match name.as_slice() {
            [PatternPart::Literal(text), rest @ ..] => {
                parts.push(PatternPart::Literal(with_slash(text)));
                name = rest.iter();
            }
            [PatternPart::OneOf(texts), rest @ ..] => {
                let texts = texts.iter().map(with_slash);
                parts.push(PatternPart::OneOf(texts.collect()));
                name = rest.iter();
            }
            _ => parts.push(PatternPart::Literal(b"/".to_vec())),
        }
        // In a file name `**` equals `*`, as there is no slash; in a whole path it has to become `*`.
        parts.extend(name.map(|part| match part {
            PatternPart::Literal(_) | PatternPart::OneOf(_) => part.clone(),
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
        PatternPart::Literal(_) | PatternPart::OneOf(_) => {
            let mut texts = last.texts().iter();
            let is_matched = texts.any(|text| {
                let front = path.strip_suffix(text.as_slice());
                front.is_some_and(|front| ends[front.len()])
            });
            return is_matched.then_some(&[]);
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
        PatternPart::Literal(_) | PatternPart::OneOf(_) => {
            // The loop runs backwards, so that each start is read before it is overwritten.
            for end in (0..ends.len()).rev() {
                ends[end] = part.texts().iter().any(|text| {
                    let start = end.checked_sub(text.len());
                    start.is_some_and(|start| ends[start] && path[start..end] == **text)
                });
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
