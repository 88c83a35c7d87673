//! Filters, concatenation, and comparisons.

use alloc::format;
use alloc::string::{String, ToString};
use core::cmp::Ordering;

use super::Run;
use super::step::Wrong;
use crate::op::Filter;
use crate::page::Page;
use crate::value::Val;
use crate::{number, text};

/// The deepest nesting of lists in JSON and text.
const DEPTH_MAX: u32 = 16;

impl Run {
    /// Applies a filter to the values on the stack: its input, then the arguments.
    pub(super) fn filter(
        &mut self,
        page: &Page,
        filter: Filter,
        arguments: usize,
    ) -> Result<(), Wrong> {
        let at = self.stack_at(arguments + 1)?;
        let value = self.stack[at];
        let argument = self.stack.get(at + 1).copied();
        let second = self.stack.get(at + 2).copied();
        // Removed before the work: the result takes their place.
        self.stack.truncate(at);
        let made = match filter {
            Filter::Default => {
                // With a true second argument, `default` also replaces false and empty values.
                let is_lax = second.is_some_and(|lax| self.is_true(lax));
                match value.is_undefined() || is_lax && !self.is_true(value) {
                    true => argument.unwrap_or(text::EMPTY),
                    false => value,
                }
            }
            Filter::Safe => self.made(page, value, true, |from, to| to.push_str(from))?,
            Filter::Escape if matches!(value, Val::Text(text) if text.is_safe) => value,
            Filter::Escape => self.made(page, value, true, text::escape_into)?,
            Filter::Upper => {
                let is_safe = is_safe(value);
                self.made(page, value, is_safe, |from, to| {
                    to.push_str(&from.to_uppercase())
                })?
            }
            Filter::Lower => {
                let is_safe = is_safe(value);
                self.made(page, value, is_safe, |from, to| {
                    to.push_str(&from.to_lowercase())
                })?
            }
            Filter::Trim => {
                let is_safe = is_safe(value);
                self.made(page, value, is_safe, |from, to| to.push_str(from.trim()))?
            }
            Filter::Length => self.length(page, value)?,
            Filter::Join => self.join(page, value, argument)?,
            Filter::Round => number::rounded(value, argument)?,
            Filter::ToJson => {
                let mut json = String::new();
                self.json(page, value, &mut json, 0)?;
                let at = self.store.texts().len();
                self.store.texts().push_str(&json);
                self.store.text_from(at, true)
            }
        };
        self.push_made(made)
    }

    /// Pushes a text computed from a value's.
    fn made(
        &mut self,
        page: &Page,
        value: Val,
        is_safe: bool,
        make: impl FnOnce(&str, &mut String),
    ) -> Result<Val, Wrong> {
        let mut scratch = String::new();
        let from = match value {
            Val::Text(text) => self.store.text(page, text),
            Val::Unset | Val::Undefined => {
                return Err("the filtered value is undefined; is its name spelt right?".to_string());
            }
            value if value.is_single() => {
                number::write_plain(value, &mut scratch);
                &scratch
            }
            other => return Err(format!("{} is no text to filter", other.kind())),
        };
        // Made in a separate text, since `from` borrows the store.
        let mut made = String::with_capacity(from.len());
        make(from, &mut made);
        let at = self.store.texts().len();
        self.store.texts().push_str(&made);
        Ok(self.store.text_from(at, is_safe))
    }

    fn length(&self, page: &Page, value: Val) -> Result<Val, Wrong> {
        let len = match value {
            Val::Text(text) => self.store.text(page, text).chars().count(),
            Val::List { len, .. } => len as usize,
            Val::Rows(result) => self.store.rows_len(result) as usize,
            Val::Row { result, row } => self.store.row(result, row).1.len(),
            other => return Err(format!("{} has no length", other.kind())),
        };
        Ok(Val::Int(len as i64))
    }

    /// Appends a value's text without escaping.
    fn append(&mut self, page: &Page, value: Val) -> Result<(), Wrong> {
        match value {
            Val::Text(text) => self.store.append(page, text),
            value if value.is_single() || value.is_undefined() => {
                number::write_plain(value, self.store.texts());
            }
            other => return Err(format!("{} can't be part of a text", other.kind())),
        }
        match self.store.len() > self.limits.memory_len_max {
            true => Err(self.over_memory()),
            false => Ok(()),
        }
    }

    pub(super) fn concat(&mut self, page: &Page, left: Val, right: Val) -> Result<(), Wrong> {
        let at = self.store.texts().len();
        self.append(page, left)?;
        self.append(page, right)?;
        let text = self.store.text_from(at, false);
        self.push_made(text)
    }

    pub(super) fn repeat(&mut self, page: &Page, left: Val, right: Val) -> Result<(), Wrong> {
        let (text, count) = match (left, right) {
            (Val::Text(text), Val::Int(count @ 0..)) | (Val::Int(count @ 0..), Val::Text(text)) => {
                (text, count.unsigned_abs())
            }
            _ => return Err("a text can only be multiplied with a whole number".to_string()),
        };
        // Checked before the first copy: one operation could otherwise exhaust the memory.
        let len = u64::from(text.len).saturating_mul(count);
        if len > self.limits.memory_len_max as u64 {
            return Err(self.over_memory());
        }
        let at = self.store.texts().len();
        // An empty text repeated often would only take time.
        let count = if text.len == 0 { 0 } else { count };
        for _ in 0..count {
            self.append(page, Val::Text(text))?;
        }
        let text = self.store.text_from(at, false);
        self.push_made(text)
    }

    fn join(&mut self, page: &Page, value: Val, between: Option<Val>) -> Result<Val, Wrong> {
        let Val::List { at, len } = value else {
            return Err(format!("{} can't be joined; only lists can", value.kind()));
        };
        let between = match between {
            None => None,
            Some(Val::Text(between)) => Some(between),
            Some(other) => return Err(format!("join() wants a text, not {}", other.kind())),
        };
        let items = self.store.items(at, len);
        // If any part is safe, the others are escaped and the result is safe, as in minijinja.
        let any_safe = items.iter().copied().any(is_safe);
        let is_safe = any_safe || between.is_some_and(|text| text.is_safe);
        let start = self.store.texts().len();
        for index in 0..len {
            if let (Some(between), true) = (between, index > 0) {
                self.append_shown(page, Val::Text(between), is_safe)?;
            }
            // Looked up again each time, since appending changes the store.
            let item = self.store.items(at, len).get(index as usize).copied();
            self.append_shown(page, item.unwrap_or(Val::Undefined), is_safe)?;
        }
        Ok(self.store.text_from(start, is_safe))
    }

    /// Appends a value unchanged, or escaped if it joins safe texts.
    fn append_shown(&mut self, page: &Page, value: Val, escapes: bool) -> Result<(), Wrong> {
        match value {
            Val::None if escapes => Ok(()),
            Val::Text(text) if escapes && !text.is_safe => {
                let mut escaped = String::new();
                text::escape_into(self.store.text(page, text), &mut escaped);
                self.store.add(&escaped);
                Ok(())
            }
            Val::Unset | Val::Undefined if escapes => {
                Err("a value of the list is undefined; is its name spelt right?".to_string())
            }
            value => self.append(page, value),
        }
    }

    pub(super) fn equal(&self, page: &Page, left: Val, right: Val) -> Result<bool, Wrong> {
        Ok(match (left, right) {
            (Val::Text(left), Val::Text(right)) => {
                self.store.text(page, left) == self.store.text(page, right)
            }
            (Val::None, Val::None) => true,
            _ if left.is_undefined() && right.is_undefined() => true,
            _ if left.rank() > Val::TEXT_RANK && right.rank() > Val::TEXT_RANK => {
                let (left, right) = (left.kind(), right.kind());
                return Err(format!("{left} and {right} can't be compared"));
            }
            _ => number::compared(left, right) == Some(Ordering::Equal),
        })
    }

    pub(super) fn compare(&self, page: &Page, left: Val, right: Val) -> Result<Ordering, Wrong> {
        let by_kind = left.rank().cmp(&right.rank());
        match (left, right) {
            // Values of different types are ordered by type, as in minijinja.
            _ if by_kind.is_ne() => Ok(by_kind),
            (Val::Text(left), Val::Text(right)) => Ok(self
                .store
                .text(page, left)
                .cmp(self.store.text(page, right))),
            _ => match number::compared(left, right) {
                Some(order) => Ok(order),
                None if left.rank() < 2 => Ok(Ordering::Equal),
                None => Err(format!("{} can't be compared", left.kind())),
            },
        }
    }

    pub(super) fn contains(&self, page: &Page, container: Val, value: Val) -> Result<bool, Wrong> {
        match (container, value) {
            (Val::Text(all), Val::Text(part)) => Ok(self
                .store
                .text(page, all)
                .contains(self.store.text(page, part))),
            (Val::Text(all), part) if part.is_single() => {
                let mut text = String::new();
                number::write_plain(part, &mut text);
                Ok(self.store.text(page, all).contains(&text))
            }
            (Val::List { at, len }, value) => {
                let items = self.store.items(at, len);
                for item in items {
                    if self.equal(page, *item, value)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Val::Row { result, row }, Val::Text(name)) => {
                let name = self.store.bytes(page, name);
                Ok(self.store.cell(page, result, row, name).is_some())
            }
            (container, _) => Err(format!("it can't be told what is in {}", container.kind())),
        }
    }

    /// Writes JSON that is safe in HTML.
    fn json(&self, page: &Page, value: Val, to: &mut String, depth: u32) -> Result<(), Wrong> {
        // The depth bounds the recursion; the length is checked while the text grows.
        if depth > DEPTH_MAX || to.len() > self.limits.memory_len_max {
            return Err(self.over_memory());
        }
        match value {
            Val::Unset | Val::Undefined | Val::None => to.push_str("null"),
            Val::Bool(it) => to.push_str(if it { "true" } else { "false" }),
            // JSON has no NaN and no infinities.
            Val::Float(it) if !it.is_finite() => to.push_str("null"),
            Val::Float(it) => number::write_json(it, to),
            Val::Int(_) | Val::UInt(_) => number::write_plain(value, to),
            Val::Text(it) => text::json(self.store.text(page, it), to),
            Val::List { at, len } => {
                to.push('[');
                for (index, item) in self.store.items(at, len).iter().enumerate() {
                    to.push_str(if index > 0 { ", " } else { "" });
                    self.json(page, *item, to, depth + 1)?;
                }
                to.push(']');
            }
            Val::Rows(result) => {
                to.push('[');
                for row in 0..self.store.rows_len(result) {
                    to.push_str(if row > 0 { ", " } else { "" });
                    self.json(page, Val::Row { result, row }, to, depth + 1)?;
                }
                to.push(']');
            }
            Val::Row { result, row } => {
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
            other => return Err(format!("{} can't become JSON", other.kind())),
        }
        Ok(())
    }
}

fn is_safe(value: Val) -> bool {
    matches!(value, Val::Text(text) if text.is_safe)
}
