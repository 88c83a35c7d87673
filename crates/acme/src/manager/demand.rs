//! Certificates for names that clients ask for: who gets one, and how many wait for the same.

use std::fmt;
use std::sync::Arc;

use super::entry::Entry;
use super::history::increment;
use super::{Inner, Shared};
use crate::name::{self, NotAName};

/// So many names that nobody wants are remembered.
const DENIED_MAX: usize = 10_000;

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There are none on demand.
    Off,
    /// It is no name.
    Name(NotAName),
    /// Whoever was asked does not want one.
    Unwanted,
    /// Too many names were asked for in this minute, or there are too many.
    TooMany,
    /// It was ordered in vain: why, in words.
    Failed(String),
}

impl fmt::Display for Denied {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Denied::Off => to.write_str("there are no certificates on demand"),
            Denied::Name(why) => write!(to, "{why}"),
            Denied::Unwanted => to.write_str("nobody wants one"),
            Denied::TooMany => to.write_str("too many names are asked for"),
            Denied::Failed(why) => to.write_str(why),
        }
    }
}

impl std::error::Error for Denied {}

pub(super) async fn get(shared: &Arc<Shared>, name: &str) -> Result<(), Denied> {
    let name = name::check(name).map_err(Denied::Name)?;
    if name.starts_with("*.") {
        return Err(Denied::Name(NotAName::Label));
    }
    let mut ended = shared.ended.subscribe();
    let mut asked = false;
    loop {
        let now_s = shared.settings.clock.unix_s();
        if let Some(answer) = shared.inner().look(&name, now_s) {
            return answer;
        }
        let is_there = shared.inner().entries.contains_key(&name);
        match (is_there, asked) {
            (true, _) => {}
            (false, true) => return Err(Denied::Unwanted),
            (false, false) => ask_for(shared, &name, now_s)?,
        }
        asked = true;
        // Its sender is in `shared`: there is one.
        let _ = ended.changed().await;
    }
}

/// Has it ordered, if nobody has.
fn ask_for(shared: &Shared, name: &str, now_s: u64) -> Result<(), Denied> {
    let on_demand = shared.settings.on_demand.as_ref().ok_or(Denied::Off)?;
    let too_many = || {
        increment(&shared.history.counters.demand_limited);
        Denied::TooMany
    };
    let mut inner = shared.inner();
    if inner.entries.contains_key(name) {
        return Ok(());
    }
    let entries = inner.entries.values();
    if entries.filter(|entry| entry.on_demand).count() >= on_demand.names_max {
        return Err(too_many());
    }
    inner.asked.take(now_s).map_err(|_| too_many())?;
    let entry = Entry::new(vec![name.into()], true, None, shared.settings.directories());
    inner.entries.insert(name.into(), entry);
    drop(inner);
    shared.wake.notify_one();
    Ok(())
}

impl Inner {
    /// `None`: it must be asked for, or waited for.
    fn look(&self, name: &str, now_s: u64) -> Option<Result<(), Denied>> {
        let Some(entry) = self.entries.get(name) else {
            let (until_s, why) = self.denied.get(name)?;
            return (now_s < *until_s).then(|| Err(why.clone()));
        };
        let issued = entry.issued.as_ref();
        if issued.is_some_and(|issued| now_s <= issued.validity.not_after_s) {
            return Some(Ok(()));
        }
        // One that is listed goes its own way.
        let error = entry.plan.last_error();
        let error = error.filter(|_| !entry.on_demand && !self.busy.contains_key(name))?;
        Some(Err(Denied::Failed(error.text.clone())))
    }

    /// It is not asked for again before.
    pub(super) fn deny(&mut self, name: &str, why: Denied, now_s: u64, until_s: u64) {
        if self.denied.len() >= DENIED_MAX {
            self.denied.retain(|_, (until_s, _)| now_s < *until_s);
        }
        // Full of what is still denied: those who ask are limited by the rate.
        if self.denied.len() < DENIED_MAX {
            self.denied.insert(name.into(), (until_s, why));
        }
    }
}
