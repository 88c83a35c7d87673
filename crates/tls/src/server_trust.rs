//! The servers that a client accepts: the trusted authorities, and the verifier of certificates.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::certificates::{self, ProblemReason};
use crate::failure::TlsFailure;
use crate::identity::pem;
use crate::provider::provider;

/// The servers that a client accepts. In all cases the server must prove possession of its certificate's private key.
#[derive(Clone, Debug)]
pub struct ServerTrust {
    /// `None`: every certificate is accepted.
    authorities: Option<RootCertStore>,
    /// The certificates that were passed to `add_pem`.
    added: Vec<CertificateDer<'static>>,
    accepts_added: bool,
    ignores_name: bool,
}

/// The system's authorities as PEM, for libraries that accept no other form. Unreadable and unusable certificates,
/// which some old systems have, are skipped. May block.
pub fn system_pem() -> String {
    // Some systems list certificates that `webpki` cannot use; they must not make the others unusable.
    let native = rustls_native_certs::load_native_certs().certs;
    let is_usable = |certificate: &CertificateDer<'static>| {
        RootCertStore::empty().add(certificate.clone()).is_ok()
    };
    let usable = native.into_iter().filter(is_usable);
    usable.map(|usable| pem(&usable)).collect()
}

impl ServerTrust {
    fn new(authorities: Option<RootCertStore>) -> ServerTrust {
        ServerTrust {
            authorities,
            added: Vec::new(),
            accepts_added: false,
            ignores_name: false,
        }
    }

    /// Accepts every certificate.
    pub fn any_certificate() -> ServerTrust {
        ServerTrust::new(None)
    }

    /// Accepts certificates signed by the system's authorities; unreadable and unusable authorities are skipped. May
    /// block.
    pub fn system() -> ServerTrust {
        let mut authorities = RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        authorities.add_parsable_certificates(native.certs);
        ServerTrust::new(Some(authorities))
    }

    /// Accepts certificates signed by these authorities (PEM).
    ///
    /// # Errors
    /// As for `ServerTrust::add_pem`.
    pub fn from_pem(text: &[u8]) -> Result<ServerTrust, ProblemReason> {
        let mut trust = ServerTrust::new(Some(RootCertStore::empty()));
        trust.add_pem(text)?;
        Ok(trust)
    }

    /// Also accepts certificates signed by these authorities (PEM).
    ///
    /// # Errors
    /// The text has no certificate, or an unusable one.
    pub fn add_pem(&mut self, text: &[u8]) -> Result<(), ProblemReason> {
        let certificates = certificates::read_all(text)?;
        // `None`: every certificate is accepted already.
        let Some(authorities) = &mut self.authorities else {
            return Ok(());
        };
        for certificate in certificates {
            let added = authorities.add(certificate.clone());
            added.map_err(|error| ProblemReason::Malformed(error.to_string()))?;
            self.added.push(certificate);
        }
        Ok(())
    }

    /// Also accepts certificates for other host names if an authority has signed them.
    #[must_use]
    pub fn ignoring_names(mut self) -> ServerTrust {
        self.ignores_name = true;
        self
    }

    /// Also accepts a server that presents one of the added PEM certificates itself, if the name matches: a self-signed
    /// certificate often has the CA flag, and `webpki` accepts no authority as a server.
    #[must_use]
    pub fn accepting_added(mut self) -> ServerTrust {
        self.accepts_added = true;
        self
    }

    /// Whether no server can be accepted, since there are no trusted authorities.
    pub fn is_empty(&self) -> bool {
        self.authorities
            .as_ref()
            .is_some_and(RootCertStore::is_empty)
    }

    /// The verifier of server certificates for `rustls`.
    ///
    /// # Errors
    /// There are no authorities.
    pub fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, TlsFailure> {
        let chain = match &self.authorities {
            None => None,
            // `webpki` would reject all servers; this message names the cause.
            Some(authorities) if authorities.is_empty() => {
                let reason = Error::General("no trusted authorities".into());
                return Err(TlsFailure::from_error(reason));
            }
            Some(authorities) => {
                let authorities = Arc::new(authorities.clone());
                let built =
                    WebPkiServerVerifier::builder_with_provider(authorities, provider()).build();
                Some(
                    built.map_err(|error| {
                        TlsFailure::from_error(Error::General(error.to_string()))
                    })?,
                )
            }
        };
        Ok(Arc::new(ServerVerifier {
            chain,
            listed: match self.accepts_added {
                true => self.added.clone(),
                false => Vec::new(),
            },
            ignores_name: self.ignores_name,
        }))
    }
}

#[derive(Debug)]
struct ServerVerifier {
    /// `None`: every certificate is accepted.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are accepted without an authority.
    listed: Vec<CertificateDer<'static>>,
    ignores_name: bool,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        staple: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        // Without a verifier, any certificate is accepted.
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(certificate, others, name, staple, now) {
            // `webpki` checks the name last, so the certificate has passed all other checks.
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if self.ignores_name =>
            {
                Ok(ServerCertVerified::assertion())
            }
            // A listed certificate needs no chain, but must have the right name.
            Err(_) if self.listed.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
