//! Certificates on demand: decides which names that clients request get a certificate. Concurrent requests for the same
//! name share one order.

use std::fmt;
use std::sync::Arc;

use super::entry::CertificateEntry;
use super::history::increment;
use super::{ManagerContext, ManagerState};
use crate::name::{self, InvalidIdentifier};

/// The maximum number of refused names that are remembered.
const DENIED_MAX: usize = 10_000;

/// The reason for which there is no certificate for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DemandRefusal {
    /// Certificates on demand are disabled.
    Off,
    /// The name is invalid.
    Name(InvalidIdentifier),
    /// The operator's service refused the name.
    Unwanted,
    /// Too many new names were requested in this minute, or too many names have a certificate.
    TooMany,
    /// The order failed, for this reason.
    Failed(String),
}

impl fmt::Display for DemandRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemandRefusal::Off => f.write_str("certificates on demand are disabled"),
            DemandRefusal::Name(reason) => write!(f, "{reason}"),
            DemandRefusal::Unwanted => f.write_str("the name is not permitted"),
            DemandRefusal::TooMany => f.write_str("too many names are requested"),
            DemandRefusal::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for DemandRefusal {}

pub(super) async fn get(shared: &Arc<ManagerContext>, name: &str) -> Result<(), DemandRefusal> {
    let name = name::check(name).map_err(DemandRefusal::Name)?;
    // SNI never contains a wildcard.
    if name.starts_with("*.") {
        return Err(DemandRefusal::Name(InvalidIdentifier::Label));
    }
    // The subscription begins before the first lookup, so that the end of a task in between is not missed.
    let mut ended = shared.ended.subscribe();
    let mut is_requested = false;
    loop {
        let now_s = shared.settings.clock.unix_s();
        if let Some(answer) = shared.inner().known_result(&name, now_s) {
            return answer;
        }
        let has_entry = shared.inner().entries.contains_key(&name);
        match (has_entry, is_requested) {
            (true, _) => {}
            // The entry was removed after a refusal or failure of which there is no record (any more).
            (false, true) => return Err(DemandRefusal::Unwanted),
            (false, false) => request_order(shared, &name, now_s)?,
        }
        is_requested = true;
        // The wait does not fail: `shared` holds the sender.
        let _ = ended.changed().await;
    }
}

/// Requests an order for the name, unless one was already requested.
fn request_order(shared: &ManagerContext, name: &str, now_s: u64) -> Result<(), DemandRefusal> {
    let on_demand = shared
        .settings
        .on_demand
        .as_ref()
        .ok_or(DemandRefusal::Off)?;
    let too_many = || {
        increment(&shared.history.counters.demand_limited);
        DemandRefusal::TooMany
    };
    let mut inner = shared.inner();
    // Another caller may have requested an order since the lookup.
    if inner.entries.contains_key(name) {
        return Ok(());
    }
    let entries = inner.entries.values();
    if entries.filter(|entry| entry.on_demand).count() >= on_demand.names_max {
        return Err(too_many());
    }
    // Each new name costs a request to the operator's service, so new names are rate-limited.
    inner.demand_window.take(now_s).map_err(|_| too_many())?;
    let entry = CertificateEntry::new(vec![name.into()], true, None, shared.settings.directories());
    inner.entries.insert(name.into(), entry);
    drop(inner);
    shared.wake.notify_one();
    Ok(())
}

impl ManagerState {
    /// The result for a name, if known. `None`: an order must be requested, or is in progress.
    fn known_result(&self, name: &str, now_s: u64) -> Option<Result<(), DemandRefusal>> {
        let Some(entry) = self.entries.get(name) else {
            let (until_s, refusal) = self.denied.get(name)?;
            return (now_s < *until_s).then(|| Err(refusal.clone()));
        };
        let issued = entry.issued.as_ref();
        // An expired certificate is of no use to a waiting client.
        if issued.is_some_and(|issued| now_s <= issued.validity.not_after_s) {
            return Some(Ok(()));
        }
        // A failed order for a configured name ends the wait, since its retries follow their own schedule.
        let error = entry.plan.last_error();
        let error = error.filter(|_| !entry.on_demand && !self.busy.contains_key(name))?;
        Some(Err(DemandRefusal::Failed(error.text.clone())))
    }

    /// Refuses requests for the name until `until_s`.
    pub(super) fn deny(&mut self, name: &str, refusal: DemandRefusal, now_s: u64, until_s: u64) {
        if self.denied.len() >= DENIED_MAX {
            self.denied.retain(|_, (until_s, _)| now_s < *until_s);
        }
        // If the map is full of unexpired refusals, the rate limit still bounds new requests.
        if self.denied.len() < DENIED_MAX {
            self.denied.insert(name.into(), (until_s, refusal));
        }
    }
}
