//! The DHCP client against a scripted server.

mod common;

use common::{SERVER_MAC, Side, fold, settings, sum};
use lowroad_net::AddressSource;
use std::net::Ipv4Addr;

const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
const GIVEN: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 50);
const SECOND_US: u64 = 1_000_000;

struct Message {
    kind: u8,
    xid: [u8; 4],
    client_address: [u8; 4],
    wanted: Option<[u8; 4]>,
    is_broadcast: bool,
}

fn client() -> Side {
    Side::new(lowroad_net::StackSettings {
        address: AddressSource::Dhcp,
        ..settings(Ipv4Addr::UNSPECIFIED, SERVER_MAC)
    })
}

fn sent_messages(side: &mut Side) -> Vec<Message> {
    let frames = std::mem::take(&mut side.wire.frames);
    frames.iter().filter_map(|frame| read(frame)).collect()
}

fn read(frame: &[u8]) -> Option<Message> {
    if frame[12..14] != [8, 0] || frame[23] != 17 {
        return None;
    }
    assert_eq!(fold(sum(&frame[14..34])), 0xffff);
    let udp_len = frame.len() as u64 - 34;
    assert_eq!(fold(sum(&frame[26..]) + 17 + udp_len), 0xffff);
    assert_eq!(frame[34..38], [0, 68, 0, 67]);
    let text = &frame[42..];
    assert_eq!(text[28..34], SERVER_MAC);
    let mut options = &text[240..];
    let (mut kind, mut wanted) = (0, None);
    while let [option, len, rest @ ..] = options {
        if *option == 255 {
            break;
        }
        let (value, rest) = rest.split_at(usize::from(*len));
        match option {
            53 => kind = value[0],
            50 => wanted = value.try_into().ok(),
            _ => {}
        }
        options = rest;
    }
    Some(Message {
        kind,
        xid: text[4..8].try_into().expect("four"),
        client_address: text[12..16].try_into().expect("four"),
        wanted,
        is_broadcast: frame[..6] == [0xff; 6],
    })
}

fn answer(kind: u8, xid: [u8; 4], address: Ipv4Addr, lease_s: u32, is_broadcast: bool) -> Vec<u8> {
    let mask = Ipv4Addr::new(255, 255, 255, 0);
    masked(kind, xid, (address, mask), lease_s, is_broadcast)
}

fn masked(
    kind: u8,
    xid: [u8; 4],
    (address, mask): (Ipv4Addr, Ipv4Addr),
    lease_s: u32,
    is_broadcast: bool,
) -> Vec<u8> {
    let mut text = vec![0; 240];
    text[..3].copy_from_slice(&[2, 1, 6]);
    text[4..8].copy_from_slice(&xid);
    text[16..20].copy_from_slice(&address.octets());
    text[28..34].copy_from_slice(&SERVER_MAC);
    text[236..240].copy_from_slice(&[99, 130, 83, 99]);
    text.extend([53, 1, kind, 1, 4]);
    text.extend(mask.octets());
    text.extend([3, 4]);
    text.extend(ROUTER.octets());
    text.extend([54, 4]);
    text.extend(ROUTER.octets());
    text.extend([51, 4]);
    text.extend(lease_s.to_be_bytes());
    text.push(255);
    let mut frame = vec![0; 42];
    let to_mac = if is_broadcast { [0xff; 6] } else { SERVER_MAC };
    let to = if is_broadcast {
        Ipv4Addr::BROADCAST
    } else {
        address
    };
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(&ROUTER_MAC);
    let ip_len = 28 + text.len() as u16;
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17]);
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    frame[26..30].copy_from_slice(&ROUTER.octets());
    frame[30..34].copy_from_slice(&to.octets());
    let ip = !fold(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    frame[34..38].copy_from_slice(&[0, 67, 0, 68]);
    frame[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    frame.extend(text);
    frame
}

/// Obtains an address. Returns the time afterwards.
fn bound(side: &mut Side, is_broadcast: bool, lease_s: u32) -> u64 {
    side.tick(SECOND_US);
    let asked = sent_messages(side);
    assert_eq!((asked.len(), asked[0].kind), (1, 1));
    assert!(asked[0].is_broadcast);
    // A reply to another transaction.
    side.receive(
        SECOND_US,
        &answer(2, [1, 2, 3, 4], GIVEN, lease_s, is_broadcast),
    );
    assert!(sent_messages(side).is_empty());
    side.receive(
        SECOND_US,
        &answer(2, asked[0].xid, GIVEN, lease_s, is_broadcast),
    );
    let asked = sent_messages(side);
    assert_eq!((asked.len(), asked[0].kind), (1, 3));
    assert_eq!(asked[0].wanted, Some(GIVEN.octets()));
    assert_eq!(side.stack.address(), None);
    side.receive(
        SECOND_US,
        &answer(5, asked[0].xid, GIVEN, lease_s, is_broadcast),
    );
    assert_eq!(side.stack.address(), Some((GIVEN, 24, Some(ROUTER))));
    side.tick(SECOND_US);
    // The ARP announcement, and the ARP request for the gateway.
    let arp: Vec<_> = std::mem::take(&mut side.wire.frames);
    assert_eq!(arp.len(), 2);
    assert_eq!(arp[0][28..32], arp[0][38..42]);
    side.receive(SECOND_US, &reply());
    SECOND_US
}

/// The router's ARP reply.
fn reply() -> Vec<u8> {
    let mut reply = vec![0; 60];
    reply[..6].copy_from_slice(&SERVER_MAC);
    reply[6..12].copy_from_slice(&ROUTER_MAC);
    reply[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply[22..28].copy_from_slice(&ROUTER_MAC);
    reply[28..32].copy_from_slice(&ROUTER.octets());
    reply[32..38].copy_from_slice(&SERVER_MAC);
    reply[38..42].copy_from_slice(&GIVEN.octets());
    reply
}

fn answer_arp(side: &mut Side, now_us: u64) {
    if side.wire.frames.iter().any(|frame| frame[12..14] == [8, 6]) {
        side.receive(now_us, &reply());
    }
}

#[test]
fn address_is_obtained_by_unicast_and_broadcast() {
    for is_broadcast in [false, true] {
        bound(&mut client(), is_broadcast, 3600);
    }
}

#[test]
fn discover_is_repeated_with_exponential_backoff() {
    let mut side = client();
    let mut now_us = SECOND_US;
    let mut times = Vec::new();
    while now_us < 600 * SECOND_US {
        let next_us = side.tick(now_us).expect("a timer");
        if !sent_messages(&mut side).is_empty() {
            times.push(now_us);
        }
        now_us = next_us.max(now_us + 1);
    }
    let gaps: Vec<u64> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / SECOND_US)
        .collect();
    assert!(
        gaps[0] <= 3 && gaps[2] >= 6 && gaps.iter().all(|gap| *gap <= 65),
        "{gaps:?}"
    );
    assert!(gaps.last() >= Some(&62), "{gaps:?}");
}

#[test]
fn lease_is_renewed_rebound_and_expires() {
    let mut side = client();
    let mut now_us = bound(&mut side, false, 3600);
    let began_us = now_us;
    // The first renewal succeeds.
    let asked = loop {
        now_us = side.tick(now_us).expect("a timer").max(now_us + 1);
        answer_arp(&mut side, now_us);
        if let Some(asked) = sent_messages(&mut side).pop() {
            break asked;
        }
    };
    assert!(now_us >= began_us + 1800 * SECOND_US);
    assert_eq!((asked.kind, asked.client_address), (3, GIVEN.octets()));
    assert!(!asked.is_broadcast);
    side.receive(now_us, &answer(5, asked.xid, GIVEN, 3600, false));
    assert_eq!(side.counter("dhcp_bound"), 2);
    let renewed_us = now_us;
    // Then the server is silent.
    let mut kinds = Vec::new();
    while side.stack.address().is_some() {
        now_us = side.tick(now_us).expect("a timer").max(now_us + 1);
        answer_arp(&mut side, now_us);
        kinds.extend(sent_messages(&mut side).iter().map(|it| it.is_broadcast));
    }
    assert!((3600..3610).contains(&((now_us - renewed_us) / SECOND_US)));
    assert!(!kinds[0] && kinds.last() == Some(&true) && kinds.is_sorted());
    assert_eq!(side.counter("dhcp_lost"), 1);
    // The client starts again.
    side.tick(now_us + SECOND_US);
    side.wire.frames.clear();
    bound_again(&mut side, now_us);
}

fn bound_again(side: &mut Side, mut now_us: u64) {
    let asked = loop {
        now_us = side.tick(now_us).expect("a timer").max(now_us + 1);
        if let Some(asked) = sent_messages(side).pop() {
            break asked;
        }
    };
    assert_eq!(asked.kind, 1);
    side.receive(now_us, &answer(2, asked.xid, GIVEN, 60, true));
    let asked = sent_messages(side);
    side.receive(now_us, &answer(5, asked[0].xid, GIVEN, 60, true));
    assert!(side.stack.address().is_some());
}

#[test]
fn nak_revokes_the_address() {
    let mut side = client();
    let mut now_us = bound(&mut side, false, 3600);
    let asked = loop {
        now_us = side.tick(now_us).expect("a timer").max(now_us + 1);
        answer_arp(&mut side, now_us);
        if let Some(asked) = sent_messages(&mut side).pop() {
            break asked;
        }
    };
    side.receive(now_us, &answer(6, asked.xid, GIVEN, 0, true));
    assert_eq!(side.stack.address(), None);
}

#[test]
fn impossible_addresses_and_masks_are_ignored() {
    let impossible = [
        ("0.0.0.0", "255.255.255.0"),
        ("127.0.0.5", "255.0.0.0"),
        ("224.0.0.5", "255.255.255.0"),
        ("255.255.255.255", "255.255.255.0"),
        ("192.168.7.50", "255.0.255.0"),
        ("192.168.7.50", "0.255.255.255"),
        ("192.168.7.50", "0.0.0.0"),
        // The address of the network, and its broadcast addresses.
        ("192.168.7.0", "255.255.255.0"),
        ("192.168.7.255", "255.255.255.0"),
        ("192.168.7.63", "255.255.255.192"),
    ];
    let parse = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    for (address, mask) in impossible {
        let place = (parse(address), parse(mask));
        let mut side = client();
        side.tick(SECOND_US);
        let xid = sent_messages(&mut side)[0].xid;
        side.receive(SECOND_US, &masked(2, xid, place, 3600, true));
        assert!(
            sent_messages(&mut side).is_empty(),
            "an offer of {address}/{mask}"
        );
        assert_eq!(side.counter("dhcp_ignored"), 1);
        // An ACK for an address other than the offered one is also ignored.
        side.receive(SECOND_US, &answer(2, xid, place.0, 3600, true));
        let Some(asked) = sent_messages(&mut side).pop() else {
            continue;
        };
        side.receive(SECOND_US, &masked(5, asked.xid, place, 3600, true));
        assert_eq!(side.stack.address(), None, "{address}/{mask}");
    }
    for (address, mask, prefix_len) in [
        ("192.168.7.0", "255.255.0.0", 16),
        ("192.168.7.0", "255.255.255.254", 31),
        ("192.168.7.50", "255.255.255.255", 32),
    ] {
        let place = (parse(address), parse(mask));
        let mut side = client();
        side.tick(SECOND_US);
        let xid = sent_messages(&mut side)[0].xid;
        side.receive(SECOND_US, &masked(2, xid, place, 3600, true));
        let xid = sent_messages(&mut side)[0].xid;
        side.receive(SECOND_US, &masked(5, xid, place, 3600, true));
        let wanted = Some((place.0, prefix_len, Some(ROUTER)));
        assert_eq!(side.stack.address(), wanted);
    }
}
