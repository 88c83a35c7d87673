//! Why a handshake failed, for operators. It knows nothing of sockets.

use std::fmt;
use std::io;

use rustls::CertificateError;
use rustls::pki_types::ServerName;

/// A handshake that one side refused.
#[derive(Clone, Debug)]
pub struct Refused {
    /// What kind of reason.
    pub fault: Fault,
    name: String,
    error: rustls::Error,
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The certificate is for other names.
    Name,
    /// The certificate's time is over.
    Expired,
    /// The certificate's time has not come.
    NotYetValid,
    /// No authority that is trusted has signed the certificate.
    Issuer,
    /// Something else is wrong with the certificate.
    Certificate,
    /// The origin refused: our certificate, our name for it, or all that we offer.
    ByOrigin,
    /// What it said is not TLS, or not as it should be.
    Protocol,
}

impl Refused {
    /// What an error means with the certificate of `name`.
    pub(super) fn of(error: rustls::Error, name: &ServerName<'_>) -> io::Error {
        let refused = Refused {
            fault: fault(&error),
            name: name.to_str().into_owned(),
            error,
        };
        io::Error::new(io::ErrorKind::InvalidData, refused)
    }
}

fn fault(error: &rustls::Error) -> Fault {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let rustls::Error::InvalidCertificate(error) = error else {
        return match error {
            rustls::Error::AlertReceived(_) => Fault::ByOrigin,
            _ => Fault::Protocol,
        };
    };
    match error {
        NotValidForName | NotValidForNameContext { .. } => Fault::Name,
        Expired | ExpiredContext { .. } => Fault::Expired,
        NotValidYet | NotValidYetContext { .. } => Fault::NotYetValid,
        UnknownIssuer => Fault::Issuer,
        _ => Fault::Certificate,
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { name, error, .. } = self;
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
        Some(&self.error)
    }
}
