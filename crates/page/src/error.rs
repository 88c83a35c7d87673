//! What is wrong with a page, and where.

use alloc::string::String;
use core::fmt;

/// A page that can't be in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: u32,
    /// What is wrong, and what to write instead.
    pub what: String,
}

/// Why a page has ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Counted from 1.
    pub line: u32,
    /// What is wrong; it may name what a visitor sent, and is for the log.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.what)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for ParseError {}
impl core::error::Error for Failure {}
