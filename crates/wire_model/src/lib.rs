//! A model of the soft-interrupt level: HTTP answered segment by segment, without a TCP stack. The eBPF programs of
//! `lowroad-softirq` follow the same rules in C. Its tests run the same traces against both, so this is also where to read
//! what the level does and why. Only tests depend on this crate.
//!
//! The rule that everything follows from: while an answer is under way, its request is acknowledged by nothing but the
//! answer; or not all of it, if the answer takes several segments (`flight`). The client sends what gets lost again, and
//! gets the same answer again. So there is no timer, no queue and no copy of what was sent. What comes before that answer
//! is acknowledged is held without a promise (`held`).
//!
//! The way of a frame: `Segment::parse`, [`responder::Responder::segment`], which asks `handshake` for a SYN, `answer` and
//! `key::read` for a request, and writes with [`reply::Reply`]. Time, keys, responses and the sockets of a server above are
//! behind `World`; this crate does no input or output.
//!
//! Read first: RFC 9293 §3.10.7 (segments), RFC 4987 §3.6 (cookies), RFC 5961 (resets).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
pub mod connection;
mod flight;
mod handshake;
mod held;
pub mod reply;
pub mod responder;
pub mod verdict;

pub use connection::{Connection, ConnectionState, Table};
pub use flight::{PARTS_MAX, Recovery};
pub use responder::Responder;
pub use verdict::Verdict;
