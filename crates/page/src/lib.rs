//! Renders `.lrp` pages without minijinja. The crate supports the subset of their template language (docs/pages.md)
//! that needs no operating system. A page is compiled once, and run by a stack machine that suspends whenever it needs
//! a database. The crate does not depend on databases, connections or clocks.
//!
//! ```text
//! CompiledPage::parse ─► PageRun::begin ─► step ─► RunStep::Query ─► columns, (value…, row_end)…, finish_query
//!                                            ▲                                                          │
//!                                            └──────────────────── until RunStep::Done ─────────────────┘
//! ```
//!
//! The output is byte-identical to that of minijinja with the server's settings. `CompiledPage::parse` rejects features
//! outside of the subset, with a message that suggests a replacement.
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
