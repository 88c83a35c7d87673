//! Automatic certificates by ACME (RFC 8555).

use crate::secret::SecretText;
use std::path::PathBuf;

/// How certificates are obtained and stored. `[acme]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// Whether the operator agrees to the authorities' terms of service; always true in a parsed file.
    pub terms_agreed: bool,
    /// The folder of accounts, keys and certificates. Default `/var/lib/lowroad/acme`.
    pub folder: PathBuf,
    /// Contact URLs for the authorities. Default: none.
    pub contact: Vec<String>,
    /// The challenge that proves control of names. Default `http-01`.
    pub challenge: AcmeChallenge,
    /// The authorities, in the order of attempts; never empty. Default: Let's Encrypt.
    pub authorities: Vec<AcmeAuthority>,
    /// The maximum of orders per hour. Default 100.
    pub orders_per_hour: u64,
    /// Certificates on demand, for names that clients request. Default: off.
    pub on_demand: Option<OnDemandConfig>,
}

/// The challenge that proves control of a name (RFC 8555 §8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// A response over plain HTTP. `"http-01"`
    #[default]
    Http01,
    /// A certificate in the TLS handshake (RFC 8737). `"tls-alpn-01"`
    TlsAlpn01,
    /// A DNS record, set by a command. `"dns-01"`
    Dns01 {
        /// Program and first arguments; never empty.
        hook: Vec<String>,
        /// The command is killed after this time. Default 2 min.
        timeout_ms: u64,
    },
}

/// A certificate authority. `[[acme.authority]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeAuthority {
    /// The URL of its directory.
    pub directory: String,
    /// External account binding: the key identifier that the authority's website issued, and the key. Default: none.
    pub external: Option<(String, ExternalKey)>,
    /// The certificate profile. Default: the authority's default profile.
    pub profile: Option<String>,
    /// The root certificates that verify the authority's server, in PEM. Default: the system's.
    pub roots: Option<PathBuf>,
}

/// Certificates on demand, for names that the configuration does not list. `[acme.on_demand]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandConfig {
    /// The URL that decides whether a name is wanted.
    pub ask: String,
    /// The maximum of new names per minute. Default 10.
    pub per_minute: u64,
    /// The maximum of names in total. Default 10,000; about 8 KB of memory each.
    pub names_max: u64,
}

/// The key of an external account, in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalKey {
    /// The file with the key.
    File(PathBuf),
    /// The key.
    Text(SecretText),
}

impl AcmeAuthority {
    /// An authority without external account binding, with its default profile.
    pub fn new(directory: impl Into<String>) -> AcmeAuthority {
        AcmeAuthority {
            directory: directory.into(),
            external: None,
            profile: None,
            roots: None,
        }
    }
}
