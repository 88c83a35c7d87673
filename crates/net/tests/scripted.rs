//! Tests a stack against a scripted peer.

mod common;

use common::peer::{ACK, FIN, Peer, PeerSegment, RST, SYN, sent_segments};
use common::{Answer, RecordingService, SERVER, SERVER_MAC, Side, settings, text};
use lowroad_net::{ConnectionEnd, SendPiece, StackCalls};

const SECOND_US: u64 = 1_000_000;
const SACK_PERMITTED: [u8; 8] = [2, 4, 5, 0xb4, 1, 1, 4, 2];

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

fn ack(seq: u32, ack: u32) -> PeerSegment {
    PeerSegment {
        seq,
        ack,
        flags: ACK,
        window: 65_535,
        ..PeerSegment::default()
    }
}

fn with(said: PeerSegment, payload: &[u8]) -> PeerSegment {
    PeerSegment {
        payload: payload.to_vec(),
        ..said
    }
}

#[test]
fn ack_is_delayed_or_sent_at_the_second_segment() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &[]);
    assert_eq!(
        peer.exchange(&mut side, SECOND_US, &with(ack(seq, nxt), b"one")),
        []
    );
    // The ACK is delayed by 40 ms.
    side.tick(SECOND_US + 30_000);
    assert_eq!(sent_segments(&mut side), []);
    side.tick(SECOND_US + 60_000);
    let answer = sent_segments(&mut side);
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 3));
    assert_eq!(
        peer.exchange(&mut side, SECOND_US, &with(ack(seq + 3, nxt), b"two")),
        []
    );
    let answer = peer.exchange(&mut side, SECOND_US, &with(ack(seq + 6, nxt), b"three"));
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 11));
    // Retransmitted data is acknowledged immediately.
    let answer = peer.exchange(&mut side, SECOND_US, &with(ack(seq, nxt), b"one"));
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 11));
}

#[test]
fn out_of_order_segment_is_stored_and_reported_by_sack() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &SACK_PERMITTED);
    let early = with(ack(seq + 5, nxt), b"world");
    let answer = peer.exchange(&mut side, SECOND_US, &early);
    let mut block = vec![1, 1, 5, 10];
    block.extend((seq + 5).to_be_bytes());
    block.extend((seq + 10).to_be_bytes());
    // The SACK block covers the out-of-order segment.
    assert_eq!((answer[0].ack, &answer[0].options), (seq, &block));
    let fin = PeerSegment {
        flags: ACK | FIN,
        ..ack(seq + 10, nxt)
    };
    peer.exchange(&mut side, SECOND_US, &fin);
    // An out-of-order FIN is processed only after the gap is filled.
    assert!(side.user.finished.is_empty());
    let answer = peer.exchange(&mut side, SECOND_US, &with(ack(seq, nxt), b"hello"));
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 11));
    assert_eq!(side.user.input[&0], b"helloworld");
    assert_eq!(side.user.finished.len(), 1);
    assert_eq!(side.stack.free_buffers(), (64, 8));
}

#[test]
fn only_unsacked_segments_are_retransmitted() {
    let mut side = server(text(14_600));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &SACK_PERMITTED);
    let sent = peer.exchange(&mut side, SECOND_US, &with(ack(seq, nxt), b"\n"));
    // Ten segments: the initial congestion window.
    assert_eq!(sent.len(), 10);
    let seq = seq + 1;
    let sacks = |ranges: &[(u32, u32)]| {
        let mut options = vec![1, 1, 5, (2 + 8 * ranges.len()) as u8];
        for (start, end) in ranges {
            options.extend((nxt.wrapping_add(start * 1460)).to_be_bytes());
            options.extend((nxt.wrapping_add(end * 1460)).to_be_bytes());
        }
        PeerSegment {
            options,
            ..ack(seq, nxt)
        }
    };
    // The first and the fourth segment are lost.
    let mut again = Vec::new();
    for ranges in [
        &[(1, 2)][..],
        &[(1, 3)],
        &[(1, 3), (4, 5)],
        &[(1, 3), (4, 6)],
        &[(1, 3), (4, 8)],
    ] {
        again.extend(peer.exchange(&mut side, SECOND_US, &sacks(ranges)));
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
fn closed_window_is_probed_until_it_opens() {
    let mut side = server(text(5000));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 0, &[]);
    let closed = PeerSegment {
        window: 0,
        ..ack(seq, nxt)
    };
    let answer = peer.exchange(&mut side, SECOND_US, &with(closed.clone(), b"\n"));
    // The ACK is sent immediately, or delayed.
    assert!(answer.iter().all(|it| it.payload.is_empty()));
    let seq = seq + 1;
    let mut now_us = SECOND_US;
    let mut probes = 0;
    // The peer's replies keep the connection open for the 120 seconds of the test.
    while now_us < 100 * SECOND_US {
        now_us = side.tick(now_us).expect("a timer").max(now_us + 1);
        for probe in sent_segments(&mut side) {
            if probe.payload.is_empty() {
                continue;
            }
            assert_eq!((probe.seq, probe.payload.len()), (nxt, 1));
            probes += 1;
            peer.exchange(
                &mut side,
                now_us,
                &PeerSegment {
                    seq,
                    ..closed.clone()
                },
            );
        }
    }
    assert!(probes > 5, "{probes}");
    assert!(side.user.ended.is_empty());
    // The window opens: all data follows, including the byte of the probe.
    let sent = peer.exchange(&mut side, now_us, &ack(seq, nxt));
    let bytes: usize = sent.iter().map(|it| it.payload.len()).sum();
    assert_eq!((sent[0].seq, bytes), (nxt, 5005), "{sent:?}");
}

#[test]
fn only_a_reset_with_the_exact_sequence_number_is_accepted() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &[]);
    let reset = |seq: u32| PeerSegment {
        flags: RST,
        seq,
        ..PeerSegment::default()
    };
    // Below the window: ignored. In the window, but not exact: a challenge ACK. Above the window: ignored.
    assert_eq!(
        peer.exchange(&mut side, SECOND_US, &reset(seq.wrapping_sub(1))),
        []
    );
    let answer = peer.exchange(&mut side, SECOND_US, &reset(seq + 1));
    assert_eq!(
        (answer.len(), answer[0].flags, answer[0].ack),
        (1, ACK, seq)
    );
    assert_eq!(
        peer.exchange(&mut side, SECOND_US, &reset(seq + 70_000)),
        []
    );
    // A SYN and an ACK of unsent data also cause a challenge ACK.
    let syn = PeerSegment {
        flags: SYN,
        seq,
        ..PeerSegment::default()
    };
    assert_eq!(peer.exchange(&mut side, SECOND_US, &syn)[0].flags, ACK);
    assert_eq!(
        peer.exchange(&mut side, SECOND_US, &ack(seq, nxt + 1))[0].flags,
        ACK
    );
    assert!(side.user.ended.is_empty());
    peer.exchange(&mut side, SECOND_US, &reset(seq));
    assert_eq!(side.user.ended[0].1, ConnectionEnd::Reset);
    assert_eq!(side.stack.open_count(), 0);
    // The connection no longer exists.
    let answer = peer.exchange(&mut side, SECOND_US, &ack(seq, nxt));
    assert_eq!((answer[0].flags, answer[0].seq), (RST, nxt));
}

#[test]
fn simultaneous_close_and_time_wait() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &[]);
    let id = side.user.opened[0].0;
    side.close(SECOND_US, id);
    let fin = sent_segments(&mut side);
    assert_eq!((fin[0].flags & FIN, fin[0].seq), (FIN, nxt));
    let theirs = PeerSegment {
        flags: ACK | FIN,
        ..ack(seq, nxt)
    };
    // The peer's FIN does not acknowledge the FIN of this side: CLOSING.
    let answer = peer.exchange(&mut side, SECOND_US, &theirs);
    assert_eq!((answer.len(), answer[0].ack), (1, seq + 1));
    assert!(side.user.ended.is_empty());
    peer.exchange(&mut side, SECOND_US, &ack(seq + 1, nxt + 1));
    assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed);
    // TIME_WAIT: the FIN is acknowledged again; a reset with another sequence number does not end TIME_WAIT.
    for wrong in [seq, seq + 2] {
        peer.exchange(
            &mut side,
            SECOND_US,
            &PeerSegment {
                flags: RST,
                seq: wrong,
                ..PeerSegment::default()
            },
        );
    }
    assert_eq!(side.counter("resets_ignored"), 2);
    let answer = peer.exchange(&mut side, SECOND_US, &theirs);
    assert_eq!(
        (answer.len(), answer[0].flags, answer[0].ack),
        (1, ACK, seq + 1)
    );
    // A new SYN above the old sequence numbers replaces the entry; one below does not.
    let syn = |seq: u32| PeerSegment {
        flags: SYN,
        seq,
        window: 65_535,
        ..PeerSegment::default()
    };
    let answer = peer.exchange(&mut side, SECOND_US, &syn(seq));
    assert_eq!(answer[0].flags, ACK);
    let answer = peer.exchange(&mut side, SECOND_US, &syn(seq + 100));
    assert_eq!(answer[0].flags, SYN | ACK);
    assert_eq!(side.counter("time_wait_reused"), 1);
}

#[test]
fn syn_with_lower_sequence_number_connects_after_challenge_and_reset() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &[]);
    let id = side.user.opened[0].0;
    side.close(SECOND_US, id);
    sent_segments(&mut side);
    let fin = PeerSegment {
        flags: ACK | FIN,
        ..ack(seq, nxt + 1)
    };
    peer.exchange(&mut side, SECOND_US, &fin);
    assert_eq!(side.user.ended[0].1, ConnectionEnd::Closed);
    let syn = PeerSegment {
        flags: SYN,
        // The sequence numbers of a client increase in general, but not for each connection.
        seq: seq.wrapping_sub(500),
        window: 65_535,
        ..PeerSegment::default()
    };
    let challenge = peer.exchange(&mut side, SECOND_US, &syn);
    assert_eq!((challenge[0].flags, challenge[0].ack), (ACK, seq + 1));
    // In SYN-SENT, an unacceptable ACK is answered by a reset with its number (RFC 9293 §3.10.7.3).
    let reset = PeerSegment {
        flags: RST,
        seq: challenge[0].ack,
        ..PeerSegment::default()
    };
    assert_eq!(peer.exchange(&mut side, SECOND_US, &reset), []);
    assert_eq!(side.counter("time_wait_reset"), 1);
    // The retransmitted SYN after a second.
    assert_eq!(
        peer.exchange(&mut side, 2 * SECOND_US, &syn)[0].flags,
        SYN | ACK
    );
}

#[test]
fn well_formed_syn_options_are_used() {
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
        let syn = PeerSegment {
            flags: SYN,
            seq: 5,
            options: options.to_vec(),
            ..PeerSegment::default()
        };
        let answer = peer.exchange(&mut side, SECOND_US, &syn);
        assert_eq!(answer.len(), 1, "{options:?}");
        assert_eq!(answer[0].flags, SYN | ACK);
        assert_eq!(answer[0].options.len() > 4, has_sack, "{options:?}");
    }
    let both = PeerSegment {
        flags: SYN | FIN,
        ..PeerSegment::default()
    };
    assert_eq!(Peer::default().exchange(&mut side, SECOND_US, &both), []);
    assert_eq!(side.counter("syns_malformed"), 1);
}

#[test]
fn late_data_after_close_causes_a_reset() {
    let mut side = server(b"body");
    let peer = Peer::default();
    side.user.closes_after_answer = true;
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &[]);
    let answer = peer.exchange(&mut side, SECOND_US, &with(ack(seq, nxt), b"\n"));
    // "head " and "body", and the FIN.
    let end = nxt + 10;
    assert_eq!(answer.last().map(|it| it.flags & FIN), Some(FIN));
    // While the FIN is not acknowledged, a reset could destroy the response, so none is sent, however late it is.
    let answer = peer.exchange(&mut side, 9 * SECOND_US, &with(ack(seq + 1, nxt), b"more"));
    assert!(answer.iter().all(|it| it.flags & RST == 0), "{answer:?}");
    let answer = peer.exchange(&mut side, 10 * SECOND_US, &with(ack(seq + 5, end), b"more"));
    assert!(answer.iter().all(|it| it.flags & RST == 0), "{answer:?}");
    peer.exchange(&mut side, 12 * SECOND_US, &with(ack(seq + 9, end), b"more"));
    assert_eq!(side.stack.open_count(), 1);
    // A bare ACK carries no data.
    peer.exchange(&mut side, 13 * SECOND_US, &ack(seq + 13, end));
    assert_eq!(side.stack.open_count(), 1);
    let answer = peer.exchange(
        &mut side,
        13 * SECOND_US,
        &with(ack(seq + 13, end), b"more"),
    );
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
fn syn_flood_uses_no_slots_and_cookies_still_work() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    // A half-open connection must occupy neither a slot nor a buffer.
    let free = side.stack.free_buffers();
    let syn = PeerSegment {
        flags: SYN,
        seq: 5,
        window: 1000,
        options: vec![2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2],
        ..PeerSegment::default()
    };
    let ours = Peer::default();
    let answer = ours.exchange(&mut side, SECOND_US, &syn);
    for i in 0..100_000u32 {
        let peer = Peer {
            address: (0x0b00_0000 + i).into(),
            port: i as u16,
            ..ours
        };
        side.receive(SECOND_US, &peer.frame(&syn));
        side.wire.frames.clear();
    }
    assert_eq!(
        (side.stack.open_count(), side.stack.free_buffers()),
        (0, free)
    );
    // The handshake was evicted, and completes by its cookie.
    ours.exchange(
        &mut side,
        2 * SECOND_US,
        &ack(6, answer[0].seq.wrapping_add(1)),
    );
    assert_eq!(side.user.opened.len(), 1);
    assert_eq!(side.counter("cookies_good"), 1);
    // A wrong cookie is refused.
    let other = Peer { port: 7, ..ours };
    let answer = other.exchange(&mut side, 2 * SECOND_US, &ack(6, answer[0].seq));
    assert_eq!(answer[0].flags, RST);
}

#[test]
fn full_table_evicts_only_idle_connections() {
    let mut side = server(text(1000));
    let peers: Vec<Peer> = (0..32)
        .map(|port| Peer {
            port: 6000 + port,
            ..Peer::default()
        })
        .collect();
    let mut numbers = Vec::new();
    for (i, peer) in peers.iter().enumerate() {
        numbers.push(peer.open(&mut side, SECOND_US + i as u64, 65_535, &[]));
    }
    // No connection has been idle for long enough.
    let late = Peer::default();
    let syn = PeerSegment {
        flags: SYN,
        ..PeerSegment::default()
    };
    assert_eq!(late.exchange(&mut side, SECOND_US + 100, &syn), []);
    assert_eq!(side.counter("syns_dropped_full"), 1);
    // All connections but the sixth have data in flight.
    for (i, (peer, (seq, nxt))) in peers.iter().zip(&numbers).enumerate() {
        if i != 5 {
            peer.exchange(&mut side, 2 * SECOND_US, &with(ack(*seq, *nxt), b"\n"));
        }
    }
    late.open_in_full(&mut side, 4 * SECOND_US, numbers[5]);
    // Only the idle connection was evicted.
    assert_eq!(
        side.user.ended,
        [(side.user.opened[5].0, ConnectionEnd::TimedOut)]
    );
    assert_eq!(side.stack.open_count(), 32);
    assert_eq!(side.counter("evicted_idle"), 1);
}

trait OpenInFullTable {
    fn open_in_full(&self, side: &mut Side, now_us: u64, idle: (u32, u32));
}

impl OpenInFullTable for Peer {
    /// Opens a connection in a full table, which evicts another one.
    fn open_in_full(&self, side: &mut Side, now_us: u64, idle: (u32, u32)) {
        let syn = PeerSegment {
            flags: SYN,
            ..PeerSegment::default()
        };
        let answer = self.exchange(side, now_us, &syn);
        assert_eq!(answer[0].flags, SYN | ACK);
        let answer = self.exchange(side, now_us, &ack(1, answer[0].seq.wrapping_add(1)));
        // A reset is sent to the evicted peer.
        assert_eq!((answer[0].flags & RST, answer[0].seq), (RST, idle.1));
    }
}

#[test]
fn idle_connection_times_out() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let (_, nxt) = Peer::default().open(&mut side, SECOND_US, 65_535, &[]);
    let mut now_us = SECOND_US;
    while side.stack.open_count() > 0 {
        now_us = side.tick(now_us).unwrap_or(now_us).max(now_us + 1);
    }
    // The slots of the timing wheel delay the timeout, but it is never early.
    assert!(
        (120..125).contains(&((now_us - SECOND_US) / SECOND_US)),
        "{now_us}"
    );
    assert_eq!(side.user.ended[0].1, ConnectionEnd::TimedOut);
    let last = sent_segments(&mut side);
    assert_eq!((last[0].flags & RST, last[0].seq), (RST, nxt));
}

#[test]
fn fragmentation_needed_is_accepted_only_for_data_in_flight() {
    let mut side = server(text(5000));
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &SACK_PERMITTED);
    let sent = peer.exchange(&mut side, SECOND_US, &with(ack(seq, nxt), b"\n"));
    assert_eq!(sent[0].payload.len(), 1460);
    let router = |quoted_seq: u32| {
        let mut quoted = peer.frame(&PeerSegment {
            seq: quoted_seq,
            ..PeerSegment::default()
        })[14..42]
            .to_vec();
        // The quoted segment was sent by the server.
        quoted.copy_within(16..20, 12);
        quoted[16..20].copy_from_slice(&peer.address.octets());
        quoted[20..22].copy_from_slice(&80u16.to_be_bytes());
        quoted[22..24].copy_from_slice(&peer.port.to_be_bytes());
        let mut frame = peer.frame(&PeerSegment::default());
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
    // A sequence number that is not in flight: forged.
    side.receive(SECOND_US, &router(nxt.wrapping_sub(1)));
    assert_eq!(
        (sent_segments(&mut side).len(), side.counter("icmp_ignored")),
        (0, 1)
    );
    side.receive(SECOND_US, &router(nxt));
    let again = sent_segments(&mut side);
    assert_eq!(side.counter("mss_lowered"), 1);
    // The MTU of 1200 without the IP and TCP headers.
    assert_eq!((again[0].seq, again[0].payload.len()), (nxt, 1160));
    let bytes: usize = again.iter().map(|it| it.payload.len()).sum();
    assert_eq!(bytes, 5005);
}

#[test]
fn unread_input_is_limited_to_one_buffer() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    side.user.take_max = Some(0);
    let peer = Peer::default();
    let (seq, nxt) = peer.open(&mut side, SECOND_US, 65_535, &[]);
    let mut said = seq;
    for _ in 0..20 {
        let answer = peer.exchange(&mut side, SECOND_US, &with(ack(said, nxt), &[7; 1000]));
        said = said.max(answer.last().map_or(said + 1000, |it| it.ack));
    }
    assert_eq!(said, seq + 16_384);
    // A small buffer is used until it is full.
    assert_eq!(side.stack.free_buffers(), (64, 7));
    side.user.take_max = None;
    let id = side.user.opened[0].0;
    side.stack
        .calls(SECOND_US, &mut side.wire, &mut side.user, |_, calls| {
            calls.resume(id)
        });
    let answer = sent_segments(&mut side);
    assert_eq!((answer[0].ack, answer[0].window), (seq + 16_384, 65_535));
    assert_eq!(side.user.input[&0].len(), 16_384);
    assert_eq!(side.stack.free_buffers(), (64, 8));
}

#[test]
fn abort_resets_and_invalidates_the_id() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let (_, nxt) = Peer::default().open(&mut side, SECOND_US, 65_535, &[]);
    let id = side.user.opened[0].0;
    side.stack
        .calls(SECOND_US, &mut side.wire, &mut side.user, |_, calls| {
            // Queued data is dropped; later operations have no effect.
            calls.send(id, SendPiece::Copied(b"lost")).expect("room");
            calls.abort(id);
            assert!(calls.send(id, SendPiece::Copied(b"x")).is_err());
            calls.close(id);
            calls.resume(id);
        });
    let last = sent_segments(&mut side);
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
fn closed_port_and_draining_stack_send_reset() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let syn = PeerSegment {
        flags: SYN,
        seq: 9,
        ..PeerSegment::default()
    };
    let closed = Peer {
        to_port: 81,
        ..Peer::default()
    };
    let answer = closed.exchange(&mut side, SECOND_US, &syn);
    assert_eq!((answer[0].flags, answer[0].ack), (RST | ACK, 10));
    side.stack.refuse_new();
    assert_eq!(
        Peer::default().exchange(&mut side, SECOND_US, &syn)[0].flags,
        RST | ACK
    );
    // The rate of resets is limited.
    for _ in 0..3000 {
        closed.exchange(&mut side, SECOND_US, &syn);
    }
    // The limit is 1,000 resets in a second.
    assert!(side.counter("resets_limited") > 1500);
}

#[test]
fn arp_and_echo_replies_are_rate_limited() {
    let mut side = Side::new(settings(SERVER, SERVER_MAC));
    let mut echo = Peer::default().frame(&PeerSegment::default());
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
        side.receive(SECOND_US, frame);
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
            side.receive(SECOND_US, frame);
            side.wire.frames.clear();
        }
        assert_eq!(
            (side.counter(answered), side.counter(limited)),
            (1000, 1000)
        );
    }
    // A request for another host.
    ask[41] = 77;
    side.receive(2 * SECOND_US, &ask);
    assert!(side.wire.frames.is_empty());
}
