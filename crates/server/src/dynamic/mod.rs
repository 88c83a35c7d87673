//! The module level: requests that programs answer, from the route to the written response.
//!
//! `routes` says which program a path belongs to, `build` makes the programs from the
//! configuration, `calls` puts a request to one, `kept` holds responses that may be used again
//! (`passing` gathers those that come in parts, `purge` says which are to go), `counts` has numbers
//! for the operator, and `reply` writes what came of it. What the programs are and how they work is
//! told in the crate `lowroad-dynamic`.

mod build;
pub mod calls;
pub mod counts;
mod keeping;
pub mod kept;
mod lanes;
mod objects;
mod passing;
pub mod purge;
pub mod reply;
pub mod routes;

pub use build::{Opened, Programs};
pub use calls::Calls;
pub use routes::{Route, Routes};
