//! Field sections of HTTP/2 and HTTP/3, after their decoding: requests, response heads and trailers. The rules are the
//! same for both versions (RFC 9113 §8, RFC 9114 §4).

mod message;
mod request_fields;
mod request_head;

pub(crate) use self::message::{DiscardSink, ResponseFieldSink, is_end_to_end};
pub(crate) use self::request_fields::RequestFieldSink;
pub(crate) use self::request_head::FieldSpans;
pub use self::request_head::StreamRequestHead;
use crate::limits::RequestLimits;
use crate::refusal::RequestRefusal;

/// The settings that decide about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRules<'s> {
    pub(crate) limits: &'s RequestLimits,
    /// Bytes of a field section, counted as in RFC 9113 §6.5.2 and RFC 9114 §4.2.2.
    pub(crate) section_len_max: usize,
    /// Whether extended CONNECT is supported.
    pub(crate) accepts_connect_protocol: bool,
}

/// Why a field section is not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MalformedRequest {
    /// Malformed: a stream error PROTOCOL_ERROR (RFC 9113 §8.1.1) or H3_MESSAGE_ERROR (RFC 9114 §4.1.2).
    Malformed(&'static str),
    /// Refused: answered with the refusal's status.
    Refused(RequestRefusal),
}

/// A range of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextSpan {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl TextSpan {
    pub(super) fn slice(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.start + self.len)
            .unwrap_or_default()
    }
}
