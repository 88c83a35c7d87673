//! `doctor`: checks whether the machine, its interfaces and a port support the fast path, and gives advice. `facts`
//! collects facts and `judge` judges them, so that tests can judge machines that don't exist. Nothing is attached or
//! changed.

pub mod facts;
mod judge;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::machine::interfaces::InterfaceDetails;
use crate::machine::listeners::SystemListener;

pub use facts::{machine, one_interface, port};
pub use judge::judge;

/// All facts that were collected.
#[derive(Clone, Debug)]
pub struct DoctorFacts {
    /// Facts about the machine, and about the current network namespace.
    pub machine: MachineFacts,
    /// Facts about the requested port; `None` if no port was requested.
    pub port: Option<PortFacts>,
    /// Facts about the interfaces.
    pub interfaces: Vec<InterfaceFacts>,
}

/// Facts common to all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// The kernel's release, as in `uname -r`.
    pub release: String,
    /// The kernel has BTF.
    pub has_btf: bool,
    /// The kernel has `bpf_sk_assign_tcp_reqsk`, which migration needs; `None` if that can't be determined.
    pub has_migration_kfunc: Option<bool>,
    /// The kernel supports BPF `sk_lookup`; `None` if that can't be determined.
    pub has_lookup: Option<bool>,
    /// The effective user is root.
    pub is_root: bool,
    /// Bits of the effective capabilities.
    pub capabilities: u64,
    /// bpffs is mounted.
    pub has_bpffs: bool,
    /// `net.ipv4.tcp_syncookies`
    pub syncookies: Option<u32>,
    /// `net.core.somaxconn`
    pub somaxconn: Option<u32>,
    /// There are nftables or iptables rules; `None` if that can't be determined.
    pub has_firewall: Option<bool>,
    /// Number of processors.
    pub cpus: u32,
}

/// The listeners of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// The port.
    pub number: u16,
    /// Addresses with listeners.
    pub addresses: Vec<IpAddr>,
    /// The sockets; `None` if the kernel does not report them.
    pub listeners: Option<Vec<SystemListener>>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// Properties such as name, driver and state.
    pub details: InterfaceDetails,
    /// The interface's MTU; `None` if that can't be determined.
    pub mtu: Option<u32>,
    /// Bits `NETDEV_XDP_ACT_…`; `None` if the kernel does not report them.
    pub xdp_features: Option<u64>,
    /// Another vendor's XDP program is attached.
    pub has_foreign_xdp: bool,
    /// One of Lowroad's XDP programs is attached.
    pub has_lowroad_xdp: bool,
    /// The features negotiated by a virtio device and its driver.
    pub virtio: Option<u64>,
    /// Number of queues in use, and maximum number of queues; `None` if the driver does not report them.
    pub queues: Option<(u32, u32)>,
    /// The device strips VLAN tags from frames.
    pub strips_vlan: bool,
    /// The device merges segments (LRO).
    pub merges: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorVerdict {
    /// No problem.
    Ok,
    /// Works with limitations.
    Warn,
    /// Can't work.
    No,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorFinding {
    /// The result.
    pub verdict: DoctorVerdict,
    /// The subject.
    pub subject: String,
    /// The reason, or the state.
    pub reason: String,
    /// The remedy; empty if there is nothing to do.
    pub advice: String,
}

/// The report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorReport {
    /// The findings.
    pub lines: Vec<DoctorFinding>,
    /// Whether at least one interface supports at least one tier.
    pub works: bool,
}
