//! State that is passed from a manager to its successor: counters, and the fingerprints of certificates that this
//! process has ordered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::plan::FailureKind;

/// Counters since the start of the process, and the certificates that the process has ordered.
#[derive(Default)]
pub(crate) struct OrderHistory {
    pub counters: AcmeCounters,
    /// The fingerprint of the last certificate, by key.
    ordered_here: Mutex<HashMap<String, String>>,
}

/// Counters since the start of the process.
#[derive(Default)]
pub(crate) struct AcmeCounters {
    pub orders: AtomicU64,
    pub issued: AtomicU64,
    pub adopted: AtomicU64,
    pub orders_failed: AtomicU64,
    pub unreachable: AtomicU64,
    pub rate_limited: AtomicU64,
    pub refused: AtomicU64,
    pub wrong_answers: AtomicU64,
    pub local_errors: AtomicU64,
    pub demand_limited: AtomicU64,
    pub window_failures: AtomicU64,
    pub file_checks: AtomicU64,
    pub files_damaged: AtomicU64,
    pub files_restored: AtomicU64,
}

impl OrderHistory {
    /// Records the fingerprint of an ordered certificate. Must be called before the certificate is stored: otherwise a
    /// file check could attribute the certificate to another process.
    pub fn record_order(&self, key: &str, fingerprint: &str) {
        self.ordered_here().insert(key.into(), fingerprint.into());
    }

    pub fn is_ordered_here(&self, key: &str, fingerprint: &str) -> bool {
        let ordered = self.ordered_here();
        ordered
            .get(key)
            .is_some_and(|ordered_fingerprint| ordered_fingerprint == fingerprint)
    }

    fn ordered_here(&self) -> MutexGuard<'_, HashMap<String, String>> {
        let ordered = self.ordered_here.lock();
        ordered.unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcmeCounters {
    pub fn count_failure(&self, kind: FailureKind) {
        increment(&self.orders_failed);
        increment(match kind {
            FailureKind::Unreachable => &self.unreachable,
            FailureKind::RateLimited => &self.rate_limited,
            FailureKind::Refused => &self.refused,
            FailureKind::WrongAnswer => &self.wrong_answers,
            FailureKind::Local => &self.local_errors,
        });
    }

    pub fn list(&self) -> [(&'static str, u64); 14] {
        [
            ("acme.orders", &self.orders),
            ("acme.issued", &self.issued),
            ("acme.adopted", &self.adopted),
            ("acme.orders_failed", &self.orders_failed),
            ("acme.unreachable", &self.unreachable),
            ("acme.rate_limited", &self.rate_limited),
            ("acme.refused", &self.refused),
            ("acme.wrong_answers", &self.wrong_answers),
            ("acme.local_errors", &self.local_errors),
            ("acme.demand_limited", &self.demand_limited),
            ("acme.window_failures", &self.window_failures),
            ("acme.file_checks", &self.file_checks),
            ("acme.files_damaged", &self.files_damaged),
            ("acme.files_restored", &self.files_restored),
        ]
        .map(|(name, counter)| (name, counter.load(Relaxed)))
    }
}

pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
