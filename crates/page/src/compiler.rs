//! Compiles a page's tokens to operations in one pass. Implements the subset of minijinja's grammar that the unikernel
//! supports.

mod call;
mod expression;
mod part;
mod scope;
mod statement;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::error::ParseError;
use crate::lexer::{self, PageToken};
use crate::opcode::{PageOp, SourceSpan};
use crate::page::{CompiledPage, SourceLine};
use scope::ScopeStack;

/// The maximum nesting depth of expressions and blocks.
const DEPTH_MAX: u32 = 64;

/// The limits of a page with all its included parts: bytes of text, and operations.
const TEXT_LEN_MAX: usize = 4 << 20;
const OP_COUNT_MAX: usize = 1 << 18;

/// Returns the source of the part with this name.
pub type PartLookup<'f, 's> = &'f mut dyn FnMut(&str) -> Option<&'s str>;

/// Compiles the page with this name.
pub fn page<'s>(
    name: &str,
    source: &'s str,
    find: PartLookup<'_, 's>,
) -> Result<CompiledPage, ParseError> {
    let mut compiler = PageCompiler {
        tokens: lexer::tokens(source)?,
        at: 0,
        find,
        names: alloc::vec![String::from(name)],
        part: 0,
        text: String::new(),
        ops: Vec::new(),
        lines: Vec::new(),
        scopes: ScopeStack::default(),
        depth: 0,
    };
    compiler.body(&[])?;
    Ok(CompiledPage {
        text: compiler.text,
        ops: compiler.ops,
        lines: compiler.lines,
        slots: compiler.scopes.slot_count(),
        parts: compiler.names,
    })
}

struct PageCompiler<'s, 'f> {
    tokens: Vec<(PageToken<'s>, u32)>,
    at: usize,
    find: PartLookup<'f, 's>,
    /// The names of the page and of its included parts.
    names: Vec<String>,
    /// The index of the part being parsed.
    part: usize,
    text: String,
    ops: Vec<PageOp>,
    lines: Vec<SourceLine>,
    scopes: ScopeStack<'s>,
    depth: u32,
}

impl<'s> PageCompiler<'s, '_> {
    fn peek(&self) -> Option<&PageToken<'s>> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn next(&mut self) -> Option<PageToken<'s>> {
        let token = self.tokens.get(self.at).map(|(token, _)| token.clone());
        self.at += 1;
        token
    }

    /// The line of the token that was taken last.
    fn line(&self) -> u32 {
        let at = self
            .at
            // At the end of the page, this is the line of the last token.
            .saturating_sub(1)
            .min(self.tokens.len().saturating_sub(1));
        self.tokens.get(at).map_or(1, |(_, line)| *line)
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        let error = ParseError {
            line: self.line(),
            message: message.into(),
        };
        Err(self.named_error(self.part, error))
    }

    fn emit(&mut self, op: PageOp) -> usize {
        self.ops.push(op);
        // Each operation has a source line, so that run-time failures can report it.
        self.lines.push(SourceLine {
            part: self.part as u32,
            line: self.line(),
        });
        self.ops.len() - 1
    }

    /// Sets the jump at `from` to lead to the next operation.
    fn patch_jump(&mut self, from: usize) {
        // Distances are relative, so that operations can be moved as a block, as in `conditional`.
        let distance = (self.ops.len() - from - 1) as i32;
        if let Some(
            PageOp::Jump(jump)
            | PageOp::JumpIfNot(jump)
            | PageOp::JumpKeeping { jump, .. }
            | PageOp::LoadIfSet { jump, .. }
            | PageOp::For { jump, .. },
        ) = self.ops.get_mut(from)
        {
            *jump = distance;
        }
    }

    /// Appends a text to the page's texts.
    fn add_text(&mut self, text: &str) -> SourceSpan {
        let at = self.text.len() as u32;
        self.text.push_str(text);
        SourceSpan {
            at,
            len: text.len() as u32,
        }
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(PageToken::Sign(other)) if *other == sign)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(PageToken::Name(other)) if *other == name)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_match = self.is_sign(sign);
        self.at += usize::from(is_match);
        is_match
    }

    fn take_name(&mut self, name: &str) -> bool {
        let is_match = self.is_name(name);
        self.at += usize::from(is_match);
        is_match
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), ParseError> {
        match self.take_sign(sign) {
            true => Ok(()),
            false => self.unexpected(&format!("expected {sign}")),
        }
    }

    /// Expects the end of the tag.
    fn expect_end(&mut self) -> Result<(), ParseError> {
        match self.next() {
            Some(PageToken::End) => Ok(()),
            _ => {
                // The token is put back, so that the message names it.
                self.at -= 1;
                self.unexpected("expected the end of the tag")
            }
        }
    }

    fn unexpected<T>(&mut self, message: &str) -> Result<T, ParseError> {
        // The token is consumed, so that `line` returns the line of the unexpected token.
        self.at += 1;
        let found = match self.tokens.get(self.at - 1) {
            None => "the page ends".to_string(),
            Some((PageToken::Name(name), _)) => format!("found {name}"),
            Some((PageToken::Sign(sign), _)) => format!("found {sign}"),
            Some((PageToken::Text(_), _)) => "found a text".to_string(),
            Some((PageToken::Whole(_) | PageToken::Float(_), _)) => "found a number".to_string(),
            Some(_) => "the tag ends".to_string(),
        };
        self.fail(format!("{message}, but {found}"))
    }

    /// Runs `inner` one nesting level deeper, within the limit.
    fn deeper<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        // The limit bounds the recursion of the parser, and so its stack.
        if self.depth == DEPTH_MAX {
            return self.fail(format!(
                "expressions or tags are nested more than {DEPTH_MAX} deep"
            ));
        }
        self.depth += 1;
        let parsed = inner(self);
        self.depth -= 1;
        parsed
    }
}
