//! Recalled objects in memory with bodies on disk: they leave memory after a while.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use crate::clock;
use crate::lock::lock;
use crate::object::{BodyLocation, DiskSegment, ObjectArc, StoredObject};

/// The time in ms that a recalled head stays in memory if its body is on disk.
const RECALLED_MS: u64 = 10_000;

/// Recalled objects that will leave memory, in order.
#[derive(Default)]
pub struct EvictionQueue(pub(super) Mutex<VecDeque<RecentRecall>>);

/// A recalled object.
pub struct RecentRecall {
    pub at_ms: u64,
    pub hash: u64,
    pub key: Arc<[u8]>,
    /// The location of its body.
    pub segment: Weak<DiskSegment>,
}

impl EvictionQueue {
    /// Adds a recalled object; it will leave memory if its body is on disk.
    pub fn add(&self, hash: u64, key: &Arc<[u8]>, object: &ObjectArc) {
        if let Some(segment) = segment_of(object) {
            lock(&self.0).push_back(RecentRecall {
                at_ms: clock::now_ms(),
                hash,
                key: key.clone(),
                segment: Arc::downgrade(segment),
            });
        }
    }

    /// The next object that must leave memory now.
    pub fn next(&self) -> Option<RecentRecall> {
        let now_ms = clock::now_ms();
        let mut recent = lock(&self.0);
        // In the order of their recall, so the first is the oldest.
        let first = recent.front()?;
        let is_expired = now_ms.saturating_sub(first.at_ms) >= RECALLED_MS;
        is_expired.then(|| recent.pop_front())?
    }
}

/// The location of an object's body, if it is on disk.
pub fn segment_of(object: &StoredObject) -> Option<&Arc<DiskSegment>> {
    match object.representation()?.content() {
        BodyLocation::Segment(segment) => Some(segment),
        _ => None,
    }
}
