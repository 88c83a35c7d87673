//! Judges the collected facts: pure functions from facts to findings.

use super::{
    DoctorFacts, DoctorFinding, DoctorReport, DoctorVerdict, InterfaceFacts, MachineFacts,
    PortFacts,
};
use crate::machine::listeners;

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// `NETDEV_XDP_ACT_BASIC` of linux/netdev.h: PASS, TX, DROP and ABORTED.
const XDP_BASIC: u64 = 1;
/// Bits of linux/virtio_net.h.
const VIRTIO_CTRL_GUEST_OFFLOADS: u64 = 1 << 2;
const VIRTIO_MERGEABLE: u64 = 1 << 15;
/// GUEST_CSUM, _TSO4, _TSO6, _ECN, _UFO, _USO4 and _USO6: the host merges segments and leaves checksums partial.
const VIRTIO_GUEST: u64 = 1 << 1 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 54 | 1 << 55;

/// The first kernel with `bpf_sk_assign_tcp_reqsk`.
const KERNEL_MIN: (u32, u32) = (6, 9);
/// With a shorter accept queue, bursts of migrated connections overflow it, and their segments are retransmitted only
/// after a second.
const BACKLOG_MIN: u32 = 512;
/// Up to this MTU, frames are linear with all drivers.
const MTU_MAX: u32 = 1500;

/// Judges all facts.
#[must_use]
pub fn judge(facts: &DoctorFacts) -> DoctorReport {
    let mut report = DoctorReport::default();
    let machine_works = report.add(machine(&facts.machine));
    let port_works = match &facts.port {
        Some(port) => report.add(self::port(port, facts.machine.somaxconn)),
        None => true,
    };
    for interface in &facts.interfaces {
        let (xdp, tc) = (xdp(interface, facts.machine.cpus), tc(interface));
        // One tier suffices: without native XDP, `attach` uses TC.
        let has_tier = [&xdp, &tc]
            .iter()
            .any(|line| line.verdict != DoctorVerdict::No);
        report.works |= has_tier && machine_works && port_works;
        report.lines.extend([xdp, tc]);
        report.lines.extend(notes(interface));
    }
    report
}

impl DoctorReport {
    /// Adds findings. Returns whether none of them is a `No`.
    fn add(&mut self, lines: Vec<DoctorFinding>) -> bool {
        let works = lines.iter().all(|line| line.verdict != DoctorVerdict::No);
        self.lines.extend(lines);
        works
    }
}

fn machine(machine: &MachineFacts) -> Vec<DoctorFinding> {
    vec![
        kernel(machine),
        rights(machine),
        bpffs(machine),
        cookies(machine),
        firewall(machine),
        interception(machine),
    ]
}

fn kernel(machine: &MachineFacts) -> DoctorFinding {
    let subject = "kernel";
    let release = &machine.release;
    if !machine.has_btf {
        let reason = format!("{release} has no BTF, which migration requires");
        return no(subject, &reason, "a kernel with CONFIG_DEBUG_INFO_BTF=y");
    }
    // A release in an unknown format counts as new.
    let is_new = version(release).is_none_or(|version| version >= KERNEL_MIN);
    // The kfunc itself decides, not the release: distributions backport it, and kernels may be built without it.
    match (machine.has_migration_kfunc, is_new) {
        (Some(true), _) => ok(
            subject,
            &format!("{release}, with BTF and bpf_sk_assign_tcp_reqsk"),
        ),
        (None, true) => warn(
            subject,
            &format!("{release}; can't determine whether it has bpf_sk_assign_tcp_reqsk"),
            "run as root",
        ),
        (_, false) => no(
            subject,
            &format!("{release} does not support migration (bpf_sk_assign_tcp_reqsk)"),
            "Linux 6.9 or newer",
        ),
        (Some(false), true) => no(
            subject,
            &format!("{release} was built without bpf_sk_assign_tcp_reqsk"),
            "a kernel with CONFIG_SYN_COOKIES=y",
        ),
    }
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn rights(machine: &MachineFacts) -> DoctorFinding {
    let subject = "rights";
    let has_capability = |bit: u32| machine.capabilities >> bit & 1 == 1;
    let required = [
        (CAP_BPF, "CAP_BPF"),
        (CAP_PERFMON, "CAP_PERFMON"),
        (CAP_NET_ADMIN, "CAP_NET_ADMIN"),
    ];
    // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON, but not CAP_NET_ADMIN.
    let missing: Vec<&str> = required
        .iter()
        .filter(|(bit, _)| {
            !has_capability(*bit) && (*bit == CAP_NET_ADMIN || !has_capability(CAP_SYS_ADMIN))
        })
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        return no(
            subject,
            &format!("{} missing", missing.join(", ")),
            "run as root",
        );
    }
    match machine.is_root {
        true => ok(subject, "root, with the capabilities"),
        false => no(subject, "the capabilities without root", "run as root"),
    }
}

fn bpffs(machine: &MachineFacts) -> DoctorFinding {
    match machine.has_bpffs {
        true => ok("/sys/fs/bpf", "mounted"),
        false => warn("/sys/fs/bpf", "not mounted; `attach` mounts it", ""),
    }
}

fn cookies(machine: &MachineFacts) -> DoctorFinding {
    let subject = "net.ipv4.tcp_syncookies";
    match machine.syncookies {
        Some(0) => no(
            subject,
            "0: the kernel would refuse migrated connections",
            "sysctl -w net.ipv4.tcp_syncookies=1",
        ),
        Some(value) => ok(subject, &value.to_string()),
        None => no(
            subject,
            "missing: the kernel does not support SYN cookies, and would refuse migrated connections",
            "a kernel with CONFIG_SYN_COOKIES=y",
        ),
    }
}

fn firewall(machine: &MachineFacts) -> DoctorFinding {
    let subject = "netfilter";
    match machine.has_firewall {
        Some(false) => ok(
            subject,
            "no rules; responses of this level would bypass them",
        ),
        Some(true) => warn(
            subject,
            "there are rules; if they filter input, clients are answered only after the kernel \
             has accepted them",
            "attach --admit all if they accept every client of the port",
        ),
        None => warn(
            subject,
            "can't determine whether there are rules; if so, clients are answered only after the \
             kernel has accepted them",
            "attach --admit all if no client is kept from the port",
        ),
    }
}

fn port(port: &PortFacts, somaxconn: Option<u32>) -> Vec<DoctorFinding> {
    let subject = format!("port {}", port.number);
    let mut lines = vec![
        match listeners::describe_servers(port.number, &port.addresses) {
            Ok(servers) => ok(&subject, &servers),
            Err(reason) => no(&subject, &reason, ""),
        },
    ];
    let Some(listeners) = &port.listeners else {
        lines.push(warn(
            &subject,
            "can't determine backlog and Multipath TCP",
            "modprobe tcp_diag",
        ));
        return lines;
    };
    if listeners.iter().any(|listener| listener.is_mptcp) {
        lines.push(no(
            &subject,
            "the listener uses Multipath TCP, to which connections can't be migrated",
            "disable it in the server (Go: GODEBUG=multipathtcp=0), or sysctl -w net.mptcp.enabled=0",
        ));
    }
    // The kernel has already limited the backlog to somaxconn, when listen(2) was called.
    if let Some(least) = listeners.iter().map(|listener| listener.backlog).min()
        && least < BACKLOG_MIN
    {
        let reason =
            format!("the backlog is only {least} connections; bursts are delayed by a second");
        let advice = match somaxconn {
            Some(limit) if limit < BACKLOG_MIN => {
                "sysctl -w net.core.somaxconn=4096, and a larger backlog in the server"
            }
            _ => {
                "a larger backlog in the server (nginx: listen ... backlog=4096; Apache: ListenBacklog)"
            }
        };
        lines.push(warn(&subject, &reason, advice));
    }
    lines
}

fn xdp(interface: &InterfaceFacts, cpus: u32) -> DoctorFinding {
    let details = &interface.details;
    let subject = format!("{}: native XDP", details.interface.name);
    if !details.is_ethernet {
        return no(&subject, "it does not carry Ethernet frames", "");
    }
    if let Some(reason) = details.xdp_obstacle() {
        return no(&subject, &format!("{reason}; TC ingress is used"), "");
    }
    // A device has at most one native XDP program.
    if interface.has_foreign_xdp {
        return no(
            &subject,
            "another XDP program is attached",
            "detach it, or use TC ingress, which runs after it",
        );
    }
    if interface.has_lowroad_xdp {
        return ok(&subject, "attached");
    }
    // Attaching an XDP program disables the guest offloads; the device must permit that (`VIRTIO_CTRL_GUEST_OFFLOADS`).
    if let Some(virtio) = interface.virtio
        && virtio & VIRTIO_GUEST != 0
        && virtio & VIRTIO_CTRL_GUEST_OFFLOADS == 0
    {
        return no(
            &subject,
            "the host merges segments for virtio_net, and the guest can't disable that",
            "on the host: ctrl_guest_offloads=on, or guest_tso4, guest_tso6, guest_ufo, guest_csum=off",
        );
    }
    match interface.xdp_features {
        Some(features) if features & XDP_BASIC == 0 => {
            let reason = format!("{} has none; TC ingress is used", driver(interface));
            no(&subject, &reason, "")
        }
        None => warn(&subject, "the kernel does not report it", "doctor --try"),
        Some(_) => by_driver(&subject, interface, cpus),
    }
}

/// Judges native XDP by driver. The findings' "room" is the tailroom behind a short frame, which a response must fit
/// into.
fn by_driver(subject: &str, interface: &InterfaceFacts, cpus: u32) -> DoctorFinding {
    let mtu = interface.mtu.unwrap_or(MTU_MAX);
    match interface.details.driver.as_str() {
        _ if mtu > MTU_MAX => warn(
            subject,
            &format!("MTU {mtu}: many drivers accept programs only up to {MTU_MAX}"),
            "doctor --try",
        ),
        "virtio_net" => virtio(subject, interface, cpus),
        // LRO and XDP exclude each other in these drivers.
        "ixgbe" | "mlx5_core" if interface.merges => no(
            subject,
            &format!(
                "{} refuses programs while it merges segments",
                driver(interface)
            ),
            &format!("ethtool -K {} lro off", interface.details.interface.name),
        ),
        "ixgbe" | "i40e" | "ice" => ok(
            subject,
            &format!(
                "{} has room for whole responses; attaching resets it",
                driver(interface)
            ),
        ),
        "mlx5_core" => ok(subject, "mlx5 has room for whole responses"),
        "gve" => warn(
            subject,
            "gve does not report its room behind frames",
            "doctor --try",
        ),
        _ => warn(
            subject,
            &format!("the room behind frames of {} is unknown", driver(interface)),
            "doctor --try, then `status`: up_room counts responses that did not fit",
        ),
    }
}

/// XDP_TX needs a transmit queue per processor; with fewer queues, processors share them under a lock.
fn virtio(subject: &str, interface: &InterfaceFacts, cpus: u32) -> DoctorFinding {
    let room = match interface.virtio {
        Some(bits) if bits & VIRTIO_MERGEABLE == 0 => "room for a frame of the MTU",
        _ => "room for whole responses",
    };
    match interface.queues {
        Some((now, queues_max)) if now + cpus > queues_max => warn(
            subject,
            &format!(
                "{room}; {now} of {queues_max} queue pairs are in use, and each of {cpus} processors \
                 needs one more: some share a queue"
            ),
            &format!(
                "more queue pairs on the host, or fewer in use: ethtool -L {} combined N",
                interface.details.interface.name
            ),
        ),
        _ => ok(subject, room),
    }
}

fn tc(interface: &InterfaceFacts) -> DoctorFinding {
    let subject = format!("{}: TC ingress", interface.details.interface.name);
    match interface.details.is_ethernet {
        true => ok(&subject, "works with every Ethernet interface"),
        false => no(&subject, "it does not carry Ethernet frames", ""),
    }
}

fn notes(interface: &InterfaceFacts) -> Vec<DoctorFinding> {
    let name = &interface.details.interface.name;
    let mut lines = Vec::new();
    if !interface.details.is_up {
        lines.push(warn(name, "it is down", &format!("ip link set {name} up")));
    }
    if interface.details.is_loopback {
        let reason = "local clients only; `attach` uses it only if --interface names it";
        lines.push(warn(name, reason, ""));
    }
    // Virtual devices also keep VLAN tags outside the frame, but only for packets that arrived with a tag.
    let is_physical = !interface.details.is_loopback && interface.details.driver != "veth";
    if interface.strips_vlan && is_physical && interface.details.is_ethernet {
        let reason =
            "it strips VLAN tags from frames: with native XDP responses would be sent untagged";
        let advice = format!("if VLANs are used: ethtool -K {name} rxvlan off");
        lines.push(warn(name, reason, &advice));
    }
    lines
}

fn driver(interface: &InterfaceFacts) -> &str {
    match interface.details.driver.as_str() {
        "" => "its driver",
        driver => driver,
    }
}

/// Judges socket interception, which is optional.
fn interception(machine: &MachineFacts) -> DoctorFinding {
    let subject = "interception";
    match machine.has_lookup {
        Some(true) => ok(
            subject,
            "the kernel supports sk_lookup, so attach --worker works",
        ),
        Some(false) => warn(
            subject,
            "the kernel does not support sk_lookup (Linux 5.9)",
            "attach without --worker",
        ),
        None => warn(
            subject,
            "can't determine whether the kernel supports sk_lookup",
            "run as root",
        ),
    }
}

fn line(verdict: DoctorVerdict, subject: &str, reason: &str, advice: &str) -> DoctorFinding {
    DoctorFinding {
        verdict,
        subject: subject.to_owned(),
        reason: reason.to_owned(),
        advice: advice.to_owned(),
    }
}

fn ok(subject: &str, reason: &str) -> DoctorFinding {
    line(DoctorVerdict::Ok, subject, reason, "")
}

fn warn(subject: &str, reason: &str, advice: &str) -> DoctorFinding {
    line(DoctorVerdict::Warn, subject, reason, advice)
}

fn no(subject: &str, reason: &str, advice: &str) -> DoctorFinding {
    line(DoctorVerdict::No, subject, reason, advice)
}
