//! The access log: records of requests in progress, and the log entries.
//!
//! A worker collects entries ([`crate::access_sink`]) and passes them to the log once per turn of its event loop. The
//! log's thread writes lines at most [`WRITE_DELAY`] later. If that thread is too slow, entries are dropped and
//! counted: a worker never waits for it. Records are reused, so that an entry needs no allocation.

mod outcome;
mod record;

use std::sync::Arc;
use std::time::Duration;

use lowroad_config::AccessLogConfig;
use lowroad_engine::{Exchange, ResponseWriter};
use lowroad_http::request::{PartialRequest, Request};
use lowroad_http::status::StatusCode;
use lowroad_log::{EntryDetails, LineSink, TextFormat};
use lowroad_metrics::{MetricScope, ScopeRegistry};
use lowroad_store::clock;

pub use self::outcome::RequestOutcome;
pub use self::record::AccessRecord;
pub(crate) use self::record::ResponseEnd;
pub use crate::access_details::LogWorker;
use crate::access_details::NeededDetails;
use crate::access_sink::AccessSink;

/// The maximum time for which a line is held back in order to be written together with others.
pub const WRITE_DELAY: Duration = Duration::from_millis(200);
/// Maximum number of unused records that are kept for later requests.
const SPARE_COUNT_MAX: usize = 64;
/// A record that uses more memory than this is freed.
const SPARE_LEN_MAX: usize = 4 * 1024;

/// A worker's access logs.
pub struct WorkerAccessLog {
    /// Each log, with the index of the first of its named values.
    sinks: Vec<(AccessSink, usize)>,
    /// Whether entries contain durations and fractions of a second. The precise clock is then read at the start and the
    /// end of each request: the event loop reads its clock once per turn, which may take several ms.
    is_precise: bool,
    /// The time of the first record of this turn of the event loop, ms since 1970; 0 before it. The time of a turn is
    /// exact enough for a date, and reading the clock for each record costs more than the rest of the record.
    turn_unix_ms: u64,
    /// The details that formats with variables need, if there are any such formats.
    needed: Option<NeededDetails>,
    /// The details of entries if no log needs any, kept because creating them costs a tenth of an entry.
    no_details: EntryDetails<'static>,
    spare: SpareRecords,
}

impl WorkerAccessLog {
    /// Creates the logs of a worker; `None` without a log. `scopes` has the names of sites and routes.
    pub fn new(
        logs: Vec<(LineSink, AccessLogConfig)>,
        scopes: Arc<ScopeRegistry>,
        worker: LogWorker,
    ) -> Option<WorkerAccessLog> {
        let mut values = Vec::new();
        let sinks = logs.into_iter().map(|(sink, log)| {
            let (sink, first_value) = (AccessSink::new(sink, log), values.len());
            values.extend_from_slice(sink.format().map(TextFormat::values).unwrap_or_default());
            (sink, first_value)
        });
        let sinks: Vec<_> = sinks.collect();
        let has_details = |sink: &AccessSink| sink.format().is_some() || sink.needs_scope();
        let needs_details = sinks.iter().any(|(sink, _)| has_details(sink));
        let needed = needs_details.then(|| {
            let formats = sinks.iter().filter_map(|(sink, _)| sink.format());
            let formats: Vec<_> = formats.collect();
            NeededDetails::new(&formats, values, scopes, worker)
        });
        (!sinks.is_empty()).then(|| WorkerAccessLog {
            is_precise: sinks.iter().any(|(sink, _)| sink.is_precise()),
            sinks,
            turn_unix_ms: 0,
            needed,
            no_details: EntryDetails::default(),
            spare: SpareRecords::default(),
        })
    }

    /// Whether handlers have to record their attempts at upstream servers.
    pub fn needs_upstream_tries(&self) -> bool {
        self.needed
            .as_ref()
            .is_some_and(NeededDetails::has_upstream)
    }

    /// Creates the record of a request, which began at `exchange.started_us`. `response` has the written head, if there
    /// is a response.
    pub fn record(
        &mut self,
        request: &Request<'_>,
        exchange: &Exchange,
        status: StatusCode,
        outcome: RequestOutcome,
        response: Option<&ResponseWriter<'_>>,
    ) -> Box<AccessRecord> {
        let mut record = self.begin_record(exchange, status.code(), outcome);
        self.record_details(&mut record, exchange, Some(request), response);
        record.set_request(request, exchange);
        record
    }

    /// Creates the record of a request that was refused before it was read completely.
    pub fn record_refused(
        &mut self,
        partial: &PartialRequest<'_>,
        exchange: &Exchange,
        status: StatusCode,
        response: &ResponseWriter<'_>,
    ) -> Box<AccessRecord> {
        let mut record = self.begin_record(exchange, status.code(), RequestOutcome::Generated);
        self.record_details(&mut record, exchange, None, Some(response));
        self.mark_started(&mut record);
        record.set_partial(partial, exchange);
        record
    }

    /// Creates the record of a connection that is passed through, of a site with this scope: from the first request on the
    /// connection, or, if that could not be parsed, from its bytes. The responses are not interpreted, so the status is
    /// 0.
    pub fn record_passed(
        &mut self,
        request: Option<&Request<'_>>,
        input: &[u8],
        exchange: &Exchange,
        scope: MetricScope,
    ) -> Box<AccessRecord> {
        let mut record = self.begin_record(exchange, 0, RequestOutcome::Passed);
        self.record_details(&mut record, exchange, request, None);
        if let Some(needed) = &mut self.needed {
            needed.set_scope(&mut record.details, scope);
        }
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
            if self.turn_unix_ms == 0 {
                self.turn_unix_ms = clock::unix_ms();
            }
            record.unix_ms = self.turn_unix_ms;
        }
        record
    }

    #[inline]
    fn record_details(
        &mut self,
        record: &mut AccessRecord,
        exchange: &Exchange,
        request: Option<&Request<'_>>,
        response: Option<&ResponseWriter<'_>>,
    ) {
        if let Some(needed) = &mut self.needed {
            needed.record(&mut record.details, exchange, request, response);
        }
    }

    /// Sets the start time for requests without a recorded arrival.
    fn mark_started(&self, record: &mut AccessRecord) {
        if self.is_precise {
            record.started_us = clock::monotonic_us();
        }
    }

    /// Writes an entry; `is_complete` is false if the response was truncated.
    pub fn write(
        &mut self,
        mut record: Box<AccessRecord>,
        body_len: u64,
        is_complete: bool,
        now_ms: u64,
    ) {
        // The combined format contains no durations, so the coarse clock is sufficient.
        let now_us = match self.is_precise {
            true => clock::monotonic_us(),
            false => now_ms * 1000,
        };
        let end = ResponseEnd {
            body_len,
            is_complete,
            now_us,
        };
        match &self.needed {
            None => {
                for (sink, _) in &mut self.sinks {
                    sink.push(&mut record, end, &self.no_details);
                }
            }
            Some(needed) => {
                // Taken out, since the binary log writes its header into the record.
                let mut details = std::mem::take(&mut record.details);
                details.finish();
                for (sink, first_value) in &mut self.sinks {
                    sink.push(&mut record, end, &needed.entry(&details, *first_value));
                }
                record.details = details;
            }
        }
        self.spare.recycle(record);
    }

    /// Removes entries that a panic has left incomplete.
    pub fn recover(&mut self) {
        self.sinks.iter_mut().for_each(|(sink, _)| sink.recover());
    }

    /// Ends a turn of the event loop: passes the collected entries to the log.
    pub fn end_turn(&mut self) {
        self.turn_unix_ms = 0;
        self.sinks.iter_mut().for_each(|(sink, _)| sink.flush());
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

    fn recycle(&mut self, record: Box<AccessRecord>) {
        // A burst of requests, or a request with long fields, must not occupy memory forever.
        if record.capacity() <= SPARE_LEN_MAX && self.records.len() < SPARE_COUNT_MAX {
            self.records.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_records_are_bounded() {
        let mut spare = SpareRecords::default();
        for number in 0..2 * SPARE_COUNT_MAX {
            let mut record = Box::new(AccessRecord::new());
            if number % 2 == 1 {
                record.parts.resize(SPARE_LEN_MAX + 1, b'x');
            }
            spare.recycle(record);
        }
        assert_eq!(spare.records.len(), SPARE_COUNT_MAX);
        assert!(
            spare
                .records
                .iter()
                .all(|record| record.parts.capacity() <= SPARE_LEN_MAX)
        );
    }
}
