//! The alerts that the server sends if a TLS 1.3 client violates RFC 8446 after encryption has started.

use lowroad_tls::{TlsFault, TlsServer};
use rustls::{AlertDescription, ClientConnection, Error};

use crate::pair::acceptor;
use crate::raw::{ALERT, APPLICATION_DATA, HANDSHAKE, established};
use crate::versions::client;

const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;
const CHANGE_CIPHER_SPEC: u8 = 20;
const KEY_UPDATE: u8 = 24;

/// A server that has sent its first flight, the client before it reads that flight, and the flight.
fn after_server_flight() -> (TlsServer, ClientConnection, Vec<u8>) {
    let mut server = acceptor().accept().unwrap();
    let mut client = client(&[&rustls::version::TLS13]);
    let (mut hello, mut flight) = (Vec::new(), Vec::new());
    client.write_tls(&mut hello).unwrap();
    server
        .receive(&mut hello, &mut Vec::new(), &mut flight)
        .unwrap();
    (server, client, flight)
}

/// The client's error when it reads these bytes, if any.
fn read(client: &mut ClientConnection, mut wire: &[u8]) -> Option<Error> {
    while !wire.is_empty() {
        client.read_tls(&mut wire).unwrap();
        if let Err(error) = client.process_new_packets() {
            return Some(error);
        }
    }
    None
}

/// Sends `wire` instead of the client's Finished.
fn fail_handshake(wire: &[u8]) -> (TlsFault, u8) {
    let (mut server, mut client, mut out) = after_server_flight();
    let failure = server
        .receive(&mut wire.to_vec(), &mut Vec::new(), &mut out)
        .expect_err("refused");
    assert!(!server.is_established());
    match read(&mut client, &out) {
        Some(Error::AlertReceived(alert)) => (failure.fault, alert.into()),
        other => panic!("{other:?} for {wire:?}"),
    }
}

#[test]
fn plaintext_record_after_first_flight_gets_unexpected_message() {
    let finished = [&[HANDSHAKE, 3, 3, 0, 36, 20, 0, 0, 32][..], &[7; 32]].concat();
    for wire in [
        &finished[..],
        // The same, preceded by the change_cipher_spec that clients send for middleboxes.
        &[&[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1][..], &finished].concat(),
        &[CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 2],
        &[HANDSHAKE, 3, 3, 0, 5, KEY_UPDATE, 0, 0, 1, 0],
        // An alert is exactly two bytes.
        &[ALERT, 3, 3, 0, 0],
        &[ALERT, 3, 3, 0, 3, 2, 40, 0],
        &[HANDSHAKE, 3, 3, 0, 0],
        // Invalid record types are rejected before the record is complete.
        b"GET / HTTP/1.1\r\n",
        &[24, 3, 3, 0, 3, 1, 0, 0],
    ] {
        let failed = fail_handshake(wire);
        assert_eq!(failed, (TlsFault::Protocol, UNEXPECTED_MESSAGE), "{wire:?}");
    }
}

#[test]
fn oversized_or_undecryptable_handshake_record_gets_its_alert() {
    let too_long = [APPLICATION_DATA, 3, 3, 0x41, 1];
    assert_eq!(
        fail_handshake(&too_long),
        (TlsFault::Oversized, RECORD_OVERFLOW)
    );
    let garbage = [&[APPLICATION_DATA, 3, 3, 0, 40][..], &[7; 40]].concat();
    let failed = fail_handshake(&garbage);
    assert_eq!(failed, (TlsFault::Undecryptable, BAD_RECORD_MAC));
}

#[test]
fn plaintext_alert_ends_handshake_without_answer() {
    for (level, alert) in [(2, 48), (2, 42), (1, 0), (1, 48), (2, 0), (1, 90), (7, 40)] {
        let (mut server, ..) = after_server_flight();
        let mut out = Vec::new();
        let received = server.receive(
            &mut [ALERT, 3, 3, 0, 2, level, alert],
            &mut Vec::new(),
            &mut out,
        );
        // user_canceled only announces another alert (RFC 8446, section 6.1).
        if alert == u8::from(AlertDescription::UserCanceled) {
            assert!(received.is_ok());
            continue;
        }
        let failure = received.expect_err("refused");
        assert_eq!(failure.fault, TlsFault::Alert(alert), "level {level}");
        assert!(out.is_empty(), "{level} {alert}: {out:?}");
    }
}

#[test]
fn failure_text_of_plaintext_record_says_not_encrypted() {
    let (mut server, ..) = after_server_flight();
    let wire = &mut [HANDSHAKE, 3, 3, 0, 4, 20, 0, 0, 0];
    let failure = server.receive(wire, &mut Vec::new(), &mut Vec::new());
    let reason = failure.unwrap_err().to_string();
    assert!(reason.contains("not encrypted"), "{reason}");
}

type Records<'a> = (&'a [(u8, &'a [u8])], u8);

/// Invalid records after the handshake, each with the expected alert.
const VIOLATIONS: &[Records<'static>] = &[
    // RFC 8446, section 4.6.3.
    (&[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 2])], ILLEGAL_PARAMETER),
    (
        &[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 255])],
        ILLEGAL_PARAMETER,
    ),
    (&[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 0])], DECODE_ERROR),
    (&[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 2, 0, 0])], DECODE_ERROR),
    // Section 5.1: a message before a key change must end its record.
    (
        &[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE, 0, 0, 1, 0])],
        UNEXPECTED_MESSAGE,
    ),
    (
        &[(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0, KEY_UPDATE])],
        UNEXPECTED_MESSAGE,
    ),
    (
        &[
            (HANDSHAKE, &[KEY_UPDATE, 0]),
            (HANDSHAKE, &[0, 1, 0, KEY_UPDATE]),
        ],
        UNEXPECTED_MESSAGE,
    ),
    // Clients must not send other messages.
    (&[(HANDSHAKE, &[20, 0, 0, 0])], UNEXPECTED_MESSAGE),
    // Messages must not be empty, and an alert fills exactly one record.
    (&[(HANDSHAKE, &[])], UNEXPECTED_MESSAGE),
    (
        &[(HANDSHAKE, &[KEY_UPDATE, 0]), (HANDSHAKE, &[])],
        UNEXPECTED_MESSAGE,
    ),
    (&[(ALERT, &[])], UNEXPECTED_MESSAGE),
    (&[(ALERT, &[2])], UNEXPECTED_MESSAGE),
    (&[(ALERT, &[2, 40, 2, 40])], UNEXPECTED_MESSAGE),
    (&[(CHANGE_CIPHER_SPEC, &[1])], UNEXPECTED_MESSAGE),
    (&[(99, &[1])], UNEXPECTED_MESSAGE),
];

#[test]
fn violation_after_handshake_gets_alert_of_rfc_8446() {
    for settled in [true, false] {
        for (records, alert) in VIOLATIONS {
            let (mut server, mut client) = established();
            if settled {
                server.settle().unwrap();
            }
            let failed = client.fail(&mut server, records);
            assert_eq!(
                failed,
                (TlsFault::Protocol, *alert),
                "{records:?} {settled}"
            );
        }
    }
}

#[test]
fn record_between_key_update_fragments_is_rejected() {
    for between in [(APPLICATION_DATA, &b"x"[..]), (ALERT, &[1, 0])] {
        let (mut server, mut client) = established();
        server.settle().unwrap();
        let records = [(HANDSHAKE, &[KEY_UPDATE, 0][..]), between];
        let failed = client.fail(&mut server, &records);
        assert_eq!(failed, (TlsFault::Protocol, UNEXPECTED_MESSAGE));
    }
}

#[test]
fn key_update_may_span_records() {
    for parts in [
        &[&[KEY_UPDATE, 0, 0, 1, 1][..]][..],
        &[&[KEY_UPDATE, 0, 0, 1], &[1]],
        &[&[KEY_UPDATE], &[0], &[0], &[1], &[1]],
    ] {
        let (mut server, mut client) = established();
        server.settle().unwrap();
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        for part in parts {
            let mut wire = client.seal(HANDSHAKE, part);
            server.receive(&mut wire, &mut plain, &mut out).unwrap();
        }
        let update = vec![KEY_UPDATE, 0, 0, 1, 0];
        assert_eq!(client.open(&out), [(HANDSHAKE, update)]);
        // The old key is no longer accepted.
        let mut wire = client.seal(APPLICATION_DATA, b"x");
        let received = server.receive(&mut wire, &mut plain, &mut out);
        assert_eq!(received.unwrap_err().fault, TlsFault::Undecryptable);
        assert!(plain.is_empty());
    }
}
