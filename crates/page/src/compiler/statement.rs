//! Compiles text and the tags `set`, `for`, `if` and `do`.

use alloc::format;

use super::{OP_COUNT_MAX, PageCompiler, TEXT_LEN_MAX};
use crate::error::ParseError;
use crate::lexer::PageToken;
use crate::opcode::PageOp;
use crate::value::MachineValue;

/// Names that cannot be assigned.
const RESERVED_NAMES: &[&str] = &[
    "query", "row", "execute", "request", "loop", "status", "header", "cache", "true", "false",
    "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else",
];

impl<'s> PageCompiler<'s, '_> {
    /// Compiles up to one of the tags `end_tags` and returns the name of that tag; the rest of the tag is not consumed.
    pub fn body(&mut self, end_tags: &[&str]) -> Result<&'s str, ParseError> {
        self.deeper(|compiler| compiler.body_inside(end_tags))
    }

    fn body_inside(&mut self, end_tags: &[&str]) -> Result<&'s str, ParseError> {
        loop {
            // The length is checked for each tag, since includes can multiply the text.
            if self.text.len() > TEXT_LEN_MAX || self.ops.len() > OP_COUNT_MAX {
                return self.fail("the page is too long with its included templates");
            }
            match self.next() {
                None if end_tags.is_empty() => return Ok(""),
                None => {
                    return self.fail(format!(
                        "{{% {} %}} is missing",
                        end_tags[end_tags.len() - 1]
                    ));
                }
                Some(PageToken::Data(data)) => {
                    let span = self.add_text(data);
                    self.emit(PageOp::Write(span));
                }
                Some(PageToken::Expression) => {
                    let start = self.ops.len();
                    self.expression()?;
                    self.print(start);
                    self.expect_end()?;
                }
                Some(PageToken::Statement) => {
                    let Some(PageToken::Name(name)) = self.next() else {
                        self.at -= 1;
                        return self.unexpected("expected the name of a tag");
                    };
                    // The caller parses the rest of the closing tag, which may have a condition.
                    if end_tags.contains(&name) {
                        return Ok(name);
                    }
                    self.statement(name)?;
                }
                Some(_) => return self.fail("unexpected token"),
            }
        }
    }

    /// Prints the value that the operations from `start` on compute.
    fn print(&mut self, start: usize) {
        if let [PageOp::Load(slot), PageOp::Attribute(name)] = self.ops[start..] {
            // No jump leads to the second of the two operations, since this expression contains no jump.
            self.ops.truncate(start);
            self.lines.truncate(start);
            // One operation replaces two, without a value on the stack: tables print mostly attributes.
            self.emit(PageOp::PrintAttribute { slot, name });
        } else {
            self.emit(PageOp::Print);
        }
    }

    fn statement(&mut self, name: &str) -> Result<(), ParseError> {
        match name {
            "set" => self.set(),
            "include" => self.include(),
            "for" => self.deeper(Self::for_loop),
            "if" => self.deeper(Self::condition),
            "do" => {
                self.expression()?;
                self.emit(PageOp::Drop);
                self.expect_end()
            }
            "extends" | "import" | "from" | "block" | "macro" | "call" => self.fail(format!(
                "{{% {name} %}} is not available in pages of the image: write {{% include %}}"
            )),
            "with" => {
                self.fail("{% with %} is not available in pages of the image: write {% set %}")
            }
            "break" | "continue" => self.fail(format!(
                "{{% {name} %}} is not available in pages of the image: write {{% if %}}, or \
                 LIMIT in the statement"
            )),
            "else" | "elif" | "endif" | "endfor" => {
                self.fail(format!("{{% {name} %}} without a beginning"))
            }
            _ => self.fail(format!(
                "{{% {name} %}} is not available in pages of the image; the tags are set, for, \
                 if, include, do and raw"
            )),
        }
    }

    /// Takes the next token as the name of a variable to assign.
    fn new_name(&mut self) -> Result<&'s str, ParseError> {
        match self.next() {
            Some(PageToken::Name(name)) if RESERVED_NAMES.contains(&name) => {
                self.fail(format!("{name} is reserved: choose another name"))
            }
            Some(PageToken::Name(name)) => Ok(name),
            _ => {
                self.at -= 1;
                self.unexpected("expected a name")
            }
        }
    }

    fn slot(&mut self, name: &'s str) -> Result<u16, ParseError> {
        match self.scopes.set(name) {
            Some(slot) => Ok(slot),
            None => self.fail("the page has too many names"),
        }
    }

    fn set(&mut self) -> Result<(), ParseError> {
        let name = self.new_name()?;
        if self.is_sign(",") {
            return self.fail("{% set %} takes only one name");
        }
        if self.is_sign(".") {
            return self.fail("{% set %} takes only a plain name, not a part of a value");
        }
        if !self.take_sign("=") {
            return self.fail(format!("expected a value: write {{% set {name} = … %}}"));
        }
        self.expression()?;
        let slot = self.slot(name)?;
        self.emit(PageOp::Store(slot));
        self.expect_end()
    }

    fn condition(&mut self) -> Result<(), ParseError> {
        let mut ends = alloc::vec::Vec::new();
        loop {
            // `if` after the condition would be ambiguous with a conditional expression.
            self.expression_without_if()?;
            if self.is_name("if") {
                return self.fail("put a choice in the condition of {% if %} in parentheses");
            }
            self.expect_end()?;
            let skip = self.emit(PageOp::JumpIfNot(0));
            let end = self.body(&["elif", "else", "endif"])?;
            if end == "endif" {
                self.patch_jump(skip);
                break;
            }
            ends.push(self.emit(PageOp::Jump(0)));
            self.patch_jump(skip);
            if end == "else" {
                self.expect_end()?;
                self.body(&["endif"])?;
                break;
            }
        }
        // All branches jump behind the last one.
        for end in ends {
            self.patch_jump(end);
        }
        self.expect_end()
    }

    fn for_loop(&mut self) -> Result<(), ParseError> {
        let name = self.new_name()?;
        if self.is_sign(",") {
            return self.fail("{% for %} takes only one name: write row.column");
        }
        if !self.take_name("in") {
            return self.unexpected("expected in");
        }
        self.expression_without_if()?;
        if self.is_name("if") {
            return self
                .fail("for … in … if is not available in pages of the image: write WHERE in the statement");
        }
        if self.is_name("recursive") {
            return self.fail("recursive loops are not available in pages of the image");
        }
        self.expect_end()?;
        // The scope begins after the iterated expression, which uses the outer variables.
        let from = self.scopes.enter();
        let slot = self.slot(name)?;
        let begin = self.emit(PageOp::For { slot, jump: 0 });
        let clear = self.emit(PageOp::Clear { from, to: from });
        let end = self.body(&["else", "endfor"])?;
        let to = self.scopes.leave();
        // Variables that the body sets are cleared in each iteration. Most bodies set only the loop variable, which
        // need not be cleared.
        let names_more = to > slot + 1;
        if names_more {
            self.ops[clear] = PageOp::Clear { from: slot + 1, to };
        }
        // The loop jumps back to `Clear` only if there are variables to clear.
        let first = clear + usize::from(!names_more);
        let back_jump = first as i64 - self.ops.len() as i64 - 1;
        self.emit(PageOp::Next {
            jump: back_jump as i32,
        });
        if end == "endfor" {
            self.patch_jump(begin);
            return self.expect_end();
        }
        // `else` runs if there is nothing to iterate over.
        let skip = self.emit(PageOp::Jump(0));
        self.patch_jump(begin);
        self.expect_end()?;
        self.body(&["endfor"])?;
        self.patch_jump(skip);
        self.expect_end()
    }

    /// Pushes a constant.
    pub fn push(&mut self, value: MachineValue) {
        self.emit(PageOp::Push(value));
    }
}
