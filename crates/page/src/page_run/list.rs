//! Runs loops, and accesses rows, lists and the request.

use alloc::format;
use alloc::string::ToString;
use core::fmt::Write;

use super::step::{NO_VALUE, RunError};
use super::{LoopState, PageRun};
use crate::opcode::LoopPart;
use crate::page::CompiledPage;
use crate::request::{self, PageRequest};
use crate::value::{MachineValue, RequestPairs};

impl PageRun {
    pub(super) fn begin_loop(&mut self, slot: u16, jump: i32) -> Result<(), RunError> {
        let iterable = match self.pop()? {
            // Iterating over a row yields its column names, as for a map.
            MachineValue::Row { result, .. } => self.store.names(result),
            other => other,
        };
        let len = match iterable {
            MachineValue::List { len, .. } => len,
            MachineValue::Rows(result) => self.store.rows_len(result),
            MachineValue::None => 0,
            MachineValue::Unset | MachineValue::Undefined => {
                return Err(
                    "the value of the loop is undefined; check the spelling of its name"
                        .to_string(),
                );
            }
            other => {
                let kind = other.kind();
                return Err(format!("can't loop over {kind}; only over rows and lists"));
            }
        };
        // Without elements the body is skipped, and the `else` part runs.
        if len == 0 {
            self.jump(jump);
            return Ok(());
        }
        let iteration = LoopState {
            iterable,
            index: 0,
            len,
            slot,
        };
        self.loops.push(iteration);
        self.set_slot(slot, self.element(&iteration));
        Ok(())
    }

    #[inline]
    pub(super) fn next_round(&mut self, jump: i32) -> Result<(), RunError> {
        let iteration = self.loops.last_mut().ok_or(NO_VALUE)?;
        iteration.index += 1;
        // After the last iteration, execution continues after the loop.
        if iteration.index == iteration.len {
            self.loops.pop();
            return Ok(());
        }
        let iteration = *iteration;
        // An iteration runs at most the operations between the start of the loop and `Next`, so the limit is checked
        // only here.
        self.steps += u64::from(jump.unsigned_abs());
        if self.steps > self.limits.step_count_max {
            let max = self.limits.step_count_max;
            return Err(format!("the page takes more than {max} steps"));
        }
        self.set_slot(iteration.slot, self.element(&iteration));
        self.jump(jump);
        Ok(())
    }

    #[inline]
    fn element(&self, iteration: &LoopState) -> MachineValue {
        match iteration.iterable {
            MachineValue::Rows(result) => MachineValue::Row {
                result,
                row: iteration.index,
            },
            MachineValue::List { at, len } => {
                let items = self.store.items(at, len);
                let item = items.get(iteration.index as usize);
                item.copied().unwrap_or(MachineValue::Undefined)
            }
            _ => MachineValue::Undefined,
        }
    }

    pub(super) fn loop_part(&self, part: LoopPart) -> Result<MachineValue, RunError> {
        let iteration = self.loops.last().ok_or(NO_VALUE)?;
        let int = |number: u32| MachineValue::Int(i64::from(number));
        Ok(match part {
            LoopPart::Index => int(iteration.index + 1),
            LoopPart::Index0 => int(iteration.index),
            LoopPart::RevIndex => int(iteration.len - iteration.index),
            LoopPart::RevIndex0 => int(iteration.len - iteration.index - 1),
            LoopPart::First => MachineValue::Bool(iteration.index == 0),
            LoopPart::Last => MachineValue::Bool(iteration.index + 1 == iteration.len),
            LoopPart::Length => int(iteration.len),
        })
    }

    /// The cell of a row, or the part of the request, with this name.
    #[inline]
    pub(super) fn attribute(
        &mut self,
        page: &CompiledPage,
        request: &impl PageRequest,
        object: MachineValue,
        name: &str,
    ) -> Result<MachineValue, RunError> {
        match object {
            MachineValue::Row { result, row } => {
                let cell = self.store.cell(page, result, row, name.as_bytes());
                Ok(cell.unwrap_or(MachineValue::Undefined))
            }
            MachineValue::Request => self.part(request, name),
            MachineValue::Pairs(pairs) => Ok(self.pair(request, pairs, name)),
            MachineValue::Unset | MachineValue::Undefined => Err(format!(
                "the value before .{name} is undefined; check the spelling of its name"
            )),
            _ => Ok(MachineValue::Undefined),
        }
    }

    /// The value of `object[key]`.
    pub(super) fn item(
        &mut self,
        page: &CompiledPage,
        request: &impl PageRequest,
        object: MachineValue,
        key: MachineValue,
    ) -> Result<MachineValue, RunError> {
        let resolve_index = |len: u32| match key {
            MachineValue::Int(at @ 0..) => u32::try_from(at).ok().filter(|at| *at < len),
            // Negative indices count from the end.
            MachineValue::Int(negative) => u32::try_from(negative + i64::from(len)).ok(),
            _ => None,
        };
        match (object, key) {
            (MachineValue::Rows(result), _) => {
                let row = resolve_index(self.store.rows_len(result));
                Ok(
                    row.map_or(MachineValue::Undefined, |row| MachineValue::Row {
                        result,
                        row,
                    }),
                )
            }
            (MachineValue::List { at, len }, _) => {
                let item = resolve_index(len)
                    .and_then(|index| self.store.items(at, len).get(index as usize));
                Ok(item.copied().unwrap_or(MachineValue::Undefined))
            }
            (
                MachineValue::Row { .. } | MachineValue::Request | MachineValue::Pairs(_),
                MachineValue::Text(name),
            ) => {
                // The name is copied, since the lookup may append to the texts. Names are short.
                let name = self.store.text(page, name).to_string();
                self.attribute(page, request, object, &name)
            }
            (MachineValue::Unset | MachineValue::Undefined, _) => {
                Err("the value before [] is undefined; check the spelling of its name".to_string())
            }
            (MachineValue::Text(_), _) => {
                Err("the characters of a text can't be accessed with []".to_string())
            }
            _ => Ok(MachineValue::Undefined),
        }
    }

    fn part(&mut self, request: &impl PageRequest, name: &str) -> Result<MachineValue, RunError> {
        let bytes = match name {
            "params" => return Ok(MachineValue::Pairs(RequestPairs::Params)),
            "cookies" => return Ok(self.mark_personal(MachineValue::Pairs(RequestPairs::Cookies))),
            "fields" => return Ok(self.mark_personal(MachineValue::Pairs(RequestPairs::Fields))),
            "peer" => {
                let at = self.store.texts().len();
                let _ = write!(self.store.texts(), "{}", request.peer());
                let peer = self.store.text_from(at, false);
                return Ok(self.mark_personal(peer));
            }
            "method" => return Ok(self.store.add(request.method())),
            "path" => request.path(),
            "target" => request.target(),
            "host" => request.host(),
            // The server's pages have these two attributes, but the subset does not.
            "form" | "body" => {
                return Err(format!(
                    "request.{name} is not available in pages that only read"
                ));
            }
            _ => return Ok(MachineValue::Undefined),
        };
        let at = self.store.texts().len();
        request::push_lossy(bytes, self.store.texts());
        Ok(self.store.text_from(at, false))
    }

    fn mark_personal(&mut self, value: MachineValue) -> MachineValue {
        // Only the browser of this client may store the response.
        self.reply.is_personal = true;
        value
    }

    /// The first value with a name, or none.
    fn pair(
        &mut self,
        request: &impl PageRequest,
        pairs: RequestPairs,
        name: &str,
    ) -> MachineValue {
        let at = self.store.texts().len();
        let to = self.store.texts();
        let is_found = match pairs {
            RequestPairs::Params => request::parameter(request.query(), name, to),
            RequestPairs::Cookies => {
                let line = request.field("cookie");
                line.is_some_and(|line| request::cookie(line, name, to))
            }
            // Field names must be in lower case, as in the server's pages.
            RequestPairs::Fields if name.bytes().any(|byte| byte.is_ascii_uppercase()) => false,
            RequestPairs::Fields => match request.field(name) {
                Some(value) => {
                    request::push_lossy(value, to);
                    true
                }
                None => false,
            },
        };
        match is_found {
            true => self.store.text_from(at, false),
            false => MachineValue::None,
        }
    }
}
