//! The access log: records of requests in progress, and the log entries.
//!
//! A worker collects entries ([`crate::access_sink`]) and passes them to the log once per turn of its event loop. The
//! log's thread writes lines at most [`WRITE_DELAY`] later. If that thread is too slow, entries are dropped and
//! counted: a worker never waits for it. Records are reused, so that an entry needs no allocation.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lowroad_access_control::passwords::BasicCredentials;
use lowroad_config::AccessLogFormat;
use lowroad_engine::Exchange;
use lowroad_http::h1::first_line;
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::status::StatusCode;
use lowroad_log::{AccessEntry, LineSink};
use lowroad_response_cache::storage::HitKind;
use lowroad_store::clock;

use crate::access_sink::AccessSink;

/// The source of a response, as shown in the log and the cache counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A stored response or file in memory.
    Hit,
    /// A file that had to be loaded or checked first.
    Miss,
    /// A response generated for this request: a redirect by rule, or a refusal.
    Generated,
    /// A program (handler other than an origin); the response was not stored.
    Program,
    /// A stale stored response: staleness was allowed, or the origin failed.
    Stale,
    /// A stored response, after a request to the origin by this request or by an equal, concurrent one.
    Stored(HitKind),
    /// A stored response, after a call of a program by this request or by an equal, concurrent one.
    ProgramStored(HitKind),
    /// An origin; the response was not stored.
    Passed,
}

impl RequestOutcome {
    /// The outcome for a response that was stored by a call, or that was found in the store while waiting for a call.
    pub fn from_hit(hit_kind: HitKind, is_origin: bool) -> RequestOutcome {
        match is_origin {
            true => RequestOutcome::Stored(hit_kind),
            false => RequestOutcome::ProgramStored(hit_kind),
        }
    }

    /// The word that is logged.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestOutcome::Hit | RequestOutcome::Stored(HitKind::Hit) => "hit",
            RequestOutcome::Miss
            | RequestOutcome::Stored(HitKind::Fetched | HitKind::Coalesced) => "miss",
            RequestOutcome::Generated
            | RequestOutcome::Program
            | RequestOutcome::ProgramStored(_) => "made",
            RequestOutcome::Stale | RequestOutcome::Stored(HitKind::StaleIfError) => "stale",
            RequestOutcome::Stored(HitKind::Validated) => "revalidated",
            RequestOutcome::Passed => "pass",
        }
    }

    /// The level that produced the response.
    fn level(self) -> &'static str {
        match self {
            RequestOutcome::Program | RequestOutcome::ProgramStored(_) => "handler",
            RequestOutcome::Stored(HitKind::Fetched | HitKind::Coalesced | HitKind::Validated)
            | RequestOutcome::Passed => "origin",
            _ => "worker",
        }
    }
}

/// The maximum time for which a line is held back in order to be written together with others.
pub const WRITE_DELAY: Duration = Duration::from_millis(200);

/// The request line of a refused request, and its fields, are truncated to this length.
const LINE_LEN_MAX: usize = 1024;
/// Maximum number of unused records that are kept for later requests.
const SPARE_COUNT_MAX: usize = 64;
/// A record that uses more memory than this is freed.
const SPARE_LEN_MAX: usize = 4 * 1024;

/// The record of a request, kept until its response is complete. Missing texts are empty.
pub struct AccessRecord {
    peer: IpAddr,
    unix_ms: u64,
    started_us: u64,
    status: u16,
    outcome: RequestOutcome,
    /// The authenticated user.
    user: Vec<u8>,
    /// The request line, in the form of HTTP/1 for every protocol.
    line: Vec<u8>,
    host: Vec<u8>,
    referer: Vec<u8>,
    user_agent: Vec<u8>,
    /// The TLS version.
    tls: &'static str,
}

impl AccessRecord {
    fn new() -> AccessRecord {
        AccessRecord {
            peer: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            unix_ms: 0,
            started_us: 0,
            status: 0,
            outcome: RequestOutcome::Generated,
            user: Vec::new(),
            line: Vec::new(),
            host: Vec::new(),
            referer: Vec::new(),
            user_agent: Vec::new(),
            tls: "",
        }
    }

    fn texts(&mut self) -> [&mut Vec<u8>; 5] {
        [
            &mut self.user,
            &mut self.line,
            &mut self.host,
            &mut self.referer,
            &mut self.user_agent,
        ]
    }

    fn set_exchange(&mut self, exchange: &Exchange, status: u16, outcome: RequestOutcome) {
        self.peer = exchange.peer;
        self.unix_ms = exchange.unix_s * 1000;
        self.started_us = exchange.started_us;
        self.status = status;
        self.outcome = outcome;
        self.tls = exchange.tls.as_ref().map_or("", |it| it.version);
    }

    fn set_request(&mut self, request: &Request<'_>, exchange: &Exchange) {
        // Only a verified name is logged: otherwise clients could write any user name into the log.
        if exchange.is_user
            && let Some(credentials) = BasicCredentials::from_request(request)
        {
            self.user.extend_from_slice(credentials.user.as_bytes());
        }
        self.line
            .extend_from_slice(request.method.as_str().as_bytes());
        self.line.push(b' ');
        self.line.extend_from_slice(request.raw_target());
        self.line.push(b' ');
        self.line
            .extend_from_slice(exchange.protocol.as_str().as_bytes());
        let forwarded = exchange.forwarded.as_ref();
        let reported = forwarded.and_then(|it| it.authority.as_deref());
        for (text, field) in [
            (&mut self.host, reported.or(request.authority)),
            (&mut self.referer, request.referer()),
            (&mut self.user_agent, request.user_agent()),
        ] {
            text.extend_from_slice(field.unwrap_or_default());
        }
    }

    /// Sets the line for input that is not a request.
    fn set_malformed(&mut self, input: &[u8]) {
        let line = first_line(input);
        // The input may be arbitrary, so only its beginning is logged.
        let len = line.len().min(LINE_LEN_MAX);
        self.line.extend_from_slice(&line[..len]);
    }

    /// Sets the known parts of a refused request.
    fn set_partial(&mut self, partial: &PartialRequest<'_>, exchange: &Exchange) {
        self.set_malformed(partial.line);
        if partial.line.is_empty() && !partial.method.is_empty() {
            let target_len = partial.target.len().min(LINE_LEN_MAX);
            // HTTP/2 has no request line, so one is assembled.
            let protocol = exchange.protocol.as_str().as_bytes();
            let words = [partial.method, &partial.target[..target_len], protocol];
            self.line = words.join(&b' ');
        }
        for (text, field) in [
            (&mut self.host, partial.authority),
            (&mut self.referer, partial.referer),
            (&mut self.user_agent, partial.user_agent),
        ] {
            let field = field.unwrap_or_default();
            text.extend_from_slice(&field[..field.len().min(LINE_LEN_MAX)]);
        }
    }

    fn entry(&self, body_len: u64, is_complete: bool, now_us: u64) -> AccessEntry<'_> {
        AccessEntry {
            peer: self.peer,
            user: &self.user,
            unix_ms: self.unix_ms,
            line: &self.line,
            host: &self.host,
            status: self.status,
            body_bytes: body_len,
            whole: is_complete,
            referer: &self.referer,
            user_agent: &self.user_agent,
            duration_us: now_us.saturating_sub(self.started_us),
            outcome: self.outcome.as_str(),
            level: self.outcome.level(),
            tls: self.tls,
        }
    }
}

/// A worker's access log.
pub struct WorkerAccessLog {
    sink: AccessSink,
    /// Whether entries contain durations and fractions of a second. The precise clocks are then read for each line: the
    /// event loop reads its clock once per turn, which may take several ms.
    is_precise: bool,
    spare: SpareRecords,
}

impl WorkerAccessLog {
    /// Creates a log that writes to `sink`.
    pub fn new(sink: LineSink, format: AccessLogFormat) -> WorkerAccessLog {
        WorkerAccessLog {
            sink: AccessSink::new(sink, format),
            is_precise: format != AccessLogFormat::Combined,
            spare: SpareRecords::default(),
        }
    }

    /// Records the arrival time of a request.
    pub fn mark_start(&self, exchange: &mut Exchange) {
        if self.is_precise {
            exchange.started_us = clock::monotonic_us();
        }
    }

    /// Creates the record of a request.
    pub fn record(
        &mut self,
        request: &Request<'_>,
        exchange: &Exchange,
        status: StatusCode,
        outcome: RequestOutcome,
    ) -> Box<AccessRecord> {
        let mut record = self.begin_record(exchange, status.code(), outcome);
        record.set_request(request, exchange);
        record
    }

    /// Creates the record of a request that was refused before it was read completely.
    pub fn record_refused(
        &mut self,
        partial: &PartialRequest<'_>,
        exchange: &Exchange,
        status: StatusCode,
    ) -> Box<AccessRecord> {
        let mut record = self.begin_record(exchange, status.code(), RequestOutcome::Generated);
        self.mark_started(&mut record);
        record.set_partial(partial, exchange);
        record
    }

    /// Creates the record of a connection that is passed through: from the first request on the connection, or, if that
    /// could not be parsed, from its bytes. The responses are not interpreted, so the status is 0.
    pub fn record_passed(
        &mut self,
        request: Option<&Request<'_>>,
        input: &[u8],
        exchange: &Exchange,
    ) -> Box<AccessRecord> {
        let mut record = self.begin_record(exchange, 0, RequestOutcome::Passed);
        self.mark_started(&mut record);
        match request {
            Some(request) => record.set_request(request, exchange),
            None => record.set_malformed(input),
        }
        record
    }

    fn begin_record(
        &mut self,
        exchange: &Exchange,
        status: u16,
        outcome: RequestOutcome,
    ) -> Box<AccessRecord> {
        // A record is reused, so that the log line needs no allocation.
        let mut record = self.spare.take();
        record.set_exchange(exchange, status, outcome);
        if self.is_precise {
            // The time in `exchange` has a resolution of one second.
            record.unix_ms = clock::unix_ms();
        }
        record
    }

    /// Sets the start time for requests whose arrival was not recorded.
    fn mark_started(&self, record: &mut AccessRecord) {
        if self.is_precise {
            record.started_us = clock::monotonic_us();
        }
    }

    /// Writes an entry; `is_complete` is false if the response was truncated.
    pub fn write(
        &mut self,
        record: Box<AccessRecord>,
        body_len: u64,
        is_complete: bool,
        now_ms: u64,
    ) {
        // The combined format contains no durations, so the coarse clock is sufficient.
        let now_us = match self.is_precise {
            true => clock::monotonic_us(),
            false => now_ms * 1000,
        };
        let entry = record.entry(body_len, is_complete, now_us);
        self.sink.push(&entry);
        self.spare.recycle(record);
    }

    /// Passes the collected entries to the log.
    pub fn flush(&mut self) {
        self.sink.flush();
    }
}

/// Unused records, kept in order to reuse their memory.
#[derive(Default)]
struct SpareRecords {
    #[expect(
        clippy::vec_box,
        reason = "a request takes the box along, and brings it back"
    )]
    records: Vec<Box<AccessRecord>>,
}

impl SpareRecords {
    fn take(&mut self) -> Box<AccessRecord> {
        let record = self.records.pop();
        record.unwrap_or_else(|| Box::new(AccessRecord::new()))
    }

    fn recycle(&mut self, mut record: Box<AccessRecord>) {
        let memory: usize = record.texts().iter().map(|text| text.capacity()).sum();
        // A burst of requests, or a request with long fields, must not occupy memory forever.
        if memory <= SPARE_LEN_MAX && self.records.len() < SPARE_COUNT_MAX {
            // The texts are cleared, so that those of one request do not appear in the line of another.
            record.texts().into_iter().for_each(Vec::clear);
            self.records.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_access_record_is_empty_and_bounded() {
        let mut spare = SpareRecords::default();
        for number in 0..2 * SPARE_COUNT_MAX {
            let mut record = Box::new(AccessRecord::new());
            let len = if number % 2 == 0 { 10 } else { SPARE_LEN_MAX };
            for text in record.texts() {
                text.resize(len, b'x');
            }
            spare.recycle(record);
        }
        assert_eq!(spare.records.len(), SPARE_COUNT_MAX);
        for _ in 0..SPARE_COUNT_MAX {
            let mut record = spare.take();
            let texts = record.texts();
            assert!(texts.iter().all(|text| text.is_empty()));
            let memory: usize = texts.iter().map(|text| text.capacity()).sum();
            assert!((1..=SPARE_LEN_MAX).contains(&memory), "{memory}");
        }
        assert!(spare.records.is_empty());
    }
}
