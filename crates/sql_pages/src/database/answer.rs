//! What a database answers, and its rows as they come.

use std::sync::Arc;

use minijinja::Value;

use super::call::{Call, Want};
use super::trouble::Trouble;
use crate::table::{self, Table};
use crate::value::Done;

/// What a database answers.
pub enum Answer {
    /// The rows of what reads.
    Rows(Arc<Table>),
    /// What was written.
    Done(Done),
}

impl Answer {
    /// As a template's value.
    pub fn value(self, want: Want) -> Value {
        match (self, want) {
            (Answer::Rows(table), Want::Row) => table::first_row(table),
            (Answer::Rows(table), _) => table::rows(table),
            (Answer::Done(done), _) => done.value(),
        }
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        match self {
            Answer::Rows(table) => table.len(),
            Answer::Done(_) => 0,
        }
    }
}

/// The rows of an answer as they come.
pub(super) struct Rows<'c> {
    call: &'c Call,
    pub(super) table: Table,
}

impl<'c> Rows<'c> {
    pub(super) fn of(call: &'c Call) -> Rows<'c> {
        Rows {
            call,
            table: Table::default(),
        }
    }

    /// A row comes, with columns of these names: those of the first are all rows'.
    pub(super) fn begin_row<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if self.table.row_count() == 0 {
            self.table.begin(names);
        }
    }

    /// A row has come whole.
    pub(super) fn end_row(&mut self) -> Result<(), Trouble> {
        if self.table.row_count() == self.call.rows_max {
            return Err(Trouble::TooManyRows);
        }
        self.table.end_row();
        match self.table.len() > self.call.len_max {
            true => Err(Trouble::TooLong(self.call.len_max)),
            false => Ok(()),
        }
    }

    pub(super) fn answer(self) -> Answer {
        Answer::Rows(Arc::new(self.table))
    }
}
