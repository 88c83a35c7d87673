//! TCP/IP stack for the unikernel: ARP, IPv4, ICMP echo, a DHCP client, and TCP with a hashed connection table.
//!
//! Sans-IO: frames, time and random numbers are arguments. The stack sends frames through a `LinkDevice` and delivers
//! data to a `TcpService`. All memory is allocated at the start, in pools.
//!
//! A received frame is classified by `stack`; `tcp::input` or `tcp::listener` processes its segment, and
//! `tcp::receive_data` passes the data to the service. After the callbacks `calls::flush` makes `tcp::output` send. The
//! timing wheel calls `tcp::timers` for connections with a deadline.
//!
//! TCP timestamps (RFC 7323) are not negotiated: they cost 12 bytes and some instructions in each segment. Their
//! purpose, protection against wrapped sequence numbers (PAWS), matters only at rates that one connection of a
//! unikernel does not reach.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

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
mod payload_checksums;
mod pool;
mod rate;
mod stack;
mod stack_api;
mod steering;
mod tcp;
mod udp;

pub use context::StackContext;
pub use counters::StackCounters;
pub use payload_checksums::{SUM_LEN, sums};
pub use stack::TcpStack;
pub use stack_api::{
    AddressSource, ConnectionEnd, ConnectionId, ConnectionInitiator, DeviceOffload, LARGE,
    LinkDevice, OutgoingFrame, ReceivedFrame, SMALL, SendPiece, SendQueueFull, StackCalls,
    StackSettings, TcpService, WAITING_MAX,
};
pub use steering::{FlowShare, FlowSteering, FrameOwner};
