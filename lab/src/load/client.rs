//! One simulated client: its session and its current connection.

use std::collections::VecDeque;

use super::response::{CompleteResponse, ResponseChecks, ResponseReader};
use super::tally::ErrorKind;
use super::transport::LoadTransport;
use super::two::H2LoadClient;
use crate::workload::{ClientSession, ConnectionOpening, ExpectedResponse, ResponseInterest};

/// How far a client may read ahead of its simulated slow line: two segments.
const LINE_AHEAD_LEN: u64 = 2 * 1460;

pub(crate) struct LoadClient {
    pub session: Box<dyn ClientSession>,
    pub interest: ResponseInterest,
    pub link: Option<ClientConnection>,
    /// Whether the client is queued among those that can take a due request.
    pub is_free: bool,
    /// Bytes received since counting began.
    pub counted_bytes: u64,
    /// End of the client's think time.
    pub thinks_until_ns: u64,
    /// When the client's timer fires.
    pub timer_ns: Option<u64>,
    /// The time at which the simulated line will have delivered all received bytes, of this connection and previous
    /// ones.
    pub line_ns: u64,
    /// Whether reading is paused until the line has caught up.
    pub line_paused: bool,
}

/// An outstanding request.
#[derive(Clone, Copy)]
pub(crate) struct OpenRequest {
    pub expected: ExpectedResponse,
    /// When the request was due.
    pub due_ns: u64,
    pub sent_ns: u64,
    /// When the first byte of its response arrived; 0 before.
    pub first_ns: u64,
}

/// The connection of a client.
pub(crate) struct ClientConnection {
    pub transport: LoadTransport,
    pub opening: ConnectionOpening,
    pub begin_ns: u64,
    /// When the TCP handshake was complete; 0 before.
    pub established_ns: u64,
    /// Whether requests can be sent on the connection.
    pub open: bool,
    /// Whether the last response has arrived, after which the server will close the connection.
    pub closing: bool,
    pub requests_sent: u64,
    pub responses: u64,
    pub pending: VecDeque<OpenRequest>,
    pub reader: ResponseReader,
    /// The HTTP/2 state; with HTTP/2, the reader is unused.
    pub h2: Option<Box<H2LoadClient>>,
    pub out: Vec<u8>,
    pub sent_len: usize,
    /// Time when the connection last made progress.
    pub progress_ns: u64,
    /// When the first request of the connection was due, in an open loop of connections.
    pub due_ns: Option<u64>,
}

impl LoadClient {
    pub(crate) fn new(session: Box<dyn ClientSession>) -> LoadClient {
        LoadClient {
            interest: session.interest(),
            session,
            link: None,
            is_free: false,
            counted_bytes: 0,
            thinks_until_ns: 0,
            timer_ns: None,
            line_ns: 0,
            line_paused: false,
        }
    }

    /// Advances the line's time by received bytes, and pauses reading if the client is too far ahead of the line.
    pub(crate) fn on_line(&mut self, len: u64, now_ns: u64, bits_per_s: u64) {
        // The transfer starts no earlier than now: an idle line does not accumulate capacity.
        self.line_ns = self.line_ns.max(now_ns) + line_time_ns(len, bits_per_s);
        self.line_paused = self.line_resume_ns(bits_per_s) > now_ns;
    }

    /// Returns the time from which a slow line may be read again.
    pub(crate) fn line_resume_ns(&self, bits_per_s: u64) -> u64 {
        let ahead_ns = line_time_ns(LINE_AHEAD_LEN, bits_per_s);
        self.line_ns.saturating_sub(ahead_ns)
    }

    /// Whether no request is outstanding.
    pub(crate) fn is_quiet(&self) -> bool {
        let link = self.link.as_ref();
        link.is_none_or(|link| link.pending.is_empty())
    }
}

/// The time that a line needs for `len` bytes.
fn line_time_ns(len: u64, bits_per_s: u64) -> u64 {
    // 8·10⁹ times a few GB exceeds 64 bits; the bound leaves room for the callers' sums.
    let ns = u128::from(len) * 8_000_000_000 / u128::from(bits_per_s.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX / 4)
}

impl ClientConnection {
    pub(crate) fn new(
        transport: LoadTransport,
        opening: ConnectionOpening,
        now_ns: u64,
    ) -> ClientConnection {
        ClientConnection {
            transport,
            opening,
            begin_ns: now_ns,
            established_ns: 0,
            open: false,
            closing: false,
            requests_sent: 0,
            responses: 0,
            pending: VecDeque::new(),
            reader: ResponseReader::default(),
            h2: None,
            out: Vec::new(),
            sent_len: 0,
            progress_ns: now_ns,
            due_ns: None,
        }
    }

    /// Whether this connection can take one more request.
    pub(crate) fn can_take_request(&self, pipeline: u32) -> bool {
        self.open
            && !self.closing
            && self.requests_sent < self.opening.requests
            && self.pending.len() < pipeline as usize
            && self.h2.as_ref().is_none_or(|h2| h2.can_open_stream())
            && self.transport.can_open_stream()
    }

    /// Adds an outstanding request.
    pub(crate) fn push_request(&mut self, expected: ExpectedResponse, due_ns: u64, now_ns: u64) {
        self.pending.push_back(OpenRequest {
            expected,
            due_ns,
            sent_ns: now_ns,
            first_ns: 0,
        });
    }

    /// Whether the client waits for an action of the server: the handshake, a response, or the close.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.open || !self.pending.is_empty() || self.closing
    }

    /// Whether all requests of the connection have been answered.
    pub(crate) fn is_done(&self) -> bool {
        self.pending.is_empty() && (self.closing || self.responses >= self.opening.requests)
    }

    /// Sends as much as the socket accepts.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn send(&mut self, now_ns: u64) -> std::io::Result<()> {
        while self.sent_len < self.out.len() {
            match self.transport.send(&self.out[self.sent_len..])? {
                // 0 means that the socket is full: the rest waits for EPOLLOUT.
                0 => return Ok(()),
                len => self.sent_len += len,
            }
        }
        self.out.clear();
        self.sent_len = 0;
        self.transport.flush(now_ns)
    }

    /// Whether bytes wait for the socket to accept them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent_len < self.out.len() || self.transport.has_unsent()
    }

    /// The checks of the reader for the next response; `None` if no request is outstanding.
    pub(crate) fn checks(&self, interest: ResponseInterest) -> Option<ResponseChecks> {
        let pending = self.pending.front()?;
        Some(ResponseChecks {
            head_only: pending.expected.head_only,
            crc32: pending.expected.crc32.is_some(),
            cookie: interest.cookies,
            text: interest.text,
        })
    }
}

/// Compares a response with the expected one; returns the error, if any.
pub(crate) fn check(expected: &ExpectedResponse, response: &CompleteResponse) -> Option<ErrorKind> {
    let right_status = match expected.status {
        Some(status) => response.status == status,
        // Without an expectation redirects and 304 count as correct, too.
        None => (200..400).contains(&response.status),
    };
    if !right_status {
        return Some(ErrorKind::WrongStatus);
    }
    // A 304 has no body and a 206 only a part, so length and checksum of the file do not apply.
    let is_part = matches!(response.status, 206 | 304) && expected.status.is_none();
    if is_part || expected.head_only {
        return None;
    }
    // The length is compared first: a truncated body has another checksum as well, and the wrong length is the more
    // precise error.
    if expected.len.is_some_and(|len| len != response.body_len) {
        return Some(ErrorKind::WrongLength);
    }
    if expected.crc32.is_some() && expected.crc32 != response.crc32 {
        return Some(ErrorKind::WrongChecksum);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: ExpectedResponse = ExpectedResponse {
        class: 0,
        head_only: false,
        status: None,
        len: Some(5),
        crc32: Some(7),
    };

    fn whole(status: u16, body_len: u64, crc32: Option<u32>) -> CompleteResponse {
        CompleteResponse {
            status,
            body_len,
            crc32,
            set_cookie: None,
            text: None,
            closes: false,
        }
    }

    #[test]
    fn response_check_finds_wrong_status_length_and_checksum() {
        assert_eq!(check(&EXPECTED, &whole(200, 5, Some(7))), None);
        assert_eq!(check(&EXPECTED, &whole(304, 0, Some(0))), None);
        let cases = [
            (whole(404, 5, Some(7)), ErrorKind::WrongStatus),
            (whole(200, 4, Some(7)), ErrorKind::WrongLength),
            (whole(200, 5, Some(8)), ErrorKind::WrongChecksum),
        ];
        for (answer, kind) in cases {
            assert_eq!(check(&EXPECTED, &answer), Some(kind));
        }
        let exact = ExpectedResponse {
            status: Some(404),
            ..EXPECTED
        };
        assert_eq!(check(&exact, &whole(404, 5, Some(7))), None);
        assert_eq!(
            check(&exact, &whole(200, 5, Some(7))),
            Some(ErrorKind::WrongStatus)
        );
    }
}
