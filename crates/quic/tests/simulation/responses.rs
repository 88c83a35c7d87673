//! HTTP/3 over networks with faults.

use lowroad_quic::{QuicCipher, QuicClientCipher};

use crate::http_peers::{HttpClient, HttpServer};
use crate::network::{Faults, NetworkCounts, World, config};
use crate::null_world;

const BODY_LEN: u64 = 100_000;

/// A client requests this number of responses. Returns the counts, and the time in microseconds.
fn run(seed: u64, workers: u8, requests: u64, faults: Faults) -> (NetworkCounts, u64) {
    let mut world = null_world(seed, workers, faults);
    world.connect(&QuicClientCipher::null());
    let (mut client, mut server) = (HttpClient::new(requests), HttpServer::new(BODY_LEN));
    world.run(&mut client, &mut server, |_, client, _| client.is_done());
    assert_eq!(client.body_lens(), vec![BODY_LEN; requests as usize]);
    (world.counts, world.now_us)
}

fn faults(loss: u64, duplication: u64, reordering: u64) -> Faults {
    Faults {
        loss,
        duplication,
        reordering,
        ..Faults::default()
    }
}

#[test]
fn responses_arrive_despite_loss() {
    for (seed, loss) in [(1, 0), (2, 10), (3, 30), (4, 100)] {
        let (counts, _) = run(seed, 1, 20, faults(loss, 0, 0));
        assert_eq!(counts.lost > 0, loss > 0, "{counts:?}");
    }
}

#[test]
fn responses_arrive_despite_duplication_and_reordering() {
    for seed in 1..6 {
        let (counts, _) = run(seed, 1, 10, faults(20, 200, 200));
        assert!(counts.duplicated > 0, "{counts:?}");
    }
}

#[test]
fn connections_wait_for_full_sockets() {
    for seed in 1..10 {
        let full = Faults {
            full_socket: 300,
            ..faults(10, 0, 0)
        };
        run(seed, 2, 10, full);
    }
}

#[test]
fn corrupted_datagrams_are_discarded() {
    for seed in 1..20 {
        let corruption = Faults {
            corruption: 100,
            ..faults(10, 10, 10)
        };
        // The run ends with whole bodies only.
        let (counts, _) = run(seed, 2, 10, corruption);
        assert!(counts.corrupted > 0, "{counts:?}");
    }
}

#[test]
fn responses_arrive_when_the_client_changes_its_address() {
    // The new address has another worker, which passes the datagrams to the connection's worker.
    let rebinding = Faults {
        rebinding_us: Some(150_000),
        ..Faults::default()
    };
    let (counts, time_us) = run(1, 4, 40, rebinding);
    assert!(time_us > 300_000, "{time_us}");
    assert!(counts.steered > 0, "{counts:?}");
    // Without another address nothing is passed on.
    let (counts, _) = run(2, 4, 40, Faults::default());
    assert_eq!(counts.steered, 0);
}

#[test]
fn the_path_mtu_is_found() {
    for (mtu, wanted) in [
        (1200, 1200..=1200),
        (1400, 1300..=1400),
        (1500, 1440..=1452),
    ] {
        let path = Faults {
            mtu,
            ..Faults::default()
        };
        let (counts, _) = run(1, 1, 20, path);
        assert!(wanted.contains(&counts.len_max), "{mtu}: {counts:?}");
        assert_eq!(counts.oversized > 0, mtu < 1452, "{counts:?}");
    }
}

#[test]
fn equal_seeds_give_equal_datagrams() {
    let faulty = faults(20, 20, 20);
    assert_eq!(run(7, 2, 5, faulty), run(7, 2, 5, faulty));
    assert_ne!(run(7, 2, 5, faulty).0.trace, run(8, 2, 5, faulty).0.trace);
}

#[test]
fn the_send_window_follows_the_congestion_window() {
    let download_us = |send_window_max: u32| {
        let mut config = config(3, 1, QuicCipher::null());
        config.settings.send_window_max = send_window_max;
        let mut world = World::new(3, 1, Faults::default(), &config);
        world.connect(&QuicClientCipher::null());
        let (mut client, mut server) = (HttpClient::new(1), HttpServer::new(5_000_000));
        world.run(&mut client, &mut server, |_, client, _| client.is_done());
        world.now_us
    };
    // 64 KiB in each round trip of 20 ms.
    let (small, grown) = (download_us(64 << 10), download_us(8 << 20));
    assert!(small > 1_500_000 && grown < 500_000, "{small} {grown}");
}
