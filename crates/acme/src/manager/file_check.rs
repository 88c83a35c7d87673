//! Compares a certificate's file with the certificate in use. A file that is gone, cannot be read or is damaged gets the
//! certificate in use again; a better one, from another process or an operator, is taken. Everything here may block.

use lowroad_file_stamp::FileStamp;

use super::Shared;
use crate::issued::Issued;
use crate::plan::Trouble;

/// The state of a certificate's file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileRecord {
    /// Its state at the last reading. `None`: it was missing.
    pub stamp: Option<FileStamp>,
    /// It is to be read, whatever it is like.
    pub is_unread: bool,
    /// Why it does not have the certificate in use, which is to be written back: as it was logged.
    pub fault: Option<String>,
}

/// A file that is to be compared.
pub(super) struct FileCheck {
    pub key: String,
    pub names: Vec<String>,
    pub record: FileRecord,
    /// The certificate in use.
    pub issued: Option<Issued>,
}

/// The outcome of a check.
pub(super) struct CheckedFile {
    pub key: String,
    pub stamp: Option<FileStamp>,
    pub finding: FileFinding,
}

/// What a file is like.
pub(super) enum FileFinding {
    /// It has the certificate in use.
    Intact,
    /// It has a better certificate, of this authority.
    Better(Issued, Option<String>),
    /// It has a certificate that is of no use here, for this reason.
    Useless(&'static str),
    /// It had this fault, and has the certificate in use again.
    Restored(String),
    /// It has this fault, and cannot be written.
    NotRestored(String, Trouble),
    /// It has this fault, and there is no certificate in use.
    Lost(String),
    /// It has a fault, and another process orders, which replaces the file.
    Locked,
}

impl FileCheck {
    /// `None`: nothing has changed.
    pub fn run(self, shared: &Shared) -> Option<CheckedFile> {
        let folder = &shared.folder;
        // Before the file is read: what changes meanwhile is looked at again.
        let stamp = folder.certificate_stamp(&self.key);
        let record = &self.record;
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
            FileFinding::Restored(_) => folder.certificate_stamp(&self.key),
            _ => stamp,
        };
        Some(CheckedFile {
            key: self.key,
            stamp,
            finding,
        })
    }

    /// What the file has.
    ///
    /// # Errors
    /// Why it must be replaced.
    fn read(&self, shared: &Shared) -> Result<FileFinding, String> {
        let found = shared.read_certificate(&self.key)?;
        let now_s = shared.settings.clock.unix_s();
        let Some(held) = &self.issued else {
            return Ok(self.better(shared, found));
        };
        if found.pair.fingerprint() == held.pair.fingerprint() {
            return Ok(FileFinding::Intact);
        }
        if found.is_better_than(held, &self.names) {
            return Ok(self.better(shared, found));
        }
        if let Some(fault) = &self.record.fault {
            return Err(fault.clone());
        }
        let ends_s = |issued: &Issued| issued.validity.not_after_s;
        match found.covers(&self.names) {
            // Written back and forth, it would never come to rest between two processes for different names.
            false => Ok(FileFinding::Useless("is not for all names")),
            true if ends_s(&found) < now_s && now_s <= ends_s(held) => {
                Err("has an expired certificate".into())
            }
            true => Ok(FileFinding::Useless("ends earlier than the one in use")),
        }
    }

    fn better(&self, shared: &Shared, found: Issued) -> FileFinding {
        let saved = shared.folder.saved(&self.key);
        FileFinding::Better(found, saved.and_then(|saved| saved.authority))
    }

    fn restore(&self, shared: &Shared, issued: &Issued, fault: String) -> FileFinding {
        let folder = &shared.folder;
        let lock = match folder.lock(&self.key) {
            Ok(Some(lock)) => lock,
            Ok(None) => return FileFinding::Locked,
            Err(trouble) => return FileFinding::NotRestored(fault, trouble),
        };
        // Another process may have replaced it until the lock was taken.
        if let Ok(finding) = self.read(shared) {
            return finding;
        }
        let stored = folder.store_certificate(&self.key, &issued.to_pem());
        drop(lock);
        match stored {
            Ok(()) => FileFinding::Restored(fault),
            Err(trouble) => FileFinding::NotRestored(fault, trouble),
        }
    }
}
