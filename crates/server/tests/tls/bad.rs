//! Bytes that are not TLS, or violate TLS: see docs/bad-input.md.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use lowroad_testkit::{TEST_TIMEOUT, TestServer, wait_until};

use super::support::Place;

/// Sends these bytes, and reads until the connection ends.
fn answer(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream
        .set_read_timeout(Some(TEST_TIMEOUT))
        .expect("a socket");
    stream.write_all(bytes).expect("sent");
    stream.shutdown(Shutdown::Write).expect("a socket");
    let mut got = Vec::new();
    // The connection may be reset after the response.
    let _ = stream.read_to_end(&mut got);
    got
}

#[test]
fn plain_http_on_tls_port_gets_a_plain_400() {
    let place = Place::new();
    let server = place.run_with_certificate();
    for request in [
        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "POST /x HTTP/1.0\r\n\r\n",
    ] {
        let got = String::from_utf8_lossy(&answer(&server, request.as_bytes())).into_owned();
        assert!(got.starts_with("HTTP/1.1 400 "), "{got}");
        assert!(got.contains("This port uses TLS"), "{got}");
        assert!(got.contains("Connection: close\r\n"), "{got}");
    }
    assert_eq!(
        (place.count("clear_text"), place.count("tls.plain_http")),
        (2, 2)
    );
}

#[test]
fn non_tls_bytes_close_the_connection() {
    let place = Place::new();
    let server = place.run_with_certificate();
    let long = [&[22, 3, 1, 0x50, 0][..], &[1; 0x5000]].concat();
    let cases: [&[u8]; 6] = [
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"\x00\x00\x00\x00\x00\x00\x00\x00",
        &[0xff; 500],
        // A record of SSL 2, an empty record, and one that is too long.
        b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10",
        &[22, 3, 1, 0, 0],
        &long,
    ];
    for bytes in cases {
        let got = answer(&server, bytes);
        assert!(
            got.is_empty() || got[0] == 21,
            "an alert, or nothing: {got:?}"
        );
    }
    wait_until("all to be counted", || {
        let broken = place.count("tls.not_tls") + place.count("tls.broken");
        (broken >= 4).then_some(())
    });
    // Other clients are unaffected.
    place.folder.file("site/file", "hello");
    assert_eq!(
        place.fetch(server.address(), &["https://a.example/file"]),
        "hello"
    );
}

#[test]
fn slow_handshake_is_timed_out() {
    let place = Place::new();
    place.certify("a", &["a.example"]);
    let limits = "[limits]\nheader_timeout = \"200ms\"\n";
    let server = place.run_with(limits, &place.site("a", "", ""));
    for begin in [&b""[..], &[22], &[22, 3, 1, 2, 0, 1, 0, 1]] {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        stream.write_all(begin).expect("sent");
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert!(got.is_empty() || got[0] == 21, "{got:?}");
    }
    assert_eq!(place.count("handshake_timeouts"), 3);
}

#[test]
fn disconnect_during_handshake_leaves_no_connection() {
    let place = Place::new();
    let server = place.run_with_certificate();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream.write_all(&[22, 3, 1, 2, 0, 1]).expect("sent");
    }
    wait_until("the connections to end", || {
        (place.status("open") == ["0 connections"]).then_some(())
    });
}

#[test]
fn renegotiation_is_refused() {
    let place = Place::new();
    place.folder.file("site/file", "hello");
    let server = place.run_with_certificate();
    let said = place.s_client(server.address(), &["-tls1_2"], "R\nGET /file HTTP/1.1\r\n");
    assert!(!said.text().contains("hello"), "{}", said.all());
    assert_eq!(
        place.fetch(server.address(), &["https://a.example/file"]),
        "hello"
    );
}
