//! Rare sequences of segments, sent one by one: duplicates, reordering, reused ports. Each sequence has once caused a
//! lost or mixed-up request.

use lowroad_softirq::layout::MODE_DRAIN;
use lowroad_testkit::net::{LinkMangling, TestPage, TestPath, TestSite, WebServer};
use lowroad_testkit::wait_until;

use crate::attached::{Attached, get, server_v4};
use crate::raw::{ACK, FIN, Peer, RST, SYN, Segment, Wire};
use crate::skipped;

/// Runs a test with nginx, a level and handwritten segments.
fn by_hand(run: impl Fn(&TestPath, &TestSite, &Attached, &mut Wire)) {
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(204, &[200, 900, 3500]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    for page in &site.pages {
        attached.warm(&path.client, server_v4(80), &get(&page.path));
    }
    let mut wire = Wire::new(&path);
    run(&path, &site, &attached, &mut wire);
}

fn syn(port: u16, seq: u32) -> Segment {
    Segment {
        port,
        seq,
        flags: SYN,
        ..Segment::default()
    }
}

fn is_answer(segment: &Segment, site: &TestSite, page: usize) -> bool {
    let body_at = segment
        .payload
        .windows(4)
        .position(|four| four == b"\r\n\r\n");
    let page = &site.pages[page];
    let right = |at: usize| TestPage::new(&page.path, &segment.payload[at + 4..]) == *page;
    segment.payload.starts_with(b"HTTP/1.1 200") && body_at.is_some_and(right)
}

#[test]
fn data_before_handshake_ack_is_not_answered() {
    if skipped("data_before_handshake_ack_is_not_answered", &["nginx"]) {
        return;
    }
    by_hand(|_, site, attached, wire| {
        let request = get(&site.pages[0].path);
        let (start, rest) = request.split_at(20);
        // The second half of the request, the FIN, or a late acknowledgement arrives first.
        for (port, early) in [(5001, rest), (5002, "")] {
            for flags in [ACK, ACK | FIN] {
                let mut peer = Peer::open(wire, port + u16::from(flags), 1_000_000);
                let port = peer.next.port;
                let mut segment = peer.data(start.len(), early);
                if early.is_empty() {
                    segment.seq = segment
                        .seq
                        .wrapping_add(u32::try_from(rest.len()).expect("few"));
                }
                segment.flags = flags;
                wire.send(&segment);
                // Before the handshake's ACK, no request is complete.
                assert!(wire.is_silent(port), "nothing was complete");
                wire.send(&peer.ack());
                let hits = attached.count("answer_hit");
                wire.send(&peer.data(0, &request));
                let answer = wire.receive(port);
                assert!(is_answer(&answer, site, 0), "{answer:?}");
                assert_eq!(attached.count("answer_hit"), hits + 1);
                peer.sent(request.len());
                peer.received(&answer);
                wire.send(&Segment {
                    flags: RST | ACK,
                    ..peer.ack()
                });
            }
        }
    });
}

#[test]
fn retransmission_with_two_requests_gets_both_responses() {
    if skipped(
        "retransmission_with_two_requests_gets_both_responses",
        &["nginx"],
    ) {
        return;
    }
    by_hand(|_, site, _, wire| {
        let requests = [get(&site.pages[0].path), get(&site.pages[1].path)];
        let mut peer = Peer::open(wire, 5101, 77);
        wire.send(&peer.ack());
        wire.send(&peer.data(0, &requests[0]));
        let lost = wire.receive(5101);
        assert!(is_answer(&lost, site, 0), "{lost:?}");
        // The response was lost. Kernels retransmit all unacknowledged data in one segment.
        wire.send(&peer.data(0, &requests.concat()));
        let again = wire.receive(5101);
        assert_eq!((again.seq, again.ack), (lost.seq, lost.ack));
        assert!(is_answer(&again, site, 0), "{again:?}");
        peer.sent(requests[0].len());
        peer.received(&again);
        wire.send(&peer.data(0, &requests[1]));
        let second = wire.receive(5101);
        assert!(is_answer(&second, site, 1), "{second:?}");
    });
}

#[test]
fn invalid_retransmission_gets_only_an_ack() {
    if skipped("invalid_retransmission_gets_only_an_ack", &["nginx"]) {
        return;
    }
    by_hand(|_, site, attached, wire| {
        let request = get(&site.pages[1].path);
        let mut peer = Peer::open(wire, 5111, 77);
        wire.send(&peer.ack());
        wire.send(&peer.data(0, &request));
        let answer = wire.receive(5111);
        assert!(is_answer(&answer, site, 1), "{answer:?}");
        // Sends one byte of the request, and then the whole request with the acknowledgement number of a client that
        // has not received the response.
        for round in 0..200u32 {
            wire.send(&peer.data(0, &request[..1]));
            let mut blind = peer.data(0, &request);
            blind.ack = blind.ack.wrapping_add(100_000).wrapping_mul(round | 1);
            wire.send(&blind);
            // Each gets only an acknowledgement, because a response would amplify forged segments.
            for _ in 0..2 {
                let back = wire.receive(5111);
                assert!(back.payload.is_empty(), "{back:?}");
            }
        }
        assert_eq!(attached.count("answer_again"), 0);
        // A retransmission of the request itself gets the response again, and the connection continues.
        wire.send(&peer.data(0, &request));
        let again = wire.receive(5111);
        assert!(is_answer(&again, site, 1), "{again:?}");
        peer.sent(request.len());
        peer.received(&again);
        wire.send(&peer.data(0, &request));
        let next = wire.receive(5111);
        assert!(is_answer(&next, site, 1), "{next:?}");
    });
}

#[test]
fn partially_acknowledged_response_is_retransmitted() {
    if skipped(
        "partially_acknowledged_response_is_retransmitted",
        &["nginx"],
    ) {
        return;
    }
    by_hand(|_, site, _, wire| {
        let request = get(&site.pages[0].path);
        let mut peer = Peer::open(wire, 5121, 77);
        wire.send(&peer.ack());
        wire.send(&peer.data(0, &request));
        let answer = wire.receive(5121);
        peer.sent(request.len());
        // A device on the path has split the response, and only its first hundred bytes have arrived.
        let part = Segment {
            ack: answer.seq.wrapping_add(100),
            ..peer.ack()
        };
        wire.send(&part);
        let again = wire.receive(5121);
        assert!(is_answer(&again, site, 0), "{again:?}");
        peer.received(&again);
        wire.send(&peer.data(0, &request));
        let next = wire.receive(5121);
        assert!(is_answer(&next, site, 0), "{next:?}");
    });
}

#[test]
fn request_continues_after_lost_ack_of_long_response() {
    let test = "request_continues_after_lost_ack_of_long_response";
    if skipped(test, &["nginx"]) {
        return;
    }
    by_hand(|_, site, _, wire| {
        let long = get(&site.pages[2].path);
        let short = get(&site.pages[0].path);
        let last = &long[long.len() - 1..];
        // The retransmission timer sends the unacknowledged byte alone, or together with the next request.
        for (port, repeated) in [(5131, last.to_owned()), (5132, last.to_owned() + &short)] {
            let mut peer = Peer::open(wire, port, 77);
            wire.send(&peer.ack());
            wire.send(&peer.data(0, &long));
            let mut answer = Vec::new();
            while !answer.ends_with(&site_page(site, 2)) {
                let part = wire.receive(port);
                assert_eq!(
                    part.ack,
                    peer.data(long.len() - 1, "").seq,
                    "one byte is left"
                );
                peer.received(&part);
                answer.extend(part.payload);
            }
            wire.send(&peer.data(long.len() - 1, &repeated));
            peer.sent(long.len());
            let told = wire.receive(port);
            assert_eq!(
                (told.seq, told.ack),
                (peer.next.ack, peer.next.seq),
                "{told:?}"
            );
            wire.send(&peer.data(0, &short));
            let next = wire.receive(port);
            assert!(is_answer(&next, site, 0), "{next:?}");
        }
    });
}

fn site_page(site: &TestSite, page: usize) -> Vec<u8> {
    let name = &site.pages[page].path[1..];
    std::fs::read(site.root().join(name)).expect("a page")
}

#[test]
fn request_before_ack_is_answered_without_retransmission_timer() {
    if skipped(
        "request_before_ack_is_answered_without_retransmission_timer",
        &["nginx"],
    ) {
        return;
    }
    by_hand(|_, site, attached, wire| {
        let hit = get(&site.pages[0].path);
        let miss = get(&format!("{}?never=before", site.pages[1].path));
        for (port, second) in [(5131, &hit), (5132, &miss)] {
            let mut peer = Peer::open(wire, port, 77);
            wire.send(&peer.ack());
            wire.send(&peer.data(0, &hit));
            let first = wire.receive(port);
            let (held, handed) = (
                attached.count("drop_pipelined"),
                attached.count("tcp_handed"),
            );
            wire.send(&peer.data(hit.len(), second));
            wait_until("it to be held", || {
                (attached.count("drop_pipelined") > held).then_some(())
            });
            peer.sent(hit.len() + second.len());
            peer.received(&first);
            // The client sends the request only once.
            wire.send(&peer.ack());
            let mut answer = wire.receive(port);
            if answer.payload.is_empty() {
                // The kernel's acknowledgement, sent before the server has read the request.
                answer = wire.receive(port);
            }
            let is_miss = second == &miss;
            assert_eq!(answer.ack, peer.next.seq);
            peer.received(&answer);
            let right = answer.payload.starts_with(b"HTTP/1.1 200");
            assert!(
                right && (is_miss || is_answer(&answer, site, 0)),
                "{answer:?}"
            );
            assert_eq!(attached.count("tcp_handed"), handed + u64::from(is_miss));
        }
        // The same with a FIN: it is retransmitted if the last acknowledgement is missing.
        let mut peer = Peer::open(wire, 5133, 77);
        wire.send(&peer.ack());
        wire.send(&peer.data(0, &hit));
        let answer = wire.receive(5133);
        peer.sent(hit.len());
        wire.send(&Segment {
            flags: FIN | ACK,
            ..peer.ack()
        });
        peer.sent(1);
        peer.received(&answer);
        wire.send(&peer.ack());
        let end = wire.receive(5133);
        assert_eq!((end.flags, end.ack), (FIN | ACK, peer.next.seq), "{end:?}");
    });
}

#[test]
fn late_duplicates_of_handshake_change_nothing() {
    if skipped("late_duplicates_of_handshake_change_nothing", &["nginx"]) {
        return;
    }
    by_hand(|_, site, _, wire| {
        let request = get(&site.pages[0].path);
        let mut peer = Peer::open(wire, 5201, 77);
        wire.send(&peer.ack());
        let first = peer.data(0, &request);
        for _ in 0..2 {
            wire.send(&peer.data(0, &request));
            let answer = wire.receive(5201);
            assert!(is_answer(&answer, site, 0), "{answer:?}");
            peer.sent(request.len());
            peer.received(&answer);
        }
        // Sends late duplicates of the SYN and of the first request. Each is acknowledged.
        wire.send(&syn(5201, 77));
        let answer = wire.receive(5201);
        assert_eq!((answer.flags, answer.payload.len()), (ACK, 0), "{answer:?}");
        wire.send(&first);
        let answer = wire.receive(5201);
        assert_eq!(
            answer.payload, b"",
            "at most it is acknowledged: {answer:?}"
        );
        wire.send(&peer.data(0, &request));
        let answer = wire.receive(5201);
        assert!(is_answer(&answer, site, 0), "{answer:?}");
        peer.received(&answer);
    });
}

#[test]
fn port_is_reused_while_level_drains() {
    if skipped("port_is_reused_while_level_drains", &["nginx"]) {
        return;
    }
    by_hand(|_, site, attached, wire| {
        let request = get(&site.pages[0].path);
        // One client has closed its connection, but the last acknowledgement was lost; the other client is silent.
        for (port, closes) in [(5301, true), (5302, false)] {
            let mut peer = Peer::open(wire, port, 77);
            wire.send(&peer.ack());
            wire.send(&peer.data(0, &request));
            let answer = wire.receive(port);
            peer.sent(request.len());
            peer.received(&answer);
            wire.send(&peer.ack());
            if closes {
                wire.send(&Segment {
                    flags: FIN | ACK,
                    ..peer.ack()
                });
                assert_eq!(wire.receive(port).flags, FIN | ACK);
            }
        }
        attached.level.set_mode(MODE_DRAIN);
        wire.send(&syn(5302, 999_999));
        let challenge = wire.receive(5302);
        assert_eq!(challenge.flags, ACK);
        let reset = Segment {
            seq: challenge.ack,
            flags: RST,
            port: 5302,
            ..Segment::default()
        };
        wire.send(&reset);
        for port in [5301, 5302] {
            let peer = Peer::open(wire, port, 999_999);
            wire.send(&peer.ack());
            wire.send(&peer.data(0, &request));
            let mut answer = wire.receive(port);
            if answer.payload.is_empty() {
                answer = wire.receive(port);
            }
            assert!(answer.payload.starts_with(b"HTTP/1.1 200"), "{answer:?}");
        }
        assert_eq!(attached.count("tcp_handed"), attached.count("tcp_kept"));
    });
}

/// As in Linux: a SYN on an open connection gets a challenge ACK (RFC 5961 §4), and segments without a connection get a
/// reset.
#[test]
fn syn_on_open_connection_gets_challenge_ack() {
    let test = "syn_on_open_connection_gets_challenge_ack";
    if skipped(test, &["nginx"]) {
        return;
    }
    by_hand(|_, site, attached, wire| {
        let request = get(&site.pages[0].path);
        let mut peer = Peer::open(wire, 5401, 77);
        let first = peer.data(0, &request);
        wire.send(&peer.ack());
        // Sends a SYN on the open connection.
        wire.send(&syn(5401, 999_999));
        let challenge = wire.receive(5401);
        assert_eq!(challenge.flags, ACK);
        let seen = (challenge.seq, challenge.ack);
        assert_eq!(seen, (peer.next.ack, peer.next.seq));
        // The client has not restarted, so the connection continues.
        wire.send(&first);
        let answer = wire.receive(5401);
        assert!(is_answer(&answer, site, 0), "{answer:?}");
        peer.sent(request.len());
        peer.received(&answer);
        wire.send(&peer.ack());
        let hits = attached.count("answer_hit");
        wire.send(&Segment {
            flags: RST,
            ..peer.ack()
        });
        // Neither the old handshake nor its cookie opens the connection again.
        wire.send(&first);
        let answer = wire.receive(5401);
        assert_eq!((answer.flags, answer.seq), (RST, first.ack), "{answer:?}");
        assert_eq!(attached.count("answer_hit"), hits);
        let again = Peer::open(wire, 5401, 999_999);
        wire.send(&again.data(0, &request));
        let answer = wire.receive(5401);
        assert!(is_answer(&answer, site, 0), "{answer:?}");
    });
}
