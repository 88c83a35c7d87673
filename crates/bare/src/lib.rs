//! The program of the unikernel, independent of the machine: serves a site from memory over TCP/IP frames.
//!
//! The kernel image and the hosted form both run it. The caller supplies frames, time, random numbers and memory
//! sizes. A request passes `UnikernelServer::received` and `lowroad_net` to `web`; `decision` finds the resource,
//! `response_fields` writes the response from the site's memory, and `pages` generates dynamic pages with queries to
//! the database.
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
