//! Tests of the network tools: web servers behind bad links, from which the client must receive correct responses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;

use lowroad_testkit::net::frame::SynEdits;
use lowroad_testkit::net::{
    CLIENT, CheckReport, DEVICE, FrameVerdict, LaneCounts, LinkMangling, ManglingRule,
    NetNamespace, SERVER, TestPath, TestSite, WebServer, WireCheck, XdpVerdict, is_installed,
    missing_requirement,
};
use lowroad_testkit::{skip, wait_until};

/// Lengths of files: below, at and above one segment, several segments, and a longer download.
const LENS: [usize; 8] = [1000, 0, 1, 536, 1460, 1461, 20_000, 400_000];

/// Whether the test can't run; if so, prints the reason.
fn skipped(test: &str) -> bool {
    skipped_without(test, "nginx")
}

fn skipped_without(test: &str, server: &str) -> bool {
    let missing = missing_requirement()
        .or_else(|| (!is_installed(server)).then(|| format!("there is no `{server}`")));
    if let Some(reason) = &missing {
        skip(test, reason);
    }
    missing.is_some()
}

/// Runs a check over IPv4 and IPv6; returns the link's counters, up and down.
fn check(manglings: &LinkMangling, mtu: u16, adjust: impl Fn(&mut WireCheck)) -> [LaneCounts; 2] {
    let path = TestPath::new(manglings, mtu).expect("a path");
    let site = TestSite::new(manglings.seed, &LENS);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    for address in [IpAddr::V4(SERVER.0), IpAddr::V6(SERVER.1)] {
        let address = SocketAddr::new(address, 80);
        let mut check = WireCheck::new(manglings.seed, address, &site.pages);
        check.clients = 16;
        adjust(&mut check);
        let report = path.client.enter(|| check.run());
        assert_clean(&report, &path);
        assert!(
            report.connections >= 16 && report.requests > 100,
            "{report:?}"
        );
    }
    // The mangler's thread publishes counters once per round; the events asserted below happened in earlier rounds.
    let counts = path.mangler.counts();
    for direction in counts {
        assert_eq!(direction.oversize, 0, "{counts:?}");
        assert_eq!(direction.bad_checksums, 0, "{counts:?}");
        assert_eq!(direction.overflowed, 0, "{counts:?}");
    }
    eprintln!("{counts:?}");
    counts
}

fn assert_clean(report: &CheckReport, path: &TestPath) {
    let counts = path.mangler.counts();
    assert!(report.is_clean(), "{report:#?}, {counts:#?}");
}

#[test]
fn link_without_mangling_changes_nothing() {
    if skipped("link_without_mangling_changes_nothing") {
        return;
    }
    let counts = check(&LinkMangling::default(), 1500, |check| check.clients = 64);
    for direction in counts {
        let untouched = LaneCounts {
            frames: direction.frames,
            resets: direction.resets,
            ..LaneCounts::default()
        };
        assert_eq!(direction, untouched);
    }
}

#[test]
fn responses_are_correct_over_a_lossy_link() {
    if skipped("responses_are_correct_over_a_lossy_link") {
        return;
    }
    let mangling = ManglingRule {
        loss_percent: 2.0,
        reorder_percent: 2.0,
        duplication_percent: 1.0,
        delay_ms: 1,
        jitter_ms: 1,
        ..ManglingRule::default()
    };
    for direction in check(&LinkMangling::both(11, mangling), 1500, |_| {}) {
        assert!(
            direction.lost > 0 && direction.duplicated > 0,
            "{direction:?}"
        );
        assert!(direction.reordered > 0, "{direction:?}");
    }
}

#[test]
fn responses_are_correct_with_small_segments() {
    if skipped("responses_are_correct_with_small_segments") {
        return;
    }
    for (mss, seed) in [(536, 21), (1360, 22)] {
        let syn = SynEdits {
            mss_max: Some(mss),
            ..SynEdits::default()
        };
        let mangling = ManglingRule {
            syn,
            loss_percent: 0.5,
            ..ManglingRule::default()
        };
        for direction in check(&LinkMangling::both(seed, mangling), 1500, |_| {}) {
            assert!(direction.edited > 0, "{direction:?}");
        }
    }
}

#[test]
fn responses_are_correct_without_tcp_options() {
    if skipped("responses_are_correct_without_tcp_options") {
        return;
    }
    let mangling = ManglingRule {
        syn: SynEdits::strip_all(),
        loss_percent: 0.5,
        ..ManglingRule::default()
    };
    let [up, _] = check(&LinkMangling::both(31, mangling), 1500, |_| {});
    assert!(up.edited > 0, "{up:?}");
}

#[test]
fn responses_are_correct_with_jumbo_frames() {
    if skipped("responses_are_correct_with_jumbo_frames") {
        return;
    }
    let mangling = ManglingRule {
        loss_percent: 1.0,
        reorder_percent: 1.0,
        ..ManglingRule::default()
    };
    check(&LinkMangling::both(41, mangling), 9000, |_| {});
}

#[test]
fn responses_of_apache_are_correct_over_a_lossy_link() {
    if skipped_without(
        "responses_of_apache_are_correct_over_a_lossy_link",
        "apache2",
    ) {
        return;
    }
    let mangling = ManglingRule {
        loss_percent: 1.0,
        reorder_percent: 1.0,
        ..ManglingRule::default()
    };
    let path = TestPath::new(&LinkMangling::both(61, mangling), 1500).expect("a path");
    let site = TestSite::new(61, &LENS);
    let _apache = WebServer::apache(&path.server, &site, 80, "").expect("apache");
    for address in [IpAddr::V4(SERVER.0), IpAddr::V6(SERVER.1)] {
        let mut check = WireCheck::new(61, SocketAddr::new(address, 80), &site.pages);
        check.clients = 16;
        let report = path.client.enter(|| check.run());
        assert_clean(&report, &path);
    }
}

#[test]
fn namespace_runs_programs_and_closures_and_kills_programs_on_drop() {
    let test = "namespace_runs_programs_and_closures_and_kills_programs_on_drop";
    if let Some(reason) = missing_requirement() {
        return skip(test, &reason);
    }
    let namespace = NetNamespace::new("alone").expect("a namespace");
    let inside = namespace.enter(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap());
    let outside = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    assert_ne!(inside, outside);
    let seen = namespace
        .run("readlink", &["/proc/self/ns/net"])
        .expect("readlink");
    assert_eq!(seen.trim(), inside.to_str().unwrap());
    namespace
        .set("ipv4/tcp_syncookies", "2")
        .expect("a parameter");
    let value = namespace
        .run("cat", &["/proc/sys/net/ipv4/tcp_syncookies"])
        .expect("cat");
    assert_eq!(value.trim(), "2");

    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let program = namespace.spawn(sleep).expect("sleep");
    let proc = format!("/proc/{}", program.pid());
    assert!(std::fs::exists(&proc).unwrap());
    drop(program);
    assert!(!std::fs::exists(&proc).unwrap(), "killed and waited for");
}

#[test]
fn xdp_tx_frames_pass_the_link_immediately() {
    let test = "xdp_tx_frames_pass_the_link_immediately";
    if let Some(reason) = missing_requirement() {
        return skip(test, &reason);
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let attach = || XdpVerdict::attach(DEVICE, FrameVerdict::Tx);
    let _program = path.server.enter(attach).expect("a program");
    let (server, mac) = (SERVER.0.to_string(), "02:00:00:00:00:01");
    let neighbour = ["neigh", "replace", &server, "lladdr", mac, "dev", DEVICE];
    path.client.run("ip", &neighbour).expect("a neighbour");
    path.client.enter(|| {
        let socket = UdpSocket::bind((CLIENT.0, 0)).expect("a socket");
        socket
            .send_to(b"there and back", (SERVER.0, 9))
            .expect("sent");
    });
    // No other packet follows, so a frame that is stuck in the ring would stay there.
    wait_until("the frame", || {
        (path.mangler.counts()[1].frames == 1).then_some(())
    });
    assert_eq!(path.mangler.counts()[0].frames, 1);
}

#[test]
fn wrong_response_and_refused_connection_are_reported() {
    if skipped("wrong_response_and_refused_connection_are_reported") {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let mut site = TestSite::new(51, &[500, 700]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    site.pages[0].crc32 ^= 1;
    site.pages[1].len += 1;
    let address = SocketAddr::new(IpAddr::V4(SERVER.0), 80);
    let check = WireCheck::new(51, address, &site.pages);
    let report = path.client.enter(|| check.run());
    assert!(
        report.wrong.iter().any(|wrong| wrong.contains("CRC-32")),
        "{report:#?}"
    );
    assert!(
        report
            .wrong
            .iter()
            .any(|wrong| wrong.contains("no content length")),
        "{report:#?}"
    );
    assert!(
        !report.is_clean() && report.hung + report.reset == 0,
        "{report:#?}"
    );

    // Nothing listens at this address.
    let refused = WireCheck {
        address: SocketAddr::new(IpAddr::V4(CLIENT.0), 9),
        ..check
    };
    let report = path.client.enter(|| refused.run());
    assert!(report.reset > 0 && report.correct == 0, "{report:#?}");
}
