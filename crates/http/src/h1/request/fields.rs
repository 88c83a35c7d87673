//! The field lines of a request, up to the empty line, and what they mean together: host, framing,
//! persistence. Read RFC 9112 §5, §6 and §9.3, RFC 9110 §5 and §10.1.1.

use super::Head;
use super::known::{Known, is};
use crate::body::Framing;
use crate::host;
use crate::limits::Limits;
use crate::lines::{Stop, line, name_fault};
use crate::list;
use crate::refusal::Refusal;
use crate::request::{Indexed, Request};
use crate::scan;
use crate::version::Version;

/// Parses the field lines `lines`, which are the end of `bytes`, and the empty line into `head`.
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

/// What has been seen of the fields that depend on each other or on their repetition.
#[derive(Default)]
struct Seen<'b> {
    /// Field lines.
    fields: usize,
    /// Bits of [`Known`].
    once: u32,
    /// Bits of [`Known`], of those that came more than once.
    again: u32,
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
    /// Takes one line; `rest` are the bytes of `lines` from its start on.
    #[inline(always)]
    fn field(
        &mut self,
        request: &mut Request<'b>,
        lines: &'b [u8],
        rest: &'b [u8],
        name: &'b [u8],
        value: &'b [u8],
    ) -> Result<(), Refusal> {
        let Some(known) = Known::find(name) else {
            return match scan::starts_with_token(rest, name.len()) {
                true => Ok(()),
                false => Err(name_fault(rest, name.len()).unwrap_or(Refusal::FieldName)),
            };
        };
        self.again |= self.once & known.bit();
        self.once |= known.bit();
        let index = &mut request.index;
        let mut place = |field| index.add(field, lines, rest, value);
        match known {
            Known::Host => self.host = Some(value),
            Known::UserAgent => place(Indexed::UserAgent),
            Known::Referer => place(Indexed::Referer),
            Known::Range => place(Indexed::Range),
            Known::IfRange => place(Indexed::IfRange),
            Known::IfModifiedSince => place(Indexed::IfModifiedSince),
            Known::IfUnmodifiedSince => place(Indexed::IfUnmodifiedSince),
            Known::AcceptEncoding => place(Indexed::AcceptEncoding),
            Known::IfMatch => place(Indexed::IfMatch),
            Known::IfNoneMatch => place(Indexed::IfNoneMatch),
            Known::Authorization => index.mark(Indexed::Authorization),
            Known::CacheControl => index.mark(Indexed::CacheControl),
            Known::Pragma => index.mark(Indexed::Pragma),
            Known::MethodOverride => index.mark(Indexed::MethodOverride),
            Known::Connection if self.connection(value) => {
                index.mark(Indexed::ConnectionOption);
            }
            Known::Connection => {}
            Known::Expect => self.expect_other |= !is(value, b"100-continue"),
            Known::ContentLength => self.content_length = content_length(value)?,
            Known::TransferEncoding => self.transfer_encoding(value)?,
        }
        Ok(())
    }

    /// Connection options (RFC 9110 §7.6.1). Whether one names a field, which concerns caches and proxies only.
    #[inline(always)]
    fn connection(&mut self, value: &[u8]) -> bool {
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

    /// Transfer codings (RFC 9112 §6.1). Lines add up, so a second `chunked` is found anywhere.
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for coding in list::members(value) {
            if self.coding == Coding::Chunked || coding.is_empty() {
                return Err(Refusal::CodingNotLast);
            }
            let known = self.coding == Coding::None && is(coding, b"chunked");
            self.coding = if known {
                Coding::Chunked
            } else {
                Coding::Unknown
            };
        }
        Ok(())
    }

    /// What the fields mean together, once all have come.
    #[inline(always)]
    fn conclude(&self, head: &mut Head<'b>) -> Result<(), Refusal> {
        if self.again != 0 {
            self.repetitions()?;
        }
        let request = &mut head.request;
        match self.host {
            Some(host) if !host::is_valid(host) => return Err(Refusal::HostInvalid),
            None if head.version == Version::Http11 => return Err(Refusal::HostMissing),
            host => request.authority = request.authority.or(host),
        }
        head.keep_alive = match head.version {
            Version::Http11 | Version::Http2 => !self.close,
            Version::Http10 => self.keep_alive && !self.close,
        };
        if self.once & BODY_FIELDS != 0 {
            head.framing = self.framing(head.version)?;
            self.expectation(head)?;
        }
        Ok(())
    }

    /// Fields that cannot be told apart are refused if they matter here; of others see [`Request`].
    #[cold]
    fn repetitions(&self) -> Result<(), Refusal> {
        let again = |known: Known| self.again & known.bit() != 0;
        if again(Known::Host) {
            return Err(Refusal::HostRepeated);
        }
        if again(Known::ContentLength) {
            return Err(Refusal::LengthRepeated);
        }
        Ok(())
    }

    /// How the body is delimited (RFC 9112 §6.3).
    fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        let length = self.once & Known::ContentLength.bit() != 0;
        let coding = self.once & Known::TransferEncoding.bit() != 0;
        match (coding, length) {
            (false, false) => Ok(Framing::None),
            (false, true) => Ok(Framing::Length(self.content_length)),
            (true, _) if version == Version::Http10 => Err(Refusal::CodingIn10),
            (true, true) => Err(Refusal::LengthAndCoding),
            (true, false) if self.coding == Coding::Chunked => Ok(Framing::Chunked),
            (true, false) => Err(Refusal::CodingUnknown),
        }
    }

    /// Expect (RFC 9110 §10.1.1); an HTTP/1.0 client cannot mean it.
    fn expectation(&self, head: &mut Head<'b>) -> Result<(), Refusal> {
        if head.version == Version::Http10 || self.once & Known::Expect.bit() == 0 {
            return Ok(());
        }
        if self.expect_other {
            return Err(Refusal::ExpectationUnknown);
        }
        head.expect_continue = head.framing.has_body();
        Ok(())
    }
}

/// The fields by which [`Seen::conclude`] decides whether there is anything about a body to do.
const BODY_FIELDS: u32 =
    Known::ContentLength.bit() | Known::TransferEncoding.bit() | Known::Expect.bit();

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    match list::decimal(value) {
        Some(length) => Ok(length),
        None if value.contains(&b',') => Err(Refusal::LengthRepeated),
        None => Err(Refusal::LengthInvalid),
    }
}
