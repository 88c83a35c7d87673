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
//! exception: some servers pad the sizes of a response with spaces, which has one meaning only. The trailer section is
//! consumed in one piece, so that it can be returned as slices of the input; that of a response may be passed again
//! after mending ([`crate::h1::mend_trailers`]).

use crate::body::{self, Fed};
use crate::limits::Limits;
use crate::lines::{self, Stop};
use crate::refusal::Refusal;
use crate::scan::{self, TOKEN, VALUE};
use crate::target::hex_digit;

/// The most digits of a chunk size: those of a `u64`.
const SIZE_DIGITS_MAX: u8 = 16;

/// Decodes one body.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    /// The size of the current chunk while its digits are read, then its outstanding bytes.
    chunk_left: u64,
    /// The bytes that further chunks may have.
    body_left: u64,
    /// The bytes of extensions that each chunk may have.
    extension_len_max: u32,
    /// The bytes of extensions that the current chunk may still have.
    budget: u32,
    /// The bytes that the trailer section may have.
    trailers_len_max: u32,
    /// Digits of the size read so far, `0 <= digits <= SIZE_DIGITS_MAX`.
    digits: u8,
    /// Whitespace may stand between a size and its CRLF, and trailers with mendable faults keep their refusal.
    is_response: bool,
    state: State,
}

/// The next element of the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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

impl Chunked {
    pub(crate) fn new(limits: &Limits) -> Chunked {
        let saturated = |len| u32::try_from(len).unwrap_or(u32::MAX);
        let extension_len_max = saturated(limits.chunk_extension_len_max);
        Chunked {
            chunk_left: 0,
            body_left: limits.body_len_max,
            extension_len_max,
            budget: extension_len_max,
            trailers_len_max: saturated(limits.trailers_len_max),
            digits: 0,
            is_response: false,
            state: State::Size,
        }
    }

    /// The decoder of a response's body.
    pub(crate) fn of_response(limits: &Limits) -> Chunked {
        Chunked {
            is_response: true,
            ..Chunked::new(limits)
        }
    }

    /// See [`crate::body::BodyReader::feed`].
    pub(crate) fn feed<'i>(&mut self, input: &'i [u8]) -> Result<Fed<'i>, Refusal> {
        for (at, byte) in input.iter().enumerate() {
            if self.state == State::Data {
                return Ok(self.data(at, input.get(at..).unwrap_or_default()));
            }
            if self.state == State::Trailers {
                // Return before the section, so that a section passed again is at the start of the input.
                return match at {
                    0 => self.trailers(input),
                    _ => Ok(Fed::framing(at)),
                };
            }
            self.state = self.step(*byte)?;
        }
        Ok(Fed {
            consumed: input.len(),
            ..Fed::NOTHING
        })
    }

    /// Consumes data from the start of `rest`, after `at` bytes of framing.
    fn data<'i>(&mut self, at: usize, rest: &'i [u8]) -> Fed<'i> {
        let data = body::take(self.chunk_left, rest);
        self.chunk_left -= data.len() as u64;
        if self.chunk_left == 0 {
            self.state = State::DataCr;
        }
        Fed {
            consumed: at + data.len(),
            data,
            ..Fed::NOTHING
        }
    }

    /// Consumes the trailer section, if it is complete in `rest`.
    fn trailers<'i>(&self, rest: &'i [u8]) -> Result<Fed<'i>, Refusal> {
        // Bytes beyond the longest possible section are hidden, so that the result does not depend on how many of them
        // have arrived already.
        let len_max = self.trailers_len_max as usize;
        // The empty line after the section.
        let whole_len_max = len_max.saturating_add(2);
        let rest = rest.get(..whole_len_max).unwrap_or(rest);
        let mut next = rest;
        while next.first() != Some(&b'\r') {
            match self.trailer(next) {
                Ok(after) if rest.len() - after.len() <= len_max => next = after,
                Err(Stop::Partial) if rest.len() < whole_len_max => return Ok(Fed::NOTHING),
                Ok(_) | Err(Stop::Partial) => return Err(Refusal::TrailersTooLarge),
                Err(Stop::Refused(refusal)) => return Err(refusal),
            }
        }
        match next {
            [_, b'\n', after @ ..] => Ok(Fed {
                consumed: rest.len() - after.len(),
                data: &[],
                trailers: rest.get(..rest.len() - next.len()).unwrap_or_default(),
                done: true,
            }),
            [_] => Ok(Fed::NOTHING),
            _ => Err(Refusal::TrailerInvalid),
        }
    }

    /// The bytes after the trailer line at the start of `rest`.
    fn trailer<'i>(&self, rest: &'i [u8]) -> Result<&'i [u8], Stop> {
        let line = lines::line(rest).map_err(|stop| match stop {
            Stop::Refused(refusal) => Stop::Refused(self.trailer_refusal(refusal)),
            Stop::Partial => stop,
        })?;
        match lines::name_fault(rest, line.name.len()) {
            None => Ok(line.next),
            Some(refusal) => Err(self.trailer_refusal(refusal).into()),
        }
    }

    fn trailer_refusal(&self, refusal: Refusal) -> Refusal {
        // The client mends such trailers and feeds them again.
        match self.is_response && refusal.is_mendable() {
            true => refusal,
            false => Refusal::TrailerInvalid,
        }
    }

    /// Processes one byte of framing and returns the next state.
    fn step(&mut self, byte: u8) -> Result<State, Refusal> {
        match self.state {
            State::Size => self.size(byte),
            State::Space
            | State::NameStart
            | State::Name
            | State::NameSpace
            | State::ValueStart
            | State::Value
            | State::Quoted
            | State::Escaped
            | State::QuotedEnd => self.extension(byte),
            State::SizeLf => {
                expect(byte, b'\n', Refusal::ChunkSize)?;
                self.size_is_known()
            }
            State::DataCr => {
                expect(byte, b'\r', Refusal::ChunkEnd)?;
                Ok(State::DataLf)
            }
            State::DataLf => {
                expect(byte, b'\n', Refusal::ChunkEnd)?;
                Ok(State::Size)
            }
            // `feed` handles these states itself.
            State::Data | State::Trailers => Ok(self.state),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, Refusal> {
        if let Some(digit) = hex_digit(byte) {
            // Leading zeros count, so that the size line is bounded.
            if self.digits == SIZE_DIGITS_MAX {
                return Err(Refusal::ChunkSize);
            }
            self.digits += 1;
            // Sixteen digits are exactly 64 bits: the shift loses none.
            self.chunk_left = self.chunk_left << 4 | u64::from(digit);
            return Ok(State::Size);
        }
        match byte {
            _ if self.digits == 0 => Err(Refusal::ChunkSize),
            b'\r' => Ok(State::SizeLf),
            b';' => self.spend(State::NameStart, Refusal::ChunkExtensionTooLong),
            // Bad whitespace before an extension (RFC 9112 §7.1.1): it counts as extension bytes, so it is bounded,
            // too.
            b' ' | b'\t' => self.spend(State::Space, Refusal::ChunkExtensionTooLong),
            _ => Err(Refusal::ChunkSize),
        }
    }

    /// A byte between the size and its CR (RFC 9112 §7.1.1).
    fn extension(&mut self, byte: u8) -> Result<State, Refusal> {
        let next = match (self.state, byte) {
            (State::Name | State::Value | State::QuotedEnd, b'\r') => return Ok(State::SizeLf),
            // Padding by servers; in a request it is refused, since another decoder may read it differently.
            (State::Space | State::NameSpace, b'\r') if self.is_response => {
                return Ok(State::SizeLf);
            }
            (
                State::Space | State::Name | State::NameSpace | State::Value | State::QuotedEnd,
                b';',
            ) => State::NameStart,
            (State::Name | State::NameSpace, b'=') => State::ValueStart,
            (State::Name, b' ' | b'\t') => State::NameSpace,
            (State::Value | State::QuotedEnd, b' ' | b'\t') => State::Space,
            (
                same @ (State::Space | State::NameStart | State::NameSpace | State::ValueStart),
                b' ' | b'\t',
            ) => same,
            (State::ValueStart, b'"') => State::Quoted,
            (State::Quoted, b'"') => State::QuotedEnd,
            (State::Quoted, b'\\') => State::Escaped,
            // RFC 9110 §5.6.4: any value byte, or an escaped one.
            (State::Quoted | State::Escaped, _) if scan::is(byte, VALUE) => State::Quoted,
            (State::NameStart | State::Name, _) if scan::is(byte, TOKEN) => State::Name,
            (State::ValueStart | State::Value, _) if scan::is(byte, TOKEN) => State::Value,
            _ => return Err(Refusal::ChunkExtension),
        };
        self.spend(next, Refusal::ChunkExtensionTooLong)
    }

    /// Checks the size against the body limit and selects data or trailers.
    fn size_is_known(&mut self) -> Result<State, Refusal> {
        self.digits = 0;
        if self.chunk_left == 0 {
            return Ok(State::Trailers);
        }
        self.budget = self.extension_len_max;
        // Checked before the data arrives: a chunk that is too long is refused at once.
        match self.body_left.checked_sub(self.chunk_left) {
            Some(left) => self.body_left = left,
            None => return Err(Refusal::BodyTooLarge),
        }
        Ok(State::Data)
    }

    /// Moves to `next` and charges one byte to the extension budget.
    fn spend(&mut self, next: State, otherwise: Refusal) -> Result<State, Refusal> {
        self.budget = self.budget.checked_sub(1).ok_or(otherwise)?;
        Ok(next)
    }
}

fn expect(byte: u8, expected: u8, otherwise: Refusal) -> Result<(), Refusal> {
    if byte == expected {
        Ok(())
    } else {
        Err(otherwise)
    }
}

#[cfg(test)]
mod tests;
