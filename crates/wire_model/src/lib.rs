//! A model of the fast path (the softirq level), which answers HTTP requests segment by segment, without a TCP stack.
//! The eBPF programs of `lowroad-softirq` implement the same rules in C, and its tests run the same traces against
//! both. So this crate documents the rules of the fast path and their reasons. Only tests depend on it.
//!
//! The basic rule: while an answer (the response to a request) is in flight, only the answer itself acknowledges the
//! request. If the answer has several segments, these acknowledge all of the request but its last byte (`flight`).
//! After a loss the client therefore retransmits the request, and gets the same answer again. So the fast path needs no
//! timer, no queue and no copy of sent data. Segments that arrive before the answer is acknowledged are buffered and
//! not acknowledged (`buffered`).
//!
//! The path of a frame: `SegmentView::parse`, then `ModelResponder::segment`, which calls `handshake` for a SYN,
//! `answer` and `key::read` for a request, and writes by `ModelReply`. Time, secrets, responses and the kernel's
//! sockets are accessed through `SegmentContext`; this crate does no I/O.
//!
//! Background: RFC 9293 §3.10.7 (segments), RFC 4987 §3.6 (SYN cookies), RFC 5961 (resets).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod answer;
mod buffered;
pub mod connection;
mod flight;
mod handshake;
pub mod reply;
pub mod responder;
pub mod verdict;

pub use connection::{ConnectionState, ModelConnection, ModelTable};
pub use flight::{PARTS_MAX, RecoveryState};
pub use responder::ModelResponder;
pub use verdict::SegmentVerdict;
