//! The lab: repeats the experiments of the papers on today's servers.
//!
//! `load` makes requests and measures, `workload` says which, `peers` starts the servers. What is measured is known here; how
//! Lowroad works inside is not.

#![forbid(unsafe_code)]

pub mod howl;
pub mod load;
pub mod peers;
pub mod random;
pub mod workload;
