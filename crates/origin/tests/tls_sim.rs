//! TLS to origins in the simulator, with a `rustls` server: data arrives intact however it is segmented, and a server
//! that is not the origin is rejected with a reason.
//!
//! Each case is a seed; a failure prints it.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use lowroad_engine::WorkerHandle;
use lowroad_engine::driver::{DriverEvent, IoDriver};
use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_engine_sim::{FaultRates, SharedWorld as World, SimDriver};
use lowroad_origin::tls::{
    HandshakeFault, HandshakeRefusal, OriginTlsSettings, TlsConnector, TlsIdentity,
    TlsSettingsError,
};
use lowroad_origin::{ServerAddress, UpstreamStream, UpstreamTransport};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

const REQUEST_LEN: usize = 100_000;

/// Prints the seed if its case panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed is {}", self.0);
        }
    }
}

/// A temporary folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("lowroad-tls-{process}-{count}"));
        std::fs::create_dir(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A test certificate authority, in a file.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Folder,
    file: PathBuf,
}

impl Authority {
    fn new() -> Authority {
        Authority::named("our own authority")
    }

    fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = Folder::new();
        let file = folder.file("authority.pem", &issuer.pem());
        Authority {
            issuer,
            folder,
            file,
        }
    }

    /// A certificate that is valid until the beginning of this year, and its key, both PEM.
    fn signs(&self, name: &str, until_year: i32) -> (String, String) {
        let mut params = CertificateParams::new([name.to_string()]).expect("a name");
        params.not_before = date_time_ymd(1990, 1, 1);
        params.not_after = date_time_ymd(until_year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a signature");
        (certificate.pem(), key.serialize_pem())
    }

    fn settings(&self, name: &str) -> OriginTlsSettings {
        OriginTlsSettings {
            authorities: Some(self.file.clone()),
            ..OriginTlsSettings::with_name(name)
        }
    }
}

fn self_signed(name: &str) -> (String, String) {
    let key = rcgen::generate_simple_self_signed([name.to_string()]).expect("a certificate");
    (key.cert.pem(), key.signing_key.serialize_pem())
}

/// A server with this certificate, which requests client certificates of this authority.
fn server((certificate, key): (String, String), clients: Option<&Authority>) -> Arc<ServerConfig> {
    use rustls::pki_types::pem::PemObject as _;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(authority.issuer.der().clone())
                .expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
        }
    };
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
    let mut config = builder
        .with_single_cert(vec![certificate], key)
        .expect("they fit");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// How the server ends the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// With close_notify.
    CloseNotify,
    /// Without close_notify (truncation).
    Cut,
}

/// The server's end of a connection: an echo server.
struct Peer {
    socket: usize,
    tls: ServerConnection,
    echoed: usize,
    ending: Ending,
    over: bool,
}

impl Peer {
    fn step(&mut self, world: &World) -> bool {
        let read = world.take_read(self.socket);
        let mut bytes = read.as_slice();
        // Reads all input, since rustls reads only a part of it in each call.
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).expect("from memory");
            let _ = self.tls.process_new_packets();
            let mut plain = Vec::new();
            let _ = self.tls.reader().read_to_end(&mut plain);
            self.echoed += plain.len();
            self.tls.writer().write_all(&plain).expect("into memory");
            self.flush(world);
        }
        // The whole request was echoed: the server ends the connection.
        if self.echoed == REQUEST_LEN && !std::mem::replace(&mut self.over, true) {
            if self.ending == Ending::CloseNotify {
                self.tls.send_close_notify();
            }
            self.flush(world);
            world.end(self.socket);
        }
        self.flush(world);
        !read.is_empty()
    }

    fn flush(&mut self, world: &World) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).expect("into memory");
        }
        if !bytes.is_empty() {
            world.send(self.socket, &bytes);
        }
    }
}

/// The result of a connection.
#[derive(Debug)]
struct ConnectionResult {
    right: bool,
    resumed: bool,
    protocol: Option<Vec<u8>>,
}

struct Case {
    world: World,
    driver: SimDriver,
    local: WorkerHandle,
    config: Arc<ServerConfig>,
    peers: Vec<Peer>,
    ending: Ending,
}

impl Case {
    fn new(seed: u64, config: Arc<ServerConfig>) -> Case {
        let faults = FaultRates {
            // Segments from single bytes to whole flights.
            piece_len_max: [1, 50, 5_000, 100_000][seed as usize % 4],
            delay_ms_max: 3,
            window_len: 30_000,
            clock_jumps: 0,
            accept_failures: 0,
            file_failures: 0,
            late_sends: 300,
        };
        let world = World::new(seed, faults);
        let driver = world.driver();
        Case {
            local: driver.worker_handle().clone(),
            world,
            driver,
            config,
            peers: Vec::new(),
            ending: Ending::CloseNotify,
        }
    }

    /// Runs one connection from start to end.
    fn run_connection(&mut self, tls: &TlsConnector) -> io::Result<ConnectionResult> {
        let (outcome, tls) = (Arc::new(Mutex::new(None)), tls.clone());
        let (to, sources) = (outcome.clone(), self.local.sources.clone());
        let talking = async move {
            let address = ServerAddress::Tcp("192.0.2.9:443".parse().expect("an address"));
            let socket = UpstreamSocket::connect(&sources, address.remote()).await;
            let outcome = run_connection(&tls, socket.expect("it answers")).await;
            *to.lock().expect("a lock") = Some(outcome);
        };
        self.local.tasks.spawn(talking).detach();
        // Bounded, so that a case without progress fails instead of hanging.
        for _ in 0..1_000_000 {
            let mut events = Vec::new();
            self.driver.wait(Some(1), &mut events);
            for event in events {
                if let DriverEvent::UpstreamReady(news) = event {
                    self.local.sources.handle_event(news);
                }
            }
            self.local.run();
            for socket in self.world.dialed() {
                let tls = ServerConnection::new(self.config.clone()).expect("a connection");
                self.peers.push(Peer {
                    socket,
                    tls,
                    echoed: 0,
                    ending: self.ending,
                    over: false,
                });
            }
            let world = &self.world;
            self.peers.retain(|peer| !world.is_over(peer.socket));
            for peer in &mut self.peers {
                peer.step(world);
            }
            if let Some(outcome) = outcome.lock().expect("a lock").take() {
                assert_eq!(self.local.sources.count(), 0, "sockets' places");
                return outcome;
            }
        }
        panic!("no end");
    }
}

/// Sends a request and reads its echo to the end, concurrently.
async fn run_connection(
    tls: &TlsConnector,
    socket: UpstreamSocket,
) -> io::Result<ConnectionResult> {
    let encrypted = match UpstreamTransport::Tls(tls.clone()).begin(socket).await? {
        UpstreamStream::Tls(encrypted) => encrypted,
        UpstreamStream::Plain(_) => panic!("it was to be encrypted"),
    };
    let protocol = encrypted.protocol().map(<[u8]>::to_vec);
    let resumed = encrypted.is_resumed();
    let mut stream = UpstreamStream::Tls(encrypted);
    // A new connection has no unexpected input.
    assert!(stream.is_quiet());
    let request: Vec<u8> = (0..REQUEST_LEN).map(|at| (at % 251) as u8).collect();
    let (mut sent, mut echo, mut piece) = (0, Vec::<u8>::new(), [0; 5_000]);
    poll_fn(|context| {
        while sent < request.len() {
            let piece = [IoSlice::new(&request[sent..])];
            match stream.poll_send(context, &piece) {
                std::task::Poll::Ready(len) => sent += len?,
                std::task::Poll::Pending => break,
            }
        }
        loop {
            match std::task::ready!(stream.poll_recv(context, &mut piece))? {
                0 => return std::task::Poll::Ready(Ok::<(), io::Error>(())),
                len => echo.extend(&piece[..len]),
            }
        }
    })
    .await?;
    assert!(!stream.is_quiet());
    poll_fn(|context| stream.poll_finish(context)).await?;
    Ok(ConnectionResult {
        right: echo == request,
        resumed,
        protocol,
    })
}

fn refused(settings: &OriginTlsSettings, config: Arc<ServerConfig>) -> (HandshakeFault, String) {
    let tls = TlsConnector::new(settings).expect("settings");
    let error = Case::new(2, config)
        .run_connection(&tls)
        .expect_err("it is refused");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let message = error.to_string();
    let refused = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<HandshakeRefusal>());
    (refused.expect("a reason").fault, message)
}

#[test]
fn data_arrives_intact_and_sessions_are_resumed() {
    let authority = Authority::new();
    let config = server(authority.signs("origin.example", 2090), None);
    let tls = TlsConnector::new(&authority.settings("origin.example")).expect("settings");
    let mut before = false;
    for seed in 0..16 {
        let _name = Seed(seed);
        let outcome = Case::new(seed, config.clone())
            .run_connection(&tls)
            .expect("it is said");
        assert!(outcome.right);
        // All but the first resume the session, since they share its cache.
        assert_eq!(outcome.resumed, std::mem::replace(&mut before, true));
        assert_eq!(outcome.protocol.as_deref(), Some(b"http/1.1".as_slice()));
    }
}

#[test]
fn missing_close_notify_is_an_error() {
    let authority = Authority::new();
    let config = server(authority.signs("origin.example", 2090), None);
    let tls = TlsConnector::new(&authority.settings("origin.example")).expect("settings");
    for seed in 0..8 {
        let _name = Seed(seed);
        let mut case = Case::new(seed, config.clone());
        case.ending = Ending::Cut;
        let error = case.run_connection(&tls).expect_err("it is cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn untrusted_certificates_are_rejected_with_a_reason() {
    let authority = Authority::new();
    let settings = authority.settings("origin.example");
    let other = server(authority.signs("other.example", 2090), None);
    let (fault, message) = refused(&settings, other.clone());
    assert_eq!(fault, HandshakeFault::Name, "{message}");
    assert!(message.contains("not for origin.example"), "{message}");
    assert!(message.contains("other.example"), "{message}");
    let expired = server(authority.signs("origin.example", 1991), None);
    let (fault, message) = refused(&settings, expired);
    assert_eq!(fault, HandshakeFault::Expired, "{message}");
    assert!(message.contains("has expired"), "{message}");
    let nobodys = server(self_signed("origin.example"), None);
    // A self-signed certificate has no trusted issuer.
    let (fault, message) = refused(&settings, nobodys.clone());
    assert_eq!(fault, HandshakeFault::Issuer, "{message}");
    assert!(message.contains("self-signed"), "{message}");
    // A certificate of another authority is not trusted.
    let (fault, _) = refused(
        &Authority::named("another").settings("other.example"),
        other.clone(),
    );
    assert_eq!(fault, HandshakeFault::Issuer);
    // Unless verification is disabled.
    for config in [other, nobodys] {
        let careless = OriginTlsSettings {
            verify: false,
            ..OriginTlsSettings::with_name("origin.example")
        };
        let tls = TlsConnector::new(&careless).expect("settings");
        assert!(
            Case::new(3, config)
                .run_connection(&tls)
                .expect("it is said")
                .right
        );
    }
}

#[test]
fn client_certificate_is_sent_on_request() {
    let authority = Authority::new();
    let config = server(authority.signs("origin.example", 2090), Some(&authority));
    let (certificate, key) = authority.signs("lowroad.example", 2090);
    let mut settings = authority.settings("origin.example");
    // In TLS 1.3 the origin's refusal arrives after the client has finished the handshake.
    let (fault, message) = refused(&settings, config.clone());
    assert_eq!(fault, HandshakeFault::ByOrigin, "{message}");
    settings.identity = Some(TlsIdentity {
        certificates: authority.folder.file("own.pem", &certificate),
        key: authority.folder.file("own.key", &key),
    });
    let tls = TlsConnector::new(&settings).expect("settings");
    assert!(
        Case::new(1, config)
            .run_connection(&tls)
            .expect("it is said")
            .right
    );
}

#[test]
fn invalid_tls_settings_are_rejected() {
    let authority = Authority::new();
    let error = |settings: &OriginTlsSettings| match TlsConnector::new(settings) {
        Ok(_) => panic!("{settings:?}"),
        Err(error) => error,
    };
    assert!(matches!(
        error(&OriginTlsSettings::with_name("not a name")),
        TlsSettingsError::Name(_)
    ));
    let mut settings = authority.settings("origin.example");
    settings.authorities = Some(authority.folder.file("empty.pem", "nothing"));
    assert!(matches!(error(&settings), TlsSettingsError::File(..)));
    settings.authorities = Some("/nonexistent".into());
    assert!(matches!(error(&settings), TlsSettingsError::File(..)));
    let mut settings = authority.settings("origin.example");
    let (own, _) = authority.signs("lowroad.example", 2090);
    let (_, others) = authority.signs("other.example", 2090);
    settings.identity = Some(TlsIdentity {
        // The key belongs to another certificate.
        certificates: authority.folder.file("own.pem", &own),
        key: authority.folder.file("others.key", &others),
    });
    assert!(matches!(error(&settings), TlsSettingsError::Identity(_)));
}
