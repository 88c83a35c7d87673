//! The lab repeats the experiments of published papers on today's servers.
//!
//! `load` generates and measures requests, `workload` defines their content, `peers` starts the servers, `experiment`
//! combines these, `icount` counts instructions in a guest, `howl` is a minimal server as a bound, and `report` draws
//! the figures. The lab knows the measured quantities and treats Lowroad as a black box.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod howl;
pub mod icount;
pub mod load;
pub mod peers;
pub mod random;
pub mod report;
pub mod workload;
