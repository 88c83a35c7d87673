//! Virtio devices, as of version 1: how a driver and a device agree (`transport`), and the network device. Older forms are
//! refused.
//!
//! Read first: Virtual I/O Device (VIRTIO) 1.2, 2.1 to 2.7, 3.1.

mod control;
pub mod mmio;
pub mod net;
pub mod pci;
mod queue;
mod receive;
mod send;
pub mod transport;
