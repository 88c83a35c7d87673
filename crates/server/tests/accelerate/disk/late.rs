//! Late readers: while a body that is too long for memory is written to the disk, later clients read it from there, so
//! that the origin gets a single request.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use lowroad_testkit::origin::{OriginRequest, TestOrigin, chunks};
use lowroad_testkit::{TestClient, wait_until};

use super::{Host, LEN, body};

/// Number of parts that the origin may send.
type Gate = Arc<AtomicUsize>;

/// Length of a part.
const PART_LEN: usize = 100_000;

/// An origin that sends a long body in parts as the gate permits. If `is_cut`, the last part is missing.
fn stepped_origin(gate: &Gate, is_chunked: bool, is_cut: bool) -> TestOrigin {
    let gate = gate.clone();
    TestOrigin::start(move |request: &OriginRequest, stream: &mut TcpStream| {
        let body = body(&request.target, request.number, LEN);
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

fn send_get(host: &Host) -> TestClient {
    let mut client = host.server().connect();
    client.send("GET /a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    client
}

/// Receives the whole body; `None` if the connection ends before.
fn receive_body(client: &mut TestClient, is_chunked: bool) -> Option<Vec<u8>> {
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

/// Waits until the disk has more bytes than `before`; returns their number.
fn wait_for_more(host: &Host, before: u64) -> u64 {
    wait_until("more on the disk", || {
        let bytes = host.status().value("disk_bytes");
        (bytes > before).then_some(bytes)
    })
}

/// Sends the first request and waits until its response is written to the disk. Returns the client and the number of
/// bytes on the disk.
fn wait_for_fetch_on_disk(host: &Host, gate: &Gate) -> (TestClient, u64) {
    let first = send_get(host);
    gate.store(25, SeqCst);
    (first, wait_for_more(host, 0))
}

/// Sends requests at different moments of the fetch; returns the clients in order.
fn send_at_different_moments(host: &Host, gate: &Gate) -> Vec<TestClient> {
    let (first, _) = wait_for_fetch_on_disk(host, gate);
    let mut clients = vec![first];
    clients.extend((0..3).map(|_| send_get(host)));
    host.status().wait_for("disk_late_readers", 3);
    gate.store(28, SeqCst);
    clients.push(send_get(host));
    host.status().wait_for("disk_late_readers", 4);
    gate.store(usize::MAX, SeqCst);
    clients
}

#[test]
fn late_readers_share_one_fetch() {
    for is_chunked in [false, true] {
        let gate = Gate::default();
        let host = Host::new(stepped_origin(&gate, is_chunked, false));
        let clients = send_at_different_moments(&host, &gate);
        let expected = body("/a", 0, LEN);
        for mut client in clients {
            assert!(receive_body(&mut client, is_chunked).as_ref() == Some(&expected));
        }
        host.status().wait_for("disk_stored", 1);
        assert!(host.get("/a", "").body == expected);
        assert_eq!(host.origin.count(), 1);
        assert_eq!(host.status().value("disk_late_readers_refused"), 0);
    }
}

#[test]
fn incomplete_body_is_incomplete_for_all_readers() {
    for is_chunked in [false, true] {
        let gate = Gate::default();
        let host = Host::new(stepped_origin(&gate, is_chunked, true));
        for mut client in send_at_different_moments(&host, &gate) {
            assert!(receive_body(&mut client, is_chunked).is_none());
        }
        assert_eq!(host.origin.count(), 1);
        // The incomplete body is not stored, so the next request causes a new fetch.
        assert_eq!(host.status().value("disk_objects"), 0);
    }
}

/// The fetch continues for the other clients even if the first one disconnects.
#[test]
fn fetch_continues_after_first_client_disconnects() {
    let gate = Gate::default();
    let host = Host::new(stepped_origin(&gate, false, false));
    let (first, _) = wait_for_fetch_on_disk(&host, &gate);
    let mut second = send_get(&host);
    host.status().wait_for("disk_late_readers", 1);
    drop(first);
    gate.store(usize::MAX, SeqCst);
    assert!(second.response().body == body("/a", 0, LEN));
    assert_eq!(host.origin.count(), 1);
}

/// Clients that arrive after a purge do not join a fetch that started before it.
#[test]
fn request_after_purge_starts_another_fetch() {
    let gate = Gate::default();
    let host = Host::new(stepped_origin(&gate, false, false));
    let (mut first, _) = wait_for_fetch_on_disk(&host, &gate);
    host.run_command(&["purge", "http://test/a"]);
    gate.store(usize::MAX, SeqCst);
    assert!(send_get(&host).response().body == body("/a", 1, LEN));
    assert!(first.response().body == body("/a", 0, LEN));
    assert_eq!(host.origin.count(), 2);
}

/// Clients that arrive after a purge share one new fetch.
#[test]
fn requests_after_purge_share_one_fetch() {
    let gate = Gate::default();
    let host = Host::new(stepped_origin(&gate, false, false));
    let (mut first, bytes) = wait_for_fetch_on_disk(&host, &gate);
    host.run_command(&["purge", "http://test/a"]);
    let mut second = send_get(&host);
    wait_for_more(&host, bytes);
    let mut third = send_get(&host);
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
