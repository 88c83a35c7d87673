//! Creates entries from the settings, the files in the folder, and the certificates in use. All functions here may
//! block.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use super::ManagerContext;
use super::entry::CertificateEntry;
use crate::issued_certificate::IssuedCertificate;
use crate::settings::OnDemandSettings;

/// The certificates in use before the settings changed.
#[derive(Default)]
pub(super) struct CertificatesInUse {
    folder: PathBuf,
    /// Certificates by key; the flag is true for certificates on demand.
    by_key: HashMap<String, (IssuedCertificate, bool)>,
}

impl ManagerContext {
    /// The stored certificate, if it covers all of these names.
    pub(crate) fn load_stored(&self, key: &str, names: &[String]) -> Option<IssuedCertificate> {
        let stored = self.read_certificate(key).ok();
        stored.filter(|issued| issued.covers(names))
    }

    /// Reads the stored certificate.
    ///
    /// # Errors
    /// The problem of the file, as a predicate that follows the file's name.
    pub(super) fn read_certificate(&self, key: &str) -> Result<IssuedCertificate, String> {
        let pem = self.folder.certificate(key).map_err(|error| {
            match error.kind() == io::ErrorKind::NotFound {
                true => "is missing".to_owned(),
                false => format!("cannot be read: {error}"),
            }
        })?;
        let file = self.folder.certificate_file(key);
        let read = IssuedCertificate::read(&pem, &file, self.settings.clock.unix_s());
        read.map_err(|error| format!("is damaged: {error}"))
    }

    /// The certificates in use.
    pub(super) fn in_use(&self) -> CertificatesInUse {
        let inner = self.inner();
        let of_entry = |(key, entry): (&String, &CertificateEntry)| {
            let issued = entry.issued.clone()?;
            Some((key.clone(), (issued, entry.on_demand)))
        };
        CertificatesInUse {
            folder: self.settings.folder.clone(),
            by_key: inner.entries.iter().filter_map(of_entry).collect(),
        }
    }

    /// Sets the wanted certificates. Existing entries of certificates on demand are kept.
    pub(super) fn add_site_entries(
        &self,
        sites: Vec<(String, Vec<String>)>,
        in_use: &CertificatesInUse,
    ) {
        // Reading blocks, so entries are read without the lock. The entries are then replaced in one step, since a task
        // may have changed an entry in the meantime.
        let is_known = |key: &str, names: &[String]| {
            let inner = self.inner();
            let entry = inner.entries.get(key);
            entry.is_some_and(|entry| entry.names == names)
        };
        let read = |(key, names): (String, Vec<String>)| {
            let read =
                (!is_known(&key, &names)).then(|| self.read_entry(&key, &names, false, in_use));
            (key, names, read)
        };
        let sites: Vec<_> = sites.into_iter().map(read).collect();
        let mut inner = self.inner();
        let mut previous_entries = std::mem::take(&mut inner.entries);
        for (key, names, read) in sites {
            let previous = previous_entries.remove(&key);
            let urls = self.settings.directories();
            let mut entry = read
                .or(previous)
                .unwrap_or_else(|| CertificateEntry::new(names, false, None, urls));
            // A name that was requested on demand may have been configured since.
            entry.on_demand = false;
            inner.entries.insert(key, entry);
        }
        previous_entries.retain(|key, entry| entry.on_demand && !inner.entries.contains_key(key));
        inner.entries.append(&mut previous_entries);
    }

    /// Loads the stored certificates on demand.
    pub(super) fn add_on_demand_entries(&self, in_use: &CertificatesInUse) {
        let Some(OnDemandSettings { names_max, .. }) = self.settings.on_demand else {
            return;
        };
        let saved = self.folder.load_all_records().into_iter();
        let saved = saved.filter(|saved| saved.on_demand);
        // Certificates on demand have exactly one name.
        let saved = saved.filter_map(|mut saved| match saved.names.len() {
            1 => saved.names.pop(),
            _ => None,
        });
        let in_use_names = in_use
            .by_key
            .iter()
            .filter(|(_, (_, on_demand))| *on_demand);
        let in_use_names = in_use_names.map(|(name, _)| name.clone());
        for name in saved.chain(in_use_names).take(names_max) {
            if !self.inner().entries.contains_key(&name) {
                let entry = self.read_entry(&name, std::slice::from_ref(&name), true, in_use);
                self.inner().entries.insert(name, entry);
            }
        }
    }

    /// Creates an entry from the stored certificate and state.
    fn read_entry(
        &self,
        key: &str,
        names: &[String],
        on_demand: bool,
        in_use: &CertificatesInUse,
    ) -> CertificateEntry {
        let urls = self.settings.directories();
        // A plan that was stored for other names does not apply.
        let saved = self
            .folder
            .load_record(key)
            .filter(|saved| saved.names == names);
        let mut entry = CertificateEntry::new(names.to_vec(), on_demand, saved, urls);
        // The stamp is taken before the file is read, so that a change in between triggers the next check.
        entry.file.stamp = self.folder.certificate_stamp(key);
        let read = self.read_certificate(key).ok();
        let in_use_before = in_use.by_key.get(key).map(|(issued, _)| issued.clone());
        let is_same_folder = in_use.folder == self.settings.folder;
        let is_worse = |current: &IssuedCertificate| {
            let is_better = |read: &IssuedCertificate| read.is_better_than(current, names);
            let is_same =
                |read: &IssuedCertificate| read.pair.fingerprint() == current.pair.fingerprint();
            let is_acceptable = |read: &IssuedCertificate| is_better(read) || is_same(read);
            !read.as_ref().is_some_and(is_acceptable)
        };
        match in_use_before.filter(is_worse) {
            // The next file check reports the problem and restores the file.
            Some(current) if is_same_folder => {
                entry.file.is_unread = read.is_none();
                let outdated = "has an older certificate".to_owned();
                entry.file.fault = read.is_some().then_some(outdated);
                entry.use_certificate(current);
            }
            // A new folder has no stored state. The certificate in use stays until a new one is issued.
            Some(current) if read.is_none() => {
                entry.plan.clear_current();
                entry.issued = Some(current);
            }
            _ => match read {
                Some(read) => entry.use_certificate(read),
                None => {
                    // A plan or a file shows that a certificate existed, so the file check reports its loss.
                    let has_certificate = entry.plan.validity().is_some();
                    entry.file.is_unread = has_certificate || entry.file.stamp.is_some();
                }
            },
        }
        entry
    }
}
