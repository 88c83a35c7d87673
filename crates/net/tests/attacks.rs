//! Attacks by one peer against the connections of other peers.

mod common;

use common::peer::{ACK, Peer, PeerSegment, RST, SYN, sent_segments};
use common::{Answer, CLIENT, RecordingService, SERVER, SERVER_MAC, Side, settings, text};
use lowroad_net::{ConnectionEnd, StackSettings};
use std::net::SocketAddrV4;

const SECOND_US: u64 = 1_000_000;

fn server(body: &'static [u8]) -> Side {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    side.user = RecordingService {
        answer: Some(Answer {
            head: b"head ",
            body,
            sums: &[],
        }),
        ..RecordingService::default()
    };
    side
}

fn segment(seq: u32, ack: u32, window: u16, payload: &[u8]) -> PeerSegment {
    PeerSegment {
        seq,
        ack,
        flags: ACK,
        window,
        payload: payload.to_vec(),
        ..PeerSegment::default()
    }
}

fn syn(seq: u32) -> PeerSegment {
    PeerSegment {
        seq,
        flags: SYN,
        window: 65_535,
        ..PeerSegment::default()
    }
}

fn peers(count: u16) -> Vec<Peer> {
    let peer = |port| Peer {
        port: 6000 + port,
        ..Peer::default()
    };
    (0..count).map(peer).collect()
}

#[test]
fn forged_syn_does_not_prevent_a_handshake() {
    let mut side = server(b"");
    // Many peers, so that the handshake is tested at every position in its row.
    for peer in peers(100) {
        let first = peer.exchange(&mut side, SECOND_US, &syn(5));
        // The same four-tuple with another number, as an attacker would forge it.
        let forged = peer.exchange(&mut side, SECOND_US, &syn(77_777));
        assert_eq!(forged[0].flags, SYN | ACK);
        let (seq, nxt) = (6, first[0].seq.wrapping_add(1));
        // The first handshake completes by its SYN cookie.
        assert_eq!(
            peer.exchange(&mut side, SECOND_US, &segment(seq, nxt, 65_535, b"")),
            []
        );
        let count = side.user.opened.len();
        assert_eq!(side.user.opened[count - 1].1.peer.port(), peer.port);
        peer.exchange(
            &mut side,
            SECOND_US,
            &PeerSegment {
                flags: RST,
                ..segment(seq, nxt, 0, b"")
            },
        );
    }
    assert_eq!(side.user.opened.len(), 100);
}

#[test]
fn handshake_uses_the_newest_syn_of_a_port() {
    let mut side = server(b"");
    let all = peers(2000);
    for peer in &all {
        peer.exchange(&mut side, SECOND_US, &syn(5));
        // Some handshakes of each row complete or are reset.
        if peer.port % 3 == 0 {
            let gone = PeerSegment {
                flags: RST,
                ..segment(6, 0, 0, b"")
            };
            peer.exchange(&mut side, SECOND_US, &gone);
        }
    }
    for peer in &all {
        // After 200 seconds the first handshakes have expired.
        let answer = peer.exchange(&mut side, 200 * SECOND_US, &syn(9000));
        let nxt = answer[0].seq.wrapping_add(1);
        let answer = peer.exchange(&mut side, 200 * SECOND_US, &segment(9001, nxt, 65_535, b""));
        assert_eq!(answer, [], "{}", peer.port);
        let gone = PeerSegment {
            flags: RST,
            ..segment(9001, nxt, 0, b"")
        };
        peer.exchange(&mut side, 200 * SECOND_US, &gone);
    }
    assert_eq!(side.user.opened.len(), 2000);
}

#[test]
fn stalled_connections_are_evicted_for_new_ones() {
    // Half of the peers never complete their request, half never read their response; all keep sending.
    let mut side = server(text(3000));
    let mut all = Vec::new();
    side.user.take_max = Some(0);
    for (at, peer) in peers(32).into_iter().enumerate() {
        let (seq, nxt) = peer.open(&mut side, SECOND_US, 0, &[]);
        side.user.take_max = Some(at % 2);
        peer.exchange(&mut side, SECOND_US, &segment(seq, nxt, 0, b"\n"));
        all.push((peer, seq + 1, nxt));
    }
    let late = Peer::default();
    for second in 2..5 {
        // The connections have not been stalled for 4 seconds yet.
        assert_eq!(late.exchange(&mut side, second * SECOND_US, &syn(5)), []);
        for (peer, seq, nxt) in &mut all {
            peer.exchange(&mut side, second * SECOND_US, &segment(*seq, *nxt, 0, b""));
        }
        side.tick(second * SECOND_US);
        sent_segments(&mut side);
    }
    let answer = late.exchange(&mut side, 8 * SECOND_US, &syn(5));
    assert_eq!(answer[0].flags, SYN | ACK);
    late.exchange(
        &mut side,
        8 * SECOND_US,
        &segment(6, answer[0].seq.wrapping_add(1), 65_535, b""),
    );
    assert_eq!(side.user.opened.len(), 33);
    assert_eq!(side.counter("evicted_stalled"), 1);
}

#[test]
fn outgoing_connections_are_not_evicted() {
    let mut side = server(b"");
    let id = side.connect(SECOND_US, SocketAddrV4::new(CLIENT, 3306));
    let ask = side.wire.frames.pop().expect("a question for the MAC");
    assert_eq!(ask[12..14], [8, 6]);
    let mut arp = ask.clone();
    arp[..6].copy_from_slice(&SERVER_MAC);
    arp[6..12].copy_from_slice(&common::CLIENT_MAC);
    arp[21] = 2;
    arp[22..28].copy_from_slice(&common::CLIENT_MAC);
    arp[28..32].copy_from_slice(&CLIENT.octets());
    arp[38..42].copy_from_slice(&SERVER.octets());
    side.receive(SECOND_US, &arp);
    let port = u16::from_be_bytes([side.wire.frames[0][34], side.wire.frames[0][35]]);
    let asked = sent_segments(&mut side);
    let database = Peer {
        port: 3306,
        to_port: port,
        ..Peer::default()
    };
    let answer = PeerSegment {
        flags: SYN | ACK,
        ..segment(50, asked[0].seq.wrapping_add(1), 65_535, b"")
    };
    database.exchange(&mut side, SECOND_US, &answer);
    assert_eq!(side.user.opened[0].0, id);
    for (at, peer) in peers(60).into_iter().enumerate() {
        let now_us = (2 + at as u64) * SECOND_US;
        let answer = peer.exchange(&mut side, now_us, &syn(5));
        peer.exchange(
            &mut side,
            now_us,
            &segment(6, answer[0].seq.wrapping_add(1), 65_535, b""),
        );
    }
    // There are 32 slots and 61 connections; the outgoing one is never evicted.
    assert_eq!(side.counter("evicted_idle"), 29);
    assert!(side.user.ended.iter().all(|it| it.0 != id));
}

#[test]
fn connections_with_closed_windows_lose_their_buffers() {
    let mut side = Side::new(StackSettings {
        large_buffers: 4,
        ..settings(SERVER, SERVER_MAC)
    });
    side.user.answer = Some(Answer {
        head: text(5000),
        body: b"",
        sums: &[],
    });
    let mut all = Vec::new();
    for peer in peers(4) {
        let (seq, nxt) = peer.open(&mut side, SECOND_US, 0, &[]);
        peer.exchange(&mut side, SECOND_US, &segment(seq, nxt, 0, b"\n"));
        all.push((peer, seq + 1, nxt));
    }
    assert_eq!(side.stack.free_buffers().1, 0);
    for second in 2..10 {
        side.tick(second * SECOND_US);
        sent_segments(&mut side);
        for (peer, seq, nxt) in &all {
            peer.exchange(&mut side, second * SECOND_US, &segment(*seq, *nxt, 0, b""));
        }
    }
    // Closed windows are no progress, even if ACKs keep arriving.
    assert!(side.stack.free_buffers().1 > 0);
    assert!(side.counter("evicted_stalled") > 0);
    assert!(
        side.user
            .ended
            .iter()
            .all(|it| it.1 == ConnectionEnd::TimedOut)
    );
}

#[test]
fn closed_window_ends_at_the_idle_timeout() {
    let mut side = server(text(3000));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 0, &[]);
    peer.exchange(&mut side, SECOND_US, &segment(seq, nxt, 0, b"\n"));
    // Each ACK prevents the idle timeout of 120 seconds.
    for second in 2..300 {
        side.tick(second * SECOND_US);
        sent_segments(&mut side);
        peer.exchange(
            &mut side,
            second * SECOND_US,
            &segment(seq + 1, nxt, 0, b""),
        );
    }
    assert_eq!(side.user.ended.len(), 1);
}

#[test]
fn challenge_ack_limit_is_per_connection() {
    let mut side = server(b"");
    let [stranger, other] = [peers(2)[0], peers(2)[1]];
    let (seq, nxt) = stranger.open(&mut side, SECOND_US, 65_535, &[]);
    let (other_seq, other_nxt) = other.open(&mut side, SECOND_US, 65_535, &[]);
    let mut answers = 0;
    for _ in 0..5000 {
        // Each segment is outside the window, so it causes a challenge ACK.
        let far = segment(seq.wrapping_sub(100), nxt, 65_535, b"x");
        answers += stranger.exchange(&mut side, SECOND_US, &far).len();
    }
    assert!(answers < 100, "{answers}");
    // The ACK got lost, so the peer retransmits.
    let byte = segment(other_seq, other_nxt, 65_535, b"x");
    other.exchange(&mut side, SECOND_US, &byte);
    side.tick(SECOND_US + 100_000);
    sent_segments(&mut side);
    let again = other.exchange(&mut side, SECOND_US + 100_000, &byte);
    assert_eq!((again.len(), again[0].ack), (1, other_seq + 1));
}

#[test]
fn acks_of_single_bytes_are_no_progress() {
    let mut side = Side::new(StackSettings {
        large_buffers: 4,
        ..settings(SERVER, SERVER_MAC)
    });
    side.user.answer = Some(Answer {
        head: text(5000),
        body: b"",
        sums: &[],
    });
    let mut all = Vec::new();
    for peer in peers(4) {
        let (seq, nxt) = peer.open(&mut side, SECOND_US, 1, &[]);
        peer.exchange(&mut side, SECOND_US, &segment(seq, nxt, 1, b"\n"));
        all.push((peer, seq + 1, nxt));
    }
    for second in 2..10 {
        side.tick(second * SECOND_US);
        sent_segments(&mut side);
        for (peer, seq, nxt) in &mut all {
            // One acknowledged byte a second keeps the connection alive, but is no progress.
            *nxt = nxt.wrapping_add(1);
            peer.exchange(&mut side, second * SECOND_US, &segment(*seq, *nxt, 1, b""));
        }
    }
    assert!(side.stack.free_buffers().1 > 0);
}
