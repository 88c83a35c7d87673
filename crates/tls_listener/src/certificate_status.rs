//! The certificates in use, as reported in metrics.

/// A certificate that is in use or has not been obtained yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The certificate's names, separated by spaces.
    pub names: String,
    /// The origin of the certificate: the path of its file, `local` or `acme`.
    pub source: String,
    /// The last valid second, since 1970; `None` if there is no certificate yet.
    pub not_after_s: Option<u64>,
    /// The time of the next renewal, in seconds since 1970; `None` if the server does not renew this certificate.
    pub renewal_s: Option<u64>,
    /// The error of the last renewal; `None` if the renewal succeeded.
    pub last_error: Option<String>,
}
