//! HTTP answered segment by segment, without a TCP stack: the rules of the soft-interrupt level in
//! Rust. The eBPF programs of `lowroad-softirq` follow the same rules in C; their tests run the same
//! traces against both, so this is also where to read what the level does and why.
//!
//! The rule that everything follows from: while an answer is under way, its request is not acknowledged by
//! anything but the answer; or not all of it, if the answer takes several segments (`flight`). What gets
//! lost, the client sends again, and it gets the same answer again; so nobody here needs a timer, a queue or
//! a copy of what was sent. What comes before that answer is acknowledged is held without a promise (`held`).
//!
//! The way of a frame: [`frame::Segment::parse`], [`responder::Responder::segment`], which asks
//! `handshake` for a SYN, `answer` and [`key::read`] for a request, and writes with [`reply::Reply`]. Time, keys,
//! responses and the sockets of a server above are behind [`world::World`]; this crate does no input
//! or output.
//!
//! Read first: RFC 9293 §3.10.7 (segments), RFC 4987 §3.6 (cookies), RFC 5961 (resets).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
pub mod checksum;
pub mod connection;
pub mod cookie;
mod flight;
pub mod frame;
mod handshake;
mod held;
pub mod key;
pub mod options;
pub mod reason;
pub mod reply;
pub mod responder;
mod shared;
pub mod verdict;
pub mod width;
pub mod world;

pub use connection::{Connection, ConnectionState, Table};
pub use flight::{PARTS_MAX, Recovery};
pub use frame::Segment;
pub use reason::Reason;
pub use responder::Responder;
pub use verdict::Verdict;
pub use world::World;
