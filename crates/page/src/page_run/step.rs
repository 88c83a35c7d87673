//! Executes operations.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{PageRun, QueryState};
use crate::number;
use crate::opcode::{BinaryOp, BuiltinFunction, PageOp, SourceSpan, TestOp};
use crate::page::CompiledPage;
use crate::request::PageRequest;
use crate::text;
use crate::value::MachineValue;

/// The message of a failure.
pub type RunError = String;

/// The message if the stack is empty, which the compiler prevents.
pub const NO_VALUE: &str = "internal error: a value is missing";

impl PageRun {
    /// Runs until rows are needed (see `query_state`) or the page has ended.
    pub(super) fn run(
        &mut self,
        page: &CompiledPage,
        request: &impl PageRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        // A failure reported by `refused` or by the memory limit is returned by the next call.
        if let Some(pending_error) = self.pending_error.take() {
            return Err(pending_error);
        }
        if let QueryState::Rows { .. } = self.query_state {
            // The query is not complete: the caller gets the same statement again.
            return Ok(());
        }
        self.query_state = QueryState::No;
        while let Some(&op) = page.ops.get(self.at) {
            self.at += 1;
            match op {
                PageOp::Write(span) => {
                    out.extend_from_slice(page.bytes(span));
                    // The length is checked after each output, so that a loop exceeds the limit by at most one value.
                    self.check_output(out)?;
                }
                PageOp::Print => {
                    let value = self.pop()?;
                    self.print(page, value, out)?;
                    self.check_output(out)?;
                }
                PageOp::PrintAttribute { slot, name } => {
                    let value = self.attribute_of(page, request, slot, name)?;
                    self.print(page, value, out)?;
                    self.check_output(out)?;
                }
                PageOp::Query { values, is_row, .. } => {
                    return self.begin_query(usize::from(values), is_row);
                }
                // The frequent operations are matched first; the others are in separate functions.
                op => self.run_op(page, request, op)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn run_op(
        &mut self,
        page: &CompiledPage,
        request: &impl PageRequest,
        op: PageOp,
    ) -> Result<(), RunError> {
        match op {
            PageOp::Push(value) => self.stack.push(value),
            PageOp::Load(slot) => {
                let value = match self.slot(slot) {
                    // `Unset` is internal; pages see `undefined`.
                    MachineValue::Unset => MachineValue::Undefined,
                    value => value,
                };
                self.stack.push(value);
            }
            PageOp::LoadIfSet { slot, jump } => {
                let value = self.slot(slot);
                if value != MachineValue::Unset {
                    self.stack.push(value);
                    self.jump(jump);
                }
            }
            PageOp::Store(slot) => {
                let value = self.pop()?;
                self.set_slot(slot, value);
            }
            PageOp::Clear { from, to } => {
                let slots = self.slots.get_mut(usize::from(from)..usize::from(to));
                // The compiler's ranges are within the slots.
                slots.unwrap_or_default().fill(MachineValue::Unset);
            }
            PageOp::Attribute(span) => {
                let object = self.pop()?;
                let value = self.attribute(page, request, object, page.text(span))?;
                self.stack.push(value);
            }
            PageOp::Item => {
                let key = self.pop()?;
                let object = self.pop()?;
                let value = self.item(page, request, object, key)?;
                self.stack.push(value);
            }
            PageOp::Jump(jump) => self.jump(jump),
            PageOp::JumpIfNot(jump) => {
                let value = self.pop()?;
                if !self.is_true(value) {
                    self.jump(jump);
                }
            }
            PageOp::JumpKeeping { truth, jump } => {
                let value = self.pop()?;
                if self.is_true(value) == truth {
                    self.stack.push(value);
                    self.jump(jump);
                }
            }
            PageOp::For { slot, jump } => self.begin_loop(slot, jump)?,
            PageOp::Next { jump } => self.next_round(jump)?,
            PageOp::Loop(part) => {
                let value = self.loop_part(part)?;
                self.stack.push(value);
            }
            op => self.run_rare_op(page, op)?,
        }
        Ok(())
    }

    #[inline]
    fn attribute_of(
        &mut self,
        page: &CompiledPage,
        request: &impl PageRequest,
        slot: u16,
        name: SourceSpan,
    ) -> Result<MachineValue, RunError> {
        match self.slot(slot) {
            MachineValue::Row { result, row } => {
                // A cell of a row is the usual case, and does not need the name as a string.
                let cell = self.store.cell(page, result, row, page.bytes(name));
                Ok(cell.unwrap_or(MachineValue::Undefined))
            }
            of => self.attribute(page, request, of, page.text(name)),
        }
    }

    fn run_rare_op(&mut self, page: &CompiledPage, op: PageOp) -> Result<(), RunError> {
        match op {
            PageOp::Binary(op) => self.binary(page, op)?,
            PageOp::Not => {
                let value = self.pop()?;
                let truth = self.is_true(value);
                self.stack.push(MachineValue::Bool(!truth));
            }
            PageOp::Negate => {
                let value = self.pop()?;
                self.stack.push(number::negated(value)?);
            }
            PageOp::Filter { filter, arguments } => {
                self.filter(page, filter, usize::from(arguments))?;
            }
            PageOp::List(len) => {
                let at = self.stack_at(usize::from(len))?;
                let list = self.store.list(&self.stack[at..]);
                self.stack.truncate(at);
                self.push_allocated(list)?;
            }
            PageOp::Test { test, is_negated } => {
                let value = self.pop()?;
                let is_match = match test {
                    TestOp::Defined => !value.is_undefined(),
                    TestOp::Undefined => value.is_undefined(),
                    TestOp::None => value == MachineValue::None,
                };
                self.stack.push(MachineValue::Bool(is_match != is_negated));
            }
            PageOp::Call {
                function,
                arguments,
            } => {
                let at = self.stack_at(usize::from(arguments))?;
                self.call(page, function, at)?;
                // These functions are called for their effect, and print nothing.
                self.stack.truncate(at);
                self.stack.push(text::EMPTY);
            }
            PageOp::Drop => {
                self.pop()?;
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<MachineValue, RunError> {
        self.stack.pop().ok_or_else(|| NO_VALUE.to_string())
    }

    /// The stack index of the first of the last `count` values.
    pub(super) fn stack_at(&self, count: usize) -> Result<usize, RunError> {
        let at = self.stack.len().checked_sub(count);
        at.ok_or_else(|| NO_VALUE.to_string())
    }

    /// Pushes a value that has allocated memory, if it is within the limit.
    pub(super) fn push_allocated(&mut self, value: MachineValue) -> Result<(), RunError> {
        if self.store.len() > self.limits.memory_len_max {
            return Err(self.memory_error());
        }
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn check_output(&self, out: &[u8]) -> Result<(), RunError> {
        let len_max = self.limits.output_len_max;
        match out.len() > len_max {
            true => Err(format!("the page is longer than {len_max} bytes")),
            false => Ok(()),
        }
    }

    #[inline]
    fn slot(&self, slot: u16) -> MachineValue {
        let value = self.slots.get(usize::from(slot));
        value.copied().unwrap_or(MachineValue::Unset)
    }

    #[inline]
    pub(super) fn set_slot(&mut self, slot: u16, value: MachineValue) {
        if let Some(target) = self.slots.get_mut(usize::from(slot)) {
            *target = value;
        }
    }

    #[inline]
    pub(super) fn jump(&mut self, distance: i32) {
        self.at = self.at.wrapping_add_signed(distance as isize);
    }

    pub(super) fn is_true(&self, value: MachineValue) -> bool {
        match value {
            MachineValue::Unset | MachineValue::Undefined | MachineValue::None => false,
            MachineValue::Bool(inner) => inner,
            MachineValue::Int(inner) => inner != 0,
            MachineValue::UInt(_) => true,
            MachineValue::Float(inner) => inner != 0.0,
            MachineValue::Text(inner) => inner.len > 0,
            MachineValue::List { len, .. } => len > 0,
            MachineValue::Rows(result) => self.store.rows_len(result) > 0,
            MachineValue::Row { result, row } => !self.store.row(result, row).1.is_empty(),
            MachineValue::Request | MachineValue::Pairs(_) => true,
        }
    }

    fn begin_query(&mut self, count: usize, is_row: bool) -> Result<(), RunError> {
        // The limit bounds the load that a page can cause on the database.
        if self.queries == self.limits.query_count_max {
            return Err(format!(
                "a page can make at most {} database calls: join tables instead",
                self.queries
            ));
        }
        self.queries += 1;
        let at = self.stack_at(count)?;
        self.values.clear();
        for (number, &value) in (1..).zip(&self.stack[at..]) {
            match value {
                // An undefined value is usually a misspelled name; NULL must be given as `none`.
                MachineValue::Unset | MachineValue::Undefined => {
                    return Err(format!(
                        "value {number} is undefined; check the spelling of its name"
                    ));
                }
                value if value.is_single() => self.values.push(value),
                other => {
                    let kind = other.kind();
                    return Err(format!(
                        "value {number} is {kind}; only single values can be passed"
                    ));
                }
            }
        }
        // The values are kept in `values` until the caller has sent them.
        self.stack.truncate(at);
        self.query_state = QueryState::Rows { is_row };
        Ok(())
    }

    #[inline]
    fn print(
        &self,
        page: &CompiledPage,
        value: MachineValue,
        out: &mut Vec<u8>,
    ) -> Result<(), RunError> {
        match value {
            MachineValue::Text(inner) if inner.is_safe => {
                out.extend_from_slice(self.store.bytes(page, inner));
            }
            MachineValue::Text(inner) => text::escape(self.store.bytes(page, inner), out),
            MachineValue::None => {}
            MachineValue::Int(inner) => number::write_whole(i128::from(inner), out),
            MachineValue::UInt(inner) => number::write_whole(i128::from(inner), out),
            MachineValue::Unset | MachineValue::Undefined => {
                return Err("the value is undefined; check the spelling of its name".to_string());
            }
            MachineValue::Bool(_) | MachineValue::Float(_) => {
                let mut text = String::new();
                number::write_plain(value, &mut text);
                out.extend_from_slice(text.as_bytes());
            }
            other => {
                return Err(format!("can't show {}; show its elements", other.kind()));
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        page: &CompiledPage,
        function: BuiltinFunction,
        at: usize,
    ) -> Result<(), RunError> {
        match (function, &self.stack[at..]) {
            (BuiltinFunction::Status, [MachineValue::Int(code)]) => self.reply.set_status(*code),
            (BuiltinFunction::Status, _) => Err("status() takes a number".to_string()),
            (BuiltinFunction::Header, [MachineValue::Text(name), MachineValue::Text(value)]) => {
                let (name, value) = (self.store.text(page, *name), self.store.text(page, *value));
                self.reply.set_field(name, value)
            }
            (BuiltinFunction::Header, _) => Err("header() takes two texts".to_string()),
            (BuiltinFunction::Cache, [MachineValue::Int(seconds @ 0..)]) => {
                self.reply.cache_s = Some(seconds.unsigned_abs());
                Ok(())
            }
            (BuiltinFunction::Cache, _) => Err("cache() takes a number of seconds".to_string()),
        }
    }

    fn binary(&mut self, page: &CompiledPage, op: BinaryOp) -> Result<(), RunError> {
        let right = self.pop()?;
        let left = self.pop()?;
        // minijinja's semi-strict mode allows undefined values only in tests and conditions.
        if left.is_undefined() || right.is_undefined() {
            return Err("a value is undefined; check the spelling of its name".to_string());
        }
        let value = match op {
            BinaryOp::Equal => MachineValue::Bool(self.equal(page, left, right)?),
            BinaryOp::NotEqual => MachineValue::Bool(!self.equal(page, left, right)?),
            BinaryOp::Less => MachineValue::Bool(self.compare(page, left, right)?.is_lt()),
            BinaryOp::LessOrEqual => MachineValue::Bool(self.compare(page, left, right)?.is_le()),
            BinaryOp::Greater => MachineValue::Bool(self.compare(page, left, right)?.is_gt()),
            BinaryOp::GreaterOrEqual => {
                MachineValue::Bool(self.compare(page, left, right)?.is_ge())
            }
            BinaryOp::In => MachineValue::Bool(self.contains(page, right, left)?),
            BinaryOp::NotIn => MachineValue::Bool(!self.contains(page, right, left)?),
            BinaryOp::Concat => return self.concat(page, left, right),
            BinaryOp::Add
                if matches!(
                    (left, right),
                    (MachineValue::Text(_), MachineValue::Text(_))
                ) =>
            {
                return self.concat(page, left, right);
            }
            BinaryOp::Multiply
                if matches!(
                    (left, right),
                    (MachineValue::Text(_), _) | (_, MachineValue::Text(_))
                ) =>
            {
                return self.repeat(page, left, right);
            }
            op => number::calculate(op, left, right)?,
        };
        self.stack.push(value);
        Ok(())
    }
}
