//! The process's provider of cryptography: `aws-lc-rs`, hybrid post-quantum key exchange first, cheap ciphers first.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, default_provider, kx_group};

use crate::decryption;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = default_provider();
    // Listed explicitly, so that the choice does not depend on the features of rustls that other crates enable.
    provider.kx_groups = vec![
        kx_group::X25519MLKEM768,
        kx_group::X25519,
        kx_group::SECP256R1,
        kx_group::SECP384R1,
    ];
    // AES-128 with SHA-256 is the cheapest where processors have instructions for both. SHA-384 has no instructions:
    // with it, hashing took two fifths of a resumed handshake.
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
    fn the_post_quantum_exchange_comes_first() {
        let first = provider().kx_groups[0].name();
        assert_eq!(first, rustls::NamedGroup::X25519MLKEM768);
    }
}
