//! An issued certificate with its key, stored as one PEM file, so that both are replaced atomically.

use std::path::Path;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use instant_acme::CertificateIdentifier;
use lowroad_tls::certificates::{CertificatePair, PemTexts};
use lowroad_tls::x509::X509Certificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::plan::ValidityPeriod;

/// A certificate and its metadata.
#[derive(Clone, Debug)]
pub(crate) struct IssuedCertificate {
    pub pair: CertificatePair,
    pub validity: ValidityPeriod,
    /// The key as read, to restore a damaged file.
    key: Arc<PrivateKeyDer<'static>>,
    /// The certificate's identifier for renewal information (RFC 9773, section 4.1).
    pub id: Option<CertificateIdentifier<'static>>,
}

impl IssuedCertificate {
    /// Parses certificate, chain and key. Warnings are ignored: the operator cannot change the authority's
    /// certificates.
    pub fn read(pem: &[u8], file: &Path, unix_s: u64) -> Result<IssuedCertificate, String> {
        let texts = PemTexts {
            certificates_file: file,
            certificates: pem,
            key_file: file,
            key: pem,
            staple: None,
        };
        let loaded = CertificatePair::load(&texts, unix_s);
        let (pair, _) = loaded.map_err(|problem| problem.to_string())?;
        let der = CertificateDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
        let fields = X509Certificate::parse(&der).ok_or("not a certificate")?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
        let seconds = |time_s: i64| u64::try_from(time_s).unwrap_or(0);
        Ok(IssuedCertificate {
            pair,
            key: Arc::new(key),
            validity: ValidityPeriod {
                not_before_s: seconds(fields.not_before_s),
                not_after_s: seconds(fields.not_after_s),
            },
            // The identifier consists of the issuer's key identifier and the serial number (RFC 9773, section 4.1).
            id: fields.authority_key.map(|key| CertificateIdentifier {
                authority_key_identifier: BASE64_URL_SAFE_NO_PAD.encode(key).into(),
                serial: BASE64_URL_SAFE_NO_PAD.encode(fields.serial).into(),
            }),
        })
    }

    /// Whether the certificate covers all of these names.
    pub fn covers(&self, names: &[String]) -> bool {
        let is_covered = |name: &String| self.pair.dns_names().any(|other| other == name);
        names.iter().all(is_covered)
    }

    /// Whether this certificate covers all of these names, and `other` does not or expires earlier.
    pub fn is_better_than(&self, other: &IssuedCertificate, names: &[String]) -> bool {
        let ends_later = self.validity.not_after_s > other.validity.not_after_s;
        // A certificate for all names is better than one for some of them that expires later.
        self.covers(names) && (ends_later || !other.covers(names))
    }

    /// Key, certificate and chain, in the format that `IssuedCertificate::read` parses.
    pub fn to_pem(&self) -> Vec<u8> {
        let label = match &*self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        let mut text = String::new();
        push_pem(&mut text, label, self.key.secret_der());
        for certificate in self.pair.chain() {
            push_pem(&mut text, "CERTIFICATE", certificate);
        }
        text.into_bytes()
    }
}

/// Appends a PEM block (RFC 7468, section 2).
fn push_pem(out: &mut String, label: &str, der: &[u8]) {
    /// Bytes in a line of 64 characters.
    const LINE_LEN: usize = 48;
    out.push_str(&format!("-----BEGIN {label}-----\n"));
    for line in der.chunks(LINE_LEN) {
        BASE64_STANDARD.encode_string(line, out);
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_and_key_survive_write_and_read() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(["a.example".to_owned()]).expect("names");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let pem = format!("{}{certificate}{certificate}", key.serialize_pem());
        let read =
            |pem: &[u8]| IssuedCertificate::read(pem, Path::new("pem"), 0).expect("a certificate");
        let issued = read(pem.as_bytes());
        let written = String::from_utf8(issued.to_pem()).expect("text");
        assert_eq!(written, pem.replace('\r', ""));
        let again = read(written.as_bytes());
        assert_eq!(again.pair.fingerprint(), issued.pair.fingerprint());
    }
}
