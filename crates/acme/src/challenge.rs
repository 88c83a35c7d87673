//! Publishes challenge responses while an authority validates them, and withdraws them afterwards, even after errors.

use std::path::Path;
use std::sync::Arc;

use instant_acme::{ChallengeType, KeyAuthorization};
use lowroad_tls::certificates::{CertificatePair, PemTexts};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};

use crate::hook::{self, HookAction, TxtRecord};
use crate::manager::ManagerContext;
use crate::plan::AcmeFailure;
use crate::settings::ChallengeMethod;
use crate::severity::Severity;

impl ChallengeMethod {
    pub(crate) fn kind(&self) -> ChallengeType {
        match self {
            ChallengeMethod::Http01 => ChallengeType::Http01,
            ChallengeMethod::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeMethod::Dns01(_) => ChallengeType::Dns01,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            ChallengeMethod::Http01 => "http-01",
            ChallengeMethod::TlsAlpn01 => "tls-alpn-01",
            ChallengeMethod::Dns01(_) => "dns-01",
        }
    }
}

/// A challenge that the authority has posed for one name.
pub(crate) struct PendingChallenge<'a> {
    pub domain: &'a str,
    pub token: &'a str,
    pub authorization: KeyAuthorization,
    pub authority: &'a str,
}

/// The published challenge responses of one order. Dropping this withdraws them, except DNS records, for which
/// `withdraw` must be called.
pub(crate) struct PublishedChallenges {
    shared: Arc<ManagerContext>,
    tokens: Vec<String>,
    names: Vec<String>,
    records: Vec<TxtRecord>,
}

impl PublishedChallenges {
    pub fn new(shared: Arc<ManagerContext>) -> PublishedChallenges {
        PublishedChallenges {
            shared,
            tokens: Vec::new(),
            names: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Publishes a challenge response. After this returns, the authority may validate it.
    pub async fn publish(&mut self, challenge: PendingChallenge<'_>) -> Result<(), AcmeFailure> {
        match &self.shared.settings.challenge {
            ChallengeMethod::Http01 => {
                let answer = challenge.authorization.as_str();
                self.shared.tokens.insert(challenge.token, answer);
                self.tokens.push(challenge.token.into());
            }
            ChallengeMethod::TlsAlpn01 => {
                let pair = certificate(&challenge, self.shared.settings.clock.unix_s())?;
                // The callback returns once handshakes use the new certificate, so the authority may then connect.
                self.shared.show_challenge(challenge.domain, Some(pair));
                self.names.push(challenge.domain.into());
            }
            ChallengeMethod::Dns01(hook) => {
                let record = TxtRecord {
                    domain: challenge.domain.into(),
                    value: challenge.authorization.dns_value(),
                    authority: challenge.authority.into(),
                };
                // The record is added to `records` first, so that it is removed even if the hook fails after having
                // added it to the DNS.
                self.records.push(record.clone());
                hook::run(hook, HookAction::Present, &record).await?;
            }
        }
        Ok(())
    }

    /// Withdraws all responses, including DNS records. A failure of the hook is only logged.
    pub async fn withdraw(mut self) {
        let ChallengeMethod::Dns01(hook) = &self.shared.settings.challenge else {
            return;
        };
        for record in std::mem::take(&mut self.records) {
            if let Err(failure) = hook::run(hook, HookAction::Cleanup, &record).await {
                self.shared.log(Severity::Warning, &failure.text);
            }
        }
    }
}

impl Drop for PublishedChallenges {
    fn drop(&mut self) {
        // This also runs if the order's future is dropped, for example by a reload.
        for token in &self.tokens {
            self.shared.tokens.remove(token);
        }
        for name in &self.names {
            self.shared.show_challenge(name, None);
        }
    }
}

/// The certificate for a tls-alpn-01 challenge (RFC 8737, section 3).
fn certificate(
    challenge: &PendingChallenge<'_>,
    unix_s: u64,
) -> Result<CertificatePair, AcmeFailure> {
    let failure = |error: rcgen::Error| {
        AcmeFailure::local(format!("the challenge cannot be prepared: {error}"))
    };
    let mut params = CertificateParams::new([challenge.domain.to_owned()]).map_err(failure)?;
    // The default subject of rcgen would be "rcgen self signed cert".
    params.distinguished_name = DistinguishedName::new();
    let digest = challenge.authorization.digest();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest.as_ref())];
    let key = KeyPair::generate().map_err(failure)?;
    let certificate = params.self_signed(&key).map_err(failure)?;
    let (certificate, key) = (certificate.pem(), key.serialize_pem());
    let file = Path::new("challenge");
    let texts = PemTexts {
        certificates_file: file,
        certificates: certificate.as_bytes(),
        key_file: file,
        key: key.as_bytes(),
        staple: None,
    };
    let loaded = CertificatePair::load(&texts, unix_s);
    loaded.map(|(pair, _)| pair).map_err(AcmeFailure::local)
}
