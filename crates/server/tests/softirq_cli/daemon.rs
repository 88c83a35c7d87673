//! The daemon of `lowroad attach`: taking over an existing level, recreated interfaces, remaining privileges, and
//! identification.

use lowroad_testkit::net::DEVICE;
use lowroad_testkit::wait_until;

use crate::place::{PORT, PROGRAM, Place, attach, attach_by, can_run, connect};

#[test]
fn restarted_daemon_applies_only_its_own_deny_list() {
    if !can_run("restarted_daemon_applies_only_its_own_deny_list") {
        return;
    }
    let mut place = Place::new(&["--ttl", "60", "--deny", "10.77.0.1/24"]);
    for _ in 0..5 {
        assert_eq!(place.get("/small", "").field("age"), None);
    }
    assert!(place.counter("pass_denied") >= 5);
    place.kill();
    place.attached = attach(&place.server, &["--ttl", "60", "--deny", "192.0.2.0/24"]);
    place.warm("/small");
}

#[test]
fn recreated_interface_is_attached_again() {
    if !can_run("recreated_interface_is_attached_again") {
        return;
    }
    let place = Place::new(&["--ttl", "60"]);
    place.warm("/small");
    let gone = place.server.run("ip", &["link", "delete", DEVICE]);
    gone.expect("the cable is cut");
    connect(&place.client, &place.server, 1400);
    place.warm("/small");
    // The new interface may have a smaller MTU, which can also change while the level exists.
    let pinned = place
        .server
        .enter(|| lowroad_softirq::programs::folder::port_folder(PORT));
    let level = lowroad_softirq::SoftirqLevel::open(&pinned.expect("a folder")).expect("a level");
    for mtu in [1400, 1300] {
        let set = ["link", "set", DEVICE, "mtu", &mtu.to_string()];
        place.server.run("ip", &set).expect("an MTU");
        wait_until("the MTU", || (level.control().mtu == mtu).then_some(()));
    }
}

#[test]
fn daemon_keeps_only_needed_capabilities_and_is_identified_by_its_lock() {
    if !can_run("daemon_keeps_only_needed_capabilities_and_is_identified_by_its_lock") {
        return;
    }
    let mut place = Place::new(&["--ttl", "60"]);
    place.kill();
    // The daemon is identified by its lock, not by the name of its program.
    let other = place.folder.path().join("renamed");
    std::os::unix::fs::symlink(PROGRAM, &other).expect("a link");
    let other = other.to_str().expect("a plain path");
    place.attached = attach_by(other, &place.server, &["--ttl", "60"]);
    place.warm("/small");
    let pid = place.attached.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    // CAP_NET_ADMIN is 12, CAP_PERFMON 38, CAP_BPF 39.
    let kept = format!("{:016x}", 1u64 << 12 | 1 << 38 | 1 << 39);
    for line in [
        format!("CapEff:\t{kept}\n"),
        format!("CapBnd:\t{kept}\n"),
        "NoNewPrivs:\t1\n".into(),
    ] {
        assert!(status.contains(&line), "{line} in\n{status}");
    }
    let second = place.output(&["attach", "8080", "-i", DEVICE]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    let expected = format!("process {pid} is attached there already");
    assert!(said.contains(&expected), "{said}");
    assert_eq!(place.command_output(&["detach", "8080"]), "detached\n");
    let end = place.attached.child().wait().expect("a child of ours");
    assert!(end.success(), "{end}");
}
