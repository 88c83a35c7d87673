//! The one provider of cryptography: `aws-lc-rs`, hybrid post-quantum key exchange first.

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = default_provider();
    // Said here, so that it does not hang on which features others ask of rustls.
    provider.kx_groups = vec![
        kx_group::X25519MLKEM768,
        kx_group::X25519,
        kx_group::SECP256R1,
        kx_group::SECP384R1,
    ];
    Arc::new(provider)
});

/// Cipher suites, key exchanges and signatures of all that speaks TLS in this process.
pub fn provider() -> Arc<CryptoProvider> {
    PROVIDER.clone()
}
