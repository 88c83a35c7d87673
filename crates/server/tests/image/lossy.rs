//! Links with errors between clients and the hosted image: responses are complete and right. The network stack is that
//! of images; only the network device is a tap device, bridged with the server's end of the link.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use lowroad_testkit::net::frame::SynEdits;
use lowroad_testkit::net::{
    DEVICE, LinkMangling, ManglingRule, NetNamespace, SERVER, TestPath, TestSite, WireCheck,
};

use crate::hosted::can_run;
use crate::place::{PROGRAM, RunningCommand};

/// The first length is requested most.
const LENS: [usize; 8] = [1000, 1, 1460, 3593, 10_000, 40_000, 200_000, 2_000_000];

/// Starts the image with the address that the server's end of the link had.
fn start(server: &NetNamespace, site: &TestSite) -> RunningCommand {
    let ip = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        server.run("ip", &words).expect("ip does it");
    };
    ip(&format!("address flush dev {DEVICE}"));
    ip("link add bridge0 type bridge");
    ip("tuntap add dev tap0 mode tap");
    for device in [DEVICE, "tap0"] {
        ip(&format!("link set {device} master bridge0 up"));
    }
    ip("link set bridge0 up");
    let mut command = Command::new(PROGRAM);
    let address = format!("{}/24", SERVER.0);
    command.args(["image", "run", "--hosted", "tap0", "--ip", &address]);
    command.arg(site.root());
    server.prepare(&mut command);
    let running = RunningCommand::start(command);
    running.wait_for(&format!("http://{}/", SERVER.0));
    running
}

/// Runs the verifying client over one kind of link. It uses persistent and closed connections, HEAD, ranges and
/// pipelining.
fn check(test: &str, seed: u64, mangling: ManglingRule, mtu: u16) {
    if !can_run(test) {
        return;
    }
    let path = TestPath::new(&LinkMangling::both(seed, mangling), mtu).expect("a path");
    let site = TestSite::new(seed, &LENS);
    let _running = start(&path.server, &site);
    let address = SocketAddr::from((SERVER.0, 80));
    let mut check = WireCheck::new(seed, address, &site.pages);
    check.clients = 24;
    check.requests_per_connection = 1..9;
    check.upload = None;
    check.deadline = Duration::from_secs(60);
    let report = path.client.enter(|| check.run());
    let counts = path.mangler.counts();
    eprintln!(
        "{test}: {} requests, {:?}; {counts:?}",
        report.requests, report.kinds
    );
    assert!(report.is_clean(), "{report:#?}, {counts:?}");
    assert!(report.requests > 50, "{report:#?}");
    for direction in counts {
        assert_eq!((direction.bad_checksums, direction.oversize), (0, 0));
    }
    let is_bad = mangling != ManglingRule::default();
    let edits = counts
        .iter()
        .map(|it| it.lost + it.reordered + it.duplicated);
    let is_mangled = edits.sum::<u64>() > 0;
    assert!(is_mangled == is_bad, "{counts:?}");
}

#[test]
fn hosted_image_over_perfect_link() {
    check(
        "hosted_image_over_perfect_link",
        200,
        ManglingRule::default(),
        1500,
    );
}

#[test]
fn hosted_image_over_link_with_loss_duplication_and_reordering() {
    let mangling = ManglingRule {
        loss_percent: 2.0,
        reorder_percent: 2.0,
        duplication_percent: 1.0,
        ..ManglingRule::default()
    };
    check(
        "hosted_image_over_link_with_loss_duplication_and_reordering",
        201,
        mangling,
        1500,
    );
}

#[test]
fn hosted_image_over_link_with_mostly_reordering() {
    let mangling = ManglingRule {
        reorder_percent: 20.0,
        duplication_percent: 20.0,
        ..ManglingRule::default()
    };
    check(
        "hosted_image_over_link_with_mostly_reordering",
        202,
        mangling,
        1500,
    );
}

#[test]
fn hosted_image_over_link_with_delay() {
    let mangling = ManglingRule {
        delay_ms: 10,
        jitter_ms: 5,
        loss_percent: 0.5,
        ..ManglingRule::default()
    };
    check("hosted_image_over_link_with_delay", 203, mangling, 1500);
}

#[test]
fn hosted_image_with_short_segments() {
    for (seed, mss) in [(204, 536), (205, 1360)] {
        let syn = SynEdits {
            mss_max: Some(mss),
            ..SynEdits::default()
        };
        let mangling = ManglingRule {
            syn,
            loss_percent: 0.5,
            ..ManglingRule::default()
        };
        check("hosted_image_with_short_segments", seed, mangling, 1500);
    }
}

#[test]
fn clients_without_options() {
    let mangling = ManglingRule {
        syn: SynEdits::strip_all(),
        loss_percent: 0.5,
        reorder_percent: 1.0,
        ..ManglingRule::default()
    };
    check("clients_without_options", 206, mangling, 1500);
}

#[test]
fn hosted_image_over_link_with_jumbo_frames() {
    let mangling = ManglingRule {
        loss_percent: 1.0,
        reorder_percent: 1.0,
        ..ManglingRule::default()
    };
    check(
        "hosted_image_over_link_with_jumbo_frames",
        207,
        mangling,
        9000,
    );
}
