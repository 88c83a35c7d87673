//! A million mutated frames of real exchanges must cause no panic and lose no buffer.

mod common;

use common::{
    Answer, CLIENT, CLIENT_MAC, Random, RecordingService, SERVER, SERVER_MAC, Side, TestNetwork,
    repair,
};
use common::{settings, text};
use lowroad_net::{AddressSource, SendPiece, StackCalls, StackSettings};
use std::net::SocketAddrV4;

/// The frames that the server receives in an exchange with losses.
fn real() -> Vec<Vec<u8>> {
    let mut world = TestNetwork::plain(5);
    world.weather.lost = 50;
    world.sides[0].user = RecordingService {
        answer: Some(Answer {
            head: b"head ",
            body: text(30_000),
            sums: &[],
        }),
        closes_when_finished: true,
        ..RecordingService::default()
    };
    for _ in 0..3 {
        let id = world.connect();
        world.until(20_000_000, |world| {
            world.sides[1].user.opened.iter().any(|it| it.0 == id)
        });
        let now_us = world.now_us;
        world.sides[1].send(now_us, id, &[b'x'; 3000]);
        world.sides[1].send(now_us, id, b"\n");
        world.until(3_000_000, |_| false);
        let now_us = world.now_us;
        world.sides[1].close(now_us, id);
        world.until(3_000_000, |_| false);
    }
    let log = std::mem::take(&mut world.log);
    log.into_iter()
        .filter(|it| it.0 == 1)
        .map(|it| it.1)
        .collect()
}

fn mutate(random: &mut Random, frame: &mut Vec<u8>, numbers: &[([u8; 2], u32, u32)]) {
    for _ in 0..random.below(4) {
        if frame.is_empty() {
            break;
        }
        let at = random.below(frame.len() as u64) as usize;
        match random.below(6) {
            0 => frame.truncate(at),
            1 => frame[at] ^= 1 << random.below(8),
            2 => frame[at] = random.next() as u8,
            3 => frame.extend_from_within(at..),
            _ => {
                // Frames with valid sequence numbers pass more checks.
                let at = [36, 38, 42, 47, 48, 54][random.below(6) as usize].min(frame.len() - 1);
                frame[at] ^= random.next() as u8 & random.next() as u8;
            }
        }
    }
    frame.truncate(1514);
    if frame.len() >= 54 && frame[12..14] == [8, 0] && frame[23] == 6 {
        if random.with_chance(700) && !numbers.is_empty() {
            let (port, seq, ack) = numbers[random.below(numbers.len() as u64) as usize];
            let near = |random: &mut Random| match random.below(3) {
                0 => 0,
                1 => random.below(5000) as u32,
                _ => (random.below(5000) as u32).wrapping_neg(),
            };
            let seq = seq.wrapping_add(near(random));
            let ack = ack.wrapping_add(near(random));
            frame[34..36].copy_from_slice(&port);
            frame[38..42].copy_from_slice(&seq.to_be_bytes());
            frame[42..46].copy_from_slice(&ack.to_be_bytes());
        }
        // Frames with wrong checksums are dropped early, so most get correct ones.
        if random.with_chance(950) {
            repair(frame);
        }
    }
}

fn garbage(seed: u64, count: usize, address: AddressSource) {
    let mut random = Random(seed * 77 + 1);
    let real = real();
    let mut side = Side::new(StackSettings {
        address,
        idle_timeout_ms: 5000,
        ..settings(SERVER, SERVER_MAC)
    });
    let free = side.stack.free_buffers();
    // Part of the input stays unread, so that input buffers are used.
    side.user.take_max = Some(900);
    side.user.closes_when_finished = seed.is_multiple_of(2);
    let mut now_us = 1_000_000;
    let mut numbers: Vec<([u8; 2], u32, u32)> = Vec::new();
    for i in 0..count {
        let mut frame = real[random.below(real.len() as u64) as usize].clone();
        if frame.len() > 36 && frame[12..14] == [8, 0] {
            // Few ports, so that segments match existing connections.
            frame[34..36].copy_from_slice(&(5000 + random.below(40) as u16).to_be_bytes());
        }
        mutate(&mut random, &mut frame, &numbers);
        side.receive(now_us, &frame);
        for sent in std::mem::take(&mut side.wire.frames) {
            if common::is_tcp(&sent) {
                let word =
                    |at: usize| u32::from_be_bytes(sent[at..at + 4].try_into().expect("four"));
                let port = [sent[36], sent[37]];
                let new = (
                    port,
                    word(42),
                    word(38).wrapping_add(u32::from(sent[47] & 2 != 0)),
                );
                match numbers.len() {
                    64 => numbers[random.below(64) as usize] = new,
                    _ => numbers.push(new),
                }
            }
        }
        act(&mut side, &mut random, now_us);
        if random.with_chance(100) {
            now_us += random.below(20_000);
            side.tick(now_us);
        }
        // The record of callbacks would grow without limit.
        if i % 1000 == 0 {
            side.user.input.clear();
            let last = side.user.opened.len().saturating_sub(40);
            side.user.opened.drain(..last);
            side.user.ended.clear();
        }
    }
    assert!(side.counter("opened_passive") > 50 || side.stack.address().is_none());
    for _ in 0..200 {
        now_us += 1_000_000;
        side.tick(now_us);
    }
    assert_eq!(
        (side.stack.open_count(), side.stack.free_buffers()),
        (0, free),
        "seed {seed}"
    );
}

/// A random operation of the service.
fn act(side: &mut Side, random: &mut Random, now_us: u64) {
    if side.user.opened.is_empty() || !random.with_chance(200) {
        return;
    }
    let id = side.user.opened[random.below(side.user.opened.len() as u64) as usize].0;
    let what = random.below(40);
    let len = random.below(3000) as usize;
    side.stack.calls(
        now_us,
        &mut side.wire,
        &mut side.user,
        |_, calls| match what {
            0 => calls.abort(id),
            1 => calls.close(id),
            2 => {
                let _ = calls.connect(SocketAddrV4::new(CLIENT, 4000));
            }
            3..10 => calls.resume(id),
            _ => {
                let _ = calls.send(id, SendPiece::Copied(&[7; 3000][..len]));
            }
        },
    );
}

#[test]
fn mutated_frames_cause_no_panic_and_lose_no_buffer() {
    for seed in 1..=10 {
        let address = settings(SERVER, SERVER_MAC).address;
        garbage(seed, 90_000, address);
    }
    garbage(11, 100_000, AddressSource::Dhcp);
    assert_ne!(CLIENT_MAC, SERVER_MAC);
}
