//! The table of the responses that are being written to disk, so that none is written twice and writes can be
//! cancelled.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};

use super::key::PrimaryKey;
use super::meta::StoredMeta;
use super::work_queue::WORKS_MAX;
use crate::clock;
use crate::lock::lock;

/// The maximum number of concurrent writes.
const WRITES_MAX: usize = 256;
const _: () = assert!(WRITES_MAX <= WORKS_MAX);

/// The responses being written to disk. There are few, so a list is enough.
#[derive(Default)]
pub struct WriteTable(Mutex<Vec<WriteVariant>>);

struct WriteVariant {
    primary: PrimaryKey,
    /// The selecting fields with their values, encoded.
    selected: Vec<u8>,
    /// The purge generation before the fetch.
    generation: u64,
    /// The end of the response's freshness, monotonic ms.
    until_ms: u64,
    /// The flag that prevents the response from becoming visible.
    cancelled: Weak<AtomicBool>,
}

impl WriteTable {
    /// Adds a response and returns its cancellation flag. `None` if too many responses are being written, or if the
    /// same variant is already being written.
    pub fn begin(&self, primary: &PrimaryKey, response: &StoredMeta) -> Option<Arc<AtomicBool>> {
        let mut selected = Vec::new();
        for (name, value) in response.selecting.iter() {
            for part in [name, b"\n", value, b"\n"] {
                selected.extend_from_slice(part);
            }
        }
        let now_ms = clock::now_ms();
        let mut writes = lock(&self.0);
        // A write has a strong reference to its flag as long as it runs.
        writes.retain(|write| write.cancelled.strong_count() > 0);
        // Each write needs a buffer, and the work queue is bounded.
        if writes.len() >= WRITES_MAX {
            return None;
        }
        let is_same =
            |write: &&WriteVariant| write.primary == *primary && write.selected == selected;
        for write in writes.iter().filter(is_same) {
            let is_outdated = write.generation < response.generation || write.until_ms <= now_ms;
            let Some(cancelled) = write.cancelled.upgrade() else {
                continue;
            };
            // A newer response replaces an outdated one that is still being written.
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
            until_ms: response.lifetime.times().fresh_until_ms,
            cancelled: Arc::downgrade(&cancelled),
        });
        Some(cancelled)
    }

    /// Cancels the writes for a resource. Returns whether there were any; their responses may just have become visible.
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

    /// Whether a response is being written for a resource.
    pub fn contains(&self, primary: &PrimaryKey) -> bool {
        let is_active =
            |write: &WriteVariant| write.primary == *primary && write.cancelled.strong_count() > 0;
        lock(&self.0).iter().any(is_active)
    }
}
