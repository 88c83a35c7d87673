//! The queue of recalled objects with bodies on disk: they are removed from memory after a while, so that the next
//! request shows the disk that they are used.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use crate::clock;
use crate::lock::lock;
use crate::object::{BodyLocation, DiskSegment, ObjectArc, StoredObject};

/// How long a recalled head stays in memory if its body is on disk, ms.
const RECALLED_MS: u64 = 10_000;

/// Recalled objects that will be removed from memory, in the order of their recall.
#[derive(Default)]
pub struct EvictionQueue(pub(super) Mutex<VecDeque<RecentRecall>>);

/// A recalled object.
pub struct RecentRecall {
    pub at_ms: u64,
    pub hash: u64,
    pub key: Arc<[u8]>,
    /// The location of the object's body.
    pub segment: Weak<DiskSegment>,
}

impl EvictionQueue {
    /// Adds a recalled object, if its body is on disk.
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

    /// Takes the next object that must be removed from memory now.
    pub fn next(&self) -> Option<RecentRecall> {
        let now_ms = clock::now_ms();
        let mut recent = lock(&self.0);
        // The first one is the oldest.
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
