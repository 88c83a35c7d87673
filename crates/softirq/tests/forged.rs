//! Forged segments, from spoofed addresses or for the connection of another client, must have no effect on other
//! connections. Uses the offsets of addresses in a frame, but no rules of the programs.

mod common;

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use common::bench::{Bench, FrameEffect, missing_bench_requirement};
use common::frames::{ACK, PSH, RST, SYN, SentSegment};
use common::responses::{RESPONSES, TestPublisher};
use lowroad_softirq::layout::half_open;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net::CLIENT;
use lowroad_testkit::wait_until;

const PORT: u16 = 30_000;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// A segment from this IPv6 address.
fn from(client: Ipv6Addr, sent: &SentSegment) -> Vec<u8> {
    let mut frame = SentSegment {
        is_v6: true,
        port: PORT,
        window: 64_000,
        ..sent.clone()
    }
    .frame();
    // Updates the TCP checksum incrementally (RFC 1624).
    let words = |bytes: &[u8], flip: u16| -> u32 {
        let pairs = bytes.chunks_exact(2);
        let words = pairs.map(|pair| u16::from_be_bytes([pair[0], pair[1]]) ^ flip);
        words.map(u32::from).sum()
    };
    let mut sum = words(&frame[70..72], 0xffff) + words(&frame[22..38], 0xffff);
    sum += words(&client.octets(), 0);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).expect("folded");
    frame[70..72].copy_from_slice(&sum.to_be_bytes());
    frame[22..38].copy_from_slice(&client.octets());
    frame
}

/// Sends a SYN. Returns the initial sequence number of the SYN-ACK.
fn syn_from(bench: &Bench, client: Ipv6Addr, seq: u32) -> u32 {
    let syn = from(
        client,
        &SentSegment {
            flags: SYN,
            seq,
            // MSS 1440.
            options: vec![2, 4, 5, 0xa0],
            ..SentSegment::default()
        },
    );
    let FrameEffect::Reply(reply) = bench.run(&syn) else {
        panic!("no SYN-ACK")
    };
    u32::from_be_bytes(reply[58..62].try_into().expect("four bytes"))
}

fn ack(seq: u32, ack: u32) -> SentSegment {
    SentSegment {
        flags: ACK,
        seq,
        ack,
        ..SentSegment::default()
    }
}

/// Addresses that would be confused with the client's if both halves were combined without a key: by XOR, by a sum, or
/// swapped.
fn similar_addresses(of: Ipv6Addr) -> Vec<Ipv6Addr> {
    let bits = of.to_bits();
    let half = |shift: u32| u64::try_from(bits >> shift & u128::from(u64::MAX)).expect("masked");
    let (high, low) = (half(64), half(0));
    let other = 0x2001_0db8_0000_0001_u64;
    [
        (other, high ^ low ^ other),
        (other, high.wrapping_add(low).wrapping_sub(other)),
        (low, high),
        (high ^ 1 << 63, low ^ 1 << 63),
        (high ^ 1 << 31, low ^ 1 << 63),
    ]
    .map(|(high, low)| Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)))
    .to_vec()
}

fn with_bench(test: &str, run: impl FnOnce(&Bench) + Send) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(ProgramTier::Tc);
    bench.namespace.enter(|| {
        bench.beat(0);
        let mut shelf = TestPublisher::new(&bench.level);
        let one = &RESPONSES[0];
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 3_600_000_000_000);
        }
        run(&bench);
    });
}

#[test]
fn handshake_ack_from_other_address_opens_no_connection() {
    with_bench(
        "handshake_ack_from_other_address_opens_no_connection",
        |bench| {
            for other in similar_addresses(CLIENT.1) {
                let isn = syn_from(bench, other, 7);
                let did = bench.run(&from(CLIENT.1, &ack(8, isn.wrapping_add(1))));
                assert_eq!(did, FrameEffect::Pass, "{other}");
                assert!(bench.connection(true, PORT).is_none(), "{other}");
            }
        },
    );
}

#[test]
fn handshake_from_other_address_does_not_displace_connection() {
    with_bench(
        "handshake_from_other_address_does_not_displace_connection",
        |bench| {
            let isn = syn_from(bench, CLIENT.1, 7);
            bench.run(&from(CLIENT.1, &ack(8, isn.wrapping_add(1))));
            assert!(bench.connection(true, PORT).is_some());
            for other in similar_addresses(CLIENT.1) {
                let isn = syn_from(bench, other, 7);
                bench.run(&from(other, &ack(8, isn.wrapping_add(1))));
                assert!(bench.connection(true, PORT).is_some(), "{other}");
            }
        },
    );
}

#[test]
fn cookie_without_overwritten_syn_opens_no_connection() {
    with_bench(
        "cookie_without_overwritten_syn_opens_no_connection",
        |bench| {
            let isn = syn_from(bench, CLIENT.1, 7);
            let right = from(CLIENT.1, &ack(8, isn.wrapping_add(1)));
            assert_eq!(bench.run(&right), FrameEffect::Drop);
            assert!(bench.connection(true, PORT).is_some());
            // The connection was reset. Its initial sequence number is still a valid cookie of this minute, but no SYN was
            // overwritten.
            let reset = SentSegment {
                flags: RST,
                ..ack(8, 0)
            };
            bench.run(&from(CLIENT.1, &reset));
            let request = SentSegment {
                flags: ACK | PSH,
                payload: REQUEST.to_vec(),
                ..ack(8, isn.wrapping_add(1))
            };
            assert_eq!(bench.run(&from(CLIENT.1, &request)), FrameEffect::Pass);
            assert_eq!(bench.run(&right), FrameEffect::Pass);
            // The cookie is not accepted either if the table has lost the connection.
            let (index, _, _) = bench.connection(true, PORT).expect("what is left of it");
            bench.set_bucket(index, &Default::default());
            assert_eq!(bench.run(&from(CLIENT.1, &request)), FrameEffect::Pass);
            assert!(bench.connection(true, PORT).is_none());
        },
    );
}

/// Sets the number of overwritten SYNs in each half-open entry, with the current time.
fn set_overwritten(bench: &Bench, forgotten: u32) {
    let now = u32::try_from(lowroad_softirq::now_ns() >> 30).expect("soon after boot");
    bench.change_half_open(|place| {
        *place = half_open {
            forgotten,
            forgotten_at: now,
            ..half_open::default()
        };
    });
}

#[test]
fn flood_of_wrong_cookies_disables_cookies_for_a_second() {
    let test = "flood_of_wrong_cookies_disables_cookies_for_a_second";
    with_bench(test, |bench| {
        // The flood may last longer than the rest of a second; then it is repeated.
        let ends = wait_until("a second without belief", || {
            let isn = syn_from(bench, CLIENT.1, 7);
            set_overwritten(bench, 10_000);
            let right = from(CLIENT.1, &ack(8, isn.wrapping_add(1)));
            // More than the limit of wrong cookies per second.
            for number in 0..5000 {
                let wrong = ack(number, isn.wrapping_add(number << 8));
                assert_eq!(bench.run(&from(CLIENT.1, &wrong)), FrameEffect::Drop);
            }
            assert_eq!(bench.run(&right), FrameEffect::Drop);
            let is_open = bench.connection(true, PORT).map(|(index, _, _)| index);
            match is_open {
                None => Some(right),
                Some(index) => {
                    bench.set_bucket(index, &Default::default());
                    None
                }
            }
        });
        wait_until("belief", || {
            bench.run(&ends);
            bench.connection(true, PORT)
        });
    });
}

#[test]
fn number_of_cookie_checks_is_limited_by_overwritten_syns() {
    with_bench(
        "number_of_cookie_checks_is_limited_by_overwritten_syns",
        |bench| {
            // About one SYN for each entry; of several SYNs for the same entry, the last overwrites the others.
            let addresses = |from: u128| {
                (from..from + 20_000).map(|low| Ipv6Addr::from_bits(0xfd09 << 112 | low))
            };
            for address in addresses(0) {
                syn_from(bench, address, 7);
            }
            let forgotten = AtomicU32::new(0);
            let count = |place: &mut half_open| {
                forgotten.fetch_add(place.forgotten, Ordering::Relaxed);
            };
            bench.change_half_open(count);
            let forgotten = forgotten.into_inner();
            // 20,000 SYNs in 16,384 entries overwrite 8,450 on average, and hardly ever a hundred more.
            assert!((1..9_000).contains(&forgotten), "{forgotten}");
            let mut tried = 0;
            for round in 1..8 {
                for address in addresses(1 << 32) {
                    let did = bench.run(&from(address, &ack(8 + round, 9)));
                    tried += u32::from(did == FrameEffect::Drop);
                }
            }
            assert!((1..=forgotten).contains(&tried), "{tried} of {forgotten}");
        },
    );
}
