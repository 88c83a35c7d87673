//! A certificate authority for development: made on this machine, trusted by nobody until its owner says so.
//! It signs certificates for names of the local machine.
//!
//! The authority's certificate and key are kept in a folder of their own, the key for nobody but its owner. It lasts
//! ten years; what it signs, for as long as browsers accept. It may sign others, but no authorities.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::certificates::{Pair, Texts};
use crate::x509::{Certificate, common_name};

const CERTIFICATE_FILE: &str = "authority.pem";
const KEY_FILE: &str = "authority.key";
const DAY_S: u64 = 86_400;
/// How long the authority lasts.
const AUTHORITY_DAYS: u64 = 3650;
/// How long a certificate lasts.
const LEAF_DAYS: u64 = 397;
/// Before an end, an authority is replaced when it is next asked for.
const RENEWED_DAYS: u64 = 400;
/// For clients with slow clocks.
const SLACK_S: u64 = 3600;
/// What certificates are always for.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// An authority.
pub struct Authority {
    folder: PathBuf,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Why there is no authority, or no certificate.
#[derive(Debug)]
pub enum Error {
    /// What the system says of a file.
    File(PathBuf, io::Error),
    /// What is in the folder is no authority of ours.
    Unusable(PathBuf, String),
    /// No certificate can be made.
    Making(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(path, error) => write!(to, "{}: {error}", path.display()),
            Error::Unusable(path, why) => write!(
                to,
                "{} cannot be used: {why}; remove the folder to have a new authority made",
                path.display()
            ),
            Error::Making(why) => write!(to, "no certificate can be made: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl Authority {
    /// That of a folder, which is made if it is not there. `host` is what its name tells it apart by. May block.
    ///
    /// # Errors
    /// [`Error`]
    pub fn open(folder: &Path, host: &str, unix_s: u64) -> Result<Authority, Error> {
        let certificate = folder.join(CERTIFICATE_FILE);
        let pem = match fs::read_to_string(&certificate) {
            Ok(pem) => pem,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Authority::make(folder, host, unix_s);
            }
            Err(error) => return Err(Error::File(certificate, error)),
        };
        let (ends_s, name) = read(&certificate, &pem)?;
        if ends_s < unix_s + RENEWED_DAYS * DAY_S {
            return Authority::make(folder, host, unix_s);
        }
        let key_file = folder.join(KEY_FILE);
        let key = fs::read_to_string(&key_file).map_err(|e| Error::File(key_file.clone(), e))?;
        let key = KeyPair::from_pem(&key).map_err(|e| Error::Unusable(key_file, e.to_string()))?;
        Ok(Authority::of(folder, pem, params(&name), key))
    }

    fn make(folder: &Path, host: &str, unix_s: u64) -> Result<Authority, Error> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(|error| Error::File(folder.into(), error))?;
        let key = KeyPair::generate().map_err(making)?;
        let mut params = params(&format!("Lowroad local authority on {host}"));
        lasting(&mut params, unix_s, AUTHORITY_DAYS);
        let pem = params.self_signed(&key).map_err(making)?.pem();
        write(&folder.join(KEY_FILE), &key.serialize_pem(), 0o600)?;
        write(&folder.join(CERTIFICATE_FILE), &pem, 0o644)?;
        Ok(Authority::of(folder, pem, params, key))
    }

    fn of(folder: &Path, pem: String, params: CertificateParams, key: KeyPair) -> Authority {
        Authority {
            folder: folder.into(),
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The file that its certificate is in.
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.join(CERTIFICATE_FILE)
    }

    /// Signs a certificate for this machine and for these names, hosts or addresses. It is kept in no file: one that
    /// is made at each start is never too old.
    ///
    /// # Errors
    /// [`Error::Making`]: a name is none.
    pub fn sign(&self, names: &[&str], unix_s: u64) -> Result<Pair, Error> {
        let (chain, key) = self.sign_pem(names, unix_s)?;
        let texts = Texts {
            certificates_file: &self.folder,
            certificates: chain.as_bytes(),
            key_file: &self.folder,
            key: key.as_bytes(),
            staple: None,
        };
        let (pair, _) = Pair::load(&texts, unix_s).map_err(|e| Error::Making(e.to_string()))?;
        Ok(pair)
    }

    /// The same in PEM: certificate with chain, and key.
    ///
    /// # Errors
    /// As above.
    pub fn sign_pem(&self, names: &[&str], unix_s: u64) -> Result<(String, String), Error> {
        let mut all: Vec<String> = LOCAL.map(str::to_owned).to_vec();
        all.extend(names.iter().map(|name| (*name).to_owned()));
        all.dedup();
        let mut params = CertificateParams::new(all).map_err(making)?;
        params.distinguished_name = DistinguishedName::new();
        let name = "Lowroad local certificate";
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        lasting(&mut params, unix_s, LEAF_DAYS);
        let key = KeyPair::generate().map_err(making)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(making)?;
        let chain = format!("{}{}", certificate.pem(), self.pem);
        Ok((chain, key.serialize_pem()))
    }

    /// What to do so that programs on this machine trust it.
    pub fn how_to_trust(&self) -> String {
        let file = self.certificate_file();
        let file = file.display();
        format!(
            "Trust this authority on this machine only; whoever has its key can be any site to you.\n\
             \n\
             Debian, Ubuntu:\n\
             \x20   sudo cp {file} /usr/local/share/ca-certificates/lowroad.crt\n\
             \x20   sudo update-ca-certificates\n\
             Fedora, Red Hat:\n\
             \x20   sudo trust anchor {file}\n\
             Chromium, Chrome (package libnss3-tools):\n\
             \x20   certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n lowroad -i {file}\n\
             Firefox: Settings, Privacy & Security, View Certificates, Authorities, Import\n\
             curl: curl --cacert {file} https://localhost/\n"
        )
    }
}

fn making(error: rcgen::Error) -> Error {
    Error::Making(error.to_string())
}

fn lasting(params: &mut CertificateParams, unix_s: u64, days: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(unix_s.saturating_sub(SLACK_S));
    params.not_after = epoch + Duration::from_secs(unix_s + days * DAY_S - SLACK_S);
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// When an authority ends, and what it is called.
fn read(file: &Path, pem: &str) -> Result<(u64, String), Error> {
    let unusable = |why: &dyn fmt::Display| Error::Unusable(file.into(), why.to_string());
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(&error))?;
    let fields = Certificate::parse(&der).ok_or_else(|| unusable(&"it is no certificate"))?;
    let name = common_name(fields.subject).ok_or_else(|| unusable(&"it has no name"))?;
    Ok((u64::try_from(fields.not_after_s).unwrap_or(0), name))
}

/// Writes a file under another name, and then gives it its own: it is there as a whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|error| Error::File(path.into(), error))
}
