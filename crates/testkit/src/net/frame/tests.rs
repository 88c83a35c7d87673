//! Tests with frames that are built byte by byte, with separately computed checksums.

use super::*;

const SYN_OPTIONS: &[u8] = &[
    2, 4, 0x05, 0xb4, // MSS 1460
    4, 2, // SACK permitted
    8, 10, 1, 2, 3, 4, 0, 0, 0, 0, // timestamps
    1, // NOP
    3, 3, 7, // window scale
];

fn tcp(flags: u8, options: &[u8], data: &[u8], pseudo_header: u32) -> Vec<u8> {
    let words = u8::try_from((TCP_LEN_MIN + options.len()) / 4).unwrap();
    let mut tcp = vec![
        0x9c,
        0x40,
        0,
        80,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        words << 4,
        flags,
        0xff,
        0xff,
    ];
    tcp.extend([0, 0, 0, 0]);
    tcp.extend(options);
    tcp.extend(data);
    let len = u32::try_from(tcp.len()).unwrap();
    let checksum = !fold(pseudo_header + 6 + len + sum(&tcp));
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    tcp
}

fn v4(flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let addresses = [10, 77, 0, 1, 10, 77, 0, 2];
    let tcp = tcp(flags, options, data, sum(&addresses));
    let len = u16::try_from(20 + tcp.len()).unwrap().to_be_bytes();
    let mut head = vec![0x45, 0, len[0], len[1], 0, 1, 0x40, 0, 64, 6, 0, 0];
    head.extend(addresses);
    let checksum = !fold(sum(&head));
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00]);
    frame.extend(head);
    frame.extend(tcp);
    frame
}

fn v6(flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut addresses = [0; 32];
    (addresses[0], addresses[15], addresses[16], addresses[31]) = (0xfd, 1, 0xfd, 2);
    let tcp = tcp(flags, options, data, sum(&addresses));
    let len = u16::try_from(tcp.len()).unwrap().to_be_bytes();
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, len[0], len[1], 6, 64]);
    frame.extend(addresses);
    frame.extend(tcp);
    frame
}

fn kinds(frame: &[u8]) -> Vec<u8> {
    let found = options(frame, segment(frame).unwrap().options);
    found.into_iter().map(|(kind, _)| kind).collect()
}

fn edited(mut frame: Vec<u8>, edits: &SynEdits) -> (Vec<u8>, bool) {
    let segment = segment(&frame).unwrap();
    let changed = edit_syn(&mut frame, &segment, edits);
    (frame, changed)
}

#[test]
fn checksums_are_verified_for_both_families_and_odd_lengths() {
    for data in [&b""[..], b"odd", b"even"] {
        for mut frame in [v4(0x10, &[], data), v6(0x10, &[], data)] {
            let found = segment(&frame).unwrap();
            assert!(checksums_hold(&frame, &found));
            *frame.last_mut().unwrap() ^= 1;
            assert!(!checksums_hold(&frame, &found));
        }
    }
    let mut frame = v4(0x10, &[], b"");
    frame[22] -= 1; // the time to live
    assert!(!checksums_hold(&frame, &segment(&frame).unwrap()));
}

#[test]
fn ethernet_padding_is_not_part_of_the_segment() {
    let mut frame = v4(0x10, &[], b"");
    frame.extend([0xee; 6]);
    assert!(checksums_hold(&frame, &segment(&frame).unwrap()));
}

#[test]
fn syn_edit_removes_its_option_and_updates_the_checksum() {
    let strip = SynEdits::strip_all();
    let cases = [
        (
            SynEdits {
                no_timestamps: true,
                ..SynEdits::default()
            },
            vec![2, 4, 3],
        ),
        (
            SynEdits {
                no_sack: true,
                ..SynEdits::default()
            },
            vec![2, 8, 3],
        ),
        (
            SynEdits {
                no_window_scale: true,
                ..SynEdits::default()
            },
            vec![2, 4, 8],
        ),
        (strip, vec![2]),
    ];
    for (edits, left) in cases {
        for frame in [v4(2, SYN_OPTIONS, b""), v6(0x12, SYN_OPTIONS, b"data")] {
            let (frame, changed) = edited(frame, &edits);
            assert!(changed);
            assert_eq!(kinds(&frame), left);
            assert!(
                checksums_hold(&frame, &segment(&frame).unwrap()),
                "{edits:?}"
            );
        }
    }
}

#[test]
fn mss_is_reduced_but_never_raised() {
    for (max, mss, changed) in [(536, 536, true), (1360, 1360, true), (8960, 1460, false)] {
        let edits = SynEdits {
            mss_max: Some(max),
            ..SynEdits::default()
        };
        let (frame, did) = edited(v6(2, SYN_OPTIONS, b""), &edits);
        let found = segment(&frame).unwrap();
        assert_eq!(be16(&frame, found.options.start + 2), Some(mss));
        assert_eq!(did, changed);
        assert!(checksums_hold(&frame, &found));
    }
}

#[test]
fn edit_at_an_odd_offset_updates_the_checksum() {
    let edits = SynEdits {
        mss_max: Some(1000),
        ..SynEdits::strip_all()
    };
    let shifted = [&[1][..], SYN_OPTIONS, &[0, 0, 0]].concat();
    let (frame, changed) = edited(v4(2, &shifted, b""), &edits);
    assert!(changed);
    assert_eq!(kinds(&frame), [2]);
    assert!(checksums_hold(&frame, &segment(&frame).unwrap()));
}

#[test]
fn segments_without_syn_are_not_edited() {
    let frame = v4(0x10, SYN_OPTIONS, b"data");
    assert_eq!(
        edited(frame.clone(), &SynEdits::strip_all()),
        (frame, false)
    );
}

#[test]
fn malformed_option_ends_the_parsing_of_options() {
    for options in [
        [2, 0, 0, 0],
        [2, 1, 0, 0],
        [2, 9, 0, 0],
        [1, 1, 1, 2],
        [0, 4, 4, 4],
    ] {
        let (_, changed) = edited(v4(2, &options, b""), &SynEdits::strip_all());
        assert!(!changed);
    }
}

#[test]
fn truncated_fragmented_and_non_tcp_frames_have_no_segment() {
    for frame in [v4(2, SYN_OPTIONS, b"x"), v6(2, SYN_OPTIONS, b"x")] {
        for len in 0..frame.len() {
            assert_eq!(segment(&frame[..len]), None, "{len} bytes");
            resolves_addresses(&frame[..len]);
        }
    }
    let mut fragment = v4(2, &[], b"");
    fragment[20] = 0x20;
    assert_eq!(segment(&fragment), None);
    let mut udp = v4(2, &[], b"");
    udp[23] = 17;
    assert_eq!(segment(&udp), None);
}

#[test]
fn arp_and_neighbour_discovery_are_address_resolution() {
    let mut arp = vec![2; 42];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert!(resolves_addresses(&arp));
    let mut solicitation = v6(2, &[], b"");
    solicitation[20] = 58;
    solicitation[54] = 135;
    assert!(resolves_addresses(&solicitation));
    solicitation[54] = 128; // an echo request
    assert!(!resolves_addresses(&solicitation));
    assert!(!resolves_addresses(&v4(2, &[], b"")));
}
