//! The reasons of failed handshakes, for operators.

use std::fmt;
use std::io;

use lowroad_tls::Failure;

/// A handshake that one of the peers refused.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The kind of reason.
    pub fault: Fault,
    name: String,
    failure: Failure,
}

/// The kind of reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The certificate is for other names.
    Name,
    /// The certificate's time is over.
    Expired,
    /// The certificate's validity period has not begun.
    NotYetValid,
    /// No trusted authority has signed the certificate.
    Issuer,
    /// Another problem with the certificate.
    Certificate,
    /// The origin refused the client certificate, the name (SNI), or all offered parameters.
    ByOrigin,
    /// The origin's bytes are not TLS, or violate the protocol.
    Protocol,
}

impl Refused {
    /// The error of a handshake with `name`.
    pub(super) fn error(failure: Failure, name: &str) -> io::Error {
        let refused = Refused {
            fault: fault(failure.fault),
            name: name.to_owned(),
            failure,
        };
        io::Error::new(io::ErrorKind::InvalidData, refused)
    }
}

fn fault(fault: lowroad_tls::Fault) -> Fault {
    match fault {
        lowroad_tls::Fault::Alert(_) => Fault::ByOrigin,
        lowroad_tls::Fault::CertificateName => Fault::Name,
        lowroad_tls::Fault::CertificateExpired => Fault::Expired,
        lowroad_tls::Fault::CertificateNotYetValid => Fault::NotYetValid,
        lowroad_tls::Fault::CertificateIssuer => Fault::Issuer,
        lowroad_tls::Fault::Certificate => Fault::Certificate,
        _ => Fault::Protocol,
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { name, failure, .. } = self;
        let error: &dyn fmt::Display = match failure.reason() {
            Some(error) => error,
            None => failure,
        };
        match self.fault {
            Fault::Name => write!(to, "the origin's certificate is not for {name}: {error}"),
            Fault::Expired => write!(to, "the certificate of {name} has expired: {error}"),
            Fault::NotYetValid => write!(to, "the certificate of {name} is not valid yet: {error}"),
            Fault::Issuer => write!(
                to,
                "no trusted authority has signed the certificate of {name} (is it self-signed?): {error}"
            ),
            Fault::Certificate => write!(to, "the certificate of {name} is not accepted: {error}"),
            Fault::ByOrigin => write!(to, "{name} refused the TLS handshake: {error}"),
            Fault::Protocol => write!(to, "{name} does not speak TLS as it should: {error}"),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}
