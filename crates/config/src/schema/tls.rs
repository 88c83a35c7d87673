//! How a site is served over TLS. Read RFC 8446 and RFC 6797.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Pattern;

/// TLS of a site. `[site.tls]`
///
/// What sites have in common that share an address: [`Tls::clients`] and [`Tls::version_min`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The addresses at which it is spoken; never empty, and nowhere among [`super::Site::listen`]. Default `*:443`.
    pub listen: Vec<SocketAddr>,
    /// The site's certificates, one for each kind of key or for different names. Empty only if it is [`Tls::local`] or
    /// [`Tls::automatic`].
    pub certificates: Vec<CertificateFiles>,
    /// A certificate for its names is signed by this machine's own authority at each start: for development. Default false.
    pub local: bool,
    /// Certificates for its names come from `[acme]`. Default false.
    pub automatic: bool,
    /// Whether clients show certificates. Default: they are not asked.
    pub clients: ClientCertificates,
    /// The paths that nobody gets without a certificate. Default: none.
    pub client_paths: Vec<Pattern>,
    /// The oldest version. Default 1.2.
    pub version_min: TlsVersion,
    /// The value of Strict-Transport-Security. Default: none is sent.
    pub hsts: Option<String>,
    /// Requests in plain text are sent here. Default false.
    pub redirect: bool,
}

/// Where a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate and those between it and its authority, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM; may be the same file.
    pub key: PathBuf,
    /// A response of OCSP, in DER.
    pub staple: Option<PathBuf>,
}

/// Whether clients show certificates, and who has signed those that are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    None,
    /// They may. `"request"`
    Request(PathBuf),
    /// They must. `"require"`
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
