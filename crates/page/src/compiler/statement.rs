//! Text and tags: `set`, `for`, `if` and `do`.

use alloc::format;

use super::{OP_COUNT_MAX, PageCompiler, TEXT_LEN_MAX};
use crate::error::ParseError;
use crate::lexer::PageToken;
use crate::opcode::PageOp;
use crate::value::MachineValue;

/// Reserved names.
const TAKEN: &[&str] = &[
    "query", "row", "execute", "request", "loop", "status", "header", "cache", "true", "false",
    "none", "True", "False", "None", "not", "and", "or", "in", "is", "if", "else",
];

impl<'s> PageCompiler<'s, '_> {
    /// Compiles up to one of the tags `ends` and returns its name; the rest of that tag is not consumed.
    pub fn body(&mut self, ends: &[&str]) -> Result<&'s str, ParseError> {
        self.deeper(|it| it.body_inside(ends))
    }

    fn body_inside(&mut self, ends: &[&str]) -> Result<&'s str, ParseError> {
        loop {
            // Checked per tag: includes can multiply the text.
            if self.text.len() > TEXT_LEN_MAX || self.ops.len() > OP_COUNT_MAX {
                return self.wrong("the page is too long with its included templates");
            }
            match self.next() {
                None if ends.is_empty() => return Ok(""),
                None => return self.wrong(format!("{{% {} %}} is missing", ends[ends.len() - 1])),
                Some(PageToken::Data(data)) => {
                    let span = self.span(data);
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
                    // The caller finishes the closing tag, which may have a condition.
                    if ends.contains(&name) {
                        return Ok(name);
                    }
                    self.statement(name)?;
                }
                Some(_) => return self.wrong("unexpected token"),
            }
        }
    }

    /// Prints the value of the operations from `start` on.
    fn print(&mut self, start: usize) {
        if let [PageOp::Load(slot), PageOp::Attribute(name)] = self.ops[start..] {
            // No jump leads here: an expression's jumps end after one of its operations.
            self.ops.truncate(start);
            self.lines.truncate(start);
            // One operation instead of two, and no value on the stack: tables consist of this.
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
            "extends" | "import" | "from" | "block" | "macro" | "call" => self.wrong(format!(
                "{{% {name} %}} is not available in pages of the image: write {{% include %}}"
            )),
            "with" => {
                self.wrong("{% with %} is not available in pages of the image: write {% set %}")
            }
            "break" | "continue" => self.wrong(format!(
                "{{% {name} %}} is not available in pages of the image: write {{% if %}}, or \
                 LIMIT in the statement"
            )),
            "else" | "elif" | "endif" | "endfor" => {
                self.wrong(format!("{{% {name} %}} without a beginning"))
            }
            _ => self.wrong(format!(
                "{{% {name} %}} is not available in pages of the image; the tags are set, for, \
                 if, include, do and raw"
            )),
        }
    }

    /// Takes a name for an assignment.
    fn new_name(&mut self) -> Result<&'s str, ParseError> {
        match self.next() {
            Some(PageToken::Name(name)) if TAKEN.contains(&name) => {
                self.wrong(format!("{name} is reserved: choose another name"))
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
            None => self.wrong("the page has too many names"),
        }
    }

    fn set(&mut self) -> Result<(), ParseError> {
        let name = self.new_name()?;
        if self.is_sign(",") {
            return self.wrong("{% set %} takes only one name");
        }
        if self.is_sign(".") {
            return self.wrong("{% set %} takes only a plain name, not a part of a value");
        }
        if !self.take_sign("=") {
            return self.wrong(format!("expected a value: write {{% set {name} = … %}}"));
        }
        self.expression()?;
        let slot = self.slot(name)?;
        self.emit(PageOp::Store(slot));
        self.expect_end()
    }

    fn condition(&mut self) -> Result<(), ParseError> {
        let mut ends = alloc::vec::Vec::new();
        loop {
            // `if` after a condition would be ambiguous with a choice.
            self.expression_without_if()?;
            if self.is_name("if") {
                return self.wrong("put a choice in the condition of {% if %} in parentheses");
            }
            self.expect_end()?;
            let skip = self.emit(PageOp::JumpIfNot(0));
            let end = self.body(&["elif", "else", "endif"])?;
            if end == "endif" {
                self.land(skip);
                break;
            }
            ends.push(self.emit(PageOp::Jump(0)));
            self.land(skip);
            if end == "else" {
                self.expect_end()?;
                self.body(&["endif"])?;
                break;
            }
        }
        // All branches lead behind the last one.
        for end in ends {
            self.land(end);
        }
        self.expect_end()
    }

    fn for_loop(&mut self) -> Result<(), ParseError> {
        let name = self.new_name()?;
        if self.is_sign(",") {
            return self.wrong("{% for %} takes only one name: write row.column");
        }
        if !self.take_name("in") {
            return self.unexpected("expected in");
        }
        self.expression_without_if()?;
        if self.is_name("if") {
            return self.wrong(
                "for … in … if is not available in pages of the image: write WHERE in the statement",
            );
        }
        if self.is_name("recursive") {
            return self.wrong("recursive loops are not available in pages of the image");
        }
        self.expect_end()?;
        // The scope begins after the iterated expression, which sees the outer names.
        let from = self.scopes.enter();
        let slot = self.slot(name)?;
        let begin = self.emit(PageOp::For { slot, jump: 0 });
        let clear = self.emit(PageOp::Clear { from, to: from });
        let end = self.body(&["else", "endfor"])?;
        let to = self.scopes.leave();
        // Names set in the body are cleared each round. Most bodies set only the loop variable, which needs no
        // clearing.
        let names_more = to > slot + 1;
        if names_more {
            self.ops[clear] = PageOp::Clear { from: slot + 1, to };
        }
        // The loop returns to `Clear` only if there are names to clear.
        let first = clear + usize::from(!names_more);
        let back = first as i64 - self.ops.len() as i64 - 1;
        self.emit(PageOp::Next { jump: back as i32 });
        if end == "endfor" {
            self.land(begin);
            return self.expect_end();
        }
        // `else` runs if there was nothing to iterate over.
        let skip = self.emit(PageOp::Jump(0));
        self.land(begin);
        self.expect_end()?;
        self.body(&["endfor"])?;
        self.land(skip);
        self.expect_end()
    }

    /// Pushes a constant.
    pub fn push(&mut self, value: MachineValue) {
        self.emit(PageOp::Push(value));
    }
}
