//! Reclaimed connections on real devices: their sockets are parked, and get the requests punted later. The first
//! migration of a connection is tested in behind.rs.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::leftover;
use common::line::{CLIENT_PORT, Line};
use common::responses::{Response, Shelf};
use lowroad_softirq::layout;
use lowroad_softirq::level::parked;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net;
use lowroad_testkit::{skip, wait_until};
use rustix::net::sockopt;

const REQUEST: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n";

/// A request with a stored response. With a driver that leaves no room behind a frame, the response has that of the
/// request.
fn hot() -> Vec<u8> {
    let pad = "x".repeat(400);
    format!("GET /a HTTP/1.1\r\nHost: h\r\nX-Pad: {pad}\r\n\r\n").into_bytes()
}

fn publish(line: &Line) {
    let mut shelf = Shelf::new(&line.level);
    for (_, server) in line.ends {
        let hour_ns = 3_600_000_000_000;
        for hot in ["A", "A_close", "Two"].map(Response::named) {
            shelf.publish(&line.level, &hot.key_at(server), &hot.prepare(0), hour_ns);
        }
    }
}

/// Sends the request and expects the stored response.
fn ask_below(client: &mut TcpStream) {
    let expected = Response::named("A").prepare(0).bytes;
    client.write_all(&hot()).expect("sent");
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).expect("an answer");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\nX-Name: A\r\n"));
    assert_eq!(got[got.len() - 100..], expected[expected.len() - 100..]);
}

/// Sends a request and expects the response of the server's socket.
fn ask_above(
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

/// A level that answers at TC; if its requirements are missing, the test is skipped.
fn ready(test: &str) -> Option<Line> {
    if let Some(reason) = net::missing_requirement() {
        skip(test, &reason);
        return None;
    }
    let line = Line::cable(ProgramTier::Tc);
    line.attach();
    publish(&line);
    line.beat();
    Some(line)
}

/// A reclaimed connection: its client's end, and the server's parked one.
fn kept_connection(line: &Line) -> (TcpStream, TcpStream) {
    let mut client = line.connect(line.ends[0]);
    let server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
    (client, server)
}

fn comes_back(test: &str, line: impl FnOnce() -> Line) {
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
    let mut wanted = counts();
    for ends in line.ends {
        let mut client = line.connect(ends);
        ask_below(&mut client);
        let mut server = ask_above(&mut client, REQUEST, || line.accept());
        for round in 1..=4 {
            line.beat();
            ask_below(&mut client);
            ask_below(&mut client);
            // On the same socket, each time with a larger offset.
            let request = if round == 2 {
                upload()
            } else {
                REQUEST.to_vec()
            };
            server = ask_above(&mut client, &request, || server);
            server = ask_above(&mut client, REQUEST, || server);
            ask_below(&mut client);
            // The close of the parked socket does not reach the client, and needs no reaction.
            if round == 3 {
                // Not only dropped: a process that another test starts may hold the descriptor for a moment.
                server.shutdown(Shutdown::Both).expect("closed");
                server = ask_above(&mut client, REQUEST, || line.accept());
            }
        }
        ask_below(&mut client);
        drop(client);
        assert_eq!(server.read(&mut [0]).expect("a clean end"), 0);
        let more = [14, 2, 6, 4, 0];
        wanted
            .iter_mut()
            .zip(more)
            .for_each(|(all, more)| *all += more);
        assert_eq!(counts(), wanted);
    }
    assert_eq!(line.level.control().meta_broken, 0);
}

#[test]
fn it_comes_back_from_behind_native_xdp() {
    let test = "it_comes_back_from_behind_native_xdp";
    comes_back(test, || Line::cable(ProgramTier::Xdp));
}

#[test]
fn it_comes_back_at_tc() {
    comes_back("it_comes_back_at_tc", || Line::cable(ProgramTier::Tc));
}

#[test]
fn it_comes_back_on_the_loopback_device() {
    comes_back("it_comes_back_on_the_loopback_device", Line::loopback);
}

/// The client reuses its port after its connection was reclaimed, while the server has not closed the old socket: it
/// gets a challenge ACK, resets, and its next SYN is answered.
#[test]
fn who_begins_anew_after_the_way_back_is_challenged() {
    let Some(line) = ready("who_begins_anew_after_the_way_back_is_challenged") else {
        return;
    };
    let mut client = line.connect(line.ends[0]);
    ask_below(&mut client);
    let server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
    assert_eq!(line.count("tcp_taken_back"), 1);
    leftover::vanish(client);
    let mut again = line.connect(line.ends[0]);
    ask_below(&mut again);
    assert_eq!(line.count("tcp_challenge"), 1);
    drop(server);
}

/// The server sends keep-alive probes to a client that gets its responses from the fast path.
#[test]
fn a_kept_socket_hears_that_its_client_lives() {
    let Some(line) = ready("a_kept_socket_hears_that_its_client_lives") else {
        return;
    };
    let (mut client, server) = kept_connection(&line);
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(&server, second).expect("a time");
    sockopt::set_tcp_keepintvl(&server, second).expect("a time");
    sockopt::set_tcp_keepcnt(&server, 1).expect("a count");
    sockopt::set_socket_keepalive(&server, true).expect("a mode");
    wait_until("three probes", || {
        line.beat();
        (line.count("drop_leftover") >= 3).then_some(())
    });
    ask_below(&mut client);
    let _server = ask_above(&mut client, REQUEST, || server);
    assert_eq!(line.count("tcp_resumed"), 1);
}

/// Keep-alive probes for a client that was silent for the idle time are not acknowledged.
#[test]
fn a_kept_socket_of_a_silent_client_is_ended() {
    let Some(line) = ready("a_kept_socket_of_a_silent_client_is_ended") else {
        return;
    };
    // In units of about a second.
    line.level
        .prepare(layout::SETTING_LEARN, 1, 1500)
        .expect("a time");
    line.beat();
    let (_client, mut server) = kept_connection(&line);
    let second = Duration::from_secs(1);
    // The probe comes after the idle time.
    sockopt::set_tcp_keepidle(&server, second * 3).expect("a time");
    sockopt::set_socket_keepalive(&server, true).expect("a mode");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Unsolicited data on a parked socket ends it, and does not reach the client.
#[test]
fn a_kept_socket_that_speaks_is_ended() {
    let Some(line) = ready("a_kept_socket_that_speaks_is_ended") else {
        return;
    };
    let (mut client, mut server) = kept_connection(&line);
    server
        .write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        .expect("sent");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    ask_below(&mut client);
    let _server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
    assert_eq!(line.count("tcp_ended"), 1);
    assert_eq!(line.count("tcp_handed"), 2);
}

/// Sends the last request, and reads to the end.
fn ask_last(client: &mut TcpStream) {
    let request = String::from_utf8(hot()).expect("text");
    let request = request.replace("X-Pad", "Connection: close\r\nX-Pad");
    client.write_all(request.as_bytes()).expect("sent");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("a clean end");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

/// A client that continues after the end is reset, and so is its parked socket.
#[test]
fn a_reset_from_here_ends_the_kept_socket() {
    let Some(line) = ready("a_reset_from_here_ends_the_kept_socket") else {
        return;
    };
    let mut client = line.connect(line.ends[0]);
    let mut server = ask_above(&mut client, REQUEST, || line.accept());
    ask_last(&mut client);
    client.write_all(REQUEST).expect("sent");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(line.count("tcp_closed"), 1);
    assert_eq!(line.level.connections().parked, 0);
}

/// A client that resets its connection leaves no entry that needs a slot.
#[test]
fn a_reset_of_what_is_translated_ends_it() {
    let Some(line) = ready("a_reset_of_what_is_translated_ends_it") else {
        return;
    };
    let (mut client, server) = kept_connection(&line);
    let mut server = ask_above(&mut client, REQUEST, || server);
    assert_eq!(line.level.connections().parked, 1);
    socket2::SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .expect("a mode");
    drop(client);
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(line.level.connections().parked, 0);
}

/// The client reuses its port while the server has not closed yet.
#[test]
fn after_the_end_the_port_can_be_used_again() {
    let Some(line) = ready("after_the_end_the_port_can_be_used_again") else {
        return;
    };
    let mut client = line.connect(line.ends[0]);
    let mut server = ask_above(&mut client, REQUEST, || line.accept());
    ask_last(&mut client);
    drop(client);
    assert_eq!(server.read(&mut [0]).expect("a clean end"), 0);
    line.beat();
    let mut client = line.connect(line.ends[0]);
    line.beat();
    ask_below(&mut client);
    drop(server);
}

/// Connections with parked sockets need the programs: while the level is detached they get new sockets.
#[test]
fn while_the_level_goes_they_get_sockets_of_their_own() {
    let Some(line) = ready("while_the_level_goes_they_get_sockets_of_their_own") else {
        return;
    };
    // One socket is parked, one is in use with translated numbers.
    let mut clients = [0, 1].map(|more| line.connect_from(CLIENT_PORT + more, line.ends[0]));
    let mut servers = Vec::new();
    for client in &mut clients {
        let server = ask_above(client, REQUEST, || line.accept());
        ask_below(client);
        servers.push(server);
    }
    let used = servers.pop().expect("two");
    servers.push(ask_above(&mut clients[1], REQUEST, || used));
    let is_any = || {
        line.server
            .enter(|| parked::has_parked(&line.level, |_| true))
    };
    assert!(is_any());
    line.level.set_mode(layout::MODE_DRAIN);
    let fresh = clients
        .each_mut()
        .map(|client| ask_above(client, &hot(), || line.accept()));
    assert!(!is_any());
    // The new sockets need no translation.
    line.level.set_mode(layout::MODE_OFF);
    for (client, server) in clients.iter_mut().zip(fresh) {
        let _server = ask_above(client, &hot(), || server);
    }
}

/// Idle connections are reset when the level is detached.
#[test]
fn what_is_left_is_ended_with_the_level() {
    let Some(line) = ready("what_is_left_is_ended_with_the_level") else {
        return;
    };
    let (mut client, server) = kept_connection(&line);
    let mut server = ask_above(&mut client, REQUEST, || server);
    let ended = line.server.enter(|| parked::end(&line.level, |_| true));
    assert_eq!(ended, 1);
    for stream in [&mut client, &mut server] {
        let error = stream.read(&mut [0]).expect_err("an end");
        // A timeout would be reported as WouldBlock.
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    assert!(
        !line
            .server
            .enter(|| parked::has_parked(&line.level, |_| true))
    );
}
