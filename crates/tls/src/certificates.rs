//! Certificates by name. A handshake takes those that are there when it begins; they are replaced as a whole.
//! Knows nothing of watching files.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::SignatureAlgorithm;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

mod chain;
mod files;
mod pair;
mod problem;

pub use files::{Files, read, read_with};
pub(crate) use pair::all;
pub use pair::{Pair, Texts};
pub use problem::{Problem, Reason};

/// What a client offers if it wants nothing but to see a challenge's certificate (RFC 8737).
pub(crate) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// Certificates of one name: at most one for each kind of key, the preferred first.
type Kinds = Vec<Arc<CertifiedKey>>;

/// Which certificate is for whom.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    exact: HashMap<Box<str>, Kinds>,
    /// By what follows `*.`.
    wildcard: HashMap<Box<str>, Kinds>,
    /// For clients that name nobody, or nobody whom we know.
    default: Kinds,
    challenges: HashMap<Box<str>, Arc<CertifiedKey>>,
}

impl Certificates {
    /// None: every handshake is refused.
    pub fn new() -> Certificates {
        Certificates::default()
    }

    /// Adds a certificate for the names that it has. Of those that are for the same name and have the same kind of
    /// key, the first stays.
    pub fn add(&mut self, pair: &Pair) {
        for name in pair.dns_names() {
            let kinds = match name.strip_prefix("*.") {
                Some(rest) => self.wildcard.entry(rest.into()).or_default(),
                None => self.exact.entry(name.into()).or_default(),
            };
            insert(kinds, pair.certified());
        }
    }

    /// Shows it to clients that name nobody, or nobody whom we know. May be called for several kinds of keys.
    pub fn add_default(&mut self, pair: &Pair) {
        insert(&mut self.default, pair.certified());
    }

    /// Shows it to who asks for this name's challenge (`acme-tls/1`), and to nobody else.
    pub fn add_challenge(&mut self, name: &str, pair: &Pair) {
        let name = name.to_ascii_lowercase().into();
        self.challenges.insert(name, pair.certified().clone());
    }

    /// Whether a certificate is for this name.
    pub fn covers(&self, name: &str) -> bool {
        self.find(&name.to_ascii_lowercase()).is_some()
    }

    /// Whether a request for `host` may come over a connection that was made for `server_name`: the same certificates
    /// are shown for both. Otherwise it is misdirected (421): somebody else may have been meant to answer.
    pub fn is_same(&self, server_name: Option<&str>, host: &str) -> bool {
        let of = |name: &str| self.find(name).unwrap_or(&self.default);
        let shown = match server_name {
            Some(name) => of(&name.to_ascii_lowercase()),
            None => &self.default,
        };
        let wanted = of(&host.to_ascii_lowercase());
        let same = |(one, other): (&Arc<CertifiedKey>, &Arc<CertifiedKey>)| Arc::ptr_eq(one, other);
        shown.len() == wanted.len() && shown.iter().zip(wanted).all(same)
    }

    /// By a name in lower case.
    fn find(&self, name: &str) -> Option<&Kinds> {
        self.exact.get(name).or_else(|| {
            let (_, rest) = name.split_once('.')?;
            self.wildcard.get(rest)
        })
    }

    fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        if is_challenge(hello) {
            return self.challenges.get(name?.as_str()).cloned();
        }
        let found = name.as_deref().and_then(|name| self.find(name));
        let kinds = found.unwrap_or(&self.default);
        let usable = |key: &&Arc<CertifiedKey>| {
            let scheme = key.key.choose_scheme(hello.signature_schemes());
            scheme.is_some()
        };
        // Without a common signature scheme, any certificate: then the handshake fails for that reason (handshake_failure),
        // and not as if there were none for the name (access_denied).
        let chosen = kinds.iter().find(usable).or_else(|| kinds.first());
        chosen.cloned()
    }
}

fn is_challenge(hello: &ClientHello<'_>) -> bool {
    let Some(mut protocols) = hello.alpn() else {
        return false;
    };
    protocols.next() == Some(CHALLENGE_PROTOCOL) && protocols.next().is_none()
}

/// Keeps the order in which kinds of keys are preferred: what is cheap to sign with first.
fn insert(kinds: &mut Kinds, key: &Arc<CertifiedKey>) {
    let rank = |key: &CertifiedKey| match key.key.algorithm() {
        SignatureAlgorithm::ECDSA => 0,
        SignatureAlgorithm::ED25519 => 1,
        SignatureAlgorithm::RSA => 2,
        _ => 3,
    };
    let place = kinds.partition_point(|other| rank(other) < rank(key));
    if kinds
        .get(place)
        .is_none_or(|other| rank(other) != rank(key))
    {
        kinds.insert(place, key.clone());
    }
}

/// The certificates of a listener, replaced while it runs.
#[derive(Clone, Default)]
pub struct Store(Arc<RwLock<Arc<Certificates>>>);

impl Store {
    /// With these.
    pub fn new(certificates: Certificates) -> Store {
        Store(Arc::new(RwLock::new(Arc::new(certificates))))
    }

    /// Handshakes that begin from now on see these.
    pub fn replace(&self, certificates: Certificates) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certificates);
    }

    /// What a handshake sees that begins now.
    pub fn current(&self) -> Arc<Certificates> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Store({} names)", self.current().exact.len())
    }
}

impl ResolvesServerCert for Store {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current().choose(&hello)
    }
}
