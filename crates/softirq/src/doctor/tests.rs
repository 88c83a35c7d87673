//! Tests the judgement of hypothetical machines.

use super::*;
use crate::machine::interfaces;

fn machine() -> MachineFacts {
    MachineFacts {
        release: "6.18.1-generic".into(),
        has_btf: true,
        has_migration_kfunc: Some(true),
        has_lookup: Some(true),
        is_root: true,
        capabilities: u64::MAX,
        has_bpffs: true,
        syncookies: Some(1),
        somaxconn: Some(4096),
        has_firewall: Some(false),
        cpus: 4,
    }
}

fn interface(name: &str, driver: &str) -> InterfaceFacts {
    InterfaceFacts {
        details: InterfaceDetails {
            interface: interfaces::NetworkInterface {
                name: name.into(),
                index: 2,
            },
            is_up: true,
            is_loopback: name == "lo",
            is_ethernet: true,
            driver: driver.into(),
            mtu: 1500,
        },
        mtu: Some(1500),
        xdp_features: Some(7),
        has_foreign_xdp: false,
        has_lowroad_xdp: false,
        virtio: None,
        queues: None,
        strips_vlan: false,
        merges: false,
    }
}

fn facts(machine: MachineFacts, interface: InterfaceFacts) -> DoctorFacts {
    DoctorFacts {
        machine,
        port: None,
        interfaces: vec![interface],
    }
}

/// The finding about this subject, and whether the report says that the level works.
fn line(facts: &DoctorFacts, subject: &str) -> (DoctorFinding, bool) {
    let report = judge(facts);
    let found = report.lines.iter().find(|line| line.subject == subject);
    (
        found
            .unwrap_or_else(|| panic!("{subject} in {report:?}"))
            .clone(),
        report.works,
    )
}

#[test]
fn machine_without_problems_gets_only_ok() {
    let report = judge(&facts(machine(), interface("eth0", "ixgbe")));
    assert!(report.works);
    let bad = report
        .lines
        .iter()
        .filter(|line| line.verdict != DoctorVerdict::Ok);
    assert_eq!(bad.count(), 0, "{report:?}");
}

#[test]
fn missing_sk_lookup_is_only_a_warning() {
    for (has_lookup, reason) in [(Some(false), "Linux 5.9"), (None, "can't determine")] {
        let mut machine = machine();
        machine.has_lookup = has_lookup;
        let (line, works) = line(&facts(machine, interface("eth0", "ixgbe")), "interception");
        assert_eq!((line.verdict, works), (DoctorVerdict::Warn, true));
        assert!(line.reason.contains(reason), "{}", line.reason);
    }
}

#[test]
fn missing_requirements_disable_all_tiers() {
    type Change = fn(&mut MachineFacts);
    let cases: [(&str, &str, Change); 7] = [
        ("kernel", "CONFIG_DEBUG_INFO_BTF", |m| m.has_btf = false),
        ("kernel", "6.9", |m| {
            m.release = "6.1.0-40-amd64".into();
            m.has_migration_kfunc = Some(false);
        }),
        ("kernel", "CONFIG_SYN_COOKIES", |m| {
            m.has_migration_kfunc = Some(false)
        }),
        ("rights", "root", |m| m.capabilities = 0),
        ("rights", "root", |m| m.is_root = false),
        ("net.ipv4.tcp_syncookies", "sysctl", |m| {
            m.syncookies = Some(0)
        }),
        ("net.ipv4.tcp_syncookies", "CONFIG", |m| m.syncookies = None),
    ];
    for (subject, advice, change) in cases {
        let mut machine = machine();
        change(&mut machine);
        let (line, works) = line(&facts(machine, interface("eth0", "ixgbe")), subject);
        assert_eq!(
            (line.verdict, works),
            (DoctorVerdict::No, false),
            "{line:?}"
        );
        assert!(line.advice.contains(advice), "{line:?}");
    }
}

#[test]
fn cap_sys_admin_includes_bpf_and_perfmon_but_not_net_admin() {
    let with = |bits: &[u32]| {
        let mut machine = machine();
        machine.capabilities = bits.iter().map(|bit| 1 << bit).sum();
        line(&facts(machine, interface("eth0", "ixgbe")), "rights").0
    };
    // 12: NET_ADMIN, 21: SYS_ADMIN, 38: PERFMON, 39: BPF.
    assert_eq!(with(&[12, 21]).verdict, DoctorVerdict::Ok);
    assert_eq!(with(&[12, 38, 39]).verdict, DoctorVerdict::Ok);
    assert!(with(&[21]).reason.contains("CAP_NET_ADMIN"));
    assert!(with(&[12, 39]).reason.contains("CAP_PERFMON"));
}

#[test]
fn firewall_and_missing_bpffs_are_only_warnings() {
    let mut machine = machine();
    machine.has_firewall = Some(true);
    machine.has_bpffs = false;
    let facts = facts(machine, interface("eth0", "ixgbe"));
    for subject in ["netfilter", "/sys/fs/bpf"] {
        let (line, works) = line(&facts, subject);
        assert_eq!(
            (line.verdict, works),
            (DoctorVerdict::Warn, true),
            "{line:?}"
        );
    }
}

#[test]
fn interfaces_without_native_xdp_support_tc() {
    let firecracker = InterfaceFacts {
        // GUEST_CSUM and GUEST_TSO4 without CTRL_GUEST_OFFLOADS.
        virtio: Some(1 << 1 | 1 << 7),
        ..interface("eth0", "virtio_net")
    };
    let other = InterfaceFacts {
        has_foreign_xdp: true,
        ..interface("eth0", "ice")
    };
    let old = InterfaceFacts {
        xdp_features: Some(0),
        ..interface("eth0", "e1000e")
    };
    let merging = InterfaceFacts {
        merges: true,
        ..interface("eth0", "ixgbe")
    };
    for (interface, reason) in [
        (firecracker, "the host merges"),
        (other, "another XDP program"),
        (old, "e1000e"),
        (merging, "merges"),
        (interface("eth0", "veth"), "veth"),
        (interface("eth0", "ena"), "ena"),
    ] {
        let facts = facts(machine(), interface);
        let (xdp, works) = line(&facts, "eth0: native XDP");
        assert_eq!((xdp.verdict, works), (DoctorVerdict::No, true), "{xdp:?}");
        assert!(xdp.reason.contains(reason), "{xdp:?}");
        assert_eq!(
            line(&facts, "eth0: TC ingress").0.verdict,
            DoctorVerdict::Ok
        );
    }
}

#[test]
fn virtio_net_warns_about_too_few_queues() {
    let with = |virtio, queues| {
        let interface = InterfaceFacts {
            virtio: Some(virtio),
            queues: Some(queues),
            ..interface("eth0", "virtio_net")
        };
        line(&facts(machine(), interface), "eth0: native XDP").0
    };
    // GUEST_CSUM and CTRL_GUEST_OFFLOADS; bit 15 below: mergeable buffers.
    let tunable = 1 << 1 | 1 << 2;
    assert_eq!(with(tunable, (4, 8)).verdict, DoctorVerdict::Ok);
    assert!(with(tunable, (4, 8)).reason.contains("a frame of the MTU"));
    assert!(
        with(tunable | 1 << 15, (4, 8))
            .reason
            .contains("whole responses")
    );
    let few = with(tunable, (8, 8));
    assert!(
        few.verdict == DoctorVerdict::Warn && few.reason.contains("8 of 8"),
        "{few:?}"
    );
}

#[test]
fn interface_without_ethernet_frames_supports_no_tier() {
    let mut tun = interface("tun0", "tun");
    tun.details.is_ethernet = false;
    let report = judge(&facts(machine(), tun));
    assert!(!report.works);
}

#[test]
fn interface_notes_are_warnings() {
    let mut down = interface("eth0", "ice");
    down.details.is_up = false;
    down.strips_vlan = true;
    down.mtu = Some(9000);
    let report = judge(&facts(machine(), down));
    let warned = |text: &str| {
        let found = report.lines.iter().find(|line| line.reason.contains(text));
        found.is_some_and(|line| line.verdict == DoctorVerdict::Warn)
    };
    assert!(warned("down") && warned("VLAN") && warned("9000") && report.works);
}

#[test]
fn port_needs_a_listener_without_mptcp() {
    let listener = SystemListener {
        backlog: 4096,
        is_mptcp: false,
    };
    let judged = |addresses: &[[u8; 4]], listeners: Option<Vec<SystemListener>>| {
        let mut facts = facts(machine(), interface("eth0", "ice"));
        facts.port = Some(PortFacts {
            number: 80,
            addresses: addresses.iter().map(|bytes| (*bytes).into()).collect(),
            listeners,
        });
        let report = judge(&facts);
        let about = report.lines.iter().filter(|line| line.subject == "port 80");
        (about.cloned().collect::<Vec<_>>(), report.works)
    };
    let any = [[0; 4]];
    let (lines, works) = judged(&any, Some(vec![listener]));
    assert!(lines.len() == 1 && works, "{lines:?}");
    let mptcp = SystemListener {
        is_mptcp: true,
        ..listener
    };
    let (lines, works) = judged(&any, Some(vec![mptcp]));
    assert!(lines[1].reason.contains("Multipath") && !works, "{lines:?}");
    let short = SystemListener {
        backlog: 5,
        ..listener
    };
    let (lines, works) = judged(&any, Some(vec![listener, short]));
    assert!(lines[1].reason.contains("only 5") && works, "{lines:?}");
    let (lines, works) = judged(&any, None);
    assert!(
        lines[1].reason.contains("can't determine") && works,
        "{lines:?}"
    );
    let (lines, works) = judged(&[], Some(Vec::new()));
    assert!(
        lines[0].reason.contains("nothing listens") && !works,
        "{lines:?}"
    );
}
