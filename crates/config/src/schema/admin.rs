//! The admin service on TCP.

use crate::secret::SecretText;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The admin service for other machines and for tools without access to the Unix socket. `[admin]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address at which the service listens; None: on the Unix socket only. Never set without a token.
    pub listen: Option<SocketAddr>,
    /// The token that permits everything.
    pub token: Option<SecretText>,
    /// The token that permits looking only.
    pub read_token: Option<SecretText>,
    /// The file of the token that permits everything.
    pub token_file: Option<PathBuf>,
    /// The file of the token that permits looking only.
    pub read_token_file: Option<PathBuf>,
}
