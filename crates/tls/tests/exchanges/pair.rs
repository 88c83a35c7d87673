//! A server and a client, and the bytes in transit between them.

use std::sync::LazyLock;

use lowroad_tls::authority::LocalAuthority;
use lowroad_tls::certificates::{CertificateMap, CertificatePair, CertificateStore, PemTexts};
use lowroad_tls::{
    ClientConnector, ServerTrust, TicketKeys, TicketService, TlsAcceptor, TlsClient, TlsClock,
    TlsFailure, TlsServer, TlsServerSettings,
};

/// The time of the tests.
pub const NOW_S: u64 = 1_795_473_525;

static FOLDER: LazyLock<tempdir::Folder> = LazyLock::new(|| tempdir::Folder::new("pair"));

/// The CA of all tests in this process.
pub static AUTHORITY: LazyLock<LocalAuthority> =
    LazyLock::new(|| LocalAuthority::open(FOLDER.path(), "here", NOW_S).expect("an authority"));

/// Temporary folders, removed when dropped.
pub mod tempdir {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    pub struct Folder(PathBuf);

    impl Folder {
        pub fn new(name: &str) -> Folder {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("lowroad-tls-{}-{name}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        pub fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

pub fn clock() -> TlsClock {
    TlsClock::new(NOW_S)
}

pub fn signed(names: &[&str]) -> CertificatePair {
    AUTHORITY.sign(names, NOW_S).expect("a certificate")
}

/// An RSA key, which `rcgen` can't generate with every provider.
pub fn rsa_key() -> rcgen::KeyPair {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa;
    let key = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'_> = key.as_der().expect("PKCS #8");
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from(der.as_ref());
    rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_RSA_SHA256).expect("a key")
}

/// A self-signed certificate.
pub fn self_signed(name: &str, key: &rcgen::KeyPair) -> CertificatePair {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(2090, 1, 1);
    let certificate = params.self_signed(key).expect("a certificate");
    load(&certificate.pem(), &key.serialize_pem())
}

pub fn load(certificates: &str, key: &str) -> CertificatePair {
    let texts = PemTexts {
        certificates_file: "c.pem".as_ref(),
        certificates: certificates.as_bytes(),
        key_file: "k.pem".as_ref(),
        key: key.as_bytes(),
        staple: None,
    };
    CertificatePair::load(&texts, NOW_S).expect("a pair").0
}

pub fn store() -> CertificateStore {
    static PAIR: LazyLock<CertificatePair> = LazyLock::new(|| signed(&[]));
    let mut certificates = CertificateMap::new();
    certificates.add(&PAIR);
    certificates.add_default(&PAIR);
    CertificateStore::new(certificates)
}

pub fn settings() -> TlsServerSettings {
    TlsServerSettings::new(store(), clock())
}

pub fn acceptor() -> TlsAcceptor {
    TlsAcceptor::new(&settings()).expect("settings")
}

pub fn tickets(clock: &TlsClock) -> TicketService {
    let keys = TicketKeys::new(3600, clock.unix_s()).expect("keys");
    TicketService::new(keys, clock.clone()).expect("tickets")
}

pub fn trust() -> ServerTrust {
    ServerTrust::from_pem(AUTHORITY.pem().as_bytes()).expect("an authority")
}

pub fn connector() -> ClientConnector {
    ClientConnector::new(&trust(), &["http/1.1"], None, 16, clock()).expect("a connector")
}

/// A server and a client, and the bytes in transit between them.
pub struct Exchange {
    pub server: TlsServer,
    pub client: TlsClient,
    pub to_server: Vec<u8>,
    pub to_client: Vec<u8>,
    pub at_server: Vec<u8>,
    pub at_client: Vec<u8>,
    /// The maximum number of bytes passed to the receiver at a time.
    pub step: usize,
}

/// A failure of one side.
#[derive(Debug)]
pub enum SideFailure {
    Server(TlsFailure),
    Client(TlsFailure),
}

impl Exchange {
    pub fn new(acceptor: &TlsAcceptor, connector: &ClientConnector, name: &str) -> Exchange {
        let mut to_server = Vec::new();
        Exchange {
            server: acceptor.accept().expect("a server"),
            client: connector.connect(name, &mut to_server).expect("a client"),
            to_server,
            to_client: Vec::new(),
            at_server: Vec::new(),
            at_client: Vec::new(),
            step: usize::MAX,
        }
    }

    /// An exchange with a complete handshake.
    pub fn established(acceptor: &TlsAcceptor, connector: &ClientConnector) -> Exchange {
        let mut exchange = Exchange::new(acceptor, connector, "localhost");
        exchange.run().expect("a handshake");
        assert!(exchange.server.is_established() && exchange.client.is_established());
        exchange
    }

    /// Exchanges bytes until none are in transit.
    pub fn run(&mut self) -> Result<(), SideFailure> {
        while !self.to_server.is_empty() || !self.to_client.is_empty() {
            for wire in &mut std::mem::take(&mut self.to_server).chunks_mut(self.step) {
                let done = self
                    .server
                    .receive(wire, &mut self.at_server, &mut self.to_client);
                done.map_err(SideFailure::Server)?;
            }
            for wire in &mut std::mem::take(&mut self.to_client).chunks_mut(self.step) {
                let done = self
                    .client
                    .receive(wire, &mut self.at_client, &mut self.to_server);
                done.map_err(SideFailure::Client)?;
            }
        }
        Ok(())
    }

    /// The server sends text to the client.
    pub fn send_from_server(&mut self, text: &[u8]) {
        let sealed = self.server.encrypt(&[text], &mut self.to_client, 0);
        sealed.expect("sealed");
    }
}

/// The lengths of the records in `wire`.
pub fn record_lens(mut wire: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while let [_, _, _, high, low, rest @ ..] = wire {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        lens.push(len);
        wire = &rest[len..];
    }
    lens
}
