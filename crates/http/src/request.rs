//! The head of a request: [`parse`] checks it and keeps slices of the fields that a server needs;
//! the others are only validated. It knows nothing of sites, files or bodies.
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
use crate::limits::Limits;
use crate::lines::Stop;
use crate::list;
use crate::method::Method;
use crate::refusal::Refusal;
use crate::values::Values;

/// What [`parse`] made of the bytes so far.
#[derive(Clone, Debug)]
pub enum Parsed<'b> {
    /// Nothing wrong has been seen, but the empty line that ends the head has not come.
    Partial,
    /// A whole head.
    Complete(Request<'b>),
}

/// The minor version of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a later minor version, which is understood as 1.1 (RFC 9110 §2.5).
    Http11,
}

/// How the body is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// Content-Length, which may be 0.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// The request target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// A path, from origin-form or absolute-form.
    Origin {
        /// Begins with `/`, still percent-encoded.
        path: &'b [u8],
        /// What follows the first `?`; may be empty.
        query: Option<&'b [u8]>,
        /// [`crate::target::decode`] would give the path itself: it consists of unreserved
        /// characters, sub-delimiters, `:`, `@` and `/`, without `//` and `/.`.
        plain: bool,
    },
    /// `*`, with OPTIONS only.
    Asterisk,
    /// `host:port`, with CONNECT only.
    Authority(&'b [u8]),
}

/// A request without its body: slices of the buffer it was parsed from.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// The method.
    pub method: Method,
    /// The version.
    pub version: Version,
    /// What is asked for.
    pub target: Target<'b>,
    /// The raw authority, for which [`crate::host::is_valid`] holds: that of the target if it has
    /// one, else the value of Host. May be empty. `None` in HTTP/1.0 only.
    pub host: Option<&'b [u8]>,
    /// How the body is delimited.
    pub framing: Framing,
    /// Whether the client wants the connection to stay open (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body. Never without a body.
    pub expect_continue: bool,
    /// Accept-Encoding.
    pub accept_encoding: Values<'b>,
    /// If-Match.
    pub if_match: Values<'b>,
    /// If-None-Match.
    pub if_none_match: Values<'b>,
    /// If-Modified-Since; `None` if repeated.
    pub if_modified_since: Option<&'b [u8]>,
    /// If-Unmodified-Since; `None` if repeated.
    pub if_unmodified_since: Option<&'b [u8]>,
    /// If-Range; `None` if repeated, and then Range is `None` too.
    pub if_range: Option<&'b [u8]>,
    /// Range; `None` if repeated.
    pub range: Option<&'b [u8]>,
    /// Referer, for the log; `None` if repeated.
    pub referer: Option<&'b [u8]>,
    /// User-Agent, for the log; `None` if repeated.
    pub user_agent: Option<&'b [u8]>,
    /// Bytes used, from the start of the buffer to the end of the empty line; a skipped empty line
    /// before the request counts.
    pub head_len: usize,
    /// The request line without its CRLF.
    line: &'b [u8],
    /// The field lines with their CRLFs, validated.
    lines: &'b [u8],
}

/// Parses the head at the start of `buf`, which may go on with a body or further requests.
///
/// Nothing is remembered between calls: a buffer that was `Partial` is parsed again from its start
/// when it has grown. [`head_complete`] tells whether that is worth it.
///
/// # Errors
/// The first fault found. A buffer that is only partial is refused as soon as what has come is
/// surely wrong or over a limit, but a fault in an incomplete line may go unnoticed until the line
/// is complete.
pub fn parse<'b>(buf: &'b [u8], limits: &Limits) -> Result<Parsed<'b>, Refusal> {
    // Bytes beyond the limit do not exist for the parser, so that it makes no difference whether
    // they have come already.
    let head = buf.get(..limits.head_len_max).unwrap_or(buf);
    let mut parsed = Ok(Parsed::Partial);
    if let Err(stop) = parse_into(&mut parsed, head, limits) {
        parsed = match stop {
            Stop::Partial if head.len() >= limits.head_len_max => Err(Refusal::HeadTooLarge),
            Stop::Partial => Ok(Parsed::Partial),
            Stop::Refused(refusal) => Err(refusal),
        };
    }
    parsed
}

/// Fills the result in place: a request is large enough for a copy to be felt.
#[inline(always)]
fn parse_into<'b>(
    parsed: &mut Result<Parsed<'b>, Refusal>,
    head: &'b [u8],
    limits: &Limits,
) -> Result<(), Stop> {
    let line = line::parse(head, limits)?;
    *parsed = Ok(Parsed::Complete(Request::new(&line)));
    match parsed {
        Ok(Parsed::Complete(request)) => fields::parse(request, head, line.rest, limits),
        _ => Ok(()),
    }
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

impl<'b> Request<'b> {
    /// A request of which only the request line is known.
    #[inline(always)]
    fn new(line: &RequestLine<'b>) -> Request<'b> {
        Request {
            method: line.method,
            version: line.version,
            target: line.target,
            host: line.authority,
            framing: Framing::None,
            keep_alive: false,
            expect_continue: false,
            accept_encoding: Values::NONE,
            if_match: Values::NONE,
            if_none_match: Values::NONE,
            if_modified_since: None,
            if_unmodified_since: None,
            if_range: None,
            range: None,
            referer: None,
            user_agent: None,
            head_len: 0,
            line: line.raw,
            lines: &[],
        }
    }

    /// The request line as received, without its CRLF, for the log.
    pub fn line(&self) -> &'b [u8] {
        self.line
    }

    /// The field lines with their CRLFs, validated, for who keeps a copy of them.
    pub fn lines(&self) -> &'b [u8] {
        self.lines
    }

    /// All fields in their order: name as received, value without surrounding whitespace.
    pub fn fields(&self) -> Fields<'b> {
        Fields::of_lines(self.lines)
    }
}

/// Iterator over validated field lines: name as received, value without surrounding whitespace.
/// Ends at the empty line or the end of the bytes.
#[derive(Clone, Debug)]
pub struct Fields<'b> {
    lines: &'b [u8],
}

impl<'b> Fields<'b> {
    /// No fields.
    pub const NONE: Fields<'static> = Fields { lines: &[] };

    /// The fields of lines that [`Request::lines`] gave, or of a copy of them.
    pub fn of_lines(lines: &'b [u8]) -> Fields<'b> {
        Fields { lines }
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = (&'b [u8], &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let lines = core::mem::take(&mut self.lines);
        let end = lines.iter().position(|b| *b == b'\r')?;
        let (line, rest) = lines.split_at_checked(end)?;
        let colon = line.iter().position(|b| *b == b':')?;
        self.lines = rest.get(2..)?;
        let (name, value) = line.split_at_checked(colon)?;
        Some((name, list::trim(value.get(1..)?)))
    }
}
