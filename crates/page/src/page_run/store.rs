//! Stores the texts, rows and lists of a run, in two buffers that only grow until the next page begins.

use alloc::string::String;
use alloc::vec::Vec;

use crate::page::CompiledPage;
use crate::request;
use crate::value::{MachineValue, PageValue, TextRef};

/// The position of a result: its column names are followed by its cells, row by row.
#[derive(Clone, Copy, Debug, Default)]
struct ResultRows {
    /// The position of the column names in `cells` of the store.
    names: u32,
    width: u32,
    /// The position of the first cell in `cells` of the store.
    cells: u32,
    count: u32,
}

/// Texts, rows and lists.
#[derive(Debug, Default)]
pub struct ValueStore {
    texts: String,
    cells: Vec<MachineValue>,
    results: Vec<ResultRows>,
    /// The result that is being received.
    incoming: ResultRows,
}

/// The maximum capacity that is kept: a larger buffer is freed when the next page begins.
const KEPT_LEN_MAX: usize = 256 << 10;

impl ValueStore {
    pub fn clear(&mut self) {
        // The memory of one large page must not be kept forever.
        if self.texts.capacity() > KEPT_LEN_MAX {
            self.texts = String::new();
        }
        if self.cells.capacity() > KEPT_LEN_MAX / size_of::<MachineValue>() {
            self.cells = Vec::new();
        }
        self.texts.clear();
        self.cells.clear();
        self.results.clear();
        self.incoming = ResultRows::default();
    }

    /// The number of bytes in use.
    pub fn len(&self) -> usize {
        self.texts.len()
            + self.cells.len() * size_of::<MachineValue>()
            + self.results.len() * size_of::<ResultRows>()
    }

    #[inline]
    pub fn text<'s>(&'s self, page: &'s CompiledPage, text: TextRef) -> &'s str {
        let from = if text.in_page {
            &page.text
        } else {
            &self.texts
        };
        let at = text.at as usize;
        // Positions were created by this run, so they are always valid; the default avoids a panic path.
        from.get(at..at + text.len as usize).unwrap_or_default()
    }

    #[inline]
    pub fn bytes<'s>(&'s self, page: &'s CompiledPage, text: TextRef) -> &'s [u8] {
        let from = if text.in_page {
            &page.text
        } else {
            &self.texts
        };
        let at = text.at as usize;
        let bytes = from.as_bytes().get(at..at + text.len as usize);
        bytes.unwrap_or_default()
    }

    /// The buffer of all texts, for appending.
    pub fn texts(&mut self) -> &mut String {
        &mut self.texts
    }

    /// The text from a position to the end of the buffer.
    pub fn text_from(&self, at: usize, is_safe: bool) -> MachineValue {
        MachineValue::Text(TextRef {
            at: at as u32,
            len: (self.texts.len() - at) as u32,
            in_page: false,
            is_safe,
        })
    }

    /// Appends a text.
    #[inline]
    pub fn add(&mut self, text: &str) -> MachineValue {
        let at = self.texts.len();
        self.texts.push_str(text);
        self.text_from(at, false)
    }

    /// Appends a text of the page or the run to the buffer.
    pub fn append(&mut self, page: &CompiledPage, text: TextRef) {
        let at = text.at as usize;
        let end = at + text.len as usize;
        if text.in_page {
            self.texts
                .push_str(page.text.get(at..end).unwrap_or_default());
        } else if self.texts.get(at..end).is_some() {
            self.texts.extend_from_within(at..end);
        }
    }

    pub fn list(&mut self, items: &[MachineValue]) -> MachineValue {
        let at = self.cells.len() as u32;
        self.cells.extend_from_slice(items);
        MachineValue::List {
            at,
            len: items.len() as u32,
        }
    }

    pub fn items(&self, at: u32, len: u32) -> &[MachineValue] {
        self.cells
            .get(at as usize..(at + len) as usize)
            .unwrap_or_default()
    }

    /// Begins a result; an incomplete result is dropped.
    pub fn begin_rows<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        // A repeated query replaces the rows received so far.
        if self.incoming.width > 0 {
            self.cells.truncate(self.incoming.names as usize);
        }
        let at = self.cells.len();
        for name in names {
            let name = self.add(name);
            self.cells.push(name);
        }
        self.incoming = ResultRows {
            names: at as u32,
            width: (self.cells.len() - at) as u32,
            cells: self.cells.len() as u32,
            count: 0,
        };
    }

    pub fn row_count(&self) -> u32 {
        self.incoming.count
    }

    #[inline]
    pub fn push_cell(&mut self, value: PageValue<'_>) {
        let cell = match value {
            PageValue::Null => MachineValue::None,
            PageValue::Bool(inner) => MachineValue::Bool(inner),
            PageValue::Int(inner) => MachineValue::Int(inner),
            // The smaller type is preferred, so that equal numbers have one representation.
            PageValue::UInt(inner) => {
                i64::try_from(inner).map_or(MachineValue::UInt(inner), MachineValue::Int)
            }
            PageValue::Float(inner) => MachineValue::Float(inner),
            PageValue::Text(inner) => self.add(inner),
            PageValue::Bytes(inner) => {
                let at = self.texts.len();
                request::push_lossy(inner, &mut self.texts);
                self.text_from(at, false)
            }
        };
        self.cells.push(cell);
    }

    /// Completes a row to one cell per column, even if fewer or more values were received.
    #[inline]
    pub fn end_row(&mut self) {
        self.incoming.count += 1;
        // A server may send fewer or more values than columns; the row keeps its width.
        let end = self.incoming.cells + self.incoming.count * self.incoming.width;
        self.cells.resize(end as usize, MachineValue::None);
    }

    /// Completes the result; returns its index and its number of rows.
    pub fn end_rows(&mut self) -> (u32, u32) {
        let rows = core::mem::take(&mut self.incoming);
        self.results.push(rows);
        (self.results.len() as u32 - 1, rows.count)
    }

    pub fn rows_len(&self, result: u32) -> u32 {
        self.results
            .get(result as usize)
            .map_or(0, |rows| rows.count)
    }

    /// The names and cells of a row.
    #[inline]
    pub fn row(&self, result: u32, row: u32) -> (&[MachineValue], &[MachineValue]) {
        let Some(rows) = self.results.get(result as usize) else {
            return (&[], &[]);
        };
        let width = rows.width as usize;
        let names = rows.names as usize;
        let cells = rows.cells as usize + row as usize * width;
        (
            self.cells.get(names..names + width).unwrap_or_default(),
            self.cells.get(cells..cells + width).unwrap_or_default(),
        )
    }

    /// The column names of a result as a list.
    pub fn names(&self, result: u32) -> MachineValue {
        let rows = self
            .results
            .get(result as usize)
            .copied()
            .unwrap_or_default();
        MachineValue::List {
            at: rows.names,
            len: rows.width,
        }
    }

    /// A cell of a row.
    #[inline]
    pub fn cell(
        &self,
        page: &CompiledPage,
        result: u32,
        row: u32,
        name: &[u8],
    ) -> Option<MachineValue> {
        let rows = self.results.get(result as usize)?;
        let (names, width) = (rows.names as usize, rows.width as usize);
        // Results have few columns, so their names are searched linearly.
        let is_named = |candidate: &MachineValue| matches!(candidate, MachineValue::Text(candidate) if self.bytes(page, *candidate) == name);
        let column = self
            .cells
            .get(names..names + width)?
            .iter()
            .position(is_named)?;
        let cell = rows.cells as usize + row as usize * width + column;
        self.cells.get(cell).copied()
    }
}
