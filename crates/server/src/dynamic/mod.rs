//! The module level: requests that programs answer, from the route to the written response.
//!
//! `routes` says which program a path belongs to, `build` makes the programs from the
//! configuration, `calls` puts a request to one, `reuse` says which responses may be used again and for whom, `storing`
//! puts them into the store (`purge` says which are to go), `counts` has numbers for the operator, and `reply` writes what
//! came of it. What the programs are and how they work is
//! told in the crate `lowroad-dynamic`.

mod build;
pub mod calls;
pub mod counts;
mod lanes;
mod objects;
pub mod purge;
pub mod reply;
pub mod reuse;
pub mod routes;
mod storing;

pub use build::{Opened, Programs};
pub use calls::Calls;
pub use routes::{Route, Routes};
pub use storing::Stored;
