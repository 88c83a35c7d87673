//! The entry of one certificate: its plan, its current state, and its running task.

use super::file_check::{FileCheck, FileRecord};
use super::jitter;
use crate::folder::CertificateRecord;
use crate::issued_certificate::IssuedCertificate;
use crate::plan::{LifetimeStage, RenewalPlan};
use crate::settings::AcmeSettings;
use crate::severity::Severity;
use crate::state::{CertificateState, RenewalStep, display_time};

/// The running task of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryActivity {
    /// An order, from the authority at this index.
    Ordering(usize),
    /// A request for the renewal window.
    RequestingWindow,
}

/// A wanted certificate.
pub(super) struct CertificateEntry {
    pub names: Vec<String>,
    pub on_demand: bool,
    pub plan: RenewalPlan,
    /// The certificate in use; it may lack some of the names or have expired.
    pub issued: Option<IssuedCertificate>,
    /// The directory URL of the certificate's issuer.
    pub authority: Option<String>,
    pub file: FileRecord,
    /// The last stage of the lifetime that was logged.
    pub logged_stage: LifetimeStage,
    /// On demand: the operator's service refused to renew the certificate.
    pub is_unwanted: bool,
    /// The last request for the renewal window failed.
    pub has_window_failed: bool,
}

impl CertificateEntry {
    pub fn new<'a>(
        names: Vec<String>,
        on_demand: bool,
        saved: Option<CertificateRecord>,
        urls: impl Iterator<Item = &'a str>,
    ) -> CertificateEntry {
        let (plan, authority) = match saved {
            Some(saved) => (saved.plan, saved.authority),
            None => (RenewalPlan::default(), None),
        };
        CertificateEntry {
            names,
            on_demand,
            // The stored plan may have other authorities; the state of those that are still configured is kept.
            plan: plan.with_authorities(urls),
            issued: None,
            authority,
            file: FileRecord::default(),
            logged_stage: LifetimeStage::Valid,
            is_unwanted: false,
            has_window_failed: false,
        }
    }

    /// Uses a certificate from a file. A certificate that lacks names is better than none.
    pub fn use_certificate(&mut self, issued: IssuedCertificate) {
        match issued.covers(&self.names) {
            true => {
                let fingerprint = issued.pair.fingerprint();
                self.plan
                    .set_current(fingerprint, issued.validity, jitter());
            }
            false => self.plan.clear_current(),
        }
        self.issued = Some(issued);
    }

    /// The lifetime stage of the certificate in use. `None`: there is no certificate, or it lacks names.
    pub fn stage(&self, now_s: u64) -> Option<LifetimeStage> {
        let issued = self.issued.as_ref()?;
        let covers_all = issued.covers(&self.names);
        covers_all.then(|| issued.validity.stage(now_s))
    }

    /// The severity of a failure: a warning while the certificate is valid for long enough to retry, otherwise an
    /// error.
    pub fn failure_severity(&self, now_s: u64) -> Severity {
        match self.stage(now_s) {
            Some(LifetimeStage::Valid) => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The log line about expiry: one when the certificate expires soon, another when it has expired.
    pub fn expiry_line(&mut self, now_s: u64) -> Option<String> {
        let validity = self.issued.as_ref()?.validity;
        let stage = validity.stage(now_s);
        // Each stage is logged once.
        if stage <= self.logged_stage {
            return None;
        }
        self.logged_stage = stage;
        // The operator has refused the renewal, so expiry is expected.
        if self.is_unwanted {
            return None;
        }
        let validity_text = match stage {
            LifetimeStage::Expired => "has expired and is still in use",
            _ => "expires soon and is not renewed yet",
        };
        let mut line = format!(
            "{}: the certificate {validity_text} (end {})",
            self.name(),
            display_time(validity.not_after_s)
        );
        if let Some(error) = self.plan.last_error() {
            line.push_str(&format!("; last error: {}", error.text));
        }
        Some(line)
    }

    /// The certificate's key: its first name.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The input for a check of the certificate's file.
    pub fn file_check(&self, key: &str) -> FileCheck {
        FileCheck {
            key: key.into(),
            names: self.names.clone(),
            record: self.file.clone(),
            issued: self.issued.clone(),
        }
    }

    pub fn saved(&self) -> CertificateRecord {
        CertificateRecord {
            names: self.names.clone(),
            on_demand: self.on_demand,
            authority: self.authority.clone(),
            plan: self.plan.clone(),
        }
    }

    /// The index of the certificate's issuer, if it is still configured.
    pub fn authority_index(&self, settings: &AcmeSettings) -> Option<usize> {
        let url = self.authority.as_ref()?;
        let mut authorities = settings.authorities.iter();
        authorities.position(|authority| authority.directory == *url)
    }

    pub fn state(
        &self,
        busy: Option<EntryActivity>,
        settings: &AcmeSettings,
        now_s: u64,
    ) -> CertificateState {
        let (next, authority) = match busy {
            Some(EntryActivity::Ordering(authority_index)) => {
                let in_order = settings.authorities.get(authority_index);
                (
                    RenewalStep::Ordering,
                    in_order.map(|in_order| in_order.directory.clone()),
                )
            }
            _ => (
                RenewalStep::Order(self.plan.next_order_s(now_s)),
                self.authority.clone(),
            ),
        };
        CertificateState {
            names: self.names.clone(),
            authority,
            not_after_s: self
                .issued
                .as_ref()
                .map(|issued| issued.validity.not_after_s),
            next,
            last_error: self.plan.last_error().cloned(),
            now_s,
        }
    }
}
