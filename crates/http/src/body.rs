//! Request bodies as they come off the connection, with their framing taken away. It knows nothing
//! of what the bytes mean or where they go.
//!
//! ```text
//! Framing::None ───────────────────────────────────────────► Done
//! Framing::Length(n) ──► Length { left } ── left == 0 ─────► Done
//! Framing::Chunked ────► Chunked(state, see `chunked`) ────► Done
//! ```
//!
//! Read RFC 9112 §6 and §7.1.

use crate::chunked::Chunked;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// How a body is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// Content-Length, which may be 0.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

impl Framing {
    /// The length of the body in bytes, if that is known before it has come.
    #[must_use]
    pub const fn body_len(self) -> Option<u64> {
        match self {
            Framing::None => Some(0),
            Framing::Length(len) => Some(len),
            Framing::Chunked => None,
        }
    }

    /// Whether there is a body, which may turn out to be empty.
    #[must_use]
    pub const fn has_body(self) -> bool {
        !matches!(self, Framing::None | Framing::Length(0))
    }
}

/// Takes one request body off a stream of bytes. Small (40 bytes at most), since every connection
/// holds one.
#[derive(Clone, Debug)]
pub struct BodyReader(State);

#[derive(Clone, Debug)]
enum State {
    Done,
    /// More than 0 bytes are to come.
    Length(u64),
    Chunked(Chunked),
}

/// What [`BodyReader::feed`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed<'i> {
    /// Bytes of the input used up, framing included.
    pub consumed: usize,
    /// The decoded body bytes among them, in one piece. May be empty when `consumed` is not 0.
    pub data: &'i [u8],
    /// With `done`, the trailers: field lines with their CRLFs, validated.
    pub trailers: &'i [u8],
    /// The body has ended; what follows `consumed` belongs to the next request.
    pub done: bool,
}

impl<'i> Fed<'i> {
    /// Nothing.
    pub(crate) const NOTHING: Fed<'static> = Fed {
        consumed: 0,
        data: &[],
        trailers: &[],
        done: false,
    };

    /// So many bytes of framing.
    pub(crate) fn framing(consumed: usize) -> Fed<'i> {
        Fed {
            consumed,
            ..Fed::NOTHING
        }
    }
}

impl BodyReader {
    /// A reader for a body with this framing.
    ///
    /// # Errors
    /// `BodyTooLarge` if the announced length is over the limit; that of chunks is found on the way.
    pub fn new(framing: Framing, limits: &Limits) -> Result<BodyReader, Refusal> {
        Ok(BodyReader(match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(len) if len > limits.body_len_max => return Err(Refusal::BodyTooLarge),
            Framing::Length(len) => State::Length(len),
            Framing::Chunked => State::Chunked(Chunked::new(limits)),
        }))
    }

    /// A reader for the chunks of a response, where whitespace may follow a size.
    pub(crate) fn of_response_chunks(limits: &Limits) -> BodyReader {
        BodyReader(State::Chunked(Chunked::of_response(limits)))
    }

    /// Bytes of the body still to come, if its length was announced.
    pub fn left(&self) -> Option<u64> {
        match self.0 {
            State::Done => Some(0),
            State::Length(left) => Some(left),
            State::Chunked(_) => None,
        }
    }

    /// Whether the whole body has been taken.
    pub fn is_done(&self) -> bool {
        matches!(self.0, State::Done)
    }

    /// Takes bytes from the start of `input`: framing, and at most one run of body bytes. Call it
    /// again with what follows until `consumed` is 0 or `done` is set; never takes a byte beyond
    /// the end of the body. What was not taken is given again, with what follows it: a trailer section is taken whole.
    ///
    /// # Errors
    /// The framing is wrong or over a limit. The connection must close, and the reader must not be
    /// fed again.
    pub fn feed<'i>(&mut self, input: &'i [u8]) -> Result<Fed<'i>, Refusal> {
        let fed = match &mut self.0 {
            State::Done => Fed {
                done: true,
                ..Fed::NOTHING
            },
            State::Length(left) => feed_length(left, input),
            State::Chunked(chunked) => chunked.feed(input)?,
        };
        if fed.done {
            self.0 = State::Done;
        }
        Ok(fed)
    }
}

fn feed_length<'i>(left: &mut u64, input: &'i [u8]) -> Fed<'i> {
    let data = take(*left, input);
    *left -= data.len() as u64;
    Fed {
        consumed: data.len(),
        data,
        trailers: &[],
        done: *left == 0,
    }
}

/// At most `len` bytes from the start of `input`.
pub(crate) fn take(len: u64, input: &[u8]) -> &[u8] {
    // A length that does not fit into usize is longer than any slice.
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    input.get(..len).unwrap_or(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(framing: Framing) -> BodyReader {
        BodyReader::new(framing, &Limits::default()).expect("within limits")
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<BodyReader>() <= 40);
    }

    #[test]
    fn no_body_is_done_at_once_and_takes_nothing() {
        for framing in [Framing::None, Framing::Length(0)] {
            let mut body = reader(framing);
            assert!(body.is_done());
            let fed = body.feed(b"GET / HTTP/1.1").expect("nothing to refuse");
            assert_eq!(
                (fed.consumed, fed.data, fed.done),
                (0, b"".as_slice(), true)
            );
        }
    }

    #[test]
    fn a_length_ends_exactly_where_it_says() {
        let mut body = reader(Framing::Length(5));
        let fed = body.feed(b"abc").expect("body");
        assert_eq!(
            (fed.consumed, fed.data, fed.done),
            (3, b"abc".as_slice(), false)
        );
        let fed = body.feed(b"").expect("body");
        assert_eq!((fed.consumed, fed.done), (0, false));
        assert!(!body.is_done());
        let fed = body.feed(b"deGET").expect("body");
        assert_eq!(
            (fed.consumed, fed.data, fed.done),
            (2, b"de".as_slice(), true)
        );
        assert!(body.is_done());
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_read() {
        let limits = Limits {
            body_len_max: 10,
            ..Limits::default()
        };
        assert!(BodyReader::new(Framing::Length(10), &limits).is_ok());
        let refused = BodyReader::new(Framing::Length(11), &limits);
        assert_eq!(refused.map(|_| ()), Err(Refusal::BodyTooLarge));
        let refused = BodyReader::new(Framing::Length(u64::MAX), &limits);
        assert_eq!(refused.map(|_| ()), Err(Refusal::BodyTooLarge));
    }
}
