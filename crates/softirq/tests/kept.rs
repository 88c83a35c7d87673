//! Reclaimed connections on real devices: their sockets are parked, and get the requests that are punted later. The
//! first migration of a connection is tested in behind.rs.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::leftover;
use common::line::{CLIENT_PORT, TestNetwork};
use common::responses::{Response, TestPublisher};
use lowroad_softirq::layout;
use lowroad_softirq::level::parked;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net;
use lowroad_testkit::{skip, wait_until};
use rustix::net::sockopt;

const REQUEST: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n";

/// A request with a stored response. If the driver leaves no tailroom, the response has only the space of the request's
/// frame.
fn hot() -> Vec<u8> {
    let pad = "x".repeat(400);
    format!("GET /a HTTP/1.1\r\nHost: h\r\nX-Pad: {pad}\r\n\r\n").into_bytes()
}

fn publish(line: &TestNetwork) {
    let mut shelf = TestPublisher::new(&line.level);
    for (_, server) in line.ends {
        let hour_ns = 3_600_000_000_000;
        for hot in ["A", "A_close", "Two"].map(Response::named) {
            shelf.publish(&line.level, &hot.key_at(server), &hot.prepare(0), hour_ns);
        }
    }
}

/// Sends a request and expects the stored response.
fn request_from_fast_path(client: &mut TcpStream) {
    let expected = Response::named("A").prepare(0).bytes;
    client.write_all(&hot()).expect("sent");
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).expect("an answer");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\nX-Name: A\r\n"));
    assert_eq!(got[got.len() - 100..], expected[expected.len() - 100..]);
}

/// Sends a request and expects the response of the server's socket.
fn request_from_socket(
    client: &mut TcpStream,
    request: &[u8],
    accept: impl FnOnce() -> TcpStream,
) -> TcpStream {
    client.write_all(request).expect("sent");
    let mut server = accept();
    let mut got = vec![0; request.len()];
    server.read_exact(&mut got).expect("the request");
    assert_eq!(got, request);
    let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    let head_len = response.len();
    response.resize(head_len + 100_000, b'u');
    server.write_all(&response).expect("sent");
    let mut got = vec![0; response.len()];
    client.read_exact(&mut got).expect("a response");
    assert!(got == response, "the same bytes");
    server
}

/// A request with a body of several segments.
fn upload() -> Vec<u8> {
    let body = "b".repeat(30_000);
    let len = body.len();
    format!("POST /up HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
}

/// An attached level at the TC tier. Skips the test and returns `None` if requirements are missing.
fn attached_line(test: &str) -> Option<TestNetwork> {
    if let Some(reason) = net::missing_requirement() {
        skip(test, &reason);
        return None;
    }
    let line = TestNetwork::veth_pair(ProgramTier::Tc);
    line.attach();
    publish(&line);
    line.beat();
    Some(line)
}

/// A reclaimed connection: the client's socket, and the parked socket of the server.
fn reclaimed_connection(line: &TestNetwork) -> (TcpStream, TcpStream) {
    let mut client = line.connect(line.ends[0]);
    let server = request_from_socket(&mut client, REQUEST, || line.accept());
    request_from_fast_path(&mut client);
    (client, server)
}

fn connection_is_reclaimed(test: &str, line: impl FnOnce() -> TestNetwork) {
    if let Some(reason) = net::missing_requirement() {
        return skip(test, &reason);
    }
    let line = line();
    line.attach();
    publish(&line);
    let counts = || {
        [
            "answer_hit",
            "tcp_handed",
            "tcp_taken_back",
            "tcp_resumed",
            "up_room",
        ]
        .map(|reason| line.count(reason))
    };
    let mut expected_counts = counts();
    for ends in line.ends {
        let mut client = line.connect(ends);
        request_from_fast_path(&mut client);
        let mut server = request_from_socket(&mut client, REQUEST, || line.accept());
        for round in 1..=4 {
            line.beat();
            request_from_fast_path(&mut client);
            request_from_fast_path(&mut client);
            // The socket is the same each time, but the offset of its sequence numbers grows.
            let request = if round == 2 {
                upload()
            } else {
                REQUEST.to_vec()
            };
            server = request_from_socket(&mut client, &request, || server);
            server = request_from_socket(&mut client, REQUEST, || server);
            request_from_fast_path(&mut client);
            // The client does not notice that the parked socket closes, and need not react.
            if round == 3 {
                // `drop` alone is not enough: a process that another test starts may have a copy of the descriptor for
                // a moment.
                server.shutdown(Shutdown::Both).expect("closed");
                server = request_from_socket(&mut client, REQUEST, || line.accept());
            }
        }
        request_from_fast_path(&mut client);
        drop(client);
        assert_eq!(server.read(&mut [0]).expect("a clean end"), 0);
        let more = [14, 2, 6, 4, 0];
        expected_counts
            .iter_mut()
            .zip(more)
            .for_each(|(all, more)| *all += more);
        assert_eq!(counts(), expected_counts);
    }
    assert_eq!(line.level.control().meta_broken, 0);
}

#[test]
fn connection_is_reclaimed_from_kernel_at_native_xdp() {
    let test = "connection_is_reclaimed_from_kernel_at_native_xdp";
    connection_is_reclaimed(test, || TestNetwork::veth_pair(ProgramTier::Xdp));
}

#[test]
fn connection_is_reclaimed_from_kernel_at_tc() {
    connection_is_reclaimed("connection_is_reclaimed_from_kernel_at_tc", || {
        TestNetwork::veth_pair(ProgramTier::Tc)
    });
}

#[test]
fn connection_is_reclaimed_from_kernel_on_loopback() {
    connection_is_reclaimed(
        "connection_is_reclaimed_from_kernel_on_loopback",
        TestNetwork::loopback,
    );
}

/// After its connection was reclaimed, the client reuses its port while the server's old socket is still open: its SYN
/// gets a challenge ACK, it sends a reset, and its next SYN is answered.
#[test]
fn syn_on_reclaimed_connection_gets_challenge_ack() {
    let Some(line) = attached_line("syn_on_reclaimed_connection_gets_challenge_ack") else {
        return;
    };
    let mut client = line.connect(line.ends[0]);
    request_from_fast_path(&mut client);
    let server = request_from_socket(&mut client, REQUEST, || line.accept());
    request_from_fast_path(&mut client);
    assert_eq!(line.count("tcp_taken_back"), 1);
    leftover::vanish(client);
    let mut again = line.connect(line.ends[0]);
    request_from_fast_path(&mut again);
    assert_eq!(line.count("tcp_challenge"), 1);
    drop(server);
}

/// The server sends keep-alive probes to a client with requests answered by the fast path.
#[test]
fn keep_alive_probe_of_parked_socket_is_acknowledged() {
    let Some(line) = attached_line("keep_alive_probe_of_parked_socket_is_acknowledged") else {
        return;
    };
    let (mut client, server) = reclaimed_connection(&line);
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(&server, second).expect("a time");
    sockopt::set_tcp_keepintvl(&server, second).expect("a time");
    sockopt::set_tcp_keepcnt(&server, 1).expect("a count");
    sockopt::set_socket_keepalive(&server, true).expect("a mode");
    wait_until("three probes", || {
        line.beat();
        (line.count("drop_leftover") >= 3).then_some(())
    });
    request_from_fast_path(&mut client);
    let _server = request_from_socket(&mut client, REQUEST, || server);
    assert_eq!(line.count("tcp_resumed"), 1);
}

/// If the client was silent for the idle timeout, keep-alive probes to it are not acknowledged.
#[test]
fn parked_socket_of_silent_client_is_reset() {
    let Some(line) = attached_line("parked_socket_of_silent_client_is_reset") else {
        return;
    };
    // In units of about a second.
    line.level
        .prepare(layout::SETTING_LEARN, 1, 1500)
        .expect("a time");
    line.beat();
    let (_client, mut server) = reclaimed_connection(&line);
    let second = Duration::from_secs(1);
    // The probe is sent after the idle timeout.
    sockopt::set_tcp_keepidle(&server, second * 3).expect("a time");
    sockopt::set_socket_keepalive(&server, true).expect("a mode");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// If a parked socket sends unsolicited data, it is reset; the data do not reach the client.
#[test]
fn parked_socket_that_sends_data_is_reset() {
    let Some(line) = attached_line("parked_socket_that_sends_data_is_reset") else {
        return;
    };
    let (mut client, mut server) = reclaimed_connection(&line);
    server
        .write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        .expect("sent");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    request_from_fast_path(&mut client);
    let _server = request_from_socket(&mut client, REQUEST, || line.accept());
    request_from_fast_path(&mut client);
    assert_eq!(line.count("tcp_ended"), 1);
    assert_eq!(line.count("tcp_handed"), 2);
}

/// Sends the last request, and reads to the end of the connection.
fn send_last_request(client: &mut TcpStream) {
    let request = String::from_utf8(hot()).expect("text");
    let request = request.replace("X-Pad", "Connection: close\r\nX-Pad");
    client.write_all(request.as_bytes()).expect("sent");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("a clean end");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

/// If a client sends more after the last response, it gets a reset, and so does its parked socket.
#[test]
fn reset_of_closed_connection_resets_parked_socket() {
    let Some(line) = attached_line("reset_of_closed_connection_resets_parked_socket") else {
        return;
    };
    let mut client = line.connect(line.ends[0]);
    let mut server = request_from_socket(&mut client, REQUEST, || line.accept());
    send_last_request(&mut client);
    client.write_all(REQUEST).expect("sent");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(line.count("tcp_closed"), 1);
    assert_eq!(line.level.connections().parked, 0);
}

/// If a client resets its connection, no entry is left that occupies a slot.
#[test]
fn client_reset_of_translated_connection_reaches_socket() {
    let Some(line) = attached_line("client_reset_of_translated_connection_reaches_socket") else {
        return;
    };
    let (mut client, server) = reclaimed_connection(&line);
    let mut server = request_from_socket(&mut client, REQUEST, || server);
    assert_eq!(line.level.connections().parked, 1);
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .expect("a mode");
    drop(client);
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(line.level.connections().parked, 0);
}

/// The client reuses its port while the server's old socket is still open.
#[test]
fn client_port_is_reusable_after_last_response() {
    let Some(line) = attached_line("client_port_is_reusable_after_last_response") else {
        return;
    };
    let mut client = line.connect(line.ends[0]);
    let mut server = request_from_socket(&mut client, REQUEST, || line.accept());
    send_last_request(&mut client);
    drop(client);
    assert_eq!(server.read(&mut [0]).expect("a clean end"), 0);
    line.beat();
    let mut client = line.connect(line.ends[0]);
    line.beat();
    request_from_fast_path(&mut client);
    drop(server);
}

/// Connections with parked sockets need the programs. While the level is being detached, their requests are migrated to
/// new sockets.
#[test]
fn draining_level_migrates_parked_connections_to_new_sockets() {
    let Some(line) = attached_line("draining_level_migrates_parked_connections_to_new_sockets")
    else {
        return;
    };
    // One socket is parked; the other is in use with translated sequence numbers.
    let mut clients = [0, 1].map(|more| line.connect_from(CLIENT_PORT + more, line.ends[0]));
    let mut servers = Vec::new();
    for client in &mut clients {
        let server = request_from_socket(client, REQUEST, || line.accept());
        request_from_fast_path(client);
        servers.push(server);
    }
    let used = servers.pop().expect("two");
    servers.push(request_from_socket(&mut clients[1], REQUEST, || used));
    let is_any = || {
        line.server
            .enter(|| parked::has_parked(&line.level, |_| true))
    };
    assert!(is_any());
    line.level.set_mode(layout::MODE_DRAIN);
    let fresh = clients
        .each_mut()
        .map(|client| request_from_socket(client, &hot(), || line.accept()));
    assert!(!is_any());
    // The new sockets need no translation.
    line.level.set_mode(layout::MODE_OFF);
    for (client, server) in clients.iter_mut().zip(fresh) {
        let _server = request_from_socket(client, &hot(), || server);
    }
}

/// Idle connections are reset when the level is detached.
#[test]
fn detaching_level_resets_parked_connections() {
    let Some(line) = attached_line("detaching_level_resets_parked_connections") else {
        return;
    };
    let (mut client, server) = reclaimed_connection(&line);
    let mut server = request_from_socket(&mut client, REQUEST, || server);
    let ended = line.server.enter(|| parked::end(&line.level, |_| true));
    assert_eq!(ended, 1);
    for stream in [&mut client, &mut server] {
        let error = stream.read(&mut [0]).expect_err("an end");
        // A timeout would be reported as `WouldBlock`.
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    assert!(
        !line
            .server
            .enter(|| parked::has_parked(&line.level, |_| true))
    );
}
