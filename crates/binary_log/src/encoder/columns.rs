//! The columns of an open block.

mod table;

use std::net::IpAddr;

use lowroad_log::AccessEntry;

use self::table::TableColumn;
use crate::context_memory::ContextMemory;
use crate::limits::{TEXT_LEN_MAX, WORD_LEN_MAX};
use crate::line::RequestWords;
use crate::schema::{COLUMNS, LogColumn};
use crate::varint::{put_number, zigzag};

/// Maximum length that a record adds to all columns, without its texts: ten bytes for each column.
const NUMBERS_LEN_MAX: usize = 10 * COLUMNS.len();

/// The columns of the records of an open block, and the state of its dictionary.
#[derive(Default)]
pub struct ColumnWriter {
    times_ms: Vec<u64>,
    durations_us: Vec<u64>,
    tables: [TableColumn; COLUMNS.len()],
    status: PredictedColumn,
    whole: PredictedColumn,
    body_bytes: PredictedColumn,
    /// The length of the values of the open block that the dictionary lacks.
    texts_len: usize,
    /// The number of last records that have only a time and a duration in the columns yet.
    repeat_count: usize,
}

impl ColumnWriter {
    /// Adds a record that differs at most in these values from the one before it in the open block.
    #[inline]
    pub fn push_repeated(&mut self, unix_ms: u64, duration_us: u64) {
        self.times_ms.push(unix_ms);
        self.durations_us.push(duration_us);
        self.repeat_count += 1;
    }

    /// Completes the columns of repeated records.
    fn end_repetition(&mut self) {
        let count = std::mem::take(&mut self.repeat_count);
        // The record before has set the memory of each context to its own values, so all values are as predicted, and
        // the memory stays as it is.
        self.tables
            .iter_mut()
            .filter(|table| table.is_used())
            .for_each(|table| table.repeat_last(count));
        for column in self.predicted() {
            column.predicted_count += count;
        }
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, entry: &AccessEntry<'_>) {
        if self.repeat_count > 0 {
            self.end_repetition();
        }
        self.times_ms.push(entry.unix_ms);
        self.durations_us.push(entry.duration_us);
        let peer = match entry.peer.to_canonical() {
            IpAddr::V4(address) => self.put_value(LogColumn::Peer, &address.octets(), 0),
            IpAddr::V6(address) => self.put_value(LogColumn::Peer, &address.octets(), 0),
        };
        // Methods and protocols have few values, so split from the target they take almost no bytes.
        let words = RequestWords::from_line(truncated(entry.line, TEXT_LEN_MAX));
        // Peer and target come first: they are the contexts of most other columns.
        let target = self.put_value(LogColumn::Target, words.target, 0);
        for (column, text) in [
            (LogColumn::Method, words.method),
            (LogColumn::Protocol, words.protocol),
            (LogColumn::Host, entry.host),
            (LogColumn::User, entry.user),
            (LogColumn::Referer, entry.referer),
            (LogColumn::UserAgent, entry.user_agent),
            (
                LogColumn::Tls,
                truncated(entry.tls.as_bytes(), WORD_LEN_MAX),
            ),
        ] {
            self.put_value(column, truncated(text, TEXT_LEN_MAX), peer);
        }
        let outcome = truncated(entry.outcome.as_bytes(), WORD_LEN_MAX);
        // The same resource has mostly the same outcome, status and length.
        let outcome = self.put_value(LogColumn::Outcome, outcome, target);
        let level = truncated(entry.level.as_bytes(), WORD_LEN_MAX);
        self.put_value(LogColumn::Level, level, outcome);
        self.status.push(entry.status.into(), target);
        self.whole.push(entry.whole.into(), target);
        self.body_bytes.push(entry.body_bytes, target);
    }

    /// The number of records.
    pub fn record_count(&self) -> usize {
        self.times_ms.len()
    }

    /// An upper bound of the length of the columns.
    pub fn raw_len_max(&self) -> usize {
        self.texts_len + self.record_count() * NUMBERS_LEN_MAX
    }

    /// The earliest and the latest time, ms since 1970.
    pub fn period(&self) -> (u64, u64) {
        let times = || self.times_ms.iter().copied();
        let (first, last) = (times().min(), times().max());
        (first.unwrap_or_default(), last.unwrap_or_default())
    }

    /// Appends all columns, each behind its length.
    pub fn put(&mut self, out: &mut Vec<u8>) {
        self.end_repetition();
        let mut bytes = Vec::new();
        for column in COLUMNS {
            bytes.clear();
            match column {
                LogColumn::Time => put_deltas(&self.times_ms, self.period().0, &mut bytes),
                LogColumn::Duration => put_numbers(&self.durations_us, &mut bytes),
                LogColumn::Status => self.status.put(&mut bytes),
                LogColumn::Whole => self.whole.put(&mut bytes),
                LogColumn::BodyBytes => self.body_bytes.put(&mut bytes),
                _ => self.tables[column.place()].put(&mut bytes),
            }
            // With the length in front, a reader skips a column that it does not know.
            put_number(bytes.len() as u64, out);
            out.extend_from_slice(&bytes);
        }
    }

    /// Removes all records, and keeps their values as the dictionary of the following blocks.
    pub fn freeze(&mut self) {
        self.times_ms.clear();
        self.durations_us.clear();
        self.tables.iter_mut().for_each(TableColumn::freeze);
        self.texts_len = 0;
        for column in self.predicted() {
            column.clear();
            column.memory.freeze();
        }
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.times_ms.clear();
        self.durations_us.clear();
        self.tables.iter_mut().for_each(TableColumn::clear);
        self.texts_len = 0;
        for column in self.predicted() {
            column.clear();
            column.memory.restore();
        }
    }

    fn predicted(&mut self) -> [&mut PredictedColumn; 3] {
        [&mut self.status, &mut self.whole, &mut self.body_bytes]
    }

    fn put_value(&mut self, column: LogColumn, value: &[u8], context: u32) -> u32 {
        let table = &mut self.tables[column.place()];
        let known_len = table.texts_len();
        let place = table.push(value, context);
        self.texts_len += table.texts_len() - known_len;
        place
    }
}

/// A column of numbers that another column predicts.
#[derive(Default)]
struct PredictedColumn {
    /// The symbols up to the last value that differs from its prediction.
    bytes: Vec<u8>,
    /// The number of predicted values behind them.
    predicted_count: usize,
    memory: ContextMemory<u64>,
}

impl PredictedColumn {
    #[inline]
    fn push(&mut self, value: u64, context: u32) {
        if self.memory.last_of(context) == Some(value) {
            self.predicted_count += 1;
            self.memory.repeat(value);
            return;
        }
        if self.memory.last(context) == Some(value) {
            self.predicted_count += 1;
        } else {
            self.complete_bytes();
            // A count of bytes never reaches the largest number.
            put_number(value.saturating_add(1), &mut self.bytes);
        }
        self.memory.note(context, value);
    }

    /// Appends the symbol of predicted values, 0.
    fn complete_bytes(&mut self) {
        let count = std::mem::take(&mut self.predicted_count);
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.predicted_count = 0;
    }

    /// Appends nothing if all values are as predicted.
    fn put(&mut self, out: &mut Vec<u8>) {
        if !self.bytes.is_empty() {
            self.complete_bytes();
            out.extend_from_slice(&self.bytes);
        }
    }
}

fn put_deltas(values: &[u64], first: u64, out: &mut Vec<u8>) {
    // Neighbouring times differ by less than 64 ms on all but idle servers: one byte each.
    out.reserve(values.len());
    let mut before = first;
    for value in values {
        // Times may go backwards if the clock was set, so the difference is signed.
        put_number(zigzag(value.wrapping_sub(before) as i64), out);
        before = *value;
    }
}

fn put_numbers(values: &[u64], out: &mut Vec<u8>) {
    let len = |value: &u64| (u64::BITS - value.leading_zeros()).div_ceil(8);
    out.extend(values.iter().map(|value| len(value) as u8));
    let planes = len(&values.iter().fold(0, |bits, value| bits | value));
    // zstd finds more repetitions when the high bytes, which are similar, are not mixed with the low ones.
    for plane in 0..planes {
        let values = values.iter().filter(|value| len(value) > plane);
        out.extend(values.map(|value| (value >> (8 * plane)) as u8));
    }
}

fn truncated(text: &[u8], len_max: usize) -> &[u8] {
    text.get(..len_max).unwrap_or(text)
}
