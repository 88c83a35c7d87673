//! The storage of accounts, certificates with keys, and plans, in a folder that only its owner can access.
//!
//! | | |
//! |---|---|
//! | `accounts/HOST-PATH.json` | an account's key and number |
//! | `names/NAME/certificate.pem` | key, certificate and chain; `*` is written as `_` |
//! | `names/NAME/state.json` | the plan, and the last error |
//! | `names/NAME/lock`, `accounts/….lock` | locked (flock) while a process orders, or makes the account |
//!
//! All functions here may block.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use lowroad_file_stamp::FileStamp;
use serde::{Deserialize, Serialize};

mod write;

use crate::plan::{AcmeFailure, RenewalPlan};

/// Bytes of a write test: more than a certificate, its key and its state.
const PROBE_LEN: usize = 64 * 1024;

/// The folder.
#[derive(Clone, Debug)]
pub(crate) struct AcmeFolder(PathBuf);

/// The stored state of a certificate, besides its own contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CertificateRecord {
    pub names: Vec<String>,
    pub on_demand: bool,
    /// The directory URL of its issuer.
    pub authority: Option<String>,
    pub plan: RenewalPlan,
}

/// An exclusive lock: no other process orders for the name, or makes the account, while this exists.
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

    /// The path of a name's certificate.
    pub fn certificate_file(&self, name: &str) -> PathBuf {
        self.name_path(name).join("certificate.pem")
    }

    /// A name's certificate and key.
    pub fn certificate(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.certificate_file(name))
    }

    /// The stamp of a name's certificate file. `None` if it is inaccessible, mostly because it is missing.
    pub fn certificate_stamp(&self, name: &str) -> Option<FileStamp> {
        FileStamp::from_path(&self.certificate_file(name)).ok()
    }

    pub fn store_certificate(&self, name: &str, pem: &[u8]) -> Result<(), AcmeFailure> {
        self.write(&self.certificate_file(name), pem)
    }

    /// The stored state of a name. A file that cannot be parsed counts as missing.
    pub fn load_record(&self, name: &str) -> Option<CertificateRecord> {
        let text = fs::read(self.name_path(name).join("state.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn save_record(&self, name: &str, record: &CertificateRecord) -> Result<(), AcmeFailure> {
        let text = serde_json::to_vec_pretty(record).map_err(AcmeFailure::local)?;
        self.write(&self.name_path(name).join("state.json"), &text)
    }

    /// Deletes a name's state. A certificate stays.
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

    /// Tests whether a certificate can be stored, before an order, since authorities limit orders.
    pub fn probe(&self, name: &str) -> Result<(), AcmeFailure> {
        self.probe_file(&self.name_path(name).join("probe"))
    }

    /// Tests whether files can be stored.
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

    /// Forgets an account that the authority no longer knows. Its key file is renamed, not deleted.
    pub fn forget_account(&self, account: &str) {
        // Kept under another name, since the key may still be needed to recover the account.
        let file = self.account_file(account);
        let _ = fs::rename(&file, file.with_extension("old"));
    }

    pub fn account_file(&self, account: &str) -> PathBuf {
        self.0.join("accounts").join(format!("{account}.json"))
    }

    /// Takes a name's lock. `None` if another process has it.
    pub fn lock(&self, name: &str) -> Result<Option<FolderLock>, AcmeFailure> {
        self.lock_file(&self.name_path(name).join("lock"))
    }

    /// Takes an account's lock.
    pub fn lock_account(&self, account: &str) -> Result<Option<FolderLock>, AcmeFailure> {
        self.lock_file(&self.account_file(account).with_extension("lock"))
    }

    fn lock_file(&self, path: &Path) -> Result<Option<FolderLock>, AcmeFailure> {
        let opened = write::opened(&self.0, path);
        let file = opened.map_err(|error| write_failure(path, &error))?;
        // flock ends with the process, so a crash leaves no stale lock.
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
    fn files_are_for_nobody_else() {
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
    fn the_owner_stays() {
        let (folder, path) = folder("owner");
        folder
            .store_certificate("a.example", b"old")
            .expect("stored");
        let file = folder.certificate_file("a.example");
        if std::os::unix::fs::chown(&file, Some(12345), Some(54321)).is_err() {
            return lowroad_testkit::skip("the_owner_stays", "needs root");
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
    fn a_lock_is_one_owners() {
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
    fn nothing_is_left_of_what_failed() {
        let (folder, path) = folder("failed");
        fs::create_dir_all(folder.certificate_file("a.example")).expect("a folder in the way");
        let trouble = folder
            .store_certificate("a.example", b"pem")
            .expect_err("in the way");
        assert!(
            trouble.text.contains("certificate.pem cannot be written"),
            "{trouble}"
        );
        let parent = folder.name_path("a.example");
        assert_eq!(fs::read_dir(parent).expect("a folder").count(), 1);
        let _ = fs::remove_dir_all(&path);
    }

    #[test]
    fn states_that_cannot_be_understood_are_none() {
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
