//! A certificate with its chain and key, loaded from PEM. The file names are used in messages only.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{CertificateError, Error, InconsistentKeys};

use super::chain;
use super::problem::{CertificateProblem, ProblemReason};
use crate::der::{self, DerReader};
use crate::identity::fingerprint;
use crate::provider::provider;
use crate::x509::{AltName, X509Certificate};

/// The contents and paths of a certificate's files.
#[derive(Clone, Copy)]
pub struct PemTexts<'a> {
    /// The path of the certificates, for messages.
    pub certificates_file: &'a Path,
    /// Certificate and chain, in PEM.
    pub certificates: &'a [u8],
    /// The path of the key, for messages.
    pub key_file: &'a Path,
    /// The key, in PEM.
    pub key: &'a [u8],
    /// The path of an OCSP response to staple, and the response in DER.
    pub staple: Option<(&'a Path, &'a [u8])>,
}

/// A certificate with chain and key, ready to be served.
#[derive(Clone, Debug)]
pub struct CertificatePair {
    certified: Arc<CertifiedKey>,
    names: Vec<AltName>,
    not_after_s: i64,
    fingerprint: String,
}

impl CertificatePair {
    /// Loads a certificate and its key. Also returns problems that do not prevent the certificate's use at `unix_s`.
    ///
    /// # Errors
    /// The problem that makes the certificate unusable.
    pub fn load(
        texts: &PemTexts<'_>,
        unix_s: u64,
    ) -> Result<(CertificatePair, Vec<CertificateProblem>), CertificateProblem> {
        let in_certificates = |reason| CertificateProblem::new(texts.certificates_file, reason);
        let in_key = |reason| CertificateProblem::new(texts.key_file, reason);
        let chain = read_all(texts.certificates).map_err(in_certificates)?;
        let key = signing_key(texts.key).map_err(in_key)?;
        let Some(leaf) = chain.first().and_then(|leaf| X509Certificate::parse(leaf)) else {
            return Err(in_certificates(ProblemReason::Malformed(
                "the first certificate is malformed".into(),
            )));
        };
        let warnings = chain::warnings(&chain, unix_s);
        // The public keys are compared here for certificates that `webpki` cannot parse.
        let is_matching_key = key
            .public_key()
            .is_some_and(|public| *public == *leaf.public_key);
        let (names, not_after_s) = (leaf.names, leaf.not_after_s);
        let fingerprint = fingerprint(&chain[0]);
        let mut certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            // `webpki` rejects unknown critical extensions, such as that of an ACME challenge (RFC 8737); clients may
            // support them.
            Err(Error::InvalidCertificate(CertificateError::Other(_))) if is_matching_key => {}
            Err(Error::InconsistentKeys(_)) => return Err(in_key(ProblemReason::KeyMismatch)),
            Err(error) => return Err(in_certificates(ProblemReason::Malformed(error.to_string()))),
        }
        let mut warnings: Vec<_> = warnings.into_iter().map(in_certificates).collect();
        match texts.staple {
            Some((_, staple)) if is_response(staple) => certified.ocsp = Some(staple.to_vec()),
            // An unusable OCSP response is reported and not stapled.
            Some((file, _)) => {
                warnings.push(CertificateProblem::new(file, ProblemReason::NoResponse))
            }
            None => {}
        }
        let pair = CertificatePair {
            certified: Arc::new(certified),
            names,
            not_after_s,
            fingerprint,
        };
        Ok((pair, warnings))
    }

    /// The subject alternative names.
    pub fn names(&self) -> &[AltName] {
        &self.names
    }

    /// The DNS names among the subject alternative names, in lower case.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|name| match name {
            AltName::Dns(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The last second of the certificate's validity.
    pub fn not_after_s(&self) -> i64 {
        self.not_after_s
    }

    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The certificate and its intermediates.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// Whether the bytes are a successful OCSP response (RFC 6960, section 4.2.1).
fn is_response(staple: &[u8]) -> bool {
    const SUCCESSFUL: &[u8] = &[0];
    let response = DerReader(staple).expect(der::SEQUENCE);
    let status = response.and_then(|response| response.reader().expect(der::ENUMERATED));
    status.is_some_and(|status| status.content == SUCCESSFUL)
}

/// All certificates of a PEM text, at least one.
pub(crate) fn read_all(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, ProblemReason> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = parsed.map_err(|error| ProblemReason::Malformed(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(ProblemReason::NoCertificate),
        false => Ok(certificates),
    }
}

fn signing_key(text: &[u8]) -> Result<Arc<dyn SigningKey>, ProblemReason> {
    // An encrypted key causes different errors, depending on its format; all of them are reported as `EncryptedKey`.
    let key = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound if is_encrypted(text) => ProblemReason::EncryptedKey,
        pem::Error::NoItemsFound => ProblemReason::NoKey,
        _ if is_encrypted(text) => ProblemReason::EncryptedKey,
        error => ProblemReason::Malformed(error.to_string()),
    })?;
    let key = provider().key_provider.load_private_key(key);
    key.map_err(|error| match is_encrypted(text) {
        true => ProblemReason::EncryptedKey,
        false => ProblemReason::UnusableKey(error.to_string()),
    })
}

/// Whether a PEM text holds an encrypted key.
fn is_encrypted(text: &[u8]) -> bool {
    // PKCS #8, and OpenSSL's older format (RFC 1421).
    let contains = |marker: &[u8]| text.windows(marker.len()).any(|part| part == marker);
    contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED")
}
