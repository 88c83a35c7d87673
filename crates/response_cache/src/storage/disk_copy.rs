//! Disk copies of responses: bodies that memory has no room for, while they arrive, and copies of responses that will
//! be useful for a while. If memory has a newer response that is not written to disk, the older disk copy is deleted.
//! Without a disk cache, all of this does nothing.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::BodySender;
use lowroad_store::ObjectArc;
use lowroad_store::clock;
use lowroad_store::disk_cache::{
    self, DiskCache, MemoryObject, PendingWrite, PrimaryKey, StoredMeta, UnfinishedBody,
    WriteSource,
};
use lowroad_store::object::{BodyLocation, ObjectKind};
use lowroad_store::validity::StoredExpiry;

use super::{CacheFill, PendingHead, StoreRequest};

/// Responses that are usable for less time (ms) are not copied from memory: they expire before eviction would drop
/// them.
const USEFUL_MIN_MS: u64 = 10_000;

/// A response to be written to disk.
pub struct DiskCopy {
    tier: Arc<DiskCache>,
    primary: PrimaryKey,
    response: StoredMeta,
}

impl StoreRequest {
    /// The longest body that can be stored in memory or on disk.
    pub(super) fn body_len_max(&self) -> u64 {
        let on_disk = self.tier().map_or(0, |tier| tier.body_len_max());
        self.store.body_len_max().max(on_disk)
    }

    /// The disk cache, if it takes this route's responses: those of origins.
    fn tier(&self) -> Option<&Arc<DiskCache>> {
        self.store.tier().filter(|_| self.route.is_origin)
    }

    fn primary(&self) -> Option<PrimaryKey> {
        disk_cache::primary(&self.rules.disk_id, &self.key.bytes)
    }

    /// Prepares the disk copy of a response with this head, if there is a disk cache.
    pub(super) fn for_disk(&self, head: &PendingHead) -> Option<DiskCopy> {
        let tier = self.tier()?.clone();
        let response = StoredMeta {
            generation: self.purges.generation,
            id: tier.number(),
            head: head.built.clone(),
            modified_s: head.about.modified_s,
            lifetime: head.about.lifetime.clone(),
            selecting: head.about.selecting.clone(),
        };
        Some(DiskCopy {
            primary: self.primary()?,
            tier,
            response,
        })
    }

    /// Writes a copy of a response in memory, if it will be useful.
    pub(super) fn copy_to_disk(&self, for_disk: Option<DiskCopy>, body: &Bytes) {
        self.keep_whole(for_disk, vec![body.clone()], None);
    }

    /// The same for a body in parts. If memory has no room (`held` is set), the body is written in any case and held
    /// until then.
    pub(super) fn keep_whole(
        &self,
        for_disk: Option<DiskCopy>,
        parts: Vec<Bytes>,
        held: Option<Arc<PendingWrite>>,
    ) {
        // Without a disk cache.
        let Some(for_disk) = for_disk else { return };
        // An object that only the disk can hold is written in any case.
        if held.is_none() && !is_useful(&for_disk.response.lifetime) {
            for_disk.tier.skip();
            return for_disk.tier.forget_older(&for_disk.primary);
        }
        let len = parts.iter().map(|part| part.len() as u64).sum();
        if let Some((to, _)) = self.begin_on_disk(for_disk, Some(len), held) {
            // The writer takes all of it or has given up.
            let is_open = |part: Bytes| to.push(part).is_ok();
            if parts.into_iter().all(is_open) {
                to.end();
            }
        }
    }

    /// Writes the updated fields of a response that its origin validated. A body in memory is written again, because a
    /// copy on disk may be missing.
    pub(super) fn renew_on_disk(&self, for_disk: Option<DiskCopy>, object: &ObjectArc) {
        let (Some(for_disk), Some(renewed)) = (for_disk, object.representation()) else {
            return;
        };
        let BodyLocation::Segment(segment) = renewed.content() else {
            // Without a copy: the object stays alive until the writer has its body.
            let body = Bytes::from_owner(BodyLender(object.clone()));
            return self.copy_to_disk(Some(for_disk), &body);
        };
        let DiskCopy { tier, response, .. } = for_disk;
        let response = StoredMeta {
            id: segment.renewable.id,
            ..response
        };
        let in_memory = MemoryObject {
            hash: self.key.hash,
            key: &self.key.bytes,
            object,
        };
        tier.renew(&self.store, &segment.renewable, response, in_memory);
    }

    /// Deletes the disk copy of a response that must not be stored any more.
    pub(super) fn forget_on_disk(&self) {
        if let (Some(tier), Some(primary)) = (self.tier(), self.primary()) {
            tier.forget_older(&primary);
        }
    }

    /// Begins to write a body; `None`: the disk cache declines. If the body is in memory (nothing is `held`), an older
    /// disk copy is deleted then.
    fn begin_on_disk(
        &self,
        for_disk: DiskCopy,
        len: Option<u64>,
        held: Option<Arc<PendingWrite>>,
    ) -> Option<(BodySender, Arc<UnfinishedBody>)> {
        let DiskCopy {
            tier,
            primary,
            response,
        } = for_disk;
        let source = WriteSource {
            store: &self.store,
            hash: self.key.hash,
            primary,
            purges: self.purges,
        };
        let is_in_memory = held.is_none();
        let begun = tier.write(&source, response, len, held);
        if begun.is_none() && is_in_memory {
            tier.forget_older(&source.primary);
        }
        begun
    }
}

impl CacheFill {
    /// Redirects the body to disk, because memory has no room: the parts so far, and the rest as it arrives. Returns
    /// whether the disk takes it.
    pub(super) fn go_on_disk(&mut self, parts: Vec<Bytes>) -> bool {
        let ObjectKind::Filling(filling, _) = &self.object.kind else {
            return false;
        };
        if let Some(for_disk) = self.for_disk.take() {
            let held = self.held.clone();
            let begun = self.storing.begin_on_disk(for_disk, filling.len, held);
            if let Some((to, kept)) = begun {
                filling.keep(to, kept, parts);
            }
        }
        filling.is_kept()
    }
}

impl StoreRequest {
    /// Keeps a streaming object in memory until the disk has its body, if there is a disk cache.
    pub(super) fn hold(&self, object: &ObjectArc) -> Option<Arc<PendingWrite>> {
        self.tier().map(|_| {
            Arc::new(PendingWrite {
                store: self.store.clone(),
                hash: self.key.hash,
                key: self.key.bytes.clone(),
                object: object.clone(),
            })
        })
    }
}

/// Whether the response can be used without waiting for the origin for long enough.
fn is_useful(lifetime: &StoredExpiry) -> bool {
    let times = lifetime.times();
    let until_ms = times.until_ms.max(times.swr_until_ms);
    !times.no_cache && until_ms.saturating_sub(clock::now_ms()) >= USEFUL_MIN_MS
}

/// The body of an object in memory, which it keeps alive.
struct BodyLender(ObjectArc);

impl AsRef<[u8]> for BodyLender {
    fn as_ref(&self) -> &[u8] {
        let body = self.0.representation().and_then(|representation| {
            let len = usize::try_from(representation.len()).ok()?;
            representation.body(0..len)
        });
        body.unwrap_or_default()
    }
}
