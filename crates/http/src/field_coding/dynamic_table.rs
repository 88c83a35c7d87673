//! The dynamic table of HPACK and QPACK: fields as text lines. Entries are numbered from the newest. Read RFC 7541 §2.3.2 and
//! §4, RFC 9204 §3.2.
//!
//! All lines are in one buffer, the oldest first. A line is 4 bytes longer than its name and value, while the table's
//! size counts 32 bytes in addition to them; so the live lines never exceed that size. Evicted lines are a prefix of
//! the buffer; the prefix is removed once it is the larger part.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{FieldClass, TableEntry};

/// The size of an entry in addition to its name and value (RFC 7541 §4.1).
pub(crate) const ENTRY_LEN: usize = 32;
/// Evicted bytes that are kept, to avoid moving the live lines.
const DEAD_LEN_MAX: usize = 1024;

/// The dynamic table.
#[derive(Debug)]
pub(crate) struct DynamicTable {
    lines: Vec<u8>,
    /// The positions of the lines, newest first.
    entries: VecDeque<EntryPosition>,
    /// Evicted bytes at the start of `lines`.
    dead_len: usize,
    /// The number of bytes removed from the start of `lines` so far, modulo 2^32.
    removed_len: u32,
    /// The size as defined by RFC 7541 §4.1.
    size: usize,
    size_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct EntryPosition {
    /// The offset of the line as if nothing had ever been removed, so that removals need not update it.
    line_offset: u32,
    len: u32,
    name_len: u32,
    kind: FieldClass,
    is_value_valid: bool,
}

impl DynamicTable {
    pub(crate) fn new(size_max: usize) -> DynamicTable {
        DynamicTable {
            lines: Vec::new(),
            entries: VecDeque::new(),
            dead_len: 0,
            removed_len: 0,
            size: 0,
            size_max,
        }
    }

    /// The entry with this number; the newest is 0.
    #[inline(always)]
    pub(crate) fn get(&self, number: usize) -> Option<TableEntry<'_>> {
        let position = self.entries.get(number)?;
        let start = position.line_offset.wrapping_sub(self.removed_len) as usize;
        Some(TableEntry {
            line: self.lines.get(start..start + position.len as usize)?,
            name_len: position.name_len as usize,
            kind: position.kind,
            is_value_valid: position.is_value_valid,
        })
    }

    /// Changes the maximum size.
    pub(crate) fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(0);
    }

    /// Adds a field. A field that is larger than the table empties it (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, entry: &TableEntry<'_>) {
        let size = entry.size();
        self.evict(size);
        // RFC 7541 §4.4: too large an entry is not an error.
        if size > self.size_max {
            return;
        }
        // This takes amortized constant time: fewer bytes are moved than were evicted.
        if self.dead_len > DEAD_LEN_MAX.max(self.lines.len() / 2) {
            self.lines.drain(..self.dead_len);
            self.removed_len = self.removed_len.wrapping_add(self.dead_len as u32);
            self.dead_len = 0;
        }
        self.entries.push_front(EntryPosition {
            line_offset: self.removed_len.wrapping_add(self.lines.len() as u32),
            len: entry.line.len() as u32,
            name_len: entry.name_len as u32,
            kind: entry.kind,
            is_value_valid: entry.is_value_valid,
        });
        self.lines.extend_from_slice(entry.line);
        self.size += size;
    }

    /// Evicts entries until `size` more bytes fit.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.size_max {
            let Some(position) = self.entries.pop_back() else {
                break;
            };
            self.dead_len += position.len as usize;
            // The size does not count the four bytes of ": " and CRLF.
            self.size -= position.len as usize - 4 + ENTRY_LEN;
        }
        // No entry refers to an offset any more, so `removed_len` need not be updated.
        if self.entries.is_empty() {
            self.lines.clear();
            self.dead_len = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(table: &mut DynamicTable, line: &str) {
        table.insert(&TableEntry {
            line: line.as_bytes(),
            name_len: 1,
            kind: FieldClass::Plain,
            is_value_valid: true,
        });
    }

    fn lines(table: &DynamicTable) -> Vec<&str> {
        let lines = (0..).map_while(|number| table.get(number));
        lines
            .filter_map(|entry| str::from_utf8(entry.line).ok())
            .collect()
    }

    #[test]
    fn oldest_entries_are_evicted_first() {
        let mut table = DynamicTable::new(70);
        add(&mut table, "a: 1\r\n");
        add(&mut table, "b: 2\r\n");
        assert_eq!(lines(&table), ["b: 2\r\n", "a: 1\r\n"]);
        add(&mut table, "c: 345\r\n");
        assert_eq!(lines(&table), ["c: 345\r\n", "b: 2\r\n"]);
        table.set_size_max(36);
        assert_eq!(lines(&table), ["c: 345\r\n"]);
        table.set_size_max(4096);
        add(&mut table, "d: 1\r\n");
        assert_eq!(lines(&table), ["d: 1\r\n", "c: 345\r\n"]);
    }

    #[test]
    fn entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::new(40);
        add(&mut table, "a: 1\r\n");
        add(&mut table, "b: 12345678\r\n");
        assert!(lines(&table).is_empty());
        table.set_size_max(0);
        add(&mut table, "c: \r\n");
        assert!(lines(&table).is_empty());
    }

    #[test]
    fn table_memory_is_bounded_under_many_insertions() {
        // Evicted lines must be removed from the buffer.
        let mut table = DynamicTable::new(4096);
        for number in 0..10_000 {
            let line = alloc::format!("n: {number:0>200}\r\n");
            add(&mut table, &line);
            assert_eq!(table.get(0).map(|entry| entry.line), Some(line.as_bytes()));
        }
        assert!(
            table.lines.capacity() < 4 * 4096,
            "{}",
            table.lines.capacity()
        );
        assert_eq!(table.entries.len(), 4096 / 233);
    }
}
