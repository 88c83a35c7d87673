//! Connections with TLS in virtual time. `rustls` takes random bytes from the system, so that runs differ.

#[path = "../simulation/http_peers.rs"]
mod http_peers;
#[path = "../simulation/network.rs"]
mod network;

use std::sync::LazyLock;

use lowroad_quic::{
    CloseReason, ConnectionKey, QuicCipher, QuicClientCipher, QuicEndpointConfig, QuicEvent,
    QuicLimits,
};
use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{
    ClientConnector, ClientVerification, ServerTrust, TicketKeys, TicketService, TlsAcceptor,
    TlsClock, TlsServerSettings,
};

use crate::http_peers::{HttpClient, HttpServer, request};
use crate::network::{Application, Faults, NOW_S, TestEndpoint, World, config};

static AUTHORITY: LazyLock<LocalAuthority> = LazyLock::new(|| authority("here"));

fn authority(name: &str) -> LocalAuthority {
    let folder = std::env::temp_dir().join(format!("lowroad-quic-{name}-{}", std::process::id()));
    let authority = LocalAuthority::open(&folder, name, NOW_S).expect("an authority");
    std::fs::remove_dir_all(&folder).expect("a folder");
    authority
}

fn tls_settings() -> TlsServerSettings {
    let pair = AUTHORITY.sign(&[], NOW_S).expect("a certificate");
    let mut certificates = CertificateMap::new();
    certificates.add(&pair);
    let clock = TlsClock::new(NOW_S);
    let mut settings = TlsServerSettings::new(CertificateStore::new(certificates), clock.clone());
    let keys = TicketKeys::new(3600, NOW_S).expect("keys");
    settings.tickets = Some(TicketService::new(keys, clock).expect("tickets"));
    settings
}

fn endpoint_config(settings: &TlsServerSettings) -> QuicEndpointConfig {
    let acceptor = TlsAcceptor::new(settings).expect("settings");
    config(1, 1, QuicCipher::tls(acceptor.for_quic()))
}

fn connector(sessions_max: usize) -> ClientConnector {
    let trust = ServerTrust::from_pem(AUTHORITY.pem().as_bytes()).expect("a certificate");
    let clock = TlsClock::new(NOW_S);
    ClientConnector::new(&trust, &["http/1.1"], None, sessions_max, clock).expect("a connector")
}

fn client_cipher() -> QuicClientCipher {
    QuicClientCipher::tls(connector(0).for_quic())
}

/// Records events.
#[derive(Default)]
struct Recorder(Vec<QuicEvent>);

impl Recorder {
    fn end(&self) -> Option<CloseReason> {
        match self.0.last() {
            Some(QuicEvent::Over(reason)) => Some(*reason),
            _ => None,
        }
    }
}

impl Application for Recorder {
    fn event(&mut self, _: &mut TestEndpoint, _: ConnectionKey, event: QuicEvent) {
        self.0.push(event);
    }
}

#[test]
fn responses_arrive_over_tls() {
    for (seed, loss) in [(1, 0), (2, 20), (3, 50)] {
        let faults = Faults {
            loss,
            reordering: loss,
            corruption: loss,
            ..Faults::default()
        };
        let mut config = endpoint_config(&tls_settings());
        // Enough attempts that handshakes succeed with any random bytes of TLS.
        config.settings.handshake_timeout_ms = 600_000;
        config.settings.idle_timeout_ms = 600_000;
        let mut world = World::new(seed, 2, faults, &config);
        world.connect(&client_cipher());
        let (mut client, mut server) = (HttpClient::new(10), HttpServer::new(50_000));
        world.run(&mut client, &mut server, |_, client, _| client.is_done());
        assert_eq!(client.body_lens(), [50_000; 10]);
    }
}

#[test]
fn the_summary_names_the_negotiated_values_and_sessions_resume() {
    let mut world = World::new(1, 1, Faults::default(), &endpoint_config(&tls_settings()));
    let cipher = QuicClientCipher::tls(connector(8).for_quic());
    for is_resumed in [false, true] {
        // The second time with a ticket of the first.
        let key = world.connect(&cipher);
        let (mut client, mut server) = (HttpClient::new(1), HttpServer::new(10));
        world.run(&mut client, &mut server, |_, client, _| client.is_done());
        let server_key = ConnectionKey(world.ends[1].connection_count() - 1);
        let summary = world.ends[1]
            .handshake_summary(server_key)
            .expect("a summary");
        assert_eq!(summary.server_name.as_deref(), Some("localhost"));
        assert_eq!(summary.is_resumed, is_resumed);
        assert_eq!(summary.cipher, Some("TLS13_AES_128_GCM_SHA256"));
        assert_eq!(summary.key_exchange, Some("X25519MLKEM768"));
        assert_eq!(summary.client_certificate, None);
        let client_summary = world.ends[0].handshake_summary(key).expect("a summary");
        assert_eq!(client_summary.is_resumed, is_resumed);
        world.run_for(&mut client, &mut server, 100_000);
    }
}

#[test]
fn early_data_of_a_proved_address_is_read_before_the_handshake_ends() {
    for (seed, loss, has_token) in [(1, 0, true), (2, 0, false), (3, 20, true), (4, 50, true)] {
        let faults = Faults {
            loss,
            reordering: loss,
            ..Faults::default()
        };
        let latency_us = faults.latency_us;
        let acceptor = TlsAcceptor::new(&tls_settings()).expect("settings");
        let cipher = QuicCipher::tls(acceptor.for_quic_with_early_data(64));
        let mut config = config(1, 1, cipher);
        config.settings.handshake_timeout_ms = 600_000;
        config.settings.idle_timeout_ms = 600_000;
        let mut world = World::new(seed, 1, faults, &config);
        let cipher = QuicClientCipher::tls(connector(8).for_quic_with_early_data());
        let cipher = match has_token {
            true => cipher.with_token_memory(),
            false => cipher,
        };
        world.connect(&cipher);
        let (mut client, mut server) = (HttpClient::new(1), HttpServer::new(100));
        world.run(&mut client, &mut server, |_, client, _| client.is_done());
        // The tickets arrive.
        world.run_for(&mut client, &mut server, 5_000_000);
        let start_us = world.now_us;
        let key = world.connect(&cipher);
        let stream = world.ends[0].open(key, true).expect("remembered limits");
        let frame = request();
        let len = frame.len();
        let taken = world.ends[0].write(key, stream, &mut [frame.into()]);
        assert_eq!(taken, Ok(len));
        assert_eq!(world.ends[0].finish(key, stream), Ok(()));
        let (mut client, mut arrived_us) = (HttpClient::new(1), None);
        client.sent = 1;
        let mut marking = |endpoint: &mut TestEndpoint, key: ConnectionKey, event: QuicEvent| {
            if let QuicEvent::Bytes { stream: 0, .. } = event {
                arrived_us.get_or_insert((endpoint.now_us() - start_us, endpoint.is_early(key)));
            }
            server.event(endpoint, key, event);
        };
        world.run(&mut client, &mut marking, |_, client, _| client.is_done());
        assert_eq!(client.body_lens(), [100]);
        world.run_for(&mut client, &mut marking, 5_000_000);
        if loss == 0 {
            // Without a token a round trip of the handshake proves the address.
            let flights = if has_token { 1 } else { 3 };
            assert_eq!(arrived_us, Some((flights * latency_us, has_token)));
            assert_eq!(world.ends[1].counters().early, u64::from(has_token));
            assert_eq!(world.ends[1].handshakes(), 0);
        }
    }
}

#[test]
fn keys_are_updated_by_both_sides() {
    let mut world = World::new(1, 1, Faults::default(), &endpoint_config(&tls_settings()));
    world.connect(&client_cipher());
    let (mut client, mut server) = (HttpClient::new(60), HttpServer::new(20_000));
    let mut updates = 0;
    world.run(&mut client, &mut server, |world, client, _| {
        // Every other update is the client's; each must be acknowledged before the next one.
        if client.done() > updates as u64 * 10 + 5 {
            world.ends[updates % 2].update_keys(ConnectionKey(0));
            updates += 1;
        }
        client.is_done()
    });
    assert!(updates >= 5, "{updates}");
    assert_eq!(client.body_lens(), [20_000; 60]);
}

#[test]
fn clients_prove_their_address_by_retry() {
    let mut config = endpoint_config(&tls_settings());
    config.limits = QuicLimits {
        retry_from: 0,
        ..QuicLimits::default()
    };
    let mut world = World::new(1, 1, Faults::default(), &config);
    world.connect(&client_cipher());
    let (mut client, mut server) = (HttpClient::new(1), HttpServer::new(10));
    world.run(&mut client, &mut server, |_, client, _| client.is_done());
    // A ClientHello with a post-quantum key fills two datagrams; each is answered, since no state is kept.
    assert_eq!(world.ends[1].counters().retried, 2);
    assert_eq!(world.ends[1].counters().accepted, 1);
}

#[test]
fn faults_of_handshakes_close_with_alerts() {
    let required = ClientVerification::Require(AUTHORITY.pem().as_bytes().to_vec());
    let mut settings = tls_settings();
    settings.clients = required;
    let mut world = World::new(1, 1, Faults::default(), &endpoint_config(&settings));
    world.connect(&client_cipher());
    let (mut client, mut server) = (Recorder::default(), Recorder::default());
    world.run(&mut client, &mut server, |_, _, _| false);
    // certificate_required, as a code of CRYPTO_ERROR.
    assert_eq!(client.end(), Some(CloseReason::PeerTransport(0x100 + 116)));
    assert!(server.0.is_empty());
    assert_eq!(world.ends[1].counters().failed, 1);
    assert_eq!(world.ends[1].connection_count(), 0);

    // Another authority: the client refuses the server.
    let other = ServerTrust::from_pem(authority("there").pem().as_bytes()).expect("a certificate");
    let clock = TlsClock::new(NOW_S);
    let stranger = ClientConnector::new(&other, &[], None, 0, clock).expect("a connector");
    let mut world = World::new(1, 1, Faults::default(), &endpoint_config(&tls_settings()));
    world.connect(&QuicClientCipher::tls(stranger.for_quic()));
    let (mut client, mut server) = (Recorder::default(), Recorder::default());
    world.run(&mut client, &mut server, |_, _, _| false);
    // unknown_ca.
    assert_eq!(client.end(), Some(CloseReason::Fault(0x100 + 48)));
    assert_eq!(world.ends[1].counters().failed, 1);
}

#[test]
fn new_certificates_apply_to_new_connections() {
    let mut world = World::new(1, 1, Faults::default(), &endpoint_config(&tls_settings()));
    // Without a certificate.
    let clock = TlsClock::new(NOW_S);
    let store = CertificateStore::new(CertificateMap::new());
    let none = TlsAcceptor::new(&TlsServerSettings::new(store, clock)).expect("settings");
    world.ends[1].set_cipher(QuicCipher::tls(none.for_quic()));
    world.connect(&client_cipher());
    let (mut client, mut server) = (Recorder::default(), Recorder::default());
    world.run(&mut client, &mut server, |_, _, _| false);
    // unrecognized_name.
    assert_eq!(client.end(), Some(CloseReason::PeerTransport(0x100 + 112)));
}
