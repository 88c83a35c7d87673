//! `.lrp` pages without minijinja: the part of their language (docs/pages.md) that a machine without an
//! operating system can do, parsed once and run as a machine that stops where it needs a database. Knows no
//! database, no connection and no clock.
//!
//! ```text
//! Page::parse ─► Run::begin ─► step ─► Step::Query ─► columns, (value…, row_end)…, answered ─► step ─► … Step::Done
//! ```
//!
//! What a page here shows, minijinja with the server's settings shows with the same bytes. What is outside of the
//! subset is refused by [`Page::parse`], with what to write instead.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod compile;
mod error;
mod lexer;
mod number;
mod op;
mod page;
mod reply;
mod request;
mod run;
mod statement;
mod text;
mod value;

pub use error::{Failure, ParseError};
pub use page::Page;
pub use reply::Reply;
pub use request::Request;
pub use run::{Limits, Run, Step, Values};
pub use value::Value;
