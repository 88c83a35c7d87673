//! Problems of certificate and key files, for operators.

use std::fmt;
use std::path::PathBuf;

use crate::x509::display_time;

/// A problem with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file with the problem.
    pub file: PathBuf,
    /// The kind of problem.
    pub reason: Reason,
}

/// Kinds of problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
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

impl Problem {
    pub(crate) fn new(file: impl Into<PathBuf>, reason: Reason) -> Problem {
        Problem {
            file: file.into(),
            reason,
        }
    }

    /// Whether the file cannot be read, so that its contents are unknown.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.reason, Reason::Unreadable(_))
    }

    /// Whether the certificate is unusable. With any other problem, some clients can still use it.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self.reason,
            Reason::Unreadable(_)
                | Reason::Malformed(_)
                | Reason::NoCertificate
                | Reason::NoKey
                | Reason::EncryptedKey
                | Reason::UnusableKey(_)
                | Reason::KeyMismatch
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.file.display(), self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Unreadable(why) => write!(to, "cannot be read: {why}"),
            Reason::Malformed(why) => write!(to, "cannot be understood: {why}"),
            Reason::NoCertificate => to.write_str("there is no certificate in it"),
            Reason::NoKey => to.write_str("there is no private key in it"),
            Reason::EncryptedKey => to.write_str("the key is protected by a passphrase"),
            Reason::UnusableKey(why) => write!(to, "the key cannot be used: {why}"),
            Reason::KeyMismatch => to.write_str("the key does not fit the certificate"),
            Reason::NoName => to.write_str("the certificate names no host"),
            Reason::Expired(when) => {
                write!(to, "the certificate has expired: {}", display_time(*when))
            }
            Reason::NotYetValid(when) => {
                write!(
                    to,
                    "the certificate is not valid before {}",
                    display_time(*when)
                )
            }
            Reason::WrongOrder(place) => write!(
                to,
                "certificate {place} has not signed the one before it; each must be followed by its issuer's"
            ),
            Reason::IncompleteChain(issuer) => write!(
                to,
                "the chain is incomplete: append the certificate of {issuer}"
            ),
            Reason::Authority => to.write_str(
                "the first certificate is an authority's; the server's own must come first",
            ),
            Reason::NoResponse => {
                to.write_str("it is no response of OCSP, or none that says something")
            }
            Reason::OpenToAll(mode) => write!(
                to,
                "anybody can read the key (mode {mode:o}); take it from them with chmod o-rwx"
            ),
            Reason::WritableByOthers(mode) => write!(
                to,
                "others can change it (mode {mode:o}); take it from them with chmod go-w"
            ),
        }
    }
}
