//! The queue of keys to fetch, and the fetches in progress.

use super::FetchTicket;
use crate::response::fetched_response::FetchedResponse;
use lowroad_wire::key::RequestKey;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// A fetch in progress.
#[derive(Debug)]
pub(super) struct FetchJob {
    pub(super) key: RequestKey,
    pub(super) hash: u64,
    /// The stored response to validate; `None` if the request is unconditional.
    pub(super) previous: Option<Arc<FetchedResponse>>,
    pub(super) start_ns: u64,
    /// A matching purge arrived after the fetch was started.
    pub(super) is_outdated: bool,
}

/// All waiting and running fetches.
#[derive(Debug, Default)]
pub(super) struct FetchJobs {
    waiting: VecDeque<(RequestKey, u64)>,
    in_progress: BTreeMap<FetchTicket, FetchJob>,
    /// The hashes of all keys that wait for a fetch or are being fetched.
    hashes: HashSet<u64>,
    ticket_next: u64,
}

impl FetchJobs {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn in_progress(&self) -> usize {
        self.in_progress.len()
    }

    /// Whether a key with this hash is waiting or being fetched.
    pub(super) fn is_known(&self, hash: u64) -> bool {
        self.hashes.contains(&hash)
    }

    /// Appends a key, unless it is waiting or being fetched. Returns whether it was appended.
    pub(super) fn enqueue(&mut self, key: RequestKey, hash: u64) -> bool {
        let is_new = self.hashes.insert(hash);
        if is_new {
            self.waiting.push_back((key, hash));
        }
        is_new
    }

    /// Takes the next waiting key. The caller must continue with `FetchJobs::begin`.
    pub(super) fn next_waiting(&mut self) -> Option<(RequestKey, u64)> {
        // The hash stays in `hashes`: further requests for the key must not enqueue it again.
        self.waiting.pop_front()
    }

    pub(super) fn begin(&mut self, job: FetchJob) -> FetchTicket {
        self.ticket_next += 1;
        let ticket = FetchTicket(self.ticket_next);
        self.in_progress.insert(ticket, job);
        ticket
    }

    /// Removes a fetch when it ends; `None` if it was removed before.
    pub(super) fn end(&mut self, ticket: FetchTicket) -> Option<FetchJob> {
        let job = self.in_progress.remove(&ticket)?;
        // From now on, the key can be enqueued again.
        self.hashes.remove(&job.hash);
        Some(job)
    }

    /// The fetches that were started before this time.
    pub(super) fn started_before(&self, time_ns: u64) -> Vec<FetchTicket> {
        let old = self
            .in_progress
            .iter()
            .filter(|(_, j)| j.start_ns < time_ns);
        old.map(|(ticket, _)| *ticket).collect()
    }

    /// Marks matching fetches so that their results are discarded.
    pub(super) fn mark_outdated(&mut self, is_match: impl Fn(&RequestKey) -> bool) {
        for job in self.in_progress.values_mut() {
            // A job that an earlier purge has marked stays outdated.
            job.is_outdated |= is_match(&job.key);
        }
    }
}
