//! What can go wrong with the level as a whole, and whose fault it is.

use std::fmt;
use std::io;

/// Why the level is not there.
#[derive(Debug)]
pub enum Error {
    /// A system call or libbpf: what was tried, and what it said.
    System {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The verifier did not take the programs: its last lines.
    Verifier(String),
    /// The machine lacks something: what, and what would change it.
    Machine(String),
    /// The caller asks for what can't be.
    Usage(String),
}

impl Error {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |error| Error::System { what, error }
    }

    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Error {
        let what = what.into();
        move |error| Error::System {
            what,
            error: io::Error::other(error.to_string()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { what, error } => write!(f, "{what}: {error}"),
            Error::Verifier(text) => write!(f, "the kernel did not take the programs:\n{text}"),
            Error::Machine(text) | Error::Usage(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
