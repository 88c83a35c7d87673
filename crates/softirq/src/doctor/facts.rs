//! Collects facts about this machine, in the network namespace of the calling thread. Facts that can't be determined
//! are `None`; the only error is an unreadable listener table.

use std::fs;
use std::io;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;

use super::{InterfaceFacts, MachineFacts, PortFacts};
use crate::machine::interfaces::InterfaceDetails;
use crate::machine::{device, listeners, netlink};
use crate::programs::{folder, interception, runs};

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Collects the facts of the machine.
#[must_use]
pub fn machine() -> MachineFacts {
    let has_btf = Path::new(BTF).exists();
    MachineFacts {
        release: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        has_btf,
        has_migration_kfunc: has_btf.then(has_migration_kfunc).flatten(),
        has_lookup: interception::is_available().ok(),
        is_root: rustix::process::geteuid().is_root(),
        capabilities: capabilities().unwrap_or(0),
        has_bpffs: folder::is_mounted(),
        syncookies: number("/proc/sys/net/ipv4/tcp_syncookies"),
        somaxconn: number("/proc/sys/net/core/somaxconn"),
        has_firewall: has_firewall(),
        cpus: std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
    }
}

/// Collects the listeners of a port.
///
/// # Errors
/// If the kernel's table can't be read.
pub fn port(number: u16) -> io::Result<PortFacts> {
    Ok(PortFacts {
        number,
        addresses: listeners::addresses(number)?,
        listeners: netlink::listeners(number).ok(),
    })
}

/// Collects the facts of an interface. XDP programs of levels in this namespace are recognized as Lowroad's.
#[must_use]
pub fn one_interface(details: InterfaceDetails) -> InterfaceFacts {
    let index = details.interface.index;
    let name = details.interface.name.clone();
    let xdp = device::xdp(index).ok();
    let program = xdp.map_or(0, |(_, program)| program);
    let is_lowroad = program != 0 && lowroad_programs().contains(&program);
    InterfaceFacts {
        mtu: device::mtu(&name).ok(),
        xdp_features: xdp.map(|(features, _)| features),
        has_foreign_xdp: program != 0 && !is_lowroad,
        has_lowroad_xdp: is_lowroad,
        virtio: (details.driver == "virtio_net")
            .then(|| device::virtio(&name, index))
            .flatten(),
        queues: device::queues(&name).ok(),
        strips_vlan: device::flags(&name).is_ok_and(|flags| flags & device::STRIPS_VLAN != 0),
        merges: device::flags(&name).is_ok_and(|flags| flags & device::MERGES != 0),
        details,
    }
}

fn lowroad_programs() -> Vec<u32> {
    let folders = folder::all().unwrap_or_default();
    let all = folders.iter().flat_map(|folder| runs::read_runs(folder));
    all.map(|run| run.program_id).collect()
}

fn has_migration_kfunc() -> Option<bool> {
    // The kernel's BTF lists this kfunc only if the kernel was built with it.
    let btf = Btf::from_path(BTF).ok()?;
    Some(
        btf.type_by_name::<Func<'_>>("bpf_sk_assign_tcp_reqsk")
            .is_some(),
    )
}

/// The calling thread's effective capabilities; all threads of this program have the same.
fn capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

fn has_firewall() -> Option<bool> {
    // Legacy iptables has separate tables; the current iptables uses nftables.
    let legacy = fs::read_to_string("/proc/thread-self/net/ip_tables_names");
    if legacy.is_ok_and(|names| !names.trim().is_empty()) {
        return Some(true);
    }
    netlink::has_tables().ok()
}

fn number(path: &str) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
