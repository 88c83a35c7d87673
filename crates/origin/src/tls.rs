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
use lowroad_tls::certificates::{self, Files, Pair, Reason};
use lowroad_tls::{Connector, Trust, is_server_name};

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

fn open(path: &Path) -> io::Result<File> {
    OPEN.get()
        .map_or_else(|| File::open(path), |open| open(path))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = open(path).and_then(|mut file| io::Read::read_to_end(&mut file, &mut content));
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

impl Error {
    fn of(file: PathBuf, reason: Reason) -> Error {
        match reason {
            Reason::KeyMismatch | Reason::UnusableKey(_) => Error::Identity(reason.to_string()),
            Reason::NoCertificate => Error::File(file, "no certificates".to_owned()),
            Reason::Unreadable(why) | Reason::Malformed(why) => Error::File(file, why),
            reason => Error::File(file, reason.to_string()),
        }
    }
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
    connector: Connector,
    name: Arc<str>,
}

impl Tls {
    /// Reads the files that the settings name. May block.
    ///
    /// # Errors
    /// [`Error`]
    pub fn new(settings: &Settings) -> Result<Tls, Error> {
        if !is_server_name(&settings.name) {
            return Err(Error::Name(settings.name.clone()));
        }
        let trust = trust(settings)?;
        let identity = settings.identity.as_ref().map(pair).transpose()?;
        let protocols: Vec<&str> = settings.protocols.iter().map(String::as_str).collect();
        let connector = Connector::new(&trust, &protocols, identity.as_ref(), SESSIONS_MAX, None);
        Ok(Tls {
            connector: connector.map_err(|_| Error::NoAuthorities)?,
            name: settings.name.as_str().into(),
        })
    }

    /// Shakes hands on a socket that has just connected.
    ///
    /// # Errors
    /// What the system says; [`Refused`] within `InvalidData` if either side refuses the other;
    /// `UnexpectedEof` if the origin closes.
    pub async fn connect(&self, socket: Outgoing) -> io::Result<Encrypted> {
        let mut records = Vec::new();
        let client = self.connector.connect(&self.name, &mut records);
        let client = client.map_err(|failure| Refused::error(failure, &self.name))?;
        let mut encrypted = Encrypted::new(client, records, socket, self.name.clone());
        poll_fn(|context| encrypted.poll_handshake(context)).await?;
        Ok(encrypted)
    }
}

fn trust(settings: &Settings) -> Result<Trust, Error> {
    match &settings.authorities {
        _ if !settings.verify => Ok(Trust::any_certificate()),
        Some(path) => {
            Trust::from_pem(&read(path)?).map_err(|reason| Error::of(path.clone(), reason))
        }
        None => Ok(Trust::system()),
    }
}

fn pair(identity: &Identity) -> Result<Pair, Error> {
    let files = Files {
        certificates: identity.certificates.clone(),
        key: identity.key.clone(),
        staple: None,
    };
    // The time is for doubts about a certificate, which are the origin's to have.
    match certificates::read_with(&files, 0, open) {
        Ok((pair, _)) => Ok(pair),
        Err(problem) => Err(Error::of(problem.file, problem.reason)),
    }
}
