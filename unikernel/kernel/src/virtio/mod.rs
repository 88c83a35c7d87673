//! Virtio devices of version 1: negotiation (`transport`), and the network device. Legacy devices are refused.
//!
//! Read first: Virtual I/O Device (VIRTIO) 1.2, 2.1 to 2.7, 3.1.

mod control;
pub mod mmio;
pub mod net;
pub mod pci;
mod queue;
mod receive_queue;
mod transmit_queue;
pub mod transport;
