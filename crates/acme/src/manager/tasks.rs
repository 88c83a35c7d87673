//! The task runner of a manager: starts tasks that are due (orders, and requests for renewal windows), and applies
//! their outcomes. Also checks certificate files, and logs certificates that expire soon.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use instant_acme::{CertificateIdentifier, Error};
use tokio::task::{Id, JoinError, JoinSet};

use super::entry::{CertificateEntry, EntryActivity};
use super::file_check::FileCheck;
use super::history::increment;
use super::outcomes::TaskOutcome;
use super::{HOUR_S, MINUTE_S, ManagerContext, ManagerState, jitter};
use crate::account;
use crate::error::to_failure;
use crate::order::{self, OrderRequest};
use crate::plan::{AcmeFailure, PlanStep, RenewalWindow};
use crate::severity::Severity;
use crate::state::display_time;

/// The maximum number of concurrent tasks.
const TASKS_MAX: usize = 8;
/// The bounds of the interval between requests for a renewal window; a Retry-After outside of them is clamped.
const WINDOW_INTERVAL_S: std::ops::RangeInclusive<u64> = MINUTE_S..=24 * HOUR_S;
/// The interval of file checks if no changes are reported.
const FILE_CHECK_INTERVAL_S: u64 = MINUTE_S;

type AcmeTask = (String, TaskOutcome);

/// Runs until the future is dropped, which also ends its tasks.
pub(super) async fn run(shared: Arc<ManagerContext>) {
    let clock = shared.settings.clock.clone();
    let mut runner = TaskRunner {
        shared,
        tasks: JoinSet::new(),
        keys: HashMap::new(),
        next_check_s: 0,
        is_rate_limited: false,
    };
    runner.probe().await;
    loop {
        runner.check_files().await;
        let expiry_s = runner.log_expiry();
        let due_s = runner.start_due_tasks();
        let next_s = due_s.min(expiry_s).min(runner.next_check_s);
        tokio::select! {
            () = runner.shared.wake.notified() => {}
            Some(ended) = runner.tasks.join_next_with_id() => runner.handle_ended(ended).await,
            () = clock.sleep_until(next_s) => {}
        }
    }
}

struct TaskRunner {
    shared: Arc<ManagerContext>,
    tasks: JoinSet<AcmeTask>,
    /// The certificate key of each task.
    keys: HashMap<Id, String>,
    next_check_s: u64,
    /// The limit per hour is delaying orders, and this has been logged.
    is_rate_limited: bool,
}

impl TaskRunner {
    /// Tests whether the folder is writable, to report a problem long before a certificate must be stored.
    async fn probe(&self) {
        let folder = self.shared.folder.clone();
        let probed = tokio::task::spawn_blocking(move || folder.probe_all()).await;
        if let Ok(Err(failure)) = probed {
            let now_s = self.shared.settings.clock.unix_s();
            let severity = {
                let inner = self.shared.inner();
                let entries = inner.entries.values();
                entries.map(|entry| entry.failure_severity(now_s)).max()
            };
            let severity = severity.unwrap_or(Severity::Warning);
            self.shared.log(
                severity,
                &format!("certificates cannot be stored: {failure}"),
            );
        }
    }

    /// Checks files if a check is due; skips certificates that have a running task.
    async fn check_files(&mut self) {
        let now_s = self.shared.settings.clock.unix_s();
        let is_requested = self.shared.files_changed.swap(false, Ordering::Relaxed);
        if !is_requested && now_s < self.next_check_s {
            return;
        }
        self.next_check_s = now_s + FILE_CHECK_INTERVAL_S;
        let checks: Vec<FileCheck> = {
            // An order replaces the file, so a concurrent check would compare it with an outdated state.
            let inner = &*self.shared.inner();
            let entries = inner.entries.iter();
            let idle = entries.filter(|(key, _)| !inner.busy.contains_key(*key));
            idle.map(|(key, entry)| entry.file_check(key)).collect()
        };
        let shared = self.shared.clone();
        // The outcome is applied on the same thread: if a check has written a file, this is logged even if the manager
        // ends in the meantime.
        let checked = tokio::task::spawn_blocking(move || {
            for checked in checks.into_iter().filter_map(|check| check.run(&shared)) {
                let key = checked.key.clone();
                shared.apply(&key, |entry, context| {
                    entry.apply_file_check(checked, context)
                });
            }
        });
        let _ = checked.await;
        increment(&self.shared.history.counters.file_checks);
    }

    /// Logs certificates that expire soon or have expired. Returns the time at which the next certificate changes its
    /// stage.
    fn log_expiry(&self) -> u64 {
        let now_s = self.shared.settings.clock.unix_s();
        let mut next_s = u64::MAX;
        let mut lines = Vec::new();
        for entry in self.shared.inner().entries.values_mut() {
            lines.extend(entry.expiry_line(now_s));
            let validity = entry.issued.as_ref().map(|issued| issued.validity);
            next_s = next_s.min(validity.map_or(u64::MAX, |it| it.next_stage_s(now_s)));
        }
        // The lines are logged without the lock, since the callback may use the view.
        for line in lines {
            self.shared.log(Severity::Error, &line);
        }
        next_s
    }

    /// Starts the tasks that are due; returns the time at which the next task is due.
    fn start_due_tasks(&mut self) -> u64 {
        let shared = self.shared.clone();
        let now_s = shared.settings.clock.unix_s();
        let mut next_s = u64::MAX;
        let mut limited_s = None;
        let mut inner = shared.inner();
        let ManagerState {
            entries,
            busy,
            orders,
            ..
        } = &mut *inner;
        for (key, entry) in entries {
            if busy.contains_key(key) {
                continue;
            }
            let due = entry.plan.next_step(now_s);
            if let PlanStep::At(at_s) = due {
                next_s = next_s.min(at_s);
                continue;
            }
            if self.tasks.len() >= TASKS_MAX {
                // The next task to end makes room.
                break;
            }
            let activity = match due {
                PlanStep::Order(authority_index) => match orders.take(now_s) {
                    Ok(()) => Some(self.order(key, entry, authority_index)),
                    // The limit applies to all names together, so the remaining orders must wait too.
                    Err(free_s) => {
                        limited_s = Some(free_s);
                        None
                    }
                },
                _ => self.request_window(key, entry),
            };
            busy.extend(activity.map(|activity| (key.clone(), activity)));
        }
        drop(inner);
        self.log_rate_limit(limited_s);
        next_s.min(limited_s.unwrap_or(u64::MAX))
    }

    /// Logs one line each time the limit begins to delay orders.
    fn log_rate_limit(&mut self, free_s: Option<u64>) {
        let was_limited = std::mem::replace(&mut self.is_rate_limited, free_s.is_some());
        if let (Some(free_s), false) = (free_s, was_limited) {
            let max = self.shared.settings.orders_per_hour_max;
            let line = format!(
                "orders are paused until {}: {max} were made within an hour (orders_per_hour)",
                display_time(free_s)
            );
            self.shared.log(Severity::Warning, &line);
        }
    }

    fn order(
        &mut self,
        key: &str,
        entry: &CertificateEntry,
        authority_index: usize,
    ) -> EntryActivity {
        let is_same = entry.authority_index(&self.shared.settings) == Some(authority_index);
        // `replaces` is meaningful only to the authority that issued the certificate (RFC 9773 §5).
        let issued = entry.issued.as_ref().filter(|_| is_same);
        let request = OrderRequest {
            key: key.into(),
            names: entry.names.clone(),
            on_demand: entry.on_demand,
            authority_index,
            replaces: issued.and_then(|issued| issued.id.clone()),
        };
        increment(&self.shared.history.counters.orders);
        let got = order::obtain(self.shared.clone(), request);
        self.spawn(key, async move {
            TaskOutcome::Ordered(authority_index, got.await)
        });
        EntryActivity::Ordering(authority_index)
    }

    fn request_window(&mut self, key: &str, entry: &mut CertificateEntry) -> Option<EntryActivity> {
        let authority_index = entry.authority_index(&self.shared.settings);
        let id = entry.issued.as_ref().and_then(|issued| issued.id.clone());
        let (Some(authority_index), Some(id)) = (authority_index, id) else {
            // The issuer is unknown or no longer configured. Without a window, the certificate is renewed after two
            // thirds of its lifetime, and no further request is made.
            entry.plan.window(None, u64::MAX, jitter());
            self.shared.wake.notify_one();
            return None;
        };
        let shared = self.shared.clone();
        self.spawn(key, async move {
            match window(&shared, authority_index, id).await {
                Ok((window, next_query_s)) => TaskOutcome::Window(window, next_query_s),
                Err(failure) => TaskOutcome::NoWindow(failure),
            }
        });
        Some(EntryActivity::RequestingWindow)
    }

    fn spawn(&mut self, key: &str, task: impl Future<Output = TaskOutcome> + Send + 'static) {
        let owned = key.to_owned();
        let handle = self.tasks.spawn(async move { (owned, task.await) });
        self.keys.insert(handle.id(), key.into());
    }

    async fn handle_ended(&mut self, handle_ended: Result<(Id, AcmeTask), JoinError>) {
        let (id, key, outcome) = match handle_ended {
            Ok((id, (key, outcome))) => (id, key, outcome),
            // A task that panicked must not block its certificate.
            Err(error) => {
                let id = error.id();
                let key = self.keys.get(&id).cloned().unwrap_or_default();
                let failure = AcmeFailure::local("internal error: a task ended unexpectedly");
                (id, key, TaskOutcome::Ordered(0, Err(failure)))
            }
        };
        self.keys.remove(&id);
        // The key is removed before the outcome is applied, which may make the next task due.
        self.shared.inner().busy.remove(&key);
        let shared = self.shared.clone();
        let applied = tokio::task::spawn_blocking(move || {
            shared.apply(&key, |entry, context| entry.apply(outcome, context));
        });
        let _ = applied.await;
        self.shared.ended.send_modify(|count| *count += 1);
    }
}

/// Requests a certificate's renewal window; returns it with the time of the next request.
async fn window(
    shared: &Arc<ManagerContext>,
    authority_index: usize,
    id: CertificateIdentifier<'static>,
) -> Result<(Option<RenewalWindow>, u64), AcmeFailure> {
    let settings = &shared.settings;
    let now_s = || settings.clock.unix_s();
    let authority = &settings.authorities[authority_index];
    let named = |mut failure: AcmeFailure| {
        failure.text = format!("{}: {}", authority.directory, failure.text);
        failure
    };
    let http = shared.http(authority_index).map_err(AcmeFailure::local)?;
    let opened = account::open(shared, authority, &http).await;
    let opened = opened.map_err(named)?;
    match opened.account.renewal_info(&id).await {
        Ok((info, retry_after)) => {
            let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
            let window = RenewalWindow {
                start_s: seconds(info.suggested_window.start.unix_timestamp()),
                end_s: seconds(info.suggested_window.end.unix_timestamp()),
            };
            // The authority's interval is bounded: too short a one would flood it with requests, too long a one would
            // stop polling.
            let retry_after_s = retry_after
                .as_secs()
                .clamp(*WINDOW_INTERVAL_S.start(), *WINDOW_INTERVAL_S.end());
            Ok((Some(window), now_s() + retry_after_s))
        }
        Err(Error::Unsupported(_)) => Ok((None, now_s() + WINDOW_INTERVAL_S.end())),
        Err(error) => Err(named(to_failure(&error, opened.client.response_meta()))),
    }
}
