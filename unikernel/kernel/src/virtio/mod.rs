//! Virtio devices of version 1: feature negotiation (`transport`) and the network device. Legacy devices are not
//! supported.

mod control;
pub mod mmio;
pub mod net;
pub mod pci;
mod queue;
mod receive_queue;
mod transmit_queue;
pub mod transport;
