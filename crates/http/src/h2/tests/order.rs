//! The order of sending. RFC 9218.

use super::*;

fn priority(value: &str) -> [(&str, &str); 1] {
    [("priority", value)]
}

/// Streams 1, 3, … with these priorities, each answered with a body of this length.
fn asked(priorities: &[&str], len: u64) -> Talk {
    let mut talk = Talk::open(H2Settings::default());
    for (at, value) in priorities.iter().enumerate() {
        talk.tell(&get(at as u32 * 2 + 1, "/", &priority(value)));
    }
    for at in 0..priorities.len() {
        talk.answer(at as u32 * 2 + 1, len);
    }
    talk.heard();
    talk
}

/// The streams of the next frames, and * where one ends.
fn turns(talk: &mut Talk, len_max: usize, count: usize) -> String {
    let mut turns = Vec::new();
    for _ in 0..count {
        let Some(piece) = talk.server.send(len_max, &mut talk.out) else {
            break;
        };
        let len = talk.out.len();
        talk.out.resize(len + piece.len as usize, 0);
        turns.push(format!(
            "{}{}",
            piece.stream.0,
            if piece.is_last { "*" } else { "" }
        ));
    }
    turns.join(" ")
}

#[test]
fn the_most_urgent_come_first() {
    let mut talk = asked(&["u=5", "", "u=0", "u=7", "u=1"], 20);
    assert_eq!(turns(&mut talk, 10, 99), "5 5* 9 9* 3 3* 1 1* 7 7*");
}

#[test]
fn one_after_the_other_by_their_numbers() {
    let mut talk = Talk::open(H2Settings::default());
    for id in [1, 3, 5, 7] {
        talk.tell(&get(id, "/", &[]));
    }
    for id in [5, 1, 7, 3] {
        talk.answer(id, 20);
    }
    assert_eq!(turns(&mut talk, 10, 99), "1 1* 3 3* 5 5* 7 7*");
}

#[test]
fn parts_take_turns() {
    let mut talk = asked(&["i", "i", "i"], 30);
    assert_eq!(turns(&mut talk, 10, 99), "1 3 5 1 3 5 1* 3* 5*");
}

#[test]
fn neither_kind_starves() {
    // RFC 9218 leaves the order of the two kinds open; alternation serves both.
    let mut talk = asked(&["", "i", "", "i"], 30);
    assert_eq!(turns(&mut talk, 10, 99), "1 3 1 7 1* 3 5 7 5 3* 5* 7*");
}

#[test]
fn who_has_no_window_keeps_nobody_waiting() {
    // A blocked stream leaves the queue, however urgent it is.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&[get(1, "/", &priority("u=0")), get(3, "/", &[])].concat());
    talk.answer(1, 70_000);
    talk.answer(3, 20);
    talk.tell(&window(0, 100_000));
    assert_eq!(turns(&mut talk, 65_535, 9), "1 1 1 1 3*");
    talk.tell(&window(1, 100_000));
    assert_eq!(turns(&mut talk, 65_535, 9), "1*");
}

#[test]
fn priorities_change() {
    let mut talk = asked(&["", "", ""], 20);
    let update = |id: u8, value: &str| {
        let payload = [&[0, 0, 0, id], value.as_bytes()].concat();
        frame_of(kind::PRIORITY_UPDATE, 0, 0, &payload)
    };
    assert_eq!(turns(&mut talk, 10, 1), "1");
    talk.tell(&[update(5, "u=1"), update(1, "u=6, i")].concat());
    assert_eq!(turns(&mut talk, 10, 99), "5 5* 3 3* 1*");
    // PRIORITY_UPDATE for an idle stream overrides the Priority field of its request.
    talk.tell(
        &[
            update(9, "u=1"),
            get(7, "/", &[]),
            get(9, "/", &priority("u=6")),
        ]
        .concat(),
    );
    talk.answer(7, 5);
    talk.answer(9, 5);
    assert_eq!(turns(&mut talk, 10, 99), "9* 7*");
}

#[test]
fn bodies_that_come_bit_by_bit() {
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    let (server, out) = (&mut talk.server, &mut talk.out);
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
    assert_eq!(turns(&mut talk, 10, 9), "3");
    assert_eq!(talk.server.body(StreamId(1), 4), Ok(true));
    assert_eq!(talk.server.end(StreamId(3), FieldLines::NONE), Ok(()));
    assert_eq!(turns(&mut talk, 10, 9), "1 3*");
    assert_eq!(talk.server.end(StreamId(1), FieldLines::NONE), Ok(()));
    assert_eq!(turns(&mut talk, 10, 9), "1*");
    assert!(talk.server.is_idle());
}

#[test]
fn streams_that_end_leave_the_lists_whole() {
    // The queue links streams through their slots, which are reused.
    // Random operations from a seed: every body is sent exactly once.
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&window(0, 0x4000_0000));
    let (mut next, mut due) = (1, alloc::collections::BTreeMap::new());
    for _ in 0..20_000 {
        match draw(6) {
            0 | 1 if due.len() < 100 => {
                let value = format!("u={}{}", draw(8), if draw(2) == 0 { ", i" } else { "" });
                talk.tell(&get(next, "/", &priority(&value)));
                let len = 1 + draw(50);
                talk.answer(next, len);
                due.insert(next, len);
                next += 2;
            }
            2 if draw(20) == 0 => {
                let Some(id) = due.keys().nth(draw(10) as usize).copied() else {
                    continue;
                };
                due.remove(&id);
                talk.server
                    .reset(StreamId(id), ErrorCode::CANCEL, &mut talk.out);
            }
            3 => {
                let id = (next - 2 * draw(50).min(u64::from(next) / 2) as u32).max(1) | 1;
                let payload = [&id.to_be_bytes()[..], format!("u={}", draw(8)).as_bytes()].concat();
                talk.tell(&frame_of(kind::PRIORITY_UPDATE, 0, 0, &payload));
                talk.now_ms += 10;
            }
            _ => {
                let Some(piece) = talk.server.send(1 + draw(20) as usize, &mut talk.out) else {
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
        talk.out.clear();
    }
    assert!(next > 5000);
}
