//! TLS of a site (RFC 8446, RFC 6797).

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::PathPattern;

/// TLS of a site. `[site.tls]`
///
/// Sites that share an address must agree in `TlsConfig::clients` and `TlsConfig::version_min`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The addresses with TLS; never empty, and none of them in `SiteConfig::listen`. Default `*:443`.
    pub listen: Vec<SocketAddr>,
    /// The site's certificates, one for each kind of key or for different names. Empty only with `TlsConfig::local` or
    /// `TlsConfig::automatic`.
    pub certificates: Vec<CertificateFiles>,
    /// For development: at each start, this machine's own authority signs a certificate for the names. Default false.
    pub local: bool,
    /// Whether certificates for its names come from `[acme]`. Default false.
    pub automatic: bool,
    /// Client certificates. Default: not requested.
    pub clients: ClientAuthConfig,
    /// The paths that require a client certificate. Default: none.
    pub client_paths: Vec<PathPattern>,
    /// The oldest version accepted. Default 1.2.
    pub version_min: TlsVersion,
    /// Handshakes without the name of a certificate of the address are refused. Applies to all sites of the addresses.
    /// Default false.
    pub strict_sni: bool,
    /// The value of Strict-Transport-Security. Default: none is sent.
    pub hsts: Option<String>,
    /// Whether requests in plain text are redirected to https. Default false.
    pub redirect: bool,
}

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and its intermediate certificates, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM; may be the same file.
    pub key: PathBuf,
    /// A stapled OCSP response, in DER.
    pub staple: Option<PathBuf>,
}

/// Whether client certificates are requested, and the authorities that verify them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuthConfig {
    /// Not requested.
    #[default]
    None,
    /// Optional. `"request"`
    Request(PathBuf),
    /// Mandatory. `"require"`
    Require(PathBuf),
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246. `"1.2"`
    #[default]
    Tls12,
    /// RFC 8446. `"1.3"`
    Tls13,
}
