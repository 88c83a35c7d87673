//! The cryptography provider of the process: `aws-lc-rs`, with hybrid post-quantum key exchange and cheap ciphers
//! preferred.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, default_provider, kx_group};

use crate::decryption;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = default_provider();
    // Listed explicitly, so that the selection does not depend on `rustls` features that other crates enable.
    provider.kx_groups = vec![
        kx_group::X25519MLKEM768,
        kx_group::X25519,
        kx_group::SECP256R1,
        kx_group::SECP384R1,
    ];
    // AES-128 with SHA-256 is the cheapest on processors with instructions for both. There are no instructions for
    // SHA-384: hashing with it took two fifths of the time of a resumed handshake.
    provider.cipher_suites = vec![
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS13_AES_256_GCM_SHA384,
        suite::TLS13_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
});

/// The provider for servers, with the decrypters of [`decryption`].
static SERVER_PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(decryption::observed(&PROVIDER)));

/// Cipher suites, key exchanges and signatures of all TLS connections in this process.
pub fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}

pub(crate) fn server_provider() -> Arc<CryptoProvider> {
    SERVER_PROVIDER.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn post_quantum_key_exchange_is_preferred() {
        let first = provider().kx_groups[0].name();
        assert_eq!(first, rustls::NamedGroup::X25519MLKEM768);
    }
}
