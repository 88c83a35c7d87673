//! The rows of an answer: all cells in one list, all texts in one string. Provides the rows to templates. This module
//! is independent of statements and drivers.

use std::ops::Range;
use std::sync::Arc;

use lowroad_page::PageValue as Cell;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value};

/// The number of bytes that count for a row in addition to its cells, and for a cell in addition to its text.
const ROW_LEN: usize = 64;
const CELL_LEN: usize = 24;

/// Rows with the same columns.
#[derive(Debug, Default)]
pub struct RowTable {
    names: Box<[Box<str>]>,
    cells: Vec<CellValue>,
    texts: String,
    bytes: Vec<u8>,
    row_count: usize,
}

/// A cell; text and bytes are ranges in the table's buffers.
#[derive(Clone, Copy, Debug)]
enum CellValue {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text { offset: usize, len: u32 },
    Bytes { offset: usize, len: u32 },
}

impl RowTable {
    /// Clears the table, and sets the names of its columns.
    pub fn begin<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        *self = RowTable {
            names: names.map(Box::from).collect(),
            ..RowTable::default()
        };
    }

    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The number of complete rows.
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// Appends the next cell of the current row.
    #[inline]
    pub fn push(&mut self, cell: Cell<'_>) {
        self.cells.push(match cell {
            Cell::Null => CellValue::Null,
            Cell::Bool(it) => CellValue::Bool(it),
            Cell::Int(it) => CellValue::Int(it),
            Cell::UInt(it) => CellValue::UInt(it),
            Cell::Float(it) => CellValue::Float(it),
            Cell::Text(it) => {
                // All texts share one buffer, so that a cell costs no allocation.
                let offset = self.texts.len();
                self.texts.push_str(it);
                CellValue::Text {
                    offset,
                    len: len(it),
                }
            }
            Cell::Bytes(it) => {
                let offset = self.bytes.len();
                self.bytes.extend_from_slice(it);
                CellValue::Bytes {
                    offset,
                    len: len(it),
                }
            }
        });
    }

    /// Completes the current row, which must have one cell per column.
    #[inline]
    pub fn end_row(&mut self) {
        self.row_count += 1;
    }

    /// Whether any cell contains bytes.
    pub fn has_bytes(&self) -> bool {
        self.cells
            .iter()
            .any(|stored| matches!(stored, CellValue::Bytes { .. }))
    }

    /// The memory of the table, in bytes.
    pub fn len(&self) -> usize {
        self.row_count * ROW_LEN + self.cells.len() * CELL_LEN + self.texts.len() + self.bytes.len()
    }

    /// The cells of a row.
    #[inline]
    pub fn row(&self, index: usize) -> impl Iterator<Item = Cell<'_>> {
        let width = self.names.len();
        let cells = self.cells.get(index * width..(index + 1) * width);
        cells
            .unwrap_or_default()
            .iter()
            .map(|stored| self.cell(*stored))
    }

    #[inline]
    fn cell(&self, stored: CellValue) -> Cell<'_> {
        match stored {
            CellValue::Null => Cell::Null,
            CellValue::Bool(it) => Cell::Bool(it),
            CellValue::Int(it) => Cell::Int(it),
            CellValue::UInt(it) => Cell::UInt(it),
            CellValue::Float(it) => Cell::Float(it),
            CellValue::Text { offset, len } => {
                Cell::Text(self.texts.get(range(offset, len)).unwrap_or_default())
            }
            CellValue::Bytes { offset, len } => {
                Cell::Bytes(self.bytes.get(range(offset, len)).unwrap_or_default())
            }
        }
    }

    fn column_value(&self, row: usize, name: &str) -> Option<Value> {
        // The search is linear, since tables have few columns.
        let column = self
            .names
            .iter()
            .position(|column_name| **column_name == *name)?;
        let stored = self.cells.get(row * self.names.len() + column)?;
        Some(match self.cell(*stored) {
            Cell::Null => Value::from(()),
            Cell::Bool(it) => Value::from(it),
            Cell::Int(it) => Value::from(it),
            Cell::UInt(it) => Value::from(it),
            Cell::Float(it) => Value::from(it),
            Cell::Text(it) => Value::from(it),
            Cell::Bytes(it) => Value::from_bytes(it.to_vec()),
        })
    }
}

/// The length of a cell. Databases and memory limits exclude cells of 4 GiB.
#[inline]
fn len(it: &(impl AsRef<[u8]> + ?Sized)) -> u32 {
    u32::try_from(it.as_ref().len()).unwrap_or(u32::MAX)
}

#[inline]
fn range(offset: usize, len: u32) -> Range<usize> {
    offset..offset + len as usize
}

/// All rows, as a sequence for templates.
pub fn rows(table: Arc<RowTable>) -> Value {
    Value::from_object(RowSequence(table))
}

/// The first row, as a template value; the template's `none` if there are no rows.
pub fn first_row(table: Arc<RowTable>) -> Value {
    match table.row_count {
        0 => Value::from(()),
        _ => Value::from_object(TableRow {
            table,
            row_index: 0,
        }),
    }
}

#[derive(Debug)]
struct RowSequence(Arc<RowTable>);

impl Object for RowSequence {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let row_index = key
            .as_usize()
            .filter(|row_index| *row_index < self.0.row_count)?;
        let table = self.0.clone();
        Some(Value::from_object(TableRow { table, row_index }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.row_count)
    }
}

/// A row for templates: `row.name` or `row["name"]`; iteration is in the order of the columns.
#[derive(Debug)]
struct TableRow {
    table: Arc<RowTable>,
    row_index: usize,
}

impl Object for TableRow {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.table.column_value(self.row_index, key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.table.column_value(self.row_index, key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.table.names().map(Value::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Arc<RowTable> {
        let mut table = RowTable::default();
        table.begin(["b", "a"].into_iter());
        for (number, text) in [(1, "x"), (2, "é")] {
            table.push(Cell::Int(number));
            table.push(Cell::Text(text));
            table.end_row();
        }
        Arc::new(table)
    }

    #[test]
    fn row_iterates_columns_in_order() {
        let row = first_row(table());
        assert_eq!(row.get_attr("a").unwrap(), Value::from("x"));
        assert!(row.get_attr("c").unwrap().is_undefined());
        let names: Vec<String> = row.try_iter().unwrap().map(|n| n.to_string()).collect();
        assert_eq!(names, ["b", "a"]);
    }

    #[test]
    fn rows_are_a_sequence_with_separate_cells() {
        let rows = rows(table());
        assert_eq!(rows.len(), Some(2));
        let texts: Vec<Value> = rows
            .try_iter()
            .unwrap()
            .map(|row| row.get_attr("a").unwrap())
            .collect();
        assert_eq!(texts, [Value::from("x"), Value::from("é")]);
        assert!(rows.get_item(&Value::from(2)).unwrap().is_undefined());
        assert!(first_row(Arc::default()).is_none());
    }

    #[test]
    fn len_counts_rows_cells_and_texts() {
        let cells = |table: &RowTable, at| format!("{:?}", table.row(at).collect::<Vec<_>>());
        let table = table();
        assert_eq!(cells(&table, 1), "[Int(2), Text(\"é\")]");
        assert_eq!(cells(&table, 2), "[]");
        assert_eq!(table.len(), 2 * ROW_LEN + 4 * CELL_LEN + 3);
    }
}
