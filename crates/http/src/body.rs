//! Decodes the framing of request bodies as they are received.
//!
//! ```text
//! BodyFraming::None ────────────────────────────────────────► Done
//! BodyFraming::Length(n) ──► Length(n) ── 0 bytes left ─────► Done
//! BodyFraming::Chunked ────► Chunked(state, see `chunked`) ─► Done
//! ```
//!
//! Read RFC 9112 §6 and §7.1.

use crate::chunked::ChunkedDecoder;
use crate::limits::RequestLimits;
use crate::refusal::RequestRefusal;

/// How a body is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// Content-Length, which may be 0.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

impl BodyFraming {
    /// The length of the body in bytes, if it is known in advance.
    #[must_use]
    pub const fn body_len(self) -> Option<u64> {
        match self {
            BodyFraming::None => Some(0),
            BodyFraming::Length(len) => Some(len),
            BodyFraming::Chunked => None,
        }
    }

    /// Whether there is a body, which may turn out to be empty.
    #[must_use]
    pub const fn has_body(self) -> bool {
        !matches!(self, BodyFraming::None | BodyFraming::Length(0))
    }
}

/// Reads one body from a sequence of bytes. At most 40 bytes, since each body that is being received has a reader.
#[derive(Clone, Debug)]
pub struct BodyReader(BodyReaderState);

#[derive(Clone, Debug)]
enum BodyReaderState {
    Done,
    /// The outstanding bytes, more than 0.
    Length(u64),
    Chunked(ChunkedDecoder),
}

/// The result of [`BodyReader::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedProgress<'i> {
    /// Bytes of the input consumed, framing included.
    pub consumed: usize,
    /// The decoded body bytes among the consumed ones, in one slice. May be empty when `consumed` is not 0.
    pub data: &'i [u8],
    /// If `done` is set, the trailers: validated field lines with their CRLFs.
    pub trailers: &'i [u8],
    /// The body has ended; the bytes after `consumed` belong to the next request.
    pub done: bool,
}

impl<'i> FeedProgress<'i> {
    /// No bytes consumed.
    pub(crate) const NOTHING: FeedProgress<'static> = FeedProgress {
        consumed: 0,
        data: &[],
        trailers: &[],
        done: false,
    };

    /// Only framing consumed.
    pub(crate) fn framing(consumed: usize) -> FeedProgress<'i> {
        FeedProgress {
            consumed,
            ..FeedProgress::NOTHING
        }
    }
}

impl BodyReader {
    /// A reader for a body with this framing.
    ///
    /// # Errors
    /// `BodyTooLarge` if the announced length exceeds the limit. The limit of a chunked body is checked while it is
    /// read.
    pub fn new(framing: BodyFraming, limits: &RequestLimits) -> Result<BodyReader, RequestRefusal> {
        Ok(BodyReader(match framing {
            BodyFraming::None | BodyFraming::Length(0) => BodyReaderState::Done,
            BodyFraming::Length(len) if len > limits.body_len_max => {
                return Err(RequestRefusal::BodyTooLarge);
            }
            BodyFraming::Length(len) => BodyReaderState::Length(len),
            BodyFraming::Chunked => BodyReaderState::Chunked(ChunkedDecoder::new(limits)),
        }))
    }

    /// A reader for the chunks of a response, where whitespace may follow a size.
    pub(crate) fn from_response_chunks(limits: &RequestLimits) -> BodyReader {
        BodyReader(BodyReaderState::Chunked(ChunkedDecoder::for_response(
            limits,
        )))
    }

    /// The outstanding bytes of the body, if its length was announced.
    pub fn remaining(&self) -> Option<u64> {
        match self.0 {
            BodyReaderState::Done => Some(0),
            BodyReaderState::Length(remaining) => Some(remaining),
            BodyReaderState::Chunked(_) => None,
        }
    }

    /// Whether the whole body was read.
    pub fn is_done(&self) -> bool {
        matches!(self.0, BodyReaderState::Done)
    }

    /// Consumes bytes from the start of `input`: framing, and at most one run of body bytes. Call `feed` again with the
    /// following bytes until `consumed` is 0 or `done` is set; it never consumes a byte beyond the end of the body.
    /// Unconsumed bytes must be passed again together with those that follow, since a trailer section is consumed in
    /// one call.
    ///
    /// # Errors
    /// The framing is malformed or exceeds a limit. The connection must close, and the reader must not be fed again.
    pub fn feed<'i>(&mut self, input: &'i [u8]) -> Result<FeedProgress<'i>, RequestRefusal> {
        let progress = match &mut self.0 {
            BodyReaderState::Done => FeedProgress {
                done: true,
                ..FeedProgress::NOTHING
            },
            BodyReaderState::Length(remaining) => feed_length(remaining, input),
            BodyReaderState::Chunked(chunked) => chunked.feed(input)?,
        };
        if progress.done {
            self.0 = BodyReaderState::Done;
        }
        Ok(progress)
    }
}

fn feed_length<'i>(remaining: &mut u64, input: &'i [u8]) -> FeedProgress<'i> {
    let data = take(*remaining, input);
    *remaining -= data.len() as u64;
    FeedProgress {
        consumed: data.len(),
        data,
        trailers: &[],
        done: *remaining == 0,
    }
}

/// At most `len` bytes from the start of `input`.
pub(crate) fn take(len: u64, input: &[u8]) -> &[u8] {
    // A length that does not fit into usize exceeds any slice.
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    input.get(..len).unwrap_or(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(framing: BodyFraming) -> BodyReader {
        BodyReader::new(framing, &RequestLimits::default()).expect("within limits")
    }

    #[test]
    fn body_reader_is_at_most_40_bytes() {
        assert!(size_of::<BodyReader>() <= 40);
    }

    #[test]
    fn reader_without_body_is_done_and_consumes_nothing() {
        // The bytes belong to the next request.
        for framing in [BodyFraming::None, BodyFraming::Length(0)] {
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
    fn content_length_body_ends_at_its_length() {
        let mut body = reader(BodyFraming::Length(5));
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
    fn content_length_over_limit_is_refused_before_reading() {
        // The client can be answered without receiving the body.
        let limits = RequestLimits {
            body_len_max: 10,
            ..RequestLimits::default()
        };
        assert!(BodyReader::new(BodyFraming::Length(10), &limits).is_ok());
        let refused = BodyReader::new(BodyFraming::Length(11), &limits);
        assert_eq!(refused.map(|_| ()), Err(RequestRefusal::BodyTooLarge));
        let refused = BodyReader::new(BodyFraming::Length(u64::MAX), &limits);
        assert_eq!(refused.map(|_| ()), Err(RequestRefusal::BodyTooLarge));
    }
}
