//! The soft-interrupt level: eBPF programs that answer hot small responses from the segment that asks
//! (`bpf/`), and what user space does for them: it loads and attaches them, publishes responses to
//! them, learns what is asked for, and hears what was answered.
//!
//! It knows nothing of the server above: that is whatever listens on the port.

pub mod asker;
pub mod asking;
pub mod daemon;
mod device;
pub mod doctor;
pub mod error;
pub mod events;
pub mod exclude;
mod extents;
pub mod fan_out;
pub mod fetch;
pub mod fetched;
pub mod filter;
pub mod folder;
pub mod handover;
mod hash;
pub mod interfaces;
pub mod kept;
pub mod key;
pub mod layout;
pub mod learn;
pub mod level;
pub mod links;
pub mod listeners;
pub mod load;
mod mapped;
pub mod outsider;
pub mod pattern;
pub mod prepare;
pub mod publish;
pub mod rest;
pub mod runs;
pub mod tcp_settings;
pub mod would;

pub use error::Error;
pub use level::Level;
pub use lowroad_wire::width;

/// CLOCK_MONOTONIC, the clock of the programs.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is less than 0: the clock begins at boot.
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
