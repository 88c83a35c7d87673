//! Stores accounts, certificates with keys, and renewal plans in a folder that only the owner can access.
//!
//! | | |
//! |---|---|
//! | `accounts/HOST-PATH.json` | an account's key and URL |
//! | `names/NAME/certificate.pem` | key, certificate and chain; `*` is written as `_` |
//! | `names/NAME/state.json` | the renewal plan, and the last error |
//! | `names/NAME/lock`, `accounts/….lock` | locked (flock) while a process orders, or creates the account |
//!
//! All functions here may block.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use lowroad_file_stamp::FileStamp;
use serde::{Deserialize, Serialize};

mod write;

use crate::plan::{AcmeFailure, RenewalPlan};

/// The size of a test file: larger than a certificate, its key and its state.
const PROBE_LEN: usize = 64 * 1024;

/// The ACME folder.
#[derive(Clone, Debug)]
pub(crate) struct AcmeFolder(PathBuf);

/// The stored state of a certificate; the certificate itself is in another file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CertificateRecord {
    pub names: Vec<String>,
    pub on_demand: bool,
    /// The directory URL of the authority that issued the certificate.
    pub authority: Option<String>,
    pub plan: RenewalPlan,
}

/// An exclusive lock: while it exists, no other process orders a certificate for the name, or creates the account.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl AcmeFolder {
    pub fn new(path: &Path) -> AcmeFolder {
        AcmeFolder(path.into())
    }

    fn name_path(&self, name: &str) -> PathBuf {
        self.0.join("names").join(name.replace('*', "_"))
    }

    /// The path of the certificate with this first name.
    pub fn certificate_file(&self, name: &str) -> PathBuf {
        self.name_path(name).join("certificate.pem")
    }

    /// The contents of the certificate file: certificate and key.
    pub fn certificate(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.certificate_file(name))
    }

    /// The stamp of the certificate file. `None` if the file is missing or inaccessible.
    pub fn certificate_stamp(&self, name: &str) -> Option<FileStamp> {
        FileStamp::from_path(&self.certificate_file(name)).ok()
    }

    pub fn store_certificate(&self, name: &str, pem: &[u8]) -> Result<(), AcmeFailure> {
        self.write(&self.certificate_file(name), pem)
    }

    /// The stored state of a certificate; `None` if the file is missing or cannot be parsed.
    pub fn load_record(&self, name: &str) -> Option<CertificateRecord> {
        let text = fs::read(self.name_path(name).join("state.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn save_record(&self, name: &str, record: &CertificateRecord) -> Result<(), AcmeFailure> {
        let text = serde_json::to_vec_pretty(record).map_err(AcmeFailure::local)?;
        self.write(&self.name_path(name).join("state.json"), &text)
    }

    /// Deletes the stored state. The certificate file stays.
    pub fn forget(&self, name: &str) -> Result<(), AcmeFailure> {
        let path = self.name_path(name).join("state.json");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(write_failure(&path, &error))
            }
            _ => Ok(()),
        }
    }

    /// All stored states.
    pub fn load_all_records(&self) -> Vec<CertificateRecord> {
        let Ok(folders) = fs::read_dir(self.0.join("names")) else {
            return Vec::new();
        };
        let names = folders
            .flatten()
            .filter_map(|folder| folder.file_name().into_string().ok());
        names.filter_map(|name| self.load_record(&name)).collect()
    }

    /// Tests whether a certificate can be stored. Called before each order, since authorities limit the number of
    /// orders.
    pub fn probe(&self, name: &str) -> Result<(), AcmeFailure> {
        self.probe_file(&self.name_path(name).join("probe"))
    }

    /// Tests whether files can be created in the folder.
    pub fn probe_all(&self) -> Result<(), AcmeFailure> {
        // The process id avoids collisions with other processes that test the same folder.
        self.probe_file(&self.0.join(format!("probe-{}", std::process::id())))
    }

    fn probe_file(&self, path: &Path) -> Result<(), AcmeFailure> {
        self.write(path, &[0; PROBE_LEN])?;
        fs::remove_file(path).map_err(|error| write_failure(path, &error))
    }

    /// The contents of an account's file.
    pub fn account(&self, account: &str) -> io::Result<Vec<u8>> {
        fs::read(self.account_file(account))
    }

    pub fn store_account(&self, account: &str, text: &[u8]) -> Result<(), AcmeFailure> {
        self.write(&self.account_file(account), text)
    }

    /// Retires an account that the authority no longer knows, or that has a damaged file: renames the file.
    pub fn forget_account(&self, account: &str) {
        // The file is renamed instead of deleted, since the key may still be needed to recover the account.
        let file = self.account_file(account);
        let _ = fs::rename(&file, file.with_extension("old"));
    }

    pub fn account_file(&self, account: &str) -> PathBuf {
        self.0.join("accounts").join(format!("{account}.json"))
    }

    /// Takes the lock of a certificate. `None` if another process holds it.
    pub fn lock(&self, name: &str) -> Result<Option<FolderLock>, AcmeFailure> {
        self.lock_file(&self.name_path(name).join("lock"))
    }

    /// Takes the lock of an account. `None` if another process holds it.
    pub fn lock_account(&self, account: &str) -> Result<Option<FolderLock>, AcmeFailure> {
        self.lock_file(&self.account_file(account).with_extension("lock"))
    }

    fn lock_file(&self, path: &Path) -> Result<Option<FolderLock>, AcmeFailure> {
        let opened = write::open_lock_file(&self.0, path);
        let file = opened.map_err(|error| write_failure(path, &error))?;
        // The kernel releases a flock when the process ends, so a crash leaves no stale lock.
        match file.try_lock() {
            Ok(()) => Ok(Some(FolderLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(write_failure(path, &error)),
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), AcmeFailure> {
        write::replace_file(&self.0, path, bytes).map_err(|error| write_failure(path, &error))
    }
}

fn write_failure(path: &Path, error: &io::Error) -> AcmeFailure {
    AcmeFailure::local(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn folder(name: &str) -> (AcmeFolder, PathBuf) {
        let name = format!("lowroad-acme-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        (AcmeFolder::new(&path.join("acme")), path)
    }

    #[test]
    fn files_and_folders_are_accessible_to_owner_only() {
        let (folder, path) = folder("modes");
        folder
            .store_certificate("*.example.org", b"pem")
            .expect("stored");
        let _lock = folder.lock("*.example.org").expect("a lock");
        let mode = |file: &Path| fs::metadata(file).expect("a file").permissions().mode() & 0o7777;
        let file = path.join("acme/names/_.example.org/certificate.pem");
        assert_eq!(folder.certificate_file("*.example.org"), file);
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(&file.with_file_name("lock")), 0o600);
        for parent in file.ancestors().skip(1).take(3) {
            assert_eq!(mode(parent), 0o700, "{parent:?}");
        }
        assert_eq!(
            folder.certificate("*.example.org").expect("a certificate"),
            b"pem"
        );
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn replaced_file_keeps_its_owner() {
        let (folder, path) = folder("owner");
        folder
            .store_certificate("a.example", b"old")
            .expect("stored");
        let file = folder.certificate_file("a.example");
        if std::os::unix::fs::chown(&file, Some(12345), Some(54321)).is_err() {
            return lowroad_testkit::skip("replaced_file_keeps_its_owner", "needs root");
        }
        folder
            .store_certificate("a.example", b"new")
            .expect("stored");
        let meta = fs::metadata(&file).expect("a file");
        assert_eq!((meta.uid(), meta.gid()), (12345, 54321));
        assert_eq!(fs::read(&file).expect("a file"), b"new");
        // A new file gets the owner of its folder.
        let parent = file.parent().expect("a folder");
        std::os::unix::fs::chown(parent, Some(12345), Some(54321)).expect("root");
        folder.probe("a.example").expect("room");
        let _lock = folder.lock("a.example").expect("a lock");
        assert_eq!(
            fs::metadata(parent.join("lock")).expect("a file").uid(),
            12345
        );
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn lock_is_exclusive_per_name() {
        let (folder, path) = folder("lock");
        let lock = folder.lock("a.example").expect("a folder");
        assert!(lock.is_some());
        assert!(folder.lock("a.example").expect("a folder").is_none());
        assert!(folder.lock("b.example").expect("a folder").is_some());
        drop(lock);
        assert!(folder.lock("a.example").expect("a folder").is_some());
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn failed_write_leaves_no_temporary_file() {
        let (folder, path) = folder("failed");
        fs::create_dir_all(folder.certificate_file("a.example")).expect("a folder in the way");
        let failure = folder
            .store_certificate("a.example", b"pem")
            .expect_err("in the way");
        assert!(
            failure.text.contains("certificate.pem cannot be written"),
            "{failure}"
        );
        let parent = folder.name_path("a.example");
        assert_eq!(fs::read_dir(parent).expect("a folder").count(), 1);
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn malformed_state_file_is_ignored() {
        let (folder, path) = folder("state");
        let saved = CertificateRecord {
            names: vec!["a.example".into()],
            on_demand: true,
            authority: None,
            plan: RenewalPlan::new(["https://ca.example/"]),
        };
        folder.save_record("a.example", &saved).expect("saved");
        folder.save_record("b.example", &saved).expect("saved");
        assert_eq!(
            folder.load_record("a.example").expect("saved").plan,
            saved.plan
        );
        let file = folder.name_path("b.example").join("state.json");
        fs::write(file, "{\"names\":").expect("half a file");
        assert!(folder.load_record("b.example").is_none());
        assert_eq!(folder.load_all_records().len(), 1);
        let _ = fs::remove_dir_all(&path);
    }
}
