//! A page's call to a database: the statement, its parameters and its limits. This module is independent of drivers.

use std::sync::Arc;
use std::time::Duration;

use crate::statement::{self, SqlDialect, StatementEffect};
use crate::value::SqlParam;

/// The maximum number of prepared statements that are cached per connection.
pub(super) const PREPARED_STATEMENTS_MAX: usize = 256;

/// A call from a page to a database.
#[derive(Clone)]
pub struct DatabaseCall {
    /// The SQL statement, with `?` for parameters.
    pub sql: Arc<str>,
    /// The values of the parameters.
    pub params: Vec<SqlParam>,
    /// The form of the answer that the page expects.
    pub shape: ResultShape,
    /// The protection against writes.
    pub mode: CallMode,
    /// The maximum memory of the rows, in bytes.
    pub len_max: usize,
    /// The maximum number of rows.
    pub rows_max: usize,
    /// The time limit.
    pub timeout: Duration,
}

impl DatabaseCall {
    /// Whether the call only reads, so that it can be retried safely.
    pub fn is_read_only(&self) -> bool {
        self.mode != CallMode::Write
    }
}

/// The protection of a call against writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMode {
    /// No protection: the statement's text shows that it only reads. Such a call can be retried safely.
    Read,
    /// A read-only transaction, in which the database rejects writes. Such a call can be retried safely.
    ReadGuarded,
    /// Part of the page's transaction, which is committed if the page succeeds.
    Write,
}

impl CallMode {
    /// The mode for a statement. `None`: the statement writes, but the request's method is `safe` (RFC 9110 §9.2.1), so
    /// any link could trigger the write.
    pub fn from_sql(
        sql: &str,
        dialect: SqlDialect,
        shape: ResultShape,
        safe: bool,
    ) -> Option<CallMode> {
        match (statement::effect(sql, dialect), safe) {
            (StatementEffect::Reads, _) if shape != ResultShape::Done => Some(CallMode::Read),
            (StatementEffect::MayWrite, true) if shape != ResultShape::Done => {
                Some(CallMode::ReadGuarded)
            }
            (_, true) => None,
            (_, false) => Some(CallMode::Write),
        }
    }
}

/// The form of the answer that a page expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// All rows.
    Rows,
    /// The first row, if there is one.
    Row,
    /// The number of rows written.
    Done,
}
