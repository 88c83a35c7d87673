//! Field lines, the same in heads of requests, of responses and in trailers. It knows no field by its name. Read RFC
//! 9112 §5.

use crate::list;
use crate::refusal::Refusal;
use crate::scan::{self, TOKEN};

/// Why parsing does not go on.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    /// The bytes are at their end.
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

/// The field line at the start of `rest`.
#[inline(always)]
pub(crate) fn line(rest: &[u8]) -> Result<Line<'_>, Stop> {
    let Some((name, mut value)) = scan::split_at_colon(rest) else {
        return Err(no_colon(rest));
    };
    // One space is usual.
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

/// A value that is not followed by CRLF: not complete yet, or broken by a control character.
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

/// A line without a colon in all the bytes that have come.
#[cold]
fn no_colon(rest: &[u8]) -> Stop {
    let after = scan::skip(rest, TOKEN);
    match after {
        // Where a byte has come, the line is wrong in any case, but the next one decides what the
        // fault is called.
        [] | [b'\r'] => Stop::Partial,
        [b' ' | b'\t'] if after.len() < rest.len() => Stop::Partial,
        _ => Stop::Refused(name_fault(rest, rest.len()).unwrap_or(Refusal::FieldName)),
    }
}

/// Why the bytes before `colon` are not a field name, `None` if they are.
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
