//! Slow clients and too many clients: each timeout applies as configured, each limit holds and is counted, and clients
//! that are merely slow are served completely.
//!
//! The test `crowd` has very many clients; docs/bad-input.md has a table for users. See RFC 9112 §9.5, RFC 9110 §15.5.9
//! and §15.6.4.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use lowroad_testkit::hostile::{GOOD, responses_to_end};
use lowroad_testkit::status::StatusClient;
use lowroad_testkit::{TempFolder, TestClient, TestServer, wait_until};
use rustix::net::{AddressFamily, SocketType, sockopt};

const LOWROAD: &str = env!("CARGO_BIN_EXE_lowroad");
const GET: &str = "GET /good.txt HTTP/1.1\r\nHost: test\r\n\r\n";
/// The interval between the bytes of a slow client.
const TRICKLE: Duration = Duration::from_millis(20);
/// Larger than the kernel's buffers of one connection.
const LARGE_LEN: usize = 24 << 20;

/// A server with these `[limits]`.
struct Limited {
    folder: TempFolder,
    server: TestServer,
    status: StatusClient,
}

fn limited(limits: &str) -> Limited {
    let folder = TempFolder::new();
    folder.file("site/good.txt", GOOD.1);
    let config = format!(
        "[server]\nworkers = 1\nadmin = \"admin.sock\"\ncache_object = \"1M\"\n\n\
         [limits]\n{limits}\n\n[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"site\"\n"
    );
    let server = TestServer::run(LOWROAD, &folder, &config);
    let status = StatusClient::new(LOWROAD, folder.path().join("admin.sock"));
    Limited {
        folder,
        server,
        status,
    }
}

impl Limited {
    /// Checks that no state of the clients remains, and that new clients are served.
    fn assert_recovered(&self) {
        self.status.wait_for("open", 0);
        assert_eq!(self.server.get("/good.txt").text(), GOOD.1);
    }
}

/// Sends a byte at a time until the server responds.
fn trickle(client: &mut TestClient, bytes: &[u8]) {
    let patience = client.stream().read_timeout().expect("a timeout");
    client
        .stream()
        .set_read_timeout(Some(TRICKLE))
        .expect("a timeout");
    for byte in bytes {
        client.send([*byte]);
        // Waits until the next byte is due or a response arrives.
        if client.stream().peek(&mut [0]).is_ok() {
            break;
        }
    }
    client
        .stream()
        .set_read_timeout(patience)
        .expect("a timeout");
}

/// A connection with a small receive buffer, from this address.
fn connection(from: [u8; 4], to: SocketAddr, buffer_len: usize) -> TcpStream {
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&socket, buffer_len).expect("a buffer");
    let from = SocketAddr::from((Ipv4Addr::from(from), 0));
    rustix::net::bind(&socket, &from).expect("an address");
    rustix::net::connect(&socket, &to).expect("a connection");
    TcpStream::from(socket)
}

fn assert_timed_out(client: &mut TestClient) {
    let responses = responses_to_end(client);
    assert_eq!(responses.len(), 1, "{responses:?}");
    assert_eq!(responses[0].status, 408);
    assert_eq!(responses[0].field("connection"), Some("close"));
}

#[test]
fn header_timeout_closes_an_incomplete_head() {
    let limited = limited("header_timeout = \"250ms\"");
    let mut stuck = limited.server.connect();
    stuck.send("GET /good.txt HTTP/1.1\r\nHo");
    assert_timed_out(&mut stuck);

    let mut later = limited.server.connect();
    later.send(GET);
    assert_eq!(later.response().status, 200);
    later.send("G");
    assert_timed_out(&mut later);

    let mut trickles = limited.server.connect();
    trickle(
        &mut trickles,
        &GET.repeat(20).replace("\r\n\r\n", "\r\n").into_bytes(),
    );
    assert_timed_out(&mut trickles);
    drop((stuck, later, trickles));
    limited.status.wait_for("header_timeouts", 3);
    limited.assert_recovered();
}

#[test]
fn slow_head_within_header_timeout_is_answered() {
    let limited = limited("header_timeout = \"10s\"");
    let mut client = limited.server.connect();
    for byte in GET.as_bytes() {
        client.send([*byte]);
        sleep(Duration::from_millis(2));
    }
    assert_eq!(client.response().text(), GOOD.1);
}

#[test]
fn body_timeout_closes_a_stalled_body() {
    let limited = limited("body_timeout = \"250ms\"");
    for framing in [
        "Content-Length: 9\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n9\r\nabc",
    ] {
        let mut stuck = limited.server.connect();
        stuck.send(format!("GET /good.txt HTTP/1.1\r\nHost: test\r\n{framing}"));
        assert_timed_out(&mut stuck);
    }
    limited.status.wait_for("body_timeouts", 2);
    limited.assert_recovered();
}

#[test]
fn body_below_the_minimum_rate_is_timed_out() {
    let limited = limited("rate_min = \"1M\"\nrate_grace = \"100ms\"");
    let mut client = limited.server.connect();
    client.send("GET /good.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 900\r\n\r\n");
    trickle(&mut client, &[b'x'; 900]);
    assert_timed_out(&mut client);
    drop(client);
    assert_eq!(limited.status.value("rate_too_low"), 1);
    assert_eq!(limited.status.value("body_timeouts"), 0);
    limited.assert_recovered();
}

#[test]
fn idle_timeout_closes_the_connection() {
    let limited = limited("idle_timeout = \"250ms\"");
    let mut used = limited.server.connect();
    used.send(GET);
    assert_eq!(used.response().status, 200);
    let mut silent = limited.server.connect();
    for client in [&mut used, &mut silent] {
        assert!(client.wait_for_close());
        assert!(client.received.is_empty(), "a close needs no words");
    }
    limited.status.wait_for("idle_timeouts", 2);
    limited.assert_recovered();
}

#[test]
fn send_timeout_closes_a_stalled_reader() {
    let limited = limited("send_timeout = \"250ms\"\nrate_min = 0");
    limited.folder.file("site/large.bin", vec![b'x'; LARGE_LEN]);
    limited.folder.file("site/stored.bin", vec![b'x'; 1 << 20]);
    let stored = "GET /stored.bin HTTP/1.1\r\nHost: test\r\n\r\n".repeat(24);
    let large = "GET /large.bin HTTP/1.1\r\nHost: test\r\n\r\n";
    for (count, requests) in [large, &stored].into_iter().enumerate() {
        let address = limited.server.address();
        let mut client = TestClient::new(connection([127, 0, 0, 1], address, 8192));
        client.send(requests);
        limited.status.wait_for("send_timeouts", count as u64 + 1);
        client.wait_for_close();
        assert!(client.received.len() < LARGE_LEN, "it was cut");
    }
    limited.assert_recovered();
}

#[test]
fn reader_below_the_minimum_rate_is_closed() {
    let limited = limited("rate_min = \"1G\"\nrate_grace = \"100ms\"");
    limited.folder.file("site/large.bin", vec![b'x'; LARGE_LEN]);
    let mut client = TestClient::new(connection([127, 0, 0, 1], limited.server.address(), 8192));
    client.send("GET /large.bin HTTP/1.1\r\nHost: test\r\n\r\n");
    limited.status.wait_for("rate_too_low", 1);
    client.wait_for_close();
    assert!(client.received.len() < LARGE_LEN, "it was cut");
    limited.assert_recovered();
}

#[test]
fn slow_reader_above_the_minimum_rate_gets_all() {
    let limited = limited("send_timeout = \"1s\"\nrate_min = 1000\nrate_grace = \"100ms\"");
    let content: Vec<u8> = (0..1_200_000_u32).map(|at| (at % 251) as u8).collect();
    limited.folder.file("site/slow.bin", &content);
    let mut stream = connection([127, 0, 0, 1], limited.server.address(), 16_384);
    let request = b"GET /slow.bin HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    rustix::net::send(&stream, request, rustix::net::SendFlags::empty()).expect("sent");
    let mut received = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let len = stream.read(&mut buffer).expect("bytes");
        if len == 0 {
            break;
        }
        received.extend_from_slice(&buffer[..len]);
        sleep(TRICKLE);
    }
    assert!(received.ends_with(&content), "got {} bytes", received.len());
    assert_eq!(limited.status.value("send_timeouts"), 0);
    limited.assert_recovered();
}

#[test]
fn total_connections_are_limited() {
    let limited = limited("connections_max = 3");
    let mut held: Vec<TestClient> = (0..3).map(|_| limited.server.connect()).collect();
    for client in &mut held {
        client.send(GET);
        assert_eq!(client.response().status, 200);
    }
    for count in 1..4 {
        let mut another = limited.server.connect();
        another.send(GET);
        let responses = responses_to_end(&mut another);
        assert_eq!(responses.len(), 1);
        assert_eq!(responses[0].status, 503);
        assert_eq!(responses[0].field("retry-after"), Some("1"));
        assert_eq!(responses[0].field("connection"), Some("close"));
        for client in &mut held {
            client.send(GET);
            assert_eq!(client.response().status, 200, "who is in stays in");
        }
        assert_eq!(limited.status.value("over_connections_max"), count);
    }
    held.pop();
    wait_until("a free place", || {
        (limited.server.get("/good.txt").status == 200).then_some(())
    });
    drop(held);
    limited.assert_recovered();
}

#[test]
fn connections_per_address_are_limited() {
    let limited = limited("connections_per_address_max = 2");
    let address = limited.server.address();
    let from = |last: u8| {
        let mut client = TestClient::new(connection([127, 0, 0, last], address, 65_536));
        client.send(GET);
        let response = client.response();
        (response.status, client)
    };
    let held = [from(1), from(1), from(2), from(2), from(3)];
    assert!(held.iter().all(|(status, _)| *status == 200));
    assert_eq!(from(1).0, 503);
    assert_eq!(from(2).0, 503);
    assert_eq!(from(4).0, 200);
    assert_eq!(limited.status.value("over_address_max"), 2);
    drop(held);
    limited.assert_recovered();
}

#[test]
fn requests_per_connection_are_limited() {
    let limited = limited("requests_per_connection_max = 2");
    let mut client = limited.server.connect();
    client.send(GET.repeat(5));
    let responses = responses_to_end(&mut client);
    assert_eq!(responses.len(), 2);
    assert_eq!(responses[0].field("connection"), None);
    assert_eq!(responses[1].field("connection"), Some("close"));
    drop(client);
    limited.assert_recovered();
}

#[test]
fn flooding_client_does_not_block_others() {
    let limited = limited("");
    let address = limited.server.address();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let flood = std::thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let mut client = TestClient::connect(address);
            client.send("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 99999999999\r\n\r\n");
            (0..200).for_each(|_| client.send(&piece));
        }
    });
    let mut client = limited.server.connect();
    for _ in 0..2000 {
        client.send(GET);
        assert_eq!(client.response().text(), GOOD.1);
    }
    drop(stop);
    flood.join().expect("the flood ends");
    assert_eq!(limited.server.get("/good.txt").text(), GOOD.1);
}
