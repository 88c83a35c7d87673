//! Responses of several segments on real devices, to a client with kernel TCP: they must be complete, both on
//! persistent connections and on those that close, from native XDP, from the TC program after it, and from TC alone.

mod common;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use common::line::{EndAddresses, PORT, TestNetwork};
use lowroad_softirq::learner::ResponseSerial;
use lowroad_softirq::level::publisher::{PublishRequest, ResponsePublisher};
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net;
use lowroad_testkit::skip;
use lowroad_wire::key;
use lowroad_wire::segment_context::IgnoredFields;

const HOUR_NS: u64 = 3_600_000_000_000;
/// Lengths of bodies, for responses of two to ten segments.
const BODIES: [usize; 6] = [1600, 2640, 4000, 8000, 11_000, 14_300];

fn request(len: usize, closes: bool) -> String {
    let close = if closes { "Connection: close\r\n" } else { "" };
    // veth has no tailroom in a frame: the last segment of the response, which overwrites the request, must not be
    // longer than the request.
    let pad = "x".repeat(1300);
    format!("GET /{len} HTTP/1.1\r\nHost: h\r\n{close}X-Pad: {pad}\r\n\r\n")
}

fn response(len: usize) -> (String, Vec<u8>) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
    let mut state = 1u32;
    let body = (0..len).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let body = body.collect();
    (head, body)
}

/// Publishes the responses to all requests of this test.
fn publish(line: &TestNetwork) {
    let mut publisher = ResponsePublisher::new(&line.level).expect("a grace period");
    let mut serial = 0;
    for (_, server) in line.ends {
        for len in BODIES {
            for closes in [false, true] {
                let (head, body) = response(len);
                let request_text = request(len, closes);
                let at = SocketAddr::new(server, PORT);
                let reading = key::read(request_text.as_bytes(), at, IgnoredFields::default());
                let key = reading.expect("a key").key;
                let bytes = [head.as_bytes(), &body].concat();
                let what = PublishRequest {
                    key: key.as_bytes(),
                    bytes: &bytes,
                    head_len: u16::try_from(head.len()).expect("short"),
                    date_at: None,
                    age_at: None,
                    status: 200,
                    generated_ns: 0,
                    expires_ns: lowroad_softirq::now_ns() + HOUR_NS,
                };
                serial += 1;
                publisher
                    .publish(&line.level, ResponseSerial::new(serial), &what, None)
                    .expect("room");
            }
        }
    }
}

/// Sends requests for bodies of these lengths on one connection.
fn ask(line: &TestNetwork, ends: EndAddresses, lens: &[usize], closes: bool) {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(40_000);
    let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    let mut stream = line.connect_from(port, ends);
    for len in lens {
        line.beat();
        stream
            .write_all(request(*len, closes).as_bytes())
            .expect("sent");
        let (head, body) = response(*len);
        let mut received = vec![0; head.len() + body.len()];
        stream.read_exact(&mut received).expect("an answer");
        assert!(received == [head.as_bytes(), &body].concat(), "{len}");
    }
    if closes {
        assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
    }
}

fn responses_are_complete(test: &str, line: impl FnOnce() -> TestNetwork, kept_max: usize) {
    if let Some(reason) = net::missing_requirement() {
        return skip(test, &reason);
    }
    let line = line();
    publish(&line);
    line.attach();
    for ends in line.ends {
        // Payload of a segment; a response has at most ten segments.
        let segment_len = if ends.1.is_ipv6() { 1208 } else { 1448 };
        let fits = |len: &usize, parts: usize| response(*len).0.len() + len <= parts * segment_len;
        let kept: Vec<usize> = BODIES
            .into_iter()
            .filter(|len| fits(len, kept_max))
            .collect();
        let before = line.count("answer_hit");
        ask(&line, ends, &kept, false);
        let closing: Vec<usize> = BODIES.into_iter().filter(|len| fits(len, 10)).collect();
        for len in &closing {
            ask(&line, ends, &[*len], true);
        }
        let hits = line.count("answer_hit") - before;
        assert_eq!(hits, (kept.len() + closing.len()) as u64);
    }
    // Without loss there are no retransmissions.
    assert_eq!(line.count("answer_again"), 0);
}

#[test]
fn tc_sends_responses_of_several_segments() {
    responses_are_complete(
        "tc_sends_responses_of_several_segments",
        || TestNetwork::veth_pair(ProgramTier::Tc),
        3,
    );
}

#[test]
fn native_xdp_sends_responses_of_several_segments() {
    responses_are_complete(
        "native_xdp_sends_responses_of_several_segments",
        || TestNetwork::veth_pair(ProgramTier::Xdp),
        10,
    );
}

#[test]
fn loopback_sends_responses_of_several_segments() {
    responses_are_complete(
        "loopback_sends_responses_of_several_segments",
        TestNetwork::loopback,
        3,
    );
}
