//! A column of a block. Its bytes may be anything: each length is checked against the bytes that are there before
//! memory is allocated.

use std::ops::Range;

use super::table;
use crate::context_memory::{BlockMemory, ContextMemory};
use crate::schema::{ColumnEncoding, LogColumn};
use crate::varint::{take_bytes, take_number, unzigzag};

/// The values of a column.
pub enum ColumnValues {
    /// A number for each record.
    Numbers(Vec<u64>),
    /// Distinct values, and the place of each record's value.
    Table {
        /// The values that the dictionary lacks, as ranges of the raw bytes.
        values: Vec<Range<usize>>,
        /// Below the number of values of dictionary and block.
        places: Vec<u32>,
    },
}

impl Default for ColumnValues {
    fn default() -> ColumnValues {
        ColumnValues::Numbers(Vec::new())
    }
}

impl ColumnValues {
    /// The place of each record's value, if it is a table.
    pub fn places(&self) -> Option<&[u32]> {
        match self {
            ColumnValues::Table { places, .. } => Some(places),
            ColumnValues::Numbers(_) => None,
        }
    }

    /// The number of values, if it is a table.
    pub fn value_count(&self) -> usize {
        match self {
            ColumnValues::Table { values, .. } => values.len(),
            ColumnValues::Numbers(_) => 0,
        }
    }

    /// A value of the table; empty if there is none.
    pub fn value<'r>(&self, place: usize, raw: &'r [u8]) -> &'r [u8] {
        match self {
            ColumnValues::Table { values, .. } => {
                values.get(place).map_or(b"", |range| &raw[range.clone()])
            }
            ColumnValues::Numbers(_) => b"",
        }
    }

    /// The number of a record; 0 if there is none.
    pub fn number(&self, record: usize) -> u64 {
        match self {
            ColumnValues::Numbers(numbers) => numbers.get(record).copied().unwrap_or_default(),
            ColumnValues::Table { .. } => 0,
        }
    }
}

/// The bytes of a column.
pub struct ColumnSource<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Their offset in the raw bytes.
    pub start: usize,
    /// The number of records.
    pub count: usize,
    /// The time that deltas begin with.
    pub first_ms: u64,
    /// The places of the column that predicts this one.
    pub context: Option<&'a [u32]>,
    /// The same column of the dictionary.
    pub known: Option<&'a ColumnValues>,
}

impl ColumnSource<'_> {
    /// Reads the values of a column, and continues its memory. None if the bytes are not such a column.
    pub fn decode(&self, column: LogColumn, memory: &mut BlockMemory) -> Option<ColumnValues> {
        let place = column.place();
        match column.layout().encoding {
            ColumnEncoding::Delta => self.deltas().map(ColumnValues::Numbers),
            ColumnEncoding::Number => self.numbers().map(ColumnValues::Numbers),
            ColumnEncoding::Predicted => {
                let numbers = self.predicted(&mut memory.numbers[place]);
                numbers.map(ColumnValues::Numbers)
            }
            ColumnEncoding::Table => table::decode(self, &mut memory.places[place]),
        }
    }

    fn deltas(&self) -> Option<Vec<u64>> {
        let mut rest = self.bytes;
        let mut value = self.first_ms;
        // The header's limit of records bounds this allocation, before any byte of the column is read.
        let mut numbers = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            // Differences of damaged or foreign bytes may overflow; the encoder wraps, too, so its values return.
            value = value.wrapping_add_signed(unzigzag(take_number(&mut rest)?));
            numbers.push(value);
        }
        // A rest shows that the bytes are no such column.
        rest.is_empty().then_some(numbers)
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        let mut rest = self.bytes;
        let lens = take_bytes(&mut rest, self.count)?;
        if lens.iter().any(|len| *len > 8) {
            return None;
        }
        // Shorter numbers have no byte in a plane, so only the longer ones take one, in the order of records.
        let mut numbers = vec![0; self.count];
        for plane in 0..8 {
            let longer = numbers
                .iter_mut()
                .zip(lens)
                .filter(|(_, len)| **len > plane);
            for (number, _) in longer {
                *number |= u64::from(take_bytes(&mut rest, 1)?[0]) << (8 * plane);
            }
        }
        rest.is_empty().then_some(numbers)
    }

    fn predicted(&self, memory: &mut ContextMemory<u64>) -> Option<Vec<u64>> {
        let mut rest = self.bytes;
        let mut numbers = Vec::with_capacity(self.count);
        for context in self.context?.iter().copied() {
            let symbol = match self.bytes {
                // All are as predicted.
                [] => 0,
                _ => take_number(&mut rest)?,
            };
            let number = match symbol {
                0 => memory.last(context)?,
                // Symbol 0 is taken by the prediction, so the encoder added 1 to all other numbers.
                symbol => symbol - 1,
            };
            memory.note(context, number);
            numbers.push(number);
        }
        rest.is_empty().then_some(numbers)
    }
}
