//! The program of the bare image, without a machine below it: a site in memory, served over TCP/IP frames. The
//! kernel image and the hosted form both run it. Knows no device, clock or memory but what it is given.
//!
//! The way of a request: [`Server::received`] gives the frame to `lowroad_net`, which calls `web` with the bytes;
//! `decide` finds what is asked for, `respond` writes the answer from the site's memory; `pages` runs what must
//! be made and asks the database.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
mod asked;
mod cores;
mod counters;
mod database;
mod decide;
mod journal;
mod known;
mod log;
mod member;
mod out;
mod pages;
mod refuse;
mod respond;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod trusted;
mod web;
mod whole;

pub use cores::Cores;
pub use server::{Machine, Now, Server};
