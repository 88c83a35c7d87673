//! The learner: a pure state machine that decides which responses are fetched, published, extended and retired. Its
//! input is events and the time; its output is [`LearnAction`]s, to be carried out in order.
//!
//! ```text
//!           request          start                result
//! (nothing) ─────► waiting ───────────► fetching  ───────────► published ──► retired
//!                     ▲                  │     │                 │  ▲  expired, evicted, purged
//!                     └──────────────────┘     └─► denied        └──┘
//!                    outdated by a purge        10 s or 60 s   validated at 80 % of its lifetime
//! ```
//!
//! Fetching pauses if the fetches bring too few hits: see `FetchBudget`.
//!
//! The index knows only hashes: while one key occupies a hash, requests for any other key with this hash are left to
//! the server.
//!
//! Order of actions: a `Publish` may name the serial of the response that it replaces; a later action retires that
//! response. Retiring clears an index entry only if the entry still refers to the retired serial.

mod account;
mod action;
pub mod bypass;
mod denial_kind;
mod hit_forecast;
mod jobs;
mod responses;
mod settings;
#[cfg(test)]
mod tests;
mod verdict;

use self::account::FetchBudget;
pub use self::account::FetchBudgetRules as Trust;
pub use self::action::{FetchTicket, LearnAction, ResponseSerial, WithdrawnResponse};
pub use self::denial_kind::DenialKind;
use self::jobs::{FetchJob, FetchJobs};
use self::responses::{LearnedResponse, LearnedResponses, ResponseTimes};
pub use self::settings::LearnSettings;
pub use self::verdict::{FetchDenial, PublishableResponse, VerdictTerms, judge};
use crate::pattern::{RequestPattern, matches_pattern};
use crate::response::FetchError;
use crate::response::fetched_response::{FetchedResponse, RevalidationFields};
use lowroad_wire::key::RequestKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// Maximum number of remembered denials. If a denial is not remembered, the key may be fetched again too early.
const DENIED_MAX: usize = 16_384;

/// Counters of a `ResponseLearner`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnCounters {
    /// Keys reported by the programs.
    pub reported: u64,
    /// Fetches started.
    pub fetches: u64,
    /// Responses published.
    pub published: u64,
    /// Responses that were validated as unchanged.
    pub extended: u64,
    /// Responses retired when their freshness ended.
    pub expired: u64,
    /// Responses evicted to make room.
    pub evicted: u64,
    /// Responses retired by a purge.
    pub purged: u64,
    /// Responses retired because their successor differed or was not storable.
    pub replaced: u64,
    /// Fetches with a result discarded because of a purge during the fetch.
    pub outdated: u64,
    /// Keys not fetched because fetching was paused.
    pub paused: u64,
    /// Reported keys with a hash that another key occupies.
    pub collisions: u64,
    /// Denials by `FetchDenial::label`.
    pub denied: BTreeMap<&'static str, u64>,
}

/// The state machine. All calls take `now_ns` from the same monotonic clock, and append actions to `out`.
#[derive(Debug)]
pub struct ResponseLearner {
    settings: LearnSettings,
    jobs: FetchJobs,
    published: LearnedResponses,
    /// The end of each denial, by the hash of the denied key.
    denied: HashMap<u64, u64>,
    budget: FetchBudget,
    /// The next time at which all hits are counted.
    next_count_ns: u64,
    serial_next: u64,
    counters: LearnCounters,
}

impl ResponseLearner {
    /// Starts without published responses.
    pub fn new(settings: LearnSettings) -> ResponseLearner {
        ResponseLearner {
            budget: FetchBudget::new(settings.budget_rules.clone()),
            settings,
            jobs: FetchJobs::default(),
            published: LearnedResponses::default(),
            denied: HashMap::new(),
            next_count_ns: 0,
            serial_next: 0,
            counters: LearnCounters::default(),
        }
    }

    /// Limits the lifetimes of responses published from now on, regardless of their fields.
    pub fn limit_lifetimes(&mut self, secs: u64) {
        self.settings.lifetime_secs_max = secs.min(self.settings.lifetime_secs_max);
    }

    /// The counters.
    pub fn counters(&self) -> &LearnCounters {
        &self.counters
    }

    /// Number of published responses.
    pub fn published(&self) -> usize {
        self.published.len()
    }

    /// Numbers of running fetches, and of waiting keys.
    pub fn fetch_counts(&self) -> (usize, usize) {
        (self.jobs.in_progress(), self.jobs.waiting())
    }

    /// End of the current pause, in which no new key is fetched because fetches brought too few hits; `None` without a
    /// pause.
    pub fn paused_until(&mut self, now_ns: u64) -> Option<u64> {
        self.budget.paused_until(now_ns)
    }

    /// Ends a pause.
    pub fn try_again(&mut self) {
        self.budget.try_again();
    }

    /// Resets the fetch budget, since past results no longer predict future requests.
    pub fn reset_budget(&mut self) {
        self.budget.reset();
    }

    /// Handles a report of a repeated request for a key that is not published.
    pub fn process_request(
        &mut self,
        key: RequestKey,
        hash: u64,
        now_ns: u64,
        out: &mut Vec<LearnAction>,
    ) {
        self.counters.reported += 1;
        if let Some(entry) = self.published.by_hash(hash) {
            if entry.key != key {
                self.counters.collisions += 1;
                return;
            }
            // If the response is fresh, the report is older than the publication.
            if entry.expires_ns > now_ns {
                return;
            }
            self.counters.expired += 1;
            let withdrawn = self.published.remove(hash);
            retire(withdrawn, out);
        }
        if self.denied.get(&hash).is_some_and(|until| *until > now_ns) {
            return;
        }
        match FetchDenial::for_path(&key.parts(), &self.settings) {
            Some(denial) => self.deny(hash, denial, now_ns, out),
            None if !self.budget.allows(now_ns) => self.counters.paused += 1,
            None => self.enqueue(key, hash, now_ns, out),
        }
        self.start_fetches(now_ns, out);
    }

    /// Processes the end of a fetch.
    pub fn fetched(
        &mut self,
        ticket: FetchTicket,
        result: Result<FetchedResponse, FetchError>,
        now_ns: u64,
        out: &mut Vec<LearnAction>,
    ) {
        // Without a job, the fetch has timed out before.
        let Some(job) = self.jobs.end(ticket) else {
            return;
        };
        if job.is_outdated {
            // The response from before the purge is unusable, but clients still request the key.
            self.counters.outdated += 1;
            self.enqueue(job.key, job.hash, now_ns, out);
        } else {
            self.process_result(job, result, now_ns, out);
        }
        self.start_fetches(now_ns, out);
    }

    /// Handles timeouts, expiry and validation; to be called several times a second. `hits` returns the number of hits
    /// of a response since its publication.
    pub fn tick(
        &mut self,
        now_ns: u64,
        hits: impl FnMut(ResponseSerial, &RequestKey) -> u64,
        out: &mut Vec<LearnAction>,
    ) {
        self.denied.retain(|_, until| *until > now_ns);
        let fetch_ns_max = self.settings.fetch_secs_max * SECOND_NS;
        // A fetcher may be stuck. Its fetch ends here, and its late result will be ignored.
        for ticket in self
            .jobs
            .started_before(now_ns.saturating_sub(fetch_ns_max))
        {
            self.fetched(ticket, Err(FetchError::TimedOut), now_ns, out);
        }
        // Reading all counters is expensive, so it is done once a second.
        let counts_all = now_ns >= self.next_count_ns;
        if counts_all {
            self.next_count_ns = now_ns.saturating_add(SECOND_NS);
        }
        // Hits are counted before expired responses are removed below, so that the last hits of these responses count.
        let new = self.published.count_hits(now_ns, counts_all, hits);
        self.budget.credit(new.hits, new.projected, now_ns);
        let withdrawn = self.published.remove_where(|e| e.expires_ns <= now_ns);
        self.counters.expired += withdrawn.len() as u64;
        retire(withdrawn, out);
        for (key, hash, hits) in self.published.due_entries(now_ns) {
            // Half of the queue is reserved for new keys.
            let has_room = self.jobs.waiting() < self.settings.waiting_max.div_ceil(2);
            if has_room && (FetchBudget::covers_fetch(hits) || self.budget.allows(now_ns)) {
                self.charge_and_enqueue(key, hash);
            }
        }
        self.start_fetches(now_ns, out);
    }

    /// Retires matching responses. Matching fetches in progress are discarded and repeated, since the origin may have
    /// responded before the change that caused the purge.
    pub fn purge(&mut self, pattern: &RequestPattern, out: &mut Vec<LearnAction>) {
        let withdrawn = self
            .published
            .remove_where(|e| matches_pattern(pattern, &e.key));
        self.counters.purged += withdrawn.len() as u64;
        retire(withdrawn, out);
        self.jobs.mark_outdated(|key| matches_pattern(pattern, key));
        if *pattern == RequestPattern::All {
            self.denied.clear();
        }
    }

    /// Enqueues a key for fetching, unless it is queued already.
    fn enqueue(&mut self, key: RequestKey, hash: u64, now_ns: u64, out: &mut Vec<LearnAction>) {
        if self.jobs.is_known(hash) {
            return;
        }
        if self.jobs.waiting() >= self.settings.waiting_max {
            self.deny(hash, FetchDenial::Busy, now_ns, out);
            return;
        }
        self.charge_and_enqueue(key, hash);
    }

    /// Enqueues a key and charges the fetch budget.
    fn charge_and_enqueue(&mut self, key: RequestKey, hash: u64) {
        if self.jobs.enqueue(key, hash) {
            self.budget.charge();
        }
    }

    /// Starts as many fetches as the limit allows.
    fn start_fetches(&mut self, now_ns: u64, out: &mut Vec<LearnAction>) {
        while self.jobs.in_progress() < self.settings.in_progress_max {
            let Some((key, hash)) = self.jobs.next_waiting() else {
                return;
            };
            let entry = self.published.by_hash(hash).filter(|e| e.key == key);
            // A key with conditional fields is fetched with these fields, not with the stored validators.
            let revalidated = entry.filter(|_| !key.parts().is_conditional());
            let previous = revalidated.map(|e| Arc::clone(&e.stored));
            let validators = previous
                .as_deref()
                .map(RevalidationFields::from_response)
                .unwrap_or_default();
            let ticket = self.jobs.begin(FetchJob {
                key: key.clone(),
                hash,
                previous: previous.filter(|_| !validators.is_empty()),
                start_ns: now_ns,
                is_outdated: false,
            });
            self.counters.fetches += 1;
            out.push(LearnAction::Fetch {
                ticket,
                key,
                validators,
            });
        }
    }

    /// Processes the result of a fetch.
    fn process_result(
        &mut self,
        job: FetchJob,
        result: Result<FetchedResponse, FetchError>,
        now_ns: u64,
        out: &mut Vec<LearnAction>,
    ) {
        let terms = VerdictTerms {
            key: job.key.parts(),
            settings: &self.settings,
            // The delay includes the waiting time before and after the request: the computed age is rather too high
            // than too low.
            delay_ms: now_ns.saturating_sub(job.start_ns) / MILLISECOND_NS,
        };
        match judge(result, job.previous.as_deref(), &terms) {
            Ok(accepted) => self.accept(job, accepted, now_ns, out),
            Err(denial) => self.handle_denial(&job, denial, now_ns, out),
        }
    }

    fn accept(
        &mut self,
        job: FetchJob,
        accepted: PublishableResponse,
        now_ns: u64,
        out: &mut Vec<LearnAction>,
    ) {
        let generated_ns = now_ns.wrapping_sub(accepted.age_ms * MILLISECOND_NS);
        let expires_ns = now_ns.saturating_add(accepted.remaining_ms * MILLISECOND_NS);
        let with_age = self.settings.with_age;
        // If the bytes are identical, only the times change: the slot, its counters and the memos stay valid.
        if let Some(entry) = self.published.by_hash_mut(job.hash)
            && entry.encodes_to_same_bytes(&accepted, with_age)
        {
            entry.renew(accepted.stored, now_ns, expires_ns);
            let (serial, hash) = (entry.serial, job.hash);
            self.counters.extended += 1;
            out.push(LearnAction::Extend {
                serial,
                key: job.key,
                hash,
                generated_ns,
                expires_ns,
            });
            return;
        }
        // The old response is removed first, so that its space counts as free.
        let old = self.published.remove(job.hash);
        self.counters.replaced += old.len() as u64;
        if !self.make_room(accepted.prepared.bytes.len(), out) {
            retire(old, out);
            self.deny(job.hash, FetchDenial::Busy, now_ns, out);
            return;
        }
        let serial = self.next_serial();
        let stored = accepted.stored;
        let (key, hash) = (job.key, job.hash);
        self.published.insert(LearnedResponse::new(
            serial,
            key.clone(),
            hash,
            stored,
            ResponseTimes { now_ns, expires_ns },
            accepted.prepared.bytes.len(),
        ));
        self.counters.published += 1;
        out.push(LearnAction::Publish {
            serial,
            key,
            hash,
            prepared: accepted.prepared,
            generated_ns,
            expires_ns,
            replaces: old.first().map(|response| response.serial),
        });
        retire(old, out);
    }

    /// Evicts responses until one of this length fits; returns false if it does not fit even then.
    fn make_room(&mut self, len: usize, out: &mut Vec<LearnAction>) -> bool {
        let mut withdrawn = Vec::new();
        while !self.has_room(len) {
            match self.published.evict() {
                Some(evicted) => withdrawn.push(evicted),
                None => break,
            }
        }
        self.counters.evicted += withdrawn.len() as u64;
        retire(withdrawn, out);
        self.has_room(len)
    }

    fn has_room(&self, len: usize) -> bool {
        self.published.len() < self.settings.published_max
            && self.published.bytes() + len as u64 <= self.settings.published_bytes_max
    }

    /// Handles a denial. If the origin merely failed, a published response stays; if the origin sent an unpublishable
    /// response, the published one is retired and the key denied.
    fn handle_denial(
        &mut self,
        job: &FetchJob,
        denial: FetchDenial,
        now_ns: u64,
        out: &mut Vec<LearnAction>,
    ) {
        if denial.is_failure()
            && let Some(entry) = self.published.by_hash_mut(job.hash)
        {
            // The response is used until it expires; validation is retried later.
            entry.postpone(now_ns.saturating_add(self.settings.denied_secs * SECOND_NS));
            *self.counters.denied.entry(denial.label()).or_default() += 1;
            return;
        }
        let withdrawn = self.published.remove(job.hash);
        self.counters.replaced += withdrawn.len() as u64;
        retire(withdrawn, out);
        self.deny(job.hash, denial, now_ns, out);
    }

    /// Handles a failed publication under this hash: there was no room, or the head was unusable.
    pub fn reject_publication(&mut self, hash: u64, now_ns: u64) -> Vec<LearnAction> {
        let mut out = Vec::new();
        // The response was inserted when `LearnAction::Publish` was requested.
        self.published.remove(hash);
        self.deny(hash, FetchDenial::NoRoom, now_ns, &mut out);
        out
    }

    fn deny(&mut self, hash: u64, reason: FetchDenial, now_ns: u64, out: &mut Vec<LearnAction>) {
        let secs = reason.secs(&self.settings);
        let until_ns = now_ns.saturating_add(secs * SECOND_NS);
        *self.counters.denied.entry(reason.label()).or_default() += 1;
        if self.denied.len() < DENIED_MAX {
            self.denied.insert(hash, until_ns);
        }
        out.push(LearnAction::Deny {
            hash,
            until_ns,
            reason,
        });
    }

    fn next_serial(&mut self) -> ResponseSerial {
        self.serial_next += 1;
        ResponseSerial(self.serial_next)
    }
}

fn retire(withdrawn: Vec<WithdrawnResponse>, out: &mut Vec<LearnAction>) {
    if !withdrawn.is_empty() {
        out.push(LearnAction::Retire { withdrawn });
    }
}
