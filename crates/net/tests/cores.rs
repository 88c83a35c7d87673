//! Several cores with one stack each: the owner of frames, and the behaviour of cores that do not lead.

mod common;

use common::peer::{ACK, FIN, Peer, PeerSegment, RST, SYN, sent_segments};
use common::{CLIENT, CLIENT_MAC, SERVER, SERVER_MAC, Side, is_tcp, repair, settings};
use lowroad_net::{AddressSource, FlowShare, FlowSteering, FrameOwner, StackSettings};
use std::net::{Ipv4Addr, SocketAddrV4};

const SECOND_US: u64 = 1_000_000;
const SECRET: [u8; 32] = *b"a secret that is for tests only!";

fn steering(count: u16) -> FlowSteering {
    FlowSteering::new(&SECRET, count)
}

fn owner(frame: &[u8]) -> FrameOwner {
    steering(16).owner(SERVER_MAC, Some(SERVER.to_bits()), frame)
}

/// The stack of one of `count` cores, which gets its address from the leading core.
fn side(core: u16, count: u16) -> Side {
    Side::new(StackSettings {
        address: AddressSource::OtherCore,
        share: Some(FlowShare {
            steering: steering(count),
            core,
        }),
        ..settings(SERVER, SERVER_MAC)
    })
}

fn tell(side: &mut Side, now_us: u64, address: Option<Ipv4Addr>) {
    let address = address.map(|address| (address, 24, None));
    let Side { stack, wire, user } = side;
    stack.set_address(now_us, wire, user, address);
}

fn core_of(peer: &Peer, count: u16) -> u16 {
    steering(count).core_of(peer.address.to_bits(), peer.port, peer.to_port)
}

/// A peer with a connection that belongs to this core.
fn peer_of(core: u16, count: u16) -> Peer {
    let peers = (5000..).map(|port| Peer {
        port,
        ..Peer::default()
    });
    let mut of_core = peers.filter(|peer| core_of(peer, count) == core);
    of_core.next().expect("one of many")
}

#[test]
fn connections_are_distributed_evenly() {
    for secret in [[0; 32], [7; 32], SECRET] {
        for count in [1, 2, 3, 4, 7, 16, 64] {
            let steering = FlowSteering::new(&secret, count);
            for differs in ["port", "address", "both"] {
                let mut shares = vec![0u32; count.into()];
                for n in 0..20_000u32 {
                    let (remote, port) = match differs {
                        "port" => (0x0a00_0002, n as u16),
                        "address" => (0x0a00_0000 + n, 5000),
                        _ => (0xc000_0200 + n * 77, (n * 13) as u16),
                    };
                    shares[usize::from(steering.core_of(remote, port, 80))] += 1;
                }
                let mean = 20_000 / u32::from(count);
                // Five standard deviations of a uniform distribution.
                let off = 5 * mean.isqrt() + 5;
                let is_even = |share: &u32| share.abs_diff(mean) <= off;
                assert!(
                    shares.iter().all(is_even),
                    "{count}, {differs}: {shares:?}, mean {mean}"
                );
            }
        }
    }
}

#[test]
fn another_secret_gives_another_distribution() {
    let other = FlowSteering::new(&[9; 32], 16);
    let same = (0..1600u16).filter(|port| {
        let of = |steering: FlowSteering| steering.core_of(1, *port, 80);
        of(other) == of(steering(16))
    });
    let same = same.count();
    assert!((50..200).contains(&same), "{same}");
}

#[test]
fn segments_belong_to_the_core_of_their_connection() {
    let peer = Peer::default();
    let frame = peer.frame(&PeerSegment::default());
    let core = core_of(&peer, 16);
    assert_eq!(owner(&frame), FrameOwner::Core(core));
    // IP options are skipped.
    let mut long = frame.clone();
    long[14] = 0x46;
    long.splice(34..34, [1, 1, 1, 1]);
    assert_eq!(owner(&long), FrameOwner::Core(core));
    // The owner verifies checksums, not the receiving core.
    let mut wrong = frame.clone();
    wrong[50] ^= 1;
    assert_eq!(owner(&wrong), FrameOwner::Core(core));
    for (what, at, value) in [
        ("another machine's", 5, 9),
        ("not IPv4", 14, 0x65),
        ("the first of several fragments", 20, 0x20),
        ("a later fragment", 21, 1),
        ("another protocol", 23, 47),
        ("IPv6", 12, 0x86),
    ] {
        let mut other = frame.clone();
        other[at] = value;
        assert_eq!(owner(&other), FrameOwner::Here, "{what}");
    }
    for len in 0..38 {
        assert_eq!(owner(&frame[..len]), FrameOwner::Here, "{len}");
    }
}

#[test]
fn icmp_error_belongs_to_the_core_of_the_quoted_connection() {
    let peer = peer_of(11, 16);
    let mut frame = peer.frame(&PeerSegment::default())[..34].to_vec();
    frame[23] = 1;
    let mut quoted = peer.frame(&PeerSegment::default())[14..42].to_vec();
    // The quoted segment was sent by this side.
    let (from, to) = (SERVER.octets(), CLIENT.octets());
    quoted[12..16].copy_from_slice(&from);
    quoted[16..20].copy_from_slice(&to);
    quoted[20..22].copy_from_slice(&80u16.to_be_bytes());
    quoted[22..24].copy_from_slice(&peer.port.to_be_bytes());
    let message =
        |kind: u8, code: u8| [&frame[..], &[kind, code, 0, 0, 0, 0, 5, 0], &quoted].concat();
    assert_eq!(owner(&message(3, 4)), FrameOwner::Core(11));
    assert_eq!(owner(&message(8, 0)), FrameOwner::Here);
    assert_eq!(owner(&message(3, 1)), FrameOwner::Here);
    let whole = message(3, 4);
    for len in 34..whole.len() {
        assert_eq!(owner(&whole[..len]), FrameOwner::Here, "{len}");
    }
}

fn datagram(from_port: u16, port: u16) -> Vec<u8> {
    let mut frame = Peer::default().frame(&PeerSegment::default())[..34].to_vec();
    frame[23] = 17;
    frame.extend(from_port.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

#[test]
fn dhcp_replies_belong_to_core_0() {
    let mut offer = datagram(67, 68);
    assert_eq!(owner(&offer), FrameOwner::Core(0));
    offer[..6].fill(0xff);
    assert_eq!(owner(&offer), FrameOwner::Core(0));
    assert_eq!(owner(&datagram(67, 69)), FrameOwner::Here);
    assert_eq!(owner(&datagram(53, 68)), FrameOwner::Here);
}

fn arp(operation: u8, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &CLIENT_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0]].concat();
    frame.push(operation);
    frame.extend(CLIENT_MAC);
    frame.extend(from.octets());
    frame.extend([0; 6]);
    frame.extend(to.octets());
    frame
}

#[test]
fn arp_messages_for_us_belong_to_all_cores() {
    let other = Ipv4Addr::new(10, 0, 0, 77);
    for operation in [1, 2] {
        assert_eq!(owner(&arp(operation, CLIENT, SERVER)), FrameOwner::All);
        assert_eq!(owner(&arp(operation, CLIENT, CLIENT)), FrameOwner::All);
        assert_eq!(owner(&arp(operation, CLIENT, other)), FrameOwner::Here);
    }
    assert_eq!(owner(&arp(3, CLIENT, SERVER)), FrameOwner::Here);
    let steering = steering(16);
    let without = steering.owner(SERVER_MAC, None, &arp(1, CLIENT, SERVER));
    assert_eq!(without, FrameOwner::Here);
}

#[test]
fn malformed_frames_stay_with_the_receiving_core() {
    let mut random = common::Random(5);
    let whole = Peer::default().frame(&PeerSegment::default());
    for _ in 0..200_000 {
        let mut frame = whole.clone();
        for _ in 0..random.below(6) {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = random.next() as u8;
        }
        frame.truncate(random.below(60) as usize);
        if let FrameOwner::Core(core) = owner(&frame) {
            assert!(core < 16);
        }
    }
}

#[test]
fn replies_to_outgoing_connections_arrive_at_their_core() {
    for count in [1, 2, 16, 64] {
        for core in [0, count / 2, count - 1] {
            let mut side = side(core, count);
            tell(&mut side, SECOND_US, Some(SERVER));
            let to = SocketAddrV4::new(CLIENT, 3306);
            for _ in 0..30 {
                side.connect(SECOND_US, to);
            }
            side.receive(SECOND_US, &arp(1, CLIENT, SERVER));
            let syns: Vec<Vec<u8>> = side.wire.frames.drain(..).filter(|it| is_tcp(it)).collect();
            assert_eq!(syns.len(), 30);
            for syn in syns {
                assert_eq!(syn[47], SYN);
                let port = u16::from_be_bytes([syn[34], syn[35]]);
                let owner = steering(count).core_of(CLIENT.to_bits(), 3306, port);
                assert_eq!(owner, core);
            }
        }
    }
}

#[test]
fn only_core_0_answers_arp_requests() {
    for core in [0, 1] {
        let mut side = side(core, 4);
        side.tick(SECOND_US);
        assert_eq!(side.wire.count, 0, "nobody asks for an address");
        tell(&mut side, SECOND_US, Some(SERVER));
        side.tick(SECOND_US);
        let news = side.wire.frames.drain(..).count();
        assert_eq!(news, usize::from(core == 0));
        side.receive(SECOND_US, &arp(1, CLIENT, SERVER));
        assert_eq!(side.counter("arp_answered"), u64::from(core == 0));
        // It learned from the request nevertheless.
        side.wire.frames.clear();
        side.connect(SECOND_US, SocketAddrV4::new(CLIENT, 3306));
        let first = &side.wire.frames[0];
        assert!(is_tcp(first) && first[..6] == CLIENT_MAC);
    }
    // The same for a core with a static address.
    let of = |core| StackSettings {
        share: Some(FlowShare {
            steering: steering(4),
            core,
        }),
        ..settings(SERVER, SERVER_MAC)
    };
    for core in [0, 1] {
        let mut side = Side::new(of(core));
        side.tick(SECOND_US);
        assert_eq!(side.wire.count > 0, core == 0);
    }
}

#[test]
fn connections_end_when_their_address_changes() {
    let peer = peer_of(1, 4);
    let mut side = side(1, 4);
    let syn = PeerSegment {
        flags: SYN,
        window: 9000,
        ..PeerSegment::default()
    };
    assert_eq!(
        peer.exchange(&mut side, SECOND_US, &syn),
        [],
        "no address yet"
    );
    tell(&mut side, SECOND_US, Some(SERVER));
    peer.open(&mut side, SECOND_US, 9000, &[]);
    // The gateway changes: connections continue.
    let Side { stack, wire, user } = &mut side;
    let gateway = Some(Ipv4Addr::new(10, 0, 0, 9));
    stack.set_address(SECOND_US, wire, user, Some((SERVER, 16, gateway)));
    assert_eq!(stack.address(), Some((SERVER, 16, gateway)));
    assert_eq!((stack.open_count(), user.ended.len()), (1, 0));
    for next in [Some(Ipv4Addr::new(10, 0, 0, 50)), None] {
        tell(&mut side, SECOND_US, Some(SERVER));
        if side.stack.open_count() == 0 {
            peer.open(&mut side, SECOND_US, 9000, &[]);
        }
        let before = side.user.ended.len();
        tell(&mut side, SECOND_US, next);
        assert_eq!(side.user.ended.len(), before + 1, "{next:?}");
        assert_eq!(side.stack.open_count(), 0);
        sent_segments(&mut side);
        assert_eq!(peer.exchange(&mut side, SECOND_US, &syn), [], "{next:?}");
    }
    assert_eq!(side.counter("packets_not_ours"), 3);
}

/// Opens a connection; this side closes it first.
fn leave_in_time_wait(side: &mut Side, peer: &Peer) {
    let (seq, nxt) = peer.open(side, SECOND_US, 9000, &[]);
    let (id, _) = *side.user.opened.last().expect("just opened");
    side.close(SECOND_US, id);
    sent_segments(side);
    let theirs = PeerSegment {
        flags: ACK | FIN,
        seq,
        ack: nxt + 1,
        window: 9000,
        ..PeerSegment::default()
    };
    assert_eq!(peer.exchange(side, SECOND_US, &theirs).len(), 1);
    assert_eq!(side.stack.open_count(), 0);
}

#[test]
fn time_wait_entries_of_an_old_address_are_dropped() {
    let peer = peer_of(1, 4);
    let mut side = side(1, 4);
    tell(&mut side, SECOND_US, Some(SERVER));
    leave_in_time_wait(&mut side, &peer);
    // Below the old sequence numbers; a client has separate ones for each address.
    let syn = PeerSegment {
        seq: 500,
        flags: SYN,
        window: 9000,
        ..PeerSegment::default()
    };
    let flags = |answers: &[PeerSegment]| answers.iter().map(|it| it.flags).collect::<Vec<_>>();
    // The same address is assigned again: the old connection is still in TIME_WAIT.
    tell(&mut side, SECOND_US, None);
    tell(&mut side, SECOND_US, Some(SERVER));
    assert_eq!(flags(&peer.exchange(&mut side, SECOND_US, &syn)), [ACK]);
    let next = Ipv4Addr::new(10, 0, 0, 50);
    tell(&mut side, SECOND_US, Some(next));
    let mut frame = peer.frame(&syn);
    frame[30..34].copy_from_slice(&next.octets());
    repair(&mut frame);
    side.receive(SECOND_US, &frame);
    assert_eq!(flags(&sent_segments(&mut side)), [SYN | ACK]);
}

#[test]
fn reset_rate_is_divided_among_cores() {
    let mut side = side(0, 4);
    tell(&mut side, SECOND_US, Some(SERVER));
    let stray = PeerSegment {
        flags: ACK,
        ..PeerSegment::default()
    };
    for port in 0..1000 {
        let peer = Peer {
            port,
            ..Peer::default()
        };
        let answers = peer.exchange(&mut side, SECOND_US, &stray);
        assert!(answers.iter().all(|it| it.flags == RST));
    }
    assert_eq!(side.counter("resets_sent"), 250);
}

#[test]
fn single_stack_owns_all_frames() {
    let side = Side::new(settings(SERVER, SERVER_MAC));
    let frame = Peer::default().frame(&PeerSegment::default());
    assert_eq!(side.stack.owner(&frame), FrameOwner::Here);
}
