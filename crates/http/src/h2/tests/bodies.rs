//! Bodies, both ways: windows, lengths, ends. RFC 9113 §5.2, §6.9, §8.1.

use super::*;

#[test]
fn a_body_waits_for_windows() {
    let mut talk = Talk::open(H2Settings::default());
    let mut input = Vec::new();
    frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 10)], &mut input);
    input.extend(get(1, "/", &[]));
    talk.tell(&input);
    talk.heard();
    talk.answer(1, 30);
    talk.send(100);
    assert_eq!(
        talk.heard(),
        "1 head :status=200 content-length=30, 1 data 10"
    );
    assert!(talk.server.is_blocked());
    talk.tell(&window(1, 5));
    talk.send(100);
    assert_eq!(talk.heard(), "1 data 5");
    // The window becomes negative, then grows.
    let mut input = Vec::new();
    frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 0)], &mut input);
    input.extend(window(1, 12));
    talk.tell(&input);
    talk.send(100);
    assert_eq!(talk.heard(), "settings ok, 1 data 2");
    talk.tell(&window(1, 100));
    talk.send(100);
    assert_eq!(talk.heard(), "1 data 13 end");
    assert!(!talk.server.is_blocked() && talk.server.is_idle());
}

#[test]
fn the_connection_has_a_window_too() {
    // RFC 9113 §6.9: both windows bound a frame.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    talk.answer(1, 60_000);
    talk.answer(3, 60_000);
    talk.send(60_000);
    let heard = talk.heard();
    assert!(heard.ends_with("1 data 10848 end, 3 data 5535"), "{heard}");
    assert!(talk.server.is_blocked());
    talk.tell(&window(0, 100_000));
    talk.send(60_000);
    assert!(talk.heard().ends_with("3 data 5313 end"));
}

#[test]
fn windows_are_given_back_as_bodies_are_taken() {
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&post(1, &[]));
    let part = [b'x'; 16_384];
    for _ in 0..3 {
        assert_eq!(talk.tell(&data(1, &part, false)), "1 data 16384");
    }
    assert_eq!(talk.heard(), "ping estimate", "nobody has taken anything");
    talk.server
        .release_capacity(StreamId(1), 40_000, &mut talk.out);
    assert_eq!(talk.heard(), "1 window 40000");
    talk.server
        .release_capacity(StreamId(1), 100_000, &mut talk.out);
    assert_eq!(talk.heard(), "", "no more than came");
    assert_eq!(talk.tell(&data(1, &part, false)), "1 data 16384");
    talk.server
        .release_capacity(StreamId(1), 16_384, &mut talk.out);
    assert_eq!(talk.heard(), "0 window 65536");
    // The bytes of a reset stream are returned to the connection's window.
    for _ in 0..2 {
        talk.tell(&data(1, &part, false));
    }
    assert_eq!(talk.tell(&reset(1)), "1 reset CANCEL");
    talk.server.release_reset_stream(StreamId(1), &mut talk.out);
    assert!(talk.server.is_idle());
}

#[test]
fn windows_grow_with_the_path() {
    // Each acknowledged PING marks the end of a round trip that filled the window.
    let limits = crate::RequestLimits {
        body_len_max: 1 << 30,
        ..crate::RequestLimits::default()
    };
    let mut talk = Talk::open(H2Settings {
        limits,
        ..H2Settings::default()
    });
    talk.tell(&post(1, &[]));
    let part = [b'x'; 16_384];
    for round in 0..200 {
        talk.tell(&data(1, &part, false));
        talk.server
            .release_capacity(StreamId(1), part.len(), &mut talk.out);
        if round % 8 == 7 {
            talk.tell(&frame_of(kind::PING, flag::ACK, 0, b"estimate"));
        }
    }
    // The window granted in addition to the received bytes.
    let heard = talk.heard();
    let granted = heard
        .split(", ")
        .filter_map(|it| it.strip_prefix("1 window "));
    let granted: usize = granted.filter_map(|it| it.parse::<usize>().ok()).sum();
    let ahead = granted + 65_535 - 200 * part.len();
    assert!(ahead > 100_000, "{ahead}");
    assert!(ahead <= talk.settings.window_len_max as usize);
}

#[test]
fn more_than_the_window_is_an_error() {
    // A stream's window is a stream error, the connection's a connection error (RFC 9113 §6.9).
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&[post(1, &[]), post(3, &[]), post(5, &[])].concat());
    let part = [b'x'; 16_384];
    let all = [
        data(1, &part, false),
        data(1, &part, false),
        data(1, &part, false),
    ]
    .concat();
    talk.tell(&all);
    let heard = talk.tell(&data(1, &part, false));
    assert_eq!(heard, "1 reset FLOW_CONTROL_ERROR");
    for _ in 0..4 {
        talk.tell(&data(3, &part[..16_383], false));
    }
    assert_eq!(
        talk.tell(&data(5, &part, false)),
        "fault FLOW_CONTROL_ERROR"
    );
}

#[test]
fn lengths_are_kept() {
    // RFC 9113 §8.1.1.
    let mut talk = Talk::open(H2Settings::default());
    let five = [("content-length", "5")];
    talk.tell(&[post(1, &five), post(3, &five), post(5, &five)].concat());
    assert_eq!(
        talk.tell(&data(1, b"abcdef", false)),
        "1 reset PROTOCOL_ERROR"
    );
    assert_eq!(
        talk.tell(&data(3, b"abc", true)),
        "3 data abc, 3 reset PROTOCOL_ERROR"
    );
    assert_eq!(talk.tell(&data(5, b"abc", false)), "5 data abc");
    assert_eq!(talk.tell(&data(5, b"de", true)), "5 data de, 5 end");
    assert_eq!(
        talk.heard(),
        "1 reset PROTOCOL_ERROR, 3 reset PROTOCOL_ERROR"
    );
    // Frames sent before the client received the reset are ignored.
    assert_eq!(talk.tell(&data(1, b"x", true)), "");
}

#[test]
fn a_body_that_is_too_long_is_refused() {
    let limits = crate::RequestLimits {
        body_len_max: 4,
        ..crate::RequestLimits::default()
    };
    let settings = H2Settings {
        limits,
        ..H2Settings::default()
    };
    let mut talk = Talk::open(settings);
    // The service checks an announced length, since it knows the request's site.
    talk.tell(&post(1, &[("content-length", "5")]));
    assert_eq!(
        talk.tell(&data(1, b"abcde", false)),
        "1 refused BodyTooLarge"
    );
    talk.tell(&post(3, &[]));
    assert_eq!(talk.tell(&data(3, b"abc", false)), "3 data abc");
    assert_eq!(talk.tell(&data(3, b"de", false)), "3 refused BodyTooLarge");
    assert_eq!(talk.tell(&data(3, b"de", false)), "");
    talk.answer(3, 0);
    assert_eq!(talk.heard(), "3 head :status=200 content-length=0 end");
    assert_eq!(talk.tell(&data(3, b"de", true)), "", "on its way");
    talk.answer(1, 1);
    talk.send(9);
    assert_eq!(
        talk.heard(),
        "1 head :status=200 content-length=1, 1 data 1 end"
    );
    assert_eq!(talk.tell(&data(1, b"", true)), "");
    assert!(talk.server.is_idle());
}

#[test]
fn an_unwanted_body_may_be_longer_than_the_window() {
    // Without window updates the client would wait for ever, and never read the response.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&post(1, &[]));
    talk.server.discard_body(StreamId(1), &mut talk.out);
    talk.answer(1, 0);
    talk.heard();
    let piece = [b'x'; 16_384];
    let (mut window, mut sent) = (65_535, 0);
    while sent < 1 << 20 {
        assert!(window >= piece.len(), "stuck after {sent} bytes");
        assert_eq!(talk.tell(&data(1, &piece, false)), "");
        (window, sent) = (window - piece.len(), sent + piece.len());
        for word in talk.heard().split(", ") {
            let increment = word.strip_prefix("1 window ");
            window += increment.map_or(0, |it| it.parse().expect("a number"));
        }
    }
    assert_eq!(talk.tell(&data(1, b"", true)), "");
    assert!(talk.server.is_idle());
}

#[test]
fn an_unwanted_body_is_dropped_for_a_while_before_the_reset() {
    // Some clients take an early reset for a failure of the request.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&[post(1, &[]), post(3, &[])].concat());
    for id in [1, 3] {
        talk.server.discard_body(StreamId(id), &mut talk.out);
        talk.answer(id, 0);
    }
    talk.heard();
    let look = |talk: &mut Talk, now_ms| {
        talk.server.reset_lingering(now_ms, &mut talk.out);
        talk.heard()
    };
    assert_eq!(look(&mut talk, 1_000), "");
    assert_eq!(talk.tell(&data(1, b"abc", false)), "");
    assert_eq!(look(&mut talk, 5_999), "");
    // A client that has sent its body needs no reset.
    assert_eq!(talk.tell(&data(3, b"abc", true)), "");
    assert_eq!(look(&mut talk, 6_000), "1 reset NO_ERROR");
    assert_eq!(talk.tell(&data(1, b"abc", false)), "", "on its way");
    assert!(talk.server.is_idle());
}

#[test]
fn a_response_may_come_before_the_request_is_whole() {
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&post(1, &[]));
    talk.answer(1, 3);
    talk.send(9);
    assert!(!talk.server.is_idle());
    assert_eq!(talk.tell(&data(1, b"ab", false)), "1 data ab");
    assert_eq!(talk.tell(&data(1, b"c", true)), "1 data c, 1 end");
    talk.server.release_capacity(StreamId(1), 3, &mut talk.out);
    assert!(talk.server.is_idle());
    talk.tell(&post(3, &[]));
    talk.answer(3, 3);
    talk.send(9);
    talk.heard();
    talk.server.discard_body(StreamId(3), &mut talk.out);
    assert_eq!(talk.tell(&data(3, b"", true)), "");
    assert!(talk.server.is_idle());
}

#[test]
fn who_breaks_its_word_is_told() {
    // The stream is reset instead of sending a body that contradicts Content-Length.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    let five = BodyLen::Known(5);
    for id in [1, 3] {
        let server = &mut talk.server;
        assert!(server.body(StreamId(id), 1).is_err(), "no head yet");
        server.respond(
            StreamId(id),
            StatusCode::OK,
            FieldLines::NONE,
            five,
            &DATE,
            &mut talk.out,
        );
    }
    talk.heard();
    assert!(talk.server.body(StreamId(1), 6).is_err());
    assert!(talk.server.end(StreamId(3), FieldLines::NONE).is_err());
    talk.server
        .reset(StreamId(1), ErrorCode::INTERNAL_ERROR, &mut talk.out);
    assert_eq!(talk.heard(), "1 reset INTERNAL_ERROR");
    assert_eq!(
        talk.server.body(StreamId(1), 6),
        Ok(false),
        "nobody waits for it"
    );
}

#[test]
fn nothing_of_a_body_follows_the_end() {
    // GOAWAY is the last frame after a connection error.
    let mut talk = Talk::open(H2Settings::default());
    talk.tell(&get(1, "/", &[]));
    talk.answer(1, 100);
    assert_eq!(
        talk.tell(&frame_of(kind::PING, 0, 0, &[0; 7])),
        "fault FRAME_SIZE_ERROR"
    );
    talk.heard();
    talk.send(1000);
    assert_eq!(talk.heard(), "");
}
