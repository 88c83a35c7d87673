//! Decodes the chunked transfer coding (RFC 9112 §7.1). Used through [`crate::body::BodyReader`].
//!
//! ```text
//!  ┌──────────────────────────────── data ends ─── DataCr ─► DataLf ◄┐
//!  ▼                                                                 │
//! Size ── ; ──► NameStart ─► Name ── = ──► ValueStart ─┬─► Value       │
//!  │                  ▲        │                       └─► Quoted ◄─ \ ─► Escaped
//!  │ CR               └── ; ───┴── after a name or a value             │
//!  │                           │ CR                                    │
//!  └──► SizeLf ◄───────────────┘ ── size > 0 ──► Data ─────────────────┘
//!         └─ size == 0 ─► Trailers ─► done
//! ```
//!
//! A decoder that is more lenient than the next one allows request smuggling (RFC 9112 §11.2). So every line end is
//! CRLF, only grammatical extensions may stand between a size and its CRLF, and trailers are checked like fields. One
//! exception: some servers pad the chunk sizes of a response with spaces, which is unambiguous. The trailer section is
//! consumed in one piece, so that it can be returned as slices of the input; the trailer section of a response may be
//! passed again after [`crate::h1::repair_trailers`].

use crate::body::{self, FeedProgress};
use crate::byte_scan::{self, TOKEN, VALUE};
use crate::field_lines::{self, LineParseStop};
use crate::limits::RequestLimits;
use crate::refusal::RequestRefusal;
use crate::target::hex_digit;

/// The most digits of a chunk size: those of a `u64`.
const SIZE_DIGITS_MAX: u8 = 16;

/// Decodes one body.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedDecoder {
    /// The size of the current chunk while its digits are read, then the outstanding bytes of its data.
    chunk_remaining: u64,
    /// The number of body bytes that are still within the limit.
    body_remaining: u64,
    /// The limit of extension bytes in each chunk.
    extension_len_max: u32,
    /// The number of extension bytes that are still within the limit in the current chunk.
    extension_budget: u32,
    /// The limit of the trailer section in bytes.
    trailers_len_max: u32,
    /// Digits of the size read so far, `0 <= digits <= SIZE_DIGITS_MAX`.
    digits: u8,
    /// If set, whitespace may stand between a size and its CRLF, and repairable trailer faults are reported as such.
    is_response: bool,
    state: ChunkState,
}

/// The next element of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// A digit of the size, or the end of the size.
    Size,
    /// Whitespace after the size or a value, which must lead to a `;`.
    Space,
    /// The first byte of an extension's name, or whitespace before it.
    NameStart,
    Name,
    /// Whitespace after a name, which must lead to a `=` or a `;`.
    NameSpace,
    /// The first byte of a value, or whitespace before it.
    ValueStart,
    Value,
    Quoted,
    Escaped,
    /// After a quoted value.
    QuotedEnd,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
}

impl ChunkedDecoder {
    pub(crate) fn new(limits: &RequestLimits) -> ChunkedDecoder {
        let saturated = |len| u32::try_from(len).unwrap_or(u32::MAX);
        let extension_len_max = saturated(limits.chunk_extension_len_max);
        ChunkedDecoder {
            chunk_remaining: 0,
            body_remaining: limits.body_len_max,
            extension_len_max,
            extension_budget: extension_len_max,
            trailers_len_max: saturated(limits.trailers_len_max),
            digits: 0,
            is_response: false,
            state: ChunkState::Size,
        }
    }

    /// The decoder of a response's body.
    pub(crate) fn for_response(limits: &RequestLimits) -> ChunkedDecoder {
        ChunkedDecoder {
            is_response: true,
            ..ChunkedDecoder::new(limits)
        }
    }

    /// See [`crate::body::BodyReader::feed`].
    pub(crate) fn feed<'i>(&mut self, input: &'i [u8]) -> Result<FeedProgress<'i>, RequestRefusal> {
        for (at, byte) in input.iter().enumerate() {
            if self.state == ChunkState::Data {
                return Ok(self.data(at, input.get(at..).unwrap_or_default()));
            }
            if self.state == ChunkState::Trailers {
                // Return before the section, so that the section is at the start of the input if it is passed again.
                return match at {
                    0 => self.trailers(input),
                    _ => Ok(FeedProgress::framing(at)),
                };
            }
            self.state = self.step(*byte)?;
        }
        Ok(FeedProgress {
            consumed: input.len(),
            ..FeedProgress::NOTHING
        })
    }

    /// Consumes data from the start of `rest`, after `at` bytes of framing.
    fn data<'i>(&mut self, at: usize, rest: &'i [u8]) -> FeedProgress<'i> {
        let data = body::take(self.chunk_remaining, rest);
        self.chunk_remaining -= data.len() as u64;
        if self.chunk_remaining == 0 {
            self.state = ChunkState::DataCr;
        }
        FeedProgress {
            consumed: at + data.len(),
            data,
            ..FeedProgress::NOTHING
        }
    }

    /// Consumes the trailer section, if it is complete in `rest`.
    fn trailers<'i>(&self, rest: &'i [u8]) -> Result<FeedProgress<'i>, RequestRefusal> {
        // Bytes beyond the longest possible section are hidden, so that the result does not depend on how many of them
        // have arrived already.
        let len_max = self.trailers_len_max as usize;
        // The section is followed by an empty line of two bytes.
        let section_len_max = len_max.saturating_add(2);
        let rest = rest.get(..section_len_max).unwrap_or(rest);
        let mut next = rest;
        while next.first() != Some(&b'\r') {
            match self.trailer(next) {
                Ok(after) if rest.len() - after.len() <= len_max => next = after,
                Err(LineParseStop::Partial) if rest.len() < section_len_max => {
                    return Ok(FeedProgress::NOTHING);
                }
                Ok(_) | Err(LineParseStop::Partial) => {
                    return Err(RequestRefusal::TrailersTooLarge);
                }
                Err(LineParseStop::Refused(refusal)) => return Err(refusal),
            }
        }
        match next {
            [_, b'\n', after @ ..] => Ok(FeedProgress {
                consumed: rest.len() - after.len(),
                data: &[],
                trailers: rest.get(..rest.len() - next.len()).unwrap_or_default(),
                done: true,
            }),
            [_] => Ok(FeedProgress::NOTHING),
            _ => Err(RequestRefusal::TrailerInvalid),
        }
    }

    /// The bytes after the trailer line at the start of `rest`.
    fn trailer<'i>(&self, rest: &'i [u8]) -> Result<&'i [u8], LineParseStop> {
        let line = field_lines::line(rest).map_err(|stop| match stop {
            LineParseStop::Refused(refusal) => {
                LineParseStop::Refused(self.trailer_refusal(refusal))
            }
            LineParseStop::Partial => stop,
        })?;
        match field_lines::name_fault(rest, line.name.len()) {
            None => Ok(line.next),
            Some(refusal) => Err(self.trailer_refusal(refusal).into()),
        }
    }

    fn trailer_refusal(&self, refusal: RequestRefusal) -> RequestRefusal {
        // `H1Client` reports such trailers as repairable, and the caller feeds them again after the repair.
        match self.is_response && refusal.is_mendable() {
            true => refusal,
            false => RequestRefusal::TrailerInvalid,
        }
    }

    /// Processes one byte of framing and returns the next state.
    fn step(&mut self, byte: u8) -> Result<ChunkState, RequestRefusal> {
        match self.state {
            ChunkState::Size => self.size(byte),
            ChunkState::Space
            | ChunkState::NameStart
            | ChunkState::Name
            | ChunkState::NameSpace
            | ChunkState::ValueStart
            | ChunkState::Value
            | ChunkState::Quoted
            | ChunkState::Escaped
            | ChunkState::QuotedEnd => self.extension(byte),
            ChunkState::SizeLf => {
                expect(byte, b'\n', RequestRefusal::ChunkSize)?;
                self.finish_size()
            }
            ChunkState::DataCr => {
                expect(byte, b'\r', RequestRefusal::ChunkEnd)?;
                Ok(ChunkState::DataLf)
            }
            ChunkState::DataLf => {
                expect(byte, b'\n', RequestRefusal::ChunkEnd)?;
                Ok(ChunkState::Size)
            }
            // `feed` handles these states itself.
            ChunkState::Data | ChunkState::Trailers => Ok(self.state),
        }
    }

    fn size(&mut self, byte: u8) -> Result<ChunkState, RequestRefusal> {
        if let Some(digit) = hex_digit(byte) {
            // Leading zeros count, so that the size line is bounded.
            if self.digits == SIZE_DIGITS_MAX {
                return Err(RequestRefusal::ChunkSize);
            }
            self.digits += 1;
            // Sixteen digits are exactly 64 bits: the shift loses none.
            self.chunk_remaining = self.chunk_remaining << 4 | u64::from(digit);
            return Ok(ChunkState::Size);
        }
        match byte {
            _ if self.digits == 0 => Err(RequestRefusal::ChunkSize),
            b'\r' => Ok(ChunkState::SizeLf),
            b';' => self.spend(ChunkState::NameStart, RequestRefusal::ChunkExtensionTooLong),
            // Bad whitespace before an extension (RFC 9112 §7.1.1) counts as extension bytes, so that it is bounded.
            b' ' | b'\t' => self.spend(ChunkState::Space, RequestRefusal::ChunkExtensionTooLong),
            _ => Err(RequestRefusal::ChunkSize),
        }
    }

    /// A byte between the size and its CR (RFC 9112 §7.1.1).
    fn extension(&mut self, byte: u8) -> Result<ChunkState, RequestRefusal> {
        let next = match (self.state, byte) {
            (ChunkState::Name | ChunkState::Value | ChunkState::QuotedEnd, b'\r') => {
                return Ok(ChunkState::SizeLf);
            }
            // Some servers pad the size. In a request padding is refused, since another decoder may read it
            // differently.
            (ChunkState::Space | ChunkState::NameSpace, b'\r') if self.is_response => {
                return Ok(ChunkState::SizeLf);
            }
            (
                ChunkState::Space
                | ChunkState::Name
                | ChunkState::NameSpace
                | ChunkState::Value
                | ChunkState::QuotedEnd,
                b';',
            ) => ChunkState::NameStart,
            (ChunkState::Name | ChunkState::NameSpace, b'=') => ChunkState::ValueStart,
            (ChunkState::Name, b' ' | b'\t') => ChunkState::NameSpace,
            (ChunkState::Value | ChunkState::QuotedEnd, b' ' | b'\t') => ChunkState::Space,
            (
                state @ (ChunkState::Space
                | ChunkState::NameStart
                | ChunkState::NameSpace
                | ChunkState::ValueStart),
                b' ' | b'\t',
            ) => state,
            (ChunkState::ValueStart, b'"') => ChunkState::Quoted,
            (ChunkState::Quoted, b'"') => ChunkState::QuotedEnd,
            (ChunkState::Quoted, b'\\') => ChunkState::Escaped,
            // RFC 9110 §5.6.4: any byte of a field value, or an escaped one.
            (ChunkState::Quoted | ChunkState::Escaped, _)
                if byte_scan::is_in_class(byte, VALUE) =>
            {
                ChunkState::Quoted
            }
            (ChunkState::NameStart | ChunkState::Name, _)
                if byte_scan::is_in_class(byte, TOKEN) =>
            {
                ChunkState::Name
            }
            (ChunkState::ValueStart | ChunkState::Value, _)
                if byte_scan::is_in_class(byte, TOKEN) =>
            {
                ChunkState::Value
            }
            _ => return Err(RequestRefusal::ChunkExtension),
        };
        self.spend(next, RequestRefusal::ChunkExtensionTooLong)
    }

    /// Checks the size against the body limit and selects data or trailers.
    fn finish_size(&mut self) -> Result<ChunkState, RequestRefusal> {
        self.digits = 0;
        if self.chunk_remaining == 0 {
            return Ok(ChunkState::Trailers);
        }
        self.extension_budget = self.extension_len_max;
        // The size is checked before the data arrives, so that a chunk that is too long is refused immediately.
        match self.body_remaining.checked_sub(self.chunk_remaining) {
            Some(remaining) => self.body_remaining = remaining,
            None => return Err(RequestRefusal::BodyTooLarge),
        }
        Ok(ChunkState::Data)
    }

    /// Moves to `next` and charges one byte to the extension budget.
    fn spend(
        &mut self,
        next: ChunkState,
        refusal: RequestRefusal,
    ) -> Result<ChunkState, RequestRefusal> {
        self.extension_budget = self.extension_budget.checked_sub(1).ok_or(refusal)?;
        Ok(next)
    }
}

fn expect(byte: u8, expected: u8, refusal: RequestRefusal) -> Result<(), RequestRefusal> {
    if byte == expected {
        Ok(())
    } else {
        Err(refusal)
    }
}

#[cfg(test)]
mod tests;
