//! Logs that never make their writers wait: the access log's lines, the error log, and the thread
//! that writes both.
//!
//! Knows no server: [`access`] formats the line of a response, [`writer`] takes bytes to a file, and
//! [`error`] puts levels and times before messages.

#![forbid(unsafe_code)]

pub mod access;
pub mod civil;
mod decimal;
pub mod error;
mod escape;
pub mod writer;

pub use access::{Entry, LineFormat, LineFormatter};
pub use error::{Level, Logger};
pub use writer::{Sink, Target, Writer};
