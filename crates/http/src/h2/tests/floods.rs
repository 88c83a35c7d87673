//! Floods: input that costs the server more than the client must end the connection.

use lowroad_limits::{CellRate, RequestRate};

use super::*;

/// The input of a round, by the number of the round.
type Input = fn(u32) -> Vec<u8>;

/// Sends input repeatedly until the connection ends. Returns the number of rounds.
fn rounds_until_connection_ends(
    harness: &mut ServerHarness,
    max: usize,
    mut input: impl FnMut(u32) -> Vec<u8>,
) -> usize {
    for round in 0..max {
        let heard = harness.receive(&input(round as u32));
        if heard.ends_with("fault ENHANCE_YOUR_CALM") {
            assert!(harness.take_output().ends_with("ENHANCE_YOUR_CALM"));
            assert_eq!((harness.counters.ended, harness.counters.floods), (1, 1));
            return round;
        }
        assert!(!heard.contains("fault"), "{heard}");
        // The output is not needed.
        harness.out.clear();
    }
    max
}

#[test]
fn rapid_reset_is_limited() {
    let mut harness = ServerHarness::open(H2Settings::default());
    let rounds = rounds_until_connection_ends(&mut harness, 3000, |round| {
        let id = round * 2 + 1;
        [get(id, "/", &[]), reset(id)].concat()
    });
    // By then 128 slots are occupied, since `release_reset_stream` was not called; each further stream is refused, and
    // then reset.
    assert_eq!(rounds, 128 + (1000 - 128) / 2);
    assert_eq!(harness.server.streams(), 128);
    assert!(harness.counters.refused > 400 && harness.counters.resets > 400);
}

#[test]
fn rapid_reset_with_immediately_released_streams() {
    let mut harness = ServerHarness::open(H2Settings::default());
    for id in (0..1000).map(|number| number * 2 + 1) {
        harness.receive(&[get(id, "/", &[]), reset(id)].concat());
        harness
            .server
            .release_reset_stream(StreamId(id), &mut harness.out);
    }
    assert_eq!(harness.counters.refused, 0);
    // The budget is fully refilled after half a minute.
    harness.now_ms += 31_000;
    for id in (1000..2000).map(|number| number * 2 + 1) {
        let heard = harness.receive(&[get(id, "/", &[]), reset(id)].concat());
        assert!(heard.ends_with("reset CANCEL"), "{heard}");
        harness
            .server
            .release_reset_stream(StreamId(id), &mut harness.out);
    }
    assert_eq!(
        harness
            .receive(&[get(5001, "/", &[]), reset(5001)].concat())
            .split(", ")
            .last(),
        Some("fault ENHANCE_YOUR_CALM")
    );
}

#[test]
fn made_you_reset_attack_is_limited() {
    let mut harness = ServerHarness::open(H2Settings::default());
    // The client makes the server reset each stream, by a window overflow; the work for the streams continues.
    let rounds = rounds_until_connection_ends(&mut harness, 3000, |round| {
        let id = round * 2 + 1;
        [get(id, "/", &[]), window(id, 0x7fff_ffff)].concat()
    });
    assert_eq!(rounds, 1000, "one budget for all");
    assert_eq!(
        harness.server.streams(),
        128,
        "slots are free when the work has ended"
    );
}

#[test]
fn glitch_frames_are_limited() {
    let many = 10_000; // the default of `H2Settings::glitches`
    // Each PING and SETTINGS frame is acknowledged, so a flood of them would also fill the output.
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
        let mut harness = ServerHarness::open(H2Settings::default());
        harness.receive(&post(1, &[]));
        let rounds = rounds_until_connection_ends(&mut harness, 20_000, input);
        assert!((many - 10..=many).contains(&rounds), "{what}: {rounds}");
    }
}

#[test]
fn window_updates_of_a_download_are_not_glitches() {
    // A normal download sends two window updates per few frames.
    let settings = H2Settings {
        glitches: CellRate::new(RequestRate {
            requests: 1,
            period_ms: 1000,
            burst: 20,
        }),
        ..H2Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    harness.receive(&get(1, "/", &[]));
    harness.respond(1, 10_000_000);
    for _ in 0..1000 {
        assert_eq!(
            harness.receive(&[window(0, 1000), window(1, 1000)].concat()),
            ""
        );
        harness.send(16_384);
    }
    // Window updates after tiny frames are glitches.
    let rounds =
        rounds_until_connection_ends(&mut harness, 100, |_| [window(0, 1), window(1, 1)].concat());
    assert!(rounds < 25, "{rounds}");
}

#[test]
fn continuation_flood_is_limited() {
    // Empty CONTINUATION frames cost work without reaching any length limit, so their number is limited, too.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&frame_of(
        kind::HEADERS,
        0,
        1,
        &block(&[(":method", "GET")]),
    ));
    let rounds = rounds_until_connection_ends(&mut harness, 100, |_| {
        frame_of(kind::CONTINUATION, 0, 1, b"")
    });
    assert_eq!(rounds, 8);
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&frame_of(kind::HEADERS, 0, 1, &[0x82]));
    let large = alloc::vec![0; 16_384];
    let rounds = rounds_until_connection_ends(&mut harness, 100, |_| {
        frame_of(kind::CONTINUATION, 0, 1, &large)
    });
    assert_eq!(rounds, 3, "64 KB");
}

#[test]
fn hpack_bomb_is_refused() {
    let mut harness = ServerHarness::open(H2Settings::default());
    // HPACK bomb: one field of 4,000 bytes in the dynamic table, then its index repeatedly.
    let mut bomb = block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/"),
    ]);
    bomb.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    bomb.extend(core::iter::repeat_n(b'b', 4000));
    bomb.extend(core::iter::repeat_n(0xbe, 12_000));
    let heard = harness.receive(&frame_of(kind::HEADERS, 5, 1, &bomb));
    assert_eq!(heard, "1 refused HeadTooLarge");
    // The dynamic tables of both sides are still synchronized.
    let mut next = block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/"),
    ]);
    next.push(0xbe);
    let heard = harness.receive(&frame_of(kind::HEADERS, 5, 3, &next));
    assert!(heard.starts_with("3 Get / h [a: bbbb"), "{heard}");
}

#[test]
fn streams_over_the_limit_are_refused() {
    // After REFUSED_STREAM the client may retry (RFC 9113 §8.7).
    let settings = H2Settings {
        streams_max: 2,
        ..H2Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    harness.receive(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    assert_eq!(harness.receive(&get(5, "/", &[])), "");
    assert_eq!(harness.take_output(), "5 reset REFUSED_STREAM");
    harness.respond(1, 0);
    assert!(harness.receive(&get(7, "/", &[])).starts_with("7 Get"));
}
