//! The field lines of a request up to the empty line, and their combined meaning: host, framing, persistence. Read RFC
//! 9112 §5, §6 and §9.3, RFC 9110 §5 and §10.1.1.

use super::Head;
use super::known::{find, is};
use crate::body::Framing;
use crate::fields::Known;
use crate::host;
use crate::limits::Limits;
use crate::lines::{Stop, line, name_fault};
use crate::list;
use crate::refusal::Refusal;
use crate::request::{Indexed, Request};
use crate::scan;
use crate::version::Version;

/// Parses the field lines `lines`, a suffix of `bytes`, and the empty line into `head`.
#[inline(always)]
pub(super) fn parse<'b>(
    head: &mut Head<'b>,
    bytes: &'b [u8],
    lines: &'b [u8],
    limits: &Limits,
) -> Result<(), Stop> {
    let mut seen = Seen::default();
    let mut rest = lines;
    while rest.first() != Some(&b'\r') {
        let line = line(rest)?;
        seen.fields += 1;
        // Checked for each line, so that a head with too many is refused before it is complete.
        if seen.fields > usize::from(limits.fields_max) {
            return Err(Refusal::TooManyFields.into());
        }
        seen.field(&mut head.request, lines, rest, line.name, line.value)?;
        rest = line.next;
    }
    let after = match rest {
        [_, b'\n', after @ ..] => after,
        [_, _, ..] => return Err(Refusal::BareCr.into()),
        _ => return Err(Stop::Partial),
    };
    (head.request.lines, _) = lines.split_at(lines.len() - rest.len());
    head.len = bytes.len() - after.len();
    Ok(seen.conclude(head)?)
}

/// The fields seen so far that depend on each other or on their repetition.
#[derive(Default)]
struct Seen<'b> {
    /// Field lines.
    fields: usize,
    /// Bits of [`HOST`], [`LENGTH`], [`CODING`] and [`EXPECT`].
    once: u8,
    /// Bits of the fields that were repeated.
    again: u8,
    host: Option<&'b [u8]>,
    content_length: u64,
    coding: Coding,
    close: bool,
    keep_alive: bool,
    expect_other: bool,
}

/// The transfer codings seen so far, in their order over all lines.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Coding {
    #[default]
    None,
    Chunked,
    Unknown,
}

impl<'b> Seen<'b> {
    /// Processes one line; `rest` is `lines` from the start of that line on.
    #[inline(always)]
    fn field(
        &mut self,
        request: &mut Request<'b>,
        lines: &'b [u8],
        rest: &'b [u8],
        name: &'b [u8],
        value: &'b [u8],
    ) -> Result<(), Refusal> {
        // A name that `find` knows has been compared byte by byte; any other name must be checked to be a token.
        let Some(known) = find(name) else {
            return match scan::starts_with_token(rest, name.len()) {
                true => Ok(()),
                false => Err(name_fault(rest, name.len()).unwrap_or(Refusal::FieldName)),
            };
        };
        match known {
            Known::Host => {
                self.note(HOST);
                self.host = Some(value);
            }
            Known::Connection => {
                if self.connection(value) {
                    request.index.mark(Indexed::ConnectionOption);
                }
            }
            Known::Expect => {
                self.note(EXPECT);
                // RFC 9110 §10.1.1: the value is case-insensitive.
                self.expect_other |= !is(value, b"100-continue");
            }
            Known::ContentLength => {
                self.note(LENGTH);
                self.content_length = content_length(value)?;
            }
            Known::TransferEncoding => {
                self.note(CODING);
                self.transfer_encoding(value)?;
            }
            _ => match Indexed::of(known) {
                Some(field) if field.has_place() => request.index.add(field, lines, rest, value),
                Some(field) => request.index.mark(field),
                None => {}
            },
        }
        Ok(())
    }

    #[inline(always)]
    fn note(&mut self, bit: u8) {
        self.again |= self.once & bit;
        self.once |= bit;
    }

    /// Processes connection options (RFC 9110 §7.6.1). Returns whether one names a field, which matters to caches and
    /// proxies only.
    #[inline(always)]
    fn connection(&mut self, value: &[u8]) -> bool {
        // The common case of one option needs no list.
        if is(value, b"keep-alive") {
            self.keep_alive = true;
            return false;
        }
        let mut names = false;
        for option in list::members(value) {
            let close = option.eq_ignore_ascii_case(b"close");
            let keep_alive = option.eq_ignore_ascii_case(b"keep-alive");
            self.close |= close;
            self.keep_alive |= keep_alive;
            names |= !(close || keep_alive || option.is_empty());
        }
        names
    }

    /// Processes transfer codings (RFC 9112 §6.1). The codings of all lines form one list, so that a second `chunked`
    /// is found on any line.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for coding in list::members(value) {
            // RFC 9112 §6.1: `chunked` is applied once, and last.
            if self.coding == Coding::Chunked || coding.is_empty() {
                return Err(Refusal::CodingNotLast);
            }
            // Any other coding, or `chunked` after another one, is not implemented: 501.
            let known = self.coding == Coding::None && is(coding, b"chunked");
            self.coding = if known {
                Coding::Chunked
            } else {
                Coding::Unknown
            };
        }
        Ok(())
    }

    /// Evaluates the fields together, after the last line.
    #[inline(always)]
    fn conclude(&self, head: &mut Head<'b>) -> Result<(), Refusal> {
        // Repetitions are rare, so their checks are out of line.
        if self.again != 0 {
            self.repetitions()?;
        }
        let request = &mut head.request;
        // RFC 9112 §3.2: a target's own authority overrides Host, but Host must still be valid.
        match self.host {
            Some(host) if !host::is_valid(host) => return Err(Refusal::HostInvalid),
            None if !head.version.is_10() => return Err(Refusal::HostMissing),
            host => request.authority = request.authority.or(host),
        }
        // RFC 9112 §9.3: HTTP/1.0 persists only if the client asks for it.
        head.keep_alive = head.version.persists(self.close, self.keep_alive);
        if self.once & BODY_FIELDS != 0 {
            head.framing = self.framing(head.version)?;
            self.expectation(head)?;
        }
        Ok(())
    }

    /// Refuses repeated Host and Content-Length; other repeated fields are handled in [`Request`].
    #[cold]
    fn repetitions(&self) -> Result<(), Refusal> {
        if self.again & HOST != 0 {
            return Err(Refusal::HostRepeated);
        }
        if self.again & LENGTH != 0 {
            return Err(Refusal::LengthRepeated);
        }
        Ok(())
    }

    /// How the body is delimited (RFC 9112 §6.3).
    fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        let length = self.once & LENGTH != 0;
        let coding = self.once & CODING != 0;
        match (coding, length) {
            (false, false) => Ok(Framing::None),
            (false, true) => Ok(Framing::Length(self.content_length)),
            // RFC 9112 §6.1: an HTTP/1.0 message with Transfer-Encoding has faulty framing.
            (true, _) if version.is_10() => Err(Refusal::CodingIn10),
            // RFC 9112 §6.3: both fields together may be an attempt at request smuggling.
            (true, true) => Err(Refusal::LengthAndCoding),
            (true, false) if self.coding == Coding::Chunked => Ok(Framing::Chunked),
            (true, false) => Err(Refusal::CodingUnknown),
        }
    }

    /// Evaluates Expect (RFC 9110 §10.1.1), which is ignored from an HTTP/1.0 client.
    fn expectation(&self, head: &mut Head<'b>) -> Result<(), Refusal> {
        if head.version.is_10() || self.once & EXPECT == 0 {
            return Ok(());
        }
        if self.expect_other {
            return Err(Refusal::ExpectationUnknown);
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

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    match list::decimal(value) {
        Some(length) => Ok(length),
        // A list is refused even if its members are equal.
        None if value.contains(&b',') => Err(Refusal::LengthRepeated),
        None => Err(Refusal::LengthInvalid),
    }
}
