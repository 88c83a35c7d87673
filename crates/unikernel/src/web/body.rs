//! Request bodies, which are never used: finds the end of one, so that the next request is found behind it.

use lowroad_http::h1::H1RequestHead;
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::{BodyFraming, BodyReader};
use lowroad_net::WAITING_MAX;

/// How a request's body is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyHandling {
    /// It is complete in the input.
    Here {
        /// The end of head and body.
        end: usize,
    },
    /// It is incomplete, and the input has room for all of it.
    Coming {
        /// The end of head and body.
        end: usize,
    },
    /// It is not read; the connection closes with the response.
    Unread,
}

/// Finds the body of a request in the input that begins with its head. A body of GET or HEAD is dropped, as in
/// `lowroad serve`, if it fits the input; incomplete chunked bodies are not awaited, since each part would be parsed
/// again.
///
/// # Errors
/// The body is longer than allowed, or its chunks are malformed.
#[cold]
pub fn find(
    head: &H1RequestHead<'_>,
    input: &[u8],
    limits: &RequestLimits,
) -> Result<BodyHandling, RequestRefusal> {
    let mut reader = BodyReader::new(head.framing, limits)?;
    // Other methods are refused, or handled by pages that read no body; the connection closes.
    if !matches!(head.request.method, Method::Get | Method::Head) {
        return Ok(BodyHandling::Unread);
    }
    // Of known length: its end can be waited for, if it fits into the buffer.
    if let BodyFraming::Length(len) = head.framing {
        let end = head
            .len
            .saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        return Ok(match end {
            _ if end <= input.len() => BodyHandling::Here { end },
            // A client that expects 100 (Continue) may not send the body before.
            _ if end <= WAITING_MAX && !head.expect_continue => BodyHandling::Coming { end },
            _ => BodyHandling::Unread,
        });
    }
    let mut end = head.len;
    loop {
        let chunk = reader.feed(input.get(end..).unwrap_or_default())?;
        end += chunk.consumed;
        if chunk.done {
            return Ok(BodyHandling::Here { end });
        }
        // The chunked body is incomplete in this input.
        // Waiting would mean to read the whole body again each time.
        if chunk.consumed == 0 {
            return Ok(BodyHandling::Unread);
        }
    }
}
