//! The events of a stream do not depend on the parts in which its bytes arrive, nor on the order of streams.

use super::*;
use crate::field_coding::test_text::bytes;

/// A generator of random numbers (xorshift).
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// The bytes of each stream of a connection.
fn conversation() -> Vec<(u64, Vec<u8>)> {
    let trailers = frame_of(kind::HEADERS, &section(&[("x-sum", "1")]));
    let long = "v".repeat(300);
    let grease = frame_of(0x1f * 7 + 0x21, &[9; 70]);
    let update = frame_of(kind::PRIORITY_UPDATE_REQUEST, b"\x08u=1, i");
    let more = [grease.clone(), update, frame_of(kind::MAX_PUSH_ID, &[7])].concat();
    alloc::vec![
        (CONTROL, control(&more)),
        (
            ENCODER,
            bytes("02 3fbd01 c00f 7777772e6578616d706c652e636f6d c10c 2f73616d706c652f70617468 00")
        ),
        (DECODER, bytes("03 48 7f01")),
        (14, bytes("40 54 01 02 03")),
        (
            0,
            get("/a", &[("cookie", "a"), ("cookie", "b"), ("x", &long)])
        ),
        (
            4,
            [
                post(&[("content-length", "5")]),
                data(b"ab"),
                grease,
                data(b"cde")
            ]
            .concat()
        ),
        (
            8,
            [post(&[]), data(b""), data(&[b'd'; 200]), trailers].concat()
        ),
        (12, frame_of(kind::HEADERS, &bytes("0381 d1 d7 10 11"))),
        (
            16,
            [
                frame_of(kind::HEADERS, &bytes("0481 d1 d7 80 11")),
                data(b"xyz")
            ]
            .concat()
        ),
        (20, post(&[("Upper", "a")])),
        (24, [post(&[("content-length", "5")]), data(b"ab")].concat()),
        (28, get("a", &[])),
    ]
}

/// The events of each request, with the parts of a body joined, and an end also without a body.
fn events_by_stream(events: &[String]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for event in events {
        let (stream, event) = event.split_once(' ').expect("a stream");
        let event = event
            .split("] body")
            .next()
            .unwrap_or(event)
            .trim_end_matches(']');
        let text = all.entry(String::from(stream)).or_default();
        if let Some(part) = event.strip_prefix("data ") {
            let len = part.parse().unwrap_or(part.len());
            *text += &"*".repeat(len);
        } else if event != "end" && !event.starts_with("priority") {
            *text += &format!("[{event}]");
        }
    }
    all
}

fn run(numbers: &mut RandomNumbers, part_len_max: usize) -> BTreeMap<String, String> {
    let mut harness = ServerHarness::new(H3Settings::default());
    let mut streams = conversation();
    let mut events = Vec::new();
    while !streams.is_empty() {
        let at = numbers.below(streams.len());
        let (stream_id, rest) = &mut streams[at];
        let len = (1 + numbers.below(part_len_max)).min(rest.len());
        let part: Vec<u8> = rest.drain(..len).collect();
        let (stream_id, is_last) = (*stream_id, rest.is_empty());
        // Critical streams do not end.
        let is_end = is_last && stream_id & 2 == 0;
        // The end may arrive alone.
        if is_end && numbers.below(2) == 0 {
            events.extend(harness.deliver(stream_id, &part, false));
            events.extend(harness.deliver(stream_id, &[], true));
        } else {
            events.extend(harness.deliver(stream_id, &part, is_end));
        }
        if is_last {
            streams.swap_remove(at);
        }
    }
    assert_eq!(harness.server.kept_len, 0);
    events_by_stream(&events)
}

#[test]
fn events_do_not_depend_on_parts_and_order() {
    let mut numbers = RandomNumbers(0x9e37_79b9_7f4a_7c15);
    let whole = run(&mut numbers, 10_000);
    let wanted = [
        ("0", 1),
        ("1", 6),
        ("2", 201),
        ("3", 1),
        ("4", 4),
        ("5", 1),
        ("7", 1),
    ];
    for (stream, count) in wanted {
        let events = whole.get(stream).map(String::as_str).unwrap_or_default();
        let stars = events.matches('*').count();
        let others = events.matches('[').count() - events.matches(" [").count();
        assert_eq!(stars + others.min(1), count, "{stream}: {events}");
    }
    // Sections of RFC 9204 appendix B.
    assert!(whole["3"].contains("/sample/path www.example.com"));
    assert!(whole["5"].contains("reset MESSAGE_ERROR"));
    assert!(whole["6"].contains("reset MESSAGE_ERROR"));
    for round in 0..400 {
        let part_len_max = [1, 2, 3, 7, 50, 300][round % 6];
        assert_eq!(run(&mut numbers, part_len_max), whole, "round {round}");
    }
}

#[test]
fn random_bytes_are_refused_without_panic() {
    let mut numbers = RandomNumbers(88_172_645_463_325_252);
    let streams = conversation();
    for _ in 0..2000 {
        let mut harness = ServerHarness::new(H3Settings::default());
        for (stream_id, bytes) in &streams {
            let mut bytes = bytes.clone();
            for _ in 0..numbers.below(4) {
                let at = numbers.below(bytes.len());
                bytes[at] = numbers.below(256) as u8;
            }
            bytes.truncate(bytes.len() - numbers.below(2));
            harness.deliver(*stream_id, &bytes, stream_id & 2 == 0);
            harness.respond((stream_id >> 2) as u32, 10);
        }
        harness.send(7);
    }
}
