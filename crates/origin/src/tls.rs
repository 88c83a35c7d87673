//! TLS to origins: trust store, client certificate and handshake.
//!
//! The trust store is the system's, unless a file replaces it: the operator has chosen its certificate authorities,
//! including private ones, and the distribution updates them. A list in this program would become outdated. The
//! cryptography is AWS-LC, as for clients.

mod handshake_error;
mod stream;

use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lowroad_engine::upstream_socket::UpstreamSocket;
use lowroad_tls::certificates::{self, CertificatePair, CertificatePaths, ProblemReason};
use lowroad_tls::{ClientConnector, ServerTrust, is_server_name};

pub use handshake_error::{HandshakeFault, HandshakeRefusal};
pub use stream::EncryptedStream;

/// Opens the files that the settings name, for a process that lacks the permission to open them itself.
static FILE_OPENER: OnceLock<FileOpener> = OnceLock::new();

/// Opens a file for reading.
pub type FileOpener = fn(&Path) -> io::Result<File>;

/// Sets the function that opens the files that settings name. Only the first call takes effect.
pub fn open_files_with(open: FileOpener) {
    let _ = FILE_OPENER.set(open);
}

fn open(path: &Path) -> io::Result<File> {
    FILE_OPENER
        .get()
        .map_or_else(|| File::open(path), |open| open(path))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsSettingsError> {
    let mut content = Vec::new();
    let read = open(path).and_then(|mut file| io::Read::read_to_end(&mut file, &mut content));
    match read {
        Ok(_) => Ok(content),
        Err(error) => Err(TlsSettingsError::File(path.to_owned(), error.to_string())),
    }
}

/// The maximum number of cached sessions for resumption.
const SESSIONS_MAX: usize = 256;

/// TLS settings for an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginTlsSettings {
    /// The name for the verification of the certificate and for SNI: a host name, or an address, which is never sent as
    /// SNI (RFC 6066 §3).
    pub name: String,
    /// Whether certificates are verified.
    pub verify: bool,
    /// A PEM file with certificate authorities; without it, the system's are used.
    pub authorities: Option<PathBuf>,
    /// The client certificate for origins that request one.
    pub identity: Option<TlsIdentity>,
    /// The protocols offered by ALPN, the preferred one first.
    pub protocols: Vec<String>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// A PEM file with the certificate and its intermediate certificates.
    pub certificates: PathBuf,
    /// A PEM file with the private key.
    pub key: PathBuf,
}

impl OriginTlsSettings {
    /// Settings for HTTP/1.1 with an origin of this name.
    pub fn with_name(name: impl Into<String>) -> OriginTlsSettings {
        OriginTlsSettings {
            name: name.into(),
            verify: true,
            authorities: None,
            identity: None,
            protocols: vec!["http/1.1".into()],
        }
    }
}

/// An error in the settings.
#[derive(Debug)]
pub enum TlsSettingsError {
    /// The name is neither a host name nor an address, so no certificate can be for it.
    Name(String),
    /// A file is unreadable or malformed.
    File(PathBuf, String),
    /// The system has no certificate authorities.
    NoAuthorities,
    /// Certificate and key do not match, or are of an unknown kind.
    Identity(String),
}

impl TlsSettingsError {
    fn from_problem(file: PathBuf, reason: ProblemReason) -> TlsSettingsError {
        match reason {
            ProblemReason::KeyMismatch | ProblemReason::UnusableKey(_) => {
                TlsSettingsError::Identity(reason.to_string())
            }
            ProblemReason::NoCertificate => {
                TlsSettingsError::File(file, "no certificates in it".to_owned())
            }
            ProblemReason::Unreadable(message) | ProblemReason::Malformed(message) => {
                TlsSettingsError::File(file, message)
            }
            reason => TlsSettingsError::File(file, reason.to_string()),
        }
    }
}

impl fmt::Display for TlsSettingsError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsSettingsError::Name(name) => {
                write!(to, "{name:?} is not a name that a certificate can have")
            }
            TlsSettingsError::File(path, message) => write!(to, "{}: {message}", path.display()),
            TlsSettingsError::NoAuthorities => to.write_str(
                "the system has no trusted certificate authorities: install ca-certificates, or name a file",
            ),
            TlsSettingsError::Identity(message) => {
                write!(to, "the client certificate cannot be used: {message}")
            }
        }
    }
}

impl std::error::Error for TlsSettingsError {}

/// Establishes TLS connections to one origin. All workers share the connector, and so its cached sessions.
#[derive(Clone)]
pub struct TlsConnector {
    connector: ClientConnector,
    name: Arc<str>,
}

impl TlsConnector {
    /// Reads the files of the settings. May block.
    ///
    /// # Errors
    /// [`TlsSettingsError`]
    pub fn new(settings: &OriginTlsSettings) -> Result<TlsConnector, TlsSettingsError> {
        // Checked here, so that an invalid name is a configuration error and not a failure of each request.
        if !is_server_name(&settings.name) {
            return Err(TlsSettingsError::Name(settings.name.clone()));
        }
        let trust = trust(settings)?;
        let identity = settings.identity.as_ref().map(pair).transpose()?;
        let protocols: Vec<&str> = settings.protocols.iter().map(String::as_str).collect();
        let connector =
            ClientConnector::new(&trust, &protocols, identity.as_ref(), SESSIONS_MAX, None);
        Ok(TlsConnector {
            connector: connector.map_err(|_| TlsSettingsError::NoAuthorities)?,
            name: settings.name.as_str().into(),
        })
    }

    /// Performs the handshake on a newly connected socket.
    ///
    /// # Errors
    /// The system's error; `HandshakeRefusal` within `InvalidData` if either side rejects the other; `UnexpectedEof` if
    /// the origin closes the connection.
    pub async fn connect(&self, socket: UpstreamSocket) -> io::Result<EncryptedStream> {
        let mut records = Vec::new();
        let client = self.connector.connect(&self.name, &mut records);
        let client = client.map_err(|failure| HandshakeRefusal::error(failure, &self.name))?;
        let mut encrypted = EncryptedStream::new(client, records, socket, self.name.clone());
        poll_fn(|context| encrypted.poll_handshake(context)).await?;
        Ok(encrypted)
    }
}

fn trust(settings: &OriginTlsSettings) -> Result<ServerTrust, TlsSettingsError> {
    match &settings.authorities {
        // verify = false: certificate authorities are not read, even if they are set.
        _ if !settings.verify => Ok(ServerTrust::any_certificate()),
        Some(path) => ServerTrust::from_pem(&read(path)?)
            .map_err(|reason| TlsSettingsError::from_problem(path.clone(), reason)),
        None => Ok(ServerTrust::system()),
    }
}

fn pair(identity: &TlsIdentity) -> Result<CertificatePair, TlsSettingsError> {
    let files = CertificatePaths {
        certificates: identity.certificates.clone(),
        key: identity.key.clone(),
        staple: None,
    };
    // Time 0: the validity period of a client certificate is not checked here, but by the origin.
    match certificates::read_with(&files, 0, open) {
        Ok((pair, _)) => Ok(pair),
        Err(problem) => Err(TlsSettingsError::from_problem(problem.file, problem.reason)),
    }
}
