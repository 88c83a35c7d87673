//! The order in which streams are served. RFC 9218.

use super::*;

fn priority(value: &str) -> [(&str, &str); 1] {
    [("priority", value)]
}

/// A server with streams 1, 3, … of these priorities, each answered with a body of this length.
fn answered_streams(priorities: &[&str], len: u64) -> ServerHarness {
    let mut harness = ServerHarness::open(H2Settings::default());
    for (at, value) in priorities.iter().enumerate() {
        harness.receive(&get(at as u32 * 2 + 1, "/", &priority(value)));
    }
    for at in 0..priorities.len() {
        harness.respond(at as u32 * 2 + 1, len);
    }
    harness.take_output();
    harness
}

/// The streams of the next frames; `*` marks the end of a stream.
fn served_streams(harness: &mut ServerHarness, len_max: usize, count: usize) -> String {
    let mut turns = Vec::new();
    for _ in 0..count {
        let Some(piece) = harness.server.send(len_max, &mut harness.out) else {
            break;
        };
        let len = harness.out.len();
        harness.out.resize(len + piece.len as usize, 0);
        turns.push(format!(
            "{}{}",
            piece.stream.0,
            if piece.is_last { "*" } else { "" }
        ));
    }
    turns.join(" ")
}

#[test]
fn most_urgent_streams_are_served_first() {
    let mut harness = answered_streams(&["u=5", "", "u=0", "u=7", "u=1"], 20);
    assert_eq!(
        served_streams(&mut harness, 10, 99),
        "5 5* 9 9* 3 3* 1 1* 7 7*"
    );
}

#[test]
fn non_incremental_streams_are_served_in_identifier_order() {
    let mut harness = ServerHarness::open(H2Settings::default());
    for id in [1, 3, 5, 7] {
        harness.receive(&get(id, "/", &[]));
    }
    for id in [5, 1, 7, 3] {
        harness.respond(id, 20);
    }
    assert_eq!(served_streams(&mut harness, 10, 99), "1 1* 3 3* 5 5* 7 7*");
}

#[test]
fn incremental_streams_are_served_round_robin() {
    let mut harness = answered_streams(&["i", "i", "i"], 30);
    assert_eq!(served_streams(&mut harness, 10, 99), "1 3 5 1 3 5 1* 3* 5*");
}

#[test]
fn incremental_and_non_incremental_streams_alternate() {
    // RFC 9218 does not define the order of the two kinds; they alternate, so both are served.
    let mut harness = answered_streams(&["", "i", "", "i"], 30);
    assert_eq!(
        served_streams(&mut harness, 10, 99),
        "1 3 1 7 1* 3 5 7 5 3* 5* 7*"
    );
}

#[test]
fn blocked_stream_does_not_block_others() {
    // A blocked stream leaves the queue, even if it is the most urgent.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&[get(1, "/", &priority("u=0")), get(3, "/", &[])].concat());
    harness.respond(1, 70_000);
    harness.respond(3, 20);
    harness.receive(&window(0, 100_000));
    assert_eq!(served_streams(&mut harness, 65_535, 9), "1 1 1 1 3*");
    harness.receive(&window(1, 100_000));
    assert_eq!(served_streams(&mut harness, 65_535, 9), "1*");
}

#[test]
fn priority_update_changes_the_order() {
    let mut harness = answered_streams(&["", "", ""], 20);
    let update = |id: u8, value: &str| {
        let payload = [&[0, 0, 0, id], value.as_bytes()].concat();
        frame_of(kind::PRIORITY_UPDATE, 0, 0, &payload)
    };
    assert_eq!(served_streams(&mut harness, 10, 1), "1");
    harness.receive(&[update(5, "u=1"), update(1, "u=6, i")].concat());
    assert_eq!(served_streams(&mut harness, 10, 99), "5 5* 3 3* 1*");
    // PRIORITY_UPDATE for an idle stream overrides the Priority field of its later request.
    harness.receive(
        &[
            update(9, "u=1"),
            get(7, "/", &[]),
            get(9, "/", &priority("u=6")),
        ]
        .concat(),
    );
    harness.respond(7, 5);
    harness.respond(9, 5);
    assert_eq!(served_streams(&mut harness, 10, 99), "9* 7*");
}

#[test]
fn bodies_announced_in_parts() {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    let (server, out) = (&mut harness.server, &mut harness.out);
    for id in [1, 3] {
        let len = BodyLen::Unknown;
        assert!(server.respond(
            StreamId(id),
            StatusCode::OK,
            FieldLines::NONE,
            len,
            &DATE,
            out
        ));
    }
    assert_eq!(server.send(99, out), None);
    assert_eq!(server.body(StreamId(3), 4), Ok(true));
    assert_eq!(served_streams(&mut harness, 10, 9), "3");
    assert_eq!(harness.server.body(StreamId(1), 4), Ok(true));
    assert_eq!(harness.server.end(StreamId(3), FieldLines::NONE), Ok(()));
    assert_eq!(served_streams(&mut harness, 10, 9), "1 3*");
    assert_eq!(harness.server.end(StreamId(1), FieldLines::NONE), Ok(()));
    assert_eq!(served_streams(&mut harness, 10, 9), "1*");
    assert!(harness.server.is_idle());
}

#[test]
fn queue_is_consistent_after_random_operations() {
    // The queue links streams through their slots, which are reused. Random operations from a seed: every body must be
    // sent exactly once.
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&window(0, 0x4000_0000));
    let (mut next, mut due) = (1, alloc::collections::BTreeMap::new());
    for _ in 0..20_000 {
        match draw(6) {
            0 | 1 if due.len() < 100 => {
                let value = format!("u={}{}", draw(8), if draw(2) == 0 { ", i" } else { "" });
                harness.receive(&get(next, "/", &priority(&value)));
                let len = 1 + draw(50);
                harness.respond(next, len);
                due.insert(next, len);
                next += 2;
            }
            2 if draw(20) == 0 => {
                let Some(id) = due.keys().nth(draw(10) as usize).copied() else {
                    continue;
                };
                due.remove(&id);
                harness
                    .server
                    .reset(StreamId(id), ErrorCode::CANCEL, &mut harness.out);
            }
            3 => {
                let id = (next - 2 * draw(50).min(u64::from(next) / 2) as u32).max(1) | 1;
                let payload = [&id.to_be_bytes()[..], format!("u={}", draw(8)).as_bytes()].concat();
                harness.receive(&frame_of(kind::PRIORITY_UPDATE, 0, 0, &payload));
                harness.now_ms += 10;
            }
            _ => {
                let Some(piece) = harness.server.send(1 + draw(20) as usize, &mut harness.out)
                else {
                    assert!(due.is_empty());
                    continue;
                };
                let left = due.get_mut(&piece.stream.0).expect("it was asked for");
                *left -= u64::from(piece.len);
                assert_eq!(piece.is_last, *left == 0);
                if piece.is_last {
                    due.remove(&piece.stream.0);
                }
            }
        }
        harness.out.clear();
    }
    assert!(next > 5000);
}
