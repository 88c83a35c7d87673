//! The lab repeats the experiments of published papers with today's servers.
//!
//! `load` generates requests and measures responses, `workload` defines the content of the requests, `peers` starts the
//! servers, `experiment` combines these, `icount` counts instructions in a guest, `howl` is a minimal server that
//! serves as a bound, and `report` draws the figures. The lab treats Lowroad as a black box.

#![forbid(unsafe_code)]

pub mod experiment;
pub mod howl;
pub mod icount;
pub mod load;
pub mod log_size;
pub mod peers;
pub mod random;
pub mod report;
pub mod workload;
