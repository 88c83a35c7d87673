//! Path matching of redirects and rewrites: selection by path, captures, and expansion of the destination.
//!
//! Paths are percent-decoded and free of dot segments before matching ([`RequestPath`]); captures contain the bytes
//! that the client sent. Regular expressions are those of the crate `regex`, with a time linear in the path's length,
//! so catastrophic backtracking is impossible.

mod request_path;

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

use crate::pattern::encode;
use crate::{PathPattern, RedirectConfig, RewriteConfig};
pub use request_path::{RequestPath, slash_forms};

#[cfg(test)]
mod tests;

/// The maximum length of an expression, in bytes.
const REGEX_LEN_MAX: usize = 1024;
/// The maximum memory of a compiled expression, in bytes.
const REGEX_SIZE_MAX: usize = 256 << 10;
/// The maximum number of captures: `$1` to `$9`.
const CAPTURES_MAX: usize = 9;
/// The variable for the request's query in a destination: `$query`.
const QUERY: &str = "query";

/// Selects paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathSelector {
    /// By a glob (key `from`). The text of a trailing wildcard is captured.
    Pattern(PathPattern),
    /// By a regular expression (key `regex`), which may match anywhere in the path. Its groups are captured.
    Regex(PathExpression),
}

/// A regular expression over bytes: a decoded path, or a value.
#[derive(Clone)]
pub struct PathExpression {
    text: String,
    compiled: Regex,
}

/// The ranges of a path captured as `$1` to `$9`; the ranges of unused captures are empty.
type CaptureRanges = [Range<usize>; CAPTURES_MAX];

impl PathSelector {
    /// Matches a decoded path and returns its captures; `None` if it does not match.
    pub(crate) fn capture(&self, path: &[u8]) -> Option<CaptureRanges> {
        let mut captures = CaptureRanges::default();
        match self {
            // A glob captures the text of its trailing wildcard only.
            PathSelector::Pattern(pattern) => {
                let captured_len = pattern.capture(path)?.len();
                captures[0] = path.len() - captured_len..path.len();
            }
            PathSelector::Regex(regex) => {
                let regex_captures = regex.compiled.captures(path)?;
                for (range, group) in captures.iter_mut().zip(regex_captures.iter().skip(1)) {
                    // A group that did not participate in the match has an empty capture.
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
        // The size of a compiled expression grows with its length and its repetitions, so both are limited.
        if text.len() > REGEX_LEN_MAX {
            return Err(format!("longer than {REGEX_LEN_MAX} bytes"));
        }
        // `.` also matches line breaks: otherwise a path with an encoded line break would bypass a rule.
        let compiled = RegexBuilder::new(text)
            // Paths are bytes and may be invalid UTF-8.
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

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the expression is found in `bytes`.
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        self.compiled.is_match(bytes)
    }
}

impl PartialEq for PathExpression {
    fn eq(&self, other: &PathExpression) -> bool {
        self.text == other.text
    }
}

impl Eq for PathExpression {}

impl fmt::Debug for PathExpression {
    /// The original text. The fingerprint of a site, and so the keys of the disk cache, depend on this output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

impl RedirectConfig {
    /// The value of `Location` for a path; None if the redirect does not match.
    ///
    /// Captures contain the bytes that the client sent, except that bytes invalid in a URL are encoded. A destination
    /// that begins with `/` stays on the same host for every request. The request's `query` (as received, without `?`)
    /// is appended unless `to` has a query.
    pub fn location(&self, path: RequestPath<'_>, query: Option<&[u8]>) -> Option<Vec<u8>> {
        let captured = path.capture(&self.from)?;
        // The query must precede the fragment.
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
    /// The rewritten target (path and query); None if the rewrite does not match. Captures contain the bytes that the
    /// client sent. The request's query is appended unless `to` has a query.
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

/// The captures `$1` to `$9`, as the client sent them.
type CapturedText<'p> = [&'p [u8]; CAPTURES_MAX];

/// Whether a byte may occur in the path of a URL (RFC 3986 §3.3). Backslash is excluded: browsers treat it as a slash.
fn is_url_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~/%!$&'()*+,;=:@".contains(&byte)
}

/// Whether a byte has the same meaning in a path and in a query; parameter separators and `+` (a space) do not.
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
    // The request's query is appended, unless `template` has a query (an empty one if it ends in `?`).
    if let Some(query) = query.filter(|_| !template.contains('?')) {
        out.push(b'?');
        write_query(query, &mut out);
    }
    if template.starts_with('/') {
        // Two leading slashes would turn the first segment into a host (RFC 3986 §4.2).
        let slashes = out.iter().take_while(|&&byte| byte == b'/').count();
        out.drain(1..slashes);
    }
    out
}

/// Appends `template` to `out`, with the captures in place of `$1` to `$9` and the request's query in place of
/// `$query`. Without a query, the `?` or `&` before `$query` is removed. In the path, captured bytes that are not
/// `is_unescaped` are encoded.
fn write_target(
    template: &str,
    captured: &CapturedText<'_>,
    is_unescaped: fn(u8) -> bool,
    query: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    let mut is_in_path = true;
    for piece in template_parts(template) {
        match (piece, query) {
            (TemplatePart::Text(text), _) => {
                is_in_path &= !text.contains(['?', '#']);
                out.extend_from_slice(text.as_bytes());
            }
            (TemplatePart::Capture(number), _) => {
                let captured = captured.get(number - 1).copied().unwrap_or_default();
                // Captures come from a path; in a query, more bytes have a meaning and are encoded.
                match is_in_path {
                    true => encode(captured, is_unescaped, out),
                    // An unencoded `&` or `=` would begin another parameter.
                    false => encode(captured, is_query_byte, out),
                }
            }
            (TemplatePart::Query, Some(query)) if !query.is_empty() => write_query(query, out),
            (TemplatePart::Query, _) => {
                // Without a query, the separator before `$query` is removed.
                out.pop_if(|byte| matches!(byte, b'?' | b'&'));
            }
        }
    }
}

fn write_query(query: &[u8], out: &mut Vec<u8>) {
    encode(query, |byte| byte.is_ascii_graphic(), out);
}

/// A part of a destination template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart<'t> {
    Text(&'t str),
    /// The number of the capture, from 1.
    Capture(usize),
    Query,
}

/// Splits `template` into its parts. A `$` that begins no variable is literal text.
pub(crate) fn template_parts(template: &str) -> Vec<TemplatePart<'_>> {
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

/// The last line of an error of the crate `regex`: it contains the reason.
fn last_line(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_string()
}
