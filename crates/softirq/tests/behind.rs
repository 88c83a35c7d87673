//! Work that only TC can do, on real devices: connections that replace others in TIME_WAIT, and are migrated to a
//! listener. At the XDP tier the program behind does it, which needs a device that passes frame metadata on.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::leftover;
use common::line::{CLIENT_PORT, Ends, Line};
use lowroad_softirq::layout;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net;
use lowroad_testkit::{skip, wait_until};

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
    // The server has closed first, so its socket will be in TIME_WAIT.
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("a clean end");
    assert!(received == body, "the same bytes");
    drop(client);
    line.server.enter(|| leftover::begun(CLIENT_PORT));
}

fn takes_the_place(test: &str, line: impl FnOnce() -> Line) {
    if let Some(reason) = net::missing_requirement() {
        return skip(test, &reason);
    }
    let line = line();
    for ends in line.ends {
        exchange(&line, ends, || line.accept());
    }
    line.attach();
    // Both families in turn.
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
    takes_the_place(test, || Line::cable(ProgramTier::Xdp));
}

#[test]
fn tc_takes_the_place_of_what_is_in_time_wait() {
    let test = "tc_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, || Line::cable(ProgramTier::Tc));
}

#[test]
fn on_loopback_too_it_takes_the_place_of_what_is_in_time_wait() {
    let test = "on_loopback_too_it_takes_the_place_of_what_is_in_time_wait";
    takes_the_place(test, Line::loopback);
}

/// The reset that ends the old connection is lost: the kernel ignores it.
fn comes_again(test: &str, tier: ProgramTier) {
    if let Some(reason) = net::missing_requirement() {
        return skip(test, &reason);
    }
    let line = Line::cable(tier);
    exchange(&line, line.ends[0], || line.accept());
    let ignore = |value| line.server.set("ipv4/tcp_rfc1337", value);
    // With tcp_rfc1337 the kernel ignores resets in TIME_WAIT.
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
    comes_again(
        "native_xdp_hands_over_once_time_wait_has_ended",
        ProgramTier::Xdp,
    );
}

#[test]
fn tc_hands_over_once_time_wait_has_ended() {
    comes_again("tc_hands_over_once_time_wait_has_ended", ProgramTier::Tc);
}

/// Closes with a reset.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("a mode");
}

#[test]
fn what_is_left_of_a_handover_lets_the_next_handshake_pass() {
    if let Some(reason) = net::missing_requirement() {
        return skip(
            "what_is_left_of_a_handover_lets_the_next_handshake_pass",
            &reason,
        );
    }
    let line = Line::cable(ProgramTier::Tc);
    line.attach();
    // The kernel's initial sequence number is below ours in half of all cases.
    for round in 0..8 {
        line.beat();
        line.level.set_mode(layout::MODE_SERVE);
        let mut client = line.connect(line.ends[0]);
        client
            // A request with an unknown method is punted at once.
            .write_all(b"BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n")
            .expect("sent");
        let server = line.accept();
        reset(client);
        // The kernel answers the next SYN.
        line.level.set_mode(layout::MODE_DRAIN);
        let again = line.connect(line.ends[0]);
        reset(line.accept());
        drop((again, server));
        assert_eq!(line.count("tcp_handed"), round + 1);
    }
    assert_eq!(line.count("drop_leftover"), 0);
}
