//! Request bodies: no resource uses them, but their end must be found, since the next request begins there.

use lowroad_http::h1::H1RequestHead;
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::{BodyFraming, BodyReader};
use lowroad_net::WAITING_MAX;

/// How the body of a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyHandling {
    /// The body is complete in the input.
    Complete {
        /// The end of the body in the input.
        end: usize,
    },
    /// The body is incomplete, but fits into the input buffer.
    Incomplete {
        /// The end of the body in the input.
        end: usize,
    },
    /// The body is not read, so the connection is closed after the response.
    Unread,
}

/// Finds the body of a request; `input` begins with the head. The body of GET or HEAD is skipped, as in `lowroad
/// serve`, if it fits into the input buffer. An incomplete chunked body is not waited for, since it would be parsed
/// again after each part.
///
/// # Errors
/// If the body is longer than allowed, or its chunks are malformed.
#[cold]
pub fn find(
    head: &H1RequestHead<'_>,
    input: &[u8],
    limits: &RequestLimits,
) -> Result<BodyHandling, RequestRefusal> {
    let mut reader = BodyReader::new(head.framing, limits)?;
    // Other methods get an error, or a page that reads no body; the connection is closed.
    if !matches!(head.request.method, Method::Get | Method::Head) {
        return Ok(BodyHandling::Unread);
    }
    // If the length is known and the body fits into the buffer, the server can wait for the rest.
    if let BodyFraming::Length(len) = head.framing {
        let end = head
            .len
            .saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        return Ok(match end {
            _ if end <= input.len() => BodyHandling::Complete { end },
            // A client that sends Expect: 100-continue may not send the body before it gets 100 (Continue).
            _ if end <= WAITING_MAX && !head.expect_continue => BodyHandling::Incomplete { end },
            _ => BodyHandling::Unread,
        });
    }
    let mut end = head.len;
    loop {
        let chunk = reader.feed(input.get(end..).unwrap_or_default())?;
        end += chunk.consumed;
        if chunk.done {
            return Ok(BodyHandling::Complete { end });
        }
        // The chunked body is incomplete. It is not waited for, since the whole body would be parsed again.
        if chunk.consumed == 0 {
            return Ok(BodyHandling::Unread);
        }
    }
}
