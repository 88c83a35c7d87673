//! The programs of sites: `routes` says which program a path belongs to, with `counts` for the operator; `build` makes the
//! programs from the configuration, `lanes` are the threads on which they are waited for. What programs are and how they
//! work is told in the crate `lowroad-dynamic`; knows nothing of requests.

pub mod build;
pub mod counts;
mod lanes;
pub mod routes;
