//! The head of a request in HTTP/1: [`parse`] checks it and makes the neutral [`Request`] of it, and says beside it what
//! is HTTP/1's own: version, framing, persistence. It knows nothing of sites, files or bodies.
//!
//! The rule behind every check: what two programs could read in two ways is refused, since a proxy
//! in front of us or an operator's log may be the other program (RFC 9112 §11.2). So there is no
//! leniency for line ends, whitespace, repeated framing fields or odd targets.
//!
//! The work is in `line` (the request line and the forms of the target) and `fields` (the field
//! lines). Read RFC 9112 §2 to §6 and §9.3, RFC 9110 §5 and §7.

mod fields;
mod known;
mod line;
#[cfg(test)]
mod tests;

use self::line::RequestLine;
pub(crate) use self::line::path_form;
use crate::body::Framing;
use crate::limits::Limits;
use crate::lines::Stop;
use crate::refusal::Refusal;
use crate::request::{Index, Request};
use crate::version::Version;

/// The head of a request, as slices of the buffer it was parsed from.
#[derive(Clone, Debug)]
pub struct Head<'b> {
    /// What is asked.
    pub request: Request<'b>,
    /// The version.
    pub version: Version,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the client wants the connection to stay open (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body. Never without a body.
    pub expect_continue: bool,
    /// Bytes used, from the start of the buffer to the end of the empty line; a skipped empty line
    /// before the request counts.
    pub len: usize,
    /// The request line without its CRLF.
    line: &'b [u8],
}

/// Parses the head at the start of `buf`, which may go on with a body or further requests. `None`: nothing wrong has
/// been seen, but the empty line that ends the head has not come.
///
/// Nothing is remembered between calls: a buffer that was not enough is parsed again from its start
/// when it has grown. [`head_complete`] tells whether that is worth it.
///
/// # Errors
/// The first fault found. A buffer that is only partial is refused as soon as what has come is
/// surely wrong or over a limit, but a fault in an incomplete line may go unnoticed until the line
/// is complete.
pub fn parse<'b>(buf: &'b [u8], limits: &Limits) -> Result<Option<Head<'b>>, Refusal> {
    let mut parsed = Ok(None);
    if let Ok(place) = &mut parsed
        && let Err(refusal) = parse_into(place, buf, limits)
    {
        parsed = Err(refusal);
    }
    parsed
}

/// As [`parse`], but into a place: a head is large enough for a copy to be felt.
#[inline(always)]
pub(super) fn parse_into<'b>(
    place: &mut Option<Head<'b>>,
    buf: &'b [u8],
    limits: &Limits,
) -> Result<(), Refusal> {
    // Bytes beyond the limit do not exist for the parser, so that it makes no difference whether
    // they have come already.
    let head = buf.get(..limits.head_len_max).unwrap_or(buf);
    let Err(stop) = fill(place, head, limits) else {
        return Ok(());
    };
    *place = None;
    match stop {
        Stop::Partial if head.len() >= limits.head_len_max => Err(Refusal::HeadTooLarge),
        Stop::Partial => Ok(()),
        Stop::Refused(refusal) => Err(refusal),
    }
}

#[inline(always)]
fn fill<'b>(place: &mut Option<Head<'b>>, head: &'b [u8], limits: &Limits) -> Result<(), Stop> {
    let line = line::parse(head, limits)?;
    fields::parse(place.insert(Head::new(&line)), head, line.rest, limits)
}

/// Whether it is worth while to call [`parse`] (again) now that `buf` has more than its first
/// `from` bytes: an empty line, or what a lenient reader might take for one, lies in the new bytes.
/// It looks only at these and the three before them, so a client that sends byte by byte costs no
/// more than one that sends all at once. `parse` is also due when `buf` has reached
/// [`Limits::head_len_max`].
pub fn head_complete(buf: &[u8], from: usize) -> bool {
    let fresh = buf.get(from.saturating_sub(3)..).unwrap_or_default();
    fresh.windows(2).any(|w| w == b"\n\n") || fresh.windows(3).any(|w| w == b"\n\r\n")
}

/// The first line of `buf` as far as it has come, without its line end and without an empty line
/// before it: what a log can show of a request that was refused.
pub fn first_line(buf: &[u8]) -> &[u8] {
    let buf = buf.strip_prefix(b"\r\n").unwrap_or(buf);
    let end = buf.iter().position(|b| matches!(b, b'\r' | b'\n'));
    buf.get(..end.unwrap_or(buf.len())).unwrap_or_default()
}

impl<'b> Head<'b> {
    /// A head of which only the request line is known.
    #[inline(always)]
    fn new(line: &RequestLine<'b>) -> Head<'b> {
        Head {
            request: Request {
                method: line.method,
                target: line.target,
                authority: line.authority,
                raw_target: line.raw_target,
                lines: &[],
                index: Index::EMPTY,
            },
            version: line.version,
            framing: Framing::None,
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
