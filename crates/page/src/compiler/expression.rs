//! Compiles expressions, with minijinja's precedence, from lowest to highest: if, or, and, not, comparisons, + and -,
//! ~, * and /, unary -, postfix operators, filters.

use alloc::format;
use alloc::string::String;

use super::PageCompiler;
use crate::error::ParseError;
use crate::lexer::PageToken;
use crate::opcode::{BinaryOp, LoopPart, PageOp};
use crate::value::{MachineValue, TextRef};

/// The attributes of `request`.
const REQUEST_ATTRIBUTES: &[&str] = &[
    "params", "cookies", "fields", "method", "path", "target", "host", "peer",
];

impl<'s> PageCompiler<'s, '_> {
    /// Compiles an expression; its value is left on the stack.
    pub fn expression(&mut self) -> Result<(), ParseError> {
        self.deeper(Self::conditional)
    }

    /// Like `expression`, for contexts in which `if` has another meaning.
    pub fn expression_without_if(&mut self) -> Result<(), ParseError> {
        self.deeper(Self::or)
    }

    /// `a if b else c`
    fn conditional(&mut self) -> Result<(), ParseError> {
        let start = self.ops.len();
        self.or()?;
        while self.take_name("if") {
            // The condition is written after the value but evaluated before it, so the value's operations are moved
            // behind the condition. Jump distances are relative, so they remain valid.
            let ops = self.ops.split_off(start);
            let lines = self.lines.split_off(start);
            self.or()?;
            let skip = self.emit(PageOp::JumpIfNot(0));
            self.ops.extend(ops);
            self.lines.extend(lines);
            let end = self.emit(PageOp::Jump(0));
            self.patch_jump(skip);
            if !self.take_name("else") {
                return self.fail("`if` without `else`: write … if … else …");
            }
            // `if` is right-associative: the part after `else` may be a conditional, too.
            self.expression()?;
            self.patch_jump(end);
        }
        Ok(())
    }

    fn or(&mut self) -> Result<(), ParseError> {
        self.and()?;
        while self.take_name("or") {
            let skip = self.emit(PageOp::JumpKeeping {
                truth: true,
                jump: 0,
            });
            self.and()?;
            self.patch_jump(skip);
        }
        Ok(())
    }

    fn and(&mut self) -> Result<(), ParseError> {
        self.not()?;
        while self.take_name("and") {
            let skip = self.emit(PageOp::JumpKeeping {
                truth: false,
                jump: 0,
            });
            self.not()?;
            self.patch_jump(skip);
        }
        Ok(())
    }

    fn not(&mut self) -> Result<(), ParseError> {
        if self.take_name("not") {
            // Recursion for `not not x` counts against the nesting limit.
            self.deeper(Self::not)?;
            self.emit(PageOp::Not);
            return Ok(());
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<(), ParseError> {
        self.sum()?;
        let Some(op) = self.comparison_sign()? else {
            return Ok(());
        };
        self.sum()?;
        self.emit(PageOp::Binary(op));
        // minijinja chains comparisons like Python; here a chained comparison would silently have another meaning.
        match self.comparison_sign()? {
            Some(_) => self.fail("comparisons can't be chained: write a < b and b < c"),
            None => Ok(()),
        }
    }

    fn comparison_sign(&mut self) -> Result<Option<BinaryOp>, ParseError> {
        let op = match self.peek() {
            Some(PageToken::Sign("==")) => BinaryOp::Equal,
            Some(PageToken::Sign("!=")) => BinaryOp::NotEqual,
            Some(PageToken::Sign("<")) => BinaryOp::Less,
            Some(PageToken::Sign("<=")) => BinaryOp::LessOrEqual,
            Some(PageToken::Sign(">")) => BinaryOp::Greater,
            Some(PageToken::Sign(">=")) => BinaryOp::GreaterOrEqual,
            Some(PageToken::Name("in")) => BinaryOp::In,
            // After a value, `not` can only be part of `not in`.
            Some(PageToken::Name("not")) => {
                self.at += 1;
                if !self.is_name("in") {
                    return self.unexpected("expected in");
                }
                BinaryOp::NotIn
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(op))
    }

    fn sum(&mut self) -> Result<(), ParseError> {
        self.concat()?;
        loop {
            let op = match self.peek() {
                Some(PageToken::Sign("+")) => BinaryOp::Add,
                Some(PageToken::Sign("-")) => BinaryOp::Subtract,
                _ => return Ok(()),
            };
            self.at += 1;
            self.concat()?;
            self.emit(PageOp::Binary(op));
        }
    }

    fn concat(&mut self) -> Result<(), ParseError> {
        self.product()?;
        while self.take_sign("~") {
            self.product()?;
            self.emit(PageOp::Binary(BinaryOp::Concat));
        }
        Ok(())
    }

    fn product(&mut self) -> Result<(), ParseError> {
        self.filtered()?;
        loop {
            let op = match self.peek() {
                Some(PageToken::Sign("*")) => BinaryOp::Multiply,
                Some(PageToken::Sign("/")) => BinaryOp::Divide,
                Some(PageToken::Sign("//")) => BinaryOp::FloorDivide,
                Some(PageToken::Sign("%")) => BinaryOp::Remainder,
                Some(PageToken::Sign("**")) => {
                    return self.fail(
                        "** is not available in pages of the image: calculate in the statement",
                    );
                }
                _ => return Ok(()),
            };
            self.at += 1;
            self.filtered()?;
            self.emit(PageOp::Binary(op));
        }
    }

    fn filtered(&mut self) -> Result<(), ParseError> {
        self.signed()?;
        self.filters()
    }

    fn signed(&mut self) -> Result<(), ParseError> {
        if self.take_sign("-") {
            self.deeper(Self::signed)?;
            self.emit(PageOp::Negate);
            return Ok(());
        }
        self.primary()?;
        self.postfix()
    }

    /// Compiles a sequence of `.name` and `[key]`.
    fn postfix(&mut self) -> Result<(), ParseError> {
        loop {
            if self.take_sign(".") {
                let Some(PageToken::Name(name)) = self.next() else {
                    self.at -= 1;
                    return self.unexpected("expected a name; write a number as [0]");
                };
                if self.is_sign("(") {
                    return self.fail(format!(
                        ".{name}() is not available in pages of the image: values have no methods there"
                    ));
                }
                let span = self.add_text(name);
                self.emit(PageOp::Attribute(span));
            } else if self.take_sign("[") {
                self.key()?;
            } else if self.is_sign("(") {
                return self.fail("only query, row, status, header and cache can be called");
            } else {
                return Ok(());
            }
        }
    }

    fn key(&mut self) -> Result<(), ParseError> {
        let literal = match (self.peek(), self.tokens.get(self.at + 1)) {
            (Some(PageToken::Text(key)), Some((PageToken::Sign("]"), _))) => Some(key.clone()),
            _ => None,
        };
        // A literal key is compiled like an attribute, without a value on the stack.
        if let Some(key) = literal {
            self.at += 2;
            let span = self.add_text(&key);
            self.emit(PageOp::Attribute(span));
            return Ok(());
        }
        if self.is_sign(":") {
            return self
                .fail("slices are not available in pages of the image: write LIMIT and OFFSET");
        }
        self.expression()?;
        if self.is_sign(":") {
            return self
                .fail("slices are not available in pages of the image: write LIMIT and OFFSET");
        }
        self.expect_sign("]")?;
        self.emit(PageOp::Item);
        Ok(())
    }

    fn primary(&mut self) -> Result<(), ParseError> {
        match self.next() {
            Some(PageToken::Name(name)) => self.identifier(name),
            Some(PageToken::Text(text)) => {
                let value = self.literal(text);
                self.push(value);
                Ok(())
            }
            Some(PageToken::Whole(number)) => {
                // Integers above `i64::MAX` are kept as unsigned integers.
                let value =
                    i64::try_from(number).map_or(MachineValue::UInt(number), MachineValue::Int);
                self.push(value);
                Ok(())
            }
            Some(PageToken::Float(number)) => {
                self.push(MachineValue::Float(number));
                Ok(())
            }
            Some(PageToken::Sign("(")) => {
                self.expression()?;
                // A comma in parentheses makes a tuple.
                if self.is_sign(",") {
                    return self.fail(
                        "tuples are not available in pages of the image: write a list, [a, b]",
                    );
                }
                self.expect_sign(")")
            }
            Some(PageToken::Sign("[")) => {
                let count = self.items("]")?;
                self.emit(PageOp::List(count));
                Ok(())
            }
            Some(PageToken::Sign("{")) => self.fail("maps are not available in pages of the image"),
            _ => {
                self.at -= 1;
                self.unexpected("expected a value")
            }
        }
    }

    /// A text literal, concatenated with adjacent literals.
    fn literal(&mut self, mut text: String) -> MachineValue {
        while let Some(PageToken::Text(adjacent)) = self.peek() {
            text.push_str(adjacent);
            self.at += 1;
        }
        let span = self.add_text(&text);
        MachineValue::Text(TextRef {
            at: span.at,
            len: span.len,
            in_page: true,
            is_safe: false,
        })
    }

    /// Compiles comma-separated values up to the sign `end`; returns their number.
    pub fn items(&mut self, end: &str) -> Result<u16, ParseError> {
        let mut count = 0_u16;
        while !self.take_sign(end) {
            if count > 0 {
                self.expect_sign(",")?;
                // A trailing comma is allowed, as in minijinja.
                if self.take_sign(end) {
                    break;
                }
            }
            self.expression()?;
            // Without this check `f(a=1)` would be reported as a syntax error that does not state the reason.
            if self.is_sign("=") {
                return self.fail(
                    "named arguments, as in f(a=1), are not available in pages of the image",
                );
            }
            count = match count.checked_add(1) {
                Some(count) => count,
                None => return self.fail("too many values"),
            };
        }
        Ok(count)
    }

    fn identifier(&mut self, name: &'s str) -> Result<(), ParseError> {
        match name {
            "true" | "True" => self.push(MachineValue::Bool(true)),
            "false" | "False" => self.push(MachineValue::Bool(false)),
            "none" | "None" => self.push(MachineValue::None),
            "request" => return self.request(),
            "loop" => return self.loop_part(),
            _ if self.is_sign("(") => return self.call(name),
            "query" | "row" | "execute" => {
                return self.fail(format!(
                    "{name} is a function for statements and can only be called, as in \
                     {name}(\"SELECT …\"); rename your variable"
                ));
            }
            _ => return self.variable(name),
        }
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Result<(), ParseError> {
        let slots = self.scopes.find(name);
        let Some((last, inner)) = slots.split_last() else {
            return self.fail(format!("undefined name {name}; check its spelling"));
        };
        // A name may be set in an inner scope on some paths only, so the inner slots are tried first at run time.
        let mut jumps = alloc::vec::Vec::new();
        for slot in inner {
            jumps.push(self.emit(PageOp::LoadIfSet {
                slot: *slot,
                jump: 0,
            }));
        }
        self.emit(PageOp::Load(*last));
        for jump in jumps {
            self.patch_jump(jump);
        }
        Ok(())
    }

    fn request(&mut self) -> Result<(), ParseError> {
        let part = match (self.peek(), self.tokens.get(self.at + 1)) {
            (Some(PageToken::Sign(".")), Some((PageToken::Name(part), _))) => part,
            _ => {
                return self.fail(
                    "request can't be used as a whole; use a part, such as request.params.x",
                );
            }
        };
        match *part {
            part if REQUEST_ATTRIBUTES.contains(&part) => {}
            "form" | "body" => {
                return self.fail("forms are not available in pages of the image, which only read");
            }
            part => {
                return self.fail(format!(
                    "request has no {part}; its parts are {}",
                    REQUEST_ATTRIBUTES.join(", ")
                ));
            }
        }
        self.push(MachineValue::Request);
        Ok(())
    }

    fn loop_part(&mut self) -> Result<(), ParseError> {
        if !self.scopes.is_in_loop() {
            return self.fail("loop is available only between {% for %} and {% endfor %}");
        }
        let part = match (self.take_sign("."), self.next()) {
            (true, Some(PageToken::Name("index"))) => LoopPart::Index,
            (true, Some(PageToken::Name("index0"))) => LoopPart::Index0,
            (true, Some(PageToken::Name("revindex"))) => LoopPart::RevIndex,
            (true, Some(PageToken::Name("revindex0"))) => LoopPart::RevIndex0,
            (true, Some(PageToken::Name("first"))) => LoopPart::First,
            (true, Some(PageToken::Name("last"))) => LoopPart::Last,
            (true, Some(PageToken::Name("length"))) => LoopPart::Length,
            _ => {
                return self.fail(
                    "unknown part of loop; the parts are index, index0, revindex, revindex0, \
                     first, last and length",
                );
            }
        };
        self.emit(PageOp::Loop(part));
        Ok(())
    }
}
