//! The answer of a database: collects rows as they arrive, within the call's limits.

use std::sync::Arc;

use minijinja::Value;

use super::call::{DatabaseCall, ResultShape};
use super::driver_error::DriverError;
use crate::table::{self, RowTable};
use crate::value::StatementResult;

/// The answer to a call.
pub enum DatabaseAnswer {
    /// The rows of a query.
    Rows(Arc<RowTable>),
    /// The result of a write.
    Done(StatementResult),
}

impl DatabaseAnswer {
    /// Converts the answer to a template value.
    pub fn value(self, shape: ResultShape) -> Value {
        match (self, shape) {
            (DatabaseAnswer::Rows(table), ResultShape::Row) => table::first_row(table),
            (DatabaseAnswer::Rows(table), _) => table::rows(table),
            (DatabaseAnswer::Done(result), _) => result.value(),
        }
    }

    /// The memory that the rows take, in bytes.
    pub fn len(&self) -> usize {
        match self {
            DatabaseAnswer::Rows(table) => table.len(),
            DatabaseAnswer::Done(_) => 0,
        }
    }
}

/// Collects the rows of an answer, within the limits of the call.
pub(super) struct AnswerRows<'c> {
    call: &'c DatabaseCall,
    pub(super) table: RowTable,
}

impl<'c> AnswerRows<'c> {
    pub(super) fn new(call: &'c DatabaseCall) -> AnswerRows<'c> {
        AnswerRows {
            call,
            table: RowTable::default(),
        }
    }

    /// Begins a row. The column names of the first row apply to all rows.
    pub(super) fn begin_row<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if self.table.row_count() == 0 {
            self.table.begin(names);
        }
    }

    /// Ends a row.
    pub(super) fn end_row(&mut self) -> Result<(), DriverError> {
        if self.table.row_count() == self.call.rows_max {
            return Err(DriverError::TooManyRows);
        }
        self.table.end_row();
        match self.table.len() > self.call.len_max {
            true => Err(DriverError::TooLong(self.call.len_max)),
            false => Ok(()),
        }
    }

    pub(super) fn answer(self) -> DatabaseAnswer {
        DatabaseAnswer::Rows(Arc::new(self.table))
    }
}
