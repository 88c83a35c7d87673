//! Compiles calls of functions, filters and tests. Ensures that the text of an SQL statement is a literal in the page,
//! which prevents SQL injection.

use alloc::format;

use super::PageCompiler;
use crate::error::ParseError;
use crate::lexer::PageToken;
use crate::opcode::{BuiltinFunction, FilterOp, PageOp, TestOp};
use crate::statement;

impl PageCompiler<'_, '_> {
    /// Compiles a function's arguments and its call.
    pub fn call(&mut self, name: &str) -> Result<(), ParseError> {
        let (function, from, to) = match name {
            "query" => return self.query(name, false),
            "row" => return self.query(name, true),
            "status" => (BuiltinFunction::Status, 1, 1),
            "header" => (BuiltinFunction::Header, 2, 2),
            "cache" => (BuiltinFunction::Cache, 1, 1),
            "execute" => {
                return self.fail(
                    "execute is not available in pages of the image, which only read: use query or row",
                );
            }
            "redirect" | "cookie" | "csrf_token" | "csrf_field" => {
                return self.fail(format!("{name}() is not available in pages of the image"));
            }
            _ => {
                return self.fail(format!(
                    "{name}() is not available in pages of the image; the functions are query, \
                     row, status, header and cache"
                ));
            }
        };
        let arguments = self.arguments(name, from, to)?;
        self.emit(PageOp::Call {
            function,
            arguments,
        });
        Ok(())
    }

    /// Compiles the arguments in parentheses, and checks their number.
    fn arguments(&mut self, name: &str, from: u16, to: u16) -> Result<u16, ParseError> {
        let count = match self.take_sign("(") {
            true => self.items(")")?,
            false => 0,
        };
        // The count is checked at compile time, so that operations can rely on the number of their arguments.
        if !(from..=to).contains(&count) {
            return self.fail(format!(
                "{name} takes {from} to {to} values, but {count} are given"
            ));
        }
        Ok(count)
    }

    fn query(&mut self, name: &str, is_row: bool) -> Result<(), ParseError> {
        self.expect_sign("(")?;
        // The literal must be followed by `,` or `)`: an operator after it would compute the statement at run time.
        let written_out = match (self.peek(), self.tokens.get(self.at + 1)) {
            (Some(PageToken::Text(text)), Some((PageToken::Sign("," | ")"), _))) => {
                Some(text.clone())
            }
            _ => None,
        };
        let Some(text) = written_out else {
            return self.fail(format!(
                "the first argument of {name} must be a literal text; put ? in place of a value \
                 and pass the value as a further argument: {name}(\"… WHERE id = ?\", id)"
            ));
        };
        self.at += 1;
        // Pages rendered in the unikernel may only read.
        if !statement::is_read(&text) {
            return self.fail(
                "pages of the image only read: a statement must begin with SELECT, \
                               WITH, VALUES, SHOW, EXPLAIN, DESCRIBE or TABLE",
            );
        }
        self.take_sign(",");
        if self.is_name("db")
            && matches!(
                self.tokens.get(self.at + 1),
                Some((PageToken::Sign("="), _))
            )
        {
            return self.fail("the image has only one database: remove db=");
        }
        let line = self.line();
        let values = self.items(")")?;
        let expected = statement::values(&text);
        // The count is checked here, since databases report a mismatch only when the page runs.
        if expected != usize::from(values) {
            return self.fail(format!(
                "the statement has {expected} placeholders (?), but {values} values are given"
            ));
        }
        let statement = self.add_text(&text);
        let at = self.emit(PageOp::Query {
            statement,
            values,
            is_row,
        });
        // The query's line is the line of the call, not of its last argument.
        self.lines[at].line = line;
        Ok(())
    }

    /// Compiles a sequence of `| filter` and `is test`.
    pub fn filters(&mut self) -> Result<(), ParseError> {
        loop {
            if self.take_sign("|") {
                self.filter()?;
            } else if self.take_name("is") {
                self.test()?;
            } else {
                return Ok(());
            }
        }
    }

    fn filter(&mut self) -> Result<(), ParseError> {
        let Some(PageToken::Name(name)) = self.next() else {
            self.at -= 1;
            return self.unexpected("expected the name of a filter");
        };
        let (filter, to) = match name {
            "safe" => (FilterOp::Safe, 0),
            "escape" | "e" => (FilterOp::Escape, 0),
            "upper" => (FilterOp::Upper, 0),
            "lower" => (FilterOp::Lower, 0),
            "trim" => (FilterOp::Trim, 0),
            "length" | "count" => (FilterOp::Length, 0),
            "default" | "d" => (FilterOp::Default, 2),
            "join" => (FilterOp::Join, 1),
            "round" => (FilterOp::Round, 1),
            "tojson" => (FilterOp::ToJson, 0),
            _ => {
                return self.fail(format!(
                    "the filter {name} is not available in pages of the image; the filters are \
                     safe, escape, upper, lower, trim, length, default, join, round and tojson; \
                     or do it in the statement"
                ));
            }
        };
        let arguments = self.arguments(name, 0, to)?;
        self.emit(PageOp::Filter { filter, arguments });
        Ok(())
    }

    fn test(&mut self) -> Result<(), ParseError> {
        let is_negated = self.take_name("not");
        let test = match self.next() {
            Some(PageToken::Name("defined")) => TestOp::Defined,
            Some(PageToken::Name("undefined")) => TestOp::Undefined,
            Some(PageToken::Name("none")) => TestOp::None,
            _ => {
                return self.fail(
                    "unknown test; the tests are: is defined, is undefined, is none; use comparisons for others",
                );
            }
        };
        // minijinja would take the next token as an argument of the test.
        let is_argument = match self.peek() {
            Some(PageToken::Name(name)) => !["and", "or", "else", "is"].contains(name),
            Some(PageToken::Text(_) | PageToken::Whole(_) | PageToken::Float(_)) => true,
            Some(PageToken::Sign(sign)) => ["+", "-", "[", "{"].contains(sign),
            _ => false,
        };
        if is_argument {
            return self.fail("put a test in parentheses if something follows it: (x is none) …");
        }
        self.emit(PageOp::Test { test, is_negated });
        Ok(())
    }
}
