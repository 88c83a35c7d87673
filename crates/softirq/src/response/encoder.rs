//! Encodes an origin's response into the bytes to publish. Independent of packets and of storability.
//!
//! Fields of the origin's connection are removed, and those for the client's connection are added; all others stay
//! unchanged and in order. See RFC 9110 §7.6.1 and RFC 9112 §9.

use crate::response::fetched_response::FetchedResponse;
use lowroad_http::date;
use lowroad_wire::key::ConnectionClass;
use std::fmt;

/// Length of Date's value, which the programs overwrite in each transmission.
const DATE_LEN: usize = 29;
/// Placeholder of Age's value: five digits, enough for a little more than a day.
const AGE: &[u8] = b"00000";

/// A response in the form in which it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedResponse {
    /// Head and body.
    pub bytes: Vec<u8>,
    /// Offset of the body; a HEAD request is answered with the bytes before it.
    pub head_len: u16,
    /// Offset of Date's value, which has 29 bytes.
    pub date_at: Option<u16>,
    /// Offset of Age's value, which has five digits.
    pub age_at: Option<u16>,
    /// The status.
    pub status: u16,
}

/// Options of the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareOptions {
    /// The class of the client's connection.
    pub class: ConnectionClass,
    /// Whether an Age field replaces the origin's. Yes for a cache, no for an origin server.
    pub with_age: bool,
    /// Maximum length of head and body.
    pub len_max: usize,
}

/// The reason for which a response can't be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrepareError {
    /// The response would exceed the length limit.
    TooLong {
        /// Length of head and body.
        len: usize,
        /// The limit.
        len_max: usize,
    },
    /// The status code does not have three digits, or is an interim one.
    Status(u16),
    /// The reason phrase, a field name or a field value contains an invalid byte.
    Field,
    /// Content-Length differs from the length of the body.
    Length,
    /// A 204 or 304 with a body.
    BodyNotAllowed,
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrepareError::TooLong { len, len_max } => write!(
                f,
                "the response has {len} bytes with its head; at most {len_max} are sent from here"
            ),
            PrepareError::Status(status) => write!(f, "{status} is not a final status"),
            PrepareError::Field => f.write_str("the head contains an invalid byte"),
            PrepareError::Length => {
                f.write_str("Content-Length differs from the length of the body")
            }
            PrepareError::BodyNotAllowed => {
                f.write_str("the response has a body, which its status forbids")
            }
        }
    }
}

impl std::error::Error for PrepareError {}

/// Encodes the response for one class of connections. Adds a Date if the response has none that can be overwritten.
///
/// # Errors
/// If the response is too long or invalid.
pub fn prepare(
    response: &FetchedResponse,
    options: &PrepareOptions,
) -> Result<EncodedResponse, PrepareError> {
    check(response)?;
    let mut head = HeadDraft::new(response);
    // The fields keep the origin's order, which is significant for field lines of the same name (RFC 9110 §5.3).
    for (name, value) in response.fields() {
        head.copy(response, options, name, value)?;
    }
    head.add_missing(response, options);
    let HeadDraft {
        mut bytes,
        date_at,
        age_at,
        ..
    } = head;
    let head_len = bytes.len();
    bytes.extend_from_slice(&response.body);
    // Offsets have 16 bits, regardless of the operator's limit.
    let len_max = options.len_max.min(usize::from(u16::MAX));
    if bytes.len() > len_max {
        return Err(PrepareError::TooLong {
            len: bytes.len(),
            len_max,
        });
    }
    let offset = |at: usize| u16::try_from(at).expect("within the length that was checked");
    Ok(EncodedResponse {
        bytes,
        head_len: offset(head_len),
        date_at: date_at.map(offset),
        age_at: age_at.map(offset),
        status: response.status,
    })
}

impl EncodedResponse {
    /// Whether both responses are sent as the same bytes, apart from the date.
    pub fn is_same_as(&self, other: &EncodedResponse) -> bool {
        let shape = |p: &EncodedResponse| (p.head_len, p.date_at, p.age_at, p.status);
        shape(self) == shape(other) && self.without_date() == other.without_date()
    }

    /// The bytes before Date's value and after it.
    fn without_date(&self) -> (&[u8], &[u8]) {
        match self.date_at.map(usize::from) {
            Some(at) => (&self.bytes[..at], &self.bytes[at + DATE_LEN..]),
            None => (&self.bytes, &[]),
        }
    }
}

/// The head under construction.
struct HeadDraft {
    bytes: Vec<u8>,
    date_at: Option<usize>,
    age_at: Option<usize>,
    has_length: bool,
}

impl HeadDraft {
    fn new(response: &FetchedResponse) -> HeadDraft {
        let mut bytes = format!("HTTP/1.1 {} ", response.status).into_bytes();
        bytes.extend_from_slice(&response.reason);
        bytes.extend_from_slice(b"\r\n");
        HeadDraft {
            bytes,
            date_at: None,
            age_at: None,
            has_length: false,
        }
    }

    /// Copies a field of the response, unless it must be dropped.
    fn copy(
        &mut self,
        response: &FetchedResponse,
        options: &PrepareOptions,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), PrepareError> {
        let is_named = |candidate: &str| name.eq_ignore_ascii_case(candidate.as_bytes());
        // The programs write the current age, which includes the origin's.
        if is_hop_by_hop(response, name) || (options.with_age && is_named("age")) {
            return Ok(());
        }
        if is_named("content-length") {
            return self.copy_length(response, name, value);
        }
        if is_named("date") {
            self.copy_date(name, value);
            return Ok(());
        }
        self.write_field(name, value);
        Ok(())
    }

    fn copy_length(
        &mut self,
        response: &FetchedResponse,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), PrepareError> {
        match response.status {
            // A 304 may carry the Content-Length of the corresponding 200 (RFC 9110 §8.6).
            304 if !self.has_length => {}
            204 | 304 => return Ok(()),
            // With a wrong length, the client would misread where the next response begins.
            _ if decimal(value) != Some(response.body.len()) => return Err(PrepareError::Length),
            // Repeated equal values are merged into one (RFC 9112 §6.3).
            _ if self.has_length => return Ok(()),
            _ => {}
        }
        self.has_length = true;
        self.write_field(name, value);
        Ok(())
    }

    /// Keeps the first Date with a value that can be overwritten, and drops others.
    fn copy_date(&mut self, name: &[u8], value: &[u8]) {
        // Values in the two obsolete formats never have 29 bytes with a comma after the day's name.
        let fits = value.len() == DATE_LEN && value[3] == b',' && date::parse(value, 0).is_some();
        if self.date_at.is_none() && fits {
            self.date_at = Some(self.write_field(name, value));
        }
    }

    /// Adds the fields that the client's connection needs, and the empty line.
    fn add_missing(&mut self, response: &FetchedResponse, options: &PrepareOptions) {
        let is_bodiless = matches!(response.status, 204 | 304);
        if !self.has_length && !is_bodiless {
            let len = response.body.len().to_string();
            self.write_field(b"Content-Length", len.as_bytes());
        }
        // The programs overwrite Date in each transmission, so it must exist.
        if self.date_at.is_none() {
            let now = date::format(response.at_unix_secs);
            self.date_at = Some(self.write_field(b"Date", &now));
        }
        if options.with_age {
            self.age_at = Some(self.write_field(b"Age", AGE));
        }
        // HTTP/1.1 connections persist by default, HTTP/1.0 connections only with this option (RFC 9112 §9.3).
        if options.class.closes() {
            self.write_field(b"Connection", b"close");
        } else if options.class.is_http10() {
            self.write_field(b"Connection", b"keep-alive");
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Writes a field line. Returns the offset of its value.
    fn write_field(&mut self, name: &[u8], value: &[u8]) -> usize {
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        value_at
    }
}

fn check(response: &FetchedResponse) -> Result<(), PrepareError> {
    if !(200..1000).contains(&response.status) {
        return Err(PrepareError::Status(response.status));
    }
    // Responses with these statuses have no content (RFC 9110 §6.4.1).
    if matches!(response.status, 204 | 304) && !response.body.is_empty() {
        return Err(PrepareError::BodyNotAllowed);
    }
    // Control characters except HTAB are invalid (RFC 9110 §5.5).
    let ends_line = |b: &u8| matches!(b, 0..0x20 | 0x7f) && *b != b'\t';
    let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(|b| b.is_ascii_graphic());
    let is_valid = |(name, value): (&[u8], &[u8])| {
        is_name(name) && !name.contains(&b':') && !value.iter().any(ends_line)
    };
    if response.reason.iter().any(ends_line) || !response.fields().all(is_valid) {
        return Err(PrepareError::Field);
    }
    Ok(())
}

/// Whether a field is hop-by-hop: it belongs to the origin's connection.
fn is_hop_by_hop(response: &FetchedResponse, name: &[u8]) -> bool {
    const KNOWN: [&str; 6] = [
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let is_named = |candidate: &[u8]| name.eq_ignore_ascii_case(candidate);
    let is_proxy = name
        .get(..6)
        .is_some_and(|s| s.eq_ignore_ascii_case(b"proxy-"));
    // Fields named by Connection are hop-by-hop, too (RFC 9110 §7.6.1).
    let is_named_by = |(_, options): (&[u8], &[u8])| {
        let mut options = options.split(|b| *b == b',');
        options.any(|option| is_named(option.trim_ascii()))
    };
    let mut connection = response
        .fields()
        .filter(|(other, _)| other.eq_ignore_ascii_case(b"connection"));
    is_proxy
        || KNOWN.iter().any(|candidate| is_named(candidate.as_bytes()))
        || connection.any(is_named_by)
}

fn decimal(digits: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(digits).ok()?;
    let all_digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| all_digits)
}

#[cfg(test)]
mod tests;
