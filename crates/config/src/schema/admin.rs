//! The admin service on TCP.

use crate::secret::SecretText;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The admin service: on TCP, for other machines and for tools without access to the Unix socket, and the file of its
/// changes. `[admin]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address at which the service listens; None: on the Unix socket only. Never set without a token or
    /// [`AdminTlsConfig::clients`].
    pub listen: Option<SocketAddr>,
    /// The token that permits everything.
    pub token: Option<SecretText>,
    /// The token that permits looking only.
    pub read_token: Option<SecretText>,
    /// The file of the token that permits everything.
    pub token_file: Option<PathBuf>,
    /// The file of the token that permits looking only.
    pub read_token_file: Option<PathBuf>,
    /// TLS at the address; None: clear text.
    pub tls: Option<AdminTlsConfig>,
    /// The file of the changes of operators that survive restarts; None: all end with a restart.
    pub changes: Option<PathBuf>,
}

/// TLS at the address of the admin service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminTlsConfig {
    /// The certificate and its intermediate certificates, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM; may be the same file.
    pub key: PathBuf,
    /// The clients that may connect; None: clients are not asked for certificates, and need a token.
    pub clients: Option<AdminClientConfig>,
}

/// The client certificates of the admin service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminClientConfig {
    /// The authorities of client certificates, in PEM. A client without a certificate of theirs is refused in the
    /// handshake; with one it may look.
    pub authorities: PathBuf,
    /// The subjects (RFC 4514) of certificates that permit everything. Default: none.
    pub full_subjects: Vec<String>,
}
