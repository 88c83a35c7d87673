//! A certificate authority for local development: it is created on this machine and signs certificates for local names.
//!
//! No client trusts the authority until the operator installs its certificate. Certificate and key are stored in a
//! folder that only the owner can enter; the key file has mode 0600. The authority is valid for ten years, its server
//! certificates for as long as browsers accept. It can sign server certificates, but no intermediate authorities.

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

use crate::certificates::{CertificatePair, PemTexts};
use crate::x509::{X509Certificate, common_name};

const CERTIFICATE_FILE: &str = "authority.pem";
const KEY_FILE: &str = "authority.key";
const DAY_S: u64 = 86_400;
/// Days until the authority expires.
const AUTHORITY_DAYS: u64 = 3650;
/// Days until a signed certificate expires: browsers reject longer lifetimes.
const LEAF_DAYS: u64 = 397;
/// An authority with fewer days left is replaced when it is opened.
const DAYS_LEFT_MIN: u64 = 400;
/// Certificates are valid from an hour ago, for clients with slow clocks.
const CLOCK_SKEW_S: u64 = 3600;
/// Names in every signed certificate.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A local authority: its certificate, its key, and the folder with their files.
pub struct LocalAuthority {
    folder: PathBuf,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The reason that an authority cannot be opened, or a certificate cannot be signed.
#[derive(Debug)]
pub enum AuthorityError {
    /// Reading or writing a file failed.
    File(PathBuf, io::Error),
    /// The folder holds files that cannot be used as an authority.
    Unusable(PathBuf, String),
    /// Creating a key or certificate failed.
    Generation(String),
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthorityError::File(path, error) => write!(f, "{}: {error}", path.display()),
            AuthorityError::Unusable(path, reason) => write!(
                f,
                "{} cannot be used: {reason}; remove the folder to create a new authority",
                path.display()
            ),
            AuthorityError::Generation(reason) => {
                write!(f, "the certificate cannot be created: {reason}")
            }
        }
    }
}

impl std::error::Error for AuthorityError {}

impl LocalAuthority {
    /// Opens the authority stored in a folder. If the folder or its certificate is missing, or the authority expires
    /// soon, creates a new authority with `host` in its name. May block.
    ///
    /// # Errors
    /// `AuthorityError`
    pub fn open(folder: &Path, host: &str, unix_s: u64) -> Result<LocalAuthority, AuthorityError> {
        let certificate = folder.join(CERTIFICATE_FILE);
        let pem = match fs::read_to_string(&certificate) {
            Ok(pem) => pem,
            // Only a missing file leads to a new authority: one that cannot be read must not be replaced.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return LocalAuthority::create(folder, host, unix_s);
            }
            Err(error) => return Err(AuthorityError::File(certificate, error)),
        };
        let (ends_s, name) = read(&certificate, &pem)?;
        // A server certificate lasts `LEAF_DAYS`, less than `DAYS_LEFT_MIN`, so no certificate outlives its authority.
        if ends_s < unix_s + DAYS_LEFT_MIN * DAY_S {
            return LocalAuthority::create(folder, host, unix_s);
        }
        let key_file = folder.join(KEY_FILE);
        let key =
            fs::read_to_string(&key_file).map_err(|e| AuthorityError::File(key_file.clone(), e))?;
        let key = KeyPair::from_pem(&key)
            .map_err(|e| AuthorityError::Unusable(key_file, e.to_string()))?;
        Ok(LocalAuthority::from_parts(folder, pem, params(&name), key))
    }

    fn create(folder: &Path, host: &str, unix_s: u64) -> Result<LocalAuthority, AuthorityError> {
        let mut builder = DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(folder);
        created.map_err(|error| AuthorityError::File(folder.into(), error))?;
        let key = KeyPair::generate().map_err(failure)?;
        let mut params = params(&format!("Lowroad local authority on {host}"));
        set_validity(&mut params, unix_s, AUTHORITY_DAYS);
        let pem = params.self_signed(&key).map_err(failure)?.pem();
        // The key is written first: a certificate without its key would look like an authority that cannot be opened.
        write(&folder.join(KEY_FILE), &key.serialize_pem(), 0o600)?;
        write(&folder.join(CERTIFICATE_FILE), &pem, 0o644)?;
        Ok(LocalAuthority::from_parts(folder, pem, params, key))
    }

    fn from_parts(
        folder: &Path,
        pem: String,
        params: CertificateParams,
        key: KeyPair,
    ) -> LocalAuthority {
        LocalAuthority {
            folder: folder.into(),
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// The authority's certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The file of the authority's certificate.
    pub fn certificate_file(&self) -> PathBuf {
        self.folder.join(CERTIFICATE_FILE)
    }

    /// Signs a certificate for this machine and for `names` (hosts or addresses). The certificate isn't stored: each
    /// start of the server signs a new one, so it never expires in use.
    ///
    /// # Errors
    /// `AuthorityError::Generation`: an entry of `names` is not a valid host name or address.
    pub fn sign(&self, names: &[&str], unix_s: u64) -> Result<CertificatePair, AuthorityError> {
        let (chain, key) = self.sign_pem(names, unix_s)?;
        let texts = PemTexts {
            certificates_file: &self.folder,
            certificates: chain.as_bytes(),
            key_file: &self.folder,
            key: key.as_bytes(),
            staple: None,
        };
        let (pair, _) = CertificatePair::load(&texts, unix_s)
            .map_err(|e| AuthorityError::Generation(e.to_string()))?;
        Ok(pair)
    }

    /// Like `LocalAuthority::sign`, but returns PEM: the certificate with its chain, and the key.
    ///
    /// # Errors
    /// As of `LocalAuthority::sign`.
    pub fn sign_pem(
        &self,
        names: &[&str],
        unix_s: u64,
    ) -> Result<(String, String), AuthorityError> {
        let mut all_names: Vec<String> = LOCAL_NAMES.map(str::to_owned).to_vec();
        all_names.extend(names.iter().map(|name| (*name).to_owned()));
        // `names` may contain the local names.
        all_names.dedup();
        let mut params = CertificateParams::new(all_names).map_err(failure)?;
        params.distinguished_name = DistinguishedName::new();
        let name = "Lowroad local certificate";
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // If an authority was replaced, clients find the right issuer by its key identifier.
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, unix_s, LEAF_DAYS);
        let key = KeyPair::generate().map_err(failure)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failure)?;
        let chain = format!("{}{}", certificate.pem(), self.pem);
        Ok((chain, key.serialize_pem()))
    }

    /// Instructions for trusting the authority on this machine.
    pub fn how_to_trust(&self) -> String {
        let file = self.certificate_file();
        let file = file.display();
        format!(
            "Trust this authority on this machine only; anyone with its key can impersonate any site.\n\
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

fn failure(error: rcgen::Error) -> AuthorityError {
    AuthorityError::Generation(error.to_string())
}

fn set_validity(params: &mut CertificateParams, unix_s: u64, days: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(unix_s.saturating_sub(CLOCK_SKEW_S));
    params.not_after = epoch + Duration::from_secs(unix_s + days * DAY_S - CLOCK_SKEW_S);
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Path length 0: the authority may sign server certificates only.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The time at which an authority expires, and its common name.
fn read(file: &Path, pem: &str) -> Result<(u64, String), AuthorityError> {
    let unusable =
        |reason: &dyn fmt::Display| AuthorityError::Unusable(file.into(), reason.to_string());
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(&error))?;
    let fields = X509Certificate::parse(&der).ok_or_else(|| unusable(&"not a certificate"))?;
    let name =
        common_name(fields.subject).ok_or_else(|| unusable(&"the certificate has no name"))?;
    Ok((u64::try_from(fields.not_after_s).unwrap_or(0), name))
}

/// Writes a file atomically: a temporary file is renamed, so that readers see either the complete new file or the old
/// one.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), AuthorityError> {
    let temp_path = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temp_path)?;
        // `mode` of open(2) is subject to the umask and is ignored for an existing file.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temp_path, path)
    };
    write().map_err(|error| AuthorityError::File(path.into(), error))
}
