//! Keys of an endpoint, derived from one secret: those of tokens (RFC 9000 §8.1), stateless resets (§10.3) and connection
//! identifiers. All workers need the same secret, and so does the process that replaces this one: then tokens stay
//! valid, and clients of lost connections receive stateless resets.

use aws_lc_rs::{aead, hkdf, hmac};
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey, HmacKey};

use crate::connection_ids::ConnectionIdKey;

/// The keys that do not depend on the worker.
#[derive(Clone)]
pub struct QuicKeys {
    pub(crate) reset: hmac::Key,
    pub(crate) token: hkdf::Prk,
    ids: ConnectionIdKey,
}

impl std::fmt::Debug for QuicKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QuicKeys")
    }
}

impl QuicKeys {
    /// Derives the keys from a secret of 32 random bytes.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> QuicKeys {
        let derive = |label: &[u8]| derived(secret, label);
        // Separate labels: a weak use of one key must not endanger the others.
        let mut ids = [0; 16];
        ids.copy_from_slice(&derive(b"lowroad quic connection ids")[..16]);
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]);
        QuicKeys {
            reset: hmac::Key::new(hmac::HMAC_SHA256, &derive(b"lowroad quic resets")),
            token: salt.extract(&derive(b"lowroad quic tokens")),
            ids: ConnectionIdKey::new(ids),
        }
    }

    /// The key of connection identifiers, for steering.
    #[must_use]
    pub fn connection_ids(&self) -> ConnectionIdKey {
        self.ids
    }
}

/// Random bytes for a secret or a seed; `None` if the system has none.
#[must_use]
pub fn random_bytes() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// A key or seed for a purpose.
pub(crate) fn derived(secret: &[u8; 32], label: &[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut derived = [0; 32];
    derived.copy_from_slice(hmac::sign(&key, label).as_ref());
    derived
}

/// The key of stateless resets.
pub(crate) struct ResetKey(pub hmac::Key);

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(hmac::sign(&self.0, data).as_ref());
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        hmac::verify(&self.0, data, signature).map_err(|_| CryptoError)
    }
}

/// The key from which the key of each token is derived.
pub(crate) struct TokenKey(pub hkdf::Prk);

impl HandshakeTokenKey for TokenKey {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        let mut secret = [0; 32];
        let info = [random_bytes];
        let derived = self
            .0
            .expand(&info, hkdf::HKDF_SHA256)
            .and_then(|output| output.fill(&mut secret))
            .and_then(|()| aead::UnboundKey::new(&aead::AES_256_GCM, &secret));
        // These lengths are constants that HKDF and AES accept.
        let key = derived.expect("32 bytes are derived");
        Box::new(TokenCipher(aead::LessSafeKey::new(key)))
    }
}

/// Encrypts one token.
struct TokenCipher(aead::LessSafeKey);

impl TokenCipher {
    /// The key is used for one token only.
    fn nonce() -> aead::Nonce {
        aead::Nonce::assume_unique_for_key([0; 12])
    }
}

impl AeadKey for TokenCipher {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        let additional_data = aead::Aad::from(additional_data);
        let sealed = self
            .0
            .seal_in_place_append_tag(Self::nonce(), additional_data, data);
        sealed.map_err(|_| CryptoError)
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        let additional_data = aead::Aad::from(additional_data);
        let opened = self.0.open_in_place(Self::nonce(), additional_data, data);
        opened.map_err(|_| CryptoError)
    }
}
