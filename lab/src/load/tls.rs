//! What TLS needs before the first connection: whom to trust, and the name to ask for.

use std::sync::Arc;

use lowroad_tls::Trust;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;

use super::transport::TlsStart;
use super::{Error, Offered, Tls};

/// Reads the authorities and checks the name.
///
/// # Errors
/// Either is unusable; says which.
pub(crate) fn start(tls: &Tls) -> Result<TlsStart, Error> {
    let name = ServerName::try_from(tls.name.clone())
        .map_err(|_| Error::Settings(format!("{:?} is no name for a certificate", tls.name)))?;
    let provider = Arc::new(provider(tls.offered));
    let versions = match tls.offered {
        Offered::All => rustls::ALL_VERSIONS,
        Offered::One { .. } => &[&TLS13],
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("the provider has these versions");
    let verifier = trust(tls)?.verifier();
    let verifier = verifier.map_err(|error| Error::Settings(error.to_string()))?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    if tls.offered == (Offered::One { resumes: false }) {
        config.resumption = Resumption::disabled();
    }
    let speaking = |protocol: &[u8]| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    Ok(TlsStart {
        http1: speaking(b"http/1.1"),
        http2: speaking(b"h2"),
        name,
    })
}

fn provider(offered: Offered) -> CryptoProvider {
    let all = aws_lc_rs::default_provider();
    match offered {
        Offered::All => all,
        Offered::One { .. } => CryptoProvider {
            cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            ..all
        },
    }
}

/// Certificates of authorities, and those of the file themselves, whatever they contain beside the name.
fn trust(tls: &Tls) -> Result<Trust, Error> {
    if tls.insecure {
        return Ok(Trust::any_certificate());
    }
    let trust = match &tls.authorities {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| {
                Error::Settings(format!("{}: no certificates: {error}", path.display()))
            };
            let pem = std::fs::read(path).map_err(|error| wrong(&error))?;
            let trust = Trust::from_pem(&pem).map_err(|reason| wrong(&reason))?;
            trust.accepting_added()
        }
        None => Trust::system(),
    };
    if trust.is_empty() {
        return Err(Error::Machine(
            "there are no authorities to trust: install ca-certificates, name a file by --ca, or \
             take any certificate by --insecure"
                .into(),
        ));
    }
    Ok(trust)
}
