//! A stack against a scripted peer.

mod common;

use common::peer::{ACK, FIN, Peer, RST, SYN, Said, heard};
use common::{Answer, SERVER, SERVER_MAC, Side, User, settings, text};
use lowroad_net::{ConnectionEnd, SendPiece, StackCalls};

const S: u64 = 1_000_000;
const SACK_PERMITTED: [u8; 8] = [2, 4, 5, 0xb4, 1, 1, 4, 2];

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

fn ack(seq: u32, ack: u32) -> Said {
    Said {
        seq,
        ack,
        flags: ACK,
        window: 65_535,
        ..Said::default()
    }
}

fn with(said: Said, payload: &[u8]) -> Said {
    Said {
        payload: payload.to_vec(),
        ..said
    }
}

#[test]
fn data_that_nobody_answers_is_acknowledged_late_or_at_the_second_segment() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &[]);
    assert_eq!(peer.say(&mut side, S, &with(ack(seq, nxt), b"one")), []);
    // The ACK is delayed by 40 ms.
    side.tick(S + 30_000);
    assert_eq!(heard(&mut side), []);
    side.tick(S + 60_000);
    let answer = heard(&mut side);
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 3));
    assert_eq!(peer.say(&mut side, S, &with(ack(seq + 3, nxt), b"two")), []);
    let answer = peer.say(&mut side, S, &with(ack(seq + 6, nxt), b"three"));
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 11));
    // Retransmitted data are acknowledged at once.
    let answer = peer.say(&mut side, S, &with(ack(seq, nxt), b"one"));
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 11));
}

#[test]
fn what_comes_early_is_kept_and_said() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &SACK_PERMITTED);
    let early = with(ack(seq + 5, nxt), b"world");
    let answer = peer.say(&mut side, S, &early);
    let mut block = vec![1, 1, 5, 10];
    block.extend((seq + 5).to_be_bytes());
    block.extend((seq + 10).to_be_bytes());
    // The SACK block covers the out-of-order segment.
    assert_eq!((answer[0].ack, &answer[0].options), (seq, &block));
    let fin = Said {
        flags: ACK | FIN,
        ..ack(seq + 10, nxt)
    };
    peer.say(&mut side, S, &fin);
    // An out-of-order FIN counts only once the gap is filled.
    assert!(side.user.finished.is_empty());
    let answer = peer.say(&mut side, S, &with(ack(seq, nxt), b"hello"));
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 11));
    assert_eq!(side.user.input[&0], b"helloworld");
    assert_eq!(side.user.finished.len(), 1);
    assert_eq!(side.stack.free_buffers(), (64, 8));
}

#[test]
fn selective_acks_fill_exactly_the_holes() {
    let mut side = server(text(14_600));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &SACK_PERMITTED);
    let sent = peer.say(&mut side, S, &with(ack(seq, nxt), b"\n"));
    // Ten segments: the initial window.
    assert_eq!(sent.len(), 10);
    let seq = seq + 1;
    let sacks = |ranges: &[(u32, u32)]| {
        let mut options = vec![1, 1, 5, (2 + 8 * ranges.len()) as u8];
        for (start, end) in ranges {
            options.extend((nxt.wrapping_add(start * 1460)).to_be_bytes());
            options.extend((nxt.wrapping_add(end * 1460)).to_be_bytes());
        }
        Said {
            options,
            ..ack(seq, nxt)
        }
    };
    // The first and the fourth are lost.
    let mut again = Vec::new();
    for ranges in [
        &[(1, 2)][..],
        &[(1, 3)],
        &[(1, 3), (4, 5)],
        &[(1, 3), (4, 6)],
        &[(1, 3), (4, 8)],
    ] {
        again.extend(peer.say(&mut side, S, &sacks(ranges)));
    }
    let numbers: Vec<u32> = again
        .iter()
        .map(|it| it.seq.wrapping_sub(nxt) / 1460)
        .filter(|it| *it < 10)
        .collect();
    // Numbers from 10 on are new data that the ACKs permit.
    assert_eq!(numbers, [0, 3]);
    assert_eq!(side.counter("recoveries"), 1);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut side = server(text(5000));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 0, &[]);
    let closed = Said {
        window: 0,
        ..ack(seq, nxt)
    };
    let answer = peer.say(&mut side, S, &with(closed.clone(), b"\n"));
    // At once, or with the delayed ACK.
    assert!(answer.iter().all(|it| it.payload.is_empty()));
    let seq = seq + 1;
    let mut now_us = S;
    let mut probes = 0;
    // The peer's answers keep the connection for the 120 seconds of the test.
    while now_us < 100 * S {
        now_us = side.tick(now_us).expect("a timer").max(now_us + 1);
        for probe in heard(&mut side) {
            if probe.payload.is_empty() {
                continue;
            }
            assert_eq!((probe.seq, probe.payload.len()), (nxt, 1));
            probes += 1;
            peer.say(
                &mut side,
                now_us,
                &Said {
                    seq,
                    ..closed.clone()
                },
            );
        }
    }
    assert!(probes > 5, "{probes}");
    assert!(side.user.ended.is_empty());
    // The window opens: all data follow, the probe's byte included.
    let sent = peer.say(&mut side, now_us, &ack(seq, nxt));
    let bytes: usize = sent.iter().map(|it| it.payload.len()).sum();
    assert_eq!((sent[0].seq, bytes), (nxt, 5005), "{sent:?}");
}

#[test]
fn only_an_exact_reset_counts() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &[]);
    let reset = |seq: u32| Said {
        flags: RST,
        seq,
        ..Said::default()
    };
    // Below the window: ignored. In the window, but not exact: a challenge ACK. Above the window: ignored.
    assert_eq!(peer.say(&mut side, S, &reset(seq.wrapping_sub(1))), []);
    let answer = peer.say(&mut side, S, &reset(seq + 1));
    assert_eq!(
        (answer.len(), answer[0].flags, answer[0].ack),
        (1, ACK, seq)
    );
    assert_eq!(peer.say(&mut side, S, &reset(seq + 70_000)), []);
    // A SYN and an ACK of unsent data get a challenge ACK too.
    let syn = Said {
        flags: SYN,
        seq,
        ..Said::default()
    };
    assert_eq!(peer.say(&mut side, S, &syn)[0].flags, ACK);
    assert_eq!(peer.say(&mut side, S, &ack(seq, nxt + 1))[0].flags, ACK);
    assert!(side.user.ended.is_empty());
    peer.say(&mut side, S, &reset(seq));
    assert_eq!(side.user.ended[0].1, ConnectionEnd::Reset);
    assert_eq!(side.stack.open_count(), 0);
    // The connection no longer exists.
    let answer = peer.say(&mut side, S, &ack(seq, nxt));
    assert_eq!((answer[0].flags, answer[0].seq), (RST, nxt));
}

#[test]
fn both_may_close_at_once() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &[]);
    let id = side.user.opened[0].0;
    side.close(S, id);
    let fin = heard(&mut side);
    assert_eq!((fin[0].flags & FIN, fin[0].seq), (FIN, nxt));
    let theirs = Said {
        flags: ACK | FIN,
        ..ack(seq, nxt)
    };
    // The peer's FIN does not acknowledge ours: CLOSING.
    let answer = peer.say(&mut side, S, &theirs);
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 1));
    assert!(side.user.ended.is_empty());
    peer.say(&mut side, S, &ack(seq + 1, nxt + 1));
    assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed);
    // TIME_WAIT: the FIN is acknowledged again; a reset with another number does not end it.
    for wrong in [seq, seq + 2] {
        peer.say(
            &mut side,
            S,
            &Said {
                flags: RST,
                seq: wrong,
                ..Said::default()
            },
        );
    }
    assert_eq!(side.counter("resets_ignored"), 2);
    let answer = peer.say(&mut side, S, &theirs);
    assert_eq!(
        (answer.len(), answer[0].flags, answer[0].ack),
        (1, ACK, seq + 1)
    );
    // A new SYN above the old numbers replaces the entry; one below does not.
    let syn = |seq: u32| Said {
        flags: SYN,
        seq,
        window: 65_535,
        ..Said::default()
    };
    let answer = peer.say(&mut side, S, &syn(seq));
    assert_eq!(answer[0].flags, ACK);
    let answer = peer.say(&mut side, S, &syn(seq + 100));
    assert_eq!(answer[0].flags, SYN | ACK);
    assert_eq!(side.counter("time_wait_reused"), 1);
}

#[test]
fn a_client_whose_number_is_below_the_old_ones_gets_in_after_the_challenge() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &[]);
    let id = side.user.opened[0].0;
    side.close(S, id);
    heard(&mut side);
    let fin = Said {
        flags: ACK | FIN,
        ..ack(seq, nxt + 1)
    };
    peer.say(&mut side, S, &fin);
    assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed);
    let syn = Said {
        flags: SYN,
        // Clients choose numbers that increase in general, but not for each connection.
        seq: seq.wrapping_sub(500),
        window: 65_535,
        ..Said::default()
    };
    let challenge = peer.say(&mut side, S, &syn);
    assert_eq!((challenge[0].flags, challenge[0].ack), (ACK, seq + 1));
    // In SYN-SENT, an unacceptable ACK is answered by a reset with its number (RFC 9293 §3.10.7.3).
    let reset = Said {
        flags: RST,
        seq: challenge[0].ack,
        ..Said::default()
    };
    assert_eq!(peer.say(&mut side, S, &reset), []);
    assert_eq!(side.counter("time_wait_reset"), 1);
    // The retransmitted SYN after a second.
    assert_eq!(peer.say(&mut side, 2 * S, &syn)[0].flags, SYN | ACK);
}

#[test]
fn a_syn_is_answered_as_far_as_its_options_are_well_formed() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    // The flag: whether the reply offers SACK.
    for (at, (options, has_sack)) in [
        (&[2, 4, 5, 0xb4, 4, 2, 8, 60][..], true),
        (&[2, 0, 4, 2], false),
        (&[4, 2, 2, 1], true),
        (&[1, 1, 1, 2], false),
        (&[77, 200, 0, 0], false),
        (&[4, 3, 0, 0], false),
    ]
    .into_iter()
    .enumerate()
    {
        let peer = Peer {
            port: 7000 + at as u16,
            ..Peer::default()
        };
        let syn = Said {
            flags: SYN,
            seq: 5,
            options: options.to_vec(),
            ..Said::default()
        };
        let answer = peer.say(&mut side, S, &syn);
        assert_eq!(answer.len(), 1, "{options:?}");
        assert_eq!(answer[0].flags, SYN | ACK);
        assert_eq!(answer[0].options.len() > 4, has_sack, "{options:?}");
    }
    let both = Said {
        flags: SYN | FIN,
        ..Said::default()
    };
    assert_eq!(Peer::default().say(&mut side, S, &both), []);
    assert_eq!(side.counter("syns_malformed"), 1);
}

#[test]
fn data_after_the_close_is_dropped_for_a_while_and_then_reset() {
    let mut side = server(b"body");
    let peer = Peer::default();
    side.user.closes_after_answer = true;
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &[]);
    let answer = peer.say(&mut side, S, &with(ack(seq, nxt), b"\n"));
    // "head " and "body", and the FIN.
    let end = nxt + 10;
    assert_eq!(answer.last().map(|it| it.flags & FIN), Some(FIN));
    // Before the FIN is acknowledged, a reset could destroy the response, so none is sent however late it is.
    let answer = peer.say(&mut side, 9 * S, &with(ack(seq + 1, nxt), b"more"));
    assert!(answer.iter().all(|it| it.flags & RST == 0), "{answer:?}");
    let answer = peer.say(&mut side, 10 * S, &with(ack(seq + 5, end), b"more"));
    assert!(answer.iter().all(|it| it.flags & RST == 0), "{answer:?}");
    peer.say(&mut side, 12 * S, &with(ack(seq + 9, end), b"more"));
    assert_eq!(side.stack.open_count(), 1);
    // A bare ACK carries no data.
    peer.say(&mut side, 13 * S, &ack(seq + 13, end));
    assert_eq!(side.stack.open_count(), 1);
    let answer = peer.say(&mut side, 13 * S, &with(ack(seq + 13, end), b"more"));
    assert_eq!(
        (answer.len(), answer[0].flags & RST, answer[0].seq),
        (1, RST, end)
    );
    assert_eq!(side.stack.open_count(), 0);
    assert_eq!(side.counter("data_after_close"), 1);
    assert_eq!(side.user.ended.len(), 1);
    assert_eq!(side.user.input[&0], b"\n");
    assert_eq!(side.stack.free_buffers(), (64, 8));
}

#[test]
fn a_flood_of_syns_takes_no_place_and_shuts_nobody_out() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    // A half-open connection may occupy neither a slot nor a buffer.
    let free = side.stack.free_buffers();
    let syn = Said {
        flags: SYN,
        seq: 5,
        window: 1000,
        options: vec![2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2],
        ..Said::default()
    };
    let ours = Peer::default();
    let answer = ours.say(&mut side, S, &syn);
    for i in 0..100_000u32 {
        let peer = Peer {
            address: (0x0b00_0000 + i).into(),
            port: i as u16,
            ..ours
        };
        side.receive(S, &peer.frame(&syn));
        side.wire.frames.clear();
    }
    assert_eq!(
        (side.stack.open_count(), side.stack.free_buffers()),
        (0, free)
    );
    // The handshake was evicted and is recognized by its cookie.
    ours.say(&mut side, 2 * S, &ack(6, answer[0].seq.wrapping_add(1)));
    assert_eq!(side.user.opened.len(), 1);
    assert_eq!(side.counter("cookies_good"), 1);
    // A wrong cookie is refused.
    let other = Peer { port: 7, ..ours };
    let answer = other.say(&mut side, 2 * S, &ack(6, answer[0].seq));
    assert_eq!(answer[0].flags, RST);
}

#[test]
fn a_full_table_lets_the_idle_go_and_keeps_the_busy() {
    let mut side = server(text(1000));
    let peers: Vec<Peer> = (0..32)
        .map(|port| Peer {
            port: 6000 + port,
            ..Peer::default()
        })
        .collect();
    let mut numbers = Vec::new();
    for (i, peer) in peers.iter().enumerate() {
        numbers.push(peer.open(&mut side, S + i as u64, 65_535, &[]));
    }
    // No connection was idle for long enough.
    let late = Peer::default();
    let syn = Said {
        flags: SYN,
        ..Said::default()
    };
    assert_eq!(late.say(&mut side, S + 100, &syn), []);
    assert_eq!(side.counter("syns_dropped_full"), 1);
    // All connections but the sixth have data in flight.
    for (i, (peer, (seq, nxt))) in peers.iter().zip(&numbers).enumerate() {
        if i != 5 {
            peer.say(&mut side, 2 * S, &with(ack(*seq, *nxt), b"\n"));
        }
    }
    late.open_in_full(&mut side, 4 * S, numbers[5]);
    // Only the idle connection was evicted.
    assert_eq!(
        side.user.ended,
        [(side.user.opened[5].0, ConnectionEnd::TimedOut)]
    );
    assert_eq!(side.stack.open_count(), 32);
    assert_eq!(side.counter("evicted_idle"), 1);
}

trait InFull {
    fn open_in_full(&self, side: &mut Side, now_us: u64, idle: (u32, u32));
}

impl InFull for Peer {
    /// Opens a connection in a full table, which evicts another one.
    fn open_in_full(&self, side: &mut Side, now_us: u64, idle: (u32, u32)) {
        let syn = Said {
            flags: SYN,
            ..Said::default()
        };
        let answer = self.say(side, now_us, &syn);
        assert_eq!(answer[0].flags, SYN | ACK);
        let answer = self.say(side, now_us, &ack(1, answer[0].seq.wrapping_add(1)));
        // The evicted peer is reset.
        assert_eq!((answer[0].flags & RST, answer[0].seq), (RST, idle.1));
    }
}

#[test]
fn an_idle_connection_ends_after_its_time() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let (_, nxt) = Peer::default().open(&mut side, S, 65_535, &[]);
    let mut now_us = S;
    while side.stack.open_count() > 0 {
        now_us = side.tick(now_us).unwrap_or(now_us).max(now_us + 1);
    }
    // The timing wheel's slots make the timeout late, never early.
    assert!((120..125).contains(&((now_us - S) / S)), "{now_us}");
    assert_eq!(side.user.ended[0].1, ConnectionEnd::TimedOut);
    let last = heard(&mut side);
    assert_eq!((last[0].flags & RST, last[0].seq), (RST, nxt));
}

#[test]
fn fragmentation_needed_is_believed_for_what_is_under_way() {
    let mut side = server(text(5000));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &SACK_PERMITTED);
    let sent = peer.say(&mut side, S, &with(ack(seq, nxt), b"\n"));
    assert_eq!(sent[0].payload.len(), 1460);
    let router = |quoted_seq: u32| {
        let mut quoted = peer.frame(&Said {
            seq: quoted_seq,
            ..Said::default()
        })[14..42]
            .to_vec();
        // The quoted segment was sent by the server.
        quoted.copy_within(16..20, 12);
        quoted[16..20].copy_from_slice(&peer.address.octets());
        quoted[20..22].copy_from_slice(&80u16.to_be_bytes());
        quoted[22..24].copy_from_slice(&peer.port.to_be_bytes());
        let mut frame = peer.frame(&Said::default());
        frame.truncate(34);
        frame.extend([3, 4, 0, 0, 0, 0, 4, 176]);
        frame.extend(quoted);
        let len = frame.len() as u16 - 14;
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[23] = 1;
        frame[24..26].fill(0);
        let ip = !common::fold(common::sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&ip.to_be_bytes());
        let icmp = !common::fold(common::sum(&frame[34..]));
        frame[36..38].copy_from_slice(&icmp.to_be_bytes());
        frame
    };
    // A number that is not in flight: forged.
    side.receive(S, &router(nxt.wrapping_sub(1)));
    assert_eq!(
        (heard(&mut side).len(), side.counter("icmp_ignored")),
        (0, 1)
    );
    side.receive(S, &router(nxt));
    let again = heard(&mut side);
    assert_eq!(side.counter("mss_lowered"), 1);
    // The MTU of 1200 without the headers of IP and TCP.
    assert_eq!((again[0].seq, again[0].payload.len()), (nxt, 1160));
    let bytes: usize = again.iter().map(|it| it.payload.len()).sum();
    assert_eq!(bytes, 5005);
}

#[test]
fn a_service_that_takes_nothing_gets_no_more_than_a_buffer() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    side.user.take_max = Some(0);
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, S, 65_535, &[]);
    let mut said = seq;
    for _ in 0..20 {
        let answer = peer.say(&mut side, S, &with(ack(said, nxt), &[7; 1000]));
        said = said.max(answer.last().map_or(said + 1000, |it| it.ack));
    }
    assert_eq!(said, seq + 16_384);
    // A small buffer was enough until it was full.
    assert_eq!(side.stack.free_buffers(), (64, 7));
    side.user.take_max = None;
    let id = side.user.opened[0].0;
    side.stack
        .calls(S, &mut side.wire, &mut side.user, |_, calls| {
            calls.resume(id)
        });
    let answer = heard(&mut side);
    assert_eq!((answer[0].ack, answer[0].window), (seq + 16_384, 65_535));
    assert_eq!(side.user.input[&0].len(), 16_384);
    assert_eq!(side.stack.free_buffers(), (64, 8));
}

#[test]
fn an_abort_resets_and_a_name_means_nothing_then() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let (_, nxt) = Peer::default().open(&mut side, S, 65_535, &[]);
    let id = side.user.opened[0].0;
    side.stack
        .calls(S, &mut side.wire, &mut side.user, |_, calls| {
            // Queued data are dropped; later operations have no effect.
            calls.send(id, SendPiece::Copied(b"lost")).expect("room");
            calls.abort(id);
            assert!(calls.send(id, SendPiece::Copied(b"x")).is_err());
            calls.close(id);
            calls.resume(id);
        });
    let last = heard(&mut side);
    assert_eq!(
        (last.len(), last[0].flags & RST, last[0].seq),
        (1, RST, nxt)
    );
    assert_eq!(
        (side.stack.open_count(), side.stack.free_buffers()),
        (0, (64, 8))
    );
    assert!(side.user.ended.is_empty());
}

#[test]
fn ports_without_a_listener_and_a_draining_stack_refuse() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let syn = Said {
        flags: SYN,
        seq: 9,
        ..Said::default()
    };
    let closed = Peer {
        to_port: 81,
        ..Peer::default()
    };
    let answer = closed.say(&mut side, S, &syn);
    assert_eq!((answer[0].flags, answer[0].ack), (RST | ACK, 10));
    side.stack.refuse_new();
    assert_eq!(Peer::default().say(&mut side, S, &syn)[0].flags, RST | ACK);
    // The rate of resets is limited.
    for _ in 0..3000 {
        closed.say(&mut side, S, &syn);
    }
    // The limit is 1,000 resets in a second.
    assert!(side.counter("resets_limited") > 1500);
}

#[test]
fn who_asks_for_us_and_who_calls_is_answered_only_so_often() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let mut echo = Peer::default().frame(&Said::default());
    echo.truncate(34);
    echo.extend([8, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
    echo[16..18].copy_from_slice(&30u16.to_be_bytes());
    echo[23] = 1;
    echo[24..26].fill(0);
    for (at, from, to) in [(24, 14, 34), (36, 34, 44)] {
        let sum = !common::fold(common::sum(&echo[from..to]));
        echo[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let mut ask = vec![0xff; 6];
    ask.extend(common::CLIENT_MAC);
    ask.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    ask.extend(common::CLIENT_MAC);
    ask.extend(common::CLIENT.octets());
    ask.extend([0; 6]);
    ask.extend(SERVER.octets());
    for (frame, answered, limited) in [
        (&echo, "echo_answered", "echo_limited"),
        (&ask, "arp_answered", "arp_limited"),
    ] {
        side.receive(S, frame);
        let answer = side.wire.frames.pop().expect("an answer");
        assert_eq!(answer[..6], common::CLIENT_MAC);
        if answer[12..14] == [8, 0] {
            assert_eq!(answer[34..36], [0, 0]);
            assert_eq!(answer[38..], echo[38..]);
            assert_eq!(common::fold(common::sum(&answer[34..])), 0xffff);
        } else {
            assert_eq!(answer[20..32], [0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        }
        for _ in 0..1999 {
            side.receive(S, frame);
            side.wire.frames.clear();
        }
        assert_eq!(
            (side.counter(answered), side.counter(limited)),
            (1000, 1000)
        );
    }
    // For another machine.
    ask[41] = 77;
    side.receive(2 * S, &ask);
    assert!(side.wire.frames.is_empty());
}
