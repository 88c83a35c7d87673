//! The identity of a client according to its verified certificate, for handlers and logs.

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;

use crate::x509::{AltName, X509Certificate, display_name, display_time, hex};

/// A client's certificate, verified against the client authorities of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject, in the form of RFC 4514.
    pub subject: String,
    /// The issuer, in the form of RFC 4514.
    pub issuer: String,
    /// The subject alternative names.
    pub names: Vec<AltName>,
    /// The serial number in hexadecimal digits.
    pub serial: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
    /// The last second of the certificate's validity, as text.
    pub not_after: String,
    /// The certificate in PEM.
    pub pem: String,
}

impl ClientCertificate {
    pub(crate) fn from_der(certificate: &CertificateDer<'_>) -> Option<ClientCertificate> {
        let fields = X509Certificate::parse(certificate)?;
        Some(ClientCertificate {
            subject: display_name(fields.subject),
            issuer: display_name(fields.issuer),
            serial: fields.serial_hex(),
            not_after: display_time(fields.not_after_s),
            names: fields.names,
            fingerprint: fingerprint(certificate),
            pem: pem(certificate),
        })
    }
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn fingerprint(certificate: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, certificate).as_ref())
}

/// A certificate in PEM.
pub(crate) fn pem(certificate: &[u8]) -> String {
    let text = base64(certificate);
    let mut pem = String::with_capacity(text.len() + text.len() / 64 + 60);
    pem.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // RFC 7468, section 2: lines of 64 characters.
        let (line, remaining) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = remaining;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * index) & 0x3f) as usize];
            text.push(if index <= chunk.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_rfc_4648_test_vectors() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }
}
