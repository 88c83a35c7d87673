//! Several levels on one interface, each for its own port, which are attached and detached in any order under load.
//! Each level answers the clients of its port, and none affects the frames of another one. These levels use TC, the
//! hook of veth; levels next to one in native XDP are tested in a guest (`lab/tests/levels.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lowroad_testkit::net::draws::RandomDraws;
use lowroad_testkit::net::{TestSite, WebServer, WireCheck};

use crate::attached::{Attached, get, servers};
use crate::cables::Cable;
use crate::skipped;

const PORTS: [u16; 3] = [80, 81, 82];

/// Lengths of pages that fit into one segment, need several segments, or are too long for a level.
const LENS: [usize; 4] = [900, 200, 3900, 40_000];

/// How often each level is attached and detached.
const ROUNDS: usize = 2;

/// Requests the pages at one port over IPv4 and IPv6 until `is_over`, and asserts that the responses are right.
fn load(cable: &Cable, site: &TestSite, port: u16, is_over: &AtomicBool) {
    let mut seed = u64::from(port);
    while !is_over.load(Ordering::Relaxed) {
        for address in servers(port) {
            let mut check = WireCheck::new(seed, address, &site.pages);
            check.clients = 4;
            check.requests_per_connection = 1..8;
            check.hot_percent = 60.0;
            let report = cable.client.enter(|| check.run());
            assert!(report.is_clean(), "port {port}: {report:#?}");
            seed += 1;
        }
    }
}

/// Sets a flag when dropped, so that the threads of a scope also end after a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asserts that each level answers its clients.
fn all_answer(cable: &Cable, levels: &[(u16, Attached)], path: &str) {
    for (port, attached) in levels {
        for address in servers(*port) {
            let response = attached.warm(&cable.client, address, &get(path));
            assert_eq!(response.status, 200, "{address}");
        }
    }
}

/// Attaches and detaches three levels in an order derived from `seed`.
fn attach_and_detach_levels(test: &str, seed: u64) {
    if skipped(test, &["nginx"]) {
        return;
    }
    let cable = Cable::new();
    let site = TestSite::new(seed, &LENS);
    let [first, others @ ..] = PORTS;
    let others = others.map(|port| format!("listen {port}; listen [::]:{port};"));
    let _nginx = WebServer::nginx(&cable.server, &site, first, &others.concat()).expect("nginx");
    let path = site.pages[0].path.as_str();
    let mut draws = RandomDraws::new(seed, 0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = StopOnDrop(&is_over);
        for port in PORTS {
            let (cable, site, is_over) = (&cable, &site, &is_over);
            scope.spawn(move || load(cable, site, port, is_over));
        }
        for _ in 0..ROUNDS {
            let mut ports = PORTS.to_vec();
            let mut levels = Vec::new();
            while !ports.is_empty() {
                let port = ports.remove(draws.below(ports.len()));
                let attached = Attached::start(&cable.server, port, &["--ttl", "60"]);
                levels.push((port, attached));
                all_answer(&cable, &levels, path);
            }
            while !levels.is_empty() {
                let (_, mut attached) = levels.remove(draws.below(levels.len()));
                attached.detach(&[]);
                all_answer(&cable, &levels, path);
            }
        }
    });
}

#[test]
fn three_levels_on_one_interface_in_first_order() {
    attach_and_detach_levels("three_levels_on_one_interface_in_first_order", 701);
}

#[test]
fn three_levels_on_one_interface_in_other_orders() {
    attach_and_detach_levels("three_levels_on_one_interface_in_other_orders", 702);
}
