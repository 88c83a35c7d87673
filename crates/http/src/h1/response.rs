//! Parses the head of a response. Framing that two recipients could interpret differently is refused. Heads with a
//! fault that has only one interpretation are repaired where RFC 9112 allows it, and are never forwarded unrepaired.
//! The parser does not depend on the request or the connection. Read RFC 9112 §4 and §6.3.

use alloc::vec::Vec;

use crate::ascii_case::equals_lower;
use crate::byte_scan::{self, DIGIT, VALUE};
use crate::field_lines::{self, LineParseStop};
use crate::fields::FieldLines;
use crate::limits::RequestLimits;
use crate::list_values;
use crate::refusal::RequestRefusal;
use crate::status::StatusCode;
use crate::version::HttpVersion;

/// Why input is not a valid response. The connection cannot be used afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseFault {
    /// The line is not `HTTP/d.d SP three digits [SP reason]`.
    StatusLine,
    /// Not HTTP/1.x.
    Version,
    /// The head or a chunk is malformed as in a request, or exceeds a limit.
    Malformed(RequestRefusal),
    /// More interim responses than the limit.
    TooManyInterim,
    /// 101 in response to a request that did not ask for an upgrade.
    Upgrade,
    /// Bytes that belong to no request.
    Unsolicited,
    /// The connection ended before the response was complete.
    Truncated,
}

impl ResponseFault {
    /// Whether a head with this fault has one interpretation only, so that [`repair_head`] can remove the fault: a
    /// space before a colon, a folded line, a line that ends with LF.
    #[must_use]
    pub(super) const fn is_repairable(self) -> bool {
        matches!(self, ResponseFault::Malformed(refusal) if refusal.is_mendable())
    }

    /// The fault for the operator: plain ASCII, no full stop.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ResponseFault::StatusLine => "the status line is malformed",
            ResponseFault::Version => "the HTTP version is not 1.x",
            ResponseFault::Malformed(RequestRefusal::Nul) => "a NUL byte in the response head",
            ResponseFault::Malformed(RequestRefusal::TransferCodingInHttp10) => {
                "Transfer-Encoding in an HTTP/1.0 response"
            }
            ResponseFault::Malformed(RequestRefusal::HeadTooLarge) => {
                "the response head is too large"
            }
            ResponseFault::Malformed(RequestRefusal::TooManyFields) => {
                "too many fields in the response head"
            }
            ResponseFault::Malformed(RequestRefusal::BodyTooLarge) => {
                "the response body is too large"
            }
            ResponseFault::Malformed(refusal) => refusal.as_str(),
            ResponseFault::TooManyInterim => "too many interim responses",
            ResponseFault::Upgrade => "an upgrade that was not requested",
            ResponseFault::Unsolicited => "bytes that were not requested",
            ResponseFault::Truncated => "the connection ended before the response was complete",
        }
    }
}

impl From<RequestRefusal> for ResponseFault {
    fn from(refusal: RequestRefusal) -> ResponseFault {
        ResponseFault::Malformed(refusal)
    }
}

/// A response without its body, as slices of the buffer that it was parsed from.
#[derive(Clone, Debug)]
pub struct H1ResponseHead<'b> {
    /// The status.
    pub status: StatusCode,
    /// The reason phrase; it has no meaning for the protocol.
    pub reason: &'b [u8],
    /// The fields, validated, in their order.
    pub fields: FieldLines<'b>,
    /// The version that the server speaks.
    pub version: HttpVersion,
    /// The framing according to the fields; whether there is a body also depends on the request.
    pub(super) framing: ResponseFraming,
    /// Whether the server accepts another request on the connection.
    pub(super) keep_alive: bool,
    /// Bytes consumed, up to the end of the empty line.
    pub(super) len: usize,
}

impl H1ResponseHead<'_> {
    /// The announced length of the body; in a response to HEAD, the length of the response to GET.
    #[must_use]
    pub fn content_len(&self) -> Option<u64> {
        match self.framing {
            ResponseFraming::Length(len) => Some(len),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
        }
    }
}

/// How the body of a response is delimited, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    Length(u64),
    Chunked,
    /// The body ends when the server closes the connection.
    UntilClose,
}

/// Parses the head at the start of `bytes`; `None` if it is incomplete.
///
/// # Errors
/// The first fault found.
pub(super) fn parse<'b>(
    bytes: &'b [u8],
    limits: &RequestLimits,
) -> Result<Option<H1ResponseHead<'b>>, ResponseFault> {
    let limited = bytes.get(..limits.head_len_max).unwrap_or(bytes);
    match head(limited, limits) {
        Ok(head) => Ok(Some(head)),
        Err(ResponseHeadError::Partial) if limited.len() >= limits.head_len_max => {
            Err(RequestRefusal::HeadTooLarge.into())
        }
        Err(ResponseHeadError::Partial) => Ok(None),
        Err(ResponseHeadError::Fault(fault)) => Err(fault),
    }
}

/// Why no head was parsed.
enum ResponseHeadError {
    Partial,
    Fault(ResponseFault),
}

impl From<ResponseFault> for ResponseHeadError {
    fn from(fault: ResponseFault) -> ResponseHeadError {
        ResponseHeadError::Fault(fault)
    }
}

impl From<RequestRefusal> for ResponseHeadError {
    fn from(refusal: RequestRefusal) -> ResponseHeadError {
        ResponseHeadError::Fault(refusal.into())
    }
}

impl From<LineParseStop> for ResponseHeadError {
    fn from(stop: LineParseStop) -> ResponseHeadError {
        match stop {
            LineParseStop::Partial => ResponseHeadError::Partial,
            LineParseStop::Refused(refusal) => refusal.into(),
        }
    }
}

fn head<'b>(
    bytes: &'b [u8],
    limits: &RequestLimits,
) -> Result<H1ResponseHead<'b>, ResponseHeadError> {
    let line = status_line(bytes)?;
    let mut state = ResponseFieldState::default();
    let mut rest = line.rest;
    let mut count = 0_u16;
    while rest.first() != Some(&b'\r') {
        let field = field_lines::line(rest)?;
        // The scan is the fast path; only a name that is not a token is examined for its fault.
        if !byte_scan::starts_with_token(rest, field.name.len())
            && let Some(refusal) = field_lines::name_fault(rest, field.name.len())
        {
            return Err(refusal.into());
        }
        count = count.saturating_add(1);
        if count > limits.fields_max {
            return Err(RequestRefusal::TooManyFields.into());
        }
        state.field(field.name, field.value)?;
        rest = field.next;
    }
    let after = match rest {
        [_, b'\n', after @ ..] => after,
        [_, _, ..] => return Err(RequestRefusal::BareCr.into()),
        _ => return Err(ResponseHeadError::Partial),
    };
    let (fields, _) = line.rest.split_at(line.rest.len() - rest.len());
    Ok(H1ResponseHead {
        status: line.status,
        reason: line.reason,
        fields: FieldLines::new(fields),
        version: line.version,
        framing: state.framing(line.version)?,
        // A server that sends both may not know where the body ends, so the connection is not reused (RFC 9112 §6.3).
        keep_alive: !(state.is_chunked && state.length.is_some())
            && line.version.persists(state.close, state.keep_alive),
        len: bytes.len() - after.len(),
    })
}

struct StatusLine<'b> {
    version: HttpVersion,
    status: StatusCode,
    reason: &'b [u8],
    rest: &'b [u8],
}

fn status_line(bytes: &[u8]) -> Result<StatusLine<'_>, ResponseHeadError> {
    let Some((start, after)) = bytes.split_first_chunk::<12>() else {
        return Err(check_short(bytes));
    };
    let [version @ .., b' ', hundreds, tens, ones] = start else {
        return Err(ResponseFault::StatusLine.into());
    };
    let version = match version {
        b"HTTP/1.1" => HttpVersion::Http11,
        b"HTTP/1.0" => HttpVersion::Http10,
        // A higher minor version is treated as the highest one known (RFC 9110 §2.5).
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor]
            if byte_scan::is_in_class(*minor, DIGIT) =>
        {
            HttpVersion::Http11
        }
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if byte_scan::is_in_class(*major, DIGIT) && byte_scan::is_in_class(*minor, DIGIT) =>
        {
            return Err(ResponseFault::Version.into());
        }
        _ => return Err(ResponseFault::StatusLine.into()),
    };
    let digits = [*hundreds, *tens, *ones];
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(ResponseFault::StatusLine.into());
    }
    let code = digits
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    let status = StatusCode::new(code).ok_or(ResponseFault::StatusLine)?;
    // RFC 9112 §4 requires the SP even without a reason phrase, but many servers omit it.
    let (reason, end) = match after {
        [b' ', text @ ..] => text.split_at(byte_scan::run_len(text, VALUE)),
        other => other.split_at(0),
    };
    match end {
        [b'\r', b'\n', rest @ ..] => Ok(StatusLine {
            version,
            status,
            reason,
            rest,
        }),
        [] | [b'\r'] => Err(ResponseHeadError::Partial),
        [b'\n', ..] => Err(RequestRefusal::BareLf.into()),
        _ => Err(ResponseFault::StatusLine.into()),
    }
}

/// Whether an empty line, perhaps without CR, ends after the first `parsed_len` bytes.
pub(super) fn has_end(bytes: &[u8], parsed_len: usize) -> bool {
    // The empty line's LF CR LF may begin in the two bytes before the new ones.
    let new_bytes = bytes
        .get(parsed_len.saturating_sub(2)..)
        .unwrap_or_default();
    let mut line_ends = new_bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n');
    line_ends.any(|(at, _)| {
        let after = new_bytes.get(at + 1..).unwrap_or_default();
        after.starts_with(b"\n") || after.starts_with(b"\r\n")
    })
}

/// Rewrites a response with repairable faults in its head: no whitespace before colons (RFC 9112 §5.1), one line for
/// each field (§5.2), CRLF at the end of each line (§2.2). Lines that begin with whitespace between the status line and
/// the first field are dropped (§2.2). `None` if the head is incomplete.
#[must_use]
pub fn repair_head(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let (status_line, mut rest) = split_line(bytes)?;
    out.extend_from_slice(status_line);
    out.extend_from_slice(b"\r\n");
    rest = repair_lines(rest, &mut out)?;
    out.extend_from_slice(rest);
    Some(out)
}

/// Like [`repair_head`], for bytes that begin with a response's trailer section. `None` if the section is incomplete.
#[must_use]
pub fn repair_trailers(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + 64);
    let rest = repair_lines(bytes, &mut out)?;
    out.extend_from_slice(rest);
    Some(out)
}

/// Appends the repaired field lines and the empty line after them. Returns the bytes that follow.
fn repair_lines<'b>(mut rest: &'b [u8], out: &mut Vec<u8>) -> Option<&'b [u8]> {
    let mut field: Option<Vec<u8>> = None;
    loop {
        let (line, after) = split_line(rest)?;
        rest = after;
        match (line, &mut field) {
            // RFC 9112 §2.2: whitespace before the first field line is dropped.
            ([b' ' | b'\t', ..], None) => {}
            ([b' ' | b'\t', ..], Some(field)) => {
                // RFC 9112 §5.2: an obs-fold becomes spaces.
                field.push(b' ');
                field.extend_from_slice(list_values::trim_start(line));
            }
            _ => {
                let next = (!line.is_empty()).then(|| line.to_vec());
                if let Some(field) = core::mem::replace(&mut field, next) {
                    put_field(&field, out);
                }
                // The empty line ends the section.
                if field.is_none() {
                    break;
                }
            }
        }
    }
    out.extend_from_slice(b"\r\n");
    Some(rest)
}

/// Splits off the first line, without its line end.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = (bytes.get(..end)?, bytes.get(end + 1..)?);
    Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
}

fn put_field(field: &[u8], out: &mut Vec<u8>) {
    let colon = field.iter().position(|byte| *byte == b':').unwrap_or(0);
    let (name, rest) = field.split_at(colon);
    // Drops whitespace before the colon (RFC 9112 §5.1).
    out.extend_from_slice(list_values::trim_end(name));
    out.extend_from_slice(rest);
    out.extend_from_slice(b"\r\n");
}

/// Decides whether an input that is shorter than the start of a status line is incomplete or already malformed.
fn check_short(bytes: &[u8]) -> ResponseHeadError {
    // A server of another protocol is detected before twelve bytes have arrived.
    let common_len = bytes.len().min(5);
    match bytes.get(..common_len) == b"HTTP/".get(..common_len) {
        true => ResponseHeadError::Partial,
        false => ResponseFault::StatusLine.into(),
    }
}

/// The fields seen so far that determine the end of the body.
#[derive(Default)]
struct ResponseFieldState {
    length: Option<u64>,
    is_chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl ResponseFieldState {
    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), RequestRefusal> {
        match name.len() {
            10 if equals_lower(name, b"connection") => {
                for option in list_values::members(value) {
                    self.close |= equals_lower(option, b"close");
                    self.keep_alive |= equals_lower(option, b"keep-alive");
                }
            }
            // Nearly all senders write one number.
            14 if self.length.is_none()
                && equals_lower(name, b"content-length")
                && let Some(length) = list_values::decimal(value) =>
            {
                self.length = Some(length);
            }
            14 if equals_lower(name, b"content-length") => {
                // Equal lengths in a list or in several lines count as one (RFC 9110 §8.6).
                for member in list_values::members(value) {
                    let length =
                        list_values::decimal(member).ok_or(RequestRefusal::LengthInvalid)?;
                    if self.length.is_some_and(|previous| previous != length) {
                        return Err(RequestRefusal::LengthRepeated);
                    }
                    self.length = Some(length);
                }
            }
            17 if equals_lower(name, b"transfer-encoding") => {
                // Empty members are ignored (RFC 9110 §5.6.1), but a field of only empty members names no coding.
                let mut codings = list_values::members(value).filter(|coding| !coding.is_empty());
                // `chunked` alone is the only supported coding.
                let (Some(coding), None) = (codings.next(), codings.next()) else {
                    return Err(RequestRefusal::CodingUnknown);
                };
                // A second line would apply `chunked` twice (RFC 9112 §6.1).
                if self.is_chunked {
                    return Err(RequestRefusal::CodingNotLast);
                }
                if !equals_lower(coding, b"chunked") {
                    return Err(RequestRefusal::CodingUnknown);
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn framing(&self, version: HttpVersion) -> Result<ResponseFraming, RequestRefusal> {
        match (self.is_chunked, self.length) {
            (true, _) if version.is_10() => Err(RequestRefusal::TransferCodingInHttp10),
            // Transfer-Encoding overrides Content-Length (RFC 9112 §6.3).
            (true, _) => Ok(ResponseFraming::Chunked),
            (false, Some(len)) => Ok(ResponseFraming::Length(len)),
            (false, None) => Ok(ResponseFraming::UntilClose),
        }
    }
}
