//! The chunked transfer coding, decoded. It knows nothing of the connection; it is fed through
//! [`crate::body::BodyReader`].
//!
//! ```text
//!  ┌──────────────────────────────── data ends ─── DataCr ─► DataLf ◄┐
//!  ▼                                                                 │
//! Size ── ; ──► Extension ◄─ " ─► Quoted ◄─ \ ─► Escaped             │
//!  │ CR            │ CR                                              │
//!  └──► SizeLf ◄───┘ ── size > 0 ──► Data ───────────────────────────┘
//!         └─ size == 0 ─► Trailer ── CR ─► EndLf ─► done
//!                          ▲ └─► TrailerName ── : ─► TrailerValue ── CR ─► TrailerLf ┐
//!                          └───────────────────────────────────────────────────────┘
//! ```
//!
//! Every line end is CRLF, nothing stands between a size and its CRLF but extensions, and trailers
//! are checked like fields and thrown away. A decoder that is more lenient than the next one lets
//! requests be smuggled (RFC 9112 §11.2). Read RFC 9112 §7.1.

use crate::body::{self, Fed};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::scan::{self, TOKEN, VALUE};
use crate::target::hex_digit;

/// Most digits of a chunk size.
const SIZE_DIGITS_MAX: u8 = 16;

/// The decoder of one body.
#[derive(Clone, Debug)]
pub(crate) struct Chunked {
    /// The size of the current chunk while it is read, then its bytes still to come.
    chunk_left: u64,
    /// Body bytes that may still be announced.
    body_left: u64,
    /// Extension bytes that each chunk may have.
    extension_len_max: u32,
    /// Extension bytes that this chunk may still have, and from the last chunk on the bytes that
    /// the trailer section may still have.
    budget: u32,
    /// Bytes that the trailer section may have.
    trailers_len_max: u32,
    /// Digits of the size read so far, `0 <= digits <= SIZE_DIGITS_MAX`.
    digits: u8,
    state: State,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A digit of the size, or what ends it.
    Size,
    /// Whitespace after the size, which must lead to a `;`.
    SizeSpace,
    Extension,
    Quoted,
    Escaped,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The start of a trailer line, or the CR of the empty line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
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
            state: State::Size,
        }
    }

    /// See [`crate::body::BodyReader::feed`].
    pub(crate) fn feed<'i>(&mut self, input: &'i [u8]) -> Result<Fed<'i>, Refusal> {
        for (at, byte) in input.iter().enumerate() {
            if self.state == State::Data {
                return Ok(self.data(at, input.get(at..).unwrap_or_default()));
            }
            if self.state == State::EndLf {
                expect(*byte, b'\n', Refusal::TrailerInvalid)?;
                return Ok(Fed {
                    consumed: at + 1,
                    data: &[],
                    done: true,
                });
            }
            self.state = self.step(*byte)?;
        }
        Ok(Fed {
            consumed: input.len(),
            data: &[],
            done: false,
        })
    }

    /// Takes data from the start of `rest`, before which `at` bytes of framing were taken.
    fn data<'i>(&mut self, at: usize, rest: &'i [u8]) -> Fed<'i> {
        let data = body::take(self.chunk_left, rest);
        self.chunk_left -= data.len() as u64;
        if self.chunk_left == 0 {
            self.state = State::DataCr;
        }
        Fed {
            consumed: at + data.len(),
            data,
            done: false,
        }
    }

    /// Takes one byte of framing and gives the next state.
    fn step(&mut self, byte: u8) -> Result<State, Refusal> {
        match self.state {
            State::Size => self.size(byte),
            State::SizeSpace | State::Extension | State::Quoted | State::Escaped => {
                self.extension(byte)
            }
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
            State::Trailer | State::TrailerName | State::TrailerValue | State::TrailerLf => {
                self.trailer(byte)
            }
            // `feed` deals with these itself.
            State::Data | State::EndLf => Ok(self.state),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, Refusal> {
        if let Some(digit) = hex_digit(byte) {
            if self.digits == SIZE_DIGITS_MAX {
                return Err(Refusal::ChunkSize);
            }
            self.digits += 1;
            // Sixteen digits fit exactly.
            self.chunk_left = self.chunk_left << 4 | u64::from(digit);
            return Ok(State::Size);
        }
        match byte {
            _ if self.digits == 0 => Err(Refusal::ChunkSize),
            b'\r' => Ok(State::SizeLf),
            b';' => self.spend(State::Extension, Refusal::ChunkExtensionTooLong),
            b' ' | b'\t' => self.spend(State::SizeSpace, Refusal::ChunkExtensionTooLong),
            _ => Err(Refusal::ChunkSize),
        }
    }

    /// A byte between the size and its CR.
    fn extension(&mut self, byte: u8) -> Result<State, Refusal> {
        let next = match (self.state, byte) {
            (State::SizeSpace, b';') => State::Extension,
            (State::SizeSpace, b' ' | b'\t') => State::SizeSpace,
            (State::SizeSpace, _) => return Err(Refusal::ChunkSize),
            (State::Extension, b'\r') => return Ok(State::SizeLf),
            (State::Extension, b'"') | (State::Escaped, _) => State::Quoted,
            (State::Quoted, b'"') => State::Extension,
            (State::Quoted, b'\\') => State::Escaped,
            (same, _) => same,
        };
        if !scan::is(byte, VALUE) {
            return Err(Refusal::ChunkExtension);
        }
        self.spend(next, Refusal::ChunkExtensionTooLong)
    }

    /// The line with the size is complete.
    fn size_is_known(&mut self) -> Result<State, Refusal> {
        self.digits = 0;
        if self.chunk_left == 0 {
            self.budget = self.trailers_len_max;
            return Ok(State::Trailer);
        }
        self.budget = self.extension_len_max;
        match self.body_left.checked_sub(self.chunk_left) {
            Some(left) => self.body_left = left,
            None => return Err(Refusal::BodyTooLarge),
        }
        Ok(State::Data)
    }

    /// A byte of the trailer section up to the CR of the empty line.
    fn trailer(&mut self, byte: u8) -> Result<State, Refusal> {
        let next = match (self.state, byte) {
            (State::Trailer, b'\r') => return Ok(State::EndLf),
            (State::Trailer | State::TrailerName, _) if scan::is(byte, TOKEN) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if scan::is(byte, VALUE) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::Trailer,
            _ => return Err(Refusal::TrailerInvalid),
        };
        self.spend(next, Refusal::TrailersTooLarge)
    }

    /// Goes on to `next` at the expense of one byte of the budget.
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
