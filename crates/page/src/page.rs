//! A page as it is kept: its texts and its steps.

use alloc::string::String;
use alloc::vec::Vec;

use crate::compile;
use crate::error::ParseError;
use crate::op::{Op, Span};

/// A parsed page. It is made once and run by any number of [`Run`](crate::Run)s.
#[derive(Clone, Debug)]
pub struct Page {
    pub(crate) text: String,
    pub(crate) ops: Vec<Op>,
    /// Where each step comes from.
    pub(crate) lines: Vec<Place>,
    /// How many places for names it has.
    pub(crate) slots: usize,
    /// The page's name and those of its parts.
    pub(crate) parts: Vec<String>,
}

/// A line of the page or of one of its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// 0 is the page itself.
    pub part: u32,
    /// Counted from 1.
    pub line: u32,
}

impl Page {
    /// Parses a page that includes nothing. Takes up to 64 KiB of stack, for a page with tags 64 deep in each other.
    ///
    /// # Errors
    /// Something is wrong, or outside of what the image can do.
    pub fn parse(source: &str) -> Result<Page, ParseError> {
        Page::parse_with("", source, &mut |_| None)
    }

    /// Parses a page with what it includes. `name` is its path in the site, such as `shop/item.lrp`; `find` gives
    /// the source of a part by such a path.
    ///
    /// # Errors
    /// Something is wrong, or outside of what the image can do; in a part, `what` begins with its name.
    pub fn parse_with<'s>(
        name: &str,
        source: &'s str,
        find: &mut dyn FnMut(&str) -> Option<&'s str>,
    ) -> Result<Page, ParseError> {
        compile::page(name, source, find)
    }

    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        let at = span.at as usize;
        let bytes = self.text.as_bytes().get(at..at + span.len as usize);
        bytes.unwrap_or_default()
    }

    #[inline]
    pub(crate) fn text(&self, span: Span) -> &str {
        let at = span.at as usize;
        self.text
            .get(at..at + span.len as usize)
            .unwrap_or_default()
    }
}
