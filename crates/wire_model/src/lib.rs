//! A model of the softirq level: HTTP answered segment by segment, without a TCP stack. The eBPF programs of
//! `lowroad-softirq` follow the same rules in C, and its tests run the same traces against both. So this crate is also
//! the place to read the level's rules and their reasons. Only tests depend on it.
//!
//! The basic rule: while an answer is in flight, its request is acknowledged only by the answer itself; if the answer
//! has several segments, all but its last byte is (`flight`). After a loss the client therefore retransmits the
//! request, and gets the same answer again. So there is no timer, no queue and no copy of sent data. Segments that
//! arrive before the answer is acknowledged are buffered without acknowledgement (`buffered`).
//!
//! The path of a frame: `SegmentView::parse`, then `ModelResponder::segment`, which calls `handshake` for a SYN,
//! `answer` and `key::read` for a request, and writes by `ModelReply`. Time, keys, responses and the kernel's sockets
//! are behind `SegmentContext`; this crate does no I/O.
//!
//! Read first: RFC 9293 §3.10.7 (segments), RFC 4987 §3.6 (cookies), RFC 5961 (resets).
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
