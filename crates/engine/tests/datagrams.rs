//! Tests of datagrams on epoll with real sockets: the exchange that the simulator tests too, segmentation, ECN, local
//! addresses, full sockets.

mod datagram_exchange;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use lowroad_engine::datagram_socket::DatagramSocket;
use lowroad_engine::datagrams::{DatagramTrain, Ecn};
use lowroad_engine::driver::{DatagramSocketId, DriverEvent, IoDriver};
use lowroad_engine::epoll::EpollDriver;
use lowroad_engine::helper_pool::HelperPool;
use lowroad_testkit::net::{CableEnd, NetNamespace, missing_requirement, pair};
use lowroad_testkit::skip;
use lowroad_testkit::system_call::call;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use datagram_exchange::{DatagramClient, DatagramEcho, payload, run};

const ECHO: DatagramSocketId = DatagramSocketId(0);
const CLIENT: DatagramSocketId = DatagramSocketId(1);
const RESEND_US: u64 = 50_000;

fn driver() -> EpollDriver {
    EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll")
}

/// Opens a socket in a driver; returns its port.
fn open(driver: &mut EpollDriver, id: DatagramSocketId, address: &str) -> u16 {
    let address: SocketAddr = address.parse().expect("an address");
    let socket = DatagramSocket::open(address, None).expect("a port");
    let port = socket.address().expect("bound").port();
    driver.open_datagrams(id, socket.into()).expect("room");
    port
}

/// Runs an exchange between an echo server at one address and a client at another. The client sends to the addresses
/// `to`, which must belong to the server's socket.
fn exchange(
    echo_at: &str,
    client_at: &str,
    to: &[IpAddr],
    lens: &[usize],
    ecn: Ecn,
) -> (DatagramEcho, DatagramClient) {
    let mut driver = driver();
    let port = open(&mut driver, ECHO, echo_at);
    open(&mut driver, CLIENT, client_at);
    let to: Vec<_> = to.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let mut echo = DatagramEcho::new(ECHO);
    let client = DatagramClient::new(CLIENT, &to, lens, ecn, RESEND_US);
    let mut clients = [client];
    run(&mut driver, &mut echo, &mut clients);
    let [client] = clients;
    (echo, client)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Server address, client address and destination: IPv4, IPv6, and IPv4 at a dual-stack socket.
const ADDRESSES: [(&str, &str, IpAddr); 3] = [
    ("0.0.0.0:0", "127.0.0.1:0", V4),
    ("[::]:0", "[::1]:0", V6),
    ("[::]:0", "127.0.0.1:0", V4),
];

#[test]
fn responses_come_from_the_destination_of_the_request() {
    let lens: Vec<usize> = (0..300).map(|number| 8 + number * 37 % 1500).collect();
    for (echo_at, client_at, ip) in ADDRESSES {
        let to = match ip {
            IpAddr::V4(_) => vec![ip, [127, 0, 0, 2].into(), [127, 3, 4, 5].into()],
            IpAddr::V6(_) => vec![ip],
        };
        let (echo, client) = exchange(echo_at, client_at, &to, &lens, Ecn::NotEct);
        assert!(echo.received >= 300);
        assert_eq!(client.marked, 0);
    }
}

#[test]
fn ecn_codepoints_are_received_and_sent() {
    for (echo_at, client_at, ip) in ADDRESSES {
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            // The client checks the codepoints of the responses.
            let (_, client) = exchange(echo_at, client_at, &[ip], &[100; 3], ecn);
            assert_eq!(client.marked > 0, ecn == Ecn::Ce);
        }
    }
}

#[test]
fn trains_are_sent_and_received_as_trains() {
    for (echo_at, client_at, ip) in ADDRESSES {
        for (len, count) in [(1200, 40), (1452, 45), (8, 64), (9, 200), (20_000, 9)] {
            let (echo, client) = exchange(echo_at, client_at, &[ip], &vec![len; count], Ecn::Ect0);
            assert!(
                echo.trains > 0 && client.trains > 0,
                "{count} of {len} bytes"
            );
        }
    }
}

#[test]
fn peer_without_gro_receives_single_datagrams() {
    for (_, client_at, _) in ADDRESSES {
        let peer = UdpSocket::bind(client_at).expect("a port");
        let mut driver = driver();
        open(&mut driver, ECHO, client_at);
        let bytes: Vec<u8> = (0..10).flat_map(|number| payload(number, 1100)).collect();
        let mut train = DatagramTrain {
            peer: peer.local_addr().expect("an address"),
            local: None,
            ecn: Ecn::Ect0,
            segment_len: 1100,
            range: 0..10_600,
        };
        let trains = std::slice::from_mut(&mut train);
        assert_eq!(driver.send_datagrams(ECHO, trains, &bytes), 1);
        let mut buffer = [0; 2000];
        for number in 0..10 {
            let len = peer.recv(&mut buffer).expect("a datagram");
            assert_eq!(len, if number < 9 { 1100 } else { 700 });
            assert!(buffer[..len] == payload(number, len));
        }
        assert_eq!(driver.datagram_drops(ECHO).unsegmented, 0);
    }
}

#[test]
fn wake_at_ends_waits_at_a_precise_time() {
    let mut driver = driver();
    open(&mut driver, ECHO, "127.0.0.1:0");
    let mut events = Vec::new();
    // Three times later than before, one earlier, and one in the past.
    for after_us in [300, 700, 5000, 40, 0] {
        let at_us = driver.now_us() + after_us;
        driver.wake_at(Some(at_us));
        while driver.now_us() < at_us {
            driver.wait(None, &mut events);
        }
        // The time that is set has passed, so a wait without timeout ends too.
        driver.wait(None, &mut events);
        assert!(events.is_empty());
    }
    assert!(driver.now_us() / 1000 >= driver.now_ms());
}

/// Enough for all datagrams of the test, including the kernel's overhead.
const PEER_BUFFER_LEN: usize = 16 << 20;

/// Without a traffic shaper, datagrams on loopback never wait in the sending socket.
#[test]
fn full_socket_reports_when_it_has_room() {
    if let Some(reason) = missing_requirement() {
        return skip("full_socket_reports_when_it_has_room", &reason);
    }
    let namespace = NetNamespace::new("data-room").expect("a namespace");
    let shaper = "qdisc add dev lo root tbf rate 10mbit burst 64k limit 10m";
    let arguments: Vec<&str> = shaper.split(' ').collect();
    namespace.run("tc", &arguments).expect("a shaper");
    namespace.enter(|| {
        for (echo_at, client_at, _) in ADDRESSES {
            let mut driver = driver();
            open(&mut driver, ECHO, echo_at);
            let peer = UdpSocket::bind(client_at).expect("a port");
            // Even if the test is preempted, no datagram that the shaper delivers must be lost.
            set_socket_recv_buffer_size_force(&peer, PEER_BUFFER_LEN).expect("root");
            peer.set_nonblocking(true).expect("a socket");
            let (sent, mut arrived) = send_until_full(&mut driver, &peer);
            // The shaper delivers the datagrams that the socket has accepted.
            peer.set_nonblocking(false).expect("a socket");
            while arrived < sent {
                receive_numbered(&peer, &mut arrived);
            }
        }
    });
}

/// Receives the next numbered datagram. False if there is none on a non-blocking socket.
fn receive_numbered(peer: &UdpSocket, arrived: &mut u64) -> bool {
    let mut buffer = [0; 2000];
    let received = peer.recv(&mut buffer);
    if let Ok(len) = received {
        assert!(buffer[..len] == payload(*arrived, 1200), "{arrived}");
        *arrived += 1;
    }
    received.is_ok()
}

/// Sends trains of numbered datagrams until the socket was full three times. Returns how many datagrams were sent, and
/// how many have arrived.
fn send_until_full(driver: &mut EpollDriver, peer: &UdpSocket) -> (u64, u64) {
    let (mut number, mut arrived, mut rooms) = (0, 0, 0);
    while rooms < 3 {
        let numbers = number..number + 20;
        let bytes: Vec<u8> = numbers.flat_map(|number| payload(number, 1200)).collect();
        number += 20;
        let mut train = DatagramTrain {
            peer: peer.local_addr().expect("an address"),
            local: None,
            ecn: Ecn::NotEct,
            segment_len: 1200,
            range: 0..bytes.len(),
        };
        while driver.send_datagrams(ECHO, std::slice::from_mut(&mut train), &bytes) == 0 {
            let mut events = Vec::new();
            while events.is_empty() {
                driver.wait(Some(1), &mut events);
                while receive_numbered(peer, &mut arrived) {}
            }
            assert!(
                matches!(events[..], [DriverEvent::Room(ECHO)]),
                "{events:?}"
            );
            rooms += 1;
        }
    }
    // The event is reported once, so nothing is pending now.
    let mut events = Vec::new();
    driver.wait(Some(0), &mut events);
    assert!(events.is_empty(), "{events:?}");
    (number, arrived)
}

/// On a device without checksum offload, the kernel segments trains itself, or refuses them (before Linux 6.11). The
/// test includes datagrams longer than the device's MTU.
#[test]
fn trains_are_sent_on_a_device_without_offloads() {
    if let Some(reason) = missing_requirement() {
        return skip("trains_are_sent_on_a_device_without_offloads", &reason);
    }
    let [a, b] = ["data-a", "data-b"].map(|name| NetNamespace::new(name).expect("a namespace"));
    let ends = [(&a, 1), (&b, 2)].map(|(namespace, host)| CableEnd {
        namespace,
        device: "eth0",
        addresses: Some((
            Ipv4Addr::new(10, 7, 7, host),
            Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, host.into()),
        )),
    });
    pair(&ends[0], &ends[1], 1500).expect("a cable");
    a.offload_off("eth0").expect("offloads off");
    for (own, peer) in [("10.7.7.1:0", "10.7.7.2:0"), ("[fd07::1]:0", "[fd07::2]:0")] {
        let peer = b.enter(|| UdpSocket::bind(peer).expect("a port"));
        let mut driver = driver();
        a.enter(|| open(&mut driver, ECHO, own));
        let to = peer.local_addr().expect("an address");
        for _ in 0..2 {
            let bytes: Vec<u8> = (0..10).flat_map(|number| payload(number, 1200)).collect();
            let train = |segment_len, range| DatagramTrain {
                peer: to,
                local: None,
                ecn: Ecn::Ect0,
                segment_len,
                range,
            };
            // The datagrams of the second train are longer than the device's MTU.
            let mut trains = [train(1200, 0..12_000), train(1600, 0..3200)];
            assert_eq!(driver.send_datagrams(ECHO, &mut trains, &bytes), 2);
            let mut buffer = [0; 2000];
            for number in 0..10 {
                let len = peer.recv(&mut buffer).expect("a datagram");
                assert!(buffer[..len] == payload(number, 1200), "{own} {number}");
            }
        }
        let drops = driver.datagram_drops(ECHO);
        assert_eq!(drops.refused, 4, "datagrams beyond the MTU");
        // Counted once for EIO, or for each train above the MTU.
        assert!((1..=2).contains(&drops.unsegmented), "{drops:?}");
    }
}

/// A process that is no longer root opens a port, and later one that starts as root shares it, or the reverse.
#[test]
fn port_is_shared_by_root_and_the_owner_of_its_sockets() {
    const OWNER: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return skip("sockets of two users", "not root");
    }
    let address = SocketAddr::new(V4, 0);
    let mine = DatagramSocket::open(address, Some(OWNER)).expect("a port");
    let address = mine.address().expect("bound");
    DatagramSocket::open(address, Some(OWNER)).expect("a shared port");
    assert!(DatagramSocket::open(address, None).is_err(), "root's own");
    let theirs = std::thread::spawn(move || {
        // The system call, unlike the C library's function, changes this thread only.
        call(libc::SYS_setfsuid, [u64::from(OWNER), 0]).expect("root");
        DatagramSocket::open(address, None)
    });
    theirs.join().expect("no panic").expect("a shared port");
}
