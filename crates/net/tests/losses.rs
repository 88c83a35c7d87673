//! Each frame of an exchange is lost once, and each pair of frames: all data must arrive, and the connections must end.

mod common;

use common::{Answer, RecordingService, TestNetwork, text};
use lowroad_net::{ConnectionEnd, StackCalls};

/// Handshake, request, response, close. Returns the number of frames that each side sent.
fn exchange(lose: &[(usize, usize)], server_closes: bool, body: &'static [u8]) -> [usize; 2] {
    let mut world = TestNetwork::plain(1);
    world.lost_frames = lose.to_vec();
    world.sides[0].user = RecordingService {
        answer: Some(Answer {
            head: b"head ",
            body,
            sums: &[],
        }),
        closes_when_finished: true,
        closes_after_answer: server_closes,
        ..RecordingService::default()
    };
    world.sides[1].user.closes_when_finished = true;
    let id = world.connect();
    let says = format!("lost {lose:?}, server closes: {server_closes}");
    assert!(
        world.until(60_000_000, |world| !world.sides[1].user.opened.is_empty()),
        "{says}"
    );
    let now_us = world.now_us;
    assert!(world.sides[1].send(now_us, id, b"GET /\n"));
    let whole = body.len() + 5;
    assert!(
        world.until(60_000_000, |world| world.sides[1].user.input[&id.index]
            .len()
            >= whole),
        "{says}"
    );
    assert!(&world.sides[1].user.input[&id.index][5..] == body, "{says}");
    if !server_closes {
        let now_us = world.now_us;
        world.sides[1].close(now_us, id);
    }
    assert!(
        world.until(100_000_000, |world| {
            world.sides.iter().all(|side| side.stack.open_count() == 0)
        }),
        "{says}"
    );
    for side in &world.sides {
        assert_eq!(side.user.ended.len(), 1, "{says}");
        assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed, "{says}");
        assert_eq!(side.stack.free_buffers(), (64, 8), "{says}");
    }
    world.seen
}

#[test]
fn loss_of_any_one_or_two_frames_is_repaired() {
    let body = text(6000);
    for server_closes in [false, true] {
        let seen = exchange(&[], server_closes, body);
        let all: Vec<(usize, usize)> = (0..2)
            // Retransmissions may make an exchange longer than without losses.
            .flat_map(|side| (0..seen[side] + 2).map(move |number| (side, number)))
            .collect();
        for (i, first) in all.iter().enumerate() {
            exchange(&[*first], server_closes, body);
            for second in &all[i + 1..] {
                exchange(&[*first, *second], server_closes, body);
            }
        }
    }
}

#[test]
fn lost_segment_is_retransmitted_without_timeout() {
    // The receiver stores three out-of-order segments. No segment follows the last one, so its loss could not be
    // detected.
    for place in 3..6 {
        let mut world = TestNetwork::plain(1);
        world.sides[0].user.answer = Some(Answer {
            head: b"head ",
            body: text(1460 * 7 - 5),
            sums: &[],
        });
        let id = world.connect();
        assert!(world.until(1_000_000, |world| !world.sides[1].user.opened.is_empty()));
        // Delayed ACKs are sent first, so that the number of the next frame is known.
        world.until(100_000, |_| false);
        world.lost_frames = vec![(0, world.seen[0] + place)];
        let now_us = world.now_us;
        world.sides[1].send(now_us, id, b"GET /\n");
        assert!(world.until(5_000_000, |world| {
            world.sides[1].user.input[&id.index].len() == 1460 * 7
        }));
        let side = &world.sides[0];
        let counted = ["timeouts", "recoveries", "retransmitted"].map(|name| side.counter(name));
        // One fast retransmission, and no timeout.
        assert_eq!(counted, [0, 1, 1], "{place}");
    }
}

#[test]
fn connections_survive_a_clock_jump() {
    for jump_us in [1_000_000, 40_000_000, 100_000_000] {
        let mut world = TestNetwork::plain(7);
        world.sides[0].user.answer = Some(Answer {
            head: b"head ",
            body: text(50_000),
            sums: &[],
        });
        let id = world.connect();
        assert!(world.until(1_000_000, |world| !world.sides[1].user.opened.is_empty()));
        let now_us = world.now_us;
        world.sides[1].send(now_us, id, b"GET /\n");
        // In the middle of the response, as if the host suspended the virtual machine.
        world.until(12_000, |_| false);
        world.now_us += jump_us;
        assert!(world.until(90_000_000, |world| {
            world.sides[1].user.input[&id.index].len() == 50_005
        }));
    }
}

#[test]
fn simultaneous_open() {
    use std::net::SocketAddrV4;
    let mut world = TestNetwork::plain(3);
    // Each side connects from the port that the other side connects to. A probe reveals the next port of a stack.
    let probe = world.sides.each_mut().map(|side| {
        let to = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 77), 1);
        side.connect(1_000_000, to);
        side.wire.frames.clear();
        0
    });
    assert_eq!(probe, [0, 0]);
    let ports = world.sides.each_mut().map(next_port);
    let to = [
        // Ports are used in order, so the next port follows the probe's.
        SocketAddrV4::new(common::CLIENT, ports[1] + 1),
        SocketAddrV4::new(common::SERVER, ports[0] + 1),
    ];
    for (side, to) in world.sides.iter_mut().zip(to) {
        let id = side.connect(1_000_000, to);
        assert!(side.send(1_000_000, id, b"hello"));
    }
    world.collect();
    assert!(world.until(30_000_000, |world| {
        world
            .sides
            .iter()
            .all(|side| side.user.input.values().any(|input| input == b"hello"))
    }));
    for side in &world.sides {
        assert!(
            side.user
                .opened
                .iter()
                .all(|(_, opened)| opened.is_active_open)
        );
    }
}

/// The port of the last outgoing connection.
fn next_port(side: &mut common::Side) -> u16 {
    let to = std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 78), 1);
    let id = side.connect(1_000_000, to);
    let mut reply = vec![0; 42];
    let (ours, theirs) = match side.stack.address().expect("one").0 {
        common::SERVER => (common::SERVER_MAC, common::SERVER),
        _ => (common::CLIENT_MAC, common::CLIENT),
    };
    reply[..6].copy_from_slice(&ours);
    reply[6..22].copy_from_slice(&[4, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply[22..32].copy_from_slice(&[4, 0, 0, 0, 0, 7, 10, 0, 0, 78]);
    reply[32..38].copy_from_slice(&ours);
    reply[38..42].copy_from_slice(&theirs.octets());
    side.receive(1_000_000, &reply);
    let frames = std::mem::take(&mut side.wire.frames);
    let syn = frames
        .iter()
        .find(|frame| common::is_tcp(frame))
        .expect("a SYN");
    let port = u16::from_be_bytes([syn[34], syn[35]]);
    side.stack
        .calls(1_000_000, &mut side.wire, &mut side.user, |_, calls| {
            calls.abort(id)
        });
    port
}
