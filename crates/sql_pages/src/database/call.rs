//! What a page asks a database. Knows no database.

use std::sync::Arc;
use std::time::Duration;

use crate::statement::{self, Effect};
use crate::value::Param;

/// Statements that a connection keeps prepared.
pub(super) const STATEMENTS_MAX: usize = 256;

/// What a page asks a database.
#[derive(Clone)]
pub struct Call {
    /// The statement, with `?` for parameters.
    pub sql: Arc<str>,
    /// One for each `?`.
    pub params: Vec<Param>,
    /// What it wants to hear.
    pub want: Want,
    /// How it is made.
    pub mode: Mode,
    /// Bytes of its rows.
    pub len_max: usize,
    /// How many rows it may have: the database's limit.
    pub rows_max: usize,
    /// The database's time limit.
    pub timeout: Duration,
}

impl Call {
    /// Whether it only reads, so that it may be made again after a failure.
    pub fn reads(&self) -> bool {
        self.mode != Mode::Write
    }
}

/// How a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As it is: it only reads, so that it may be made again after a failure.
    Read,
    /// Where the database refuses to write; again after a failure too.
    ReadGuarded,
    /// As part of what is kept when the page ends well.
    Write,
}

impl Mode {
    /// The mode for a statement; none if it writes, which a page must not in answer to a method
    /// that promises to change nothing. `safe` = that is its method.
    pub fn of(sql: &str, want: Want, safe: bool) -> Option<Mode> {
        match (statement::effect(sql), safe) {
            (Effect::Reads, _) if want != Want::Done => Some(Mode::Read),
            (Effect::Unsure, true) if want != Want::Done => Some(Mode::ReadGuarded),
            (_, true) => None,
            (_, false) => Some(Mode::Write),
        }
    }
}

/// What a page wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All rows.
    Rows,
    /// The first row, or none.
    Row,
    /// How many rows it wrote.
    Done,
}
