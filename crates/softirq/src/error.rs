//! Errors that concern the whole level, by cause.

use std::fmt;
use std::io;

/// The reason for which the level can't work.
#[derive(Debug)]
pub enum LevelError {
    /// A system call or libbpf failed; contains the operation, and the error.
    System {
        /// The operation.
        operation: String,
        /// The error of the operation.
        error: io::Error,
    },
    /// The verifier rejected the programs; contains the last lines of the verifier's log.
    Verifier(String),
    /// The machine lacks a requirement; contains the name of the requirement, and the remedy.
    Machine(String),
    /// The caller's request can't be carried out.
    Usage(String),
}

impl LevelError {
    pub(crate) fn system(operation: impl Into<String>) -> impl FnOnce(io::Error) -> LevelError {
        let operation = operation.into();
        move |error| LevelError::System { operation, error }
    }

    pub(crate) fn bpf(operation: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> LevelError {
        let operation = operation.into();
        move |error| LevelError::System {
            operation,
            error: io::Error::other(error.to_string()),
        }
    }
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LevelError::System { operation, error } => write!(f, "{operation}: {error}"),
            LevelError::Verifier(text) => {
                write!(f, "the kernel rejected the programs:\n{text}")
            }
            LevelError::Machine(text) | LevelError::Usage(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LevelError {}
