//! The end of a daemon under load: it is killed, another one takes over, or the level is detached. Clients do not
//! retry, and no request fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys;
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};
use lowroad_softirq::layout::MODE_OFF;
use lowroad_testkit::net::{
    CheckReport, LinkMangling, NetNamespace, TestPath, TestSite, WebServer, WireCheck,
};
use lowroad_testkit::wait_until;

use crate::attached::{Attached, get, server_v4};
use crate::skipped;

const LENS: [usize; 4] = [200, 600, 900, 50_000];

/// Runs the verifying client in rounds until stopped.
struct Load {
    stop: AtomicBool,
    rounds: Mutex<CheckReport>,
}

impl Load {
    fn new() -> Load {
        Load {
            stop: AtomicBool::new(false),
            rounds: Mutex::default(),
        }
    }

    /// Runs the client while `act` runs and for some more rounds; returns the report of all rounds.
    fn during(
        &self,
        client: &NetNamespace,
        check: &WireCheck,
        act: impl FnOnce(&Load),
    ) -> CheckReport {
        thread::scope(|scope| {
            scope.spawn(|| {
                // The client also stops if the test fails.
                let mut check = check.clone();
                while !self.stop.load(Relaxed) {
                    check.seed += 1;
                    let report = client.enter(|| check.run());
                    self.add(report);
                }
            });
            let stop = StopAtEnd(&self.stop);
            act(self);
            self.more(200);
            drop(stop);
        });
        self.rounds.lock().expect("no holder panics").clone()
    }

    fn add(&self, report: CheckReport) {
        let mut all = self.rounds.lock().expect("no holder panics");
        all.requests += report.requests;
        all.correct += report.correct;
        all.connections += report.connections;
        all.wrong_count += report.wrong_count;
        all.hung += report.hung;
        all.reset += report.reset;
        all.closed_early += report.closed_early;
        all.wrong.extend(report.wrong);
        all.other_failures.extend(report.other_failures);
    }

    fn requests(&self) -> u64 {
        self.rounds.lock().expect("no holder panics").requests
    }

    /// Waits until this many more requests were sent.
    fn more(&self, requests: u64) {
        let due = self.requests() + requests;
        wait_until("more requests", || (self.requests() >= due).then_some(()));
    }
}

struct StopAtEnd<'l>(&'l AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A link with nginx, and a client that requests mostly hot pages.
fn network(seed: u64) -> (TestPath, TestSite, WebServer, WireCheck) {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    // Ports are reused after a short time, while state of their last connections remains.
    path.client
        .set("ipv4/tcp_max_tw_buckets", "100")
        .expect("a parameter");
    path.client
        .set("ipv4/ip_local_port_range", "40000 42000")
        .expect("a parameter");
    let site = TestSite::new(seed, &LENS);
    let nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let mut check = WireCheck::new(seed, server_v4(80), &site.pages);
    check.clients = 16;
    check.requests_per_connection = 1..6;
    check.connections_per_client = 4;
    check.hot_percent = 80.0;
    check.deadline = Duration::from_secs(20);
    (path, site, nginx, check)
}

/// Waits for a hundred more hits.
fn more_hits(attached: &Attached, what: &str) {
    let hits = attached.count("answer_hit");
    wait_until(what, || {
        (attached.count("answer_hit") > hits + 100).then_some(())
    });
}

fn assert_clean(report: &CheckReport, attached: &Attached) {
    eprintln!(
        "{} requests, {} connections, {:?}",
        report.requests,
        report.connections,
        attached.counts()
    );
    assert!(report.is_clean(), "{report:#?}, {:?}", attached.counts());
}

#[test]
fn hits_continue_without_daemon_and_next_daemon_takes_over() {
    if skipped(
        "hits_continue_without_daemon_and_next_daemon_takes_over",
        &["nginx"],
    ) {
        return;
    }
    let before = complaints();
    let (path, site, _nginx, check) = network(301);
    let options = ["--ttl", "60"];
    let mut first = Attached::start(&path.server, 80, &options);
    let page = get(&site.pages[0].path);
    first.warm(&path.client, server_v4(80), &page);
    let load = Load::new();
    let mut second = None;
    let report = load.during(&path.client, &check, |load| {
        load.more(500);
        first.kill();
        more_hits(&first, "hits without the daemon");
        // Done twice: the second daemon takes over from a daemon that was killed.
        second = Some(Attached::start(&path.server, 80, &options));
        // The new daemon must first store responses, so its hits begin later.
        more_hits(&first, "hits with the next");
    });
    assert_clean(&report, &first);
    assert_eq!(complaints(), before);
    // Both daemons have the same level, so the first one has no level left to remove.
    drop(second);
    assert!(!first.is_pinned());
}

#[test]
fn failed_takeover_changes_nothing() {
    if skipped("failed_takeover_changes_nothing", &["nginx"]) {
        return;
    }
    let (path, site, _nginx, _) = network(320);
    let mut attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let page = get(&site.pages[0].path);
    attached.warm(&path.client, server_v4(80), &page);
    attached.kill();
    // This daemon needs a table of another size.
    let namespace = path.server.path();
    let arguments = ["attach", "80", "--netns", &namespace, "--interface", "eth0"];
    let other = [&["20", env!("CARGO_BIN_EXE_lowroad")], &arguments[..]].concat();
    let other = [&other[..], &["--connections", "64"]].concat();
    let said = path.server.run("timeout", &other);
    let said = said.expect_err("other sizes").to_string();
    assert!(said.contains("lowroad detach"), "{said}");
    attached.warm(&path.client, server_v4(80), &page);
    attached.detach(&[]);
    assert!(!attached.is_pinned());
}

#[test]
fn detach_loses_no_request_and_removes_everything() {
    if skipped("detach_loses_no_request_and_removes_everything", &["nginx"]) {
        return;
    }
    let before = complaints();
    for round in 0..3 {
        let (path, site, _nginx, check) = network(310 + round);
        let mut attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
        attached.warm(&path.client, server_v4(80), &get(&site.pages[0].path));
        let (link, program) = ids(&attached);
        assert!(LinkInfoIter::default().any(|one| one.id == link));
        let load = Load::new();
        let begin = Instant::now();
        let report = load.during(&path.client, &check, |load| {
            let hits = attached.count("answer_hit");
            wait_until("hits", || {
                (attached.count("answer_hit") > hits + 500).then_some(())
            });
            if round == 1 {
                attached.kill();
            }
            // On a loaded machine a client may need longer than the usual drain for its connection.
            attached.detach(&["--drain", "300"]);
            load.more(500);
        });
        eprintln!("{:?}", begin.elapsed());
        assert_clean(&report, &attached);
        assert_eq!(attached.level.control().mode, MODE_OFF);
        assert!(!attached.is_pinned());
        // The kernel frees unreferenced objects after a delay.
        wait_until("the end of the link and the program", || {
            let link_is_there = LinkInfoIter::default().any(|one| one.id == link);
            let program_is_there = ProgInfoIter::default().any(|one| one.id == program);
            (!link_is_there && !program_is_there).then_some(())
        });
    }
    assert_eq!(complaints(), before);
}

/// The IDs of the level's link and of the link's program.
fn ids(attached: &Attached) -> (libbpf_sys::__u32, libbpf_sys::__u32) {
    let path = attached.level.folder().join("tc-eth0");
    let link = libbpf_rs::Link::open(path).expect("a pinned link");
    let info = link.info().expect("the link's numbers");
    (info.id, info.prog_id)
}

/// The number of errors in the kernel's log.
fn complaints() -> usize {
    let log = std::process::Command::new("dmesg").output();
    let log = log.map_or_else(|_| Vec::new(), |output| output.stdout);
    let log = String::from_utf8_lossy(&log).into_owned();
    let signs = ["WARNING:", "BUG:", "Oops", "general protection"];
    let is_bad = |line: &&str| signs.iter().any(|sign| line.contains(sign));
    log.lines().filter(is_bad).count()
}
