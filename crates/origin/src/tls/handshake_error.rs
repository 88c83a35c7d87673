//! Explains failed TLS handshakes to operators.

use std::fmt;
use std::io;

use lowroad_tls::TlsFailure;

/// A TLS handshake that failed because one of the peers rejected it.
#[derive(Clone, Debug)]
pub struct HandshakeRefusal {
    /// The kind of reason.
    pub fault: HandshakeFault,
    name: String,
    failure: TlsFailure,
}

/// The kind of reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The certificate is for other names.
    Name,
    /// The certificate has expired.
    Expired,
    /// The certificate's validity period has not begun.
    NotYetValid,
    /// No trusted authority has signed the certificate.
    Issuer,
    /// Another problem with the certificate.
    Certificate,
    /// The origin rejected the client certificate, the name (SNI), or all offered parameters.
    ByOrigin,
    /// The origin's bytes are not TLS, or violate the protocol.
    Protocol,
}

impl HandshakeRefusal {
    /// The error for a failed handshake with `name`.
    pub(super) fn error(failure: TlsFailure, name: &str) -> io::Error {
        let refusal = HandshakeRefusal {
            fault: fault(failure.fault),
            name: name.to_owned(),
            failure,
        };
        io::Error::new(io::ErrorKind::InvalidData, refusal)
    }
}

fn fault(fault: lowroad_tls::TlsFault) -> HandshakeFault {
    match fault {
        lowroad_tls::TlsFault::Alert(_) => HandshakeFault::ByOrigin,
        lowroad_tls::TlsFault::CertificateName => HandshakeFault::Name,
        lowroad_tls::TlsFault::CertificateExpired => HandshakeFault::Expired,
        lowroad_tls::TlsFault::CertificateNotYetValid => HandshakeFault::NotYetValid,
        lowroad_tls::TlsFault::CertificateIssuer => HandshakeFault::Issuer,
        lowroad_tls::TlsFault::Certificate => HandshakeFault::Certificate,
        _ => HandshakeFault::Protocol,
    }
}

impl fmt::Display for HandshakeRefusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HandshakeRefusal { name, failure, .. } = self;
        let error: &dyn fmt::Display = match failure.reason() {
            Some(error) => error,
            None => failure,
        };
        match self.fault {
            HandshakeFault::Name => {
                write!(to, "the origin's certificate is not for {name}: {error}")
            }
            HandshakeFault::Expired => write!(to, "the certificate of {name} has expired: {error}"),
            HandshakeFault::NotYetValid => {
                write!(to, "the certificate of {name} is not valid yet: {error}")
            }
            HandshakeFault::Issuer => write!(
                to,
                "no trusted authority signed the certificate of {name} (is it self-signed?): {error}"
            ),
            HandshakeFault::Certificate => {
                write!(to, "the certificate of {name} was rejected: {error}")
            }
            HandshakeFault::ByOrigin => write!(to, "{name} refused the TLS handshake: {error}"),
            HandshakeFault::Protocol => {
                write!(to, "{name} violates the TLS protocol: {error}")
            }
        }
    }
}

impl std::error::Error for HandshakeRefusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}
