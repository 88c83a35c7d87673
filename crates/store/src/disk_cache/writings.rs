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
        let mut writes = lock(&self.0);
        // A write holds its flag as long as it runs.
        writes.retain(|write| write.cancelled.strong_count() > 0);
        // Each write holds a buffer, and the work queue is bounded.
        if writes.len() >= WRITINGS_MAX {
            return None;
        }
        let is_same =
            |write: &&WriteVariant| write.primary == *primary && write.selected == selected;
        for write in writes.iter().filter(is_same) {
            let is_outdated = write.generation < response.generation || write.until_ms <= now_ms;
            let Some(cancelled) = write.cancelled.upgrade() else {
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
        writes.push(WriteVariant {
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
        let writes = lock(&self.0);
        let matching = writes.iter().filter(|write| write.primary == *primary);
        let mut has_cancelled = false;
        for cancelled in matching.filter_map(|write| write.cancelled.upgrade()) {
            cancelled.store(true, SeqCst);
            has_cancelled = true;
        }
        has_cancelled
    }

    /// Whether something is being written for a resource.
    pub fn contains(&self, primary: &PrimaryKey) -> bool {
        let is_active =
            |write: &WriteVariant| write.primary == *primary && write.cancelled.strong_count() > 0;
        lock(&self.0).iter().any(is_active)
    }
}
