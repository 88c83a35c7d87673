//! Eviction: which slot of a full table a new connection takes.

mod common;

use common::bench::{Bench, Did, lacks};
use common::frames::{self, ACK, SYN, Sent};
use common::responses::{RESPONSES, Shelf};
use lowroad_softirq::layout::{
    REASONS, STATE_CLOSING, STATE_DONE, STATE_HANDED, STATE_KERNEL, STATE_OPEN, connection,
    connection_bucket,
};
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_wire::width::index;

/// State and age, in units of 2^30 ns, of the first slots of each bucket; 0 is free, the rest are fresh.
type Places = [(u32, u16); 4];

/// The slots, the one that is evicted, and whether a live connection is lost.
const CASES: [(Places, usize, bool); 12] = [
    // A free slot.
    (
        [(STATE_OPEN, 0), (STATE_DONE, 9), (0, 0), (STATE_KERNEL, 9)],
        1,
        false,
    ),
    // A connection finished long ago, before one that has just finished: its client may lack our FIN.
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
    // One that has just finished, before markers and live ones.
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
    // The older of two markers, however old the others are.
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
    // One that exceeded the idle time, in any state.
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
    // Only live ones: the one that was idle for longest.
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
    // One seen by a processor with a faster clock is not idle.
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
    // One with a socket with other numbers goes last, unless it exceeded the idle time.
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

/// An age of -1: seen one unit ahead.
const AHEAD: u16 = u16::MAX;

/// Added to a state: the socket's numbers are behind.
const SHIFTED: u32 = 0x100;

/// Fills every bucket: the two candidate buckets depend on a secret.
fn fill(bench: &Bench, places: &Places) {
    let now = u16::try_from(unit_begun() >> 30 & 0xffff).expect("masked");
    let fresh = (STATE_OPEN, 0);
    let way = std::array::from_fn(|way| {
        let (state, age) = *places.get(way).unwrap_or(&fresh);
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

/// The time in ns, when the programs' clock, which is some ticks behind, is in the same unit.
fn unit_begun() -> u64 {
    loop {
        let now_ns = lowroad_softirq::now_ns();
        // Not near the boundary of a unit.
        if (50_000_000..900_000_000).contains(&(now_ns % (1 << 30))) {
            return now_ns;
        }
        std::thread::yield_now();
    }
}

fn open(bench: &Bench, port: u16) {
    open_from(bench, port, None);
}

/// From another IPv4 address, if one is given.
fn open_from(bench: &Bench, port: u16, client: Option<u32>) {
    let moved = |mut frame: Vec<u8>| {
        if let Some(client) = client {
            move_to(&mut frame, client);
        }
        frame
    };
    let mut sent = Sent {
        port,
        flags: SYN,
        options: vec![2, 4, 5, 0xb4],
        window: 64_000,
        ..Sent::default()
    };
    let syn = moved(sent.frame());
    let Did::Reply(reply) = bench.run(&syn) else {
        panic!("no SYN-ACK")
    };
    let isn = frames::receive(&reply, &syn).expect("a right answer").seq;
    (sent.seq, sent.ack, sent.flags) = (1, isn.wrapping_add(1), ACK);
    sent.options.clear();
    assert_eq!(bench.run(&moved(sent.frame())), Did::Drop);
}

/// Replaces the IPv4 source address of a frame.
fn move_to(frame: &mut [u8], client: u32) {
    let half = |frame: &[u8], at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let old = half(frame, 26) + half(frame, 28);
    frame[26..30].copy_from_slice(&client.to_be_bytes());
    let new = half(frame, 26) + half(frame, 28);
    // RFC 1624: updates the checksums of the IPv4 header and of TCP.
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
fn the_least_worth_goes() {
    if let Some(reason) = lacks() {
        return lowroad_testkit::skip("the_least_worth_goes", &reason);
    }
    let bench = Bench::new(ProgramTier::Tc);
    bench.namespace.enter(|| {
        bench.beat(0);
        let mut shelf = Shelf::new(&bench.level);
        let one = &RESPONSES[0];
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 3_600_000_000_000);
        }
        for (port, (places, goes, is_loss)) in (30_000..).zip(CASES) {
            fill(&bench, &places);
            let before = evicted(&bench);
            open(&bench, port);
            let found = bench.connection(false, port).map(|(_, way, _)| way);
            assert_eq!(found, Some(goes), "{places:?}");
            let lost = evicted(&bench) - before;
            assert_eq!(lost, u64::from(is_loss), "{places:?}");
        }
    });
}

/// The configured number of connections all find a slot: 152 bytes a connection.
#[test]
fn as_many_as_asked_for_have_room() {
    if let Some(reason) = lacks() {
        return lowroad_testkit::skip("as_many_as_asked_for_have_room", &reason);
    }
    let wanted = std::env::var("LOWROAD_TABLE_CONNECTIONS").ok();
    let wanted = wanted.map_or(32_768, |text| text.parse().expect("a number"));
    let bench = Bench::with_room(ProgramTier::Tc, wanted);
    let bytes = u64::from(bench.buckets()) * size_of::<connection_bucket>() as u64;
    assert!(bytes <= 160 * u64::from(wanted.next_power_of_two()));
    bench.namespace.enter(|| {
        bench.beat(0);
        let mut shelf = Shelf::new(&bench.level);
        let one = &RESPONSES[0];
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 3_600_000_000_000);
        }
        // No idle time ends while they arrive.
        bench.level.prepare(0, 3600, 1500).expect("keys");
        for number in 0..wanted {
            if number % 65_536 == 0 {
                bench.beat(0);
            }
            // There are more connections than one address has ports.
            let port = u16::try_from(1024 + number % 60_000).expect("a port");
            open_from(&bench, port, Some(0x0b00_0000 + number / 60_000));
        }
        assert_eq!(evicted(&bench), 0);
        let found = bench.level.connections();
        assert_eq!(found.open, index(wanted));
    });
}
