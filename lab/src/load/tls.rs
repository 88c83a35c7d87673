//! TLS parameters of a run: trusted certificates and the server's name.

use std::sync::Arc;

use lowroad_quic::QuicClientCipher;
use lowroad_tls::ServerTrust;
use lowroad_tls::quic::QuicTlsConnector;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;

use super::transport::TlsStart;
use super::{LoadError, OfferedTls, TlsSettings};

/// Reads the trusted certificates and checks the server's name.
///
/// # Errors
/// The certificates or the name are unusable; the text names which.
pub(crate) fn start(tls: &TlsSettings) -> Result<TlsStart, LoadError> {
    let name = ServerName::try_from(tls.name.clone()).map_err(|_| {
        LoadError::Settings(format!("{:?} is not a name for a certificate", tls.name))
    })?;
    let provider = Arc::new(provider(tls.offered));
    let versions = match tls.offered {
        OfferedTls::All => rustls::ALL_VERSIONS,
        OfferedTls::One { .. } => &[&TLS13],
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("the provider has these versions");
    let verifier = trust(tls)?.verifier();
    let verifier = verifier.map_err(|error| LoadError::Settings(error.to_string()))?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    // Otherwise each connection after the first would resume a session instead of making a full handshake.
    if tls.offered == (OfferedTls::One { is_resuming: false }) {
        config.resumption = Resumption::disabled();
    }
    // Only one protocol is offered, so that the workload chooses the version, not the server.
    let speaking = |protocol: &[u8]| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    Ok(TlsStart {
        http1: speaking(b"http/1.1"),
        http2: speaking(b"h2"),
        http3: QuicClientCipher::tls(QuicTlsConnector::from_config(config)),
        name,
    })
}

fn provider(offered: OfferedTls) -> CryptoProvider {
    let default = aws_lc_rs::default_provider();
    match offered {
        OfferedTls::All => default,
        // One suite and one group, so that all servers compute the same.
        OfferedTls::One { .. } => CryptoProvider {
            cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            ..default
        },
    }
}

/// Trusts the authorities in the file. The server may also present a certificate from the file itself. The other fields
/// of that certificate are not checked.
fn trust(tls: &TlsSettings) -> Result<ServerTrust, LoadError> {
    if tls.insecure {
        return Ok(ServerTrust::any_certificate());
    }
    let trust = match &tls.authorities {
        Some(path) => {
            let trust_error = |error: &dyn std::fmt::Display| {
                LoadError::Settings(format!("{}: no certificates: {error}", path.display()))
            };
            let pem = std::fs::read(path).map_err(|error| trust_error(&error))?;
            let trust = ServerTrust::from_pem(&pem).map_err(|reason| trust_error(&reason))?;
            trust.accepting_added()
        }
        None => ServerTrust::system(),
    };
    if trust.is_empty() {
        return Err(LoadError::Machine(
            "no trusted authorities: install ca-certificates, name a file with --ca, or accept \
             any certificate with --insecure"
                .into(),
        ));
    }
    Ok(trust)
}
