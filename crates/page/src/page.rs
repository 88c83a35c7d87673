//! A compiled page: its texts and operations.

use alloc::string::String;
use alloc::vec::Vec;

use crate::compiler;
use crate::error::ParseError;
use crate::opcode::{PageOp, SourceSpan};

/// A compiled page. It is compiled once, and can be run by any number of `PageRun`s.
#[derive(Clone, Debug)]
pub struct CompiledPage {
    pub(crate) text: String,
    pub(crate) ops: Vec<PageOp>,
    /// The source line of each operation.
    pub(crate) lines: Vec<SourceLine>,
    /// The number of variable slots.
    pub(crate) slots: usize,
    /// The names of the page and of its included parts.
    pub(crate) parts: Vec<String>,
}

/// A source line of the page or of one of its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLine {
    /// The index of the part; 0 is the page itself.
    pub part: u32,
    /// The line number, from 1.
    pub line: u32,
}

impl CompiledPage {
    /// Compiles a page without includes. Compilation needs up to 64 KiB of stack, for a page with tags nested 64 deep.
    ///
    /// # Errors
    /// A syntax error, or an unsupported feature.
    pub fn parse(source: &str) -> Result<CompiledPage, ParseError> {
        CompiledPage::parse_with("", source, &mut |_| None)
    }

    /// Compiles a page with its includes. `name` is the path of the page in the site, such as `shop/item.lrp`; `find`
    /// returns the source of a part by such a path.
    ///
    /// # Errors
    /// A syntax error, or an unsupported feature. If the error is in an included part, the message begins with the
    /// part's name.
    pub fn parse_with<'s>(
        name: &str,
        source: &'s str,
        find: &mut dyn FnMut(&str) -> Option<&'s str>,
    ) -> Result<CompiledPage, ParseError> {
        compiler::page(name, source, find)
    }

    #[inline]
    pub(crate) fn bytes(&self, span: SourceSpan) -> &[u8] {
        let at = span.at as usize;
        let bytes = self.text.as_bytes().get(at..at + span.len as usize);
        bytes.unwrap_or_default()
    }

    #[inline]
    pub(crate) fn text(&self, span: SourceSpan) -> &str {
        let at = span.at as usize;
        self.text
            .get(at..at + span.len as usize)
            .unwrap_or_default()
    }
}
