//! The server program of the unikernel, independent of the machine: serves a site from memory, over frames with TCP/IP.
//!
//! Both the kernel image and the hosted form use this crate. The caller supplies frames, time, random numbers and
//! memory sizes. A request passes through `UnikernelServer::received` and `lowroad_net` to `web`. `decision` finds the
//! resource, `response_fields` writes the response from the site's memory, and `pages` generates dynamic pages with
//! database queries.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
mod core_member;
mod cores;
mod counters;
mod database;
mod decision;
mod journal;
mod log;
mod machine_view;
mod page_input;
mod pages;
mod refusal_page;
mod request_memo;
mod response;
mod response_fields;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod trusted_networks;
mod web;

pub use cores::CoreSet;
pub use server::{CurrentTime, MachineSetup, UnikernelServer};
