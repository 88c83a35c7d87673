//! The head of an HTTP/1 request: [`parse`] checks it and returns the version-neutral [`Request`], plus the parts that
//! are specific to HTTP/1: version, framing, persistence.
//!
//! The rule behind every check: a request that two programs could interpret differently is refused, since a proxy in
//! front of this server or an operator's log may be the other program (request smuggling, RFC 9112 §11.2). So there is
//! no leniency for line ends, whitespace, repeated framing fields or unusual targets.
//!
//! `line` parses the request line and the forms of the target, `fields` the field lines. Read RFC 9112 §2 to §6 and
//! §9.3, RFC 9110 §5 and §7.

mod field_lookup;
mod fields;
mod line;
#[cfg(test)]
mod tests;

use self::line::RequestLine;
pub(crate) use self::line::path_form;
use crate::body::BodyFraming;
use crate::field_lines::LineParseStop;
use crate::limits::RequestLimits;
use crate::refusal::RequestRefusal;
use crate::request::{FieldIndex, Request};
use crate::version::HttpVersion;

/// The head of a request, as slices of the buffer it was parsed from.
#[derive(Clone, Debug)]
pub struct H1RequestHead<'b> {
    /// The version-neutral request.
    pub request: Request<'b>,
    /// The version of the request line.
    pub version: HttpVersion,
    /// How the body is delimited.
    pub framing: BodyFraming,
    /// Whether the client wants the connection to stay open (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body. False if there is no body.
    pub expect_continue: bool,
    /// Bytes consumed, from the start of the buffer to the end of the empty line after the fields. Includes an empty
    /// line before the request, which is skipped.
    pub len: usize,
    /// The request line without its CRLF.
    line: &'b [u8],
}

/// Parses the head at the start of `buf`, which may continue with a body or further requests. `None`: the empty line
/// that ends the head has not arrived, and no fault was found so far.
///
/// No state is kept between calls: if `buf` held only a part of the head, it is parsed again from its start when it has
/// grown. [`head_complete`] decides whether that is worthwhile.
///
/// # Errors
/// The first fault found. A partial head is refused as soon as it is certainly malformed or over a limit, but a fault
/// in an incomplete line may be found only when the line is complete.
pub fn parse<'b>(
    buf: &'b [u8],
    limits: &RequestLimits,
) -> Result<Option<H1RequestHead<'b>>, RequestRefusal> {
    let mut parsed = Ok(None);
    if let Ok(head_slot) = &mut parsed
        && let Err(refusal) = parse_into(head_slot, buf, limits)
    {
        parsed = Err(refusal);
    }
    parsed
}

/// Like [`parse`], but writes into `head_slot`: a head is large enough for a copy to cost measurably.
#[inline(always)]
pub(super) fn parse_into<'b>(
    head_slot: &mut Option<H1RequestHead<'b>>,
    buf: &'b [u8],
    limits: &RequestLimits,
) -> Result<(), RequestRefusal> {
    // Bytes beyond the limit are hidden from the parser, so that the result does not depend on how many of them have
    // arrived already.
    let head = buf.get(..limits.head_len_max).unwrap_or(buf);
    let Err(stop) = fill_head(head_slot, head, limits) else {
        return Ok(());
    };
    // The caller must not see a head that was filled in part.
    *head_slot = None;
    match stop {
        // The head cannot become complete within the limit.
        LineParseStop::Partial if head.len() >= limits.head_len_max => {
            Err(RequestRefusal::HeadTooLarge)
        }
        LineParseStop::Partial => Ok(()),
        LineParseStop::Refused(refusal) => Err(refusal),
    }
}

#[inline(always)]
fn fill_head<'b>(
    head_slot: &mut Option<H1RequestHead<'b>>,
    head: &'b [u8],
    limits: &RequestLimits,
) -> Result<(), LineParseStop> {
    let line = line::parse(head, limits)?;
    fields::parse(
        head_slot.insert(H1RequestHead::new(&line)),
        head,
        line.rest,
        limits,
    )
}

/// Whether [`parse`] should be called (again) now that `buf` has more than its first `scanned_len` bytes: the new bytes
/// contain an empty line, or a sequence that a lenient parser might take for one. Only the new bytes and the three
/// before them are examined, so that a client that sends single bytes costs no more than one that sends the whole head.
/// `parse` must also be called when `buf` has reached `head_len_max`.
pub fn head_complete(buf: &[u8], scanned_len: usize) -> bool {
    // The end of the head may begin in the old bytes.
    let new_bytes = buf.get(scanned_len.saturating_sub(3)..).unwrap_or_default();
    new_bytes.windows(2).any(|w| w == b"\n\n") || new_bytes.windows(3).any(|w| w == b"\n\r\n")
}

/// The first line of `buf` as far as it has arrived, without its line end and without an empty line before it: the
/// request line that is logged for a refused request.
pub fn first_line(buf: &[u8]) -> &[u8] {
    let buf = buf.strip_prefix(b"\r\n").unwrap_or(buf);
    let end = buf.iter().position(|b| matches!(b, b'\r' | b'\n'));
    buf.get(..end.unwrap_or(buf.len())).unwrap_or_default()
}

impl<'b> H1RequestHead<'b> {
    /// A head with the request line only.
    #[inline(always)]
    fn new(line: &RequestLine<'b>) -> H1RequestHead<'b> {
        H1RequestHead {
            request: Request {
                method: line.method,
                target: line.target,
                authority: line.authority,
                raw_target: line.raw_target,
                lines: &[],
                index: FieldIndex::EMPTY,
            },
            version: line.version,
            framing: BodyFraming::None,
            keep_alive: false,
            expect_continue: false,
            len: 0,
            line: line.raw,
        }
    }

    /// The request line as received, without its CRLF.
    pub fn line(&self) -> &'b [u8] {
        self.line
    }
}
