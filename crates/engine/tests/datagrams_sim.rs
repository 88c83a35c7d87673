//! Tests of datagrams in the simulator. Its network loses, duplicates, delays, reorders and marks them, limits their
//! length, and changes the addresses of peers; sockets may be full.

mod datagram_exchange;

use std::net::SocketAddr;

use lowroad_engine::datagrams::{DatagramBatch, DatagramTrain, Ecn};
use lowroad_engine::driver::{DatagramSocketId, DriverEvent, IoDriver};
use lowroad_engine_sim::{DatagramFaults, DatagramStats, FaultRates, SharedWorld, for_each_seed};

use datagram_exchange::{DatagramClient, DatagramEcho, run};

const ECHO: DatagramSocketId = DatagramSocketId(0);

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn world(seed: u64) -> SharedWorld {
    let faults = FaultRates {
        piece_len_max: 1,
        delay_ms_max: 0,
        window_len: 1,
        clock_jumps: 0,
        accept_failures: 0,
        file_failures: 0,
        late_sends: 0,
    };
    SharedWorld::new(seed, faults)
}

fn faults(seed: u64) -> DatagramFaults {
    let pick = |at: u64, from: &[u64]| from[((seed >> at) % from.len() as u64) as usize];
    DatagramFaults {
        lost: pick(0, &[0, 10, 100, 300]),
        duplicated: pick(1, &[0, 50, 300]),
        reordered: pick(2, &[0, 50, 500]),
        marked: pick(3, &[0, 200]),
        rebound: pick(1, &[0, 0, 20, 60]),
        delay_us: pick(2, &[0, 70, 20_000]),
        jitter_us_max: pick(0, &[0, 5, 30_000]),
        mtu_len: pick(3, &[1252, 1472, 65_507]) as usize,
        send_buffer_max: pick(0, &[5, 40, 100_000]) as usize,
        receive_buffer_max: pick(1, &[10, 1000]) as usize,
    }
}

/// The observable results of a run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    stats: DatagramStats,
    end_us: u64,
    received: u64,
    rooms: u64,
    marked: u64,
    answers: Vec<Vec<(u64, usize)>>,
}

fn exchange(seed: u64) -> Outcome {
    let (world, faults) = (world(seed), faults(seed));
    world.set_datagram_faults(faults.clone());
    let mut driver = world.driver();
    let socket = world.bind_datagrams(address("[::]:443"));
    driver.open_datagrams(ECHO, socket).expect("room");
    let lens: Vec<usize> = (0..60)
        .map(|_| 8 + world.random_below(2000) as usize)
        .collect();
    let sources = [("10.0.0.1:500", Ecn::Ect0), ("[fd00::1]:500", Ecn::NotEct)];
    let mut clients: Vec<DatagramClient> = sources
        .iter()
        .zip(1..)
        .map(|((from, ecn), id)| {
            let socket = world.bind_translated_datagrams(address(from));
            driver
                .open_datagrams(DatagramSocketId(id), socket)
                .expect("room");
            let to = match address(from) {
                SocketAddr::V4(_) => [address("10.9.9.1:443"), address("10.9.9.2:443")],
                SocketAddr::V6(_) => [address("[fd00::8]:443"), address("[fd00::9]:443")],
            };
            DatagramClient::new(DatagramSocketId(id), &to, &lens, *ecn, 200_000)
        })
        .collect();
    let mut echo = DatagramEcho::new(ECHO);
    run(&mut driver, &mut echo, &mut clients);
    let answers = clients.iter().map(|client| client.answers.clone());
    let answers: Vec<_> = answers.collect();
    let longest = answers.iter().flatten().map(|(_, len)| *len).max();
    assert!(longest.expect("answers") <= faults.mtu_len, "the MTU holds");
    Outcome {
        stats: world.datagram_stats(),
        end_us: driver.now_us(),
        received: echo.received,
        rooms: echo.rooms,
        marked: clients.iter().map(|client| client.marked).sum(),
        answers,
    }
}

#[test]
fn every_datagram_is_answered_despite_faults_and_runs_are_reproducible() {
    for_each_seed(0..60, |seed| {
        let outcome = exchange(seed);
        assert_eq!(outcome, exchange(seed), "equal seeds, equal runs");
    });
}

#[test]
fn each_fault_occurs_for_some_seed() {
    let outcomes: Vec<Outcome> = (0..60).map(exchange).collect();
    let stats = |get: fn(&DatagramStats) -> u64| -> u64 {
        outcomes.iter().map(|outcome| get(&outcome.stats)).sum()
    };
    assert!(stats(|stats| stats.lost) > 100);
    assert!(stats(|stats| stats.duplicated) > 100);
    assert!(stats(|stats| stats.reordered) > 100);
    assert!(stats(|stats| stats.marked) > 100);
    assert!(stats(|stats| stats.rebound) > 100);
    assert!(stats(|stats| stats.too_long) > 100);
    // Responses to an address that the address translator no longer uses.
    assert!(stats(|stats| stats.unreachable) > 100);
    assert!(stats(|stats| stats.full) > 100);
    assert!(stats(|stats| stats.coalesced) > 100);
    assert!(outcomes.iter().map(|outcome| outcome.rooms).sum::<u64>() > 100);
    assert!(outcomes.iter().map(|outcome| outcome.marked).sum::<u64>() > 100);
    let is_out_of_order = |answers: &Vec<(u64, usize)>| !answers.is_sorted();
    assert!(
        outcomes
            .iter()
            .any(|it| it.answers.iter().any(is_out_of_order))
    );
}

#[test]
fn wake_at_has_microsecond_resolution() {
    let world = world(1);
    let mut driver = world.driver();
    let start_us = driver.now_us();
    assert_eq!(start_us, driver.now_ms() * 1000);
    for step_us in [1, 17, 999, 1000, 12_345] {
        let at_us = driver.now_us() + step_us;
        driver.wake_at(Some(at_us));
        driver.wait(None, &mut Vec::new());
        assert_eq!(driver.now_us(), at_us);
        assert_eq!(driver.now_ms(), at_us / 1000);
    }
    // A time in the past ends each wait, until it is replaced.
    let at_us = driver.now_us();
    driver.wait(Some(5), &mut Vec::new());
    assert_eq!(driver.now_us(), at_us);
    driver.wake_at(None);
    driver.wait(Some(5), &mut Vec::new());
    assert_eq!(driver.now_us(), at_us / 1000 * 1000 + 5000);
}

#[test]
fn empty_datagrams_arrive_and_trains_keep_unsent_datagrams() {
    let world = world(3);
    world.set_datagram_faults(DatagramFaults {
        send_buffer_max: 3,
        delay_us: 100,
        ..DatagramFaults::default()
    });
    let mut driver = world.driver();
    let socket = world.bind_datagrams(address("10.0.0.1:1"));
    driver.open_datagrams(ECHO, socket).expect("room");
    let peer = world.bind_datagrams(address("10.0.0.2:2"));
    let train = |segment_len, range| DatagramTrain {
        peer: peer.address(),
        local: None,
        ecn: Ecn::Ect1,
        segment_len,
        range,
    };
    let mut trains = [train(0, 0..0), train(2, 0..7), train(9, 7..8)];
    let bytes = b"abcdefgh";
    // The empty datagram and two of the second train's four are sent.
    assert_eq!(driver.send_datagrams(ECHO, &mut trains, bytes), 1);
    assert_eq!(trains[1].range, 4..7);
    let mut left = &mut trains[1..];
    while !left.is_empty() {
        let mut events = Vec::new();
        driver.wait(None, &mut events);
        for event in events {
            assert!(matches!(event, DriverEvent::Room(ECHO)), "{event:?}");
            let sent = driver.send_datagrams(ECHO, left, bytes);
            left = &mut left[sent..];
        }
    }
    let mut got = Vec::new();
    while got.len() < 6 {
        driver.wait(Some(1), &mut Vec::new());
        got.extend(std::iter::from_fn(|| peer.receive()).map(|it| it.bytes));
    }
    let expected: [&[u8]; 6] = [b"", b"ab", b"cd", b"ef", b"g", b"h"];
    assert_eq!(got, expected);
}

#[test]
fn closed_socket_receives_no_datagrams_and_reports_no_events() {
    let world = world(4);
    let mut driver = world.driver();
    let socket = world.bind_datagrams(address("10.0.0.1:1"));
    driver.open_datagrams(ECHO, socket).expect("room");
    let peer = world.bind_datagrams(address("10.0.0.2:2"));
    assert!(peer.send(address("10.0.0.1:1"), None, Ecn::NotEct, b"one"));
    let mut events = Vec::new();
    driver.wait(Some(1), &mut events);
    assert!(
        matches!(events[..], [DriverEvent::Datagrams(ECHO)]),
        "{events:?}"
    );
    driver.close_datagrams(ECHO);
    assert!(peer.send(address("10.0.0.1:1"), None, Ecn::NotEct, b"two"));
    events.clear();
    driver.wait(Some(1), &mut events);
    assert!(events.is_empty(), "{events:?}");
    assert!(!driver.receive_datagrams(ECHO, &mut DatagramBatch::default()));
    assert_eq!(world.datagram_stats().unreachable, 1);
}
