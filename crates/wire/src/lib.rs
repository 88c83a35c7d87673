//! TCP over IPv4 and IPv6 for the fast path: frames, checksums, TCP options, SYN cookies, and the cache keys of HTTP
//! requests ([`key`]). The crate `wire_model` implements the rules of the fast path in Rust.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod checksum;
pub mod cookie;
pub mod ebpf_header;
pub mod frame;
pub mod key;
pub mod options;
pub mod segment_context;
pub mod segment_reason;
pub mod width;

pub use frame::SegmentView;
pub use segment_context::SegmentContext;
pub use segment_reason::SegmentReason;
