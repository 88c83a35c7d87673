//! The keys of token issuers: a secret, a public key in PEM, or a JSON Web Key Set (RFC 7517). A set is replaced as a
//! whole; if the new one is unusable, the old one stays in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use lowroad_config::{TokenAlgorithm, TokenKeys};
use lowroad_file_stamp::FileStamp;
use lowroad_privileges::helper;
use lowroad_store::clock;
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::Value;

/// The longest key set, in bytes.
pub const JWKS_LEN_MAX: usize = 256 << 10;
/// The largest number of keys in a set.
const KEYS_MAX: usize = 64;
/// The interval between checks whether the file has changed.
const CHECK_INTERVAL_MS: u64 = 1000;

/// The encoded object identifiers of rsaEncryption, id-ecPublicKey and id-Ed25519 (RFC 8017, RFC 5480, RFC 8410).
const RSA_IDENTIFIER: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC_IDENTIFIER: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519_IDENTIFIER: &[u8] = &[0x2b, 0x65, 0x70];

/// A key, and the tokens for which it is.
pub struct TokenKey {
    pub key: DecodingKey,
    id: Option<String>,
    /// The only algorithm of the key, if its issuer names one.
    algorithm: Option<Algorithm>,
}

impl TokenKey {
    /// Whether the key is for this algorithm.
    pub fn has(&self, algorithm: Algorithm) -> bool {
        self.key.family() == family(algorithm)
            && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Whether the key may have signed a token with these properties. A token without a key identifier may be from any
    /// key.
    pub fn fits(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        let has_id = id.is_none_or(|id| self.id.as_deref().is_none_or(|own| own == id));
        has_id && self.has(algorithm)
    }
}

/// The keys in force.
pub struct TokenKeySet {
    keys: Mutex<Arc<Vec<TokenKey>>>,
    file: Option<PathBuf>,
    stamp: Mutex<Option<FileStamp>>,
    checked_ms: AtomicU64,
    /// A token has named a key that is unknown.
    is_refresh_requested: AtomicBool,
    /// Why the latest keys are not in force.
    fault: Mutex<Option<String>>,
}

impl TokenKeySet {
    /// The keys of a configuration. Those of a URL are set later, by [`TokenKeySet::replace`].
    ///
    /// # Errors
    /// The file is unusable; the text names it.
    pub fn open(source: &TokenKeys) -> io::Result<TokenKeySet> {
        let mut set = TokenKeySet {
            keys: Mutex::default(),
            file: None,
            stamp: Mutex::default(),
            checked_ms: AtomicU64::new(clock::now_ms()),
            is_refresh_requested: AtomicBool::new(false),
            fault: Mutex::default(),
        };
        match source {
            TokenKeys::Secret(secret) => {
                let key = DecodingKey::from_secret(secret.expose().as_bytes());
                set.keys = Mutex::new(Arc::new(vec![without_name(key)]));
            }
            TokenKeys::File(file) => {
                let error = |reason| io::Error::other(format!("{}: {reason}", file.display()));
                set.stamp = Mutex::new(helper::file_stamp(file));
                set.keys = Mutex::new(Arc::new(read(file).map_err(error)?));
                set.file = Some(file.clone());
            }
            TokenKeys::Url(..) => set.set_fault(Some("not fetched yet".into())),
        }
        Ok(set)
    }

    /// The keys in force. Starts a check of their file, if one is due.
    pub(super) fn current(self: &Arc<Self>) -> Arc<Vec<TokenKey>> {
        let now_ms = clock::now_ms();
        if self.file.is_some() && now_ms >= self.checked_ms.load(Relaxed) + CHECK_INTERVAL_MS {
            self.checked_ms.store(now_ms, Relaxed);
            let set = self.clone();
            // The worker does not wait: a changed file applies to later requests.
            if let Ok(helpers) = crate::passwords::helpers() {
                let _ = helpers.submit(move || set.reload_if_changed());
            }
        }
        lock(&self.keys).clone()
    }

    /// Puts the keys of a JSON Web Key Set in force. If it is unusable, the old ones stay.
    ///
    /// # Errors
    /// The set is unusable.
    pub fn replace(&self, text: &[u8]) -> Result<(), String> {
        let read = parse_set(text);
        // The fault is set in any case: it clears that of an earlier set.
        self.set_fault(read.as_ref().err().cloned());
        *lock(&self.keys) = Arc::new(read?);
        Ok(())
    }

    /// Records that the latest keys could not be fetched.
    pub fn set_fault(&self, fault: Option<String>) {
        *lock(&self.fault) = fault;
    }

    /// Why the latest keys are not in force; `None` if they are.
    pub fn fault(&self) -> Option<String> {
        lock(&self.fault).clone()
    }

    /// Records that a token has named an unknown key.
    pub fn request_refresh(&self) {
        // Written only on a change, since workers share the cache line.
        if !self.is_refresh_requested.load(Relaxed) {
            self.is_refresh_requested.store(true, Relaxed);
        }
    }

    /// Whether a token has named an unknown key since the last call.
    pub fn take_refresh_request(&self) -> bool {
        // Taken, so that one unknown key causes one fetch.
        self.is_refresh_requested.swap(false, Relaxed)
    }

    /// The state, as text.
    pub fn status(&self) -> String {
        let count = lock(&self.keys).len();
        match self.fault() {
            None => format!("{count} keys"),
            Some(fault) => format!("{count} keys, the latest can't be used: {fault}"),
        }
    }

    fn reload_if_changed(&self) {
        let Some(file) = &self.file else { return };
        let stamp = helper::file_stamp(file);
        // Held during the read, so that two checks don't read the same change.
        let mut previous = lock(&self.stamp);
        if stamp.is_some() && stamp == *previous {
            return;
        }
        match read(file) {
            Ok(keys) => {
                *lock(&self.keys) = Arc::new(keys);
                *previous = stamp;
                self.set_fault(None);
            }
            Err(reason) => self.set_fault(Some(format!("{}: {reason}", file.display()))),
        }
    }
}

fn read(file: &Path) -> Result<Vec<TokenKey>, String> {
    let text = helper::open(file).and_then(|file| {
        let mut text = Vec::new();
        io::Read::read_to_end(
            &mut io::Read::take(file, JWKS_LEN_MAX as u64 + 1),
            &mut text,
        )?;
        Ok(text)
    });
    let text = text.map_err(|error| error.to_string())?;
    // A key set is a JSON object, and PEM begins with a dash.
    match text.trim_ascii_start().starts_with(b"{") {
        true => parse_set(&text),
        false => parse_pem(&text).map(|key| vec![key]),
    }
}

/// Reads a public key in PEM (SubjectPublicKeyInfo). The cryptographic library takes its DER for all kinds.
fn parse_pem(text: &[u8]) -> Result<TokenKey, String> {
    let key = SubjectPublicKeyInfoDer::from_pem_slice(text);
    let key = key.map_err(|_| "neither a public key in PEM nor a key set")?;
    let has = |identifier: &[u8]| {
        key.windows(identifier.len())
            .take(32)
            .any(|it| it == identifier)
    };
    if has(RSA_IDENTIFIER) {
        return Ok(without_name(DecodingKey::from_rsa_der(&key)));
    }
    if has(EC_IDENTIFIER) {
        return Ok(without_name(DecodingKey::from_ec_der(&key)));
    }
    if has(ED25519_IDENTIFIER) {
        return Ok(without_name(DecodingKey::from_ed_der(&key)));
    }
    Err("the public key is not one of RSA, EC or Ed25519".into())
}

fn parse_set(text: &[u8]) -> Result<Vec<TokenKey>, String> {
    if text.len() > JWKS_LEN_MAX {
        return Err(format!("longer than {JWKS_LEN_MAX} bytes"));
    }
    let set: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
    let all = set.get("keys").and_then(Value::as_array);
    let all = all.ok_or("not a JSON Web Key Set: it has no keys")?;
    if all.len() > KEYS_MAX {
        return Err(format!("more than {KEYS_MAX} keys"));
    }
    // Keys for encryption, and kinds that are unknown here, are for other recipients (RFC 7517 §5).
    let keys = all
        .iter()
        .filter_map(|key| token_key(&Jwk::deserialize(key).ok()?));
    let keys: Vec<TokenKey> = keys.collect();
    match keys.is_empty() {
        true => Err("it contains no public key for signatures".into()),
        false => Ok(keys),
    }
}

fn token_key(jwk: &Jwk) -> Option<TokenKey> {
    let common = &jwk.common;
    let is_for_signatures = common
        .public_key_use
        .as_ref()
        .is_none_or(|it| *it == PublicKeyUse::Signature);
    // With a published secret, every reader could sign tokens.
    let is_public = !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let algorithm = match &common.key_algorithm {
        None => None,
        Some(named) => Some(named.to_string().parse().ok()?),
    };
    (is_for_signatures && is_public).then(|| TokenKey {
        id: common.key_id.clone(),
        algorithm,
        ..without_name(key)
    })
}

fn without_name(key: DecodingKey) -> TokenKey {
    TokenKey {
        key,
        id: None,
        algorithm: None,
    }
}

/// The family of an algorithm.
fn family(algorithm: Algorithm) -> AlgorithmFamily {
    use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512};
    match algorithm {
        HS256 | HS384 | HS512 => AlgorithmFamily::Hmac,
        ES256 | ES384 => AlgorithmFamily::Ec,
        EdDSA => AlgorithmFamily::Ed,
        _ => AlgorithmFamily::Rsa,
    }
}

/// The library's name of an algorithm.
pub fn algorithm(algorithm: TokenAlgorithm) -> Algorithm {
    match algorithm {
        TokenAlgorithm::Hs256 => Algorithm::HS256,
        TokenAlgorithm::Hs384 => Algorithm::HS384,
        TokenAlgorithm::Hs512 => Algorithm::HS512,
        TokenAlgorithm::Rs256 => Algorithm::RS256,
        TokenAlgorithm::Rs384 => Algorithm::RS384,
        TokenAlgorithm::Rs512 => Algorithm::RS512,
        TokenAlgorithm::Ps256 => Algorithm::PS256,
        TokenAlgorithm::Ps384 => Algorithm::PS384,
        TokenAlgorithm::Ps512 => Algorithm::PS512,
        TokenAlgorithm::Es256 => Algorithm::ES256,
        TokenAlgorithm::Es384 => Algorithm::ES384,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
