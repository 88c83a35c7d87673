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
    /// The certificate has no DNS name and no IP address, the only names that browsers check.
    NoName,
    /// The certificate expired at this time.
    Expired(i64),
    /// The certificate is valid from this time on.
    NotYetValid(i64),
    /// The certificate at this position (the server's own is 1) is not the issuer of the one before it.
    WrongOrder(usize),
    /// The file lacks this issuer's certificate, which clients may not have.
    IncompleteChain(String),
    /// The first certificate is that of an authority.
    Authority,
    /// The file holds no successful OCSP response; nothing is stapled.
    NoResponse,
    /// The key file grants permissions to all users (this mode).
    WorldAccessibleKey(u32),
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

    /// Whether reading the file failed, so that its contents are unknown.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.reason, ProblemReason::Unreadable(_))
    }

    /// Whether the problem makes the certificate unusable. Despite any other problem, some clients can use it.
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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.reason)
    }
}

impl fmt::Display for ProblemReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProblemReason::Unreadable(error) => write!(f, "cannot be read: {error}"),
            ProblemReason::Malformed(error) => write!(f, "cannot be parsed: {error}"),
            ProblemReason::NoCertificate => f.write_str("it contains no certificate"),
            ProblemReason::NoKey => f.write_str("it contains no private key"),
            ProblemReason::EncryptedKey => f.write_str("the key is protected by a passphrase"),
            ProblemReason::UnusableKey(error) => write!(f, "the key cannot be used: {error}"),
            ProblemReason::KeyMismatch => f.write_str("the key does not match the certificate"),
            ProblemReason::NoName => f.write_str("the certificate names no host"),
            ProblemReason::Expired(unix_s) => {
                write!(f, "the certificate has expired: {}", display_time(*unix_s))
            }
            ProblemReason::NotYetValid(unix_s) => {
                write!(
                    f,
                    "the certificate is not valid before {}",
                    display_time(*unix_s)
                )
            }
            ProblemReason::WrongOrder(index) => write!(
                f,
                "certificate {index} did not sign the one before it; put the issuer of each certificate after it"
            ),
            ProblemReason::IncompleteChain(issuer) => write!(
                f,
                "the chain is incomplete: append the certificate of {issuer}"
            ),
            ProblemReason::Authority => f.write_str(
                "the first certificate is an authority's; the server's own must come first",
            ),
            ProblemReason::NoResponse => {
                f.write_str("not an OCSP response, or one without a status")
            }
            ProblemReason::WorldAccessibleKey(mode) => write!(
                f,
                "every user can read the key (mode {mode:o}); run chmod o-rwx"
            ),
            ProblemReason::WritableByOthers(mode) => write!(
                f,
                "other users can change it (mode {mode:o}); run chmod go-w"
            ),
        }
    }
}
