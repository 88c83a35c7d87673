//! Request coalescing: many clients read one response while it arrives, also when clients or the origin fail.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use lowroad_testkit::{TestClient, skip};

use crate::front::{TestFront, TestOrigin, wait_until};

/// Fits into the store, but into no socket buffer.
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

/// An accelerator; its origin sends the next piece of its body, or ends, on command.
fn gated() -> (TestFront, Sender<Step>) {
    let (next, steps) = channel();
    let steps = Mutex::new(steps);
    let origin = TestOrigin::start(move |_, stream| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\nCache-Control: max-age=600\r\n\r\n"
        );
        let mut is_open = stream.write_all(head.as_bytes()).is_ok();
        for piece in body().chunks(PIECE_LEN) {
            // The channel is closed when the test has ended.
            let step = steps.lock().expect("no panic").recv();
            is_open &= matches!(step, Ok(Step::Piece)) && stream.write_all(piece).is_ok();
            if !is_open {
                return false;
            }
        }
        true
    });
    // Two workers, so that readers are on another worker than the fetch.
    (TestFront::of_workers(2, origin), next)
}

fn send(next: &Sender<Step>, pieces: usize) {
    (0..pieces).for_each(|_| next.send(Step::Piece).expect("it listens"));
}

fn asks(front: &TestFront) -> TestClient {
    let mut client = front.connect();
    client.send(GET);
    client
}

/// Connects the first client and waits for body bytes, so that later clients find the fetch. Two concurrent requests
/// on two workers may cause two fetches, if the origin answers between the look-up of one and its wait for the other.
fn first(front: &TestFront, next: &Sender<Step>) -> TestClient {
    let mut first = asks(front);
    send(next, 1);
    begins(&mut first);
    first
}

/// Reads until body bytes have arrived.
fn begins(client: &mut TestClient) {
    let has_body = |received: &[u8]| {
        let head = received.windows(4).position(|four| four == b"\r\n\r\n");
        head.is_some_and(|end| received.len() > end + 4)
    };
    while !has_body(&client.received) {
        assert!(client.receive_once(), "it ended");
    }
}

fn has_all(mut client: TestClient) {
    let got = client.response();
    assert_eq!(got.status, 200);
    assert!(got.body == body(), "{} bytes", got.body.len());
}

#[test]
fn who_comes_goes_or_stands_still_disturbs_nobody() {
    let (front, next) = gated();
    // Clients that do not read must hold up neither the origin nor the others.
    let mut stalled = Vec::new();
    let mut readers = vec![first(&front, &next)];
    for number in 1..LEN / PIECE_LEN {
        stalled.push(asks(&front));
        let mut reader = asks(&front);
        send(&next, 1);
        begins(&mut reader);
        // Every third client disconnects in the middle.
        if number % 3 > 0 {
            readers.push(reader);
        }
    }
    readers.into_iter().for_each(has_all);
    assert_eq!(front.origin.count(), 1);
    let got = front.get("/long", "");
    assert!(got.body == body());
    let status = got.field("cache-status").unwrap_or_default();
    assert!(status.contains("hit"), "{status}");
    stalled.into_iter().for_each(has_all);
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn what_is_cut_is_cut_for_all_who_read_it() {
    let (front, next) = gated();
    let mut readers = vec![first(&front, &next)];
    readers.extend((0..3).map(|_| asks(&front)));
    send(&next, 1);
    readers.iter_mut().for_each(begins);
    // A body cut before its Content-Length must be cut for all readers, and not stored.
    next.send(Step::Cut).expect("it listens");
    for mut reader in readers {
        reader.wait_for_close();
        assert!(reader.received.len() < LEN);
    }
    assert_eq!(front.origin.count(), 1);
    let again = asks(&front);
    wait_until("another request", || {
        (front.origin.count() == 2).then_some(())
    });
    send(&next, LEN / PIECE_LEN);
    has_all(again);
}

#[test]
fn a_purge_ends_what_comes_for_those_only_who_ask_after_it() {
    let (front, next) = gated();
    let before = first(&front, &next);
    front.say(&["purge", "all"]);
    let after = asks(&front);
    wait_until("another request", || {
        (front.origin.count() == 2).then_some(())
    });
    // The pieces of both fetches, of which one has been sent.
    send(&next, 2 * LEN / PIECE_LEN - 1);
    has_all(before);
    has_all(after);
    assert_eq!(front.origin.count(), 2);
}

#[test]
fn a_head_and_a_range_are_answered_by_what_comes() {
    let (front, next) = gated();
    let reader = first(&front, &next);
    let head = front.ask("HEAD", "/long", "");
    assert_eq!(head.status, 200);
    assert_eq!(head.field("content-length"), Some("3000000"));
    let mut ranged = front.connect();
    ranged.send("GET /long HTTP/1.1\r\nHost: test\r\nRange: bytes=1-2\r\n\r\n");
    begins(&mut ranged);
    send(&next, LEN / PIECE_LEN - 1);
    has_all(reader);
    // A request for a part may get the whole (RFC 9110 §14.2).
    has_all(ranged);
    assert_eq!(front.origin.count(), 1);
}

#[test]
fn streams_of_http_2_read_it_too() {
    let (front, next) = gated();
    let url = format!("http://{}/long", front.server.address());
    let curl = || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "120", "--http2-prior-knowledge"]);
        curl.args(["-H", "Host: test", &url]);
        curl.stdout(Stdio::piped()).spawn()
    };
    let reader = first(&front, &next);
    let Ok(one) = curl() else {
        return skip("streams_of_http_2_read_it_too", "no curl");
    };
    let other = curl().expect("it is there");
    send(&next, LEN / PIECE_LEN - 1);
    has_all(reader);
    for curl in [one, other] {
        let output = curl.wait_with_output().expect("it ends");
        assert!(output.status.success());
        assert!(output.stdout == body(), "{} bytes", output.stdout.len());
    }
    assert_eq!(front.origin.count(), 1);
}
