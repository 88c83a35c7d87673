//! Soak test with concurrent handshakes, resumptions, renewed certificates and changed ticket keys: no request fails,
//! and memory does not grow. `LOWROAD_SOAK_S=600` makes it longer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lowroad_testkit::process::PrivateMemory;
use lowroad_testkit::wait_until;
use lowroad_tls::TicketKeys;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use super::support::{Place, noise, read, trusting, unix_s};

const SOAK_S: u64 = 12;
/// Number of clients, which connect repeatedly.
const CLIENTS: usize = 4;
const REQUESTS_A_CONNECTION: usize = 4;
/// Maximum growth of the server's memory from a third of the time to the end.
const GROWTH_MAX: u64 = 8 << 20;
/// Short, so that tickets are encrypted with many keys.
const TICKET_PERIOD_S: u32 = 3;

/// The results of all clients.
#[derive(Default)]
struct SoakCounts {
    stop: AtomicBool,
    full: AtomicUsize,
    resumed: AtomicUsize,
}

/// Sends some requests on one connection; returns the kind of its handshake.
fn visit(to: SocketAddr, config: &Arc<ClientConfig>, body: &[u8]) -> HandshakeKind {
    let name = ServerName::try_from("a.example").expect("a name");
    let tls = ClientConnection::new(config.clone(), name).expect("a client");
    let tcp = TcpStream::connect(to).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    tcp.set_read_timeout(patience).expect("a timeout");
    let mut stream = StreamOwned::new(tls, tcp);
    for left in (0..REQUESTS_A_CONNECTION).rev() {
        let end = if left == 0 { "close" } else { "keep-alive" };
        let head = format!("GET /file HTTP/1.1\r\nHost: a.example\r\nConnection: {end}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("sent");
        let mut response = Vec::new();
        while !response.ends_with(body) {
            let mut some = [0; 32 << 10];
            let len = stream.read(&mut some).expect("a response");
            assert!(len > 0, "it ended within {} bytes", response.len());
            response.extend_from_slice(&some[..len]);
        }
        assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    // The server sends close_notify at the end.
    assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
    stream.conn.handshake_kind().expect("it is over")
}

/// Connects until stopped; three of four connections try to resume a session.
fn visit_often(place: &Place, number: usize, to: SocketAddr, body: &[u8], done: &SoakCounts) {
    let version = [&rustls::version::TLS13, &rustls::version::TLS12][number % 2];
    let client = || Arc::new(trusting(place, &[version]));
    let remembering = client();
    let mut round = number;
    while !done.stop.load(Relaxed) {
        let forgetful = round.is_multiple_of(4).then(client);
        let kind = visit(to, forgetful.as_ref().unwrap_or(&remembering), body);
        let count = match kind {
            HandshakeKind::Resumed => &done.resumed,
            _ => &done.full,
        };
        count.fetch_add(1, Relaxed);
        round += 1;
    }
}

#[test]
fn soak_has_no_failures_and_no_growth() {
    let soak_s = std::env::var("LOWROAD_SOAK_S").map(|text| text.parse().expect("seconds"));
    let soak = Duration::from_secs(soak_s.unwrap_or(SOAK_S));
    let place = Place::new();
    let body = noise(20_000);
    place.folder.file("site/file", &body);
    place.certify("a", &["a.example"]);
    // The key file determines the period: keys that the server creates have one of twelve hours.
    let keys = TicketKeys::new(TICKET_PERIOD_S, unix_s()).expect("randomness");
    place.private("tickets", keys.to_bytes());
    let tables = format!("ticket_keys = \"{}\"\n", place.path("tickets").display());
    let server = place.run_with(&tables, &place.site("a", "", ""));
    let (to, body, done) = (server.address(), &body[..], &SoakCounts::default());
    let place = &place;

    let start = Instant::now();
    let (mut renewals, mut warm) = (0, None);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || visit_often(place, number, to, body, done)))
            .collect();
        let go_on = || !clients.iter().any(|client| client.is_finished());
        while start.elapsed() < soak && go_on() {
            place.certify("a", &["a.example"]);
            server.wait_for_error_line("a.pem: reloaded, valid until ");
            renewals += 1;
            if start.elapsed() > soak / 3 {
                warm.get_or_insert_with(|| PrivateMemory::of_process(server.pid()).resident);
            }
        }
        done.stop.store(true, Relaxed);
    });
    wait_until("the last connection", || {
        (place.status("open") == ["0 connections"]).then_some(())
    });

    let (warm, at_end) = (
        warm.expect("a renewal"),
        PrivateMemory::of_process(server.pid()).resident,
    );
    let (full, resumed) = (done.full.load(Relaxed), done.resumed.load(Relaxed));
    println!(
        "{full} full and {resumed} resumed handshakes, {renewals} renewals; {} KiB resident, {} KiB at the end",
        warm >> 10,
        at_end >> 10
    );
    assert!(at_end <= warm + GROWTH_MAX, "{warm} bytes, then {at_end}");
    assert!(full > CLIENTS && resumed > full, "{full}, {resumed}");
    assert_eq!(place.count("handshakes"), (full + resumed) as u64);
    for failed in ["handshake_failures", "handshake_timeouts", "broken"] {
        assert_eq!(place.count(failed), 0, "{failed}");
    }
    assert_ne!(read(place.path("tickets")), keys.to_bytes(), "other keys");
}
