//! Ends of connections: by the idle timeout, by a drain, and by a reload.

use lowroad_http::h2::ErrorCode;

use crate::place::Place;

#[test]
fn who_asks_nothing_is_told_good_bye() {
    let place = Place::start("idle_timeout = \"1s\"");
    let mut peer = place.peer();
    let stream = peer.get("/good.txt");
    assert_eq!(peer.whole(stream).body, b"good");
    peer.until_the_end();
    assert_eq!(peer.gone, Some((stream, ErrorCode::NO_ERROR)));
    place.status.wait_for("open", 0);
    assert_eq!(place.status.value("idle_timeouts"), 1);
}

/// A stream without its announced request body is reset some time after its response; the connection continues.
#[test]
fn a_body_that_never_comes_ends_its_stream_alone() {
    let place = Place::start("");
    let mut peer = place.peer();
    let mut out = Vec::new();
    let posts = [("/good.txt", 5), ("/cgi/length", 9_999_999)];
    let posts = posts.map(|(path, len)| peer.put_post(path, len, &mut out));
    peer.say(&out);
    peer.until("both resets", |it| {
        posts.iter().all(|post| it.got[post].reset.is_some())
    });
    for (post, status) in posts.iter().zip([405, 413]) {
        let got = &peer.got[post];
        // A complete response before the whole request ends with NO_ERROR (RFC 9113 §8.1).
        assert_eq!((got.status, got.reset), (status, Some(ErrorCode::NO_ERROR)));
        assert!(got.is_ended, "{got:?}");
    }
    let get = peer.get("/good.txt");
    assert_eq!(peer.whole(get).body, b"good");
    assert_eq!(peer.gone, None);
    assert_eq!(place.status.value("rate_too_low"), 0);
}

/// Streams that GOAWAY includes are answered.
#[test]
fn a_drain_loses_nothing() {
    let mut place = Place::start("");
    let mut peer = place.peer();
    let mut asked: Vec<u32> = vec![peer.get("/cgi/events")];
    let events = asked[0];
    peer.until("the first event", |it| !it.got[&events].body.is_empty());
    place.server.signal("TERM");
    place.server.wait_for_error_line("draining");
    while peer.gone.is_none_or(|(last, _)| last >= u32::MAX / 2) && !peer.is_over {
        let stream = peer.get("/good.txt");
        asked.push(stream);
        peer.until("an answer, or the last of all", |it| {
            it.got[&stream].is_ended || it.gone.is_some_and(|(last, _)| last < stream)
        });
    }
    place.folder.file("go", "");
    let (last, code) = peer.gone.expect("the server says so");
    assert_eq!(code, ErrorCode::NO_ERROR);
    for stream in asked.iter().filter(|stream| **stream <= last) {
        assert_eq!(peer.whole(*stream).status, 200, "stream {stream} of {last}");
    }
    assert_eq!(peer.got[&events].body, b"data: 1\n\ndata: 2\n\n");
    peer.until_the_end();
    assert!(place.server.wait_for_end().success());
}

#[test]
fn a_new_configuration_breaks_no_stream() {
    let place = Place::start("");
    let mut peer = place.peer();
    let events = peer.get("/cgi/events");
    peer.until("the first event", |it| !it.got[&events].body.is_empty());
    place.server.signal("HUP");
    place.server.wait_for_error_line("is in force");
    let stream = peer.get("/good.txt");
    assert_eq!(peer.whole(stream).body, b"good");
    place.folder.file("go", "");
    assert_eq!(peer.whole(events).body, b"data: 1\n\ndata: 2\n\n");
}
