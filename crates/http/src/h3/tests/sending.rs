//! Bodies of responses, priorities, shutdown, and aborts. RFC 9114 §4.1.1 and §5, RFC 9218.

use super::*;

fn priority_update(number: u64, value: &str) -> Vec<u8> {
    let payload = [&integer(number << 2)[..], value.as_bytes()].concat();
    frame_of(kind::PRIORITY_UPDATE_REQUEST, &payload)
}

#[test]
fn urgent_responses_are_sent_first() {
    let mut harness = ServerHarness::open(H3Settings::default());
    for (number, priority) in [(0, "u=5"), (1, "u=1"), (2, "u=3, i"), (3, "u=3, i")] {
        harness.finish(number * 4, &get("/", &[("priority", priority)]));
        assert!(harness.respond(number as u32, 20));
    }
    assert_eq!(
        harness.send(10),
        "1 10, 1 10 end, 2 10, 3 10, 2 10 end, 3 10 end, 0 10, 0 10 end"
    );
    // One frame serves for all parts.
    let output = harness.take_output(2);
    assert_eq!(output, "head :status=200 content-length=20, data 20");
}

#[test]
fn priority_updates_apply_before_and_after_the_request() {
    let mut harness = ServerHarness::open(H3Settings::default());
    assert_eq!(harness.receive(CONTROL, &priority_update(1, "u=0")), "");
    for number in 0..3 {
        harness.finish(number * 4, &get("/", &[("priority", "u=3")]));
        assert!(harness.respond(number as u32, 5));
    }
    let heard = harness.receive(CONTROL, &priority_update(2, "u=2, i"));
    assert_eq!(heard, "2 priority 2 true");
    assert_eq!(harness.send(10), "1 5 end, 2 5 end, 0 5 end");
    // A complete stream, and far more streams than are kept.
    let heard = harness.receive(CONTROL, &priority_update(1, "u=0"));
    assert_eq!(heard, "1 priority 0 false");
    for number in 100..200 {
        harness.receive(CONTROL, &priority_update(number, "u=0"));
    }
    let largest = harness.receive(CONTROL, &priority_update(varint::MAX >> 2, ""));
    assert_eq!(largest, "");
}

#[test]
fn streams_without_a_window_are_passed_over() {
    let mut harness = ServerHarness::open(H3Settings::default());
    for number in 0..2 {
        harness.finish(number * 4, &get("/", &[]));
        assert!(harness.respond(number as u32, 20));
    }
    harness.server.set_blocked(StreamId(0), true);
    assert!(!harness.server.is_blocked());
    assert_eq!(harness.send(100), "1 20 end");
    assert!(harness.server.is_blocked());
    harness.server.set_blocked(StreamId(0), false);
    assert_eq!(harness.send(100), "0 20 end");
    assert!(!harness.server.is_blocked());
}

#[test]
fn blocked_stream_waits_with_its_trailers_but_not_with_its_end() {
    let mut harness = ServerHarness::open(H3Settings::default());
    for (number, trailers) in [(0, "X-Sum: 1\r\n"), (1, "")] {
        harness.finish(u64::from(number) * 4, &get("/", &[]));
        let (stream, out) = (
            StreamId(number),
            harness.responses.entry(number).or_default(),
        );
        let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
        let server = &mut harness.server;
        assert!(server.respond(stream, ok, lines, BodyLen::Unknown, &DATE, out));
        assert_eq!(server.body(stream, 3), Ok(true));
        assert_eq!(harness.send(9), format!("{number} 3"));
        harness.server.set_blocked(stream, true);
        let trailers = FieldLines::new(trailers.as_bytes());
        assert_eq!(harness.server.end_body(stream, trailers), Ok(()));
    }
    // RFC 9000 §4.1: only bytes need a window.
    assert_eq!(harness.send(9), "1 0 end");
    assert!(harness.server.is_blocked(), "trailers wait");
    harness.server.set_blocked(StreamId(0), false);
    assert_eq!(harness.send(9), "0 0 end");
    assert!(!harness.server.is_blocked());
}

#[test]
fn cancelled_response_does_not_wait_for_a_window() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.finish(0, &get("/", &[]));
    assert!(harness.respond(0, 20));
    harness.server.set_blocked(StreamId(0), true);
    assert!(harness.server.is_blocked());
    harness.handle_abort(0, ClientAbort::StopSending);
    assert!(!harness.server.is_idle() && !harness.server.is_blocked());
}

#[test]
fn body_of_unknown_length_ends_with_its_trailers() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.finish(0, &get("/", &[]));
    let (stream, out) = (StreamId(0), harness.responses.entry(0).or_default());
    let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
    let server = &mut harness.server;
    assert!(server.respond(stream, ok, lines, BodyLen::Unknown, &DATE, out));
    assert_eq!(server.body(stream, 3), Ok(true));
    assert_eq!(harness.send(2), "0 2, 0 1");
    assert_eq!(harness.server.body(stream, 4), Ok(true));
    let trailers = FieldLines::new(b"X-Sum: 1\r\n");
    assert_eq!(harness.server.end_body(stream, trailers), Ok(()));
    assert_eq!(harness.send(9), "0 4, 0 0 end");
    let output = harness.take_output(0);
    assert_eq!(output, "head :status=200, data 3, data 4, head x-sum=1");
}

#[test]
fn response_body_length_mismatch_is_an_error() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.finish(0, &get("/", &[]));
    let stream = StreamId(0);
    assert!(harness.server.body(stream, 1).is_err(), "before the head");
    let out = harness.responses.entry(0).or_default();
    let (ok, lines) = (StatusCode::OK, FieldLines::NONE);
    let server = &mut harness.server;
    let len = BodyLen::Known(5);
    assert!(server.respond(stream, ok, lines.clone(), len, &DATE, out));
    assert!(server.body(stream, 6).is_err() && server.whole_body(stream, 4).is_err());
    assert_eq!(server.body(stream, 4), Ok(true));
    assert!(server.end_body(stream, lines).is_err(), "too short");
    let mut decoder = Vec::new();
    server.reset(stream, &mut decoder);
    assert!(server.is_idle() && decoder.is_empty());
    assert_eq!(server.body(stream, 4), Ok(false));
}

#[test]
fn drain_accepts_requests_until_the_final_goaway() {
    // RFC 9114 §5.2: requests sent before the client receives GOAWAY are still answered.
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.finish(0, &get("/", &[]));
    let ServerHarness {
        server, control, ..
    } = &mut harness;
    server.drain(control);
    server.drain(control);
    assert_eq!(describe_frames(control), "goaway Some(4611686018427387900)");
    control.clear();
    assert!(harness.finish(4, &get("/", &[])).starts_with("1 Get"));
    let ServerHarness {
        server, control, ..
    } = &mut harness;
    server.send_final_goaway(control);
    server.send_final_goaway(control);
    assert_eq!(describe_frames(control), "goaway Some(8)");
    let late = harness.finish(8, &get("/", &[]));
    assert_eq!(late, "2 reset REQUEST_REJECTED");
    assert_eq!(harness.counters.refused, 1);
    assert!(!harness.server.is_finished());
    harness.respond(0, 0);
    harness.respond(1, 0);
    assert!(harness.server.is_finished());
}

#[test]
fn requests_over_the_limit_are_rejected() {
    let settings = H3Settings {
        streams_max: 2,
        ..H3Settings::default()
    };
    let mut harness = ServerHarness::open(settings);
    for stream_id in [0, 4] {
        harness.finish(stream_id, &get("/", &[]));
    }
    let third = harness.finish(8, &get("/", &[]));
    assert_eq!(third, "2 reset REQUEST_REJECTED");
    harness.respond(0, 0);
    assert!(harness.finish(12, &get("/", &[])).starts_with("3 Get"));
    // A stream opens all lower ones, so their number is bounded, too.
    let far = harness.finish(40, &get("/", &[]));
    assert_eq!(far, "error EXCESSIVE_LOAD");
}

#[test]
fn aborted_request_keeps_its_slot_until_its_work_has_ended() {
    let mut harness = ServerHarness::open(H3Settings::default());
    harness.receive(0, &post(&[]));
    assert_eq!(harness.abort(0), "0 reset REQUEST_CANCELLED");
    assert_eq!(harness.abort(0), "");
    assert_eq!(harness.decoder, [0x40], "a cancellation");
    assert!(!harness.respond(0, 5) && !harness.server.is_idle());
    harness.server.release_reset_stream(StreamId(0));
    assert!(harness.server.is_idle());
    // Before its request, a stream has no work.
    assert_eq!(harness.abort(4), "1 reset REQUEST_CANCELLED");
    harness.receive(8, &[1, 5, 0]);
    assert_eq!(harness.abort(8), "2 reset REQUEST_CANCELLED");
    assert!(harness.server.is_idle());
    assert_eq!(harness.receive(8, &get("/", &[])), "", "late input");
}

#[test]
fn stopped_upload_does_not_affect_its_response() {
    // RFC 9114 §4.1: a client need not send the rest of a body that is not needed.
    let mut harness = ServerHarness::open(H3Settings::default());
    for number in 0..3 {
        harness.receive(number * 4, &[post(&[]), data(b"a")].concat());
        harness.server.discard_body(StreamId(number as u32));
        assert!(harness.respond(number as u32, 5));
    }
    harness.decoder.clear();
    assert_eq!(harness.abort(0), "");
    assert_eq!(harness.decoder, [0x40], "a cancellation");
    let stopped = harness.handle_abort(4, ClientAbort::StopSending);
    assert_eq!(stopped, "1 reset REQUEST_CANCELLED");
    assert_eq!(harness.send(9), "0 5 end, 2 5 end");
    assert_eq!(harness.stopped(), ["2 stopped NO_ERROR"]);
    harness.server.release_reset_stream(StreamId(1));
    assert!(harness.server.is_idle());
}
