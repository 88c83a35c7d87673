//! What only TC can do, on real devices: connections that take the place of those in TIME_WAIT, are handed
//! to a listener, and come back from it. At the XDP tier the program behind does it, which needs a device that brings it frames
//! with data before them.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::leftover;
use common::line::{CLIENT_PORT, Ends, Line};
use common::responses::{Response, Shelf};
use lowroad_softirq::kept;
use lowroad_softirq::layout;
use lowroad_softirq::load::Tier;
use lowroad_testkit::net;
use lowroad_testkit::{skip, wait_until};
use rustix::net::sockopt;

const REQUEST: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n";

/// A request and its response through the server's own socket, which closes first.
fn exchange(line: &Line, ends: Ends, accept: impl FnOnce() -> TcpStream) {
    let mut client = line.connect(ends);
    client.write_all(REQUEST).expect("sent");
    let mut server = accept();
    let mut request = vec![0; REQUEST.len()];
    server.read_exact(&mut request).expect("the request");
    assert_eq!(request, REQUEST);
    let body: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    server.write_all(&body).expect("sent");
    drop(server);
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("a clean end");
    assert!(received == body, "the same bytes");
    drop(client);
    line.server.enter(|| leftover::begun(CLIENT_PORT));
}

fn takes_the_place(test: &str, line: impl FnOnce() -> Line) {
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = line();
    for ends in line.ends {
        exchange(&line, ends, || line.accept());
    }
    line.attach();
    for connections in (1..).take(6) {
        let ends = line.ends[connections % 2];
        line.beat();
        exchange(&line, ends, || line.accept());
        let connections = u64::try_from(connections).expect("few");
        assert_eq!(line.count("tcp_reused"), connections);
        assert_eq!(line.count("tcp_handed"), connections);
    }
    assert_eq!(line.count("tcp_syn"), 6);
    assert_eq!(line.count("pass_syn_socket"), 0);
}

#[test]
fn native_xdp_takes_the_place_of_what_is_in_time_wait() {
    let test = "native_xdp_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, || Line::cable(Tier::Xdp));
}

#[test]
fn tc_takes_the_place_of_what_is_in_time_wait() {
    let test = "tc_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, || Line::cable(Tier::Tc));
}

#[test]
fn on_loopback_too_it_takes_the_place_of_what_is_in_time_wait() {
    let test = "on_loopback_too_it_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, Line::loopback);
}

/// What ends the old connection is lost: the kernel ignores it.
fn comes_again(test: &str, tier: Tier) {
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(tier);
    exchange(&line, line.ends[0], || line.accept());
    let ignore = |value| line.server.set("ipv4/tcp_rfc1337", value);
    ignore("1").expect("a setting");
    line.attach();
    exchange(&line, line.ends[0], || {
        wait_until("a segment that is dropped", || {
            (line.count("drop_time_wait") > 0).then_some(())
        });
        assert_eq!(line.count("tcp_handed"), 0);
        ignore("0").expect("a setting");
        line.accept()
    });
    assert_eq!(line.count("tcp_handed"), 1);
}

#[test]
fn native_xdp_hands_over_once_time_wait_has_ended() {
    comes_again("native_xdp_hands_over_once_time_wait_has_ended", Tier::Xdp);
}

#[test]
fn tc_hands_over_once_time_wait_has_ended() {
    comes_again("tc_hands_over_once_time_wait_has_ended", Tier::Tc);
}

/// What is stored here. A driver that leaves no room behind a frame has that of the request.
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

/// Asks, and gets the stored response.
fn ask_below(client: &mut TcpStream) {
    let expected = Response::named("A").prepare(0).bytes;
    client.write_all(&hot()).expect("sent");
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).expect("an answer");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\nX-Name: A\r\n"));
    assert_eq!(got[got.len() - 100..], expected[expected.len() - 100..]);
}

/// Asks, and gets what the server's socket says.
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

fn comes_back(test: &str, line: impl FnOnce() -> Line) {
    if let Some(reason) = net::lacks() {
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
            // On the same socket, each further ahead of it.
            let request = if round == 2 {
                upload()
            } else {
                REQUEST.to_vec()
            };
            server = ask_above(&mut client, &request, || server);
            server = ask_above(&mut client, REQUEST, || server);
            ask_below(&mut client);
            // What closes meanwhile is not heard by the client, and not needed.
            if round == 3 {
                drop(server);
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
    comes_back(test, || Line::cable(Tier::Xdp));
}

#[test]
fn it_comes_back_at_tc() {
    comes_back("it_comes_back_at_tc", || Line::cable(Tier::Tc));
}

#[test]
fn it_comes_back_on_the_loopback_device() {
    comes_back("it_comes_back_on_the_loopback_device", Line::loopback);
}

/// Closes by a reset.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("a mode");
}

#[test]
fn what_is_left_of_a_handover_lets_the_next_handshake_pass() {
    if let Some(reason) = net::lacks() {
        return skip(
            "what_is_left_of_a_handover_lets_the_next_handshake_pass",
            &reason,
        );
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    // The kernel's first number is below ours in half of all cases.
    for round in 0..8 {
        line.beat();
        line.level.set_mode(layout::MODE_SERVE);
        let mut client = line.connect(line.ends[0]);
        client
            .write_all(b"BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n")
            .expect("sent");
        let server = line.accept();
        reset(client);
        line.level.set_mode(layout::MODE_DRAIN);
        let again = line.connect(line.ends[0]);
        reset(line.accept());
        drop((again, server));
        assert_eq!(line.count("tcp_handed"), round + 1);
    }
    assert_eq!(line.count("drop_leftover"), 0);
}

/// The client begins anew from the same port after its connection was taken back, while the server has not closed
/// the old socket yet: it is challenged, resets, and its next SYN is answered.
#[test]
fn who_begins_anew_after_the_way_back_is_challenged() {
    let test = "who_begins_anew_after_the_way_back_is_challenged";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    line.beat();
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

/// The server asks whether its client lives, which has its answers from elsewhere.
#[test]
fn a_kept_socket_hears_that_its_client_lives() {
    let test = "a_kept_socket_hears_that_its_client_lives";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    line.beat();
    let mut client = line.connect(line.ends[0]);
    let server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
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

/// Of a client that was not heard of for the idle time nobody says that it lives.
#[test]
fn a_kept_socket_of_a_silent_client_is_ended() {
    let test = "a_kept_socket_of_a_silent_client_is_ended";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    // In units of about a second.
    line.level
        .prepare(layout::SETTING_LEARN, 1, 1500)
        .expect("a time");
    line.beat();
    let mut client = line.connect(line.ends[0]);
    let mut server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(&server, second * 3).expect("a time");
    sockopt::set_socket_keepalive(&server, true).expect("a mode");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// What is said on a kept socket that nobody has asked for ends it, and does not reach the client.
#[test]
fn a_kept_socket_that_speaks_is_ended() {
    let test = "a_kept_socket_that_speaks_is_ended";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    line.beat();
    let mut client = line.connect(line.ends[0]);
    let mut server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
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

/// Asks for the last time, and reads to the end.
fn ask_last(client: &mut TcpStream) {
    let request = String::from_utf8(hot()).expect("text");
    let request = request.replace("X-Pad", "Connection: close\r\nX-Pad");
    client.write_all(request.as_bytes()).expect("sent");
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("a clean end");
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

/// A client that goes on after the end is reset, and so is the socket that was kept for it.
#[test]
fn a_reset_from_here_ends_the_kept_socket() {
    let test = "a_reset_from_here_ends_the_kept_socket";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    let mut client = line.connect(line.ends[0]);
    let mut server = ask_above(&mut client, REQUEST, || line.accept());
    ask_last(&mut client);
    client.write_all(REQUEST).expect("sent");
    let error = server.read(&mut [0]).expect_err("an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(line.count("tcp_closed"), 1);
    assert_eq!(line.level.connections().kept, 0);
}

/// The client comes again from its port while the server has not closed yet.
#[test]
fn after_the_end_the_port_can_be_used_again() {
    let test = "after_the_end_the_port_can_be_used_again";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
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

/// Connections with such sockets need the programs: while the level goes they get new ones.
#[test]
fn while_the_level_goes_they_get_sockets_of_their_own() {
    let test = "while_the_level_goes_they_get_sockets_of_their_own";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    line.beat();
    // One waits, one is in use by numbers that are translated.
    let mut clients = [0, 1].map(|more| line.connect_from(CLIENT_PORT + more, line.ends[0]));
    let mut servers = Vec::new();
    for client in &mut clients {
        let server = ask_above(client, REQUEST, || line.accept());
        ask_below(client);
        servers.push(server);
    }
    let used = servers.pop().expect("two");
    servers.push(ask_above(&mut clients[1], REQUEST, || used));
    let is_any = || line.server.enter(|| kept::is_any(&line.level, |_| true));
    assert!(is_any());
    line.level.set_mode(layout::MODE_DRAIN);
    let fresh = clients
        .each_mut()
        .map(|client| ask_above(client, &hot(), || line.accept()));
    assert!(!is_any());
    line.level.set_mode(layout::MODE_OFF);
    for (client, server) in clients.iter_mut().zip(fresh) {
        let _server = ask_above(client, &hot(), || server);
    }
}

/// Those that don't ask for anything are ended with the level.
#[test]
fn what_is_left_is_ended_with_the_level() {
    let test = "what_is_left_is_ended_with_the_level";
    if let Some(reason) = net::lacks() {
        return skip(test, &reason);
    }
    let line = Line::cable(Tier::Tc);
    line.attach();
    publish(&line);
    line.beat();
    let mut client = line.connect(line.ends[0]);
    let server = ask_above(&mut client, REQUEST, || line.accept());
    ask_below(&mut client);
    let mut server = ask_above(&mut client, REQUEST, || server);
    let ended = line.server.enter(|| kept::end(&line.level, |_| true));
    assert_eq!(ended, 1);
    for stream in [&mut client, &mut server] {
        let error = stream.read(&mut [0]).expect_err("an end");
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
    assert!(!line.server.enter(|| kept::is_any(&line.level, |_| true)));
}
