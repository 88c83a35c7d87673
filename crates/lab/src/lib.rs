//! The lab: repeats the experiments of the papers on today's servers.
//!
//! `load` makes requests and measures, `workload` says which. What is measured is known here; how
//! Lowroad works inside is not.

#![forbid(unsafe_code)]

pub mod load;
pub mod random;
pub mod workload;
