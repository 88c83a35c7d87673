//! Reads certificates and keys from files and checks the files' permissions. The caller watches for changes.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::certificate_pair::{CertificatePair, PemTexts};
use super::problem::{CertificateProblem, ProblemReason};

/// The largest accepted file, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// The paths of a certificate's files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificatePaths {
    /// Certificate and chain, in PEM.
    pub certificates: PathBuf,
    /// The key, in PEM; can be the same file.
    pub key: PathBuf,
    /// An OCSP response to staple, in DER.
    pub staple: Option<PathBuf>,
}

/// Reads a certificate with its key. Also returns the problems that do not prevent the certificate's use. May block.
///
/// # Errors
/// The problem that makes the certificate unusable.
pub fn read(
    files: &CertificatePaths,
    unix_s: u64,
) -> Result<(CertificatePair, Vec<CertificateProblem>), CertificateProblem> {
    read_with(files, unix_s, |path| File::open(path))
}

/// Like [`read`], but `open` opens the files.
///
/// # Errors
/// As for [`read`].
pub fn read_with(
    files: &CertificatePaths,
    unix_s: u64,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<(CertificatePair, Vec<CertificateProblem>), CertificateProblem> {
    let contents = |path| contents(path, &open);
    let (certificates, certificates_meta) = contents(&files.certificates)?;
    let (key, key_meta) = contents(&files.key)?;
    let staple = match &files.staple {
        Some(path) => Some((path, contents(path)?.0)),
        None => None,
    };
    let texts = PemTexts {
        certificates_file: &files.certificates,
        certificates: &certificates,
        key_file: &files.key,
        key: &key,
        staple: staple
            .as_ref()
            .map(|(path, staple)| (path.as_path(), &staple[..])),
    };
    let (pair, mut warnings) = CertificatePair::load(&texts, unix_s)?;
    // This is the mode of the opened file, not of the path, which may have been replaced in the meantime.
    let mode = key_meta.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        warnings.push(CertificateProblem::new(
            &files.key,
            ProblemReason::WorldAccessibleKey(mode),
        ));
    }
    let mode = certificates_meta.permissions().mode() & 0o7777;
    // A file that also holds the key was checked as a key file, above.
    if mode & 0o022 != 0 && files.certificates != files.key {
        warnings.push(CertificateProblem::new(
            &files.certificates,
            ProblemReason::WritableByOthers(mode),
        ));
    }
    Ok((pair, warnings))
}

fn contents(
    path: &Path,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<(Vec<u8>, Metadata), CertificateProblem> {
    let read = || {
        let mut file = open(path)?;
        let meta = file.metadata()?;
        // A device or pipe may never end.
        if !meta.is_file() || meta.len() > LEN_MAX {
            return Err(io::Error::other("not a file, or longer than 1 MiB"));
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        Ok((content, meta))
    };
    read().map_err(|error| {
        CertificateProblem::new(path, ProblemReason::Unreadable(error.to_string()))
    })
}
