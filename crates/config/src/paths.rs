//! Path selection of redirects and rewrites: matching, captures, and the resulting destination.
//!
//! Paths are matched percent-decoded and free of dot segments ([`RequestPath`]); captures carry the bytes that the
//! client sent. Regular expressions are those of the crate `regex`: their time is linear in the path's length for every
//! expression and path, so neither operators nor clients can cause catastrophic backtracking.

mod request_path;

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

use crate::pattern::encode;
use crate::{PathPattern, RedirectConfig, RewriteConfig};
pub use request_path::{RequestPath, slash_forms};

#[cfg(test)]
mod tests;

/// The longest accepted expression, in bytes.
const REGEX_LEN_MAX: usize = 1024;
/// Memory of a compiled expression, in bytes.
const REGEX_SIZE_MAX: usize = 256 << 10;
/// The number of captures: `$1` to `$9`.
const CAPTURES_MAX: usize = 9;
/// The name of the request's query in a destination (`$query`).
const QUERY: &str = "query";

/// Selects paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathSelector {
    /// By a glob. The text of a wildcard at its end is captured. Key `from`.
    Pattern(PathPattern),
    /// By a regular expression, matched anywhere in the path. Its groups are captured. Key `regex`.
    Regex(PathExpression),
}

/// A regular expression over the bytes of a decoded path.
#[derive(Clone)]
pub struct PathExpression {
    text: String,
    compiled: Regex,
}

/// The captured ranges of a path, from `$1` on.
type CaptureRanges = [Range<usize>; CAPTURES_MAX];

impl PathSelector {
    /// The captures of a decoded path; `None` if it does not match.
    pub(crate) fn capture(&self, path: &[u8]) -> Option<CaptureRanges> {
        let mut captures = CaptureRanges::default();
        match self {
            // The capture is at the end of the path.
            PathSelector::Pattern(pattern) => {
                let captured_len = pattern.capture(path)?.len();
                captures[0] = path.len() - captured_len..path.len();
            }
            PathSelector::Regex(regex) => {
                let regex_captures = regex.compiled.captures(path)?;
                for (range, group) in captures.iter_mut().zip(regex_captures.iter().skip(1)) {
                    // A group that did not take part is empty.
                    *range = group.map_or(0..0, |group| group.range());
                }
            }
        }
        Some(captures)
    }

    /// The number of captures.
    pub fn captures(&self) -> usize {
        match self {
            PathSelector::Pattern(pattern) => usize::from(pattern.has_capture()),
            // Group 0 is the whole match.
            PathSelector::Regex(regex) => regex.compiled.captures_len() - 1,
        }
    }
}

impl fmt::Display for PathSelector {
    /// The original text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathSelector::Pattern(pattern) => pattern.fmt(f),
            PathSelector::Regex(regex) => f.write_str(&regex.text),
        }
    }
}

impl PathExpression {
    /// Reads a regular expression.
    ///
    /// # Errors
    /// The reason, in one line.
    pub fn parse(text: &str) -> Result<PathExpression, String> {
        // The size of a compiled expression grows with its length and repetitions; both are bounded.
        if text.len() > REGEX_LEN_MAX {
            return Err(format!("longer than {REGEX_LEN_MAX} bytes"));
        }
        // `.` matches line ends too, or a path with one would bypass a rule.
        let compiled = RegexBuilder::new(text)
            // Paths are bytes, which need not be UTF-8.
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(REGEX_SIZE_MAX)
            .build()
            .map_err(|error| last_line(&error.to_string()))?;
        match compiled.captures_len() - 1 {
            0..=CAPTURES_MAX => Ok(PathExpression {
                text: text.to_string(),
                compiled,
            }),
            groups => Err(format!("{groups} groups are more than {CAPTURES_MAX}")),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for PathExpression {
    fn eq(&self, other: &PathExpression) -> bool {
        self.text == other.text
    }
}

impl Eq for PathExpression {}

impl fmt::Debug for PathExpression {
    /// The original text: keys of the disk cache depend on it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

impl RedirectConfig {
    /// The value of `Location` for a path, or None if the redirect does not match.
    ///
    /// Captures keep the bytes that the client sent, except those that are invalid in a URL, and a path stays a path:
    /// no request can make it lead to another host. The request's `query` (as received, without `?`) is kept unless
    /// `destination` has a query.
    pub fn location(&self, path: RequestPath<'_>, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let captured = path.capture(&self.from)?;
        // The query belongs before the fragment.
        let (destination, fragment) = match self.to.find('#') {
            Some(hash) => self.to.split_at(hash),
            None => (self.to.as_str(), ""),
        };
        let mut location = target(destination, &captured, is_url_byte, query);
        write_target(fragment, &captured, is_url_byte, query, &mut location);
        Some(location)
    }
}

impl RewriteConfig {
    /// The target, path and query, of a rewritten path, or None if the rewrite does not match. Captures keep the bytes
    /// that the client sent, and the query is kept unless `to` has one.
    pub fn target(&self, path: RequestPath<'_>, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let captured = path.capture(&self.from)?;
        Some(target(
            &self.to,
            &captured,
            |byte| byte.is_ascii_graphic(),
            query,
        ))
    }
}

/// The captures of a path in the bytes that the client sent, from `$1` on.
type CapturedText<'p> = [&'p [u8]; CAPTURES_MAX];

/// Whether a byte may be in the path of a URL (RFC 3986 §3.3). Backslash is not: browsers treat it as a slash.
fn is_url_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/%!$&'()*+,;=:@".contains(&byte)
}

/// Whether a byte of a path has the same meaning in a query; separators of fields and `+` (a space) do not.
fn is_query_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte)
}

fn target(
    template: &str,
    captured: &CapturedText<'_>,
    is_unescaped: fn(u8) -> bool,
    query: Option<&[u8]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(template.len() + 64);
    write_target(template, captured, is_unescaped, query, &mut out);
    // The request's query is kept, unless `template` sets one (or drops it by a bare `?`).
    if let Some(query) = query.filter(|_| !template.contains('?')) {
        out.push(b'?');
        write_query(query, &mut out);
    }
    if template.starts_with('/') {
        // A second slash at the start would turn the next segment into a host (RFC 3986 §4.2).
        let slashes = out.iter().take_while(|&&byte| byte == b'/').count();
        out.drain(1..slashes);
    }
    out
}

/// Appends `template` with captures in place of `$1` to `$9`, and the query in place of `$query`; without a query, the
/// `?` or `&` before `$query` is removed too. In the path, captures keep the bytes for which `is_unescaped` holds.
fn write_target(
    template: &str,
    captured: &CapturedText<'_>,
    is_unescaped: fn(u8) -> bool,
    query: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let mut is_in_path = true;
    for piece in pieces(template) {
        match (piece, query) {
            (TemplatePart::Text(text), _) => {
                is_in_path &= !text.contains(['?', '#']);
                out.extend_from_slice(text.as_bytes());
            }
            (TemplatePart::Capture(number), _) => {
                let captured = captured.get(number - 1).copied().unwrap_or_default();
                // In a query more bytes have a meaning, so captures from a path are encoded there.
                match is_in_path {
                    true => encode(captured, is_unescaped, out),
                    // In a query, `&` or `=` of a capture would begin another parameter.
                    false => encode(captured, is_query_byte, out),
                }
            }
            (TemplatePart::Query, Some(query)) if !query.is_empty() => write_query(query, out),
            (TemplatePart::Query, _) => {
                // Without a query, its separator goes, too.
                out.pop_if(|byte| matches!(byte, b'?' | b'&'));
            }
        }
    }
}

fn write_query(query: &[u8], out: &mut Vec<u8>) {
    encode(query, |byte| byte.is_ascii_graphic(), out);
}

/// A part of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart<'t> {
    Text(&'t str),
    /// From 1.
    Capture(usize),
    Query,
}

/// Splits `template` into its parts. A `$` before any other text is literal.
pub(crate) fn pieces(template: &str) -> Vec<TemplatePart<'_>> {
    let (mut pieces, mut text_start, mut from) = (Vec::new(), 0, 0);
    while let Some(dollar) = template[from..].find('$').map(|offset| from + offset) {
        let rest = &template[dollar + 1..];
        // Captures are `$1` to `$9`; `$0` is literal text.
        let digit = rest.bytes().next().filter(|b| matches!(b, b'1'..=b'9'));
        let (piece, len) = match digit {
            Some(digit) => (TemplatePart::Capture(usize::from(digit - b'0')), 1),
            None if rest.starts_with(QUERY) => (TemplatePart::Query, QUERY.len()),
            None => {
                from = dollar + 1;
                continue;
            }
        };
        pieces.push(TemplatePart::Text(&template[text_start..dollar]));
        pieces.push(piece);
        from = dollar + 1 + len;
        text_start = from;
    }
    pieces.push(TemplatePart::Text(&template[text_start..]));
    pieces
}

/// The crate `regex` formats errors over several lines; the last one has the reason.
fn last_line(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_string()
}
