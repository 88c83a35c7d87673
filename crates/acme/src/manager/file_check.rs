//! Compares a certificate's file with the certificate in use. A file that is missing, unreadable or damaged is
//! restored; a better one, from another process or an operator, is used. All functions here may block.

use lowroad_file_stamp::FileStamp;

use super::ManagerContext;
use crate::issued_certificate::IssuedCertificate;
use crate::plan::AcmeFailure;

/// The known state of a certificate's file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileRecord {
    /// Its stamp at the last reading. `None`: it was missing.
    pub stamp: Option<FileStamp>,
    /// Whether to read it even if its stamp is unchanged.
    pub is_unread: bool,
    /// The logged fault, while the certificate in use is to be written back.
    pub fault: Option<String>,
}

/// A file to be compared.
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

/// The result of a comparison.
pub(super) enum FileFinding {
    /// The file has the certificate in use.
    Intact,
    /// The file has a better certificate, issued by this authority.
    Better(IssuedCertificate, Option<String>),
    /// The file has a certificate that cannot be used, for this reason.
    Useless(&'static str),
    /// The file had this fault, and was restored.
    Restored(String),
    /// The file has this fault, and cannot be written.
    NotRestored(String, AcmeFailure),
    /// The file has this fault, and there is no certificate in use.
    Lost(String),
    /// The file has a fault, and another process is ordering a certificate, which will replace the file.
    Locked,
}

impl FileCheck {
    /// Compares the file. `None`: nothing has changed.
    pub fn run(self, shared: &ManagerContext) -> Option<CheckedFile> {
        let folder = &shared.folder;
        // The stamp is taken before the file is read, so that the next check notices a change in between.
        let stamp = folder.certificate_stamp(&self.key);
        let record = &self.record;
        // A fault is checked again each time, until the file could be restored.
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
            // The write has changed the stamp; the next check must not treat that as a change by another process.
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
    /// The fault that requires replacing it.
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
        // A known fault stays until it is repaired, even if the file is readable.
        if let Some(fault) = &self.record.fault {
            return Err(fault.clone());
        }
        let not_after_s = |issued: &IssuedCertificate| issued.validity.not_after_s;
        match on_disk.covers(&self.names) {
            // Two processes with different names would otherwise overwrite each other's file for ever.
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
