//! Code shared by the tests of the programs.
#![allow(dead_code)]

pub mod bench;
pub mod copies;
pub mod frames;
pub mod leftover;
pub mod line;
pub mod model;
pub mod oracle;
pub mod programs;
pub mod requests;
pub mod responses;
pub mod script;
