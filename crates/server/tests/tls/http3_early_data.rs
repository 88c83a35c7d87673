//! Early data of HTTP/3 (0-RTT, RFC 8470).

use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use lowroad_quic::QuicClientCipher;
use lowroad_testkit::TestServer;
use lowroad_testkit::origin::TestOrigin;

use super::http3_client::{Http3Client, connector};
use super::support::{PROGRAM, Place};

/// A server with early data. Its origin answers with the method and with the field `Early-Data`.
struct EarlyServer {
    place: Place,
    server: TestServer,
    origin: TestOrigin,
    cipher: QuicClientCipher,
}

impl EarlyServer {
    /// Starts the server, and visits it once, so that the client has a session.
    fn start() -> EarlyServer {
        let origin = TestOrigin::start(|request, stream| {
            let mark = request.field("Early-Data").unwrap_or("none");
            let text = format!("{} {mark}", request.method);
            let len = text.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
            stream.write_all((head + &text).as_bytes()).is_ok()
        });
        let place = Place::new();
        place.certify("a", &["a.example"]);
        let admin = place.path("admin").display().to_string();
        let route = format!(
            "[[site.route]]\npattern = \"/app/*\"\norigin = \"{}\"\n",
            origin.url()
        );
        let config = format!(
            "[server]\nuser = \"root\"\nworkers = 1\nadmin = \"{admin}\"\nearly_data = true\n{}",
            place.site("a", "", &route)
        );
        let server = TestServer::run(PROGRAM, &place.folder, &config);
        let cipher = QuicClientCipher::tls(connector(&place, 8).for_quic_with_early_data())
            .with_token_memory();
        let started = EarlyServer {
            place,
            server,
            origin,
            cipher,
        };
        started.visit();
        started
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses[0]
    }

    fn connect(&self) -> Http3Client {
        Http3Client::start(&self.cipher, self.address())
    }

    /// Connects, and gets a response after the handshake: by then the client has sessions to resume.
    fn visit(&self) {
        let mut client = self.connect();
        client.wait_for_handshake();
        assert_eq!(client.get("/app/a").body(), b"GET none");
        client.close();
    }

    fn early_connections(&self) -> u64 {
        self.place.count("quic_early_connections")
    }
}

#[test]
fn safe_requests_in_early_data_are_answered_and_marked() {
    let early = EarlyServer::start();
    let mut client = early.connect();
    let first = client.request("GET", "/app/a", b"");
    let upload = client.request("POST", "/app/b", b"abc");
    assert_eq!(client.response(first).body(), b"GET 1");
    assert_eq!(client.response(upload).status(), "425");
    assert_eq!(early.early_connections(), 1);
    // The handshake is complete: the client repeats the request that was too early.
    let upload = client.request("POST", "/app/b", b"abc");
    assert_eq!(client.response(upload).body(), b"POST none");
    assert_eq!(client.get("/app/a").body(), b"GET none");
    assert!(
        early
            .origin
            .requests()
            .iter()
            .all(|it| it.target != "/app/b" || it.field("Early-Data").is_none())
    );
}

#[test]
fn early_data_of_an_unproved_address_waits_for_the_handshake() {
    let early = EarlyServer::start();
    let cipher = QuicClientCipher::tls(connector(&early.place, 8).for_quic_with_early_data());
    let connect = || Http3Client::start(&cipher, early.address());
    let mut first = connect();
    first.wait_for_handshake();
    assert_eq!(first.get("/app/a").body(), b"GET none");
    first.close();
    // With a session, but without a token.
    let mut second = connect();
    let upload = second.request("POST", "/app/b", b"abc");
    assert_eq!(second.response(upload).body(), b"POST none");
    assert_eq!(early.early_connections(), 0);
}

#[test]
fn copies_of_early_data_have_no_effect() {
    let early = EarlyServer::start();
    let mut client = early.connect();
    let first = client.request("GET", "/app/a", b"");
    assert_eq!(client.response(first).body(), b"GET 1");
    client.close();
    let requests = early.origin.count();
    let handshakes = early.place.count("quic_handshakes");
    // An attacker has another address.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(early.address()).expect("an address");
    let wait = Some(Duration::from_millis(100));
    socket.set_read_timeout(wait).expect("a time");
    // Until the first connection is forgotten, its identifier leads to it. Then the server begins a handshake.
    let end = Instant::now() + Duration::from_secs(60);
    while early.place.count("quic_handshakes") == handshakes {
        assert!(Instant::now() < end, "no handshake");
        for datagram in &client.first_datagrams {
            socket.send(datagram).expect("a datagram");
        }
        _ = socket.recv(&mut [0; 2048]);
    }
    // The worker has processed all copies before these datagrams.
    early.visit();
    assert_eq!(early.early_connections(), 1);
    assert_eq!(early.origin.count(), requests + 1);
}

#[test]
fn early_data_after_a_reload_waits_for_the_handshake() {
    let early = EarlyServer::start();
    early.server.signal("HUP");
    early.server.wait_for_error_line("lowroad.toml is in force");
    let mut client = early.connect();
    client.request("GET", "/app/early", b"");
    client.wait_for_handshake();
    // The client's QUIC forgets streams of refused early data.
    assert_eq!(client.get("/app/a").body(), b"GET none");
    assert_eq!(early.early_connections(), 0);
    early.visit();
    let mut client = early.connect();
    let stream = client.request("GET", "/app/b", b"");
    assert_eq!(client.response(stream).body(), b"GET 1");
}

#[test]
fn early_data_is_off_by_default_and_where_clients_have_certificates() {
    for (keys, tls) in [
        ("", ""),
        (
            "early_data = true\n",
            "client = \"request\"\nclient_ca = \"ca.pem\"\n",
        ),
    ] {
        let place = Place::new();
        place.certify("a", &["a.example"]);
        std::fs::copy(place.ca(), place.path("ca.pem")).expect("a file");
        place.folder.file("site/a", "a");
        let server = place.run_with(keys, &place.site("a", "", tls));
        let cipher = QuicClientCipher::tls(connector(&place, 8).for_quic_with_early_data());
        for _ in 0..2 {
            let mut client = Http3Client::start(&cipher, server.addresses[0]);
            // A client without a session that allows early data can open no stream.
            assert_eq!(client.open_all(), 0);
            client.wait_for_handshake();
            assert_eq!(client.get("/a").status(), "200");
        }
        assert_eq!(place.count("quic_early_connections"), 0);
    }
}
