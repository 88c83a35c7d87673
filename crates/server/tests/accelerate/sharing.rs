//! Request coalescing: many clients read one response while it arrives, even if clients or the origin fail.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use lowroad_testkit::{TestClient, skip};

use crate::front::{TestAccelerator, TestOrigin, wait_until};

/// The body fits into the store, but exceeds any socket buffer.
const LEN: usize = 3_000_000;
const PIECE_LEN: usize = 100_000;
const GET: &str = "GET /long HTTP/1.1\r\nHost: test\r\n\r\n";

/// An origin's next step.
enum Step {
    Piece,
    Cut,
}

fn body() -> Vec<u8> {
    (0..LEN).map(|at| (at / 3 + at % 251) as u8).collect()
}

/// An accelerator with an origin that sends the next piece of its body, or ends it, on command.
fn front_with_stepped_origin() -> (TestAccelerator, Sender<Step>) {
    let (next, steps) = channel();
    let steps = Mutex::new(steps);
    let origin = TestOrigin::start(move |_, stream| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nCache-Control: max-age=600\r\n\r\n"
        );
        let mut is_open = stream.write_all(head.as_bytes()).is_ok();
        for piece in body().chunks(PIECE_LEN) {
            // The channel closes when the test ends.
            let step = steps.lock().expect("no panic").recv();
            is_open &= matches!(step, Ok(Step::Piece)) && stream.write_all(piece).is_ok();
            if !is_open {
                return false;
            }
        }
        true
    });
    // With two workers, some readers are on another worker than the fetch.
    (TestAccelerator::with_workers(2, origin), next)
}

fn send(next: &Sender<Step>, pieces: usize) {
    (0..pieces).for_each(|_| next.send(Step::Piece).expect("it listens"));
}

fn send_long_get(front: &TestAccelerator) -> TestClient {
    let mut client = front.connect();
    client.send(GET);
    client
}

/// Connects the first client and waits for body bytes, so that later clients join the fetch. Without this wait, two
/// concurrent requests on two workers may cause two fetches, if the origin answers after one of them has looked up the
/// store and before it waits for the other.
fn first(front: &TestAccelerator, next: &Sender<Step>) -> TestClient {
    let mut first = send_long_get(front);
    send(next, 1);
    wait_for_body(&mut first);
    first
}

/// Reads until body bytes have arrived.
fn wait_for_body(client: &mut TestClient) {
    let has_body = |received: &[u8]| {
        let head = received.windows(4).position(|four| four == b"\r\n\r\n");
        head.is_some_and(|end| received.len() > end + 4)
    };
    while !has_body(&client.received) {
        assert!(client.receive_once(), "it ended");
    }
}

fn assert_complete(mut client: TestClient) {
    let got = client.response();
    assert_eq!(got.status, 200);
    assert!(got.body == body(), "{} bytes", got.body.len());
}

#[test]
fn stalled_and_disconnected_clients_do_not_affect_others() {
    let (front, next) = front_with_stepped_origin();
    // Clients that do not read must not delay the origin or other clients.
    let mut stalled = Vec::new();
    let mut readers = vec![first(&front, &next)];
    for number in 1..LEN / PIECE_LEN {
        stalled.push(send_long_get(&front));
        let mut reader = send_long_get(&front);
        send(&next, 1);
        wait_for_body(&mut reader);
        // Every third client disconnects in the middle of the body.
        if number % 3 > 0 {
            readers.push(reader);
        }
    }
    readers.into_iter().for_each(assert_complete);
    assert_eq!(front.origin.count(), 1);
    let got = front.get("/long", "");
    assert!(got.body == body());
    let status = got.field("cache-status").unwrap_or_default();
    assert!(status.contains("hit"), "{status}");
    stalled.into_iter().for_each(assert_complete);
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn incomplete_response_is_incomplete_for_all_readers() {
    let (front, next) = front_with_stepped_origin();
    let mut readers = vec![first(&front, &next)];
    readers.extend((0..3).map(|_| send_long_get(&front)));
    send(&next, 1);
    readers.iter_mut().for_each(wait_for_body);
    // An incomplete body must be incomplete for all readers, and not be stored.
    next.send(Step::Cut).expect("it listens");
    for mut reader in readers {
        reader.wait_for_close();
        assert!(reader.received.len() < LEN);
    }
    assert_eq!(front.origin.count(), 1);
    let again = send_long_get(&front);
    wait_until("another request", || {
        (front.origin.count() == 2).then_some(())
    });
    send(&next, LEN / PIECE_LEN);
    assert_complete(again);
}

#[test]
fn requests_after_purge_do_not_join_earlier_fetch() {
    let (front, next) = front_with_stepped_origin();
    let before = first(&front, &next);
    front.run_command(&["purge", "all"]);
    let after = send_long_get(&front);
    wait_until("another request", || {
        (front.origin.count() == 2).then_some(())
    });
    // The remaining pieces of both fetches; one piece was already sent.
    send(&next, 2 * LEN / PIECE_LEN - 1);
    assert_complete(before);
    assert_complete(after);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn head_and_range_requests_join_the_fetch() {
    let (front, next) = front_with_stepped_origin();
    let reader = first(&front, &next);
    let head = front.request("HEAD", "/long", "");
    assert_eq!(head.status, 200);
    assert_eq!(head.field("content-length"), Some("3000000"));
    let mut ranged = front.connect();
    ranged.send("GET /long HTTP/1.1\r\nHost: test\r\nRange: bytes=1-2\r\n\r\n");
    wait_for_body(&mut ranged);
    send(&next, LEN / PIECE_LEN - 1);
    assert_complete(reader);
    // The response to a range request may be complete (RFC 9110 §14.2).
    assert_complete(ranged);
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn http2_streams_join_the_fetch() {
    let (front, next) = front_with_stepped_origin();
    let url = format!("http://{}/long", front.server.address());
    let curl = || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "120", "--http2-prior-knowledge"]);
        curl.args(["-H", "Host: test", &url]);
        curl.stdout(Stdio::piped()).spawn()
    };
    let reader = first(&front, &next);
    let Ok(one) = curl() else {
        return skip("http2_streams_join_the_fetch", "no curl");
    };
    let other = curl().expect("it is there");
    send(&next, LEN / PIECE_LEN - 1);
    assert_complete(reader);
    for curl in [one, other] {
        let output = curl.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert!(output.stdout == body(), "{} bytes", output.stdout.len());
    }
    assert_eq!(front.origin.count(), 1);
}
