//! Queries about this machine, or its current network namespace: interfaces and devices, sockets, settings, packet
//! filters. Independent of programs and maps.

pub(crate) mod device;
pub mod filter;
pub mod interfaces;
pub mod listeners;
pub(crate) mod netlink;
pub mod probe_source;
pub mod tcp_settings;
