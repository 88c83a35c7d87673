//! What a database answers, and its rows as they come.

use std::sync::Arc;

use minijinja::Value;

use super::call::{DatabaseCall, ResultShape};
use super::trouble::DriverError;
use crate::table::{self, RowTable};
use crate::value::StatementResult;

/// What a database answers.
pub enum DatabaseAnswer {
    /// The rows of what reads.
    Rows(Arc<RowTable>),
    /// What was written.
    Done(StatementResult),
}

impl DatabaseAnswer {
    /// As a template's value.
    pub fn value(self, want: ResultShape) -> Value {
        match (self, want) {
            (DatabaseAnswer::Rows(table), ResultShape::Row) => table::first_row(table),
            (DatabaseAnswer::Rows(table), _) => table::rows(table),
            (DatabaseAnswer::Done(done), _) => done.value(),
        }
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        match self {
            DatabaseAnswer::Rows(table) => table.len(),
            DatabaseAnswer::Done(_) => 0,
        }
    }
}

/// The rows of an answer as they come.
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

    /// A row comes, with columns of these names: those of the first are all rows'.
    pub(super) fn begin_row<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if self.table.row_count() == 0 {
            self.table.begin(names);
        }
    }

    /// A row has come whole.
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
