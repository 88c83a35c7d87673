//! One access log: its conditions, and the batch of lines or records that is passed to the log's thread.

use lowroad_binary_log::batch;
use lowroad_config::{AccessLogConfig, AccessLogFormat, LogTarget};
use lowroad_log::{
    AccessEntry, EntryDetails, LineFormat, LineFormatter, LineLimit, LineSink, TextFormat,
    TextFormatter,
};

use crate::access::{AccessRecord, ResponseEnd};
use crate::access_filter::EntryFilter;

/// Length at which a batch is passed to the log's thread.
const BATCH_LEN: usize = 32 * 1024;

/// The encoding of entries.
enum EntryEncoder {
    /// Lines, formatted by the worker.
    Lines(LineFormatter),
    /// Lines in a format of the operator.
    Text(TextFormatter),
    /// Records; the log's thread makes blocks of them.
    Records,
}

/// Gathers the entries of a worker or of the soft-interrupt level, and passes them to the log's thread.
pub struct AccessSink {
    sink: LineSink,
    filter: Option<EntryFilter>,
    encoder: EntryEncoder,
    batch: Vec<u8>,
    /// The length of the complete entries in `batch`.
    complete_len: usize,
}

impl AccessSink {
    /// Creates an empty batch of entries of a log, for `sink`.
    pub fn new(sink: LineSink, log: AccessLogConfig) -> AccessSink {
        // A datagram bounds the length of a message.
        let limit = match &log.path {
            LogTarget::Messages(_) => LineLimit::MESSAGE,
            _ => LineLimit::NONE,
        };
        let lines = |format| EntryEncoder::Lines(LineFormatter::new(format).with_limit(limit));
        AccessSink {
            sink,
            filter: EntryFilter::new(log.conditions),
            encoder: match log.format {
                AccessLogFormat::Combined => lines(LineFormat::Combined),
                AccessLogFormat::Extended => lines(LineFormat::Extended),
                AccessLogFormat::Json => lines(LineFormat::Json),
                AccessLogFormat::Binary => EntryEncoder::Records,
                AccessLogFormat::Text(format) => {
                    EntryEncoder::Text(TextFormatter::new(format).with_limit(limit))
                }
            },
            batch: Vec::with_capacity(BATCH_LEN),
            complete_len: 0,
        }
    }

    /// The format of the operator.
    pub(crate) fn format(&self) -> Option<&TextFormat> {
        match &self.encoder {
            EntryEncoder::Text(formatter) => Some(formatter.format()),
            EntryEncoder::Lines(_) | EntryEncoder::Records => None,
        }
    }

    /// Whether entries need durations and fractions of a second.
    pub(crate) fn is_precise(&self) -> bool {
        let is_format_precise = match &self.encoder {
            EntryEncoder::Lines(formatter) => formatter.is_precise(),
            EntryEncoder::Text(formatter) => formatter.format().is_precise(),
            EntryEncoder::Records => true,
        };
        is_format_precise
            || self
                .filter
                .as_ref()
                .is_some_and(EntryFilter::needs_duration)
    }

    /// Whether entries need the site or the route.
    pub(crate) fn needs_scope(&self) -> bool {
        self.format().is_some_and(TextFormat::has_scope)
            || self.filter.as_ref().is_some_and(EntryFilter::needs_site)
    }

    /// Adds the entry of a response, if it fulfils the conditions. `details` are empty unless the log needs them.
    #[inline]
    pub(crate) fn push(
        &mut self,
        record: &mut AccessRecord,
        end: ResponseEnd,
        details: &EntryDetails<'_>,
    ) {
        if let Some(filter) = &mut self.filter
            && !filter.admits(&record.entry(end), details.site)
        {
            return;
        }
        match &mut self.encoder {
            EntryEncoder::Lines(formatter) => formatter.append(&record.entry(end), &mut self.batch),
            EntryEncoder::Text(formatter) => {
                formatter.append(&record.entry(end), details, &mut self.batch);
            }
            EntryEncoder::Records => record.append_to_batch(end, &mut self.batch),
        }
        self.end_entry();
    }

    /// Adds an entry, if it fulfils the conditions.
    pub fn push_entry(&mut self, entry: &AccessEntry<'_>, details: &EntryDetails<'_>) {
        if let Some(filter) = &mut self.filter
            && !filter.admits(entry, details.site)
        {
            return;
        }
        match &mut self.encoder {
            EntryEncoder::Lines(formatter) => formatter.append(entry, &mut self.batch),
            EntryEncoder::Text(formatter) => formatter.append(entry, details, &mut self.batch),
            EntryEncoder::Records => batch::append_record(entry, &mut self.batch),
        }
        self.end_entry();
    }

    fn end_entry(&mut self) {
        self.complete_len = self.batch.len();
        if self.batch.len() >= BATCH_LEN {
            self.flush();
        }
    }

    /// Passes the gathered entries to the log.
    pub fn flush(&mut self) {
        if !self.batch.is_empty() {
            // The log counts the entries that it drops.
            let _ = self.sink.push(&self.batch);
            self.batch.clear();
            self.complete_len = 0;
        }
    }

    /// Removes an entry that a panic has left incomplete.
    pub(crate) fn recover(&mut self) {
        self.batch.truncate(self.complete_len);
    }
}
