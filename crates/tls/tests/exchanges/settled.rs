//! Established connections without handshake state: violations in records, and closing.

use lowroad_tls::{PeerClose, TlsFault};

use crate::pair::{Exchange, Failed, acceptor, connector};

fn settled() -> Exchange {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    exchange.server.settle().unwrap();
    exchange
}

/// The server's fault for these bytes, and the client's fault from the alert.
fn told(wire: &[u8]) -> (TlsFault, TlsFault) {
    let mut exchange = settled();
    exchange.to_server = wire.to_vec();
    let Err(Failed::Server(failure)) = exchange.run() else {
        panic!("the server is content");
    };
    let Err(Failed::Client(alert)) = exchange.run() else {
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
fn what_breaks_the_rules_ends_it_with_an_alert() {
    let (unexpected, overflow, bad_mac) = (
        TlsFault::Alert(10),
        TlsFault::Alert(22),
        TlsFault::Alert(20),
    );
    assert_eq!(told(&[20, 3, 3, 0, 1, 1]), (TlsFault::Protocol, unexpected));
    assert_eq!(
        told(&[22, 3, 3, 0, 5, 24, 0, 0, 1, 0]),
        (TlsFault::Protocol, unexpected)
    );
    assert_eq!(
        told(b"GET / HTTP/1.1\r\n"),
        (TlsFault::Protocol, unexpected)
    );
    // Refused before the record is complete.
    assert_eq!(told(&[23, 3, 3, 0x41, 1]), (TlsFault::Oversized, overflow));
    assert_eq!(told(&[23, 3, 3, 0, 0]), (TlsFault::Undecryptable, bad_mac));
    let mut garbage = vec![7; 5 + 40];
    garbage[..5].copy_from_slice(&[23, 3, 3, 0, 40]);
    assert_eq!(told(&garbage), (TlsFault::Undecryptable, bad_mac));
}

#[test]
fn the_end_is_clean_only_if_it_was_said() {
    let mut exchange = settled();
    assert_eq!(exchange.server.peer_close(), PeerClose::Truncated);
    exchange.client.close(&mut exchange.to_server).unwrap();
    // Bytes behind close_notify are ignored.
    exchange.to_server.extend_from_slice(b"whatever");
    exchange.run().unwrap();
    assert_eq!(exchange.server.peer_close(), PeerClose::Cleanly);
    // The server may still send.
    exchange.say(b"bye");
    exchange.server.close(&mut exchange.to_client).unwrap();
    exchange.run().unwrap();
    assert_eq!(exchange.at_client, b"bye");
    assert_eq!(exchange.client.peer_close(), PeerClose::Cleanly);
}

#[test]
fn bytes_may_come_one_by_one_and_half_before() {
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
