//! The load generator over HTTP/3, with servers that behave as each test requires.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use lowroad_http::h3::frames::{kind, put_frame};
use lowroad_http::h3::qpack::{put_prefix, put_status};
use lowroad_http::status::StatusCode;
use lowroad_lab::load::{
    LoadResult, LoadRun, LoadTarget, OfferedTls, RequestPace, TlsSettings, run,
};
use lowroad_lab::workload::urls::{UrlSpec, UrlWorkload};
use lowroad_lab::workload::{PerConnection, WorkloadVersion};
use lowroad_quic::{
    Admission, ConnectionKey, EcnBits, IncomingDatagram, ProcessWorker, QuicCipher, QuicEndpoint,
    QuicEndpointConfig, QuicEvent, QuicKeys, QuicLimits, QuicSettings, UsedTokens, random_bytes,
};
use lowroad_testkit::TempFolder;
use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{TlsAcceptor, TlsClock, TlsServerSettings};

/// 2026-12-01.
const NOW_S: u64 = 1_796_083_200;

/// The behaviour of a server.
#[derive(Clone, Copy, PartialEq)]
enum ServerBehaviour {
    /// Sends `hello`.
    Answer,
    /// Resets every third stream.
    ResetEveryThird,
    /// Ends every third stream in the middle of the body.
    TruncateEveryThird,
    /// Closes each connection with an error at its tenth request.
    CloseAtTenth,
    /// Closes the socket at the tenth request, without a word to the client.
    VanishAtTenth,
}

fn cipher() -> QuicCipher {
    let folder = TempFolder::new();
    let authority = LocalAuthority::open(folder.path(), "here", NOW_S).expect("an authority");
    let mut certificates = CertificateMap::new();
    certificates.add(&authority.sign(&[], NOW_S).expect("a certificate"));
    let clock = TlsClock::new(NOW_S);
    let settings = TlsServerSettings::new(CertificateStore::new(certificates), clock);
    let acceptor = TlsAcceptor::new(&settings).expect("settings");
    QuicCipher::tls(acceptor.for_quic())
}

struct TestServer {
    socket: UdpSocket,
    endpoint: QuicEndpoint,
    behaviour: ServerBehaviour,
    requests: u64,
    epoch: Instant,
}

impl TestServer {
    fn new(behaviour: ServerBehaviour) -> TestServer {
        let seed = random_bytes().expect("random bytes");
        let config = QuicEndpointConfig {
            cipher: cipher(),
            keys: QuicKeys::new(&seed),
            place: ProcessWorker {
                generation: 0,
                worker: 0,
            },
            seed,
            settings: QuicSettings::default(),
            limits: QuicLimits::default(),
            clock: TlsClock::new(NOW_S),
            used_tokens: Arc::new(UsedTokens::default()),
        };
        let epoch = Instant::now();
        TestServer {
            socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"),
            endpoint: QuicEndpoint::server(config, epoch),
            behaviour,
            requests: 0,
            epoch,
        }
    }

    fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    /// Serves until the behaviour requires the end.
    fn run(mut self) {
        let mut buffer = [0; 2048];
        while self.behaviour != ServerBehaviour::VanishAtTenth || self.requests < 10 {
            let due_us = self.endpoint.due_us().unwrap_or(u64::MAX);
            let wait_us = due_us.saturating_sub(self.now_us()).clamp(1, 50_000);
            let wait = Some(Duration::from_micros(wait_us));
            self.socket.set_read_timeout(wait).expect("a time");
            if let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
                let datagram = IncomingDatagram {
                    from,
                    local_ip: None,
                    ecn: EcnBits::default(),
                    bytes: BytesMut::from(&buffer[..len]),
                };
                let now_us = self.now_us();
                self.endpoint
                    .take(datagram, now_us, |_| Admission::Accept(()));
            }
            self.endpoint.advance(self.now_us());
            self.send();
        }
    }

    fn send(&mut self) {
        let mut out = Vec::new();
        while let Some(key) = self.endpoint.next_touched() {
            while let Some(event) = self.endpoint.next_event(key) {
                self.handle(key, event);
            }
            while let Some(train) = self.endpoint.emit(key, self.now_us(), 10, &mut out) {
                for datagram in out[..train.len].chunks(train.segment_len) {
                    _ = self.socket.send_to(datagram, train.to);
                }
            }
        }
    }

    fn handle(&mut self, key: ConnectionKey, event: QuicEvent) {
        // Only the end of a request matters: clients have no other bidirectional streams.
        if let QuicEvent::Bytes {
            stream,
            is_end: true,
            ..
        } = event
            && stream % 4 == 0
        {
            self.requests += 1;
            self.answer(key, stream);
        }
    }

    fn answer(&mut self, key: ConnectionKey, stream: u64) {
        let is_third = self.requests.is_multiple_of(3);
        match self.behaviour {
            // H3_INTERNAL_ERROR
            ServerBehaviour::ResetEveryThird if is_third => {
                _ = self.endpoint.reset(key, stream, 0x102);
            }
            ServerBehaviour::CloseAtTenth if stream == 36 => {
                let now_us = self.now_us();
                self.endpoint.close(key, 0x102, "", now_us);
            }
            behaviour => {
                let mut bytes = response();
                if is_third && behaviour == ServerBehaviour::TruncateEveryThird {
                    bytes.truncate(bytes.len() - 2);
                }
                let written = self.endpoint.write(key, stream, &mut [Bytes::from(bytes)]);
                if written.is_ok() {
                    _ = self.endpoint.finish(key, stream);
                }
            }
        }
    }
}

/// An interim response, a head, and `hello` in two frames with an unknown one in between.
fn response() -> Vec<u8> {
    let (mut section, mut bytes) = (Vec::new(), Vec::new());
    put_prefix(&mut section);
    put_status(StatusCode::EARLY_HINTS, &mut section);
    put_frame(kind::HEADERS, &section, &mut bytes);
    section.clear();
    put_prefix(&mut section);
    put_status(StatusCode::OK, &mut section);
    put_frame(kind::HEADERS, &section, &mut bytes);
    put_frame(kind::DATA, b"he", &mut bytes);
    put_frame(0x21, b"reserved", &mut bytes);
    put_frame(kind::DATA, b"llo", &mut bytes);
    bytes
}

fn serve(behaviour: ServerBehaviour) -> SocketAddr {
    let server = TestServer::new(behaviour);
    let address = server.socket.local_addr().expect("its address");
    thread::spawn(move || server.run());
    address
}

fn get() -> UrlSpec {
    let mut spec = UrlSpec::get("/");
    (spec.expected_len, spec.crc32) = (Some(5), Some(crc32fast::hash(b"hello")));
    spec
}

/// Two hundred requests on two connections, with eight streams each.
fn load(address: SocketAddr, spec: UrlSpec) -> LoadRun {
    let (version, per_connection) = (WorkloadVersion::Http3, PerConnection::Unlimited);
    let urls = UrlWorkload::new(vec![spec], "test", version, per_connection, true);
    LoadRun {
        target: LoadTarget {
            addresses: vec![address],
            tls: Some(TlsSettings {
                name: "localhost".into(),
                insecure: true,
                authorities: None,
                offered: OfferedTls::One { is_resuming: false },
            }),
        },
        connections: 2,
        pipeline: 8,
        duration: Duration::from_secs(60),
        requests: Some(200),
        timeout: Duration::from_secs(20),
        ..LoadRun::plain(address, Arc::new(urls.expect("right URLs")))
    }
}

fn outcome(load: &LoadRun) -> LoadResult {
    run(load, &mut |_| {}, &AtomicBool::new(false)).expect("it begins")
}

#[test]
fn right_responses_of_concurrent_streams_are_counted() {
    let found = outcome(&load(serve(ServerBehaviour::Answer), get()));
    assert_eq!((found.requests, found.errors), (200, 0), "{found:?}");
    assert_eq!(found.connections, 2);
    assert_eq!((found.body_bytes, found.latency_us.count), (1000, 200));
    assert_eq!(found.statuses[&200], 200);
}

#[test]
fn open_loop_sends_requests_at_the_offered_rate() {
    let found = outcome(&LoadRun {
        pace: RequestPace::Requests(1000.0),
        ..load(serve(ServerBehaviour::Answer), get())
    });
    assert_eq!((found.requests, found.errors), (200, 0), "{found:?}");
    assert_eq!(found.offered_per_s, Some(1000.0));
}

#[test]
fn wrong_http3_responses_are_counted_by_kind() {
    let address = serve(ServerBehaviour::Answer);
    let mut spec = get();
    spec.crc32 = Some(1);
    let found = outcome(&load(address, spec));
    assert_eq!((found.requests, found.errors), (0, 200), "{found:?}");
    assert_eq!(found.errors_by_kind["wrong_checksum"], 200);
    let mut spec = get();
    spec.expected_len = Some(6);
    let found = outcome(&load(address, spec));
    assert_eq!(found.errors_by_kind["wrong_length"], 200);
    let mut spec = get();
    spec.expected_status = Some(404);
    let found = outcome(&load(address, spec));
    assert_eq!(found.errors_by_kind["wrong_status"], 200);
}

#[test]
fn reset_streams_are_failures_and_the_connection_continues() {
    let found = outcome(&load(serve(ServerBehaviour::ResetEveryThird), get()));
    assert_eq!((found.requests, found.errors), (134, 66), "{found:?}");
    assert_eq!(found.errors_by_kind["stream_reset"], 66);
    assert_eq!(found.connections, 2);
}

#[test]
fn truncated_frames_are_malformed() {
    let found = outcome(&load(serve(ServerBehaviour::TruncateEveryThird), get()));
    assert!(found.errors_by_kind["malformed"] > 0, "{found:?}");
    assert_eq!(found.requests + found.errors, 200);
}

#[test]
fn closed_connections_fail_their_requests() {
    let found = outcome(&load(serve(ServerBehaviour::CloseAtTenth), get()));
    assert!(found.errors_by_kind["reset"] > 0, "{found:?}");
    assert_eq!(found.requests + found.errors, 200);
    assert!(found.connections > 2);
}

#[test]
fn requests_to_a_lost_server_are_failures() {
    let found = outcome(&LoadRun {
        // New connections are refused until the end.
        duration: Duration::from_secs(2),
        ..load(serve(ServerBehaviour::VanishAtTenth), get())
    });
    // The requests of a datagram are answered together.
    assert!(found.requests <= 16, "{found:?}");
    let kinds = &found.errors_by_kind;
    assert!(kinds.contains_key("reset") || kinds.contains_key("connect_refused"));
    assert!(found.errors > 0, "{found:?}");
}
