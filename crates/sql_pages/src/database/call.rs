//! Calls of pages to databases. Independent of drivers.

use std::sync::Arc;
use std::time::Duration;

use crate::statement::{self, SqlDialect, StatementEffect};
use crate::value::SqlParam;

/// The maximum of statements that a connection keeps prepared.
pub(super) const STATEMENTS_MAX: usize = 256;

/// One call of a page to a database.
#[derive(Clone)]
pub struct DatabaseCall {
    /// The statement, with `?` for parameters.
    pub sql: Arc<str>,
    /// A value for each `?`.
    pub params: Vec<SqlParam>,
    /// The expected result.
    pub shape: ResultShape,
    /// The protection against writes.
    pub mode: CallMode,
    /// The maximum of bytes of its rows.
    pub len_max: usize,
    /// The maximum of rows: the database's limit.
    pub rows_max: usize,
    /// The database's time limit.
    pub timeout: Duration,
}

impl DatabaseCall {
    /// Whether it only reads, so that a retry after a failure is safe.
    pub fn is_read_only(&self) -> bool {
        self.mode != CallMode::Write
    }
}

/// The protection of a call against writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// None: the text shows that it only reads. A retry after a failure is safe.
    Read,
    /// A read-only transaction, in which the database refuses writes. A retry after a failure is safe.
    ReadGuarded,
    /// A part of the page's transaction, which is committed if the page succeeds.
    Write,
}

impl CallMode {
    /// The mode for a statement. `None`: it writes, but the request's method is `safe` (RFC 9110 §9.2.1), so that
    /// any link could cause the write.
    pub fn from_sql(
        sql: &str,
        dialect: SqlDialect,
        shape: ResultShape,
        safe: bool,
    ) -> Option<CallMode> {
        match (statement::effect(sql, dialect), safe) {
            (StatementEffect::Reads, _) if shape != ResultShape::Done => Some(CallMode::Read),
            (StatementEffect::Unsure, true) if shape != ResultShape::Done => {
                Some(CallMode::ReadGuarded)
            }
            (_, true) => None,
            (_, false) => Some(CallMode::Write),
        }
    }
}

/// The result that a page expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// All rows.
    Rows,
    /// The first row, or none.
    Row,
    /// The number of rows that it wrote.
    Done,
}
