//! TCP/IP for the bare image: ARP, IPv4, ICMP echo, a DHCP client, and TCP with a hashed table. Sans-IO:
//! frames, time and random numbers are arguments; what is to be sent goes to a [`Link`], what has come to a
//! [`Service`]. Knows nothing of HTTP, of a device, or of memory beyond the pools that it makes at its start.
//!
//! The way of a frame: `stack` tells what it is, `tcp::input` or `tcp::listen` takes the segment, `tcp::receive`
//! gives its data to the service, and when the callbacks are over `calls::flush` has `tcp::output` send what may
//! leave. `tcp::timers` looks at a connection when the timing wheel says so.
//!
//! Timestamps (RFC 7323) are not agreed: they cost 12 bytes and the instructions to write and read them in each
//! segment, and what they are for, sequence numbers that wrap within a segment's life, takes rates that one
//! connection of such a machine does not have.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod api;
mod arp;
mod bytes;
mod calls;
mod context;
mod counters;
mod dhcp;
mod icmp;
mod ipv4;
mod lease;
mod local;
mod pool;
mod rate;
mod stack;
mod steering;
mod sums;
mod tcp;
mod udp;

pub use api::{
    Address, Calls, End, Frame, Full, Id, LARGE, Link, Offload, Opened, Piece, Received, SMALL,
    Service, Settings, WAITING_MAX,
};
pub use context::Context;
pub use counters::Counters;
pub use stack::Stack;
pub use steering::{Owner, Share, Steering};
pub use sums::{SUM_LEN, sums};
