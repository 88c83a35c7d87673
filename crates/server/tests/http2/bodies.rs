//! Concurrent streams: a stream that the client does not read does not block the others.

use lowroad_http::h2::ErrorCode;

use crate::place::Http2Server;

#[test]
fn unread_stream_does_not_block_other_streams() {
    let place = Http2Server::start("");
    let (_, bytes) = place.large("large", 3 << 20);
    let mut peer = place.peer();
    let stalled = peer.get("/large");
    peer.unread.insert(stalled);
    peer.read_until("a window's worth", |it| {
        it.got[&stalled].body.len() == 65_535
    });
    let others: Vec<u32> = (0..5).map(|_| peer.get("/large")).collect();
    for other in others {
        assert!(peer.receive_response(other).body == bytes, "other bytes");
    }
    assert_eq!(peer.got[&stalled].body.len(), 65_535);
}

#[test]
fn server_sent_events_arrive_immediately() {
    let place = Http2Server::start("");
    let mut peer = place.peer();
    let events = peer.get("/cgi/events");
    peer.read_until("the first event", |it| {
        it.got[&events].body.ends_with(b"data: 1\n\n")
    });
    let other = peer.get("/good.txt");
    assert_eq!(peer.receive_response(other).body, b"good");
    assert!(!peer.got[&events].is_ended);
    place.folder.file("go", "");
    assert_eq!(
        peer.receive_response(events).body,
        b"data: 1\n\ndata: 2\n\n"
    );
}

#[test]
fn reset_streams_do_not_affect_others() {
    let place = Http2Server::start("");
    let (_, bytes) = place.large("large", 1 << 20);
    let mut peer = place.peer();
    for turn in 0..40 {
        let given_up = peer.get(["/large", "/cgi/length", "/origin/a"][turn % 3]);
        let kept = peer.get(if turn % 8 == 0 { "/large" } else { "/good.txt" });
        let mut out = Vec::new();
        peer.put_reset(given_up, &mut out);
        peer.send(&out);
        let wanted: &[u8] = if turn % 8 == 0 { &bytes } else { b"good" };
        assert!(peer.receive_response(kept).body == wanted, "turn {turn}");
    }
    assert_eq!(peer.goaway, None);
    drop(peer);
    place.status.wait_for("open", 0);
    assert_eq!(place.status.value("h2_resets"), 40);
}

#[test]
fn body_above_limit_is_413() {
    let place = Http2Server::start("body_len_max = 1000");
    let mut peer = place.peer();
    let mut out = Vec::new();
    let stream = peer.put_post("/cgi/length", 2000, &mut out);
    peer.send(&out);
    let got = peer.receive_response(stream);
    assert_eq!(got.status, 413);
    assert!(
        matches!(got.reset, None | Some(ErrorCode::NO_ERROR)),
        "{got:?}"
    );
}
