//! Errors in pages and their lines.

use alloc::string::String;
use core::fmt;

/// A page that the direct renderer does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: u32,
    /// The fault and its remedy.
    pub message: String,
}

/// Why a page ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// Counted from 1.
    pub line: u32,
    /// The fault, for the log; it may contain data of a visitor.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.message)
    }
}

impl fmt::Display for RunFailure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.message)
    }
}

impl core::error::Error for ParseError {}
impl core::error::Error for RunFailure {}
