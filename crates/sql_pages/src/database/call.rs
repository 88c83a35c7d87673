//! What a page asks a database. Knows no database.

use std::sync::Arc;
use std::time::Duration;

use crate::statement::{self, SqlDialect, StatementEffect};
use crate::value::SqlParam;

/// Statements that a connection keeps prepared.
pub(super) const STATEMENTS_MAX: usize = 256;

/// What a page asks a database.
#[derive(Clone)]
pub struct DatabaseCall {
    /// The statement, with `?` for parameters.
    pub sql: Arc<str>,
    /// One for each `?`.
    pub params: Vec<SqlParam>,
    /// What it wants to hear.
    pub want: ResultShape,
    /// How it is made.
    pub mode: CallMode,
    /// Bytes of its rows.
    pub len_max: usize,
    /// How many rows it may have: the database's limit.
    pub rows_max: usize,
    /// The database's time limit.
    pub timeout: Duration,
}

impl DatabaseCall {
    /// Whether it only reads, so that it may be made again after a failure.
    pub fn reads(&self) -> bool {
        self.mode != CallMode::Write
    }
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// As it is: it only reads, so that it may be made again after a failure.
    Read,
    /// Where the database refuses to write; again after a failure too.
    ReadGuarded,
    /// As part of what is kept when the page ends well.
    Write,
}

impl CallMode {
    /// The mode for a statement; none if it writes, which a page must not in answer to a method
    /// that promises to change nothing. `safe` = that is its method.
    pub fn from_sql(
        sql: &str,
        dialect: SqlDialect,
        want: ResultShape,
        safe: bool,
    ) -> Option<CallMode> {
        match (statement::effect(sql, dialect), safe) {
            (StatementEffect::Reads, _) if want != ResultShape::Done => Some(CallMode::Read),
            (StatementEffect::Unsure, true) if want != ResultShape::Done => {
                Some(CallMode::ReadGuarded)
            }
            (_, true) => None,
            (_, false) => Some(CallMode::Write),
        }
    }
}

/// What a page wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// All rows.
    Rows,
    /// The first row, or none.
    Row,
    /// How many rows it wrote.
    Done,
}
