//! Compares a certificate's file with the certificate in use. A missing, unreadable or damaged file is restored; a
//! better certificate, stored by another process or the operator, is taken into use. All functions here may block.

use lowroad_file_stamp::FileStamp;

use super::ManagerContext;
use crate::issued_certificate::IssuedCertificate;
use crate::plan::AcmeFailure;

/// The state of a certificate's file, as known from the last check.
#[derive(Clone, Debug, Default)]
pub(super) struct FileRecord {
    /// The file's stamp when it was last read. `None`: the file was missing.
    pub stamp: Option<FileStamp>,
    /// Whether to read the file even if its stamp is unchanged.
    pub is_unread: bool,
    /// The file's problem, already logged, that the next check must repair.
    pub fault: Option<String>,
}

/// The input for the check of one file.
pub(super) struct FileCheck {
    pub key: String,
    pub names: Vec<String>,
    pub record: FileRecord,
    /// The certificate in use.
    pub issued: Option<IssuedCertificate>,
}

/// The outcome of a check.
pub(super) struct CheckedFile {
    pub key: String,
    pub stamp: Option<FileStamp>,
    pub finding: FileFinding,
}

/// The result of comparing a file with the certificate in use.
pub(super) enum FileFinding {
    /// The file contains the certificate in use.
    Intact,
    /// The file contains a better certificate; the directory URL of its issuer, if known.
    Better(IssuedCertificate, Option<String>),
    /// The file contains a certificate that is not taken into use, for this reason.
    Useless(&'static str),
    /// The file had this problem, and was restored.
    Restored(String),
    /// The file has this problem, and restoring it failed.
    NotRestored(String, AcmeFailure),
    /// The file has this problem, and there is no certificate in use to restore it.
    Lost(String),
    /// The file has a problem, but another process holds the lock: it is ordering a certificate that will replace the
    /// file.
    Locked,
}

impl FileCheck {
    /// Compares the file with the certificate in use. `None`: the file has not changed.
    pub fn run(self, shared: &ManagerContext) -> Option<CheckedFile> {
        let folder = &shared.folder;
        // The stamp is taken before the file is read, so that a change in between triggers the next check.
        let stamp = folder.certificate_stamp(&self.key);
        let record = &self.record;
        // After a problem, every check reads the file, until it could be restored.
        if stamp == record.stamp && !record.is_unread && record.fault.is_none() {
            return None;
        }
        let finding = match self.read(shared) {
            Ok(finding) => finding,
            Err(fault) => match &self.issued {
                Some(issued) => self.restore(shared, issued, fault),
                None => FileFinding::Lost(fault),
            },
        };
        let stamp = match finding {
            // Restoring has changed the stamp; the next check must not attribute the change to another process.
            FileFinding::Restored(_) => folder.certificate_stamp(&self.key),
            _ => stamp,
        };
        Some(CheckedFile {
            key: self.key,
            stamp,
            finding,
        })
    }

    /// Reads and classifies the file.
    ///
    /// # Errors
    /// The problem that requires restoring the file.
    fn read(&self, shared: &ManagerContext) -> Result<FileFinding, String> {
        let on_disk = shared.read_certificate(&self.key)?;
        let now_s = shared.settings.clock.unix_s();
        let Some(in_use) = &self.issued else {
            return Ok(self.better_finding(shared, on_disk));
        };
        if on_disk.pair.fingerprint() == in_use.pair.fingerprint() {
            return Ok(FileFinding::Intact);
        }
        if on_disk.is_better_than(in_use, &self.names) {
            return Ok(self.better_finding(shared, on_disk));
        }
        // The problem remains until the file is restored, even if the file has become readable.
        if let Some(fault) = &self.record.fault {
            return Err(fault.clone());
        }
        let not_after_s = |issued: &IssuedCertificate| issued.validity.not_after_s;
        match on_disk.covers(&self.names) {
            // The file is not restored: two processes that are configured with different names would overwrite each
            // other's file forever.
            false => Ok(FileFinding::Useless("does not cover all names")),
            true if not_after_s(&on_disk) < now_s && now_s <= not_after_s(in_use) => {
                Err("has an expired certificate".into())
            }
            true => Ok(FileFinding::Useless("expires earlier than the one in use")),
        }
    }

    fn better_finding(&self, shared: &ManagerContext, on_disk: IssuedCertificate) -> FileFinding {
        let saved = shared.folder.load_record(&self.key);
        FileFinding::Better(on_disk, saved.and_then(|saved| saved.authority))
    }

    fn restore(
        &self,
        shared: &ManagerContext,
        issued: &IssuedCertificate,
        fault: String,
    ) -> FileFinding {
        let folder = &shared.folder;
        let lock = match folder.lock(&self.key) {
            Ok(Some(lock)) => lock,
            Ok(None) => return FileFinding::Locked,
            Err(failure) => return FileFinding::NotRestored(fault, failure),
        };
        // Another process may have replaced the file before this one got the lock.
        if let Ok(finding) = self.read(shared) {
            return finding;
        }
        let stored = folder.store_certificate(&self.key, &issued.to_pem());
        drop(lock);
        match stored {
            Ok(()) => FileFinding::Restored(fault),
            Err(failure) => FileFinding::NotRestored(fault, failure),
        }
    }
}
