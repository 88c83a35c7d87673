//! The same request to two addresses of one machine gets the response of the requested address, also if the addresses
//! alternate and if request memos are used.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use common::bench::{Bench, FrameEffect, missing_bench_requirement};
use common::frames::{self, ACK, PSH, SYN, SentSegment};
use common::responses::{REQUESTS, Response, TestPublisher};
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net::SERVER;

const CLIENT_ISN: u32 = 77;
const HOUR_NS: u64 = 3_600_000_000_000;

/// The destination of [`SentSegment::is_for_other_machine`], which is another address of the server here.
fn other_of(server: (Ipv4Addr, Ipv6Addr)) -> (Ipv4Addr, Ipv6Addr) {
    let (mut v4, mut v6) = (server.0.octets(), server.1.octets());
    v4[3] ^= 1 << 4;
    v6[15] ^= 1 << 4;
    (v4.into(), v6.into())
}

/// A client's connection.
struct Client<'b> {
    bench: &'b Bench,
    sent: SentSegment,
}

impl<'b> Client<'b> {
    fn open(bench: &'b Bench, is_v6: bool, is_other: bool, port: u16) -> Client<'b> {
        let mut sent = SentSegment {
            is_v6,
            port,
            is_for_other_machine: is_other,
            flags: SYN,
            seq: CLIENT_ISN,
            window: 64_000,
            options: vec![2, 4, 5, 0xb4],
            ..SentSegment::default()
        };
        let syn = sent.frame();
        let FrameEffect::Reply(reply) = bench.run(&syn) else {
            panic!("no SYN-ACK")
        };
        let reply = frames::receive(&reply, &syn).expect("a right answer");
        sent.options.clear();
        sent.seq += 1;
        sent.ack = reply.seq.wrapping_add(1);
        sent.flags = ACK;
        assert_eq!(bench.run(&sent.frame()), FrameEffect::Drop);
        sent.flags = ACK | PSH;
        Client { bench, sent }
    }

    /// Sends a request. Returns the first byte of the response's body.
    fn ask(&mut self, request: &str) -> u8 {
        self.sent.payload = request.as_bytes().to_vec();
        let frame = self.sent.frame();
        let FrameEffect::Reply(reply) = self.bench.run(&frame) else {
            panic!("no answer to {request:?}")
        };
        let reply = frames::receive(&reply, &frame).expect("a right answer");
        self.sent.seq = reply.ack;
        let len = u32::try_from(reply.payload.len()).expect("short");
        self.sent.ack = reply.seq.wrapping_add(len);
        let body = reply
            .payload
            .windows(4)
            .position(|four| four == b"\r\n\r\n");
        reply.payload[body.expect("a head") + 4]
    }
}

fn responses_depend_on_address(test: &str, tier: ProgramTier) {
    if let Some(reason) = missing_bench_requirement() {
        return lowroad_testkit::skip(test, &reason);
    }
    let bench = Bench::new(tier);
    let other = other_of(SERVER);
    let at: [[IpAddr; 2]; 2] = [
        [SERVER.0.into(), other.0.into()],
        [SERVER.1.into(), other.1.into()],
    ];
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let all = at.concat();
    let own: Vec<[u8; 16]> = all.iter().map(|address| octets(*address)).collect();
    bench.level.set_addresses(&own).expect("addresses");
    let one = Response::named("A");
    let get = REQUESTS[0].bytes;
    bench.namespace.enter(|| {
        let mut publisher = TestPublisher::new(&bench.level);
        for (edition, address) in (0..).zip(&all) {
            let prepared = one.prepare(edition);
            publisher.publish(&bench.level, &one.key_at(*address), &prepared, HOUR_NS);
        }
        bench.beat(0);
        let mut clients: Vec<Client<'_>> = (0u16..4)
            .map(|at| Client::open(&bench, at >= 2, at % 2 == 1, 20_000 + at))
            .collect();
        // A repeated request creates a memo, which later rounds use.
        for round in 0..8 {
            for (edition, client) in (b'a'..).zip(&mut clients) {
                assert_eq!(client.ask(get), edition, "round {round}, {:?}", client.sent);
            }
        }
        // While the addresses alternate, the memo is always that of the previous request.
        for (edition, client) in (b'a'..).zip(&mut clients) {
            for _ in 0..4 {
                assert_eq!(client.ask(get), edition, "{:?}", client.sent);
            }
        }
        // answer_hit: four clients with twelve requests each.
        assert_eq!(bench.level.counters().expect("counters")[0], 48);
    });
}

#[test]
fn tc_program_selects_response_by_server_address() {
    let test = "tc_program_selects_response_by_server_address";
    responses_depend_on_address(test, ProgramTier::Tc);
}

#[test]
fn xdp_program_selects_response_by_server_address() {
    let test = "xdp_program_selects_response_by_server_address";
    responses_depend_on_address(test, ProgramTier::Xdp);
}
