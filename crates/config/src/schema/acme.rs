//! Where certificates come from by themselves. Read RFC 8555.

use std::path::PathBuf;

/// How certificates are got and kept. `[acme]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Whether the operator agrees to the authorities' terms of service; always true in a parsed file.
    pub terms_agreed: bool,
    /// Where accounts, keys and certificates are kept. Default `/var/lib/lowroad/acme`.
    pub folder: PathBuf,
    /// Where authorities may write to, as URLs. Default: nowhere.
    pub contact: Vec<String>,
    /// How names are proved. Default `http-01`.
    pub challenge: AcmeChallenge,
    /// Whom to ask, in turn; never empty. Default: Let's Encrypt.
    pub authorities: Vec<AcmeAuthority>,
    /// Orders in an hour, at most. Default 100.
    pub orders_per_hour: u64,
    /// Certificates for names that clients ask for. Default: there are none.
    pub on_demand: Option<OnDemand>,
}

/// How a name is proved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// By an answer without TLS. `"http-01"`
    #[default]
    Http01,
    /// In a handshake. `"tls-alpn-01"`
    TlsAlpn01,
    /// By a command that changes the DNS. `"dns-01"`
    Dns01 {
        /// Program and first arguments; never empty.
        hook: Vec<String>,
        /// After so long it is killed. Default 2 min.
        timeout_ms: u64,
    },
}

/// A CA. `[[acme.authority]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeAuthority {
    /// The URL of its directory.
    pub directory: String,
    /// Identifier of the key of an account that its own site has made, and the file with that key. Default: none.
    pub external: Option<(String, PathBuf)>,
    /// What kind of certificate. Default: the CA's usual one.
    pub profile: Option<String>,
    /// The certificates that it is verified with, in PEM. Default: the system's.
    pub roots: Option<PathBuf>,
}

/// Certificates for names that nobody has listed. `[acme.on_demand]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// Who is asked whether a name is wanted: a URL.
    pub ask: String,
    /// Names in a minute, at most. Default 10.
    pub per_minute: u64,
    /// Names altogether, at most. Default 10,000; about 8 KB of memory each.
    pub names_max: u64,
}

impl AcmeAuthority {
    /// The usual certificates of a CA that makes accounts by itself.
    pub fn new(directory: impl Into<String>) -> AcmeAuthority {
        AcmeAuthority {
            directory: directory.into(),
            external: None,
            profile: None,
            roots: None,
        }
    }
}
