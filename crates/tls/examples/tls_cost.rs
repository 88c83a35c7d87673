//! The cost of TLS for a server, in instructions, without sockets:
//!
//! ```text
//! cargo build --release -p lowroad-tls --example tls_cost
//! valgrind --tool=callgrind --toggle-collect='*at_server*' target/release/examples/tls_cost full 20
//! ```
//!
//! Modes: `full` and `resumed` handshakes; `full12` (TLS 1.2) and `classic` (without ML-KEM); `seal` and `open` with a
//! length for records; `aead` with a length for the cipher alone. Only the server's side is counted. Run it with two
//! values of N: the difference of the counts, divided by the difference of N, is the cost of one operation.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificateStore};
use lowroad_tls::{
    ClientConnector, ServerTrust, TicketKeys, TicketService, TlsAcceptor, TlsClient, TlsClock,
    TlsServer, TlsServerSettings,
};
use rustls::crypto::aws_lc_rs::kx_group::X25519;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

const NOW_S: u64 = 1_795_473_525;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |index: usize| -> usize {
        let argument = arguments.get(index).expect("what, N, and a length");
        argument.parse().expect("a number")
    };
    let (operation, count) = (arguments[1].as_str(), number(2));
    let setting = Setting::new();
    match operation {
        "full" => (0..count).for_each(|_| drop(setting.established(&setting.connector(0)))),
        "resumed" => {
            let connector = setting.connector(16);
            (0..count).for_each(|_| drop(setting.established(&connector)));
        }
        "full12" => (0..count).for_each(|_| setting.with_rustls(&[&TLS12])),
        "classic" => (0..count).for_each(|_| setting.with_rustls(&[&TLS13])),
        "seal" => setting.seal(count, number(3)),
        "open" => setting.open(count, number(3)),
        "aead" => aead(count, number(3)),
        _ => panic!("full, resumed, full12, classic, seal, open or aead"),
    }
}

struct Setting {
    authority: LocalAuthority,
    acceptor: TlsAcceptor,
    clock: TlsClock,
}

impl Setting {
    fn new() -> Setting {
        let folder = std::env::temp_dir().join(format!("lowroad-tls-cost-{}", std::process::id()));
        let authority = LocalAuthority::open(&folder, "here", NOW_S).expect("an authority");
        std::fs::remove_dir_all(folder).expect("removed");
        let clock = TlsClock::new(NOW_S);
        let mut certificates = CertificateMap::new();
        certificates.add(&authority.sign(&[], NOW_S).expect("a certificate"));
        let mut settings =
            TlsServerSettings::new(CertificateStore::new(certificates), clock.clone());
        let keys = TicketKeys::new(3600, NOW_S).expect("keys");
        settings.tickets = Some(TicketService::new(keys, clock.clone()).expect("tickets"));
        let acceptor = TlsAcceptor::new(&settings).expect("settings");
        Setting {
            authority,
            acceptor,
            clock,
        }
    }

    fn connector(&self, sessions_max: usize) -> ClientConnector {
        let trust = ServerTrust::from_pem(self.authority.pem().as_bytes()).expect("an authority");
        let clock = self.clock.clone();
        ClientConnector::new(&trust, &["http/1.1"], None, sessions_max, clock).expect("a connector")
    }

    fn established(&self, connector: &ClientConnector) -> (TlsServer, TlsClient) {
        let mut to_server = Vec::new();
        let client = connector.connect("localhost", &mut to_server);
        let (mut client, mut server) =
            (client.expect("a client"), at_server_accept(&self.acceptor));
        while !to_server.is_empty() {
            let mut to_client = at_server_receive(&mut server, &mut to_server, &mut Vec::new());
            to_server.clear();
            let received = client.receive(&mut to_client, &mut Vec::new(), &mut to_server);
            received.expect("a client that is content");
        }
        assert!(server.is_established());
        (server, client)
    }

    /// A handshake with a `rustls` client that offers only these versions and X25519.
    fn with_rustls(&self, versions: &[&'static SupportedProtocolVersion]) {
        let mut provider = rustls::crypto::CryptoProvider::clone(&lowroad_tls::provider());
        provider.kx_groups = vec![X25519];
        let mut config = ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(RootCertStore {
                roots: self.roots(),
            })
            .with_no_client_auth();
        config.time_provider = std::sync::Arc::new(self.clock.clone());
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(config.into(), name).expect("a client");
        let mut server = at_server_accept(&self.acceptor);
        while client.wants_write() {
            let mut to_server = Vec::new();
            client.write_tls(&mut to_server).expect("written");
            let to_client = at_server_receive(&mut server, &mut to_server, &mut Vec::new());
            let mut rest = &to_client[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).expect("read");
                client
                    .process_new_packets()
                    .expect("a client that is content");
            }
        }
        assert!(server.is_established());
    }

    fn roots(&self) -> Vec<rustls::pki_types::TrustAnchor<'static>> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let authority = CertificateDer::from_pem_slice(self.authority.pem().as_bytes());
        let mut roots = RootCertStore::empty();
        roots.add(authority.expect("PEM")).expect("an authority");
        roots.roots
    }

    fn seal(&self, count: usize, len: usize) {
        let (mut server, _client) = self.established(&self.connector(0));
        let (text, mut out) = (vec![b'x'; len], Vec::with_capacity(2 * len + 1000));
        for _ in 0..count {
            out.clear();
            at_server_seal(&mut server, &text, &mut out);
        }
    }

    fn open(&self, count: usize, len: usize) {
        let (mut server, mut client) = self.established(&self.connector(0));
        let (text, mut plain) = (vec![b'x'; len], Vec::with_capacity(2 * len));
        for _ in 0..count {
            let mut wire = Vec::new();
            client.encrypt(&[&text], &mut wire, 0).expect("sealed");
            plain.clear();
            at_server_receive(&mut server, &mut wire, &mut plain);
        }
    }
}

/// Encrypts in place with a prepared key: the lower bound for any record layer.
fn aead(count: usize, len: usize) {
    let key = UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a key");
    let (key, mut text) = (LessSafeKey::new(key), vec![b'x'; len]);
    for _ in 0..count {
        at_server_aead(&key, &mut text);
    }
}

#[inline(never)]
fn at_server_aead(key: &LessSafeKey, text: &mut [u8]) {
    let (nonce, header) = (Nonce::assume_unique_for_key([1; 12]), [23, 3, 3, 0, 0]);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(header), text);
    let _ = std::hint::black_box(tag.expect("sealed"));
}

#[inline(never)]
fn at_server_accept(acceptor: &TlsAcceptor) -> TlsServer {
    acceptor.accept().expect("a server")
}

#[inline(never)]
fn at_server_receive(server: &mut TlsServer, wire: &mut [u8], plain: &mut Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let received = server.receive(wire, plain, &mut out);
    received.expect("a server that is content");
    out
}

#[inline(never)]
fn at_server_seal(server: &mut TlsServer, text: &[u8], out: &mut Vec<u8>) {
    server.encrypt(&[text], out, 0).expect("sealed");
}
