//! Floods: clients that cost more than their share get GOAWAY with the right code and are counted; other clients are
//! still served.

use std::thread::sleep;
use std::time::Duration;

use lowroad_http::h2::frame::{self, flag, kind};
use lowroad_http::h2::{ErrorCode, id};

use crate::peer::Peer;
use crate::place::Place;

/// More frames than any limit allows.
const FRAMES_MAX: usize = 40_000;
/// Frames of one write.
const BATCH: usize = 500;
/// The pace of a slow client, and its number of steps.
const TRICKLE: Duration = Duration::from_millis(20);
const PACES_MAX: usize = 1500;

/// Repeats frames until the server ends the connection; returns its code.
fn flood(place: &Place, mut say: impl FnMut(&mut Peer, &mut Vec<u8>)) -> Option<ErrorCode> {
    let mut peer = place.peer();
    let stream = peer.get("/good.txt");
    peer.whole(stream);
    for _ in 0..FRAMES_MAX / BATCH {
        let mut out = Vec::new();
        for _ in 0..BATCH {
            say(&mut peer, &mut out);
        }
        peer.say_and_look(&out);
        // Another connection is served during the flood.
        assert_eq!(place.server.get("/good.txt").text(), "good");
        if peer.gone.is_some() {
            break;
        }
    }
    peer.until_the_end();
    peer.gone.map(|(_, code)| code)
}

fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    frame::put_head(kind, flags, stream, payload.len(), out);
    out.extend_from_slice(payload);
}

/// The flood ends with ENHANCE_YOUR_CALM, is counted, and leaves no state. Streams with work in progress still count,
/// so part of a flood of them is refused.
fn calms(what: &str, counters: &[&str], say: impl FnMut(&mut Peer, &mut Vec<u8>)) {
    let place = Place::start("");
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
fn rapid_reset() {
    calms("rapid reset", &["h2_resets", "h2_refused"], |peer, out| {
        let stream = peer.put_get("/1k", out);
        // Rapid reset: requests that are cancelled at once.
        peer.put_reset(stream, out);
    });
}

#[test]
fn made_you_reset() {
    calms(
        "made you reset",
        &["h2_faults", "h2_refused"],
        |peer, out| {
            let stream = peer.put_get("/1k", out);
            // An increment of 0 is a stream error (RFC 9113 §6.9): the server resets the stream.
            frame::put_window_update(stream, 0, out);
            // Only the client's own state is reset; no frame is sent.
            peer.put_reset(stream, &mut Vec::new());
        },
    );
}

#[test]
fn frames_of_little_use() {
    calms("PING", &["h2_glitches"], |_, out| {
        frame::put_ping(false, *b"flooding", out);
    });
    calms("SETTINGS", &["h2_glitches"], |_, out| {
        frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 70_000)], out);
    });
    calms("windows", &["h2_glitches"], |_, out| {
        frame::put_window_update(0, 1, out);
    });
    calms("PRIORITY", &["h2_glitches"], |_, out| {
        put(kind::PRIORITY, 0, 99, &[0, 0, 0, 1, 9], out);
    });
    calms("PRIORITY_UPDATE", &["h2_glitches"], |_, out| {
        frame::put_priority_update(99, b"u=1", out);
    });
    calms("unknown frames", &["h2_glitches"], |_, out| {
        put(0x99, 0, 0, b"a", out);
    });
}

#[test]
fn empty_data() {
    let mut stream = None;
    calms("empty DATA", &["h2_glitches"], |peer, out| {
        let stream = *stream.get_or_insert_with(|| peer.put_post("/cgi/length", 10, out));
        put(kind::DATA, 0, stream, b"", out);
    });
}

#[test]
fn continuation() {
    let mut is_begun = false;
    calms("CONTINUATION", &[], |_, out| {
        let kind = match std::mem::replace(&mut is_begun, true) {
            false => kind::HEADERS,
            true => kind::CONTINUATION,
        };
        // Frames without END_HEADERS never complete the field block.
        put(kind, 0, 3, b"", out);
    });
}

#[test]
fn small_blocks_that_mean_much() {
    let place = Place::start("");
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
    peer.say(&out);
    assert_eq!(peer.whole(1).status, 431);
    assert_eq!(
        peer.gone, None,
        "one stream is refused, the connection goes on"
    );
    assert_eq!(place.server.get("/good.txt").text(), "good");
}

#[test]
fn windows_that_are_hardly_opened() {
    let place = Place::start("rate_min = 10000\nrate_grace = \"1s\"\nsend_timeout = \"10s\"");
    place.large("large", 1 << 20);
    let mut peer = place.peer();
    let mut out = Vec::new();
    // The client opens its window by one byte at a time.
    frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 0)], &mut out);
    peer.say(&out);
    let stream = peer.get("/large");
    let mut out = Vec::new();
    frame::put_window_update(stream, 1, &mut out);
    for _ in 0..PACES_MAX {
        peer.say_and_look(&out);
        if peer.gone.is_some() {
            break;
        }
        sleep(TRICKLE);
    }
    peer.until_the_end();
    assert_eq!(peer.gone, Some((stream, ErrorCode::CANCEL)));
    assert_eq!(place.status.value("rate_too_low"), 1);
}
