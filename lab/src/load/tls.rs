//! What TLS needs before the first connection: whom to trust, and the name to ask for.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

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
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .expect("the provider has these versions");
    let verifier: Arc<dyn ServerCertVerifier> = match tls.insecure {
        true => Arc::new(Anybody(provider)),
        false => Arc::new(Listed::new(authorities(tls)?, provider)?),
    };
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

/// Whom to trust.
struct Authorities {
    roots: RootCertStore,
    /// Those of a file.
    named: Vec<CertificateDer<'static>>,
}

fn authorities(tls: &Tls) -> Result<Authorities, Error> {
    let mut roots = RootCertStore::empty();
    let mut named = Vec::new();
    match &tls.authorities {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| {
                Error::Settings(format!("{}: no certificates: {error}", path.display()))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots
                    .add(certificate.clone())
                    .map_err(|error| wrong(&error))?;
                named.push(certificate);
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err(Error::Machine(
            "there are no authorities to trust: install ca-certificates, name a file by --ca, or \
             take any certificate by --insecure"
                .into(),
        ));
    }
    Ok(Authorities { roots, named })
}

/// Trusts authorities and who they vouch for, and the certificates that were named, whatever else they say beside the name:
/// a self-signed one is mostly an authority's, too, and webpki takes no authority for a server.
#[derive(Debug)]
struct Listed {
    named: Vec<CertificateDer<'static>>,
    by_authority: Arc<WebPkiServerVerifier>,
}

impl Listed {
    fn new(
        Authorities { roots, named }: Authorities,
        provider: Arc<CryptoProvider>,
    ) -> Result<Listed, Error> {
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let by_authority = builder.build();
        let by_authority = by_authority.map_err(|error| Error::Settings(error.to_string()))?;
        Ok(Listed {
            named,
            by_authority,
        })
    }
}

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        staple: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let by_authority = &self.by_authority;
        let verified = by_authority.verify_server_cert(certificate, others, name, staple, now);
        match verified.is_err() && self.named.contains(certificate) {
            false => verified,
            true => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let by_authority = &self.by_authority;
        by_authority.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let by_authority = &self.by_authority;
        by_authority.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Trusts anybody, but still checks that they hold the key of what they show.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
