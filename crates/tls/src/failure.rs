//! The reasons for which a connection fails.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error, PeerMisbehaved};

/// The failure of a connection. The bytes to send already contain the alert for the peer.
#[derive(Clone, Debug)]
pub struct TlsFailure {
    /// The class of the failure; each has a counter.
    pub fault: TlsFault,
    error: Option<Error>,
}

/// Classes of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsFault {
    /// The client sent HTTP without TLS; it should get a response in plaintext.
    PlainHttp,
    /// The first bytes are not TLS.
    NotTls,
    /// No common version, cipher suite, key exchange, signature or application protocol.
    NothingInCommon,
    /// No certificate matches the requested name.
    NoCertificate,
    /// The peer was required to present a certificate and did not.
    CertificateMissing,
    /// The peer's certificate is valid for other names.
    CertificateName,
    /// The peer's certificate has expired.
    CertificateExpired,
    /// The peer's certificate is not valid yet.
    CertificateNotYetValid,
    /// The peer's certificate is not signed by a trusted authority.
    CertificateIssuer,
    /// The peer's certificate is rejected for another reason.
    Certificate,
    /// The peer ended the connection with this alert.
    Alert(u8),
    /// A record cannot be decrypted: it was changed in transit, or encrypted for another connection.
    Undecryptable,
    /// A record is longer than allowed.
    Oversized,
    /// The peer violates TLS in another way.
    Protocol,
    /// The keys have reached their limit of encrypted records (TLS 1.2 only, which cannot update keys).
    Exhausted,
    /// The caller encrypted before the handshake was complete, or after the connection had ended.
    NotReady,
    /// An internal error of this program or of the system.
    Internal,
}

impl TlsFailure {
    pub(crate) fn from_error(error: Error) -> TlsFailure {
        TlsFailure {
            fault: fault(&error),
            error: Some(error),
        }
    }
}

impl TlsFailure {
    /// The error of `rustls`, if it reported one.
    pub(crate) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// The reason in detail, if known.
    pub fn reason(&self) -> Option<&impl fmt::Display> {
        self.error.as_ref()
    }
}

impl From<TlsFault> for TlsFailure {
    fn from(fault: TlsFault) -> TlsFailure {
        TlsFailure { fault, error: None }
    }
}

/// The error text of `rustls` if the resolver returns no certificate; `rustls` has no variant for this error.
pub(crate) const NO_CERTIFICATE: &str = "no server certificate chain resolved";

fn fault(error: &Error) -> TlsFault {
    match error {
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => TlsFault::NothingInCommon,
        Error::NoCertificatesPresented => TlsFault::CertificateMissing,
        Error::InvalidCertificate(error) => from_certificate_error(error),
        Error::AlertReceived(alert) => TlsFault::Alert(u8::from(*alert)),
        Error::DecryptError => TlsFault::Undecryptable,
        Error::PeerSentOversizedRecord => TlsFault::Oversized,
        Error::General(text) if text == NO_CERTIFICATE => TlsFault::NoCertificate,
        Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::InvalidMessage(_)
        | Error::InvalidEncryptedClientHello(_)
        | Error::PeerMisbehaved(_) => TlsFault::Protocol,
        _ => TlsFault::Internal,
    }
}

fn from_certificate_error(error: &CertificateError) -> TlsFault {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match error {
        NotValidForName | NotValidForNameContext { .. } => TlsFault::CertificateName,
        Expired | ExpiredContext { .. } => TlsFault::CertificateExpired,
        NotValidYet | NotValidYetContext { .. } => TlsFault::CertificateNotYetValid,
        UnknownIssuer => TlsFault::CertificateIssuer,
        _ => TlsFault::Certificate,
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.fault {
            TlsFault::PlainHttp => "the client speaks HTTP without TLS",
            TlsFault::NotTls => "the first bytes are not TLS",
            TlsFault::NothingInCommon => "no TLS version or cipher suite in common",
            TlsFault::NoCertificate => "no certificate for the requested name",
            TlsFault::CertificateMissing => "the peer sent no certificate",
            TlsFault::CertificateName => "the peer's certificate is for other names",
            TlsFault::CertificateExpired => "the peer's certificate has expired",
            TlsFault::CertificateNotYetValid => "the peer's certificate is not valid yet",
            TlsFault::CertificateIssuer => "no trusted authority signed the peer's certificate",
            TlsFault::Certificate => "the peer's certificate was rejected",
            TlsFault::Alert(_) => "the peer sent an alert",
            TlsFault::Undecryptable => "a record cannot be decrypted",
            TlsFault::Oversized => "a record is too long",
            TlsFault::Protocol => "the peer violates the TLS protocol",
            TlsFault::Exhausted => "the keys have reached their limit of encrypted records",
            TlsFault::NotReady => "the session can't encrypt yet",
            TlsFault::Internal => "internal TLS error",
        };
        f.write_str(text)?;
        match (&self.fault, &self.error) {
            (TlsFault::Alert(code), _) => write!(f, ": {:?}", AlertDescription::from(*code)),
            (_, Some(Error::PeerMisbehaved(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec))) => {
                f.write_str(": a record that is not encrypted, or of an unexpected type")
            }
            (_, Some(error)) => write!(f, ": {error}"),
            (_, None) => Ok(()),
        }
    }
}

impl std::error::Error for TlsFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}
