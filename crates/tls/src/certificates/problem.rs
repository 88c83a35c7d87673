//! What is wrong with files of certificates and keys, for operators.

use std::fmt;
use std::path::PathBuf;

use crate::x509::display_time;

/// Something that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It cannot be read.
    Unreadable(String),
    /// What is in it cannot be understood.
    Malformed(String),
    /// There is no certificate in it.
    NoCertificate,
    /// There is no private key in it.
    NoKey,
    /// The key is protected by a passphrase.
    EncryptedKey,
    /// The key is of a kind or size that cannot be used.
    UnusableKey(String),
    /// The key is another certificate's.
    KeyMismatch,
    /// It has no name of a host and no address; browsers do not look at anything else.
    NoName,
    /// Its time is over since then.
    Expired(i64),
    /// Its time begins then.
    NotYetValid(i64),
    /// The certificate at this place, the server's own being the first, has not signed the one before it.
    WrongOrder(usize),
    /// This issuer's certificate is not in the file, and nobody need have it.
    IncompleteChain(String),
    /// The certificate that comes first is an authority's.
    Authority,
    /// It is no response of OCSP, or one that says nothing; it is not stapled.
    NoResponse,
    /// Others than owner and group may read the key.
    OpenToAll(u32),
    /// Others than the owner may change it.
    WritableByOthers(u32),
}

impl Problem {
    pub(crate) fn new(file: impl Into<PathBuf>, reason: Reason) -> Problem {
        Problem {
            file: file.into(),
            reason,
        }
    }

    /// Whether the file cannot be read, so that nothing is known about its contents.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.reason, Reason::Unreadable(_))
    }

    /// Whether the certificate cannot be shown at all. The others are of use to some clients.
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
