//! The lab: repeats the experiments of the papers on today's servers.
//!
//! `load` makes requests and measures, `workload` says which, `peers` starts the servers, `experiment`
//! puts them together, `icount` counts instructions in a guest, `report` draws. What is measured is
//! known here; how Lowroad works inside is not.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod howl;
pub mod icount;
pub mod load;
pub mod peers;
pub mod random;
pub mod report;
pub mod workload;
