//! What is wanted: names, authorities, challenges and limits.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use crate::clock::Clock;
use crate::http::is_private;
use crate::name::{self, NotAName};

/// All that can be said.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where accounts, keys and certificates are kept. Made with mode 0700 if it is not there.
    pub folder: PathBuf,
    /// Whom to ask, in turn.
    pub authorities: Vec<Authority>,
    /// Where authorities may write to, as `mailto:admin@example.org`.
    pub contact: Vec<String>,
    /// Whether the operator agrees to the authorities' terms of service.
    pub terms_agreed: bool,
    /// How to prove that names are ours.
    pub challenge: Challenge,
    /// The names of each certificate. What it is called in the folder is the first of them.
    pub sites: Vec<Vec<String>>,
    /// Names in one certificate, at most (default 100, as many as most authorities take).
    pub names_max: usize,
    /// Orders in an hour, at most, for all names together (default 100).
    pub orders_per_hour_max: usize,
    /// Certificates for names that nobody has listed. `None`: there are none.
    pub on_demand: Option<OnDemand>,
    /// What time it is.
    pub clock: Clock,
}

/// A CA.
#[derive(Clone, Debug, Default)]
pub struct Authority {
    /// The URL of its directory.
    pub directory: String,
    /// An account that the operator has with it elsewhere.
    pub external_account: Option<ExternalAccount>,
    /// What kind of certificate: authorities say which they have. `None`: the usual one.
    pub profile: Option<String>,
    /// Certificates, in PEM, that its own server is verified with. `None`: those of the system.
    pub roots: Option<PathBuf>,
}

/// External account binding (RFC 8555, section 7.3.4).
#[derive(Clone)]
pub struct ExternalAccount {
    /// The key's identifier.
    pub key_id: String,
    /// The key, in base64 as the authority has shown it.
    pub key: String,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ExternalAccount({:?})", self.key_id)
    }
}

/// How to prove that a name is ours.
#[derive(Clone, Debug)]
pub enum Challenge {
    /// By an answer on port 80: see [`crate::Tokens`].
    Http01,
    /// By a certificate on port 443: see [`crate::Manager::add_to`].
    TlsAlpn01,
    /// By a record that a command puts into the DNS. The only one for wildcards.
    Dns01(Hook),
}

/// A command that changes the DNS: see `docs/acme.md`.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Program and first arguments.
    pub command: Vec<String>,
    /// After so many seconds it is killed (default 120).
    pub timeout_s: u64,
}

/// Certificates for names that clients ask for.
#[derive(Clone, Debug)]
pub struct OnDemand {
    /// Whoever answers 200 to `GET URL?domain=NAME` wants a certificate for that name.
    pub ask: String,
    /// So many names are asked for in a minute, at most (default 10).
    pub per_minute_max: usize,
    /// So many names have a certificate by this way, at most (default 10,000; about 8 KB of memory each).
    pub names_max: usize,
}

impl OnDemand {
    /// With the defaults.
    pub fn new(ask: impl Into<String>) -> OnDemand {
        OnDemand {
            ask: ask.into(),
            per_minute_max: 10,
            names_max: 10_000,
        }
    }
}

/// What is wrong with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Nobody has agreed.
    Terms,
    /// There is no authority.
    NoAuthority,
    /// An authority is there twice.
    SameAuthority(String),
    /// A URL does not begin with `https://`, and is not of this machine.
    Url(String),
    /// A contact is no URL.
    Contact(String),
    /// The key of an external account is not in base64: this is its identifier.
    ExternalKey(String),
    /// The hook has no program.
    NoCommand,
    /// A certificate has no names.
    NoNames,
    /// No name.
    Name(String, NotAName),
    /// Only `dns-01` is for wildcards.
    Wildcard(String),
    /// A certificate has more names than it may have.
    TooManyNames(String, usize),
    /// Two certificates begin with the same name.
    SameName(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Terms => to.write_str("the authorities' terms of service must be agreed to"),
            Problem::NoAuthority => to.write_str("there is no authority to ask"),
            Problem::SameAuthority(url) => write!(to, "{url}: the authority is there twice"),
            Problem::Url(url) => write!(to, "{url}: it must begin with https://"),
            Problem::Contact(contact) => {
                write!(
                    to,
                    "{contact}: a contact is a URL, as mailto:admin@example.org"
                )
            }
            Problem::ExternalKey(id) => write!(to, "{id}: the key is not in base64"),
            Problem::NoCommand => to.write_str("the command of dns-01 is empty"),
            Problem::NoNames => to.write_str("a certificate has no names"),
            Problem::Name(name, why) => write!(to, "{name}: {why}"),
            Problem::Wildcard(name) => write!(to, "{name}: wildcards need the challenge dns-01"),
            Problem::TooManyNames(name, max) => {
                write!(to, "{name}: a certificate has at most {max} names")
            }
            Problem::SameName(name) => write!(to, "{name}: two certificates begin with it"),
        }
    }
}

impl std::error::Error for Problem {}

impl Settings {
    /// With the defaults: `http-01`, nobody to ask, and nothing to ask for.
    pub fn new(folder: impl Into<PathBuf>) -> Settings {
        Settings {
            folder: folder.into(),
            authorities: Vec::new(),
            contact: Vec::new(),
            terms_agreed: false,
            challenge: Challenge::Http01,
            sites: Vec::new(),
            names_max: 100,
            orders_per_hour_max: 100,
            on_demand: None,
            clock: Clock::default(),
        }
    }

    /// Looks whether all this can be done.
    ///
    /// # Errors
    /// The first thing that can't.
    pub fn check(&self) -> Result<(), Problem> {
        if !self.terms_agreed {
            return Err(Problem::Terms);
        }
        if self.authorities.is_empty() {
            return Err(Problem::NoAuthority);
        }
        let mut seen = HashSet::new();
        for authority in &self.authorities {
            authority.check()?;
            if !seen.insert(&authority.directory) {
                return Err(Problem::SameAuthority(authority.directory.clone()));
            }
        }
        if let Some(contact) = self.contact.iter().find(|contact| !contact.contains(':')) {
            return Err(Problem::Contact(contact.clone()));
        }
        if let Challenge::Dns01(hook) = &self.challenge
            && hook.command.is_empty()
        {
            return Err(Problem::NoCommand);
        }
        if let Some(on_demand) = &self.on_demand
            && on_demand.ask.parse::<http::Uri>().is_err()
        {
            return Err(Problem::Url(on_demand.ask.clone()));
        }
        self.checked_sites(&self.sites).map(|_| ())
    }

    /// What authorities are known by.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &str> {
        self.authorities
            .iter()
            .map(|authority| authority.directory.as_str())
    }

    /// Names in their usual form, by what the certificate is called.
    pub(crate) fn checked_sites(
        &self,
        sites: &[Vec<String>],
    ) -> Result<Vec<(String, Vec<String>)>, Problem> {
        let mut checked: Vec<(String, Vec<String>)> = Vec::with_capacity(sites.len());
        let mut seen = HashSet::new();
        for names in sites {
            let names = self.checked_names(names)?;
            let first = names.first().ok_or(Problem::NoNames)?.clone();
            if !seen.insert(first.clone()) {
                return Err(Problem::SameName(first));
            }
            checked.push((first, names));
        }
        Ok(checked)
    }

    fn checked_names(&self, names: &[String]) -> Result<Vec<String>, Problem> {
        let mut checked = Vec::with_capacity(names.len());
        for name in names {
            let usual = name::check(name).map_err(|why| Problem::Name(name.clone(), why))?;
            if usual.starts_with("*.") && !matches!(self.challenge, Challenge::Dns01(_)) {
                return Err(Problem::Wildcard(usual));
            }
            if !checked.contains(&usual) {
                checked.push(usual);
            }
        }
        match checked.first() {
            Some(first) if checked.len() > self.names_max => {
                Err(Problem::TooManyNames(first.clone(), self.names_max))
            }
            _ => Ok(checked),
        }
    }
}

impl Authority {
    fn check(&self) -> Result<(), Problem> {
        match self.directory.parse() {
            Ok(url) if is_private(&url) => {}
            _ => return Err(Problem::Url(self.directory.clone())),
        }
        match &self.external_account {
            Some(external) if external.decoded().is_none() => {
                Err(Problem::ExternalKey(external.key_id.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl ExternalAccount {
    /// The key's bytes. Authorities show it in either alphabet, with and without padding.
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

    fn settings() -> Settings {
        let mut settings = Settings::new("/nowhere");
        settings.terms_agreed = true;
        settings.authorities = vec![Authority {
            directory: "https://ca.example/directory".into(),
            ..Authority::default()
        }];
        settings.sites = vec![vec!["Example.org".into(), "www.example.org".into()]];
        settings
    }

    #[test]
    fn usual_settings_are_fine() {
        assert_eq!(settings().check(), Ok(()));
        let sites = settings().checked_sites(&settings().sites).expect("names");
        assert_eq!(sites[0].0, "example.org");
    }

    #[test]
    fn problems_are_named() {
        type Change = fn(&mut Settings);
        let url = "http://ca.example/".to_owned();
        let cases: [(Change, Problem); 9] = [
            (|to| to.terms_agreed = false, Problem::Terms),
            (|to| to.authorities.clear(), Problem::NoAuthority),
            (
                |to| to.authorities[0].directory = "http://ca.example/".into(),
                Problem::Url(url),
            ),
            (
                |to| to.contact.push("admin@example.org".into()),
                Problem::Contact("admin@example.org".into()),
            ),
            (
                |to| to.sites[0].push("*.example.org".into()),
                Problem::Wildcard("*.example.org".into()),
            ),
            (|to| to.sites.push(vec![]), Problem::NoNames),
            (
                |to| to.sites.push(vec!["example.org.".into()]),
                Problem::SameName("example.org".into()),
            ),
            (
                |to| to.names_max = 1,
                Problem::TooManyNames("example.org".into(), 1),
            ),
            (
                |to| {
                    to.challenge = Challenge::Dns01(Hook {
                        command: vec![],
                        timeout_s: 1,
                    });
                },
                Problem::NoCommand,
            ),
        ];
        for (change, problem) in cases {
            let mut settings = settings();
            change(&mut settings);
            assert_eq!(settings.check(), Err(problem));
        }
    }

    #[test]
    fn keys_of_external_accounts_come_in_two_alphabets() {
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
