//! Selects certificates by server name. A handshake uses the map that is current when the handshake starts; a map is
//! replaced as a whole. The caller watches the certificate files.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureAlgorithm;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

mod certificate_pair;
mod chain;
mod files;
mod problem;

pub(crate) use certificate_pair::read_all;
pub use certificate_pair::{CertificatePair, PemTexts};
pub use files::{CertificatePaths, read, read_with};
pub use problem::{CertificateProblem, ProblemReason};

/// The ALPN protocol of an ACME server that validates a tls-alpn-01 challenge (RFC 8737).
pub(crate) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// Certificates for one name: at most one for each key type, the cheapest to sign with first.
type KeyKinds = Vec<Arc<CertifiedKey>>;

/// Maps server names to certificates.
#[derive(Clone, Debug, Default)]
pub struct CertificateMap {
    exact: HashMap<Box<str>, KeyKinds>,
    /// Wildcard certificates, by the part of the name after `*.`.
    wildcard: HashMap<Box<str>, KeyKinds>,
    /// The certificates for clients without SNI or with an unknown name.
    default: KeyKinds,
    challenges: HashMap<Box<str>, Arc<CertifiedKey>>,
}

impl CertificateMap {
    /// An empty map: every handshake fails.
    pub fn new() -> CertificateMap {
        CertificateMap::default()
    }

    /// Adds a certificate under each of its names. If a name already has a certificate with the same key type, the
    /// earlier certificate stays.
    pub fn add(&mut self, pair: &CertificatePair) {
        for name in pair.dns_names() {
            let kinds = match name.strip_prefix("*.") {
                Some(rest) => self.wildcard.entry(rest.into()).or_default(),
                None => self.exact.entry(name.into()).or_default(),
            };
            insert(kinds, pair.certified());
        }
    }

    /// Adds a certificate for clients without SNI or with an unknown name. Can be called once for each key type.
    pub fn add_default(&mut self, pair: &CertificatePair) {
        insert(&mut self.default, pair.certified());
    }

    /// Adds the certificate of an ACME challenge. It is presented only to clients that request this name and offer
    /// `acme-tls/1` as their only protocol.
    pub fn add_challenge(&mut self, name: &str, pair: &CertificatePair) {
        let name = name.to_ascii_lowercase().into();
        self.challenges.insert(name, pair.certified().clone());
    }

    /// Whether a certificate is valid for this name.
    pub fn covers(&self, name: &str) -> bool {
        self.find(&name.to_ascii_lowercase()).is_some()
    }

    /// Whether a handshake with this name, or without one, is refused for lack of a certificate.
    pub fn refuses(&self, server_name: Option<&str>) -> bool {
        self.default.is_empty() && !server_name.is_some_and(|name| self.covers(name))
    }

    /// Connection reuse: whether a request for `host` may use a connection with the SNI `server_name`, because both
    /// names select the same certificates. If not, the request gets 421 (Misdirected Request).
    pub fn is_same(&self, server_name: Option<&str>, host: &str) -> bool {
        let kinds_for = |name: &str| self.find(name).unwrap_or(&self.default);
        // A name without certificates gets the default ones, as in a handshake.
        let presented = match server_name {
            Some(name) => kinds_for(&name.to_ascii_lowercase()),
            None => &self.default,
        };
        let expected = kinds_for(&host.to_ascii_lowercase());
        let same =
            |(first, second): (&Arc<CertifiedKey>, &Arc<CertifiedKey>)| Arc::ptr_eq(first, second);
        // Certificates are compared by identity: the map holds each of them as one shared object.
        presented.len() == expected.len() && presented.iter().zip(expected).all(same)
    }

    /// The certificates of a name in lower case: exact match first, then the wildcard of its parent.
    fn find(&self, name: &str) -> Option<&KeyKinds> {
        // The exact name takes precedence.
        self.exact.get(name).or_else(|| {
            // A wildcard stands for exactly one label (RFC 6125, section 6.4.3).
            let (_, rest) = name.split_once('.')?;
            self.wildcard.get(rest)
        })
    }

    fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Host names are compared case-insensitively (RFC 6066, section 3).
        let name = hello.server_name().map(str::to_ascii_lowercase);
        // RFC 8737, section 3: a validation handshake gets the challenge certificate, or fails.
        if is_challenge(hello) {
            return self.challenges.get(name?.as_str()).cloned();
        }
        let kinds_of_name = name.as_deref().and_then(|name| self.find(name));
        let kinds = kinds_of_name.unwrap_or(&self.default);
        let usable = |key: &&Arc<CertifiedKey>| {
            let scheme = key.key.choose_scheme(hello.signature_schemes());
            scheme.is_some()
        };
        // Without a common signature scheme, any certificate is returned: the handshake then fails with
        // handshake_failure, the true reason. Without a certificate it would fail with unrecognized_name.
        let chosen = kinds.iter().find(usable).or_else(|| kinds.first());
        chosen.cloned()
    }
}

fn is_challenge(hello: &ClientHello<'_>) -> bool {
    // RFC 8737, section 3: the client offers only this protocol.
    let Some(mut protocols) = hello.alpn() else {
        return false;
    };
    protocols.next() == Some(CHALLENGE_PROTOCOL) && protocols.next().is_none()
}

/// Inserts a key in the order of signing cost: ECDSA, Ed25519, RSA.
fn insert(kinds: &mut KeyKinds, key: &Arc<CertifiedKey>) {
    let rank = |key: &CertifiedKey| match key.key.algorithm() {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        SignatureAlgorithm::RSA => 2,
        _ => 3,
    };
    let index = kinds.partition_point(|other| rank(other) < rank(key));
    if kinds
        .get(index)
        .is_none_or(|other| rank(other) != rank(key))
    {
        kinds.insert(index, key.clone());
    }
}

/// The certificates of a listener; replaceable while the listener runs.
#[derive(Clone, Default)]
pub struct CertificateStore(Arc<RwLock<Arc<CertificateMap>>>);

impl CertificateStore {
    /// A store with these certificates.
    pub fn new(certificates: CertificateMap) -> CertificateStore {
        CertificateStore(Arc::new(RwLock::new(Arc::new(certificates))))
    }

    /// Replaces the certificates for handshakes that start from now on.
    pub fn replace(&self, certificates: CertificateMap) {
        // Handshakes in progress keep the map that they started with.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certificates);
    }

    /// The certificates for a handshake that starts now.
    pub fn current(&self) -> Arc<CertificateMap> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Debug for CertificateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} names)", self.current().exact.len())
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current().choose(&hello)
    }
}
