//! How connections end: by the idle timeout, by a drain, and by a reload.

use lowroad_http::h2::ErrorCode;

use crate::place::Http2Server;

#[test]
fn idle_connection_gets_goaway() {
    let place = Http2Server::start("idle_timeout = \"1s\"");
    let mut peer = place.peer();
    let stream = peer.get("/good.txt");
    assert_eq!(peer.receive_response(stream).body, b"good");
    peer.read_until_closed();
    assert_eq!(peer.goaway, Some((stream, ErrorCode::NO_ERROR)));
    place.status.wait_for("open", 0);
    assert_eq!(place.status.value("idle_timeouts"), 1);
}

/// A stream that lacks its announced request body is reset some time after its response. The connection stays open.
#[test]
fn missing_request_body_resets_only_its_stream() {
    let place = Http2Server::start("");
    let mut peer = place.peer();
    let mut out = Vec::new();
    let posts = [("/good.txt", 5), ("/cgi/length", 9_999_999)];
    let posts = posts.map(|(path, len)| peer.put_post(path, len, &mut out));
    peer.send(&out);
    peer.read_until("both resets", |it| {
        posts.iter().all(|post| it.got[post].reset.is_some())
    });
    for (post, status) in posts.iter().zip([405, 413]) {
        let got = &peer.got[post];
        // If the response is complete before the request, the stream is reset with NO_ERROR (RFC 9113 §8.1).
        assert_eq!((got.status, got.reset), (status, Some(ErrorCode::NO_ERROR)));
        assert!(got.is_ended, "{got:?}");
    }
    let get = peer.get("/good.txt");
    assert_eq!(peer.receive_response(get).body, b"good");
    assert_eq!(peer.goaway, None);
    assert_eq!(place.status.value("rate_too_low"), 0);
}

/// Streams up to the last one named in GOAWAY are answered.
#[test]
fn drain_answers_streams_included_in_goaway() {
    let mut place = Http2Server::start("");
    let mut peer = place.peer();
    let mut asked: Vec<u32> = vec![peer.get("/cgi/events")];
    let events = asked[0];
    peer.read_until("the first event", |it| !it.got[&events].body.is_empty());
    place.server.signal("TERM");
    place.server.wait_for_error_line("draining");
    while peer.goaway.is_none_or(|(last, _)| last >= u32::MAX / 2) && !peer.is_over {
        let stream = peer.get("/good.txt");
        asked.push(stream);
        peer.read_until("an answer, or the last of all", |it| {
            it.got[&stream].is_ended || it.goaway.is_some_and(|(last, _)| last < stream)
        });
    }
    place.folder.file("go", "");
    let (last, code) = peer.goaway.expect("the server says so");
    assert_eq!(code, ErrorCode::NO_ERROR);
    for stream in asked.iter().filter(|stream| **stream <= last) {
        assert_eq!(
            peer.receive_response(*stream).status,
            200,
            "stream {stream} of {last}"
        );
    }
    assert_eq!(peer.got[&events].body, b"data: 1\n\ndata: 2\n\n");
    peer.read_until_closed();
    assert!(place.server.wait_for_end().success());
}

#[test]
fn reload_does_not_affect_streams() {
    let place = Http2Server::start("");
    let mut peer = place.peer();
    let events = peer.get("/cgi/events");
    peer.read_until("the first event", |it| !it.got[&events].body.is_empty());
    place.server.signal("HUP");
    place.server.wait_for_error_line("is in force");
    let stream = peer.get("/good.txt");
    assert_eq!(peer.receive_response(stream).body, b"good");
    place.folder.file("go", "");
    assert_eq!(
        peer.receive_response(events).body,
        b"data: 1\n\ndata: 2\n\n"
    );
}
