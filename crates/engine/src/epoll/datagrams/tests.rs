use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::{DatagramPort, SendCursor};
use crate::datagram_relay::{DatagramRelay, ProcessWorker, RelayOutcome};
use crate::datagram_socket::{DatagramSocket, PortSockets};
use crate::datagrams::{DatagramBatch, DatagramDrops, DatagramTrain, Ecn};
use crate::driver::{DatagramSocketId, DriverEvent, IoDriver};
use crate::epoll::EpollDriver;
use crate::helper_pool::HelperPool;
use crate::system_calls::set_option;

const ID: DatagramSocketId = DatagramSocketId(3);

fn driver_with(socket: UdpSocket) -> EpollDriver {
    let mut driver = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
    let socket = DatagramSocket::adopt(socket.into()).expect("a UDP socket");
    driver.open_datagrams(ID, socket.into()).expect("room");
    driver
}

fn worker_of(generation: u8, worker: u8) -> ProcessWorker {
    ProcessWorker { generation, worker }
}

fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a port")
}

fn address_of(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("an address")
}

fn train(peer: SocketAddr, segment_len: usize, len: usize) -> DatagramTrain {
    DatagramTrain {
        peer,
        local: None,
        ecn: Ecn::Ect0,
        segment_len,
        range: 0..len,
    }
}

/// Waits for a datagram event.
fn await_datagrams(driver: &mut EpollDriver) {
    let mut events = Vec::new();
    while events.is_empty() {
        driver.wait(None, &mut events);
    }
    assert!(
        matches!(events[..], [DriverEvent::Datagrams(ID)]),
        "{events:?}"
    );
}

/// The pending events, without waiting.
fn pending(driver: &mut EpollDriver) -> Vec<DriverEvent> {
    let mut events = Vec::new();
    driver.wait(Some(0), &mut events);
    events
}

/// On a socket without UDP checksums, the kernel refuses segmentation with EINVAL.
#[test]
fn unsegmentable_train_is_sent_as_single_datagrams() {
    let (socket, peer) = (bound(), bound());
    set_option(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).expect("an option");
    let mut driver = driver_with(socket);
    let bytes: Vec<u8> = (0..200).collect();
    let peer_address = address_of(&peer);
    let mut trains = [train(peer_address, 60, 200), train(peer_address, 200, 200)];
    assert_eq!(driver.send_datagrams(ID, &mut trains, &bytes), 2);
    let mut buffer = [0; 300];
    for expected in [0..60, 60..120, 120..180, 180..200, 0..200] {
        let len = peer.recv(&mut buffer).expect("a datagram");
        assert_eq!(buffer[..len], bytes[expected]);
    }
    let drops = driver.datagram_drops(ID);
    assert_eq!((drops.unsegmented, drops.refused), (1, 0));
}

#[test]
fn unsendable_datagrams_are_counted_and_the_others_sent() {
    let (socket, peer) = (bound(), bound());
    let mut driver = driver_with(socket);
    let bytes = vec![7; 90_000];
    let peer_address = address_of(&peer);
    let other_family = "[::1]:9".parse().expect("an address");
    let mut trains = [
        train(peer_address, 90_000, 90_000), // EMSGSIZE
        train(peer_address, 65_507, 65_507),
        train(other_family, 5, 5),
        DatagramTrain {
            local: Some([192, 0, 2, 1].into()),
            ..train(peer_address, 5, 5) // not an address of this host
        },
        train(peer_address, 0, 0),
        train(peer_address, 30_000, 90_000), // more than one message takes
    ];
    assert_eq!(driver.send_datagrams(ID, &mut trains, &bytes), 6);
    assert_eq!(driver.datagram_drops(ID).refused, 3);
    let mut buffer = vec![0; 70_000];
    for expected in [65_507, 0, 30_000, 30_000, 30_000] {
        assert_eq!(peer.recv(&mut buffer).expect("a datagram"), expected);
    }
}

/// Only a connected socket gets ICMP errors.
#[test]
fn icmp_error_loses_no_datagram_and_is_reported_once() {
    let (socket, peer) = (bound(), bound());
    let (own, peer_address) = (address_of(&socket), address_of(&peer));
    socket.connect(peer_address).expect("an address");
    let mut driver = driver_with(socket);
    drop(peer);
    assert_eq!(
        driver.send_datagrams(ID, &mut [train(peer_address, 5, 5)], b"hello"),
        1
    );
    // The port is unreachable: the next send on the socket reports the error.
    let peer = UdpSocket::bind(peer_address).expect("the same port");
    peer.connect(own).expect("an address");
    assert_eq!(
        driver.send_datagrams(ID, &mut [train(peer_address, 5, 5)], b"again"),
        1
    );
    let mut buffer = [0; 10];
    assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 5);
    assert_eq!(&buffer[..5], b"again");
    assert_eq!(driver.datagram_drops(ID), DatagramDrops::default());
    drop(peer);
    // Another error, which a receive reports.
    assert_eq!(
        driver.send_datagrams(ID, &mut [train(peer_address, 5, 5)], b"hello"),
        1
    );
    await_datagrams(&mut driver);
    let mut batch = DatagramBatch::default();
    assert!(!driver.receive_datagrams(ID, &mut batch));
    assert!(batch.trains().is_empty());
    let events = pending(&mut driver);
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn pending_datagrams_are_received_until_the_socket_is_closed() {
    let (socket, peer) = (bound(), bound());
    let own = address_of(&socket);
    // A duplicate, like that of a supervisor, which stays open.
    let _supervisor = socket.try_clone().expect("a descriptor");
    let mut driver = driver_with(socket);
    for number in 0..40_u8 {
        peer.send_to(&vec![number; number.into()], own)
            .expect("sent");
    }
    await_datagrams(&mut driver);
    let (mut batch, mut lens) = (DatagramBatch::default(), Vec::new());
    let mut more = true;
    while more {
        more = driver.receive_datagrams(ID, &mut batch);
        for train in batch.trains() {
            assert_eq!(train.peer, address_of(&peer));
            assert_eq!(train.local, Some(own.ip()));
            lens.extend(train.segments(batch.bytes()).map(<[u8]>::len));
        }
    }
    assert_eq!(lens, (0..40).collect::<Vec<_>>());
    assert!(pending(&mut driver).is_empty());
    peer.send_to(b"late", own).expect("sent");
    driver.close_datagrams(ID);
    assert!(pending(&mut driver).is_empty());
    assert!(!driver.receive_datagrams(ID, &mut batch));
    assert!(batch.trains().is_empty());
    // The datagram is lost, and EPOLLOUT is not registered.
    assert_eq!(driver.send_datagrams(ID, &mut [train(own, 1, 1)], b"x"), 1);
}

/// EIO is caused by IPsec, or by devices without checksum offload before Linux 6.11.
#[test]
fn eio_disables_segmentation_for_the_socket() {
    let socket = DatagramSocket::adopt(bound().into()).expect("a UDP socket");
    let mut port = DatagramPort {
        sockets: socket.into(),
        relay: None,
        next: 0,
        is_watching_room: false,
        drops: DatagramDrops::default(),
    };
    let trains = &mut [train(address_of(&bound()), 10, 35)];
    let lens = |port: &DatagramPort, trains: &[DatagramTrain], cursor: &SendCursor| {
        let chunks = port.chunks(trains, cursor);
        chunks
            .map(|chunk| (chunk.range.len(), chunk.segment_len))
            .collect::<Vec<_>>()
    };
    let mut cursor = SendCursor::default();
    assert_eq!(lens(&port, trains, &cursor), [(35, Some(10))]);
    let first = |port: &DatagramPort, trains: &[DatagramTrain]| {
        let chunk = port.chunks(trains, &SendCursor::default()).next();
        chunk.expect("a train")
    };
    // Above the MTU, only this train is sent as single datagrams.
    for errno in [Errno::INVAL, Errno::MSGSIZE] {
        let chunk = first(&port, trains);
        port.pass_error(Some(errno), &chunk, &mut cursor, trains);
        assert_eq!(lens(&port, trains, &cursor).len(), 4);
        cursor = SendCursor::default();
        assert_eq!(lens(&port, trains, &cursor).len(), 1);
    }
    let chunk = first(&port, trains);
    port.pass_error(Some(Errno::IO), &chunk, &mut cursor, trains);
    let singles = [(10, None), (10, None), (10, None), (5, None)];
    assert_eq!(lens(&port, trains, &SendCursor::default()), singles);
    assert_eq!((port.drops.unsegmented, port.drops.refused), (3, 0));
}

#[test]
fn receive_buffer_overflow_is_counted() {
    let (socket, peer) = (bound(), bound());
    let own = address_of(&socket);
    let mut driver = driver_with(socket);
    // A value below the kernel's minimum selects the minimum.
    let socket = driver.datagrams.as_ref().and_then(|io| io.sockets.get(ID));
    let socket = &socket.expect("open").socket;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 1).expect("an option");
    let mut batch = DatagramBatch::default();
    let send = || u64::from(peer.send_to(&[0; 1000], own).is_ok());
    let mut sent: u64 = (0..20).map(|_| send()).sum();
    let mut received = 0;
    while driver.datagram_drops(ID).overflowed == 0 {
        // The next datagram that is queued reports the number of dropped ones.
        sent += send();
        driver.receive_datagrams(ID, &mut batch);
        received += batch.trains().len() as u64;
    }
    assert_eq!(driver.datagram_drops(ID).overflowed, sent - received);
}

#[test]
fn datagrams_come_from_the_relay_after_a_handover() {
    let (socket, peer) = (bound(), bound());
    let own = address_of(&socket);
    let mut driver = driver_with(socket);
    let (sender, receiver) = DatagramRelay::pair().expect("sockets");
    let shared = driver.share_datagrams(ID).expect("sockets");
    driver.receive_from_relay(ID, receiver).expect("room");
    // The other process has duplicates of the sockets, and passes one of two datagrams on.
    let mut other = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
    let relays = Arc::new([DatagramRelay::new(worker_of(4, 1), sender)]);
    let sockets = PortSockets { relays, ..shared };
    other.open_datagrams(ID, sockets).expect("room");
    for payload in [b"theirs", b"mine  "] {
        peer.send_to(payload, own).expect("a send");
    }
    let (mut batch, mut payloads) = (DatagramBatch::default(), Vec::new());
    while payloads.len() < 2 {
        other.receive_datagrams(ID, &mut batch);
        for train in batch.trains() {
            for datagram in train.segments(batch.bytes()) {
                payloads.push((train.clone(), datagram.to_vec()));
            }
        }
    }
    let (train, payload) = &payloads[0];
    let relay = |to| other.relay_datagram(ID, to, train, payload);
    assert_eq!(relay(worker_of(4, 1)), RelayOutcome::Sent);
    assert_eq!(
        [relay(worker_of(4, 0)), relay(worker_of(3, 1))],
        [RelayOutcome::Ended; 2]
    );
    assert!(!driver.receive_datagrams(ID, &mut batch));
    let received = &batch.trains()[0];
    assert_eq!((received.peer, received.local), (train.peer, train.local));
    assert_eq!(&batch.bytes()[received.range.clone()], b"theirs");
    assert!(!driver.receive_datagrams(ID, &mut batch));
    assert!(batch.trains().is_empty());
    // The process still sends by its own duplicate.
    let mut trains = [DatagramTrain {
        range: 0..6,
        ..train.clone()
    }];
    assert_eq!(driver.send_datagrams(ID, &mut trains, payload), 1);
    let mut buffer = [0; 10];
    assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 6);
    driver.close_datagrams(ID);
    assert_eq!(
        other.relay_datagram(ID, worker_of(4, 1), train, payload),
        RelayOutcome::Ended
    );
}

#[test]
fn closed_sockets_that_another_process_keeps_get_no_datagrams() {
    for (address, target) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("0.0.0.0:0", "127.0.0.1"),
        ("[::]:0", "127.0.0.1"),
        ("[::]:0", "::1"),
    ] {
        let open = |address| DatagramSocket::open(address, None).expect("a port");
        let taken = open(address.parse().expect("an address"));
        let address = taken.address().expect("an address");
        // The predecessor sends by its duplicate.
        let kept = UdpSocket::from(taken.as_fd().try_clone_to_owned().expect("a descriptor"));
        let (relay, _receiver) = DatagramRelay::pair().expect("sockets");
        let relays = Arc::new([DatagramRelay::new(worker_of(4, 1), relay)]);
        let sockets = PortSockets {
            relays,
            ..PortSockets::from(taken)
        };
        let mut driver =
            EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
        driver.open_datagrams(ID, sockets).expect("room");
        driver.close_datagrams(ID);
        driver
            .open_datagrams(ID, open(address).into())
            .expect("room");
        let target: IpAddr = target.parse().expect("an address");
        let mut batch = DatagramBatch::default();
        // The kernel selects a socket by the address of the peer.
        for _ in 0..32 {
            let unspecified = match target {
                IpAddr::V4(_) => "0.0.0.0:0",
                IpAddr::V6(_) => "[::]:0",
            };
            let peer = UdpSocket::bind(unspecified).expect("a port");
            let to = SocketAddr::from((target, address.port()));
            peer.send_to(b"new", to).expect("a send");
            await_datagrams(&mut driver);
            driver.receive_datagrams(ID, &mut batch);
            let train = batch.trains().first().expect("a datagram");
            assert_eq!(train.peer.port(), address_of(&peer).port());
        }
        let peer = UdpSocket::bind(SocketAddr::from((target, 0))).expect("a port");
        let mut to = address_of(&peer);
        if let (IpAddr::V4(ip), true) = (target, address.is_ipv6()) {
            to.set_ip(ip.to_ipv6_mapped().into());
        }
        kept.send_to(b"old", to).expect("a send");
        let mut buffer = [0; 10];
        assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 3);
    }
}

#[test]
fn only_udp_sockets_are_adopted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    assert!(DatagramSocket::adopt(listener.into()).is_err());
    let (pair, _) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
    assert!(DatagramSocket::adopt(pair.into()).is_err());
}
