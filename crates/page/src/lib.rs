//! Renders `.lrp` pages without minijinja: the part of their language (docs/pages.md) that works without an operating
//! system, compiled once and run by a machine that stops when it needs a database. Independent of databases,
//! connections and clocks.
//!
//! ```text
//! Page::parse ─► Run::begin ─► step ─► Step::Query ─► columns, (value…, row_end)…, answered ─► step ─► … Step::Done
//! ```
//!
//! The output is byte for byte that of minijinja with the server's settings. `CompiledPage::parse` refuses features
//! outside of the subset, with the remedy.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod compiler;
mod error;
mod lexer;
mod number;
mod opcode;
mod page;
mod page_run;
mod reply;
mod request;
mod statement;
pub mod statement_lexer;
mod text;
mod value;

pub use error::{ParseError, RunFailure};
pub use page::CompiledPage;
pub use page_run::{PageLimits, PageRun, RunStep, StatementValues};
pub use reply::PageReply;
pub use request::PageRequest;
pub use value::PageValue;
