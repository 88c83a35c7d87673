//! The settings of the manager: names, authorities, challenges and limits.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use crate::authority_client::is_private;
use crate::clock::SystemClock;
use crate::name::{self, InvalidIdentifier};

/// The settings of the manager.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// The folder of accounts, keys and certificates. Created with mode 0700 if it is missing.
    pub folder: PathBuf,
    /// The authorities, in order of preference.
    pub authorities: Vec<AuthoritySettings>,
    /// Contact URLs for the authorities, such as `mailto:admin@example.org`.
    pub contact: Vec<String>,
    /// Whether the operator agrees to the authorities' terms of service.
    pub terms_agreed: bool,
    /// The challenge by which the server proves control of its names.
    pub challenge: ChallengeMethod,
    /// The names of each certificate. The first name is the certificate's key, and the name of its folder.
    pub sites: Vec<Vec<String>>,
    /// The maximum number of names in one certificate (default 100, the limit of most authorities).
    pub names_max: usize,
    /// The maximum number of orders per hour, for all names together (default 100).
    pub orders_per_hour_max: usize,
    /// Certificates for names that are not in the configuration but requested by clients. `None`: disabled.
    pub on_demand: Option<OnDemandSettings>,
    /// The source of time.
    pub clock: SystemClock,
}

/// A certificate authority that supports ACME.
#[derive(Clone, Debug, Default)]
pub struct AuthoritySettings {
    /// The URL of the authority's directory.
    pub directory: String,
    /// External account binding, if the authority requires it.
    pub external_account: Option<ExternalAccount>,
    /// The certificate profile, one of those that the authority lists. `None`: the authority's default.
    pub profile: Option<String>,
    /// A file of root certificates (PEM) for the connection to the authority. `None`: the system's.
    pub roots: Option<PathBuf>,
}

/// The key for external account binding (RFC 8555, section 7.3.4).
#[derive(Clone)]
pub struct ExternalAccount {
    /// The key's identifier.
    pub key_id: String,
    /// The key in base64, as the authority displays it.
    pub key: String,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalAccount({:?})", self.key_id)
    }
}

/// The challenge by which the server proves control of a name.
#[derive(Clone, Debug)]
pub enum ChallengeMethod {
    /// A response on port 80; see `ChallengeTokens`.
    Http01,
    /// A certificate on port 443; see `CertificateManager::add_to`.
    TlsAlpn01,
    /// A DNS record, which a command adds. The only challenge for wildcards.
    Dns01(DnsHook),
}

/// A command that adds and removes DNS records; see `docs/acme.md`.
#[derive(Clone, Debug)]
pub struct DnsHook {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// The command is killed after this many seconds (default 120).
    pub timeout_s: u64,
}

/// Settings for certificates on demand: for names that clients request.
#[derive(Clone, Debug)]
pub struct OnDemandSettings {
    /// The URL of the operator's approval service: it answers `GET URL?domain=NAME` with 200 for names that may get a
    /// certificate.
    pub ask: String,
    /// The maximum number of new names per minute (default 10).
    pub per_minute_max: usize,
    /// The maximum number of names with a certificate on demand (default 10,000; each takes about 8 KB of memory).
    pub names_max: usize,
}

impl OnDemandSettings {
    /// Settings with the defaults.
    pub fn new(ask: impl Into<String>) -> OnDemandSettings {
        OnDemandSettings {
            ask: ask.into(),
            per_minute_max: 10,
            names_max: 10_000,
        }
    }
}

/// An error in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcmeProblem {
    /// The terms of service have not been agreed to.
    Terms,
    /// There is no authority.
    NoAuthority,
    /// An authority is listed twice.
    SameAuthority(String),
    /// A URL neither begins with `https://` nor refers to this machine.
    Url(String),
    /// A contact is not a URL.
    Contact(String),
    /// The key of the external account with this identifier is not in base64.
    ExternalKey(String),
    /// The command of the hook is empty.
    NoCommand,
    /// A certificate has no names.
    NoNames,
    /// A name is invalid.
    Name(String, InvalidIdentifier),
    /// Wildcards require `dns-01`.
    Wildcard(String),
    /// A certificate has more names than `names_max`.
    TooManyNames(String, usize),
    /// Two certificates have the same first name.
    SameName(String),
}

impl fmt::Display for AcmeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcmeProblem::Terms => {
                f.write_str("the terms of service of the authorities are not accepted")
            }
            AcmeProblem::NoAuthority => f.write_str("no authority is configured"),
            AcmeProblem::SameAuthority(url) => write!(f, "{url}: the authority is listed twice"),
            AcmeProblem::Url(url) => write!(f, "{url}: the URL must begin with https://"),
            AcmeProblem::Contact(contact) => {
                write!(
                    f,
                    "{contact}: a contact must be a URL, such as mailto:admin@example.org"
                )
            }
            AcmeProblem::ExternalKey(id) => write!(f, "{id}: the key is not valid base64"),
            AcmeProblem::NoCommand => f.write_str("the command of dns-01 is empty"),
            AcmeProblem::NoNames => f.write_str("a certificate has no names"),
            AcmeProblem::Name(name, reason) => write!(f, "{name}: {reason}"),
            AcmeProblem::Wildcard(name) => {
                write!(f, "{name}: wildcards require the challenge dns-01")
            }
            AcmeProblem::TooManyNames(name, max) => {
                write!(f, "{name}: a certificate has at most {max} names")
            }
            AcmeProblem::SameName(name) => {
                write!(f, "{name}: two certificates have this first name")
            }
        }
    }
}

impl std::error::Error for AcmeProblem {}

impl AcmeSettings {
    /// Settings with the defaults: `http-01`, no authority, and no names.
    pub fn new(folder: impl Into<PathBuf>) -> AcmeSettings {
        AcmeSettings {
            folder: folder.into(),
            authorities: Vec::new(),
            contact: Vec::new(),
            terms_agreed: false,
            challenge: ChallengeMethod::Http01,
            sites: Vec::new(),
            names_max: 100,
            orders_per_hour_max: 100,
            on_demand: None,
            clock: SystemClock::default(),
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), AcmeProblem> {
        if !self.terms_agreed {
            return Err(AcmeProblem::Terms);
        }
        if self.authorities.is_empty() {
            return Err(AcmeProblem::NoAuthority);
        }
        let mut seen = HashSet::new();
        for authority in &self.authorities {
            authority.check()?;
            // Plans and accounts are stored by directory URL, so a second entry would share them.
            if !seen.insert(&authority.directory) {
                return Err(AcmeProblem::SameAuthority(authority.directory.clone()));
            }
        }
        // A contact is a URL, so it contains a scheme.
        if let Some(contact) = self.contact.iter().find(|contact| !contact.contains(':')) {
            return Err(AcmeProblem::Contact(contact.clone()));
        }
        if let ChallengeMethod::Dns01(hook) = &self.challenge
            && hook.command.is_empty()
        {
            return Err(AcmeProblem::NoCommand);
        }
        if let Some(on_demand) = &self.on_demand
            && on_demand.ask.parse::<http::Uri>().is_err()
        {
            return Err(AcmeProblem::Url(on_demand.ask.clone()));
        }
        self.checked_sites(&self.sites).map(|_| ())
    }

    /// The directory URLs of the authorities.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &str> {
        self.authorities
            .iter()
            .map(|authority| authority.directory.as_str())
    }

    /// The key of each certificate, and its normalized names.
    pub(crate) fn checked_sites(
        &self,
        sites: &[Vec<String>],
    ) -> Result<Vec<(String, Vec<String>)>, AcmeProblem> {
        let mut checked: Vec<(String, Vec<String>)> = Vec::with_capacity(sites.len());
        let mut seen = HashSet::new();
        for names in sites {
            let names = self.checked_names(names)?;
            let first = names.first().ok_or(AcmeProblem::NoNames)?.clone();
            // The first name is the key, and the name of the certificate's folder.
            if !seen.insert(first.clone()) {
                return Err(AcmeProblem::SameName(first));
            }
            checked.push((first, names));
        }
        Ok(checked)
    }

    fn checked_names(&self, names: &[String]) -> Result<Vec<String>, AcmeProblem> {
        let mut checked = Vec::with_capacity(names.len());
        for name in names {
            let normalized =
                name::check(name).map_err(|error| AcmeProblem::Name(name.clone(), error))?;
            // http-01 and tls-alpn-01 cannot prove control of wildcards.
            if normalized.starts_with("*.") && !matches!(self.challenge, ChallengeMethod::Dns01(_))
            {
                return Err(AcmeProblem::Wildcard(normalized));
            }
            // A site may list the same name in two spellings.
            if !checked.contains(&normalized) {
                checked.push(normalized);
            }
        }
        match checked.first() {
            Some(first) if checked.len() > self.names_max => {
                Err(AcmeProblem::TooManyNames(first.clone(), self.names_max))
            }
            _ => Ok(checked),
        }
    }
}

impl AuthoritySettings {
    fn check(&self) -> Result<(), AcmeProblem> {
        match self.directory.parse() {
            Ok(url) if is_private(&url) => {}
            _ => return Err(AcmeProblem::Url(self.directory.clone())),
        }
        match &self.external_account {
            Some(external) if external.decoded().is_none() => {
                Err(AcmeProblem::ExternalKey(external.key_id.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl ExternalAccount {
    /// The decoded key. Authorities use both base64 alphabets, with and without padding.
    pub(crate) fn decoded(&self) -> Option<Vec<u8>> {
        use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine};
        let text = self.key.trim().trim_end_matches('=');
        let decoded = BASE64_URL_SAFE_NO_PAD.decode(text);
        let decoded = decoded.or_else(|_| BASE64_STANDARD_NO_PAD.decode(text));
        decoded.ok().filter(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> AcmeSettings {
        let mut settings = AcmeSettings::new("/nowhere");
        settings.terms_agreed = true;
        settings.authorities = vec![AuthoritySettings {
            directory: "https://ca.example/directory".into(),
            ..AuthoritySettings::default()
        }];
        settings.sites = vec![vec!["Example.org".into(), "www.example.org".into()]];
        settings
    }

    #[test]
    fn valid_settings_pass_the_check() {
        assert_eq!(settings().check(), Ok(()));
        let sites = settings().checked_sites(&settings().sites).expect("names");
        assert_eq!(sites[0].0, "example.org");
    }

    #[test]
    fn invalid_settings_are_reported() {
        type Change = fn(&mut AcmeSettings);
        let url = "http://ca.example/".to_owned();
        let cases: [(Change, AcmeProblem); 9] = [
            (|to| to.terms_agreed = false, AcmeProblem::Terms),
            (|to| to.authorities.clear(), AcmeProblem::NoAuthority),
            (
                |to| to.authorities[0].directory = "http://ca.example/".into(),
                AcmeProblem::Url(url),
            ),
            (
                |to| to.contact.push("admin@example.org".into()),
                AcmeProblem::Contact("admin@example.org".into()),
            ),
            (
                |to| to.sites[0].push("*.example.org".into()),
                AcmeProblem::Wildcard("*.example.org".into()),
            ),
            (|to| to.sites.push(vec![]), AcmeProblem::NoNames),
            (
                |to| to.sites.push(vec!["example.org.".into()]),
                AcmeProblem::SameName("example.org".into()),
            ),
            (
                |to| to.names_max = 1,
                AcmeProblem::TooManyNames("example.org".into(), 1),
            ),
            (
                |to| {
                    to.challenge = ChallengeMethod::Dns01(DnsHook {
                        command: vec![],
                        timeout_s: 1,
                    });
                },
                AcmeProblem::NoCommand,
            ),
        ];
        for (change, problem) in cases {
            let mut settings = settings();
            change(&mut settings);
            assert_eq!(settings.check(), Err(problem));
        }
    }

    #[test]
    fn external_account_key_is_decoded_from_both_base64_alphabets() {
        let decoded = |key: &str| {
            let key_id = "id".into();
            let key = key.into();
            ExternalAccount { key_id, key }.decoded()
        };
        assert_eq!(decoded("-_8"), Some(vec![0xfb, 0xff]));
        assert_eq!(decoded("+/8="), Some(vec![0xfb, 0xff]));
        assert_eq!(decoded("not base64"), None);
        assert_eq!(decoded(""), None);
    }
}
