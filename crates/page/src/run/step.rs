//! The execution of operations.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Asking, Run};
use crate::number;
use crate::op::{Binary, Function, Op, Span, Test};
use crate::page::Page;
use crate::request::Request;
use crate::text;
use crate::value::Val;

/// The message of a failure.
pub type Wrong = String;

/// The failure of an empty stack; the compiler prevents it.
pub const NO_VALUE: &str = "a value is missing; this is a fault of the program";

impl Run {
    /// Runs until rows are needed (see `asking`) or the page has ended.
    pub(super) fn go(
        &mut self,
        page: &Page,
        request: &impl Request,
        out: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        // A failure from `refused` or the memory limit is reported at the next call.
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if let Asking::Rows { .. } = self.asking {
            // The query is not answered yet: the caller gets the same statement again.
            return Ok(());
        }
        self.asking = Asking::No;
        while let Some(&op) = page.ops.get(self.at) {
            self.at += 1;
            match op {
                Op::Write(span) => {
                    out.extend_from_slice(page.bytes(span));
                    // Checked after each output, so that a loop cannot exceed the limit by more than one value.
                    self.check_output(out)?;
                }
                Op::Print => {
                    let value = self.pop()?;
                    self.print(page, value, out)?;
                    self.check_output(out)?;
                }
                Op::PrintAttribute { slot, name } => {
                    let value = self.attribute_of(page, request, slot, name)?;
                    self.print(page, value, out)?;
                    self.check_output(out)?;
                }
                Op::Query { values, is_row, .. } => return self.ask(usize::from(values), is_row),
                // The frequent operations are matched first; the others are in separate functions.
                op => self.other(page, request, op)?,
            }
        }
        Ok(())
    }

    #[inline]
    fn other(&mut self, page: &Page, request: &impl Request, op: Op) -> Result<(), Wrong> {
        match op {
            Op::Push(value) => self.stack.push(value),
            Op::Load(slot) => {
                let value = match self.slot(slot) {
                    // Unset is internal; a page sees undefined.
                    Val::Unset => Val::Undefined,
                    value => value,
                };
                self.stack.push(value);
            }
            Op::LoadIfSet { slot, jump } => {
                let value = self.slot(slot);
                if value != Val::Unset {
                    self.stack.push(value);
                    self.jump(jump);
                }
            }
            Op::Store(slot) => {
                let value = self.pop()?;
                self.set_slot(slot, value);
            }
            Op::Clear { from, to } => {
                let slots = self.slots.get_mut(usize::from(from)..usize::from(to));
                // The compiler's ranges are within the slots.
                slots.unwrap_or_default().fill(Val::Unset);
            }
            Op::Attribute(span) => {
                let of = self.pop()?;
                let value = self.attribute(page, request, of, page.text(span))?;
                self.stack.push(value);
            }
            Op::Item => {
                let key = self.pop()?;
                let of = self.pop()?;
                let value = self.item(page, request, of, key)?;
                self.stack.push(value);
            }
            Op::Jump(jump) => self.jump(jump),
            Op::JumpIfNot(jump) => {
                let value = self.pop()?;
                if !self.is_true(value) {
                    self.jump(jump);
                }
            }
            Op::JumpKeeping { truth, jump } => {
                let value = self.pop()?;
                if self.is_true(value) == truth {
                    self.stack.push(value);
                    self.jump(jump);
                }
            }
            Op::For { slot, jump } => self.begin_loop(slot, jump)?,
            Op::Next { jump } => self.next_round(jump)?,
            Op::Loop(part) => {
                let value = self.loop_part(part)?;
                self.stack.push(value);
            }
            op => self.rarer(page, op)?,
        }
        Ok(())
    }

    #[inline]
    fn attribute_of(
        &mut self,
        page: &Page,
        request: &impl Request,
        slot: u16,
        name: Span,
    ) -> Result<Val, Wrong> {
        match self.slot(slot) {
            Val::Row { result, row } => {
                // The usual case of a row's cell needs no text of the name.
                let cell = self.store.cell(page, result, row, page.bytes(name));
                Ok(cell.unwrap_or(Val::Undefined))
            }
            of => self.attribute(page, request, of, page.text(name)),
        }
    }

    fn rarer(&mut self, page: &Page, op: Op) -> Result<(), Wrong> {
        match op {
            Op::Binary(op) => self.binary(page, op)?,
            Op::Not => {
                let value = self.pop()?;
                let truth = self.is_true(value);
                self.stack.push(Val::Bool(!truth));
            }
            Op::Negate => {
                let value = self.pop()?;
                self.stack.push(number::negated(value)?);
            }
            Op::Filter { filter, arguments } => {
                self.filter(page, filter, usize::from(arguments))?;
            }
            Op::List(len) => {
                let at = self.stack_at(usize::from(len))?;
                let list = self.store.list(&self.stack[at..]);
                self.stack.truncate(at);
                self.push_made(list)?;
            }
            Op::Test { test, is_negated } => {
                let value = self.pop()?;
                let is = match test {
                    Test::Defined => !value.is_undefined(),
                    Test::Undefined => value.is_undefined(),
                    Test::None => value == Val::None,
                };
                self.stack.push(Val::Bool(is != is_negated));
            }
            Op::Call {
                function,
                arguments,
            } => {
                let at = self.stack_at(usize::from(arguments))?;
                self.call(page, function, at)?;
                // The functions are called for their effect, and show nothing.
                self.stack.truncate(at);
                self.stack.push(text::EMPTY);
            }
            Op::Drop => {
                self.pop()?;
            }
            _ => {}
        }
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<Val, Wrong> {
        self.stack.pop().ok_or_else(|| NO_VALUE.to_string())
    }

    /// The stack index of the last `count` values.
    pub(super) fn stack_at(&self, count: usize) -> Result<usize, Wrong> {
        let at = self.stack.len().checked_sub(count);
        at.ok_or_else(|| NO_VALUE.to_string())
    }

    /// Pushes a value that took memory, within the limit.
    pub(super) fn push_made(&mut self, value: Val) -> Result<(), Wrong> {
        if self.store.len() > self.limits.memory_len_max {
            return Err(self.over_memory());
        }
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn check_output(&self, out: &[u8]) -> Result<(), Wrong> {
        let len_max = self.limits.output_len_max;
        match out.len() > len_max {
            true => Err(format!("the page is longer than {len_max} bytes")),
            false => Ok(()),
        }
    }

    #[inline]
    fn slot(&self, slot: u16) -> Val {
        let value = self.slots.get(usize::from(slot));
        value.copied().unwrap_or(Val::Unset)
    }

    #[inline]
    pub(super) fn set_slot(&mut self, slot: u16, value: Val) {
        if let Some(place) = self.slots.get_mut(usize::from(slot)) {
            *place = value;
        }
    }

    #[inline]
    pub(super) fn jump(&mut self, distance: i32) {
        self.at = self.at.wrapping_add_signed(distance as isize);
    }

    pub(super) fn is_true(&self, value: Val) -> bool {
        match value {
            Val::Unset | Val::Undefined | Val::None => false,
            Val::Bool(it) => it,
            Val::Int(it) => it != 0,
            Val::UInt(_) => true,
            Val::Float(it) => it != 0.0,
            Val::Text(it) => it.len > 0,
            Val::List { len, .. } => len > 0,
            Val::Rows(result) => self.store.rows_len(result) > 0,
            Val::Row { result, row } => !self.store.row(result, row).1.is_empty(),
            Val::Request | Val::Pairs(_) => true,
        }
    }

    fn ask(&mut self, count: usize, is_row: bool) -> Result<(), Wrong> {
        // Bounds the load that one page can cause.
        if self.queries == self.limits.query_count_max {
            return Err(format!(
                "a page may make {} calls of databases: join tables instead",
                self.queries
            ));
        }
        self.queries += 1;
        let at = self.stack_at(count)?;
        self.values.clear();
        for (number, &value) in (1..).zip(&self.stack[at..]) {
            match value {
                // An undefined value is mostly a typing error; NULL must be given as none.
                Val::Unset | Val::Undefined => {
                    return Err(format!(
                        "value {number} is undefined; is its name spelt right?"
                    ));
                }
                value if value.is_single() => self.values.push(value),
                other => {
                    let kind = other.kind();
                    return Err(format!(
                        "value {number} is {kind}; only single values can be given"
                    ));
                }
            }
        }
        // The values stay in `values` until the caller has sent them.
        self.stack.truncate(at);
        self.asking = Asking::Rows { is_row };
        Ok(())
    }

    #[inline]
    fn print(&self, page: &Page, value: Val, out: &mut Vec<u8>) -> Result<(), Wrong> {
        match value {
            Val::Text(it) if it.is_safe => {
                out.extend_from_slice(self.store.bytes(page, it));
            }
            Val::Text(it) => text::escape(self.store.bytes(page, it), out),
            Val::None => {}
            Val::Int(it) => number::write_whole(i128::from(it), out),
            Val::UInt(it) => number::write_whole(i128::from(it), out),
            Val::Unset | Val::Undefined => {
                return Err("the value is undefined; is its name spelt right?".to_string());
            }
            Val::Bool(_) | Val::Float(_) => {
                let mut text = String::new();
                number::write_plain(value, &mut text);
                out.extend_from_slice(text.as_bytes());
            }
            other => {
                return Err(format!(
                    "{} can't be shown; show what is in it",
                    other.kind()
                ));
            }
        }
        Ok(())
    }

    fn call(&mut self, page: &Page, function: Function, at: usize) -> Result<(), Wrong> {
        match (function, &self.stack[at..]) {
            (Function::Status, [Val::Int(code)]) => self.reply.set_status(*code),
            (Function::Status, _) => Err("status() wants a number".to_string()),
            (Function::Header, [Val::Text(name), Val::Text(value)]) => {
                let (name, value) = (self.store.text(page, *name), self.store.text(page, *value));
                self.reply.set_field(name, value)
            }
            (Function::Header, _) => Err("header() wants two texts".to_string()),
            (Function::Cache, [Val::Int(seconds @ 0..)]) => {
                self.reply.cache_s = Some(seconds.unsigned_abs());
                Ok(())
            }
            (Function::Cache, _) => Err("cache() wants a number of seconds".to_string()),
        }
    }

    fn binary(&mut self, page: &Page, op: Binary) -> Result<(), Wrong> {
        let right = self.pop()?;
        let left = self.pop()?;
        // minijinja's semi-strict mode allows undefined values only in tests and conditions.
        if left.is_undefined() || right.is_undefined() {
            return Err("a value is undefined; is its name spelt right?".to_string());
        }
        let value = match op {
            Binary::Equal => Val::Bool(self.equal(page, left, right)?),
            Binary::NotEqual => Val::Bool(!self.equal(page, left, right)?),
            Binary::Less => Val::Bool(self.compare(page, left, right)?.is_lt()),
            Binary::LessOrEqual => Val::Bool(self.compare(page, left, right)?.is_le()),
            Binary::Greater => Val::Bool(self.compare(page, left, right)?.is_gt()),
            Binary::GreaterOrEqual => Val::Bool(self.compare(page, left, right)?.is_ge()),
            Binary::In => Val::Bool(self.contains(page, right, left)?),
            Binary::NotIn => Val::Bool(!self.contains(page, right, left)?),
            Binary::Concat => return self.concat(page, left, right),
            Binary::Add if matches!((left, right), (Val::Text(_), Val::Text(_))) => {
                return self.concat(page, left, right);
            }
            Binary::Multiply if matches!((left, right), (Val::Text(_), _) | (_, Val::Text(_))) => {
                return self.repeat(page, left, right);
            }
            op => number::calculated(op, left, right)?,
        };
        self.stack.push(value);
        Ok(())
    }
}
