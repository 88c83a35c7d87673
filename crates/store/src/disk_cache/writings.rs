//! The responses that are being written to disk.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

use super::key::PrimaryKey;
use super::meta::StoredMeta;
use super::work_queue::WORKS_MAX;
use crate::clock;
use crate::lock::lock;

/// The maximum number of concurrent writes.
const WRITINGS_MAX: usize = 256;
const _: () = assert!(WRITINGS_MAX <= WORKS_MAX);

/// The responses being written. There are few, so a list is enough.
#[derive(Default)]
pub struct WriteTable(Mutex<Vec<WriteVariant>>);

struct WriteVariant {
    primary: PrimaryKey,
    /// The values of the selecting fields.
    selected: Vec<u8>,
    /// The purge generation before the fetch.
    generation: u64,
    /// The end of its freshness, monotonic ms.
    until_ms: u64,
    /// The flag that prevents it from becoming visible.
    cancelled: Weak<AtomicBool>,
}

impl WriteTable {
    /// Adds a response and returns its cancellation flag. `None`: too many are being written, or the same one is.
    pub fn begin(&self, primary: &PrimaryKey, response: &StoredMeta) -> Option<Arc<AtomicBool>> {
        let mut selected = Vec::new();
        for (name, value) in response.selecting.iter() {
            for part in [name, b"\n", value, b"\n"] {
                selected.extend_from_slice(part);
            }
        }
        let now_ms = clock::now_ms();
        let mut known = lock(&self.0);
        // A write holds its flag as long as it runs.
        known.retain(|other| other.cancelled.strong_count() > 0);
        // Each write holds a buffer, and the work queue is bounded.
        if known.len() >= WRITINGS_MAX {
            return None;
        }
        let is_same =
            |other: &&WriteVariant| other.primary == *primary && other.selected == selected;
        for other in known.iter().filter(is_same) {
            let is_outdated = other.generation < response.generation || other.until_ms <= now_ms;
            let Some(cancelled) = other.cancelled.upgrade() else {
                continue;
            };
            // The newer response replaces one that is still being written.
            if is_outdated {
                cancelled.store(true, SeqCst);
            } else if !cancelled.load(SeqCst) {
                return None;
            }
        }
        let cancelled = Arc::default();
        known.push(WriteVariant {
            primary: primary.clone(),
            selected,
            generation: response.generation,
            until_ms: response.lifetime.times().until_ms,
            cancelled: Arc::downgrade(&cancelled),
        });
        Some(cancelled)
    }

    /// Cancels the writes for a resource. Returns whether there were any; they may have just become visible.
    pub fn cancel(&self, primary: &PrimaryKey) -> bool {
        let known = lock(&self.0);
        let own = known.iter().filter(|other| other.primary == *primary);
        let mut is_any = false;
        for cancelled in own.filter_map(|other| other.cancelled.upgrade()) {
            cancelled.store(true, SeqCst);
            is_any = true;
        }
        is_any
    }

    /// Whether something is being written for a resource.
    pub fn have(&self, primary: &PrimaryKey) -> bool {
        let is_own =
            |other: &WriteVariant| other.primary == *primary && other.cancelled.strong_count() > 0;
        lock(&self.0).iter().any(is_own)
    }
}
