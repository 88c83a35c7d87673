//! The batch of a worker's access log: lines of text, or records of the binary log.

use lowroad_binary_log::batch;
use lowroad_config::AccessLogFormat;
use lowroad_log::{AccessEntry, LineFormat, LineFormatter, LineSink};

/// Length at which a batch is passed to the log's thread.
const BATCH_LEN: usize = 32 * 1024;

/// The encoding of a worker's entries.
enum EntryEncoder {
    /// Lines, formatted by the worker.
    Lines(LineFormatter),
    /// Records; the log's thread makes blocks of them.
    Records,
}

/// Gathers the entries of a worker, and passes them to the log's thread.
pub struct AccessSink {
    sink: LineSink,
    encoder: EntryEncoder,
    batch: Vec<u8>,
}

impl AccessSink {
    /// Creates an empty batch of entries in `format`, for `sink`.
    pub fn new(sink: LineSink, format: AccessLogFormat) -> AccessSink {
        let lines = |format| EntryEncoder::Lines(LineFormatter::new(format));
        AccessSink {
            sink,
            encoder: match format {
                AccessLogFormat::Combined => lines(LineFormat::Combined),
                AccessLogFormat::Extended => lines(LineFormat::Extended),
                AccessLogFormat::Json => lines(LineFormat::Json),
                AccessLogFormat::Binary => EntryEncoder::Records,
            },
            batch: Vec::with_capacity(BATCH_LEN),
        }
    }

    /// Adds the entry of a response.
    pub fn push(&mut self, entry: &AccessEntry<'_>) {
        match &mut self.encoder {
            EntryEncoder::Lines(formatter) => formatter.append(entry, &mut self.batch),
            EntryEncoder::Records => batch::append_record(entry, &mut self.batch),
        }
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
        }
    }
}
