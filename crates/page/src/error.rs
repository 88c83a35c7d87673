//! Errors in pages, with their source lines.

use alloc::string::String;
use core::fmt;

/// Why a page cannot be compiled for direct rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line number, from 1.
    pub line: u32,
    /// The fault and its remedy.
    pub message: String,
}

/// Why the run of a page failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// The line number, from 1.
    pub line: u32,
    /// The fault, for the log; it may contain data of a client.
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
