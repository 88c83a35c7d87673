//! Parses a response incrementally until it is complete. Independent of connections.

use super::FetchLimits;
use crate::response::FetchError;
use crate::response::fetched_response::FetchedResponse;
use lowroad_http::h1::{BodyLen, H1Client, H1ClientEvent, H1ResponseHead, ResponseFault};
use lowroad_http::version::HttpVersion;
use lowroad_http::{Method, RequestLimits as HttpLimits, RequestRefusal};

/// The response to one request.
pub(super) struct IncomingResponse {
    client: H1Client,
    limits: HttpLimits,
    fetched: FetchedResponse,
}

impl IncomingResponse {
    /// Writes a GET for this target with these field lines to `out`, and returns the parser of its response.
    pub(super) fn to_get(
        target: &[u8],
        lines: &[u8],
        limits: FetchLimits,
        out: &mut Vec<u8>,
    ) -> IncomingResponse {
        let mut client = H1Client::default();
        // Can't fail: the connection is new, and the request has no body.
        let _ = client.request(Method::Get, target, lines, BodyLen::None, out);
        IncomingResponse {
            client,
            limits: HttpLimits {
                head_len_max: limits.head_len_max,
                body_len_max: limits.body_len_max as u64,
                ..HttpLimits::default()
            },
            fetched: FetchedResponse {
                status: 0,
                reason: Vec::new(),
                fields: Vec::new(),
                body: Vec::new(),
                at_unix_secs: 0,
            },
        }
    }

    /// Consumes bytes of the response from the start of `bytes`. Returns true once the response is complete.
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>) -> Result<bool, FetchError> {
        loop {
            let step = self.client.next(bytes, &self.limits);
            let step = step.map_err(|fault| error(fault, &self.limits))?;
            let is_idle = step.used == 0;
            match step.event {
                // The response is left to the server, which sends it to clients unchanged.
                Some(H1ClientEvent::RepairableHead | H1ClientEvent::RepairableTrailers) => {
                    return Err(FetchError::Malformed("its field lines are irregular"));
                }
                Some(H1ClientEvent::Interim(_)) => {}
                Some(H1ClientEvent::Upgraded(_)) => {
                    return Err(error(ResponseFault::Upgrade, &self.limits));
                }
                Some(H1ClientEvent::Response(head)) => take_head(&mut self.fetched, &head)?,
                Some(H1ClientEvent::Data(data)) => self.fetched.body.extend_from_slice(data),
                Some(H1ClientEvent::End { .. }) => {
                    bytes.drain(..step.used);
                    return Ok(true);
                }
                None if is_idle => return Ok(false),
                None => {}
            }
            // Copied, since `step` borrows the bytes that are drained below.
            let used = step.used;
            // A body that ends with the connection can't be distinguished from a truncated body.
            if self.client.is_unframed() {
                return Err(FetchError::Unframed);
            }
            bytes.drain(..used);
        }
    }

    /// Whether the connection can be reused.
    pub(super) fn keeps_connection(&self) -> bool {
        self.client.is_idle()
    }

    /// The complete response, stamped with the time of its arrival.
    pub(super) fn fetched(self, at_unix_secs: u64) -> FetchedResponse {
        FetchedResponse {
            at_unix_secs,
            ..self.fetched
        }
    }
}

fn take_head(fetched: &mut FetchedResponse, head: &H1ResponseHead<'_>) -> Result<(), FetchError> {
    if head.version != HttpVersion::Http11 {
        return Err(FetchError::Version);
    }
    if has_doubtful_length(head) {
        return Err(FetchError::Malformed("the head is irregular"));
    }
    fetched.status = head.status.code();
    fetched.reason = head.reason.to_vec();
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    fetched.fields = head.fields.clone().map(owned).collect();
    Ok(())
}

/// Whether Content-Length is a list or stands beside Transfer-Encoding (RFC 9112 §6.3). Such responses are left to the
/// server.
fn has_doubtful_length(head: &H1ResponseHead<'_>) -> bool {
    let has_coding = || {
        let mut names = head.fields.clone().map(|(name, _)| name);
        names.any(|name| name.eq_ignore_ascii_case(b"transfer-encoding"))
    };
    let mut lengths = head
        .fields
        .clone()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
    lengths.any(|(_, value)| value.contains(&b',') || has_coding())
}

fn error(fault: ResponseFault, limits: &HttpLimits) -> FetchError {
    match fault {
        ResponseFault::Version => FetchError::Version,
        ResponseFault::Malformed(RequestRefusal::HeadTooLarge) => FetchError::HeadTooLong {
            len_max: limits.head_len_max,
        },
        ResponseFault::Malformed(RequestRefusal::BodyTooLarge) => FetchError::TooLong {
            len_max: usize::try_from(limits.body_len_max).unwrap_or(usize::MAX),
        },
        ResponseFault::Truncated => FetchError::Closed,
        other => FetchError::Malformed(other.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Randomly damaged responses are parsed, rejected or incomplete, and never read past their end.
    #[test]
    fn randomly_damaged_responses_are_parsed_or_rejected() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\
                      X: y\r\n\r\nbody";
        let mut state = 88_172_645_463_325_252_u64;
        let (mut complete, mut refused) = (0, 0);
        for _ in 0..50_000 {
            let mut bytes = whole.to_vec();
            for _ in 0..2 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [at, value, what, ..] = state.to_le_bytes();
                let at = usize::from(at) % bytes.len();
                match what % 4 {
                    0 => bytes[at] = value,
                    1 => drop(bytes.remove(at)),
                    2 => bytes.insert(at, b"\r\n :,"[usize::from(value) % 5]),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let mut response =
                IncomingResponse::to_get(b"/", b"", FetchLimits::default(), &mut Vec::new());
            match response.take(&mut bytes) {
                Ok(true) => {
                    complete += 1;
                    let fetched = response.fetched(0);
                    assert!((200..1000).contains(&fetched.status));
                }
                Ok(false) => {}
                Err(_) => refused += 1,
            }
        }
        assert!(complete > 100 && refused > 100, "{complete} {refused}");
    }
}
