//! Links with errors between client and server: all responses are right, whether the level or the server sends them.
//! All bodies are verified.

use std::time::{Duration, Instant};

use lowroad_testkit::net::frame::SynEdits;
use lowroad_testkit::net::{
    CheckReport, LinkMangling, ManglingRule, TestPath, TestSite, WebServer, WireCheck,
};
use lowroad_testkit::wait_until;

use crate::attached::{Attached, servers};
use crate::{setting, skipped};

/// The first length, which is requested most, fits into the smallest segments. The others fill a segment exactly, need
/// several segments, or are too long for the level.
const LENS: [usize; 13] = [
    200, 0, 1, 536, 900, 1100, 1200, 1300, 2500, 3900, 9000, 14_000, 40_000,
];

/// Mean number of requests on a connection: 1 to twice this number.
const TURNS_MEAN: usize = 4;

/// Requests of each test in usual runs. In long runs, all tests share the configured number.
const REQUESTS: usize = 1500;
const TESTS: usize = 9;

/// Runs the verifying client over one kind of link, with IPv4 and IPv6. `hits_v6`: whether the level can answer IPv6.
fn check(test: &str, manglings: &LinkMangling, mtu: u16, hits_v6: bool) {
    // The other requests are for new, uncacheable or too long pages, or follow such a request on the same connection.
    let due_percent = [25, if hits_v6 { 25 } else { 0 }];
    check_with(test, manglings, mtu, "60", due_percent);
}

/// As [`check`], with another lifetime, and with the least percentage of hits for each address family.
fn check_with(test: &str, manglings: &LinkMangling, mtu: u16, ttl: &str, due_percent: [u64; 2]) {
    if skipped(test, &["nginx"]) {
        return;
    }
    let requests = setting("LOWROAD_WIRE_REQUESTS", REQUESTS * TESTS) / TESTS;
    let path = TestPath::new(manglings, mtu).expect("a path");
    // Ports are reused sooner, and there are enough of them for long runs.
    path.client
        .set("ipv4/tcp_max_tw_buckets", "100")
        .expect("a parameter");
    path.client
        .set("ipv4/ip_local_port_range", "2000 65535")
        .expect("a parameter");
    let site = TestSite::new(manglings.seed, &LENS);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", ttl]);
    for (address, due_percent) in servers(80).into_iter().zip(due_percent) {
        let before = attached.count("answer_hit");
        let mut check = WireCheck::new(manglings.seed, address, &site.pages);
        check.clients = 32;
        check.requests_per_connection = 1..TURNS_MEAN * 2;
        check.connections_per_client = (requests / 2 / TURNS_MEAN / check.clients).max(1);
        check.deadline = Duration::from_secs(60);
        if due_percent > 0 {
            warm(&path, &attached, &check);
        }
        check.hot_percent = 60.0;
        let begin = Instant::now();
        let report = path.client.enter(|| check.run());
        let hits = attached.count("answer_hit") - before;
        let counts = path.mangler.counts();
        eprintln!(
            "{test}: {address}: {} requests, {} connections, {hits} hits, {} again, {:?}; {counts:?}",
            report.requests,
            report.connections,
            attached.count("answer_again"),
            begin.elapsed(),
        );
        assert_right(&report, &attached);
        let due = report.requests * due_percent / 100;
        assert!(hits >= due, "{hits} hits, {:?}", attached.counts());
    }
    for direction in path.mangler.counts() {
        assert_eq!(direction.bad_checksums, 0, "{:?}", path.mangler.counts());
        assert_eq!(direction.oversize, 0, "{:?}", path.mangler.counts());
    }
    eprintln!("{test}: {:?}", attached.counts());
}

/// Lets the level learn all responses requested on hot connections.
fn warm(path: &TestPath, attached: &Attached, check: &WireCheck) {
    let mut check = check.clone();
    check.hot_percent = 100.0;
    check.connections_per_client = 4;
    wait_until("hits for what is asked for often", || {
        check.seed += 1;
        let before = attached.count("answer_hit");
        let report = path.client.enter(|| check.run());
        assert_right(&report, attached);
        let hits = attached.count("answer_hit") - before;
        (hits * 10 > report.requests * 8).then_some(())
    });
}

fn assert_right(report: &CheckReport, attached: &Attached) {
    assert!(report.is_clean(), "{report:#?}, {:?}", attached.counts());
}

fn both(seed: u64, mangling: ManglingRule) -> LinkMangling {
    LinkMangling::both(seed, mangling)
}

#[test]
fn perfect_link_gets_right_responses() {
    check(
        "perfect_link_gets_right_responses",
        &LinkMangling::default(),
        1500,
        true,
    );
}

#[test]
fn link_with_loss_duplication_and_reordering() {
    let mangling = ManglingRule {
        loss_percent: 2.0,
        reorder_percent: 2.0,
        duplication_percent: 1.0,
        ..ManglingRule::default()
    };
    let test = "link_with_loss_duplication_and_reordering";
    check(test, &both(101, mangling), 1500, true);
}

#[test]
fn short_freshness_lifetimes() {
    let mangling = ManglingRule {
        loss_percent: 2.0,
        reorder_percent: 2.0,
        duplication_percent: 1.0,
        ..ManglingRule::default()
    };
    // Because of the losses, most responses are stale when they are requested again.
    check_with(
        "short_freshness_lifetimes",
        &both(108, mangling),
        1500,
        "1",
        [0, 0],
    );
}

#[test]
fn link_with_mostly_reordering_and_duplication() {
    let mangling = ManglingRule {
        reorder_percent: 20.0,
        duplication_percent: 20.0,
        ..ManglingRule::default()
    };
    let test = "link_with_mostly_reordering_and_duplication";
    check(test, &both(102, mangling), 1500, true);
}

#[test]
fn link_with_delay() {
    let mangling = ManglingRule {
        delay_ms: 10,
        jitter_ms: 5,
        loss_percent: 0.5,
        ..ManglingRule::default()
    };
    check("link_with_delay", &both(103, mangling), 1500, true);
}

#[test]
fn segments_of_536_bytes() {
    let syn = SynEdits {
        mss_max: Some(536),
        ..SynEdits::default()
    };
    let mangling = ManglingRule {
        syn,
        loss_percent: 0.5,
        ..ManglingRule::default()
    };
    // IPv6 does not permit such small segments, so the kernel answers these SYNs.
    check("segments_of_536_bytes", &both(104, mangling), 1500, false);
}

#[test]
fn segments_of_1360_bytes() {
    let syn = SynEdits {
        mss_max: Some(1360),
        ..SynEdits::default()
    };
    let mangling = ManglingRule {
        syn,
        loss_percent: 0.5,
        ..ManglingRule::default()
    };
    check("segments_of_1360_bytes", &both(105, mangling), 1500, true);
}

#[test]
fn clients_without_options() {
    let mangling = ManglingRule {
        syn: SynEdits::strip_all(),
        loss_percent: 0.5,
        reorder_percent: 1.0,
        ..ManglingRule::default()
    };
    let test = "clients_without_options";
    check(test, &both(106, mangling), 1500, true);
}

#[test]
fn jumbo_frames() {
    let mangling = ManglingRule {
        loss_percent: 1.0,
        reorder_percent: 1.0,
        ..ManglingRule::default()
    };
    check("jumbo_frames", &both(107, mangling), 9000, true);
}
