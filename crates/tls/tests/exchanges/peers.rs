//! Clients that misbehave: what they are told, and that nothing else happens.

use lowroad_tls::{Acceptor, Failure, Fault, Server, Settings, Version};

use crate::pair::{Exchange, acceptor, connector, settings};

const ALERT: u8 = 21;

/// What a server makes of bytes: its failure and what it says.
fn told(server: &mut Server, bytes: &[u8]) -> (Result<(), Failure>, Vec<u8>) {
    let mut out = Vec::new();
    let result = server.receive(&mut bytes.to_vec(), &mut Vec::new(), &mut out);
    (result.map(|_| ()), out)
}

fn server() -> Server {
    acceptor().accept().unwrap()
}

#[test]
fn http_in_plain_text_is_told_apart() {
    for request in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], b"P"] {
        let (result, out) = told(&mut server(), request);
        assert_eq!(result.unwrap_err().fault, Fault::PlainHttp);
        assert!(out.is_empty());
    }
}

#[test]
fn garbage_is_answered_with_an_alert() {
    for garbage in [
        &b"\x00\x01\x02\x03\x04\x05\x06\x07"[..],
        b"SSH-2.0-x\r\n",
        &[0xff; 100],
    ] {
        let (result, out) = told(&mut server(), garbage);
        assert_eq!(result.unwrap_err().fault, Fault::NotTls, "{garbage:?}");
        assert_eq!(out[0], ALERT);
    }
    let (result, out) = told(&mut server(), &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert_eq!(result.unwrap_err().fault, Fault::Protocol);
    assert_eq!(out[0], ALERT);
}

#[test]
fn after_a_failure_nothing_is_understood_or_sealed() {
    let mut server = server();
    told(&mut server, &[0xff; 10]).0.unwrap_err();
    let (result, out) = told(&mut server, &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert!(result.is_ok() && out.is_empty());
    let sealed = server.seal(&[b"x"], &mut Vec::new(), 0);
    assert_eq!(sealed.unwrap_err().fault, Fault::NotReady);
}

#[test]
fn a_record_that_is_too_long_is_refused_before_it_has_come() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    let (result, out) = told(&mut exchange.server, &[23, 3, 3, 0x48, 1]);
    assert!(matches!(
        result.unwrap_err().fault,
        Fault::Oversized | Fault::Protocol
    ));
    assert!(!out.is_empty());
}

#[test]
fn a_record_that_was_changed_ends_the_connection_with_an_alert() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    exchange
        .client
        .seal(&[b"hello"], &mut exchange.to_server, 0)
        .unwrap();
    let last = exchange.to_server.len() - 1;
    exchange.to_server[last] ^= 1;
    let wire = std::mem::take(&mut exchange.to_server);
    let (result, out) = told(&mut exchange.server, &wire);
    assert_eq!(result.unwrap_err().fault, Fault::Undecryptable);
    // The client understands why.
    let mut wire = out;
    let failure = exchange
        .client
        .receive(&mut wire, &mut Vec::new(), &mut Vec::new())
        .unwrap_err();
    assert_eq!(failure.fault, Fault::Alert(20));
    assert!(failure.to_string().contains("BadRecordMac"), "{failure}");
}

#[test]
fn plain_records_after_the_handshake_are_refused() {
    for record in [&[22, 3, 3, 0, 4, 1, 0, 0, 0][..], &[23, 3, 3, 0, 1, 0]] {
        let mut exchange = Exchange::established(&acceptor(), &connector());
        let (result, _) = told(&mut exchange.server, record);
        assert!(result.is_err(), "{record:?}");
    }
}

#[test]
fn empty_records_do_not_go_on_for_ever() {
    // Before the handshake they are the only ones that anybody can make.
    let mut server = server();
    let empty = [22, 3, 1, 0, 0].repeat(100);
    let (result, out) = told(&mut server, &empty);
    assert_eq!(result.unwrap_err().fault, Fault::Protocol);
    assert!(out.is_empty() || out[0] == ALERT);
}

#[test]
fn nothing_in_common_is_said_so() {
    let mut settings: Settings = settings();
    settings.protocols = vec!["h2".into()];
    settings.version_min = Version::Tls13;
    let acceptor = Acceptor::new(&settings).unwrap();
    let mut exchange = Exchange::new(&acceptor, &connector(), "localhost");
    match exchange.run() {
        Err(crate::pair::Failed::Server(failure)) => {
            assert_eq!(failure.fault, Fault::NothingInCommon);
        }
        other => panic!("{other:?}"),
    }
    let mut wire = std::mem::take(&mut exchange.to_client);
    let told = exchange
        .client
        .receive(&mut wire, &mut Vec::new(), &mut Vec::new());
    assert_eq!(told.unwrap_err().fault, Fault::Alert(120));
}

#[test]
fn changes_anywhere_in_a_handshake_never_lead_to_an_established_server() {
    let clean = {
        let exchange = Exchange::new(&acceptor(), &connector(), "localhost");
        exchange.to_server
    };
    // The client's first flight: whatever it becomes, the client's next is not right for it.
    for place in 0..clean.len() {
        let mut exchange = Exchange::new(&acceptor(), &connector(), "localhost");
        if place >= exchange.to_server.len() {
            break;
        }
        exchange.to_server[place] ^= 1 << (place % 8);
        // A length that became longer leaves the server waiting, a header's version is not looked at.
        let is_refused = exchange.run().is_err();
        let is_ignored = (1..3).contains(&place);
        assert!(
            is_refused || is_ignored || !exchange.server.is_established(),
            "{place}"
        );
    }
}
