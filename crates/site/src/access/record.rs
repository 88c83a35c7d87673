//! The record of a request: its texts, assembled as in a record of the binary log.

use std::net::{IpAddr, Ipv4Addr};

use lowroad_access_control::passwords::BasicCredentials;
use lowroad_binary_log::batch::{HEADER_LEN, RecordHeader, append_assembled, append_record};
use lowroad_binary_log::limits::TEXT_LEN_MAX;
use lowroad_engine::Exchange;
use lowroad_http::h1::first_line;
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;
use lowroad_log::AccessEntry;

use super::outcome::{OutcomeWords, RequestOutcome};
use crate::access_details::RecordDetails;

/// The request line of a refused request, and its fields, are truncated to this length.
const LINE_LEN_MAX: usize = 1024;
/// The length of most records.
const RECORD_LEN: usize = 512;
/// The texts of a record: user, request line, host, Referer, User-Agent.
const TEXT_COUNT: usize = 5;

/// The record of a request, kept until its response is complete. Missing texts are empty.
pub struct AccessRecord {
    peer: IpAddr,
    pub(super) unix_ms: u64,
    pub(super) started_us: u64,
    status: u16,
    words: &'static OutcomeWords,
    /// The TLS version.
    tls: &'static str,
    /// Room for the header of a record of the binary log, and its words and texts, adjacent as there: such a record is
    /// written by one copy. The texts are: the authenticated user; the request line, in the form of HTTP/1 for every
    /// protocol; host; Referer; User-Agent.
    pub(super) parts: Vec<u8>,
    /// The start of the first text in `parts`, and the end of each text.
    bounds: [usize; TEXT_COUNT + 1],
    /// Only set if a log needs it.
    pub(super) details: RecordDetails,
}

/// The end of a response.
#[derive(Clone, Copy)]
pub(crate) struct ResponseEnd {
    /// Bytes of the body that were sent.
    pub(super) body_len: u64,
    /// False if the response was truncated.
    pub(super) is_complete: bool,
    /// Monotonic us.
    pub(super) now_us: u64,
}

impl AccessRecord {
    pub(super) fn new() -> AccessRecord {
        let mut parts = Vec::with_capacity(RECORD_LEN);
        parts.resize(HEADER_LEN, 0);
        AccessRecord {
            peer: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            unix_ms: 0,
            started_us: 0,
            status: 0,
            words: RequestOutcome::Generated.words(),
            tls: "",
            parts,
            bounds: [HEADER_LEN; TEXT_COUNT + 1],
            details: RecordDetails::default(),
        }
    }

    pub(super) fn set_exchange(
        &mut self,
        exchange: &Exchange,
        status: u16,
        outcome: RequestOutcome,
    ) {
        self.peer = exchange.peer;
        self.unix_ms = exchange.unix_s * 1000;
        self.started_us = exchange.started_us;
        self.status = status;
        self.words = outcome.words();
        // A record is reused: the header is overwritten, the texts of the last request are removed.
        self.parts.truncate(HEADER_LEN);
        self.parts.extend_from_slice(&self.words.joined);
        self.parts
            .truncate(HEADER_LEN + self.words.outcome.len() + self.words.level.len());
        self.tls = "";
        if let Some(tls) = &exchange.tls {
            self.tls = tls.version;
            self.parts.extend_from_slice(tls.version.as_bytes());
        }
        self.bounds[0] = self.parts.len();
    }

    pub(super) fn set_request(&mut self, request: &Request<'_>, exchange: &Exchange) {
        // Only a verified name is logged: otherwise clients could write any user name into the log.
        if exchange.is_user
            && let Some(credentials) = BasicCredentials::from_request(request)
        {
            self.parts.extend_from_slice(credentials.user.as_bytes());
        } else if let Some(user) = exchange
            .authentication
            .as_ref()
            .and_then(|it| it.user.as_ref())
        {
            self.parts.extend_from_slice(user.as_bytes());
        }
        let user_end = self.parts.len();
        self.push_line(
            request.method.as_str().as_bytes(),
            request.raw_target(),
            exchange,
        );
        let forwarded = exchange.forwarded.as_ref();
        let reported = forwarded.and_then(|it| it.authority.as_deref());
        self.set_fields(
            user_end,
            [
                reported.or(request.authority).unwrap_or_default(),
                request.referer().unwrap_or_default(),
                request.user_agent().unwrap_or_default(),
            ],
        );
    }

    /// Appends a request line in the form of HTTP/1.
    fn push_line(&mut self, method: &[u8], target: &[u8], exchange: &Exchange) {
        // Constants of known length are copied without a call.
        match method {
            b"GET" => self.parts.extend_from_slice(b"GET "),
            _ => {
                self.parts.extend_from_slice(method);
                self.parts.push(b' ');
            }
        }
        self.parts.extend_from_slice(target);
        self.parts.extend_from_slice(match exchange.protocol {
            HttpVersion::Http10 => b" HTTP/1.0",
            HttpVersion::Http11 => b" HTTP/1.1",
            HttpVersion::Http2 => b" HTTP/2.0",
            HttpVersion::Http3 => b" HTTP/3.0",
        });
    }

    /// Appends host, Referer and User-Agent after the request line.
    fn set_fields(&mut self, user_end: usize, fields: [&[u8]; 3]) {
        let line_end = self.parts.len();
        let [host_end, referer_end, user_agent_end] = fields.map(|field| {
            self.parts.extend_from_slice(field);
            self.parts.len()
        });
        let start = self.bounds[0];
        self.bounds = [
            start,
            user_end,
            line_end,
            host_end,
            referer_end,
            user_agent_end,
        ];
    }

    /// Appends the first line of input that is not a request.
    fn push_malformed(&mut self, input: &[u8]) {
        let line = first_line(input);
        // The input may be arbitrary, so only its beginning is logged.
        self.parts.extend_from_slice(beginning(line));
    }

    /// Sets the line for input that is not a request.
    pub(super) fn set_malformed(&mut self, input: &[u8]) {
        self.push_malformed(input);
        self.set_fields(self.bounds[0], [b""; 3]);
    }

    /// Sets the known parts of a refused request.
    pub(super) fn set_partial(&mut self, partial: &PartialRequest<'_>, exchange: &Exchange) {
        match partial.line.is_empty() && !partial.method.is_empty() {
            // HTTP/2 has no request line, so one is assembled.
            true => self.push_line(partial.method, beginning(partial.target), exchange),
            false => self.push_malformed(partial.line),
        }
        let fields = [partial.authority, partial.referer, partial.user_agent];
        self.set_fields(
            self.bounds[0],
            fields.map(|field| beginning(field.unwrap_or_default())),
        );
    }

    /// Replaces the status.
    pub(crate) fn set_status(&mut self, status: StatusCode) {
        self.status = status.code();
    }

    /// The memory of the record.
    pub(super) fn capacity(&self) -> usize {
        self.parts.capacity() + self.details.capacity()
    }

    /// The entry, for logs of lines.
    #[inline]
    pub(crate) fn entry(&self, end: ResponseEnd) -> AccessEntry<'_> {
        let text = |number: usize| &self.parts[self.bounds[number]..self.bounds[number + 1]];
        AccessEntry {
            peer: self.peer,
            user: text(0),
            unix_ms: self.unix_ms,
            line: text(1),
            host: text(2),
            status: self.status,
            body_bytes: end.body_len,
            whole: end.is_complete,
            referer: text(3),
            user_agent: text(4),
            duration_us: end.now_us.saturating_sub(self.started_us),
            outcome: self.words.outcome,
            level: self.words.level,
            tls: self.tls,
        }
    }

    /// Appends the record to a batch of the binary log.
    #[inline]
    pub(crate) fn append_to_batch(&mut self, end: ResponseEnd, batch: &mut Vec<u8>) {
        // If the record is shorter than the maximum of a text, each of its texts is. The words are short constants.
        if self.parts.len() > TEXT_LEN_MAX {
            return append_record(&self.entry(end), batch);
        }
        let bounds = &self.bounds;
        let header = RecordHeader {
            unix_ms: self.unix_ms,
            duration_us: end.now_us.saturating_sub(self.started_us),
            body_bytes: end.body_len,
            peer: self.peer,
            status: self.status,
            whole: end.is_complete,
            word_lens: [self.words.outcome, self.words.level, self.tls].map(|it| it.len() as u8),
            text_lens: [0, 1, 2, 3, 4].map(|text| (bounds[text + 1] - bounds[text]) as u16),
        };
        append_assembled(&header, &mut self.parts, batch);
    }
}

/// The beginning of a text of arbitrary length.
fn beginning(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LINE_LEN_MAX)]
}

#[cfg(test)]
mod tests {
    use lowroad_engine::ListenerId;

    use super::*;

    const END: ResponseEnd = ResponseEnd {
        body_len: 0,
        is_complete: true,
        now_us: 0,
    };

    #[test]
    fn reused_record_has_no_texts_of_its_last_request() {
        let exchange = Exchange::without_client(
            ListenerId(0),
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            HttpVersion::Http2,
            0,
            0,
        );
        let mut record = AccessRecord::new();
        let partial = PartialRequest {
            line: b"",
            method: b"GET",
            target: b"/a",
            authority: Some(b"example.com"),
            referer: Some(b"r"),
            user_agent: Some(b"u"),
        };
        record.set_exchange(&exchange, 400, RequestOutcome::Generated);
        record.set_partial(&partial, &exchange);
        let entry = record.entry(END);
        assert_eq!(entry.line, b"GET /a HTTP/2.0");
        assert_eq!(
            [entry.user, entry.host, entry.referer, entry.user_agent],
            [&b""[..], b"example.com", b"r", b"u"]
        );
        record.set_exchange(&exchange, 0, RequestOutcome::Passed);
        record.set_malformed(b"\x16\x03\r\n");
        let entry = record.entry(END);
        assert_eq!(entry.line, b"\x16\x03");
        assert_eq!(
            [entry.user, entry.host, entry.referer, entry.user_agent],
            [b""; 4]
        );
        assert_eq!((entry.outcome, entry.level), ("pass", "origin"));
    }
}
