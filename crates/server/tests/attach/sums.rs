//! Checksums that local peers leave to the device, wrong checksums, and frames that are not addressed to the receiving
//! device.

use lowroad_testkit::net::{DEVICE, LinkMangling, TestPath, TestSite, WebServer};
use lowroad_testkit::wait_until;

use crate::attached::{Attached, get, send_request, server_v4, servers};
use crate::cables::{Cable, Routed, ip};
use crate::raw::{ACK, Peer, RST, SYN, Segment, Wire};
use crate::skipped;

#[test]
fn device_without_offload_sends_complete_checksums() {
    if skipped(
        "device_without_offload_sends_complete_checksums",
        &["nginx"],
    ) {
        return;
    }
    for offload in ["off", "on"] {
        let cable = Cable::new();
        let set = ["-K", DEVICE, "tx", offload];
        cable.server.run("ethtool", &set).expect("a feature");
        let site = TestSite::new(501, &[200, 900]);
        let _nginx = WebServer::nginx(&cable.server, &site, 80, "").expect("nginx");
        let attached = Attached::start(&cable.server, 80, &["--ttl", "60"]);
        for address in servers(80) {
            for page in &site.pages[..2] {
                let hit = attached.warm(&cable.client, address, &get(&page.path));
                assert_eq!(hit.body.len(), page.len, "{address}");
            }
        }
        assert_eq!(attached.count("drop_sum"), 0);
    }
}

#[test]
fn fragmented_responses_have_complete_checksums() {
    if skipped("fragmented_responses_have_complete_checksums", &["nginx"]) {
        return;
    }
    let Routed {
        client,
        router,
        server,
    } = Routed::new();
    // The client does not know the new MTU, so responses are segmented as before and fragmented by the router.
    ip(&router, "link set near mtu 600");
    let site = TestSite::new(502, &[1000]);
    let _nginx = WebServer::nginx(&server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&server, 80, &["--ttl", "60"]);
    let page = &site.pages[0];
    let hit = attached.warm(&client, server_v4(80), &get(&page.path));
    assert_eq!(hit.body.len(), page.len);
}

#[test]
fn segment_with_wrong_checksum_changes_nothing() {
    if skipped("segment_with_wrong_checksum_changes_nothing", &["nginx"]) {
        return;
    }
    let path = TestPath::new(&LinkMangling::default(), 1500).expect("a path");
    let site = TestSite::new(503, &[200]);
    let _nginx = WebServer::nginx(&path.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&path.server, 80, &["--ttl", "60"]);
    let request = get(&site.pages[0].path);
    attached.warm(&path.client, server_v4(80), &request);
    let mut wire = Wire::new(&path);
    let bend = |frame: &mut Vec<u8>| frame[50] ^= 0x40;
    let syn = Segment {
        port: 5401,
        seq: 76,
        flags: SYN,
        ..Segment::default()
    };
    changes_nothing(&mut wire, &attached, &syn, bend);
    let mut peer = Peer::open(&mut wire, 5401, 77);
    changes_nothing(&mut wire, &attached, &peer.ack(), bend);
    wire.send(&peer.ack());
    wait_until("a connection", || {
        (attached.level.connections().open == 1).then_some(())
    });
    let segment = peer.data(0, &request);
    changes_nothing(&mut wire, &attached, &segment, bend);
    // A checksum that covers only the pseudo-header is valid only from a local peer.
    changes_nothing(&mut wire, &attached, &segment, |frame| {
        let len = u32::try_from(frame.len() - 34).expect("short");
        let half = |at: usize| u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let sum = (26..34).step_by(2).fold(6 + len, |sum, at| sum + half(at));
        let folded = (sum & 0xffff) + (sum >> 16);
        frame[50..52].copy_from_slice(&folded.to_be_bytes()[2..]);
    });
    wire.send(&segment);
    let answer = wire.receive(5401);
    assert!(answer.payload.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    peer.sent(request.len());
    peer.received(&answer);
    let reset = Segment {
        flags: RST,
        ..peer.ack()
    };
    changes_nothing(&mut wire, &attached, &reset, bend);
}

/// Sends a segment in a damaged frame, and asserts that nothing changes.
fn changes_nothing(
    wire: &mut Wire,
    attached: &Attached,
    segment: &Segment,
    spoil: impl FnOnce(&mut Vec<u8>),
) {
    let before = (
        attached.count("drop_sum"),
        attached.level.connections().open,
    );
    wire.send_changed(segment, spoil);
    assert!(wire.is_silent(segment.port), "{segment:?}");
    let after = (
        attached.count("drop_sum"),
        attached.level.connections().open,
    );
    assert_eq!(after, (before.0 + 1, before.1), "{segment:?}");
}

#[test]
fn vlan_frames_are_left_to_the_kernel() {
    if skipped("vlan_frames_are_left_to_the_kernel", &["nginx"]) {
        return;
    }
    let cable = Cable::new();
    let site = TestSite::new(504, &[200]);
    let _nginx = WebServer::nginx(&cable.server, &site, 80, "").expect("nginx");
    let attached = Attached::start(&cable.server, 80, &["--ttl", "60"]);
    let request = get(&site.pages[0].path);
    attached.warm(&cable.client, server_v4(80), &request);
    let tag = |frame: &mut Vec<u8>| {
        frame.splice(12..12, [0x81, 0, 0, 5]);
    };
    let mut wire = Wire::between(&cable.client, &cable.server);
    let syn = Segment {
        port: 5501,
        seq: 77,
        flags: SYN,
        ..Segment::default()
    };
    wire.send_changed(&syn, tag);
    assert!(wire.is_silent(5501));
    let peer = Peer::open(&mut wire, 5501, 77);
    wire.send(&peer.ack());
    let hits = attached.count("answer_hit");
    wire.send_changed(&peer.data(0, &request), tag);
    assert!(wire.is_silent(5501));
    assert_eq!(attached.count("answer_hit"), hits);
    wire.send(&peer.data(0, &request));
    let answer = wire.receive(5501);
    assert_eq!(answer.flags & ACK, ACK);
    assert!(answer.payload.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    let plain = cable.client.enter(|| send_request(server_v4(80), &request));
    assert_eq!(plain.body.len(), 200);
}
