//! A machine with several cores behind a switch that delivers frames to any core, and drops and reorders them: all
//! clients must get correct responses.

#[path = "../storm/frames.rs"]
#[expect(dead_code, reason = "a storm mutates frames, too")]
mod frames;
#[path = "../storm/liar.rs"]
mod liar;
mod machine;
mod network;
#[path = "../storm/visitor.rs"]
mod visitor;

use machine::{Kind, SERVER, SERVER_MAC};
use network::{Network, SwitchFaults};

const S: u64 = 1_000_000;

#[test]
fn clients_are_served_whichever_core_receives_the_frames() {
    for seed in 1..=12 {
        let weather = match seed % 3 {
            0 => SwitchFaults::default(),
            1 => SwitchFaults {
                misdirected: 1000,
                ..SwitchFaults::default()
            },
            _ => SwitchFaults {
                misdirected: 500,
                lost: 20,
                delayed: 100,
            },
        };
        let count = [2, 3, 4, 8][seed as usize % 4];
        let mut network = Network::new(seed, count, Kind::Static, weather);
        network.run(6 * S);
        let (answers, pages) = network.answers();
        assert!(answers > 300, "seed {seed}: {answers}");
        assert!(pages[0] > 50 && pages[1] == 0, "seed {seed}: {pages:?}");
        network.finish();
        // All cores have served clients, with database connections of their own.
        let handshakes = network.machine.handshakes();
        let has_both = |of: &[u32; 2]| of[0] > 0 && of[1] > 0;
        assert!(
            handshakes.iter().all(has_both),
            "seed {seed}: {handshakes:?}"
        );
        let status = network.status();
        let is_right = |name: &str, wanted: u64| {
            assert_eq!(
                network::number(&status, name),
                wanted,
                "seed {seed}: {name}"
            );
        };
        is_right("cores", count.into());
        is_right("http_requests", answers_of(&network));
        is_right("cores_frames_dropped", 0);
        let forwarded = network::number(&status, "cores_frames_forwarded");
        match weather.misdirected {
            0 => assert!(
                forwarded < 500,
                "only ARP and what comes first: {forwarded}"
            ),
            _ => assert!(forwarded > 800, "{forwarded}"),
        }
        network.assert_log();
    }
}

/// If a client requests pages that exceed the limits of database responses, it gets 500. The other clients get as many
/// pages as without it.
#[test]
fn page_with_too_large_result_does_not_affect_other_clients() {
    const GREEDY: usize = 4;
    for seed in 1..=3 {
        let made = |greedy: usize| {
            let count = [1, 2][seed as usize % 2];
            let mut network = Network::new(seed, count, Kind::Static, SwitchFaults::default());
            network.request_too_large_results(greedy);
            network.run(5 * S);
            network.pages_behind(GREEDY)
        };
        let ([without, _], [with, refused]) = (made(0), made(GREEDY));
        assert_eq!(refused, 0, "seed {seed}");
        assert!(without > 50, "seed {seed}: {without}");
        assert!(
            with * 100 >= without * 95,
            "seed {seed}: {with} pages beside greedy visitors, {without} without"
        );
    }
}

/// The number of responses, without the one to the status request.
fn answers_of(network: &Network) -> u64 {
    network.answers().0
}

#[test]
fn dhcp_lease_of_core_0_applies_to_all_cores() {
    for seed in 1..=2 {
        let weather = SwitchFaults {
            misdirected: 700,
            ..SwitchFaults::default()
        };
        let mut network = Network::new(seed, 4, Kind::Dhcp, weather);
        network.run(10 * S);
        let answers = network.answers().0;
        assert!(answers > 100, "seed {seed}: {answers}");
        assert_eq!(
            network.machine.messages(),
            ["address 10.0.0.1/24; look at http://10.0.0.1/"]
        );
        // The lease ends, and all connections of all cores with it.
        network.has_dhcp = false;
        network.run(62 * S);
        assert_eq!(network.machine.open_counts(), [0; 4], "seed {seed}");
        let answers = network.answers().0;
        network.run(5 * S);
        assert_eq!(network.answers().0, answers, "seed {seed}");
        network.has_dhcp = true;
        network.run(80 * S);
        assert!(network.answers().0 > answers + 100, "seed {seed}");
    }
}

#[test]
fn stop_on_any_core_stops_all_cores() {
    for seed in 1..=8 {
        let weather = SwitchFaults {
            misdirected: 700,
            ..SwitchFaults::default()
        };
        let mut network = Network::new(seed, 4, Kind::Static, weather);
        network.run(3 * S);
        network.may_connect = false;
        let before_us = network.now_us();
        network.machine.stop(seed as usize % 4);
        assert!(
            network.run_until(10 * S, |network| network.machine.is_stopped()),
            "seed {seed}"
        );
        let took_us = network.now_us() - before_us;
        assert!(
            took_us < 4 * S,
            "seed {seed}: {took_us} us: somebody waited for the last moment"
        );
        assert_eq!(
            network.machine.open_counts().iter().sum::<usize>(),
            0,
            "seed {seed}"
        );
    }
}

#[test]
fn forwarding_flood_is_dropped_and_clients_are_still_served() {
    let mut network = Network::new(5, 4, Kind::Static, SwitchFaults::default());
    network.run(2 * S);
    let before = network.answers().0;
    // Frames that arrive at core 2 and belong to core 1. An attacker would need the machine's secret to construct them.
    let flood = network.machine.frames_of(1, 3000);
    for part in flood.chunks(500) {
        // Core 1 does not run meanwhile.
        network.machine.receive_alone(2, part);
        network.run(100_000);
    }
    network.run(10 * S);
    assert!(network.answers().0 > before + 100);
    network.finish();
    let status = network.status();
    let dropped = network::number(&status, "cores_frames_dropped");
    let forwarded = network::number(&status, "cores_frames_forwarded");
    assert!(dropped > 500, "{dropped}: it was never too much");
    assert!(dropped + forwarded >= 3000, "{dropped} {forwarded}");
}

#[test]
fn arp_flood_is_forwarded_at_limited_rate() {
    let mut network = Network::new(6, 4, Kind::Static, SwitchFaults::default());
    network.run(2 * S);
    network.finish();
    let before = network::number(&network.status(), "cores_frames_forwarded");
    let mut storm = Vec::new();
    for host in 0..5000u32 {
        storm.push(machine::arp(0x0a00_0040 + host % 150, SERVER));
    }
    network.machine.receive_alone(3, &storm);
    network.may_connect = true;
    network.run(5 * S);
    network.finish();
    let status = network.status();
    let forwarded = network::number(&status, "cores_frames_forwarded") - before;
    // 100 messages to three cores, 900 to core 0, and those of the following seconds.
    assert!((1200..1400).contains(&forwarded), "{forwarded}");
    assert!(network::number(&status, "cores_arp_limited") >= 4900);
    assert!(network::number(&status, "arp_answered") <= 1100);
}

#[test]
fn single_core_machine_forwards_no_frames() {
    let weather = SwitchFaults {
        misdirected: 1000,
        ..SwitchFaults::default()
    };
    let mut network = Network::new(9, 1, Kind::Static, weather);
    network.run(5 * S);
    network.finish();
    let status = network.status();
    assert_eq!(network::number(&status, "cores"), 1);
    assert!(!status.contains("cores_frames_forwarded"));
    assert_eq!(
        network::number(&status, "http_requests"),
        answers_of(&network)
    );
    assert_eq!(SERVER_MAC[5], 1);
}
