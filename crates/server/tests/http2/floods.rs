//! Floods: a client that causes disproportionate work gets GOAWAY with the right error code and is counted. Other
//! clients are still served.

use std::thread::sleep;
use std::time::Duration;

use lowroad_http::h2::frame::{self, flag, kind};
use lowroad_http::h2::{ErrorCode, id};

use crate::peer::Peer;
use crate::place::Http2Server;

/// More frames than any limit permits.
const FRAMES_MAX: usize = 40_000;
/// Number of frames sent in one write.
const BATCH: usize = 500;
/// Pause between the steps of a slow client, and maximum number of its steps.
const TRICKLE: Duration = Duration::from_millis(20);
const PACES_MAX: usize = 1500;

/// Repeats frames until the server ends the connection; returns the error code of GOAWAY.
fn flood(place: &Http2Server, mut say: impl FnMut(&mut Peer, &mut Vec<u8>)) -> Option<ErrorCode> {
    let mut peer = place.peer();
    let stream = peer.get("/good.txt");
    peer.receive_response(stream);
    for _ in 0..FRAMES_MAX / BATCH {
        let mut out = Vec::new();
        for _ in 0..BATCH {
            say(&mut peer, &mut out);
        }
        peer.send_and_poll(&out);
        // Another connection is served during the flood.
        assert_eq!(place.server.get("/good.txt").text(), "good");
        if peer.goaway.is_some() {
            break;
        }
    }
    peer.read_until_closed();
    peer.goaway.map(|(_, code)| code)
}

fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    frame::put_head(kind, flags, stream, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Asserts that the server ends the flood with ENHANCE_YOUR_CALM, counts it, and keeps no state of it. Streams count
/// until their work has ended, so part of a flood of streams is refused.
fn assert_flood_is_stopped(
    what: &str,
    counters: &[&str],
    say: impl FnMut(&mut Peer, &mut Vec<u8>),
) {
    let place = Http2Server::start("");
    let code = flood(&place, say);
    assert_eq!(code, Some(ErrorCode::ENHANCE_YOUR_CALM), "{what}");
    place.status.wait_for("h2_floods", 1);
    assert_eq!(place.status.value("h2_ended"), 1, "{what}");
    if !counters.is_empty() {
        let counted: u64 = counters.iter().map(|it| place.status.value(it)).sum();
        assert!(counted >= 1000, "{what}: {counters:?} {counted}");
    }
    place.status.wait_for("open", 0);
}

#[test]
fn rapid_reset_flood() {
    assert_flood_is_stopped("rapid reset", &["h2_resets", "h2_refused"], |peer, out| {
        let stream = peer.put_get("/1k", out);
        // Rapid reset: the client cancels each request immediately.
        peer.put_reset(stream, out);
    });
}

#[test]
fn made_you_reset_flood() {
    assert_flood_is_stopped(
        "made you reset",
        &["h2_faults", "h2_refused"],
        |peer, out| {
            let stream = peer.put_get("/1k", out);
            // An increment of 0 is a stream error (RFC 9113 §6.9): the server resets the stream.
            frame::put_window_update(stream, 0, out);
            // Resets only the client's own state; the frame is not sent.
            peer.put_reset(stream, &mut Vec::new());
        },
    );
}

#[test]
fn glitch_floods() {
    assert_flood_is_stopped("PING", &["h2_glitches"], |_, out| {
        frame::put_ping(false, *b"flooding", out);
    });
    assert_flood_is_stopped("SETTINGS", &["h2_glitches"], |_, out| {
        frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 70_000)], out);
    });
    assert_flood_is_stopped("windows", &["h2_glitches"], |_, out| {
        frame::put_window_update(0, 1, out);
    });
    assert_flood_is_stopped("PRIORITY", &["h2_glitches"], |_, out| {
        put(kind::PRIORITY, 0, 99, &[0, 0, 0, 1, 9], out);
    });
    assert_flood_is_stopped("PRIORITY_UPDATE", &["h2_glitches"], |_, out| {
        frame::put_priority_update(99, b"u=1", out);
    });
    assert_flood_is_stopped("unknown frames", &["h2_glitches"], |_, out| {
        put(0x99, 0, 0, b"a", out);
    });
}

#[test]
fn empty_data_flood() {
    let mut stream = None;
    assert_flood_is_stopped("empty DATA", &["h2_glitches"], |peer, out| {
        let stream = *stream.get_or_insert_with(|| peer.put_post("/cgi/length", 10, out));
        put(kind::DATA, 0, stream, b"", out);
    });
}

#[test]
fn continuation_flood() {
    let mut is_begun = false;
    assert_flood_is_stopped("CONTINUATION", &[], |_, out| {
        let kind = match std::mem::replace(&mut is_begun, true) {
            false => kind::HEADERS,
            true => kind::CONTINUATION,
        };
        // A field block without END_HEADERS is never complete.
        put(kind, 0, 3, b"", out);
    });
}

#[test]
fn hpack_bomb() {
    let place = Http2Server::start("");
    let mut peer = place.peer();
    let mut asking = Vec::new();
    peer.put_get("/good.txt", &mut asking);
    // An HPACK bomb: a field of 4,000 bytes in the dynamic table, referenced repeatedly.
    let mut block = asking[frame::HEAD_LEN..].to_vec();
    block.extend_from_slice(b"\x40\x01a\x7f\xa1\x1e");
    block.extend_from_slice(&[b'b'; 4000]);
    block.extend_from_slice(&[0xbe; 8000]);
    let mut out = Vec::new();
    let flags = flag::END_STREAM | flag::END_HEADERS;
    put(kind::HEADERS, flags, 1, &block, &mut out);
    peer.send(&out);
    assert_eq!(peer.receive_response(1).status, 431);
    assert_eq!(
        peer.goaway, None,
        "one stream is refused, the connection goes on"
    );
    assert_eq!(place.server.get("/good.txt").text(), "good");
}

#[test]
fn small_window_updates() {
    let place = Http2Server::start("rate_min = 10000\nrate_grace = \"1s\"\nsend_timeout = \"10s\"");
    place.large("large", 1 << 20);
    let mut peer = place.peer();
    let mut out = Vec::new();
    // The client increases the window by a single byte each time.
    frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 0)], &mut out);
    peer.send(&out);
    let stream = peer.get("/large");
    let mut out = Vec::new();
    frame::put_window_update(stream, 1, &mut out);
    for _ in 0..PACES_MAX {
        peer.send_and_poll(&out);
        if peer.goaway.is_some() {
            break;
        }
        sleep(TRICKLE);
    }
    peer.read_until_closed();
    assert_eq!(peer.goaway, Some((stream, ErrorCode::CANCEL)));
    assert_eq!(place.status.value("rate_too_low"), 1);
}
