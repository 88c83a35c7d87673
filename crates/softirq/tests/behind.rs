//! Work that only the TC program can do, on real devices: replacing sockets in TIME_WAIT, and migrating connections to
//! a listener. At the XDP tier the TC program runs after the XDP program, which requires a device that passes frame
//! metadata on.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::leftover;
use common::line::{CLIENT_PORT, EndAddresses, TestNetwork};
use lowroad_softirq::layout;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_testkit::net;
use lowroad_testkit::{skip, wait_until};

const REQUEST: &[u8] = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n";

/// Sends a request and reads its response, through a socket of the server, which closes the connection first.
fn exchange(line: &TestNetwork, ends: EndAddresses, accept: impl FnOnce() -> TcpStream) {
    let mut client = line.connect(ends);
    client.write_all(REQUEST).expect("sent");
    let mut server = accept();
    let mut request = vec![0; REQUEST.len()];
    server.read_exact(&mut request).expect("the request");
    assert_eq!(request, REQUEST);
    let body: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    server.write_all(&body).expect("sent");
    drop(server);
    // The server closed first, so its socket will be in TIME_WAIT.
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("a clean end");
    assert!(received == body, "the same bytes");
    drop(client);
    line.server
        .enter(|| leftover::wait_for_time_wait(CLIENT_PORT));
}

fn replaces_time_wait_socket(test: &str, line: impl FnOnce() -> TestNetwork) {
    if let Some(reason) = net::missing_requirement() {
        return skip(test, &reason);
    }
    let line = line();
    for ends in line.ends {
        exchange(&line, ends, || line.accept());
    }
    line.attach();
    // The address families alternate.
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
fn native_xdp_connection_replaces_time_wait_socket() {
    let test = "native_xdp_connection_replaces_time_wait_socket";
    replaces_time_wait_socket(test, || TestNetwork::veth_pair(ProgramTier::Xdp));
}

#[test]
fn tc_connection_replaces_time_wait_socket() {
    let test = "tc_connection_replaces_time_wait_socket";
    replaces_time_wait_socket(test, || TestNetwork::veth_pair(ProgramTier::Tc));
}

#[test]
fn loopback_connection_replaces_time_wait_socket() {
    let test = "loopback_connection_replaces_time_wait_socket";
    replaces_time_wait_socket(test, TestNetwork::loopback);
}

/// Tests a migration after the reset for the old connection was lost: the kernel ignores the reset.
fn migrates_after_time_wait(test: &str, tier: ProgramTier) {
    if let Some(reason) = net::missing_requirement() {
        return skip(test, &reason);
    }
    let line = TestNetwork::veth_pair(tier);
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
fn native_xdp_migrates_once_time_wait_has_ended() {
    migrates_after_time_wait(
        "native_xdp_migrates_once_time_wait_has_ended",
        ProgramTier::Xdp,
    );
}

#[test]
fn tc_migrates_once_time_wait_has_ended() {
    migrates_after_time_wait("tc_migrates_once_time_wait_has_ended", ProgramTier::Tc);
}

/// Closes a connection with a reset.
fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .expect("a mode");
}

#[test]
fn next_handshake_passes_entry_of_migrated_connection() {
    if let Some(reason) = net::missing_requirement() {
        return skip(
            "next_handshake_passes_entry_of_migrated_connection",
            &reason,
        );
    }
    let line = TestNetwork::veth_pair(ProgramTier::Tc);
    line.attach();
    // In half of all cases, the kernel's initial sequence number is below that of the program.
    for round in 0..8 {
        line.beat();
        line.level.set_mode(layout::MODE_SERVE);
        let mut client = line.connect(line.ends[0]);
        client
            // A request with an unknown method is punted immediately.
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
