//! What the kernel says of this machine, or of this network namespace of it: interfaces and their devices,
//! sockets, settings, filters. It knows nothing of programs and maps.

pub(crate) mod device;
pub mod filter;
pub mod interfaces;
pub mod listeners;
pub(crate) mod netlink;
pub mod outsider;
pub mod tcp_settings;
