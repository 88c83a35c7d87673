//! The soft-interrupt level as operators see it: put in front of a port, taken off again, looked at.
//! What it does and how is in the crate `lowroad-softirq`.

pub mod attach;
mod drain;
mod log;
mod origin;
mod place;

pub use attach::{Attach, attach};
pub use drain::{Detach, detach};
