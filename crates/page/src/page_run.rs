//! Runs pages: a stack machine that suspends at each query and continues when it has the rows. This module does not
//! depend on databases.

mod filter;
mod list;
mod step;
mod store;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::RunFailure;
use crate::opcode::PageOp;
use crate::page::CompiledPage;
use crate::reply::PageReply;
use crate::request::PageRequest;
use crate::value::{MachineValue, PageValue};
use store::ValueStore;

/// The limits of a run. Each has its own failure message.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// The maximum number of bytes of output.
    pub output_len_max: usize,
    /// The maximum number of bytes of rows and computed texts; at most 1 GiB.
    pub memory_len_max: usize,
    /// The maximum number of operations in loops.
    pub step_count_max: u64,
    /// The maximum number of SQL statements.
    pub query_count_max: u32,
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits {
            output_len_max: 8 << 20,
            memory_len_max: 8 << 20,
            step_count_max: 5_000_000,
            query_count_max: 100,
        }
    }
}

/// The action that a run requires of its caller.
#[derive(Debug)]
pub enum RunStep<'r> {
    /// A statement to execute: pass its rows by `PageRun::columns`, `PageRun::value` and `PageRun::row_end`, end with
    /// `PageRun::finish_query` or `PageRun::refused`, then call `PageRun::step` again. Until then further calls of
    /// `step` return the same statement.
    Query {
        /// The statement, which is a literal in the page.
        statement: &'r str,
        /// The values of its `?` parameters, in order.
        values: StatementValues<'r>,
    },
    /// The page is complete.
    Done,
    /// The page failed: its output so far must be discarded, and the next call is `PageRun::begin`.
    Failed(RunFailure),
}

/// The values of a statement's parameters.
#[derive(Clone, Debug)]
pub struct StatementValues<'r> {
    values: core::slice::Iter<'r, MachineValue>,
    page: &'r CompiledPage,
    store: &'r ValueStore,
}

impl<'r> Iterator for StatementValues<'r> {
    type Item = PageValue<'r>;

    fn next(&mut self) -> Option<PageValue<'r>> {
        Some(match *self.values.next()? {
            MachineValue::Bool(value) => PageValue::Bool(value),
            MachineValue::Int(value) => PageValue::Int(value),
            MachineValue::UInt(value) => PageValue::UInt(value),
            MachineValue::Float(value) => PageValue::Float(value),
            MachineValue::Text(value) => PageValue::Text(self.store.text(self.page, value)),
            // The remaining value, `None`, is NULL.
            _ => PageValue::Null,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.values.size_hint()
    }
}

impl ExactSizeIterator for StatementValues<'_> {}

/// The state of a loop.
#[derive(Clone, Copy, Debug)]
struct LoopState {
    iterable: MachineValue,
    index: u32,
    len: u32,
    slot: u16,
}

/// The state of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryState {
    No,
    /// Rows are expected; for `row(…)` only the first row is used.
    Rows {
        is_row: bool,
    },
    Answered,
}

/// The run of a page for one request. The next run reuses its allocations.
#[derive(Debug)]
pub struct PageRun {
    limits: PageLimits,
    /// The next operation.
    at: usize,
    stack: Vec<MachineValue>,
    slots: Vec<MachineValue>,
    loops: Vec<LoopState>,
    store: ValueStore,
    reply: PageReply,
    query_state: QueryState,
    values: Vec<MachineValue>,
    steps: u64,
    queries: u32,
    /// A failure outside of an operation, which the next `step` reports.
    pending_error: Option<String>,
}

impl PageRun {
    /// A run without a page; call [`begin`](PageRun::begin) next.
    pub fn new(limits: PageLimits) -> PageRun {
        /// Positions in the buffers are 32-bit numbers.
        const MEMORY_LEN_MAX: usize = 1 << 30;
        PageRun {
            limits: PageLimits {
                memory_len_max: limits.memory_len_max.min(MEMORY_LEN_MAX),
                ..limits
            },
            at: 0,
            stack: Vec::new(),
            slots: Vec::new(),
            loops: Vec::new(),
            store: ValueStore::default(),
            reply: PageReply::default(),
            query_state: QueryState::No,
            values: Vec::new(),
            steps: 0,
            queries: 0,
            pending_error: None,
        }
    }

    /// Starts to run a page from its beginning; allowed in every state.
    // Buffers keep their allocations for the next page.
    pub fn begin(&mut self, page: &CompiledPage) {
        self.at = 0;
        self.stack.clear();
        self.slots.clear();
        self.slots.resize(page.slots, MachineValue::Unset);
        self.loops.clear();
        self.store.clear();
        self.reply.clear();
        self.query_state = QueryState::No;
        self.values.clear();
        self.steps = 0;
        self.queries = 0;
        self.pending_error = None;
    }

    /// Runs the page until it needs rows or ends. All calls for a page must have the same page, request and output.
    /// Text is appended to `out`.
    pub fn step<'r>(
        &'r mut self,
        page: &'r CompiledPage,
        request: &impl PageRequest,
        out: &mut Vec<u8>,
    ) -> RunStep<'r> {
        if let Err(message) = self.run(page, request, out) {
            return RunStep::Failed(self.failure(page, message));
        }
        // `run` stops after the operation, so the last operation is at `at - 1`.
        let last = self.at.checked_sub(1).and_then(|at| page.ops.get(at));
        match last {
            Some(&PageOp::Query { statement, .. }) if self.query_state != QueryState::No => {
                RunStep::Query {
                    statement: page.text(statement),
                    values: StatementValues {
                        values: self.values.iter(),
                        page,
                        store: &self.store,
                    },
                }
            }
            _ => RunStep::Done,
        }
    }

    /// Begins a result with the names of its columns; a result that was begun before is dropped.
    pub fn columns<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        if matches!(self.query_state, QueryState::Rows { .. }) {
            self.store.begin_rows(names);
        }
    }

    /// Adds the next value of the current row; there must be one for each column.
    #[inline]
    pub fn value(&mut self, value: PageValue<'_>) {
        let QueryState::Rows { is_row } = self.query_state else {
            return;
        };
        // Values are ignored after a failure, and after the first row of `row(…)`.
        if self.pending_error.is_none() && (!is_row || self.store.row_count() == 0) {
            self.store.push_cell(value);
        }
    }

    /// Completes the current row.
    #[inline]
    pub fn row_end(&mut self) {
        let QueryState::Rows { is_row } = self.query_state else {
            return;
        };
        if self.pending_error.is_some() || is_row && self.store.row_count() > 0 {
            return;
        }
        self.store.end_row();
        // The memory is checked for each row, since a result may be larger than the memory of the machine.
        if self.store.len() > self.limits.memory_len_max {
            // Further rows are dropped; the next `step` reports the failure.
            self.pending_error = Some(self.memory_error());
        }
    }

    /// Completes the result.
    pub fn finish_query(&mut self) {
        if let QueryState::Rows { is_row } = self.query_state {
            let rows = self.store.end_rows();
            self.stack.push(match (is_row, rows) {
                (false, (result, _)) => MachineValue::Rows(result),
                (true, (_, 0)) => MachineValue::None,
                (true, (result, _)) => MachineValue::Row { result, row: 0 },
            });
            self.query_state = QueryState::Answered;
        }
    }

    /// Reports that the query failed; the next call of `step` fails for this reason.
    pub fn refused(&mut self, reason: &str) {
        self.pending_error = Some(format!("the database reports: {reason}"));
        self.query_state = QueryState::Answered;
    }

    /// The number of operations that the page's loops have run so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The status, fields and cache lifetime set by the page; final when the page is complete.
    pub fn reply(&self) -> &PageReply {
        &self.reply
    }

    /// The source of the last operation: the name of the page or part, and the line.
    pub fn source_location<'p>(&self, page: &'p CompiledPage) -> (&'p str, u32) {
        let (part, line) = self.part_and_line(page);
        (page.parts.get(part).map_or("", String::as_str), line)
    }

    fn part_and_line(&self, page: &CompiledPage) -> (usize, u32) {
        let location = self.at.checked_sub(1).and_then(|at| page.lines.get(at));
        location.map_or((0, 1), |location| (location.part as usize, location.line))
    }

    /// The failure of the last operation.
    fn failure(&self, page: &CompiledPage, message: String) -> RunFailure {
        let (part, line) = self.part_and_line(page);
        let message = match page.parts.get(part) {
            // Part 0 is the page itself; the caller adds its name.
            Some(name) if part > 0 => format!("in {name}: {message}"),
            _ => message,
        };
        RunFailure { line, message }
    }

    fn memory_error(&self) -> String {
        format!(
            "the page takes more than {} bytes of memory: ask for fewer rows",
            self.limits.memory_len_max
        )
    }
}
