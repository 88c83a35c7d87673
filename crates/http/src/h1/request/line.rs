//! The request line: `method SP request-target SP HTTP-version CRLF`, and the four forms of the
//! target. Read RFC 9112 §2.2, §2.3, §3 and RFC 3986 §3.
//!
//! The first fault is reported, in this order: the syntax of the line (400, 414), the version (505), the method (501),
//! the form of the target (400).

use crate::byte_scan::{self, PATH, TARGET, TOKEN};
use crate::field_lines::LineParseStop;
use crate::host;
use crate::limits::RequestLimits;
use crate::method::Method;
use crate::refusal::RequestRefusal;
use crate::request::RequestTarget;
use crate::version::HttpVersion;

/// A parsed request line.
pub(super) struct RequestLine<'b> {
    pub(super) method: Method,
    pub(super) version: HttpVersion,
    pub(super) target: RequestTarget<'b>,
    pub(super) raw_target: &'b [u8],
    /// The authority in a target in absolute-form or authority-form.
    pub(super) authority: Option<&'b [u8]>,
    /// The line without its CRLF.
    pub(super) raw: &'b [u8],
    /// The bytes after the line.
    pub(super) rest: &'b [u8],
}

/// Parses the line at the start of `head`, after at most one empty line.
#[inline(always)]
pub(super) fn parse<'b>(
    head: &'b [u8],
    limits: &RequestLimits,
) -> Result<RequestLine<'b>, LineParseStop> {
    let start = match head.first() {
        Some(b'\r') => after_empty_line(head)?,
        _ => head,
    };
    let (method, rest) = method(start)?;
    let (span, rest) = target_span(rest, limits)?;
    let (version, rest) = version(rest)?;
    // The method is checked after the version, since 505 takes precedence over 501.
    let method = method.ok_or(RequestRefusal::MethodUnknown)?;
    let (target, authority) = match span.raw.first() {
        // CONNECT accepts the authority-form only (RFC 9112 §3.2.3).
        Some(b'/') if method != Method::Connect => (span.origin(), None),
        _ => parse_other_form(span.raw, method)?,
    };
    let (raw, _) = start.split_at(start.len() - rest.len() - 2);
    Ok(RequestLine {
        method,
        version,
        target,
        raw_target: span.raw,
        authority,
        raw,
        rest,
    })
}

/// The bytes after the one empty line that RFC 9112 §2.2 lets a client send before its request.
#[cold]
fn after_empty_line(head: &[u8]) -> Result<&[u8], LineParseStop> {
    match head.strip_prefix(b"\r\n") {
        Some(rest) => Ok(rest),
        None => Err(line_fault(head, RequestRefusal::RequestLine)),
    }
}

/// The method and the bytes after its SP. The method is `None` if the token is refused by [`Method::parse`].
#[inline(always)]
fn method(start: &[u8]) -> Result<(Option<Method>, &[u8]), LineParseStop> {
    // Nearly all requests are GETs: one comparison instead of a scan.
    match byte_scan::strip_prefix(start, b"GET ") {
        Some(rest) => Ok((Some(Method::Get), rest)),
        None => parse_any_method(start),
    }
}

#[inline(never)]
fn parse_any_method(start: &[u8]) -> Result<(Option<Method>, &[u8]), LineParseStop> {
    let (name, rest) = start.split_at(byte_scan::run_len(start, TOKEN));
    match rest {
        [] => Err(LineParseStop::Partial),
        [b' ', rest @ ..] if !name.is_empty() => Ok((Method::parse(name), rest)),
        _ => Err(line_fault(rest, RequestRefusal::RequestLine)),
    }
}

/// The bytes of a target and the result of scanning them.
struct TargetSpan<'b> {
    raw: &'b [u8],
    /// Bytes before the first `?`.
    path_len: usize,
    plain: bool,
}

impl<'b> TargetSpan<'b> {
    /// Scans the target characters at the start of `rest`.
    #[inline(always)]
    fn scan(rest: &'b [u8]) -> TargetSpan<'b> {
        let (path_len, plain) = scan_path(rest);
        let query = rest.get(path_len..).unwrap_or_default();
        let query_len = match query {
            [b'?', ..] => byte_scan::run_len(query, TARGET),
            _ => 0,
        };
        TargetSpan {
            raw: rest.get(..path_len + query_len).unwrap_or_default(),
            path_len,
            plain,
        }
    }

    /// The target in origin-form.
    #[inline(always)]
    fn origin(&self) -> RequestTarget<'b> {
        let (path, query) = self.raw.split_at(self.path_len);
        RequestTarget::Origin {
            path,
            query: query.get(1..),
            plain: self.plain,
        }
    }
}

/// The target and the bytes after its SP.
#[inline(always)]
fn target_span<'b>(
    rest: &'b [u8],
    limits: &RequestLimits,
) -> Result<(TargetSpan<'b>, &'b [u8]), LineParseStop> {
    let span = TargetSpan::scan(rest);
    // A target that is too long is refused even while it is incomplete, since it can only grow.
    if span.raw.len() > limits.target_len_max {
        return Err(RequestRefusal::TargetTooLong.into());
    }
    match rest.get(span.raw.len()..) {
        Some([b' ', rest @ ..]) if !span.raw.is_empty() => Ok((span, rest)),
        end => Err(target_end_fault(end.unwrap_or_default())),
    }
}

/// The fault of a target without an SP after it.
#[cold]
fn target_end_fault(end: &[u8]) -> LineParseStop {
    match end {
        [] => LineParseStop::Partial,
        // Two spaces, or a line that ends after its target as in HTTP/0.9.
        [b' ' | b'\t' | b'\r', ..] => line_fault(end, RequestRefusal::RequestLine),
        _ => line_fault(end, RequestRefusal::TargetInvalid),
    }
}

/// Counts the target characters other than `?` at the start of `rest`, and checks whether they are plain (see
/// `RequestTarget::Origin`).
#[inline(always)]
fn scan_path(rest: &[u8]) -> (usize, bool) {
    let mut plain = true;
    let mut after = rest;
    loop {
        match after {
            [b'/', next @ ..] => {
                // `//` and `/.` need normalization by `target::decode`.
                plain &= !matches!(next, [b'/' | b'.', ..]);
                after = next;
            }
            [byte, next @ ..] if byte_scan::is_in_class(*byte, TARGET) && *byte != b'?' => {
                plain &= byte_scan::is_in_class(*byte, PATH);
                after = next;
            }
            _ => return (rest.len() - after.len(), plain),
        }
        // Ordinary characters in one run; the loop handles the others.
        after = byte_scan::skip(after, PATH);
    }
}

/// The version and the bytes after its CRLF.
#[inline(always)]
fn version(rest: &[u8]) -> Result<(HttpVersion, &[u8]), LineParseStop> {
    match byte_scan::strip_prefix(rest, b"HTTP/1.1\r\n") {
        Some(rest) => Ok((HttpVersion::Http11, rest)),
        None => parse_other_version(rest),
    }
}

#[inline(never)]
fn parse_other_version(rest: &[u8]) -> Result<(HttpVersion, &[u8]), LineParseStop> {
    let text_len = rest.iter().position(|b| b.is_ascii_control());
    let (text, end) = rest.split_at(text_len.unwrap_or(rest.len()));
    let version = match text {
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            match (major, minor) {
                (b'1', b'0') => Ok(HttpVersion::Http10),
                // RFC 9110 §2.5: a later minor version is treated as the highest known one.
                (b'1', _) => Ok(HttpVersion::Http11),
                _ => Err(RequestRefusal::Version),
            }
        }
        // `HTTP/d.d` has eight bytes: a shorter text may still be completed.
        _ if end.is_empty() && text.len() < 8 => return Err(LineParseStop::Partial),
        _ => return Err(line_fault(end, RequestRefusal::RequestLine)),
    };
    match end {
        [] => Err(LineParseStop::Partial),
        [b'\r', b'\n', rest @ ..] => Ok((version?, rest)),
        _ => Err(line_fault(end, RequestRefusal::RequestLine)),
    }
}

/// The fault of a line that is malformed from the first byte of `at` on: a wrong line end or a NUL has its own refusal,
/// every other fault is `refusal`. A lone CR at the end of the input is undecided.
#[cold]
fn line_fault(at: &[u8], refusal: RequestRefusal) -> LineParseStop {
    match at {
        [b'\r'] => LineParseStop::Partial,
        [b'\r', next, ..] if *next != b'\n' => LineParseStop::Refused(RequestRefusal::BareCr),
        [b'\n', ..] => LineParseStop::Refused(RequestRefusal::BareLf),
        [0, ..] => LineParseStop::Refused(RequestRefusal::Nul),
        _ => LineParseStop::Refused(refusal),
    }
}

/// A target and the authority it names.
type TargetAndAuthority<'b> = (RequestTarget<'b>, Option<&'b [u8]>);

/// Parses the forms that do not begin with a slash.
#[inline(never)]
fn parse_other_form(raw: &[u8], method: Method) -> Result<TargetAndAuthority<'_>, RequestRefusal> {
    match (raw, method) {
        (b"*", Method::Options) => Ok((RequestTarget::Asterisk, None)),
        (_, Method::Connect) => authority_form(raw),
        _ => absolute_form(raw, method),
    }
}

/// A target in origin-form or asterisk-form, from the `:path` pseudo-header field (RFC 9113 §8.3.1).
pub(crate) fn path_form(raw: &[u8], method: Method) -> Result<RequestTarget<'_>, RequestRefusal> {
    let span = TargetSpan::scan(raw);
    match raw {
        b"*" if method == Method::Options => Ok(RequestTarget::Asterisk),
        [b'/', ..] if span.raw.len() == raw.len() => Ok(span.origin()),
        _ => Err(RequestRefusal::TargetInvalid),
    }
}

/// `host:port`, both required (RFC 9112 §3.2.3).
fn authority_form(raw: &[u8]) -> Result<TargetAndAuthority<'_>, RequestRefusal> {
    match host::port(raw) {
        Some(_) => Ok((RequestTarget::Authority(raw), Some(raw))),
        None => Err(RequestRefusal::TargetInvalid),
    }
}

/// `http://authority/path?query`; an empty path means `/`, or `*` for OPTIONS without a query
/// (RFC 9112 §3.2.4).
fn absolute_form(raw: &[u8], method: Method) -> Result<TargetAndAuthority<'_>, RequestRefusal> {
    let rest = strip_scheme(raw).ok_or(RequestRefusal::TargetInvalid)?;
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?'));
    let (authority, rest) = rest.split_at(end.unwrap_or(rest.len()));
    if !host::is_valid(authority) {
        return Err(RequestRefusal::HostInvalid);
    }
    let target = match rest {
        // RFC 9112 §3.2.4: OPTIONS with an empty path stands for `*`.
        [] if method == Method::Options => RequestTarget::Asterisk,
        // RFC 9110 §4.2.3: an empty path is equivalent to `/`.
        [] | [b'?', ..] => RequestTarget::Origin {
            path: b"/",
            query: rest.get(1..),
            plain: true,
        },
        _ => TargetSpan::scan(rest).origin(),
    };
    Ok((target, Some(authority)))
}

fn strip_scheme(raw: &[u8]) -> Option<&[u8]> {
    let schemes = [b"http://".as_slice(), b"https://"];
    schemes.into_iter().find_map(|scheme| {
        let (start, rest) = raw.split_at_checked(scheme.len())?;
        // RFC 3986 §3.1: schemes are case-insensitive.
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}
