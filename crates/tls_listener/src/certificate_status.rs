//! The certificates in use, for metrics.

/// A certificate in use, or one that is still to be obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// Its names, separated by spaces.
    pub names: String,
    /// Where it comes from: its file, `local` or `acme`.
    pub source: String,
    /// Its last valid second since 1970; `None` before there is one.
    pub not_after_s: Option<u64>,
    /// When it is renewed next, in seconds since 1970; `None` if the server does not renew it.
    pub renewal_s: Option<u64>,
    /// Why its last renewal failed, if no success followed.
    pub last_error: Option<String>,
}
