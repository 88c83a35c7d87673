//! Parses single field lines of requests, responses and trailers; field names are not interpreted. Read RFC 9112 §5.

use crate::byte_scan::{self, TOKEN};
use crate::list_values;
use crate::refusal::RequestRefusal;

/// Why parsing stops.
#[derive(Clone, Copy)]
pub(crate) enum LineParseStop {
    /// The input ends before the element is complete.
    Partial,
    Refused(RequestRefusal),
}

impl From<RequestRefusal> for LineParseStop {
    fn from(refusal: RequestRefusal) -> LineParseStop {
        LineParseStop::Refused(refusal)
    }
}

/// A field line.
pub(crate) struct FieldLine<'b> {
    /// The name, not validated yet (see [`name_fault`]).
    pub(crate) name: &'b [u8],
    /// The value, validated, without surrounding whitespace.
    pub(crate) value: &'b [u8],
    /// The bytes after the line.
    pub(crate) next: &'b [u8],
}

/// Parses the field line at the start of `rest`.
#[inline(always)]
pub(crate) fn line(rest: &[u8]) -> Result<FieldLine<'_>, LineParseStop> {
    let Some((name, mut value)) = byte_scan::split_at_colon(rest) else {
        return Err(missing_colon_stop(rest));
    };
    // Nearly all senders write one space after the colon.
    if let [b' ', after @ ..] = value {
        value = after;
    }
    if let [b' ' | b'\t', ..] = value {
        value = list_values::trim_start(value);
    }
    let (value, end) = value.split_at(byte_scan::value_len(value));
    match byte_scan::strip_prefix(end, b"\r\n") {
        Some(next) => Ok(FieldLine {
            name,
            value: list_values::trim_end(value),
            next,
        }),
        None => Err(missing_line_end_stop(rest, name.len(), end)),
    }
}

/// The fault of a value without a CRLF after it: incomplete, or a control character.
#[cold]
fn missing_line_end_stop(rest: &[u8], colon: usize, end: &[u8]) -> LineParseStop {
    if let Some(refusal) = name_fault(rest, colon) {
        return LineParseStop::Refused(refusal);
    }
    LineParseStop::Refused(match end {
        [] | [b'\r'] => return LineParseStop::Partial,
        [b'\r', ..] => RequestRefusal::BareCr,
        [b'\n', ..] => RequestRefusal::BareLf,
        [0, ..] => RequestRefusal::Nul,
        _ => RequestRefusal::FieldValue,
    })
}

/// The fault of a line without a colon in the input so far.
#[cold]
fn missing_colon_stop(rest: &[u8]) -> LineParseStop {
    let after = byte_scan::skip(rest, TOKEN);
    match after {
        // A line with a lone CR or whitespace here is malformed in any case, but the next byte decides which refusal it
        // gets.
        [] | [b'\r'] => LineParseStop::Partial,
        [b' ' | b'\t'] if after.len() < rest.len() => LineParseStop::Partial,
        _ => LineParseStop::Refused(
            name_fault(rest, rest.len()).unwrap_or(RequestRefusal::FieldName),
        ),
    }
}

/// Why the bytes before `colon` are not a field name; `None` if they are one.
#[cold]
pub(crate) fn name_fault(line: &[u8], colon: usize) -> Option<RequestRefusal> {
    let name = line.get(..colon).unwrap_or(line);
    let (token, rest) = name.split_at_checked(byte_scan::run_len(name, TOKEN))?;
    if rest.is_empty() && !token.is_empty() {
        return None;
    }
    Some(match rest {
        [b' ' | b'\t', ..] if token.is_empty() => RequestRefusal::ObsFold,
        [b' ' | b'\t', ..] if list_values::trim_start(rest).is_empty() => {
            RequestRefusal::SpaceBeforeColon
        }
        [b'\r', next, ..] if *next != b'\n' => RequestRefusal::BareCr,
        [b'\n', ..] => RequestRefusal::BareLf,
        [0, ..] => RequestRefusal::Nul,
        _ => RequestRefusal::FieldName,
    })
}
