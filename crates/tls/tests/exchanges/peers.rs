//! Misbehaving clients: they get the right alert, and have no other effect.

use lowroad_tls::{
    MinimumVersion, TlsAcceptor, TlsFailure, TlsFault, TlsServer, TlsServerSettings,
};

use crate::pair::{Exchange, acceptor, connector, settings};

const ALERT: u8 = 21;

/// The server's result for these bytes, and the bytes that it sends.
fn receive_result(server: &mut TlsServer, bytes: &[u8]) -> (Result<(), TlsFailure>, Vec<u8>) {
    let mut out = Vec::new();
    let result = server.receive(&mut bytes.to_vec(), &mut Vec::new(), &mut out);
    (result.map(|_| ()), out)
}

fn server() -> TlsServer {
    acceptor().accept().unwrap()
}

#[test]
fn plaintext_http_is_recognized() {
    for request in [&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], b"P"] {
        let (result, out) = receive_result(&mut server(), request);
        assert_eq!(result.unwrap_err().fault, TlsFault::PlainHttp);
        assert!(out.is_empty());
    }
}

#[test]
fn garbage_gets_an_alert() {
    for garbage in [
        &b"\x00\x01\x02\x03\x04\x05\x06\x07"[..],
        b"SSH-2.0-x\r\n",
        &[0xff; 100],
    ] {
        let (result, out) = receive_result(&mut server(), garbage);
        assert_eq!(result.unwrap_err().fault, TlsFault::NotTls, "{garbage:?}");
        assert_eq!(out[0], ALERT);
    }
    let (result, out) = receive_result(&mut server(), &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert_eq!(result.unwrap_err().fault, TlsFault::Protocol);
    assert_eq!(out[0], ALERT);
}

/// A ClientHello as a record; `extensions` are in addition to server_name.
fn client_hello(legacy_version: [u8; 2], extensions: &[(u8, &[u8])]) -> Vec<u8> {
    let with_len = |bytes: Vec<u8>| [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
    let mut all = Vec::new();
    for (kind, body) in [(0, &b"\0\x0c\0\0\x09localhost"[..])]
        .iter()
        .chain(extensions)
    {
        all.extend_from_slice(&[0, *kind]);
        all.extend(with_len(body.to_vec()));
    }
    let mut body = legacy_version.to_vec();
    body.extend_from_slice(&[7; 32]);
    // No session; two cipher suites, of TLS 1.3 and 1.2; no compression.
    body.extend_from_slice(b"\0\0\x04\x13\x01\xc0\x2b\x01\0");
    body.extend(with_len(all));
    let mut message = vec![1, 0];
    message.extend(with_len(body));
    [vec![22, 3, 1], with_len(message)].concat()
}

#[test]
fn handshake_violations_get_alert_of_rfc_8446() {
    let versions = (43, &b"\x02\x03\x04"[..]);
    let groups = (10, &b"\0\x02\0\x1d"[..]);
    let schemes = (13, &b"\0\x02\x04\x03"[..]);
    for (bytes, alert) in [
        // No key_share: RFC 8446, section 9.2.
        (client_hello([3, 3], &[versions, groups, schemes]), 109),
        // SSL 3.0: RFC 8446, appendix D.5.
        (client_hello([3, 0], &[versions, groups, schemes]), 70),
        (client_hello([3, 2], &[groups, schemes]), 70),
        // An empty alert: RFC 8446, section 5.1.
        (vec![ALERT, 3, 3, 0, 0], 10),
        // An unknown record type: RFC 8446, section 5. A record that is too long: section 5.1.
        (vec![99, 3, 3, 0, 1, 0], 10),
        (vec![22, 3, 3, 0x48, 1], 22),
    ] {
        let (result, out) = receive_result(&mut server(), &bytes);
        assert!(result.is_err(), "{bytes:?}");
        assert_eq!(
            (out[0], out[out.len() - 2], out[out.len() - 1]),
            (ALERT, 2, alert)
        );
    }
}

#[test]
fn failed_session_ignores_input_and_refuses_output() {
    let mut server = server();
    receive_result(&mut server, &[0xff; 10]).0.unwrap_err();
    let (result, out) = receive_result(&mut server, &[22, 3, 1, 0, 4, 1, 0, 0, 0]);
    assert!(result.is_ok() && out.is_empty());
    let sealed = server.encrypt(&[b"x"], &mut Vec::new(), 0);
    assert_eq!(sealed.unwrap_err().fault, TlsFault::NotReady);
}

#[test]
fn oversized_record_is_refused_from_its_header() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    let (result, out) = receive_result(&mut exchange.server, &[23, 3, 3, 0x48, 1]);
    assert!(matches!(
        result.unwrap_err().fault,
        TlsFault::Oversized | TlsFault::Protocol
    ));
    assert!(!out.is_empty());
}

#[test]
fn modified_record_gets_bad_record_mac() {
    let mut exchange = Exchange::established(&acceptor(), &connector());
    exchange
        .client
        .encrypt(&[b"hello"], &mut exchange.to_server, 0)
        .unwrap();
    let last = exchange.to_server.len() - 1;
    exchange.to_server[last] ^= 1;
    let wire = std::mem::take(&mut exchange.to_server);
    let (result, out) = receive_result(&mut exchange.server, &wire);
    assert_eq!(result.unwrap_err().fault, TlsFault::Undecryptable);
    // The client can decrypt the alert.
    let mut wire = out;
    let failure = exchange
        .client
        .receive(&mut wire, &mut Vec::new(), &mut Vec::new())
        .unwrap_err();
    assert_eq!(failure.fault, TlsFault::Alert(20));
    assert!(failure.to_string().contains("BadRecordMac"), "{failure}");
}

#[test]
fn plaintext_records_after_handshake_are_refused() {
    for record in [&[22, 3, 3, 0, 4, 1, 0, 0, 0][..], &[23, 3, 3, 0, 1, 0]] {
        let mut exchange = Exchange::established(&acceptor(), &connector());
        let (result, _) = receive_result(&mut exchange.server, record);
        assert!(result.is_err(), "{record:?}");
    }
}

#[test]
fn endless_empty_records_are_refused() {
    // Before the handshake, empty records can be sent without a key.
    let mut server = server();
    let empty = [22, 3, 1, 0, 0].repeat(100);
    let (result, out) = receive_result(&mut server, &empty);
    assert_eq!(result.unwrap_err().fault, TlsFault::Protocol);
    assert!(out.is_empty() || out[0] == ALERT);
}

#[test]
fn no_common_protocol_gets_alert() {
    let mut settings: TlsServerSettings = settings();
    settings.protocols = vec!["h2".into()];
    settings.version_min = MinimumVersion::Tls13;
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    let mut exchange = Exchange::new(&acceptor, &connector(), "localhost");
    match exchange.run() {
        Err(crate::pair::SideFailure::Server(failure)) => {
            assert_eq!(failure.fault, TlsFault::NothingInCommon);
        }
        other => panic!("{other:?}"),
    }
    let mut wire = std::mem::take(&mut exchange.to_client);
    let receive_result = exchange
        .client
        .receive(&mut wire, &mut Vec::new(), &mut Vec::new());
    assert_eq!(receive_result.unwrap_err().fault, TlsFault::Alert(120));
}

#[test]
fn flipped_bit_in_client_hello_prevents_handshake() {
    let clean = {
        let exchange = Exchange::new(&acceptor(), &connector(), "localhost");
        exchange.to_server
    };
    // If the first flight is changed, it does not match the client's second flight.
    for position in 0..clean.len() {
        let mut exchange = Exchange::new(&acceptor(), &connector(), "localhost");
        if position >= exchange.to_server.len() {
            break;
        }
        exchange.to_server[position] ^= 1 << (position % 8);
        // If a length was increased, the server waits for more; the version in the record header is not checked.
        let is_refused = exchange.run().is_err();
        let is_ignored = (1..3).contains(&position);
        assert!(
            is_refused || is_ignored || !exchange.server.is_established(),
            "{position}"
        );
    }
}
