//! Queries about this machine and its current network namespace: interfaces and devices, sockets, settings, packet
//! filters. Independent of the eBPF programs and maps.

pub(crate) mod device;
pub mod filter;
pub mod interfaces;
pub mod listeners;
pub(crate) mod netlink;
pub mod probe_source;
pub mod tcp_settings;
