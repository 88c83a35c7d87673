//! Parses the field lines of a request up to the empty line, and evaluates them together: host, framing, persistence.
//! Read RFC 9112 §5, §6 and §9.3, RFC 9110 §5 and §10.1.1.

use super::H1RequestHead;
use super::field_lookup::find;
use crate::ascii_case::equals_lower;
use crate::body::BodyFraming;
use crate::byte_scan;
use crate::field_lines::{LineParseStop, line, name_fault};
use crate::fields::StandardHeader;
use crate::host;
use crate::limits::RequestLimits;
use crate::list_values;
use crate::refusal::RequestRefusal;
use crate::request::{IndexedField, Request};
use crate::version::HttpVersion;

/// Parses the field lines `field_lines`, a suffix of `bytes`, and the empty line into `head`.
#[inline(always)]
pub(super) fn parse<'b>(
    head: &mut H1RequestHead<'b>,
    bytes: &'b [u8],
    lines: &'b [u8],
    limits: &RequestLimits,
) -> Result<(), LineParseStop> {
    let mut state = RequestFieldState::default();
    let mut rest = lines;
    while rest.first() != Some(&b'\r') {
        let line = line(rest)?;
        state.fields += 1;
        // Checked for each line, so that a head with too many fields is refused before it is complete.
        if state.fields > usize::from(limits.fields_max) {
            return Err(RequestRefusal::TooManyFields.into());
        }
        state.field(&mut head.request, lines, rest, line.name, line.value)?;
        rest = line.next;
    }
    let after = match rest {
        [_, b'\n', after @ ..] => after,
        [_, _, ..] => return Err(RequestRefusal::BareCr.into()),
        _ => return Err(LineParseStop::Partial),
    };
    (head.request.lines, _) = lines.split_at(lines.len() - rest.len());
    head.len = bytes.len() - after.len();
    Ok(state.conclude(head)?)
}

/// The fields seen so far that depend on each other or on their repetition.
#[derive(Default)]
struct RequestFieldState<'b> {
    /// The number of field lines.
    fields: usize,
    /// Bits of [`HOST`], [`LENGTH`], [`CODING`] and [`EXPECT`].
    present: u8,
    /// Bits of the fields that were repeated.
    repeated: u8,
    host: Option<&'b [u8]>,
    content_length: u64,
    coding: TransferCoding,
    close: bool,
    keep_alive: bool,
    has_unknown_expectation: bool,
}

/// The transfer codings seen so far, in their order over all lines.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum TransferCoding {
    #[default]
    None,
    Chunked,
    Unknown,
}

impl<'b> RequestFieldState<'b> {
    /// Processes one line; `rest` is `field_lines` from the start of that line on.
    #[inline(always)]
    fn field(
        &mut self,
        request: &mut Request<'b>,
        lines: &'b [u8],
        rest: &'b [u8],
        name: &'b [u8],
        value: &'b [u8],
    ) -> Result<(), RequestRefusal> {
        // A name that `find` returns has been compared byte by byte; any other name must be checked to be a token.
        let Some(header) = find(name) else {
            return match byte_scan::starts_with_token(rest, name.len()) {
                true => Ok(()),
                false => Err(name_fault(rest, name.len()).unwrap_or(RequestRefusal::FieldName)),
            };
        };
        match header {
            StandardHeader::Host => {
                self.record_presence(HOST);
                self.host = Some(value);
            }
            StandardHeader::Connection => {
                if self.connection(value) {
                    request.index.mark(IndexedField::ConnectionOption);
                }
            }
            StandardHeader::Expect => {
                self.record_presence(EXPECT);
                // RFC 9110 §10.1.1: the value is case-insensitive.
                self.has_unknown_expectation |= !equals_lower(value, b"100-continue");
            }
            StandardHeader::ContentLength => {
                self.record_presence(LENGTH);
                self.content_length = content_length(value)?;
            }
            StandardHeader::TransferEncoding => {
                self.record_presence(CODING);
                self.transfer_encoding(value)?;
            }
            _ => match IndexedField::from_header(header) {
                Some(field) if field.has_position() => request.index.add(field, lines, rest, value),
                Some(field) => request.index.mark(field),
                None => {}
            },
        }
        Ok(())
    }

    #[inline(always)]
    fn record_presence(&mut self, bit: u8) {
        self.repeated |= self.present & bit;
        self.present |= bit;
    }

    /// Processes connection options (RFC 9110 §7.6.1). Returns whether an option names a field; only caches and proxies
    /// need to know that.
    #[inline(always)]
    fn connection(&mut self, value: &[u8]) -> bool {
        // The common case of one option needs no list.
        if equals_lower(value, b"keep-alive") {
            self.keep_alive = true;
            return false;
        }
        let mut names_field = false;
        for option in list_values::members(value) {
            let close = equals_lower(option, b"close");
            let keep_alive = equals_lower(option, b"keep-alive");
            self.close |= close;
            self.keep_alive |= keep_alive;
            names_field |= !(close || keep_alive || option.is_empty());
        }
        names_field
    }

    /// Processes transfer codings (RFC 9112 §6.1). The codings of all lines form one list, so that a second `chunked`
    /// is found even on another line.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), RequestRefusal> {
        for coding in list_values::members(value) {
            // RFC 9112 §6.1: `chunked` is applied once, and last.
            if self.coding == TransferCoding::Chunked || coding.is_empty() {
                return Err(RequestRefusal::CodingNotLast);
            }
            // Any other coding, or `chunked` after another one, is not implemented: 501.
            let is_supported =
                self.coding == TransferCoding::None && equals_lower(coding, b"chunked");
            self.coding = if is_supported {
                TransferCoding::Chunked
            } else {
                TransferCoding::Unknown
            };
        }
        Ok(())
    }

    /// Evaluates the fields together, after the last line.
    #[inline(always)]
    fn conclude(&self, head: &mut H1RequestHead<'b>) -> Result<(), RequestRefusal> {
        // Repetitions are rare, so their checks are out of line.
        if self.repeated != 0 {
            self.repetitions()?;
        }
        let request = &mut head.request;
        // RFC 9112 §3.2: a target's own authority overrides Host, but Host must still be valid.
        match self.host {
            Some(host) if !host::is_valid(host) => return Err(RequestRefusal::HostInvalid),
            None if !head.version.is_10() => return Err(RequestRefusal::HostMissing),
            host => request.authority = request.authority.or(host),
        }
        // RFC 9112 §9.3: HTTP/1.0 persists only if the client asks for it.
        head.keep_alive = head.version.persists(self.close, self.keep_alive);
        if self.present & BODY_FIELDS != 0 {
            head.framing = self.framing(head.version)?;
            self.expectation(head)?;
        }
        Ok(())
    }

    /// Refuses repeated Host and Content-Length; other repeated fields are handled in [`Request`].
    #[cold]
    fn repetitions(&self) -> Result<(), RequestRefusal> {
        if self.repeated & HOST != 0 {
            return Err(RequestRefusal::HostRepeated);
        }
        if self.repeated & LENGTH != 0 {
            return Err(RequestRefusal::LengthRepeated);
        }
        Ok(())
    }

    /// How the body is delimited (RFC 9112 §6.3).
    fn framing(&self, version: HttpVersion) -> Result<BodyFraming, RequestRefusal> {
        let length = self.present & LENGTH != 0;
        let coding = self.present & CODING != 0;
        match (coding, length) {
            (false, false) => Ok(BodyFraming::None),
            (false, true) => Ok(BodyFraming::Length(self.content_length)),
            // RFC 9112 §6.1: an HTTP/1.0 message with Transfer-Encoding has faulty framing.
            (true, _) if version.is_10() => Err(RequestRefusal::TransferCodingInHttp10),
            // RFC 9112 §6.3: both fields together may be an attempt at request smuggling.
            (true, true) => Err(RequestRefusal::LengthAndCoding),
            (true, false) if self.coding == TransferCoding::Chunked => Ok(BodyFraming::Chunked),
            (true, false) => Err(RequestRefusal::CodingUnknown),
        }
    }

    /// Evaluates Expect (RFC 9110 §10.1.1), which is ignored from an HTTP/1.0 client.
    fn expectation(&self, head: &mut H1RequestHead<'b>) -> Result<(), RequestRefusal> {
        if head.version.is_10() || self.present & EXPECT == 0 {
            return Ok(());
        }
        if self.has_unknown_expectation {
            return Err(RequestRefusal::ExpectationUnknown);
        }
        head.expect_continue = head.framing.has_body();
        Ok(())
    }
}

const HOST: u8 = 1;
const LENGTH: u8 = 2;
const CODING: u8 = 4;
const EXPECT: u8 = 8;
/// The fields that make `RequestFieldState::conclude` evaluate framing and expectation.
const BODY_FIELDS: u8 = LENGTH | CODING | EXPECT;

fn content_length(value: &[u8]) -> Result<u64, RequestRefusal> {
    match list_values::decimal(value) {
        Some(length) => Ok(length),
        // A list is refused even if its members are equal.
        None if value.contains(&b',') => Err(RequestRefusal::LengthRepeated),
        None => Err(RequestRefusal::LengthInvalid),
    }
}
