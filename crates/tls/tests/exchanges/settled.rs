//! Established connections after `TlsServer::settle`: violations in records, and closing.

use lowroad_tls::{PeerClose, TlsFault};

use crate::pair::{Exchange, SideFailure, acceptor, connector};

fn settled() -> Exchange {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    exchange.server.settle().unwrap();
    exchange
}

/// The server's fault for these bytes, and the client's fault from the server's alert.
fn faults(wire: &[u8]) -> (TlsFault, TlsFault) {
    let mut exchange = settled();
    exchange.to_server = wire.to_vec();
    let Err(SideFailure::Server(failure)) = exchange.run() else {
        panic!("the server is content");
    };
    let Err(SideFailure::Client(alert)) = exchange.run() else {
        panic!("the client was not told");
    };
    // Afterwards the server neither decrypts nor encrypts.
    let mut out = Vec::new();
    assert!(exchange.server.encrypt(&[b"x"], &mut out, 0).is_err());
    let received = exchange
        .server
        .receive(&mut [23, 3, 3], &mut out, &mut Vec::new());
    assert!(received.is_ok() && out.is_empty());
    (failure.fault, alert.fault)
}

#[test]
fn violation_after_settle_gets_alert() {
    let (unexpected, overflow, bad_mac) = (
        TlsFault::Alert(10),
        TlsFault::Alert(22),
        TlsFault::Alert(20),
    );
    assert_eq!(
        faults(&[20, 3, 3, 0, 1, 1]),
        (TlsFault::Protocol, unexpected)
    );
    assert_eq!(
        faults(&[22, 3, 3, 0, 5, 24, 0, 0, 1, 0]),
        (TlsFault::Protocol, unexpected)
    );
    assert_eq!(
        faults(b"GET / HTTP/1.1\r\n"),
        (TlsFault::Protocol, unexpected)
    );
    // Refused before the record is complete.
    assert_eq!(
        faults(&[23, 3, 3, 0x41, 1]),
        (TlsFault::Oversized, overflow)
    );
    assert_eq!(
        faults(&[23, 3, 3, 0, 0]),
        (TlsFault::Undecryptable, bad_mac)
    );
    let mut garbage = vec![7; 5 + 40];
    garbage[..5].copy_from_slice(&[23, 3, 3, 0, 40]);
    assert_eq!(faults(&garbage), (TlsFault::Undecryptable, bad_mac));
}

#[test]
fn close_is_clean_only_after_close_notify() {
    let mut exchange = settled();
    assert_eq!(exchange.server.peer_close(), PeerClose::Truncated);
    exchange.client.close(&mut exchange.to_server).unwrap();
    // Bytes after close_notify are ignored.
    exchange.to_server.extend_from_slice(b"whatever");
    exchange.run().unwrap();
    assert_eq!(exchange.server.peer_close(), PeerClose::Cleanly);
    // The server may still send.
    exchange.send_from_server(b"bye");
    exchange.server.close(&mut exchange.to_client).unwrap();
    exchange.run().unwrap();
    assert_eq!(exchange.at_client, b"bye");
    assert_eq!(exchange.client.peer_close(), PeerClose::Cleanly);
}

#[test]
fn record_split_across_settle_is_received() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    let text = [b'x'; 300];
    exchange
        .client
        .encrypt(&[&text], &mut exchange.to_server, 0)
        .unwrap();
    let mut start: Vec<u8> = exchange.to_server.drain(..100).collect();
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    exchange
        .server
        .receive(&mut start, &mut plain, &mut out)
        .unwrap();
    exchange.server.settle().unwrap();
    exchange.step = 1;
    exchange.run().unwrap();
    assert_eq!(exchange.at_server, text);
}
