//! What a machine, its interfaces and a port can do for this level, and what would have to change. The
//! facts are gathered in one place (`gather`) and judged in another (`judge`), so that machines that
//! nobody has can be judged too. Nothing is attached, and nothing is changed.

pub mod gather;
mod judge;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::machine::interfaces::Details;
use crate::machine::listeners::Listener;

pub use gather::{machine, one_interface, port};
pub use judge::judge;

/// Everything that is judged.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The machine, and this network namespace of it.
    pub machine: Machine,
    /// The port that was asked about.
    pub port: Option<Port>,
    /// Interfaces.
    pub interfaces: Vec<Interface>,
}

/// What is the same for all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The kernel, as `uname -r` says it.
    pub release: String,
    /// It has a description of its types.
    pub has_btf: bool,
    /// It has the function that hands connections over; `None` if that can't be found out.
    pub has_handover: Option<bool>,
    /// It lets programs choose who gets a connection (BPF `sk_lookup`); `None` if that can't be found out.
    pub has_lookup: Option<bool>,
    /// The effective user is root.
    pub is_root: bool,
    /// Bits of the effective capabilities.
    pub capabilities: u64,
    /// The file system for pins is mounted.
    pub has_bpffs: bool,
    /// `net.ipv4.tcp_syncookies`
    pub syncookies: Option<u32>,
    /// `net.core.somaxconn`
    pub somaxconn: Option<u32>,
    /// Rules of nftables or iptables are there; `None` if that can't be found out.
    pub has_firewall: Option<bool>,
    /// Processors.
    pub cpus: u32,
}

/// Who listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port.
    pub number: u16,
    /// Addresses on which somebody listens.
    pub addresses: Vec<IpAddr>,
    /// What the kernel says of the sockets; `None` if it can't be asked.
    pub listeners: Option<Vec<Listener>>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, driver, state.
    pub details: Details,
    /// Its MTU.
    pub mtu: Option<u32>,
    /// Bits `NETDEV_XDP_ACT_`; `None` if the kernel does not say.
    pub xdp_features: Option<u64>,
    /// An XDP program that is not ours is attached.
    pub has_other_xdp: bool,
    /// One of ours is attached.
    pub has_own_xdp: bool,
    /// The features that a virtio device and its driver agreed on.
    pub virtio: Option<u64>,
    /// Queues in use and most that can be had.
    pub queues: Option<(u32, u32)>,
    /// The device takes VLAN tags out of frames.
    pub strips_vlan: bool,
    /// The device merges segments.
    pub merges: bool,
}

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Good.
    Ok,
    /// It works, but.
    Warn,
    /// It can't work.
    No,
}

/// One thing that was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How it stands.
    pub verdict: Verdict,
    /// What.
    pub what: String,
    /// Why, or how it is.
    pub why: String,
    /// What would change it; empty if there is nothing to do.
    pub advice: String,
}

/// All that was judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One thing each.
    pub lines: Vec<Line>,
    /// At least one interface can have at least one tier.
    pub works: bool,
}
