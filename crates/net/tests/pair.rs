//! Two stacks that communicate with each other.

mod common;

use common::{Answer, RecordingService, TestNetwork, WireFaults, text};
use lowroad_net::{ConnectionEnd, DeviceOffload};

fn server(world: &mut TestNetwork, body: &'static [u8], sums: &'static [u16]) {
    world.sides[0].user = RecordingService {
        answer: Some(Answer {
            head: b"HTTP/1.1 200 OK\r\n\r\n",
            body,
            sums,
        }),
        closes_when_finished: true,
        ..RecordingService::default()
    };
}

#[test]
fn request_is_answered_and_both_connections_end() {
    let mut world = TestNetwork::plain(1);
    let body = text(1000);
    server(&mut world, body, &[]);
    let id = world.connect();
    assert!(world.until(1_000_000, |world| !world.sides[1].user.opened.is_empty()));
    let now_us = world.now_us;
    assert!(world.sides[1].send(now_us, id, b"GET /\n"));
    assert!(world.until(
        1_000_000,
        |world| world.sides[1].user.input[&id.index].len() == 1019
    ));
    assert_eq!(&world.sides[1].user.input[&id.index][19..], body);
    // Head and body are sent in one frame, together with the ACK.
    assert!(world.sides[0].wire.parts.contains(&(19, 1000)));
    let now_us = world.now_us;
    world.sides[1].close(now_us, id);
    assert!(world.until(1_000_000, |world| {
        world.sides.iter().all(|side| side.stack.open_count() == 0)
    }));
    for side in &world.sides {
        assert_eq!(side.user.ended.len(), 1);
        assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed);
        assert_eq!(side.user.sent, 1);
        assert_eq!(side.stack.free_buffers(), (64, 8));
        assert_eq!(side.counter("retransmitted"), 0);
    }
}

/// Downloads and uploads at the same time, until both connections end.
fn exchange(seed: u64, weather: WireFaults, offload: DeviceOffload) {
    let mut world = TestNetwork::plain(seed);
    world.weather = weather;
    world.sides[0].wire.offload = offload;
    let body = text(300_000);
    let sums: &'static [u16] = match seed % 2 {
        0 => Vec::leak(lowroad_net::sums(body)),
        _ => &[],
    };
    server(&mut world, body, sums);
    // A slow reader closes only after it has consumed all input.
    let is_slow = seed.is_multiple_of(3);
    world.sides[0].user.take_max = is_slow.then_some(500);
    world.sides[0].user.closes_when_finished = !is_slow;
    let id = world.connect();
    assert!(
        world.until(60_000_000, |world| !world.sides[1].user.opened.is_empty()),
        "seed {seed}"
    );
    let upload = text(100_000);
    let mut at = 0;
    while at < upload.len() {
        let part = &upload[at..upload.len().min(at + 20_000)];
        let now_us = world.now_us;
        if world.sides[1].send(now_us, id, part) {
            at += part.len();
        } else {
            world.until(100_000, |_| false);
            resume(&mut world);
        }
    }
    let now_us = world.now_us;
    assert!(world.sides[1].send(now_us, id, b"\n"), "seed {seed}");
    world.sides[1].close(now_us, id);
    world.collect();
    // Input after the client's close is dropped, so the client does not receive the body.
    let mut left = 3000;
    while world.sides.iter().any(|side| side.stack.open_count() > 0) && left > 0 {
        world.until(50_000, |world| {
            world.sides.iter().all(|side| side.stack.open_count() == 0)
        });
        resume(&mut world);
        left -= 1;
    }
    let server = &world.sides[0].user;
    let got = server.input.values().next().expect("a connection");
    assert_eq!(got.len(), 100_001, "seed {seed}");
    assert!(got[..100_000] == upload[..], "seed {seed}");
    // The client's data is acknowledged; the client resets a response that continues for long after its close.
    let is_reset = world.sides[1].counter("data_after_close") > 0;
    let ends = match is_reset {
        true => [ConnectionEnd::Reset, ConnectionEnd::Closed],
        false => [ConnectionEnd::Closed; 2],
    };
    for (side, end) in world.sides.iter().zip(ends) {
        assert_eq!(side.stack.open_count(), 0, "seed {seed}");
        assert_eq!(side.user.ended[0].1, end, "seed {seed}");
        assert_eq!(side.stack.free_buffers(), (64, 8), "seed {seed}");
    }
}

fn resume(world: &mut TestNetwork) {
    use lowroad_net::StackCalls;
    let now_us = world.now_us;
    let side = &mut world.sides[0];
    let Some((id, _)) = side.user.opened.first().copied() else {
        return;
    };
    let is_all = side.user.input[&id.index].len() == 100_001;
    side.stack
        .calls(now_us, &mut side.wire, &mut side.user, |_, calls| {
            calls.resume(id);
            if is_all {
                calls.close(id);
            }
        });
    world.collect();
}

/// Sequential downloads of several lengths arrive complete.
fn download(seed: u64, weather: WireFaults, offload: DeviceOffload) {
    let mut world = TestNetwork::plain(seed);
    world.weather = weather;
    world.sides[0].wire.offload = offload;
    let body = text(200_000);
    let sums: &'static [u16] = Vec::leak(lowroad_net::sums(body));
    server(
        &mut world,
        body,
        if seed.is_multiple_of(2) { sums } else { &[] },
    );
    let id = world.connect();
    assert!(
        world.until(60_000_000, |world| !world.sides[1].user.opened.is_empty()),
        "seed {seed}"
    );
    for _ in 0..3 {
        let now_us = world.now_us;
        if let Some(input) = world.sides[1].user.input.get_mut(&id.index) {
            input.clear();
        }
        assert!(world.sides[1].send(now_us, id, b"GET /\n"));
        let whole = 19 + body.len();
        let came = world.until(100_000_000, |world| {
            world.sides[1].user.input[&id.index].len() >= whole
        });
        let input = &world.sides[1].user.input[&id.index];
        assert!(came, "seed {seed}: {} of {whole}", input.len());
        assert!(&input[19..] == body, "seed {seed}");
    }
    let now_us = world.now_us;
    world.sides[1].close(now_us, id);
    assert!(
        world.until(100_000_000, |world| {
            world.sides.iter().all(|side| side.stack.open_count() == 0)
        }),
        "seed {seed}"
    );
    for side in &world.sides {
        assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed, "seed {seed}");
        assert_eq!(side.stack.free_buffers(), (64, 8), "seed {seed}");
    }
}

const OFFLOADS: [DeviceOffload; 3] = [
    DeviceOffload {
        sum: false,
        segmentation: false,
    },
    DeviceOffload {
        sum: true,
        segmentation: false,
    },
    DeviceOffload {
        sum: true,
        segmentation: true,
    },
];

#[test]
fn downloads_are_complete_despite_wire_faults() {
    for seed in 1..=60 {
        let weather = WireFaults {
            lost: [0, 10, 50, 100][seed as usize % 4],
            doubled: [0, 20][seed as usize / 4 % 2],
            delayed: [0, 100][seed as usize / 8 % 2],
        };
        download(seed, weather, OFFLOADS[seed as usize % 3]);
    }
}

#[test]
fn uploads_are_complete_despite_wire_faults() {
    for seed in 1..=60 {
        let weather = WireFaults {
            lost: [0, 10, 50, 100][seed as usize % 4],
            doubled: [0, 20][seed as usize / 4 % 2],
            delayed: [0, 100][seed as usize / 8 % 2],
        };
        exchange(seed, weather, OFFLOADS[seed as usize % 3]);
    }
}
