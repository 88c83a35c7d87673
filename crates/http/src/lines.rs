//! Parses field lines of requests, responses and trailers, without regard to their names. Read RFC 9112 §5.

use crate::list;
use crate::refusal::Refusal;
use crate::scan::{self, TOKEN};

/// Why parsing stops.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    /// The input ends before the element does.
    Partial,
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

/// A field line.
pub(crate) struct Line<'b> {
    /// Not validated yet, see [`name_fault`].
    pub(crate) name: &'b [u8],
    /// Validated, without surrounding whitespace.
    pub(crate) value: &'b [u8],
    /// The bytes after the line.
    pub(crate) next: &'b [u8],
}

/// Parses the field line at the start of `rest`.
#[inline(always)]
pub(crate) fn line(rest: &[u8]) -> Result<Line<'_>, Stop> {
    let Some((name, mut value)) = scan::split_at_colon(rest) else {
        return Err(no_colon(rest));
    };
    // Nearly all senders write one space.
    if let [b' ', after @ ..] = value {
        value = after;
    }
    if let [b' ' | b'\t', ..] = value {
        value = list::trim_start(value);
    }
    let (value, end) = value.split_at(scan::value_len(value));
    match scan::strip_prefix(end, b"\r\n") {
        Some(next) => Ok(Line {
            name,
            value: list::trim_end(value),
            next,
        }),
        None => Err(no_line_end(rest, name.len(), end)),
    }
}

/// The fault of a value without a CRLF after it: incomplete, or a control character.
#[cold]
fn no_line_end(rest: &[u8], colon: usize, end: &[u8]) -> Stop {
    if let Some(refusal) = name_fault(rest, colon) {
        return Stop::Refused(refusal);
    }
    Stop::Refused(match end {
        [] | [b'\r'] => return Stop::Partial,
        [b'\r', ..] => Refusal::BareCr,
        [b'\n', ..] => Refusal::BareLf,
        [0, ..] => Refusal::Nul,
        _ => Refusal::FieldValue,
    })
}

/// The fault of a line without a colon in the input so far.
#[cold]
fn no_colon(rest: &[u8]) -> Stop {
    let after = scan::skip(rest, TOKEN);
    match after {
        // After a lone CR or whitespace the line is malformed in any case, but the next byte decides which refusal it
        // is.
        [] | [b'\r'] => Stop::Partial,
        [b' ' | b'\t'] if after.len() < rest.len() => Stop::Partial,
        _ => Stop::Refused(name_fault(rest, rest.len()).unwrap_or(Refusal::FieldName)),
    }
}

/// Why the bytes before `colon` are not a field name; `None` if they are one.
#[cold]
pub(crate) fn name_fault(line: &[u8], colon: usize) -> Option<Refusal> {
    let name = line.get(..colon).unwrap_or(line);
    let (token, rest) = name.split_at_checked(scan::run(name, TOKEN))?;
    if rest.is_empty() && !token.is_empty() {
        return None;
    }
    Some(match rest {
        [b' ' | b'\t', ..] if token.is_empty() => Refusal::ObsFold,
        [b' ' | b'\t', ..] if list::trim_start(rest).is_empty() => Refusal::SpaceBeforeColon,
        [b'\r', next, ..] if *next != b'\n' => Refusal::BareCr,
        [b'\n', ..] => Refusal::BareLf,
        [0, ..] => Refusal::Nul,
        _ => Refusal::FieldName,
    })
}
