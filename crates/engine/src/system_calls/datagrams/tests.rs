use std::net::UdpSocket;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::system_calls::set_option;

fn wait_for(socket: &UdpSocket) {
    poll(&mut [PollFd::new(socket, PollFlags::IN)], None).expect("a poll");
}

fn bound(address: &str) -> UdpSocket {
    UdpSocket::bind(address).expect("a port")
}

/// Receives pending datagrams into slots of this length.
fn receive(socket: &UdpSocket, slot_len: usize) -> Vec<ReceivedMessage> {
    wait_for(socket);
    let (mut messages, mut memory) = (Vec::new(), vec![0; 4 * slot_len]);
    let scratch = &mut MessageScratch::new();
    receive_messages(socket, scratch, &mut memory, slot_len, |_, message| {
        messages.push(message);
    })
    .expect("messages");
    messages
}

#[test]
fn datagram_longer_than_its_slot_is_truncated() {
    let (from, to) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
    let to_address = to.local_addr().expect("an address");
    for (len, is_truncated) in [(0, false), (10, false), (11, true)] {
        from.send_to(&vec![1; len], to_address).expect("sent");
        let messages = receive(&to, 10);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].is_truncated, is_truncated, "{len} bytes");
        assert_eq!(messages[0].len, len.min(10));
        assert_eq!(messages[0].peer, from.local_addr().ok());
    }
}

/// The supervisor that opened a socket may have enabled more control messages than fit.
#[test]
fn truncated_control_messages_are_reported() {
    let (from, to) = (bound("[::1]:0"), bound("[::1]:0"));
    // Options of ipv6(7) that each add a control message: the old and new forms of packet information and hop limit,
    // flow label, traffic class, original destination.
    let ipv6 = [2, 8, 11, 49, 51, 66, 74];
    for option in ipv6 {
        set_option(&to, libc::IPPROTO_IPV6, option, 1).expect("an option");
    }
    set_option(&to, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).expect("an option");
    let software = (libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE) as c_int;
    set_option(&to, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, software).expect("an option");
    from.send_to(b"hello", to.local_addr().expect("an address"))
        .expect("sent");
    let messages = receive(&to, 100);
    assert!(messages[0].is_truncated);
    assert_eq!(messages[0].len, 5);
}

#[test]
fn socket_addresses_round_trip_in_ipv4_and_mapped_form() {
    let mut name = MessageScratch::new().names[0];
    for (text, is_ipv6) in [
        ("127.0.0.1:5", false),
        ("127.0.0.1:5", true),
        ("[2001:db8::1]:65535", true),
        ("[fe80::1%3]:1", true),
    ] {
        let address: SocketAddr = text.parse().expect("an address");
        let len = write_name(&mut name, address, is_ipv6);
        assert_eq!(read_name(&name, len), Some(address));
        // A truncated address is rejected.
        assert_eq!(read_name(&name, len - 1), None);
    }
    assert_eq!(read_name(&MessageScratch::new().names[0], 16), None);
}
