//! Forged segments: from spoofed addresses, or for another client's connection, and the effects that they must not
//! have. Knows the offsets of addresses in a frame, but no rules.

mod common;

use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use common::bench::{Bench, Did, lacks};
use common::frames::{ACK, PSH, RST, SYN, Sent};
use common::responses::{RESPONSES, Shelf};
use lowroad_softirq::layout::half_open;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net::CLIENT;
use lowroad_testkit::wait_until;

const PORT: u16 = 30_000;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// A segment from any IPv6 address.
fn from(client: Ipv6Addr, sent: &Sent) -> Vec<u8> {
    let mut frame = Sent {
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

/// Our initial sequence number.
fn syn_from(bench: &Bench, client: Ipv6Addr, seq: u32) -> u32 {
    let syn = from(
        client,
        &Sent {
            flags: SYN,
            seq,
            // MSS 1440.
            options: vec![2, 4, 5, 0xa0],
            ..Sent::default()
        },
    );
    let Did::Reply(reply) = bench.run(&syn) else {
        panic!("no SYN-ACK")
    };
    u32::from_be_bytes(reply[58..62].try_into().expect("four bytes"))
}

fn ack(seq: u32, ack: u32) -> Sent {
    Sent {
        flags: ACK,
        seq,
        ack,
        ..Sent::default()
    }
}

/// Addresses that equal the client's when their halves are combined without a key: by XOR, by a sum, swapped.
fn lookalikes(of: Ipv6Addr) -> Vec<Ipv6Addr> {
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

fn serving(test: &str, run: impl FnOnce(&Bench) + Send) {
    if let Some(reason) = lacks() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(ProgramTier::Tc);
    bench.namespace.enter(|| {
        bench.beat(0);
        let mut shelf = Shelf::new(&bench.level);
        let one = &RESPONSES[0];
        for key in one.keys() {
            shelf.publish(&bench.level, &key, &one.prepare(0), 3_600_000_000_000);
        }
        run(&bench);
    });
}

#[test]
fn nobody_completes_the_handshake_of_another() {
    serving("nobody_completes_the_handshake_of_another", |bench| {
        for own in lookalikes(CLIENT.1) {
            let isn = syn_from(bench, own, 7);
            let did = bench.run(&from(CLIENT.1, &ack(8, isn.wrapping_add(1))));
            assert_eq!(did, Did::Pass, "{own}");
            assert!(bench.connection(true, PORT).is_none(), "{own}");
        }
    });
}

#[test]
fn nobody_takes_the_place_of_another() {
    serving("nobody_takes_the_place_of_another", |bench| {
        let isn = syn_from(bench, CLIENT.1, 7);
        bench.run(&from(CLIENT.1, &ack(8, isn.wrapping_add(1))));
        assert!(bench.connection(true, PORT).is_some());
        for own in lookalikes(CLIENT.1) {
            let isn = syn_from(bench, own, 7);
            bench.run(&from(own, &ack(8, isn.wrapping_add(1))));
            assert!(bench.connection(true, PORT).is_some(), "{own}");
        }
    });
}

#[test]
fn a_cookie_without_a_syn_opens_nothing() {
    serving("a_cookie_without_a_syn_opens_nothing", |bench| {
        let isn = syn_from(bench, CLIENT.1, 7);
        let right = from(CLIENT.1, &ack(8, isn.wrapping_add(1)));
        assert_eq!(bench.run(&right), Did::Drop);
        assert!(bench.connection(true, PORT).is_some());
        // The connection is over: its number is still a cookie of this minute, but no SYN was overwritten.
        let reset = Sent {
            flags: RST,
            ..ack(8, 0)
        };
        bench.run(&from(CLIENT.1, &reset));
        let request = Sent {
            flags: ACK | PSH,
            payload: REQUEST.to_vec(),
            ..ack(8, isn.wrapping_add(1))
        };
        assert_eq!(bench.run(&from(CLIENT.1, &request)), Did::Pass);
        assert_eq!(bench.run(&right), Did::Pass);
        // Nor with a table that has lost it.
        let (index, _, _) = bench.connection(true, PORT).expect("what is left of it");
        bench.set_bucket(index, &Default::default());
        assert_eq!(bench.run(&from(CLIENT.1, &request)), Did::Pass);
        assert!(bench.connection(true, PORT).is_none());
    });
}

/// Sets the number of overwritten SYNs in each entry, as of a moment ago.
fn flooded(bench: &Bench, forgotten: u32) {
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
fn a_flood_of_wrong_cookies_ends_belief_for_a_second() {
    let test = "a_flood_of_wrong_cookies_ends_belief_for_a_second";
    serving(test, |bench| {
        // The flood may last longer than the rest of a second: then it is repeated.
        let ends = wait_until("a second without belief", || {
            let isn = syn_from(bench, CLIENT.1, 7);
            flooded(bench, 10_000);
            let right = from(CLIENT.1, &ack(8, isn.wrapping_add(1)));
            // More than the limit of wrong cookies in a second.
            for number in 0..5000 {
                let wrong = ack(number, isn.wrapping_add(number << 8));
                assert_eq!(bench.run(&from(CLIENT.1, &wrong)), Did::Drop);
            }
            assert_eq!(bench.run(&right), Did::Drop);
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
fn a_flood_of_syns_lets_as_many_cookies_be_tried() {
    serving("a_flood_of_syns_lets_as_many_cookies_be_tried", |bench| {
        // About one SYN for each entry, some of them in the same, which overwrites the earlier one.
        let addresses =
            |from: u128| (from..from + 20_000).map(|low| Ipv6Addr::from_bits(0xfd09 << 112 | low));
        for address in addresses(0) {
            syn_from(bench, address, 7);
        }
        let forgotten = AtomicU32::new(0);
        let count = |place: &mut half_open| {
            forgotten.fetch_add(place.forgotten, Ordering::Relaxed);
        };
        bench.change_half_open(count);
        let forgotten = forgotten.into_inner();
        // Of 20,000 in 16,384 entries, 8,450 on average, and hardly ever a hundred more.
        assert!((1..9_000).contains(&forgotten), "{forgotten}");
        let mut tried = 0;
        for round in 1..8 {
            for address in addresses(1 << 32) {
                let did = bench.run(&from(address, &ack(8 + round, 9)));
                tried += u32::from(did == Did::Drop);
            }
        }
        assert!((1..=forgotten).contains(&tried), "{tried} of {forgotten}");
    });
}
