//! TCP/IP stack for the unikernel: ARP, IPv4, ICMP echo, a DHCP client, and TCP with a hashed connection table.
//!
//! Sans-IO: frames, time and random numbers are arguments. The stack sends frames through a `LinkDevice` and delivers
//! data to a `TcpService`. All memory is allocated at the start, in pools.
//!
//! A received frame passes `stack`, which classifies it, then `tcp::input` or `tcp::listener`, which take the segment,
//! then `tcp::receive_data`, which passes its data to the service. After the callbacks `calls::flush` lets
//! `tcp::output` send. The timing wheel calls `tcp::timers` for connections with a deadline.
//!
//! TCP timestamps (RFC 7323) are not negotiated: they cost 12 bytes and instructions in each segment. Their purpose,
//! protection against wrapped sequence numbers (PAWS), needs rates that one connection of such a machine does not
//! reach.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod stack_api;
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
mod payload_checksums;
mod tcp;
mod udp;

pub use stack_api::{
    AddressSource, StackCalls, ConnectionEnd, OutgoingFrame, SendQueueFull, ConnectionId, LARGE, LinkDevice, DeviceOffload, ConnectionInitiator, SendPiece, ReceivedFrame, SMALL,
    TcpService, StackSettings, WAITING_MAX,
};
pub use context::StackContext;
pub use counters::StackCounters;
pub use stack::TcpStack;
pub use steering::{FrameOwner, FlowShare, FlowSteering};
pub use payload_checksums::{SUM_LEN, sums};
