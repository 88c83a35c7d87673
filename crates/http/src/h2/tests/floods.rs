//! Floods: input that costs the server more than the client, and the end of the connection.

use lowroad_limits::{CellRate, RequestRate};

use super::*;

/// The input of each round, by its number.
type Input = fn(u32) -> Vec<u8>;

/// Sends input repeatedly until the connection ends. Returns the number of rounds.
fn until_the_end(talk: &mut Talk, max: usize, mut input: impl FnMut(u32) -> Vec<u8>) -> usize {
    for round in 0..max {
        let heard = talk.tell(&input(round as u32));
        if heard.ends_with("fault ENHANCE_YOUR_CALM") {
            assert!(talk.heard().ends_with("ENHANCE_YOUR_CALM"));
            assert_eq!((talk.counters.ended, talk.counters.floods), (1, 1));
            return round;
        }
        assert!(!heard.contains("fault"), "{heard}");
        // The output is not needed here.
        talk.out.clear();
    }
    max
}

#[test]
fn rapid_reset() {
    let mut talk = Talk::open(H2Settings::default());
    let rounds = until_the_end(&mut talk, 3000, |round| {
        let id = round * 2 + 1;
        [get(id, "/", &[]), reset(id)].concat()
    });
    // By then 128 slots are occupied, since `done` was not called; each further stream is refused, and then reset.
    assert_eq!(rounds, 128 + (1000 - 128) / 2);
    assert_eq!(talk.server.streams(), 128);
    assert!(talk.counters.refused > 400 && talk.counters.resets > 400);
}

#[test]
fn rapid_reset_where_work_ends_at_once() {
    let mut talk = Talk::open(H2Settings::default());
    for id in (0..1000).map(|number| number * 2 + 1) {
        talk.tell(&[get(id, "/", &[]), reset(id)].concat());
        talk.server
            .release_reset_stream(StreamId(id), &mut talk.out);
    }
    assert_eq!(talk.counters.refused, 0);
    // Half a minute refills the whole budget.
    talk.now_ms += 31_000;
    for id in (1000..2000).map(|number| number * 2 + 1) {
        let heard = talk.tell(&[get(id, "/", &[]), reset(id)].concat());
        assert!(heard.ends_with("reset CANCEL"), "{heard}");
        talk.server
            .release_reset_stream(StreamId(id), &mut talk.out);
    }
    assert_eq!(
        talk.tell(&[get(5001, "/", &[]), reset(5001)].concat())
            .split(", ")
            .last(),
        Some("fault ENHANCE_YOUR_CALM")
    );
}

#[test]
fn made_you_reset() {
    let mut talk = Talk::open(H2Settings::default());
    // The client makes the server reset each stream, by a window that overflows; the work goes on.
    let rounds = until_the_end(&mut talk, 3000, |round| {
        let id = round * 2 + 1;
        [get(id, "/", &[]), window(id, 0x7fff_ffff)].concat()
    });
    assert_eq!(rounds, 1000, "one budget for all");
    assert_eq!(
        talk.server.streams(),
        128,
        "slots are free when the work has ended"
    );
}

#[test]
fn frames_of_little_use() {
    let many = 10_000; // the default of `H2Settings::glitches`
    // Each PING and SETTINGS is acknowledged, so a flood of them would also fill the output.
    let ping = |_| frame_of(kind::PING, 0, 0, b"12345678");
    let settings = |_| {
        let mut out = Vec::new();
        frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 1)], &mut out);
        out
    };
    let empty = |_| data(1, b"", false);
    let priority = |_| frame_of(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 1]);
    let update = |_| frame_of(kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1");
    let tiny = |_| window(1, 1);
    let unknown = |_| frame_of(77, 0, 1, b"");
    let kinds: [(&str, Input); 7] = [
        ("ping", ping),
        ("settings", settings),
        ("empty data", empty),
        ("priority", priority),
        ("priority update", update),
        ("tiny windows", tiny),
        ("unknown", unknown),
    ];
    for (what, input) in kinds {
        let mut talk = Talk::open(H2Settings::default());
        talk.tell(&post(1, &[]));
        let rounds = until_the_end(&mut talk, 20_000, input);
        assert!((many - 10..=many).contains(&rounds), "{what}: {rounds}");
    }
}

#[test]
fn windows_that_are_used_are_no_flood() {
    // A normal download sends two window updates for each few frames.
    let settings = H2Settings {
        glitches: CellRate::new(RequestRate {
            requests: 1,
            period_ms: 1000,
            burst: 20,
        }),
        ..H2Settings::default()
    };
    let mut talk = Talk::open(settings);
    talk.tell(&get(1, "/", &[]));
    talk.answer(1, 10_000_000);
    for _ in 0..1000 {
        assert_eq!(talk.tell(&[window(0, 1000), window(1, 1000)].concat()), "");
        talk.send(16_384);
    }
    // Tiny frames are glitches.
    let rounds = until_the_end(&mut talk, 100, |_| [window(0, 1), window(1, 1)].concat());
    assert!(rounds < 25, "{rounds}");
}

#[test]
fn continuation() {
    // Empty CONTINUATION frames cost work without using any length limit, so their number is bounded, too.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&frame_of(
        kind::HEADERS,
        0,
        1,
        &block(&[(":method", "GET")]),
    ));
    let rounds = until_the_end(&mut talk, 100, |_| frame_of(kind::CONTINUATION, 0, 1, b""));
    assert_eq!(rounds, 8);
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&frame_of(kind::HEADERS, 0, 1, &[0x82]));
    let large = alloc::vec![0; 16_384];
    let rounds = until_the_end(&mut talk, 100, |_| {
        frame_of(kind::CONTINUATION, 0, 1, &large)
    });
    assert_eq!(rounds, 3, "64 KB");
}

#[test]
fn a_block_that_is_small_and_means_much() {
    let mut talk = Talk::open(H2Settings::default());
    // The HPACK bomb: one field of 4,000 bytes in the table, then its index repeatedly.
    let mut bomb = block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/"),
    ]);
    bomb.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bomb.extend(core::iter::repeat_n(b'b', 4000));
    bomb.extend(core::iter::repeat_n(0xbe, 12_000));
    let heard = talk.tell(&frame_of(kind::HEADERS, 5, 1, &bomb));
    assert_eq!(heard, "1 refused HeadTooLarge");
    // The tables are still equal on both sides.
    let mut next = block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/"),
    ]);
    next.push(0xbe);
    let heard = talk.tell(&frame_of(kind::HEADERS, 5, 3, &next));
    assert!(heard.starts_with("3 Get / h [a: bbbb"), "{heard}");
}

#[test]
fn more_streams_than_there_may_be() {
    // REFUSED_STREAM lets the client try again (RFC 9113 §8.7).
    let settings = H2Settings {
        streams_max: 2,
        ..H2Settings::default()
    };
    let mut talk = Talk::open(settings);
    talk.tell(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    assert_eq!(talk.tell(&get(5, "/", &[])), "");
    assert_eq!(talk.heard(), "5 reset REFUSED_STREAM");
    talk.answer(1, 0);
    assert!(talk.tell(&get(7, "/", &[])).starts_with("7 Get"));
}
