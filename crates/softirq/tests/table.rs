//! Eviction: the slot of a full bucket that a new connection takes.

mod common;

use common::bench::{Bench, FrameEffect, missing_bench_requirement};
use common::frames::{self, ACK, SYN, SentSegment};
use common::responses::{RESPONSES, TestPublisher};
use lowroad_softirq::layout::{
    REASONS, STATE_CLOSING, STATE_DONE, STATE_HANDED, STATE_KERNEL, STATE_OPEN, connection,
    connection_bucket,
};
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_wire::width::index;

/// State and age (in units of 2^30 ns) of the first slots of each bucket. State 0 is a free slot. The other slots have
/// connections that were just used.
type Slots = [(u32, u16); 4];

/// The slots, the index of the evicted one, and whether a live connection is lost.
const CASES: [(Slots, usize, bool); 12] = [
    // The first free slot; the slot of a connection that finished long ago counts as free.
    (
        [(STATE_OPEN, 0), (STATE_DONE, 9), (0, 0), (STATE_KERNEL, 9)],
        1,
        false,
    ),
    // A connection that finished long ago, rather than one that has just finished: the client of the latter may not
    // have received the FIN yet.
    (
        [
            (STATE_KERNEL, 30),
            (STATE_DONE, 1),
            (STATE_DONE, 7),
            (STATE_OPEN, 20),
        ],
        2,
        false,
    ),
    // A connection that has just finished, rather than markers and live connections.
    (
        [
            (STATE_OPEN, 30),
            (STATE_KERNEL, 30),
            (STATE_DONE, 1),
            (STATE_HANDED, 30),
        ],
        2,
        false,
    ),
    // The older one of two markers, even if other connections are older.
    (
        [
            (STATE_OPEN, 40),
            (STATE_KERNEL, 3),
            (STATE_KERNEL, 9),
            (STATE_CLOSING, 40),
        ],
        2,
        false,
    ),
    // A connection that exceeded the idle timeout, in any state.
    (
        [
            (STATE_KERNEL, 2),
            (STATE_OPEN, 40),
            (STATE_DONE, 1),
            (STATE_OPEN, 70),
        ],
        3,
        false,
    ),
    (
        [
            (STATE_HANDED, 70),
            (STATE_OPEN, 40),
            (STATE_DONE, 1),
            (STATE_OPEN, 2),
        ],
        0,
        false,
    ),
    // If there are only live connections: the one that was idle for longest.
    (
        [
            (STATE_OPEN, 0),
            (STATE_OPEN, 5),
            (STATE_CLOSING, 20),
            (STATE_HANDED, 9),
        ],
        2,
        true,
    ),
    (
        [
            (STATE_OPEN, 9),
            (STATE_OPEN, 5),
            (STATE_CLOSING, 2),
            (STATE_HANDED, 20),
        ],
        3,
        true,
    ),
    (
        [
            (STATE_OPEN, 20),
            (STATE_OPEN, 5),
            (STATE_OPEN, 2),
            (STATE_OPEN, 9),
        ],
        0,
        true,
    ),
    // A connection is not idle if a processor with a faster clock processed its last segment.
    (
        [
            (STATE_OPEN, AHEAD),
            (STATE_OPEN, 5),
            (STATE_CLOSING, 20),
            (STATE_HANDED, AHEAD),
        ],
        2,
        true,
    ),
    // A connection with other sequence numbers in its parked socket is evicted last, unless it exceeded the idle
    // timeout.
    (
        [
            (STATE_KERNEL | SHIFTED, 40),
            (STATE_OPEN, 5),
            (STATE_CLOSING, 20),
            (STATE_HANDED, 9),
        ],
        2,
        true,
    ),
    (
        [
            (STATE_KERNEL | SHIFTED, 70),
            (STATE_OPEN, 5),
            (STATE_CLOSING, 20),
            (STATE_HANDED, 9),
        ],
        0,
        true,
    ),
];

/// An age of -1 unit: seen one unit in the future.
const AHEAD: u16 = u16::MAX;

/// Added to a state: the sequence numbers of the socket are behind.
const SHIFTED: u32 = 0x100;

/// Fills all buckets, since the two candidate buckets depend on a secret.
fn fill(bench: &Bench, slots: &Slots) {
    let now = u16::try_from(unit_begun() >> 30 & 0xffff).expect("masked");
    let fresh = (STATE_OPEN, 0);
    let way = std::array::from_fn(|way| {
        let (state, age) = *slots.get(way).unwrap_or(&fresh);
        connection {
            tag: u32::from(state != 0),
            state: u8::try_from(state & !SHIFTED).expect("small"),
            socket_rcv: u32::from(state & SHIFTED != 0),
            seen: now.wrapping_sub(age),
            ..connection::default()
        }
    });
    for index in 0..bench.buckets() {
        bench.set_bucket(index, &connection_bucket { way });
    }
}

/// A time in ns at which the programs' clock, which is some ticks behind, is in the same unit.
fn unit_begun() -> u64 {
    loop {
        let now_ns = lowroad_softirq::now_ns();
        // Not near the boundary between two units.
        if (50_000_000..900_000_000).contains(&(now_ns % (1 << 30))) {
            return now_ns;
        }
        std::thread::yield_now();
    }
}

fn open(bench: &Bench, port: u16) {
    open_from(bench, port, None);
}

/// Opens a connection, from this IPv4 address if one is given.
fn open_from(bench: &Bench, port: u16, client: Option<u32>) {
    let moved = |mut frame: Vec<u8>| {
        if let Some(client) = client {
            move_to(&mut frame, client);
        }
        frame
    };
    let mut sent = SentSegment {
        port,
        flags: SYN,
        options: vec![2, 4, 5, 0xb4],
        window: 64_000,
        ..SentSegment::default()
    };
    let syn = moved(sent.frame());
    let FrameEffect::Reply(reply) = bench.run(&syn) else {
        panic!("no SYN-ACK")
    };
    let isn = frames::receive(&reply, &syn).expect("a right answer").seq;
    (sent.seq, sent.ack, sent.flags) = (1, isn.wrapping_add(1), ACK);
    sent.options.clear();
    assert_eq!(bench.run(&moved(sent.frame())), FrameEffect::Drop);
}

/// Replaces the IPv4 source address of a frame.
fn move_to(frame: &mut [u8], client: u32) {
    let half = |frame: &[u8], at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let old = half(frame, 26) + half(frame, 28);
    frame[26..30].copy_from_slice(&client.to_be_bytes());
    let new = half(frame, 26) + half(frame, 28);
    // Updates the checksums of IPv4 header and TCP (RFC 1624).
    for at in [24, 50] {
        let mut sum = 0xffff - half(frame, at) + 2 * 0xffff - old + new;
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        frame[at..at + 2].copy_from_slice(&(0xffff - sum).to_be_bytes()[2..]);
    }
}

fn evicted(bench: &Bench) -> u64 {
    let at = REASONS.iter().position(|(name, _)| *name == "tcp_evicted");
    bench.level.counters().expect("counters")[at.expect("a reason")]
}

#[test]
fn least_valuable_slot_is_evicted() {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip("least_valuable_slot_is_evicted", &reason);
    }
    let bench = Bench::new(ProgramTier::Tc);
    bench.namespace.enter(|| {
        bench.beat(0);
        let mut shelf = TestPublisher::new(&bench.level);
        let one = &RESPONSES[0];
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 3_600_000_000_000);
        }
        for (port, (slots, evicted_slot, is_loss)) in (30_000..).zip(CASES) {
            fill(&bench, &slots);
            let before = evicted(&bench);
            open(&bench, port);
            let found = bench.connection(false, port).map(|(_, way, _)| way);
            assert_eq!(found, Some(evicted_slot), "{slots:?}");
            let lost = evicted(&bench) - before;
            assert_eq!(lost, u64::from(is_loss), "{slots:?}");
        }
    });
}

/// All of the configured number of connections find a slot, with 152 bytes for each.
#[test]
fn configured_number_of_connections_fits_table() {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip("configured_number_of_connections_fits_table", &reason);
    }
    let count = std::env::var("LOWROAD_TABLE_CONNECTIONS").ok();
    let count = count.map_or(32_768, |text| text.parse().expect("a number"));
    let bench = Bench::with_table_size(ProgramTier::Tc, count);
    let bytes = u64::from(bench.buckets()) * size_of::<connection_bucket>() as u64;
    assert!(bytes <= 160 * u64::from(count.next_power_of_two()));
    bench.namespace.enter(|| {
        bench.beat(0);
        let mut shelf = TestPublisher::new(&bench.level);
        let one = &RESPONSES[0];
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 3_600_000_000_000);
        }
        // The idle timeout must not expire while the connections are opened.
        bench.level.prepare(0, 3600, 1500).expect("keys");
        for number in 0..count {
            if number % 65_536 == 0 {
                bench.beat(0);
            }
            // One address has fewer ports than there are connections.
            let port = u16::try_from(1024 + number % 60_000).expect("a port");
            open_from(&bench, port, Some(0x0b00_0000 + number / 60_000));
        }
        assert_eq!(evicted(&bench), 0);
        let found = bench.level.connections();
        assert_eq!(found.open, index(count));
    });
}
