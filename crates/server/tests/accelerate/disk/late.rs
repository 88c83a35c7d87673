//! Late readers: clients that arrive while a body too long for memory is written read it from the disk, so the origin
//! gets one request.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_testkit::origin::{OriginRequest, TestOrigin, chunks};
use lowroad_testkit::{TestClient, wait_until};

use super::{Host, LEN, body};

/// The number of parts that the origin may send.
type Gate = Arc<AtomicUsize>;

/// A part of the body.
const PART_LEN: usize = 100_000;

/// Sends a long body in parts as the gate opens, whole or without its last part.
fn gated(gate: &Gate, is_chunked: bool, is_cut: bool) -> TestOrigin {
    let gate = gate.clone();
    TestOrigin::start(move |asked: &OriginRequest, stream: &mut TcpStream| {
        let body = body(&asked.target, asked.number, LEN);
        let framing = match is_chunked {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {LEN}"),
        };
        let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\nCache-Control: max-age=600\r\n\r\n");
        let mut is_sent = stream.write_all(head.as_bytes()).is_ok();
        for (number, part) in body.chunks(PART_LEN).enumerate() {
            if is_cut && (number + 1) * PART_LEN >= LEN {
                return false;
            }
            wait_until("the gate", || (gate.load(SeqCst) > number).then_some(()));
            let part = match is_chunked {
                true => [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat(),
                false => part.to_vec(),
            };
            is_sent = is_sent && stream.write_all(&part).is_ok();
        }
        is_sent && (!is_chunked || stream.write_all(b"0\r\n\r\n").is_ok())
    })
}

fn begin(host: &Host) -> TestClient {
    let mut client = host.server().connect();
    client.send("GET /a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    client
}

/// Reads the whole body; `None` if it is cut.
fn whole(client: &mut TestClient, is_chunked: bool) -> Option<Vec<u8>> {
    if !is_chunked {
        return client.whole_response().map(|response| response.body);
    }
    client.wait_for_close();
    let end = client
        .received
        .windows(4)
        .position(|four| four == b"\r\n\r\n")?;
    chunks(&client.received[end + 4..]).map(|(body, ..)| body)
}

/// Waits until the disk has more than this many bytes, and returns their number.
fn wait_for_more(host: &Host, before: u64) -> u64 {
    wait_until("more on the disk", || {
        let bytes = host.status().value("disk_bytes");
        (bytes > before).then_some(bytes)
    })
}

/// The first client, after the body has exceeded memory and goes to the disk, and the bytes on the disk then.
fn begin_on_disk(host: &Host, gate: &Gate) -> (TestClient, u64) {
    let first = begin(host);
    gate.store(25, SeqCst);
    (first, wait_for_more(host, 0))
}

/// Clients that arrive at different moments; returns them in order.
fn ask_at_moments(host: &Host, gate: &Gate) -> Vec<TestClient> {
    let (first, _) = begin_on_disk(host, gate);
    let mut clients = vec![first];
    clients.extend((0..3).map(|_| begin(host)));
    host.status().wait_for("disk_late_readers", 3);
    gate.store(28, SeqCst);
    clients.push(begin(host));
    host.status().wait_for("disk_late_readers", 4);
    gate.store(usize::MAX, SeqCst);
    clients
}

#[test]
fn all_share_one_request() {
    for is_chunked in [false, true] {
        let gate = Gate::default();
        let host = Host::of(gated(&gate, is_chunked, false));
        let clients = ask_at_moments(&host, &gate);
        let expected = body("/a", 0, LEN);
        for mut client in clients {
            assert!(whole(&mut client, is_chunked).as_ref() == Some(&expected));
        }
        host.status().wait_for("disk_stored", 1);
        assert!(host.get("/a", "").body == expected);
        assert_eq!(host.origin.count(), 1);
        assert_eq!(host.status().value("disk_late_readers_refused"), 0);
    }
}

#[test]
fn what_is_cut_is_cut_for_all() {
    for is_chunked in [false, true] {
        let gate = Gate::default();
        let host = Host::of(gated(&gate, is_chunked, true));
        for mut client in ask_at_moments(&host, &gate) {
            assert!(whole(&mut client, is_chunked).is_none());
        }
        assert_eq!(host.origin.count(), 1);
        // The next client causes a new fetch.
        assert_eq!(host.status().value("disk_objects"), 0);
    }
}

/// A client that disconnects, even the first one, does not end the fetch for the others.
#[test]
fn the_first_may_go() {
    let gate = Gate::default();
    let host = Host::of(gated(&gate, false, false));
    let (first, _) = begin_on_disk(&host, &gate);
    let mut second = begin(&host);
    host.status().wait_for("disk_late_readers", 1);
    drop(first);
    gate.store(usize::MAX, SeqCst);
    assert!(second.response().body == body("/a", 0, LEN));
    assert_eq!(host.origin.count(), 1);
}

/// A purge during the fetch keeps later clients from joining it.
#[test]
fn who_comes_after_a_purge_gets_another() {
    let gate = Gate::default();
    let host = Host::of(gated(&gate, false, false));
    let (mut first, _) = begin_on_disk(&host, &gate);
    host.say(&["purge", "http://test/a"]);
    gate.store(usize::MAX, SeqCst);
    assert!(begin(&host).response().body == body("/a", 1, LEN));
    assert!(first.response().body == body("/a", 0, LEN));
    assert_eq!(host.origin.count(), 2);
}

/// Clients after the purge share one new fetch.
#[test]
fn after_a_purge_all_share_the_next_request() {
    let gate = Gate::default();
    let host = Host::of(gated(&gate, false, false));
    let (mut first, bytes) = begin_on_disk(&host, &gate);
    host.say(&["purge", "http://test/a"]);
    let mut second = begin(&host);
    wait_for_more(&host, bytes);
    let mut third = begin(&host);
    host.status().wait_for("disk_late_readers", 1);
    gate.store(usize::MAX, SeqCst);
    for client in [&mut second, &mut third] {
        assert!(client.response().body == body("/a", 1, LEN));
    }
    assert!(first.response().body == body("/a", 0, LEN));
    host.status().wait_for("disk_stored", 1);
    assert!(host.get("/a", "").body == body("/a", 1, LEN));
    assert_eq!(host.origin.count(), 2);
}
