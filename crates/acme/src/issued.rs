//! A certificate that an authority has signed, with its key: one text of PEM, so that both are replaced at once.

use std::path::Path;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use instant_acme::CertificateIdentifier;
use lowroad_tls::certificates::{Pair, Texts};
use lowroad_tls::x509::Certificate;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::plan::Validity;

/// A certificate and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub pair: Pair,
    pub validity: Validity,
    /// What it is called when its authority is asked about it (RFC 9773, section 4.1).
    pub id: Option<CertificateIdentifier<'static>>,
}

impl Issued {
    /// Reads certificates and key. What is doubtful about them is the authority's affair.
    pub fn read(pem: &[u8], file: &Path, unix_s: u64) -> Result<Issued, String> {
        let texts = Texts {
            certificates_file: file,
            certificates: pem,
            key_file: file,
            key: pem,
            staple: None,
        };
        let loaded = Pair::load(&texts, unix_s);
        let (pair, _) = loaded.map_err(|problem| problem.to_string())?;
        let der = CertificateDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
        let fields = Certificate::parse(&der).ok_or("it is no certificate")?;
        let seconds = |time_s: i64| u64::try_from(time_s).unwrap_or(0);
        Ok(Issued {
            pair,
            validity: Validity {
                not_before_s: seconds(fields.not_before_s),
                not_after_s: seconds(fields.not_after_s),
            },
            id: fields.authority_key.map(|key| CertificateIdentifier {
                authority_key_identifier: BASE64_URL_SAFE_NO_PAD.encode(key).into(),
                serial: BASE64_URL_SAFE_NO_PAD.encode(fields.serial).into(),
            }),
        })
    }

    /// Whether it is for all these names.
    pub fn covers(&self, names: &[String]) -> bool {
        let has = |name: &String| self.pair.dns_names().any(|other| other == name);
        names.iter().all(has)
    }
}
