//! Filters, concatenation, and comparisons.

use alloc::format;
use alloc::string::{String, ToString};
use core::cmp::Ordering;

use super::PageRun;
use super::step::RunError;
use crate::opcode::FilterOp;
use crate::page::CompiledPage;
use crate::value::MachineValue;
use crate::{number, text};

/// The maximum nesting depth of lists in JSON and text.
const DEPTH_MAX: u32 = 16;

impl PageRun {
    /// Applies a filter to the values on the stack: the filter's input, then its arguments.
    pub(super) fn filter(
        &mut self,
        page: &CompiledPage,
        filter: FilterOp,
        arguments: usize,
    ) -> Result<(), RunError> {
        let at = self.stack_at(arguments + 1)?;
        let value = self.stack[at];
        let argument = self.stack.get(at + 1).copied();
        let second = self.stack.get(at + 2).copied();
        // The values are removed before the filter runs; its result replaces them.
        self.stack.truncate(at);
        let result = match filter {
            FilterOp::Default => {
                // With a true second argument, `default` also replaces false and empty values.
                let is_lax = second.is_some_and(|lax| self.is_true(lax));
                match value.is_undefined() || is_lax && !self.is_true(value) {
                    true => argument.unwrap_or(text::EMPTY),
                    false => value,
                }
            }
            FilterOp::Safe => {
                self.transform_text(page, value, true, |from, to| to.push_str(from))?
            }
            FilterOp::Escape if matches!(value, MachineValue::Text(text) if text.is_safe) => value,
            FilterOp::Escape => self.transform_text(page, value, true, text::escape_into)?,
            FilterOp::Upper => {
                let is_safe = is_safe(value);
                self.transform_text(page, value, is_safe, |from, to| {
                    to.push_str(&from.to_uppercase())
                })?
            }
            FilterOp::Lower => {
                let is_safe = is_safe(value);
                self.transform_text(page, value, is_safe, |from, to| {
                    to.push_str(&from.to_lowercase())
                })?
            }
            FilterOp::Trim => {
                let is_safe = is_safe(value);
                self.transform_text(page, value, is_safe, |from, to| to.push_str(from.trim()))?
            }
            FilterOp::Length => self.length(page, value)?,
            FilterOp::Join => self.join(page, value, argument)?,
            FilterOp::Round => number::rounded(value, argument)?,
            FilterOp::ToJson => {
                let mut json = String::new();
                self.json(page, value, &mut json, 0)?;
                let at = self.store.texts().len();
                self.store.texts().push_str(&json);
                self.store.text_from(at, true)
            }
        };
        self.push_allocated(result)
    }

    /// Pushes a text that `transform` computes from the text of a value.
    fn transform_text(
        &mut self,
        page: &CompiledPage,
        value: MachineValue,
        is_safe: bool,
        transform: impl FnOnce(&str, &mut String),
    ) -> Result<MachineValue, RunError> {
        let mut scratch = String::new();
        let from = match value {
            MachineValue::Text(text) => self.store.text(page, text),
            MachineValue::Unset | MachineValue::Undefined => {
                return Err(
                    "the filtered value is undefined; check the spelling of its name".to_string(),
                );
            }
            value if value.is_single() => {
                number::write_plain(value, &mut scratch);
                &scratch
            }
            other => return Err(format!("the filter requires a text, not {}", other.kind())),
        };
        // The result is built in a separate string, since `from` borrows the store.
        let mut result = String::with_capacity(from.len());
        transform(from, &mut result);
        let at = self.store.texts().len();
        self.store.texts().push_str(&result);
        Ok(self.store.text_from(at, is_safe))
    }

    fn length(&self, page: &CompiledPage, value: MachineValue) -> Result<MachineValue, RunError> {
        let len = match value {
            MachineValue::Text(text) => self.store.text(page, text).chars().count(),
            MachineValue::List { len, .. } => len as usize,
            MachineValue::Rows(result) => self.store.rows_len(result) as usize,
            MachineValue::Row { result, row } => self.store.row(result, row).1.len(),
            other => return Err(format!("{} has no length", other.kind())),
        };
        Ok(MachineValue::Int(len as i64))
    }

    /// Appends the text of a value, without escaping.
    fn append(&mut self, page: &CompiledPage, value: MachineValue) -> Result<(), RunError> {
        match value {
            MachineValue::Text(text) => self.store.append(page, text),
            value if value.is_single() || value.is_undefined() => {
                number::write_plain(value, self.store.texts());
            }
            other => return Err(format!("can't insert {} into a text", other.kind())),
        }
        match self.store.len() > self.limits.memory_len_max {
            true => Err(self.memory_error()),
            false => Ok(()),
        }
    }

    pub(super) fn concat(
        &mut self,
        page: &CompiledPage,
        left: MachineValue,
        right: MachineValue,
    ) -> Result<(), RunError> {
        let at = self.store.texts().len();
        self.append(page, left)?;
        self.append(page, right)?;
        let text = self.store.text_from(at, false);
        self.push_allocated(text)
    }

    pub(super) fn repeat(
        &mut self,
        page: &CompiledPage,
        left: MachineValue,
        right: MachineValue,
    ) -> Result<(), RunError> {
        let (text, count) = match (left, right) {
            (MachineValue::Text(text), MachineValue::Int(count @ 0..))
            | (MachineValue::Int(count @ 0..), MachineValue::Text(text)) => {
                (text, count.unsigned_abs())
            }
            _ => return Err("a text can be multiplied only by a whole number".to_string()),
        };
        // The length is checked before the first copy, since one operation could otherwise exhaust the memory.
        let len = u64::from(text.len).saturating_mul(count);
        if len > self.limits.memory_len_max as u64 {
            return Err(self.memory_error());
        }
        let at = self.store.texts().len();
        // Repeating an empty text would only take time.
        let count = if text.len == 0 { 0 } else { count };
        for _ in 0..count {
            self.append(page, MachineValue::Text(text))?;
        }
        let text = self.store.text_from(at, false);
        self.push_allocated(text)
    }

    fn join(
        &mut self,
        page: &CompiledPage,
        value: MachineValue,
        separator: Option<MachineValue>,
    ) -> Result<MachineValue, RunError> {
        let MachineValue::List { at, len } = value else {
            return Err(format!(
                "can't join {}; only lists can be joined",
                value.kind()
            ));
        };
        let separator = match separator {
            None => None,
            Some(MachineValue::Text(separator)) => Some(separator),
            Some(other) => return Err(format!("join() takes a text, not {}", other.kind())),
        };
        let items = self.store.items(at, len);
        // If any part is safe, the other parts are escaped and the result is safe, as in minijinja.
        let any_safe = items.iter().copied().any(is_safe);
        let is_safe = any_safe || separator.is_some_and(|text| text.is_safe);
        let start = self.store.texts().len();
        for index in 0..len {
            if let (Some(separator), true) = (separator, index > 0) {
                self.append_shown(page, MachineValue::Text(separator), is_safe)?;
            }
            // The list is looked up again for each item, since appending changes the store.
            let item = self.store.items(at, len).get(index as usize).copied();
            self.append_shown(page, item.unwrap_or(MachineValue::Undefined), is_safe)?;
        }
        Ok(self.store.text_from(start, is_safe))
    }

    /// Appends a value unchanged, or escaped if it is joined with safe texts.
    fn append_shown(
        &mut self,
        page: &CompiledPage,
        value: MachineValue,
        escapes: bool,
    ) -> Result<(), RunError> {
        match value {
            MachineValue::None if escapes => Ok(()),
            MachineValue::Text(text) if escapes && !text.is_safe => {
                let mut escaped = String::new();
                text::escape_into(self.store.text(page, text), &mut escaped);
                self.store.add(&escaped);
                Ok(())
            }
            MachineValue::Unset | MachineValue::Undefined if escapes => {
                Err("a value of the list is undefined; check the spelling of its name".to_string())
            }
            value => self.append(page, value),
        }
    }

    pub(super) fn equal(
        &self,
        page: &CompiledPage,
        left: MachineValue,
        right: MachineValue,
    ) -> Result<bool, RunError> {
        Ok(match (left, right) {
            (MachineValue::Text(left), MachineValue::Text(right)) => {
                self.store.text(page, left) == self.store.text(page, right)
            }
            (MachineValue::None, MachineValue::None) => true,
            _ if left.is_undefined() && right.is_undefined() => true,
            _ if left.rank() > MachineValue::TEXT_RANK
                && right.rank() > MachineValue::TEXT_RANK =>
            {
                let (left, right) = (left.kind(), right.kind());
                return Err(format!("can't compare {left} and {right}"));
            }
            _ => number::compare(left, right) == Some(Ordering::Equal),
        })
    }

    pub(super) fn compare(
        &self,
        page: &CompiledPage,
        left: MachineValue,
        right: MachineValue,
    ) -> Result<Ordering, RunError> {
        let by_kind = left.rank().cmp(&right.rank());
        match (left, right) {
            // Values of different types are ordered by type, as in minijinja.
            _ if by_kind.is_ne() => Ok(by_kind),
            (MachineValue::Text(left), MachineValue::Text(right)) => Ok(self
                .store
                .text(page, left)
                .cmp(self.store.text(page, right))),
            _ => match number::compare(left, right) {
                Some(order) => Ok(order),
                None if left.rank() < 2 => Ok(Ordering::Equal),
                None => Err(format!("can't compare {}", left.kind())),
            },
        }
    }

    pub(super) fn contains(
        &self,
        page: &CompiledPage,
        container: MachineValue,
        value: MachineValue,
    ) -> Result<bool, RunError> {
        match (container, value) {
            (MachineValue::Text(haystack), MachineValue::Text(part)) => Ok(self
                .store
                .text(page, haystack)
                .contains(self.store.text(page, part))),
            (MachineValue::Text(haystack), part) if part.is_single() => {
                let mut text = String::new();
                number::write_plain(part, &mut text);
                Ok(self.store.text(page, haystack).contains(&text))
            }
            (MachineValue::List { at, len }, value) => {
                let items = self.store.items(at, len);
                for item in items {
                    if self.equal(page, *item, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (MachineValue::Row { result, row }, MachineValue::Text(name)) => {
                let name = self.store.bytes(page, name);
                Ok(self.store.cell(page, result, row, name).is_some())
            }
            (container, _) => Err(format!("`in` can't search {}", container.kind())),
        }
    }

    /// Writes JSON that is safe within HTML.
    fn json(
        &self,
        page: &CompiledPage,
        value: MachineValue,
        to: &mut String,
        depth: u32,
    ) -> Result<(), RunError> {
        // `depth` bounds the recursion; the length is checked while the text grows.
        if depth > DEPTH_MAX || to.len() > self.limits.memory_len_max {
            return Err(self.memory_error());
        }
        match value {
            MachineValue::Unset | MachineValue::Undefined | MachineValue::None => {
                to.push_str("null")
            }
            MachineValue::Bool(inner) => to.push_str(if inner { "true" } else { "false" }),
            // JSON has no NaN and no infinities.
            MachineValue::Float(inner) if !inner.is_finite() => to.push_str("null"),
            MachineValue::Float(inner) => number::write_json(inner, to),
            MachineValue::Int(_) | MachineValue::UInt(_) => number::write_plain(value, to),
            MachineValue::Text(inner) => text::json(self.store.text(page, inner), to),
            MachineValue::List { at, len } => {
                to.push('[');
                for (index, item) in self.store.items(at, len).iter().enumerate() {
                    to.push_str(if index > 0 { ", " } else { "" });
                    self.json(page, *item, to, depth + 1)?;
                }
                to.push(']');
            }
            MachineValue::Rows(result) => {
                to.push('[');
                for row in 0..self.store.rows_len(result) {
                    to.push_str(if row > 0 { ", " } else { "" });
                    self.json(page, MachineValue::Row { result, row }, to, depth + 1)?;
                }
                to.push(']');
            }
            MachineValue::Row { result, row } => {
                to.push('{');
                let (names, cells) = self.store.row(result, row);
                for (index, (name, cell)) in names.iter().zip(cells).enumerate() {
                    to.push_str(if index > 0 { ", " } else { "" });
                    self.json(page, *name, to, depth + 1)?;
                    to.push_str(": ");
                    self.json(page, *cell, to, depth + 1)?;
                }
                to.push('}');
            }
            other => return Err(format!("can't convert {} to JSON", other.kind())),
        }
        Ok(())
    }
}

fn is_safe(value: MachineValue) -> bool {
    matches!(value, MachineValue::Text(text) if text.is_safe)
}
