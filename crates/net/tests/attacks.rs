//! Attacks of one peer against the connections of others.

mod common;

use common::peer::{ACK, Peer, RST, SYN, Said, heard};
use common::{Answer, CLIENT, SERVER, SERVER_MAC, Side, User, settings, text};
use lowroad_net::{ConnectionEnd, StackSettings};
use std::net::SocketAddrV4;

const S: u64 = 1_000_000;

fn server(body: &'static [u8]) -> Side {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    side.user = User {
        answer: Some(Answer {
            head: b"head ",
            body,
            sums: &[],
        }),
        ..User::default()
    };
    side
}

fn said(seq: u32, ack: u32, window: u16, payload: &[u8]) -> Said {
    Said {
        seq,
        ack,
        flags: ACK,
        window,
        payload: payload.to_vec(),
        ..Said::default()
    }
}

fn syn(seq: u32) -> Said {
    Said {
        seq,
        flags: SYN,
        window: 65_535,
        ..Said::default()
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
fn a_forged_syn_does_not_displace_a_handshake() {
    let mut side = server(b"");
    // Many peers, so that the handshake is tested at every position in its row.
    for peer in peers(100) {
        let first = peer.say(&mut side, S, &syn(5));
        // The same four-tuple with another number, as an attacker would forge it.
        let forged = peer.say(&mut side, S, &syn(77_777));
        assert_eq!(forged[0].flags, SYN | ACK);
        let (seq, nxt) = (6, first[0].seq.wrapping_add(1));
        // The first handshake completes by its cookie.
        assert_eq!(peer.say(&mut side, S, &said(seq, nxt, 65_535, b"")), []);
        let count = side.user.opened.len();
        assert_eq!(side.user.opened[count - 1].1.peer.port(), peer.port);
        peer.say(
            &mut side,
            S,
            &Said {
                flags: RST,
                ..said(seq, nxt, 0, b"")
            },
        );
    }
    assert_eq!(side.user.opened.len(), 100);
}

#[test]
fn a_port_that_asks_anew_is_known_by_its_newest_syn() {
    let mut side = server(b"");
    let all = peers(2000);
    for peer in &all {
        peer.say(&mut side, S, &syn(5));
        // Some handshakes of each row complete or are reset.
        if peer.port % 3 == 0 {
            let gone = Said {
                flags: RST,
                ..said(6, 0, 0, b"")
            };
            peer.say(&mut side, S, &gone);
        }
    }
    for peer in &all {
        // After 200 seconds the first handshakes have expired.
        let answer = peer.say(&mut side, 200 * S, &syn(9000));
        let nxt = answer[0].seq.wrapping_add(1);
        let answer = peer.say(&mut side, 200 * S, &said(9001, nxt, 65_535, b""));
        assert_eq!(answer, [], "{}", peer.port);
        let gone = Said {
            flags: RST,
            ..said(9001, nxt, 0, b"")
        };
        peer.say(&mut side, 200 * S, &gone);
    }
    assert_eq!(side.user.opened.len(), 2000);
}

#[test]
fn who_fills_the_table_and_gets_nowhere_goes_for_who_comes() {
    // Half of the peers never end their request, half never read their response; all keep sending.
    let mut side = server(text(3000));
    let mut all = Vec::new();
    side.user.take_max = Some(0);
    for (at, peer) in peers(32).into_iter().enumerate() {
        let (seq, nxt) = peer.open(&mut side, S, 0, &[]);
        side.user.take_max = Some(at % 2);
        peer.say(&mut side, S, &said(seq, nxt, 0, b"\n"));
        all.push((peer, seq + 1, nxt));
    }
    let late = Peer::default();
    for second in 2..5 {
        // The connections have not been stalled for 4 seconds yet.
        assert_eq!(late.say(&mut side, second * S, &syn(5)), []);
        for (peer, seq, nxt) in &mut all {
            peer.say(&mut side, second * S, &said(*seq, *nxt, 0, b""));
        }
        side.tick(second * S);
        heard(&mut side);
    }
    let answer = late.say(&mut side, 8 * S, &syn(5));
    assert_eq!(answer[0].flags, SYN | ACK);
    late.say(
        &mut side,
        8 * S,
        &said(6, answer[0].seq.wrapping_add(1), 65_535, b""),
    );
    assert_eq!(side.user.opened.len(), 33);
    assert_eq!(side.counter("evicted_stalled"), 1);
}

#[test]
fn our_own_connections_do_not_go_for_a_visitor() {
    let mut side = server(b"");
    let id = side.connect(S, SocketAddrV4::new(CLIENT, 3306));
    let ask = side.wire.frames.pop().expect("a question for the MAC");
    assert_eq!(ask[12..14], [8, 6]);
    let mut arp = ask.clone();
    arp[..6].copy_from_slice(&SERVER_MAC);
    arp[6..12].copy_from_slice(&common::CLIENT_MAC);
    arp[21] = 2;
    arp[22..28].copy_from_slice(&common::CLIENT_MAC);
    arp[28..32].copy_from_slice(&CLIENT.octets());
    arp[38..42].copy_from_slice(&SERVER.octets());
    side.receive(S, &arp);
    let port = u16::from_be_bytes([side.wire.frames[0][34], side.wire.frames[0][35]]);
    let asked = heard(&mut side);
    let database = Peer {
        port: 3306,
        to_port: port,
        ..Peer::default()
    };
    let answer = Said {
        flags: SYN | ACK,
        ..said(50, asked[0].seq.wrapping_add(1), 65_535, b"")
    };
    database.say(&mut side, S, &answer);
    assert_eq!(side.user.opened[0].0, id);
    for (at, peer) in peers(60).into_iter().enumerate() {
        let now_us = (2 + at as u64) * S;
        let answer = peer.say(&mut side, now_us, &syn(5));
        peer.say(
            &mut side,
            now_us,
            &said(6, answer[0].seq.wrapping_add(1), 65_535, b""),
        );
    }
    // 32 places and 61 connections; the outgoing one is never evicted.
    assert_eq!(side.counter("evicted_idle"), 29);
    assert!(side.user.ended.iter().all(|it| it.0 != id));
}

#[test]
fn who_takes_nothing_does_not_keep_buffers_from_others() {
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
        let (seq, nxt) = peer.open(&mut side, S, 0, &[]);
        peer.say(&mut side, S, &said(seq, nxt, 0, b"\n"));
        all.push((peer, seq + 1, nxt));
    }
    assert_eq!(side.stack.free_buffers().1, 0);
    for second in 2..10 {
        side.tick(second * S);
        heard(&mut side);
        for (peer, seq, nxt) in &all {
            peer.say(&mut side, second * S, &said(*seq, *nxt, 0, b""));
        }
    }
    // Closed windows with ACKs at all times are no progress.
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
fn a_window_that_stays_closed_does_not_keep_a_connection_forever() {
    let mut side = server(text(3000));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 0, &[]);
    peer.say(&mut side, S, &said(seq, nxt, 0, b"\n"));
    // Each ACK keeps the idle timeout of 120 seconds from expiring.
    for second in 2..300 {
        side.tick(second * S);
        heard(&mut side);
        peer.say(&mut side, second * S, &said(seq + 1, nxt, 0, b""));
    }
    assert_eq!(side.user.ended.len(), 1);
}

#[test]
fn challenges_of_one_do_not_silence_another() {
    let mut side = server(b"");
    let [stranger, other] = [peers(2)[0], peers(2)[1]];
    let (seq, nxt) = stranger.open(&mut side, S, 65_535, &[]);
    let (other_seq, other_nxt) = other.open(&mut side, S, 65_535, &[]);
    let mut answers = 0;
    for _ in 0..5000 {
        // Outside the window, so each segment asks for a challenge ACK.
        let far = said(seq.wrapping_sub(100), nxt, 65_535, b"x");
        answers += stranger.say(&mut side, S, &far).len();
    }
    assert!(answers < 100, "{answers}");
    // The ACK got lost, so the peer retransmits.
    let byte = said(other_seq, other_nxt, 65_535, b"x");
    other.say(&mut side, S, &byte);
    side.tick(S + 100_000);
    heard(&mut side);
    let again = other.say(&mut side, S + 100_000, &byte);
    assert_eq!((again.len(), again[0].ack), (1, other_seq + 1));
}

#[test]
fn who_takes_a_byte_now_and_then_gets_nowhere_either() {
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
        let (seq, nxt) = peer.open(&mut side, S, 1, &[]);
        peer.say(&mut side, S, &said(seq, nxt, 1, b"\n"));
        all.push((peer, seq + 1, nxt));
    }
    for second in 2..10 {
        side.tick(second * S);
        heard(&mut side);
        for (peer, seq, nxt) in &mut all {
            // One byte a second keeps the connection alive, but is no progress.
            *nxt = nxt.wrapping_add(1);
            peer.say(&mut side, second * S, &said(*seq, *nxt, 1, b""));
        }
    }
    assert!(side.stack.free_buffers().1 > 0);
}
