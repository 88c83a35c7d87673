//! TLS to origins: whom to trust, whose name to ask for, and the handshake. It knows nothing of pools, nor
//! of what is spoken.
//!
//! Authorities are those of the system, unless a file names others: they are what the machine's operator
//! has decided to trust, private ones included, and the distribution keeps them up to date. A list in
//! the program would be a second one that grows old. The cryptography is that of AWS-LC, as towards clients.

mod encrypted;
mod refused;

use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lowroad_engine::outgoing::Outgoing;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WantsClientCert};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

pub use encrypted::Encrypted;
pub use refused::{Fault, Refused};

/// Opens the files of settings, for a process that may not open all of them by itself.
static OPEN: OnceLock<OpenFile> = OnceLock::new();

/// Opens a file for reading.
pub type OpenFile = fn(&Path) -> io::Result<File>;

/// Has the files of all settings opened by this function from now on. The first call counts.
pub fn open_files_with(open: OpenFile) {
    let _ = OPEN.set(open);
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let opened = match OPEN.get() {
        Some(open) => open(path),
        None => File::open(path),
    };
    let mut content = Vec::new();
    let read = opened.and_then(|mut file| io::Read::read_to_end(&mut file, &mut content));
    match read {
        Ok(_) => Ok(content),
        Err(error) => Err(Error::File(path.to_owned(), error.to_string())),
    }
}

/// Sessions that are kept for resumption.
const SESSIONS_MAX: usize = 256;

/// How TLS is spoken with an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whose certificate is wanted, and what is said as SNI: a host name, or an address, which is
    /// never said.
    pub name: String,
    /// `false`: whoever answers is believed to be the origin.
    pub verify: bool,
    /// A PEM file with authorities; without one, those of the system.
    pub authorities: Option<PathBuf>,
    /// What is shown to origins that ask who we are.
    pub identity: Option<Identity>,
    /// What is offered by ALPN, the preferred first.
    pub protocols: Vec<String>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A PEM file with the certificate and those between it and its authority.
    pub certificates: PathBuf,
    /// A PEM file with its key.
    pub key: PathBuf,
}

impl Settings {
    /// As an origin with this name is asked in HTTP/1.1.
    pub fn of(name: impl Into<String>) -> Settings {
        Settings {
            name: name.into(),
            verify: true,
            authorities: None,
            identity: None,
            protocols: vec!["http/1.1".into()],
        }
    }
}

/// What is wrong with settings.
#[derive(Debug)]
pub enum Error {
    /// The name is none that a certificate can have.
    Name(String),
    /// A file that is not what it should be.
    File(PathBuf, String),
    /// The system has no authorities.
    NoAuthorities,
    /// Certificate and key do not belong together, or are of an unknown kind.
    Identity(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Name(name) => write!(to, "{name:?} is no name that a certificate can have"),
            Error::File(path, why) => write!(to, "{}: {why}", path.display()),
            Error::NoAuthorities => to.write_str(
                "the system has no authorities to trust: install ca-certificates, or name a file",
            ),
            Error::Identity(why) => write!(to, "the client certificate cannot be used: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Makes encrypted connections to one origin; for all workers, which so share its sessions.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the files that the settings name. May block.
    ///
    /// # Errors
    /// [`Error`]
    pub fn new(settings: &Settings) -> Result<Tls, Error> {
        let name = ServerName::try_from(settings.name.clone())
            .map_err(|_| Error::Name(settings.name.clone()))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions");
        let builder = match settings.verify {
            true => builder.with_root_certificates(authorities(settings)?),
            false => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider))),
        };
        let mut config = with_identity(builder, settings.identity.as_ref())?;
        let protocols = settings.protocols.iter();
        config.alpn_protocols = protocols.map(|name| name.clone().into_bytes()).collect();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        let config = Arc::new(config);
        Ok(Tls { config, name })
    }

    /// Shakes hands on a socket that has just connected.
    ///
    /// # Errors
    /// What the system says; [`Refused`] within `InvalidData` if either side refuses the other;
    /// `UnexpectedEof` if the origin closes.
    pub async fn connect(&self, socket: Outgoing) -> io::Result<Encrypted> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(|error| Refused::of(error, &self.name))?;
        let mut encrypted = Encrypted::new(connection, socket, self.name.clone());
        poll_fn(|context| encrypted.poll_handshake(context)).await?;
        Ok(encrypted)
    }
}

fn authorities(settings: &Settings) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match &settings.authorities {
        Some(path) => {
            let wrong = |why: &dyn fmt::Display| Error::File(path.clone(), why.to_string());
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        None => {
            // What cannot be read is no reason not to trust the others.
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    match roots.is_empty() {
        true => Err(Error::NoAuthorities),
        false => Ok(roots),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let wrong = |why: &dyn fmt::Display| Error::File(path.to_owned(), why.to_string());
    let content = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let found = found.map_err(|error| wrong(&error))?;
    match found.is_empty() {
        true => Err(wrong(&"no certificates")),
        false => Ok(found),
    }
}

fn with_identity(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, Error> {
    let Some(identity) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(&identity.certificates)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&identity.key)?)
        .map_err(|error| Error::File(identity.key.clone(), error.to_string()))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| Error::Identity(error.to_string()))
}

/// Trusts anybody, but still checks that they hold the key of what they show.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
