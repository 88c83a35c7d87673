use std::net::{TcpListener, TcpStream};

use super::*;

/// A supervisor or another worker has a duplicate of the socket, so closing one descriptor leaves the socket open.
#[test]
fn closed_listener_with_duplicate_descriptor_causes_no_events() {
    let supervisor = TcpListener::bind("127.0.0.1:0").expect("a port");
    let socket = supervisor.try_clone().expect("a descriptor");
    let mut driver = EpollDriver::new(HelperPool::start(1).expect("a thread")).expect("an epoll");
    let (id, mut events) = (ListenerId(0), Vec::new());
    let listener = ListenSocket::adopt(socket.into()).expect("it listens");
    driver.open_listener(id, listener).expect("room");
    driver.close_listener(id);
    let mut client = TcpStream::connect(supervisor.local_addr().expect("bound")).expect("open");
    // The kernel holds back connections until the client sends something (TCP_DEFER_ACCEPT).
    std::io::Write::write_all(&mut client, b"hello").expect("open");
    driver.wait(Some(0), &mut events);
    assert!(events.is_empty(), "{events:?}");
}
