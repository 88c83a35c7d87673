//! One certificate: what is planned, what there is, and what is being done.

use crate::folder::Saved;
use crate::issued::Issued;
use crate::plan::Plan;
use crate::settings::Settings;
use crate::state::{Next, State};

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
    pub busy: Option<Busy>,
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
            busy: None,
        }
    }

    /// What the certificate is called: its first name.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
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

    pub fn state(&self, settings: &Settings, now_s: u64) -> State {
        let (next, authority) = match self.busy {
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
