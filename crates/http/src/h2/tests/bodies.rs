//! Request and response bodies: flow-control windows, lengths, ends. RFC 9113 §5.2, §6.9, §8.1.

use super::*;

#[test]
fn response_body_is_limited_by_the_stream_window() {
    let mut harness = ServerHarness::open(H2Settings::default());
    let mut input = Vec::new();
    frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 10)], &mut input);
    input.extend(get(1, "/", &[]));
    harness.receive(&input);
    harness.take_output();
    harness.respond(1, 30);
    harness.send(100);
    assert_eq!(
        harness.take_output(),
        "1 head :status=200 content-length=30, 1 data 10"
    );
    assert!(harness.server.is_blocked());
    harness.receive(&window(1, 5));
    harness.send(100);
    assert_eq!(harness.take_output(), "1 data 5");
    // The new settings make the window negative; then the client grows it.
    let mut input = Vec::new();
    frame::put_settings(&[(id::INITIAL_WINDOW_SIZE, 0)], &mut input);
    input.extend(window(1, 12));
    harness.receive(&input);
    harness.send(100);
    assert_eq!(harness.take_output(), "settings ok, 1 data 2");
    harness.receive(&window(1, 100));
    harness.send(100);
    assert_eq!(harness.take_output(), "1 data 13 end");
    assert!(!harness.server.is_blocked() && harness.server.is_idle());
}

#[test]
fn response_bodies_are_limited_by_the_connection_window() {
    // RFC 9113 §6.9: both the stream's and the connection's window limit a frame.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    harness.respond(1, 60_000);
    harness.respond(3, 60_000);
    harness.send(60_000);
    let heard = harness.take_output();
    assert!(heard.ends_with("1 data 10848 end, 3 data 5535"), "{heard}");
    assert!(harness.server.is_blocked());
    harness.receive(&window(0, 100_000));
    harness.send(60_000);
    assert!(harness.take_output().ends_with("3 data 5313 end"));
}

#[test]
fn window_is_returned_as_request_bodies_are_consumed() {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&post(1, &[]));
    let part = [b'x'; 16_384];
    for _ in 0..3 {
        assert_eq!(harness.receive(&data(1, &part, false)), "1 data 16384");
    }
    assert_eq!(
        harness.take_output(),
        "ping estimate",
        "nobody has taken anything"
    );
    harness
        .server
        .release_capacity(StreamId(1), 40_000, &mut harness.out);
    assert_eq!(harness.take_output(), "1 window 40000");
    harness
        .server
        .release_capacity(StreamId(1), 100_000, &mut harness.out);
    assert_eq!(harness.take_output(), "", "no more than came");
    assert_eq!(harness.receive(&data(1, &part, false)), "1 data 16384");
    harness
        .server
        .release_capacity(StreamId(1), 16_384, &mut harness.out);
    assert_eq!(harness.take_output(), "0 window 65536");
    // The bytes of a reset stream are returned to the connection's window.
    for _ in 0..2 {
        harness.receive(&data(1, &part, false));
    }
    assert_eq!(harness.receive(&reset(1)), "1 reset CANCEL");
    harness
        .server
        .release_reset_stream(StreamId(1), &mut harness.out);
    assert!(harness.server.is_idle());
}

#[test]
fn windows_grow_with_the_bandwidth_delay_product() {
    // Each acknowledged PING marks the end of a round trip that filled the window.
    let limits = crate::RequestLimits {
        body_len_max: 1 << 30,
        ..crate::RequestLimits::default()
    };
    let mut harness = ServerHarness::open(H2Settings {
        limits,
        ..H2Settings::default()
    });
    harness.receive(&post(1, &[]));
    let part = [b'x'; 16_384];
    for round in 0..200 {
        harness.receive(&data(1, &part, false));
        harness
            .server
            .release_capacity(StreamId(1), part.len(), &mut harness.out);
        if round % 8 == 7 {
            harness.receive(&frame_of(kind::PING, flag::ACK, 0, b"estimate"));
        }
    }
    // The window granted beyond the received bytes.
    let heard = harness.take_output();
    let granted = heard
        .split(", ")
        .filter_map(|it| it.strip_prefix("1 window "));
    let granted: usize = granted.filter_map(|it| it.parse::<usize>().ok()).sum();
    let ahead = granted + 65_535 - 200 * part.len();
    assert!(ahead > 100_000, "{ahead}");
    assert!(ahead <= harness.settings.window_len_max as usize);
}

#[test]
fn exceeding_a_window_is_a_flow_control_error() {
    // Exceeding a stream's window is a stream error, exceeding the connection's window a connection error (RFC 9113
    // §6.9).
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&[post(1, &[]), post(3, &[]), post(5, &[])].concat());
    let part = [b'x'; 16_384];
    let all = [
        data(1, &part, false),
        data(1, &part, false),
        data(1, &part, false),
    ]
    .concat();
    harness.receive(&all);
    let heard = harness.receive(&data(1, &part, false));
    assert_eq!(heard, "1 reset FLOW_CONTROL_ERROR");
    for _ in 0..4 {
        harness.receive(&data(3, &part[..16_383], false));
    }
    assert_eq!(
        harness.receive(&data(5, &part, false)),
        "fault FLOW_CONTROL_ERROR"
    );
}

#[test]
fn request_body_must_match_content_length() {
    // RFC 9113 §8.1.1.
    let mut harness = ServerHarness::open(H2Settings::default());
    let five = [("content-length", "5")];
    harness.receive(&[post(1, &five), post(3, &five), post(5, &five)].concat());
    assert_eq!(
        harness.receive(&data(1, b"abcdef", false)),
        "1 reset PROTOCOL_ERROR"
    );
    assert_eq!(
        harness.receive(&data(3, b"abc", true)),
        "3 data abc, 3 reset PROTOCOL_ERROR"
    );
    assert_eq!(harness.receive(&data(5, b"abc", false)), "5 data abc");
    assert_eq!(harness.receive(&data(5, b"de", true)), "5 data de, 5 end");
    assert_eq!(
        harness.take_output(),
        "1 reset PROTOCOL_ERROR, 3 reset PROTOCOL_ERROR"
    );
    // Frames sent before the client received the reset are ignored.
    assert_eq!(harness.receive(&data(1, b"x", true)), "");
}

#[test]
fn request_body_over_limit_is_refused() {
    let limits = crate::RequestLimits {
        body_len_max: 4,
        ..crate::RequestLimits::default()
    };
    let settings = H2Settings {
        limits,
        ..H2Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    // The service, not `H2Server`, checks an announced length, since the limit depends on the site.
    harness.receive(&post(1, &[("content-length", "5")]));
    assert_eq!(
        harness.receive(&data(1, b"abcde", false)),
        "1 refused BodyTooLarge"
    );
    harness.receive(&post(3, &[]));
    assert_eq!(harness.receive(&data(3, b"abc", false)), "3 data abc");
    assert_eq!(
        harness.receive(&data(3, b"de", false)),
        "3 refused BodyTooLarge"
    );
    assert_eq!(harness.receive(&data(3, b"de", false)), "");
    harness.respond(3, 0);
    assert_eq!(
        harness.take_output(),
        "3 head :status=200 content-length=0 end"
    );
    assert_eq!(harness.receive(&data(3, b"de", true)), "", "on its way");
    harness.respond(1, 1);
    harness.send(9);
    assert_eq!(
        harness.take_output(),
        "1 head :status=200 content-length=1, 1 data 1 end"
    );
    assert_eq!(harness.receive(&data(1, b"", true)), "");
    assert!(harness.server.is_idle());
}

#[test]
fn window_of_an_unwanted_body_is_returned() {
    // Without window updates the client would wait forever, and never read the response.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&post(1, &[]));
    harness.server.discard_body(StreamId(1), &mut harness.out);
    harness.respond(1, 0);
    harness.take_output();
    let piece = [b'x'; 16_384];
    let (mut window, mut sent) = (65_535, 0);
    while sent < 1 << 20 {
        assert!(window >= piece.len(), "stuck after {sent} bytes");
        assert_eq!(harness.receive(&data(1, &piece, false)), "");
        (window, sent) = (window - piece.len(), sent + piece.len());
        for word in harness.take_output().split(", ") {
            let increment = word.strip_prefix("1 window ");
            window += increment.map_or(0, |it| it.parse().expect("a number"));
        }
    }
    assert_eq!(harness.receive(&data(1, b"", true)), "");
    assert!(harness.server.is_idle());
}

#[test]
fn unwanted_body_may_end_early() {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&post(1, &[("content-length", "9")]));
    harness.server.discard_body(StreamId(1), &mut harness.out);
    harness.respond(1, 5);
    harness.take_output();
    assert_eq!(harness.receive(&data(1, b"ab", true)), "");
    harness.send(9);
    assert_eq!(harness.take_output(), "1 data 5 end");
    assert!(harness.server.is_idle());
}

#[test]
fn unwanted_body_is_dropped_for_5_seconds_before_the_reset() {
    // Some clients take an early reset for a failure of the request.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&[post(1, &[]), post(3, &[])].concat());
    for id in [1, 3] {
        harness.server.discard_body(StreamId(id), &mut harness.out);
        harness.respond(id, 0);
    }
    harness.take_output();
    let look = |harness: &mut ServerHarness, now_ms| {
        harness.server.reset_lingering(now_ms, &mut harness.out);
        harness.take_output()
    };
    assert_eq!(look(&mut harness, 1_000), "");
    assert_eq!(harness.receive(&data(1, b"abc", false)), "");
    assert_eq!(look(&mut harness, 5_999), "");
    // A client that has sent its body needs no reset.
    assert_eq!(harness.receive(&data(3, b"abc", true)), "");
    assert_eq!(look(&mut harness, 6_000), "1 reset NO_ERROR");
    assert_eq!(harness.receive(&data(1, b"abc", false)), "", "on its way");
    assert!(harness.server.is_idle());
}

#[test]
fn response_may_precede_the_end_of_the_request() {
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&post(1, &[]));
    harness.respond(1, 3);
    harness.send(9);
    assert!(!harness.server.is_idle());
    assert_eq!(harness.receive(&data(1, b"ab", false)), "1 data ab");
    assert_eq!(harness.receive(&data(1, b"c", true)), "1 data c, 1 end");
    harness
        .server
        .release_capacity(StreamId(1), 3, &mut harness.out);
    assert!(harness.server.is_idle());
    harness.receive(&post(3, &[]));
    harness.respond(3, 3);
    harness.send(9);
    harness.take_output();
    harness.server.discard_body(StreamId(3), &mut harness.out);
    assert_eq!(harness.receive(&data(3, b"", true)), "");
    assert!(harness.server.is_idle());
}

#[test]
fn response_body_length_mismatch_is_an_error() {
    // The stream is reset, since a body that contradicts Content-Length must not be sent.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&[get(1, "/", &[]), get(3, "/", &[])].concat());
    let five = BodyLen::Known(5);
    for id in [1, 3] {
        let server = &mut harness.server;
        assert!(server.body(StreamId(id), 1).is_err(), "no head yet");
        server.respond(
            StreamId(id),
            StatusCode::OK,
            FieldLines::NONE,
            five,
            &DATE,
            &mut harness.out,
        );
    }
    harness.take_output();
    assert!(harness.server.body(StreamId(1), 6).is_err());
    assert!(harness.server.end(StreamId(3), FieldLines::NONE).is_err());
    harness
        .server
        .reset(StreamId(1), ErrorCode::INTERNAL_ERROR, &mut harness.out);
    assert_eq!(harness.take_output(), "1 reset INTERNAL_ERROR");
    assert_eq!(
        harness.server.body(StreamId(1), 6),
        Ok(false),
        "nobody waits for it"
    );
}

#[test]
fn no_data_is_sent_after_goaway() {
    // GOAWAY is the last frame after a connection error.
    let mut harness = ServerHarness::open(H2Settings::default());
    harness.receive(&get(1, "/", &[]));
    harness.respond(1, 100);
    assert_eq!(
        harness.receive(&frame_of(kind::PING, 0, 0, &[0; 7])),
        "fault FRAME_SIZE_ERROR"
    );
    harness.take_output();
    harness.send(1000);
    assert_eq!(harness.take_output(), "");
}
