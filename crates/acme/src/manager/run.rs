//! Does what is due, one task for each order and question, and notes what has come of it.

use std::collections::HashMap;
use std::sync::Arc;

use instant_acme::{CertificateIdentifier, Error};
use tokio::task::{Id, JoinError, JoinSet};

use super::entry::{Busy, Entry};
use super::note::{Asked, Ended};
use super::{HOUR_S, MINUTE_S, Shared, jitter};
use crate::account;
use crate::folder::Saved;
use crate::order::{self, Wanted};
use crate::plan::{Due, Trouble, Window};

/// Orders, and questions, at the same time.
const TASKS_MAX: usize = 8;
/// Nobody is asked for a window more often, or less often.
const ASK_S: std::ops::RangeInclusive<u64> = MINUTE_S..=24 * HOUR_S;
/// A certificate that could not be stored: how long between two tries, and how many.
const STORE_AGAIN_S: u64 = 300;
const STORES_MAX: u32 = 300;

type Task = (String, Ended);

/// Runs until it is dropped; its tasks end with it.
pub(super) async fn run(shared: Arc<Shared>) {
    let clock = shared.settings.clock.clone();
    let mut runner = Runner {
        shared,
        tasks: JoinSet::new(),
        keys: HashMap::new(),
    };
    loop {
        let next_s = runner.start_what_is_due();
        tokio::select! {
            () = runner.shared.wake.notified() => {}
            Some(ended) = runner.tasks.join_next_with_id() => runner.ended(ended).await,
            () = clock.sleep_until(next_s) => {}
        }
    }
}

struct Runner {
    shared: Arc<Shared>,
    tasks: JoinSet<Task>,
    /// Whose task it is.
    keys: HashMap<Id, String>,
}

impl Runner {
    /// Gives when there is something to do again.
    fn start_what_is_due(&mut self) -> u64 {
        let shared = self.shared.clone();
        let now_s = shared.settings.clock.unix_s();
        let mut next_s = u64::MAX;
        let mut inner = shared.inner();
        let inner = &mut *inner;
        for (key, entry) in &mut inner.entries {
            if entry.busy.is_some() {
                continue;
            }
            let due = entry.plan.due(now_s);
            if let Due::At(at_s) = due {
                next_s = next_s.min(at_s);
                continue;
            }
            if self.tasks.len() >= TASKS_MAX {
                // Whichever ends first makes room.
                break;
            }
            match due {
                Due::Order(place) => match inner.orders.take(now_s) {
                    Ok(()) => self.order(key, entry, place),
                    Err(free_s) => next_s = next_s.min(free_s),
                },
                _ => self.ask(key, entry),
            }
        }
        next_s
    }

    fn order(&mut self, key: &str, entry: &mut Entry, place: usize) {
        let same = entry.place(&self.shared.settings) == Some(place);
        let issued = entry.issued.as_ref().filter(|_| same);
        let wanted = Wanted {
            key: key.into(),
            names: entry.names.clone(),
            on_demand: entry.on_demand,
            place,
            replaces: issued.and_then(|issued| issued.id.clone()),
        };
        entry.busy = Some(Busy::Ordering(place));
        let got = order::get(self.shared.clone(), wanted);
        self.spawn(key, async move { Ended::Ordered(place, got.await) });
    }

    fn ask(&mut self, key: &str, entry: &mut Entry) {
        let place = entry.place(&self.shared.settings);
        let id = entry.issued.as_ref().and_then(|issued| issued.id.clone());
        let (Some(place), Some(id)) = (place, id) else {
            // Nobody of ours has signed it.
            entry.plan.window(None, u64::MAX, jitter());
            self.shared.wake.notify_one();
            return;
        };
        entry.busy = Some(Busy::Asking);
        let shared = self.shared.clone();
        self.spawn(key, async move {
            Ended::Asked(window(&shared, place, id).await)
        });
    }

    fn spawn(&mut self, key: &str, task: impl Future<Output = Ended> + Send + 'static) {
        let owned = key.to_owned();
        let handle = self.tasks.spawn(async move { (owned, task.await) });
        self.keys.insert(handle.id(), key.into());
    }

    async fn ended(&mut self, ended: Result<(Id, Task), JoinError>) {
        let (id, key, ended) = match ended {
            Ok((id, (key, ended))) => (id, key, ended),
            // A task that panics must not hold its certificate for ever.
            Err(error) => {
                let id = error.id();
                let key = self.keys.get(&id).cloned().unwrap_or_default();
                let trouble = Trouble::local("a task has ended by a fault of the program");
                (id, key, Ended::Ordered(0, Err(trouble)))
            }
        };
        self.keys.remove(&id);
        let saved = self.note(&key, ended);
        let folder = self.shared.folder.clone();
        let saving = tokio::task::spawn_blocking(move || match saved {
            Some(Some(saved)) => folder.save(&key, &saved),
            Some(None) => folder.forget(&key),
            None => Ok(()),
        });
        if let Ok(Err(trouble)) = saving.await {
            self.shared.log(&trouble.text);
        }
        self.shared.ended.send_modify(|count| *count += 1);
    }

    /// Gives what is to be saved, or that it is to be forgotten. `None`: neither.
    fn note(&mut self, key: &str, ended: Ended) -> Option<Option<Saved>> {
        let shared = self.shared.clone();
        let now_s = shared.settings.clock.unix_s();
        let mut inner = shared.inner();
        // It may be wanted no longer.
        let entry = inner.entries.get_mut(key)?;
        let noted = entry.note(ended, &shared.settings, now_s);
        if let Some(pem) = noted.unsaved {
            self.store_later(key, entry, pem);
        }
        let mut saved = Some(entry.saved());
        if let Some((why, until_s)) = noted.gone {
            inner.entries.remove(key);
            inner.deny(key, why, now_s, until_s);
            saved = None;
        }
        drop(inner);
        if noted.changed {
            shared.changed();
        }
        if let Some(line) = noted.line {
            shared.log(&line);
        }
        Some(saved)
    }

    /// It is shown already; if only it outlived a restart, too.
    fn store_later(&mut self, key: &str, entry: &mut Entry, pem: Vec<u8>) {
        entry.busy = Some(Busy::Asking);
        let (shared, owned) = (self.shared.clone(), key.to_owned());
        self.spawn(key, async move {
            let mut tries = 0;
            loop {
                let clock = &shared.settings.clock;
                clock.sleep_until(clock.unix_s() + STORE_AGAIN_S).await;
                tries += 1;
                match shared.folder.store_certificate(&owned, &pem) {
                    Err(_) if tries < STORES_MAX => {}
                    stored => return Ended::Stored(stored),
                }
            }
        });
    }
}

/// Asks when the authority wants a certificate renewed.
async fn window(shared: &Shared, place: usize, id: CertificateIdentifier<'static>) -> Asked {
    let settings = &shared.settings;
    let now_s = || settings.clock.unix_s();
    let Ok(http) = shared.http(place) else {
        return Asked::Nothing;
    };
    let authority = &settings.authorities[place];
    let Ok(opened) = account::open(settings, &shared.folder, authority, &http).await else {
        return Asked::Nothing;
    };
    match opened.account.renewal_info(&id).await {
        Ok((info, again)) => {
            let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
            let window = Window {
                start_s: seconds(info.suggested_window.start.unix_timestamp()),
                end_s: seconds(info.suggested_window.end.unix_timestamp()),
            };
            let again_s = again.as_secs().clamp(*ASK_S.start(), *ASK_S.end());
            Asked::Window(Some(window), now_s() + again_s)
        }
        Err(Error::Unsupported(_)) => Asked::Window(None, now_s() + ASK_S.end()),
        Err(_) => Asked::Nothing,
    }
}
