//! A column of values that repeat.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::context_memory::ContextMemory;
use crate::symbols::{NEW, PLACE, SAME, put_symbols};
use crate::varint::put_number;

/// The distinct values of a block and of its dictionary, and a symbol for each record.
#[derive(Default)]
pub struct TableColumn {
    places: HashMap<Box<[u8]>, u32, RandomState>,
    /// The values one after another, and the end of each. Those of the dictionary come first.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// The number of values of the dictionary.
    base_len: usize,
    /// The symbols up to the last one that differs from [`SAME`].
    symbols: Vec<u32>,
    /// The number of [`SAME`] behind them. Most blocks have no other symbol in most columns.
    same_count: usize,
    /// The place of the last value for each context.
    memory: ContextMemory<u32>,
}

impl TableColumn {
    /// Adds a value. Returns its place.
    #[inline]
    pub fn push(&mut self, value: &[u8], context: u32) -> u32 {
        // Most values are those of the context: this saves the hash and the change of the memory.
        match self.memory.last_of(context) {
            Some(last) if self.value(last as usize) == value => {
                self.same_count += 1;
                self.memory.repeat(last);
                last
            }
            _ => self.push_changed(value, context),
        }
    }

    /// Whether the open block has values in this column.
    pub fn is_used(&self) -> bool {
        self.symbols.len() + self.same_count > 0
    }

    /// Adds the last value this many times, with its context.
    pub fn repeat_last(&mut self, count: usize) {
        self.same_count += count;
    }

    fn complete_symbols(&mut self) {
        // Only when another symbol follows: a column that repeats to the end of a block has no symbols.
        let count = std::mem::take(&mut self.same_count);
        self.symbols.resize(self.symbols.len() + count, SAME);
    }

    fn push_symbol(&mut self, symbol: u32) {
        self.complete_symbols();
        self.symbols.push(symbol);
    }

    /// Adds a value that is not the last one of its context.
    fn push_changed(&mut self, value: &[u8], context: u32) -> u32 {
        let last = self.memory.last(context);
        let place = match last.filter(|last| self.value(*last as usize) == value) {
            Some(last) => {
                self.same_count += 1;
                last
            }
            None => self.push_other(value),
        };
        self.memory.note(context, place);
        place
    }

    /// The length of all values.
    #[inline]
    pub fn texts_len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the number of values that the dictionary lacks, their lengths, these values, and the symbols. Nothing, if
    /// each value is that of its context.
    pub fn put(&mut self, out: &mut Vec<u8>) {
        if self.symbols.is_empty() {
            return;
        }
        self.complete_symbols();
        // A reader has the dictionary's values already, so only the later ones are written.
        put_number((self.ends.len() - self.base_len) as u64, out);
        for place in self.base_len..self.ends.len() {
            put_number(self.value(place).len() as u64, out);
        }
        out.extend_from_slice(&self.bytes[self.start(self.base_len)..]);
        put_symbols(&self.symbols, out);
    }

    /// Removes the records, and keeps all values as those of a dictionary.
    pub fn freeze(&mut self) {
        self.base_len = self.ends.len();
        self.clear_symbols();
        self.memory.freeze();
    }

    /// Removes the records, and the values that the dictionary lacks.
    pub fn clear(&mut self) {
        // Values are removed one by one: most places belong to the dictionary and remain valid.
        for place in self.base_len..self.ends.len() {
            let value = self.start(place)..self.ends[place] as usize;
            self.places.remove(&self.bytes[value]);
        }
        self.bytes.truncate(self.start(self.base_len));
        self.ends.truncate(self.base_len);
        self.clear_symbols();
        self.memory.restore();
    }

    fn clear_symbols(&mut self) {
        self.symbols.clear();
        self.same_count = 0;
    }

    fn push_other(&mut self, value: &[u8]) -> u32 {
        if let Some(place) = self.places.get(value) {
            let place = *place;
            self.push_symbol(PLACE + place);
            return place;
        }
        // A new value takes the next place, which a reader counts as well, so the symbol need not name it.
        let place = self.ends.len() as u32;
        self.places.insert(value.into(), place);
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
        self.push_symbol(NEW);
        place
    }

    fn value(&self, place: usize) -> &[u8] {
        &self.bytes[self.start(place)..self.ends[place] as usize]
    }

    fn start(&self, place: usize) -> usize {
        match place.checked_sub(1) {
            Some(before) => self.ends[before] as usize,
            None => 0,
        }
    }
}
