//! The module level: a request's way to a program and its response's way back.
//!
//! `calls` puts a request to a program, `reuse` says which responses may be used again and for whom, `storing` puts them
//! into the store (`purge` says which are to go, `invalidating` which a request made invalid), `objects` gives programs what their site has stored, and `reply` is what
//! came of a call (`elsewhere`: that something else is to be answered). Which programs there are is [`crate::programs`]'.

pub mod cache_status;
pub mod calls;
mod heads;
pub mod invalidating;
mod objects;
pub mod purge;
pub mod reply;
pub mod reuse;
pub mod storing;
pub mod validating;
