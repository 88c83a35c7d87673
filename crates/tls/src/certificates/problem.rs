//! Problems of certificate and key files, for operators.

use std::fmt;
use std::path::PathBuf;

use crate::x509::display_time;

/// A problem with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProblem {
    /// The file with the problem.
    pub file: PathBuf,
    /// The kind of problem.
    pub reason: ProblemReason,
}

/// Kinds of problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemReason {
    /// Reading the file failed.
    Unreadable(String),
    /// The content cannot be parsed.
    Malformed(String),
    /// The file has no certificate.
    NoCertificate,
    /// The file has no private key.
    NoKey,
    /// The key is protected by a passphrase.
    EncryptedKey,
    /// The kind or size of the key is not supported.
    UnusableKey(String),
    /// The key belongs to another certificate.
    KeyMismatch,
    /// The certificate has no DNS name and no IP address; browsers look at nothing else.
    NoName,
    /// The certificate expired at this time.
    Expired(i64),
    /// The certificate is valid from this time on.
    NotYetValid(i64),
    /// The certificate at this position (1: the server's own) did not sign the one before it.
    WrongOrder(usize),
    /// This issuer's certificate is missing in the file, and clients need not have it.
    IncompleteChain(String),
    /// The first certificate is an authority's.
    Authority,
    /// The file holds no successful OCSP response; it is not stapled.
    NoResponse,
    /// Users other than owner and group may read the key.
    OpenToAll(u32),
    /// Users other than the owner may change the file.
    WritableByOthers(u32),
}

impl CertificateProblem {
    pub(crate) fn new(file: impl Into<PathBuf>, reason: ProblemReason) -> CertificateProblem {
        CertificateProblem {
            file: file.into(),
            reason,
        }
    }

    /// Whether the file cannot be read, so that its contents are unknown.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.reason, ProblemReason::Unreadable(_))
    }

    /// Whether the certificate is unusable. With any other problem, some clients can still use it.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self.reason,
            ProblemReason::Unreadable(_)
                | ProblemReason::Malformed(_)
                | ProblemReason::NoCertificate
                | ProblemReason::NoKey
                | ProblemReason::EncryptedKey
                | ProblemReason::UnusableKey(_)
                | ProblemReason::KeyMismatch
        )
    }
}

impl fmt::Display for CertificateProblem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.file.display(), self.reason)
    }
}

impl fmt::Display for ProblemReason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProblemReason::Unreadable(why) => write!(to, "cannot be read: {why}"),
            ProblemReason::Malformed(why) => write!(to, "cannot be parsed: {why}"),
            ProblemReason::NoCertificate => to.write_str("it contains no certificate"),
            ProblemReason::NoKey => to.write_str("it contains no private key"),
            ProblemReason::EncryptedKey => to.write_str("the key is protected by a passphrase"),
            ProblemReason::UnusableKey(why) => write!(to, "the key cannot be used: {why}"),
            ProblemReason::KeyMismatch => to.write_str("the key does not match the certificate"),
            ProblemReason::NoName => to.write_str("the certificate names no host"),
            ProblemReason::Expired(when) => {
                write!(to, "the certificate has expired: {}", display_time(*when))
            }
            ProblemReason::NotYetValid(when) => {
                write!(
                    to,
                    "the certificate is not valid before {}",
                    display_time(*when)
                )
            }
            ProblemReason::WrongOrder(place) => write!(
                to,
                "certificate {place} did not sign the one before it; put the issuer of each certificate after it"
            ),
            ProblemReason::IncompleteChain(issuer) => write!(
                to,
                "the chain is incomplete: append the certificate of {issuer}"
            ),
            ProblemReason::Authority => to.write_str(
                "the first certificate is an authority's; the server's own must come first",
            ),
            ProblemReason::NoResponse => {
                to.write_str("not an OCSP response, or one without a status")
            }
            ProblemReason::OpenToAll(mode) => write!(
                to,
                "every user can read the key (mode {mode:o}); run chmod o-rwx"
            ),
            ProblemReason::WritableByOthers(mode) => write!(
                to,
                "other users can change it (mode {mode:o}); run chmod go-w"
            ),
        }
    }
}
