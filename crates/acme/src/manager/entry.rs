//! One certificate: what is planned, what there is, and what is being done.

use super::file_check::{FileCheck, FileRecord};
use super::jitter;
use crate::folder::Saved;
use crate::issued::Issued;
use crate::plan::{LifetimeStage, Plan};
use crate::settings::Settings;
use crate::severity::Severity;
use crate::state::{Next, State, display_time};

/// What is done for a certificate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// Ordering from the authority at this place.
    Ordering(usize),
    /// Asking for its window.
    Asking,
}

/// One certificate.
pub(super) struct Entry {
    pub names: Vec<String>,
    pub on_demand: bool,
    pub plan: Plan,
    /// What is shown, be it for other names, or over.
    pub issued: Option<Issued>,
    /// The directory of who has signed it.
    pub authority: Option<String>,
    pub file: FileRecord,
    /// What the log has of the end of the certificate.
    pub logged_stage: LifetimeStage,
    /// On demand: it was not wanted when it was to be renewed.
    pub is_unwanted: bool,
    /// The last request for the authority's renewal window failed.
    pub has_window_failed: bool,
}

impl Entry {
    pub fn new<'a>(
        names: Vec<String>,
        on_demand: bool,
        saved: Option<Saved>,
        urls: impl Iterator<Item = &'a str>,
    ) -> Entry {
        let (plan, authority) = match saved {
            Some(saved) => (saved.plan, saved.authority),
            None => (Plan::default(), None),
        };
        Entry {
            names,
            on_demand,
            plan: plan.with(urls),
            issued: None,
            authority,
            file: FileRecord::default(),
            logged_stage: LifetimeStage::Valid,
            is_unwanted: false,
            has_window_failed: false,
        }
    }

    /// Uses a certificate that was read. One that is not for all names is better than none.
    pub fn take(&mut self, issued: Issued) {
        match issued.covers(&self.names) {
            true => {
                let fingerprint = issued.pair.fingerprint();
                self.plan.holds(fingerprint, issued.validity, jitter());
            }
            false => self.plan.holds_none(),
        }
        self.issued = Some(issued);
    }

    /// How near the end of the certificate in use is. `None`: there is none, or not for all names.
    pub fn stage(&self, now_s: u64) -> Option<LifetimeStage> {
        let issued = self.issued.as_ref()?;
        let is_for_all = issued.covers(&self.names);
        is_for_all.then(|| issued.validity.stage(now_s))
    }

    /// How much a failure matters: with a certificate that is valid for a while there is time to try again.
    pub fn failure_severity(&self, now_s: u64) -> Severity {
        match self.stage(now_s) {
            Some(LifetimeStage::Valid) => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// A line about the end of the certificate, once when it comes near and once when it has come.
    pub fn expiry_line(&mut self, now_s: u64) -> Option<String> {
        let validity = self.issued.as_ref()?.validity;
        let stage = validity.stage(now_s);
        if stage <= self.logged_stage {
            return None;
        }
        self.logged_stage = stage;
        if self.is_unwanted {
            return None;
        }
        let what = match stage {
            LifetimeStage::Expired => "has expired, and is still in use",
            _ => "expires soon, and is not renewed yet",
        };
        let mut line = format!(
            "{}: the certificate {what} (end {})",
            self.name(),
            display_time(validity.not_after_s)
        );
        if let Some(error) = self.plan.last_error() {
            line.push_str(&format!("; last error: {}", error.text));
        }
        Some(line)
    }

    /// What the certificate is called: its first name.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// What its file is compared with.
    pub fn file_check(&self, key: &str) -> FileCheck {
        FileCheck {
            key: key.into(),
            names: self.names.clone(),
            record: self.file.clone(),
            issued: self.issued.clone(),
        }
    }

    pub fn saved(&self) -> Saved {
        Saved {
            names: self.names.clone(),
            on_demand: self.on_demand,
            authority: self.authority.clone(),
            plan: self.plan.clone(),
        }
    }

    /// The place of the authority that has signed it, if it is still one of ours.
    pub fn place(&self, settings: &Settings) -> Option<usize> {
        let url = self.authority.as_ref()?;
        let mut authorities = settings.authorities.iter();
        authorities.position(|authority| authority.directory == *url)
    }

    pub fn state(&self, busy: Option<Busy>, settings: &Settings, now_s: u64) -> State {
        let (next, authority) = match busy {
            Some(Busy::Ordering(place)) => {
                let asked = settings.authorities.get(place);
                (Next::Ordering, asked.map(|asked| asked.directory.clone()))
            }
            _ => (
                Next::Order(self.plan.next_order_s(now_s)),
                self.authority.clone(),
            ),
        };
        State {
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
