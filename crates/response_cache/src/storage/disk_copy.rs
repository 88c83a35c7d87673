//! Writes responses to the disk cache, if there is one: bodies that memory has no room for, while they arrive, and
//! copies of responses in memory that will be usable for a while. If a new response in memory is not written to disk,
//! the older disk copy is deleted.

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

/// Responses that are usable for less than this time (ms) are not copied from memory: they would expire before memory
/// evicts them.
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

    /// The disk cache, if this route's responses are stored there: only the responses of origins are.
    fn tier(&self) -> Option<&Arc<DiskCache>> {
        self.store.tier().filter(|_| self.route.is_origin)
    }

    fn primary(&self) -> Option<PrimaryKey> {
        disk_cache::primary(&self.rules.disk_id, &self.key.bytes)
    }

    /// Prepares the disk copy of a response with this head, if there is a disk cache.
    pub(super) fn disk_copy(&self, head: &PendingHead) -> Option<DiskCopy> {
        let tier = self.tier()?.clone();
        let response = StoredMeta {
            generation: self.purges.generation,
            id: tier.next_number(),
            head: head.encoded.clone(),
            modified_s: head.details.modified_s,
            lifetime: head.details.lifetime.clone(),
            selecting: head.details.selecting.clone(),
        };
        Some(DiskCopy {
            primary: self.primary()?,
            tier,
            response,
        })
    }

    /// Writes a copy of a response in memory to disk, if the response will be usable for long enough.
    pub(super) fn copy_to_disk(&self, disk_copy: Option<DiskCopy>, body: &Bytes) {
        self.write_parts_to_disk(disk_copy, vec![body.clone()], None);
    }

    /// The same for a body in parts. A body for which memory has no room (`pending_write` is set) is written in any
    /// case, and the object stays in memory until the body is on disk.
    pub(super) fn write_parts_to_disk(
        &self,
        disk_copy: Option<DiskCopy>,
        parts: Vec<Bytes>,
        pending_write: Option<Arc<PendingWrite>>,
    ) {
        // There is no disk cache.
        let Some(disk_copy) = disk_copy else { return };
        // An object for which memory has no room is written in any case.
        if pending_write.is_none() && !is_useful(&disk_copy.response.lifetime) {
            disk_copy.tier.count_skipped();
            return disk_copy.tier.delete_older_copy(&disk_copy.primary);
        }
        let len = parts.iter().map(|part| part.len() as u64).sum();
        if let Some((sender, _)) = self.begin_on_disk(disk_copy, Some(len), pending_write) {
            // Sending fails only if the writer has given up.
            let is_open = |part: Bytes| sender.push(part).is_ok();
            if parts.into_iter().all(is_open) {
                sender.end();
            }
        }
    }

    /// Writes the freshened fields of a response that its origin validated. If the body is in memory, the whole
    /// response is written, because there may be no copy on disk.
    pub(super) fn renew_on_disk(&self, disk_copy: Option<DiskCopy>, object: &ObjectArc) {
        let (Some(disk_copy), Some(renewed)) = (disk_copy, object.representation()) else {
            return;
        };
        let BodyLocation::Segment(segment) = renewed.content() else {
            // The body is not copied; the object is kept alive until the writer has read it.
            let body = Bytes::from_owner(PinnedBody(object.clone()));
            return self.copy_to_disk(Some(disk_copy), &body);
        };
        let DiskCopy { tier, response, .. } = disk_copy;
        let response = StoredMeta {
            id: segment.renewable.id,
            ..response
        };
        let memory_object = MemoryObject {
            hash: self.key.hash,
            key: &self.key.bytes,
            object,
        };
        tier.renew(&self.store, &segment.renewable, response, memory_object);
    }

    /// Deletes the disk copy of a response that must no longer be stored.
    pub(super) fn delete_on_disk(&self) {
        if let (Some(tier), Some(primary)) = (self.tier(), self.primary()) {
            tier.delete_older_copy(&primary);
        }
    }

    /// Begins to write a body; `None` if the disk cache declines. In that case, if the body is in memory
    /// (`pending_write` is `None`), an older disk copy is deleted.
    fn begin_on_disk(
        &self,
        disk_copy: DiskCopy,
        len: Option<u64>,
        pending_write: Option<Arc<PendingWrite>>,
    ) -> Option<(BodySender, Arc<UnfinishedBody>)> {
        let DiskCopy {
            tier,
            primary,
            response,
        } = disk_copy;
        let source = WriteSource {
            store: &self.store,
            hash: self.key.hash,
            primary,
            purges: self.purges,
        };
        let is_in_memory = pending_write.is_none();
        let started = tier.write(&source, response, len, pending_write);
        if started.is_none() && is_in_memory {
            tier.delete_older_copy(&source.primary);
        }
        started
    }
}

impl CacheFill {
    /// Redirects the body to disk, because memory has no room: the parts received so far, and the rest when it arrives.
    /// Returns whether the disk cache accepted it.
    pub(super) fn continue_on_disk(&mut self, parts: Vec<Bytes>) -> bool {
        let ObjectKind::Streaming(streaming, _) = &self.object.kind else {
            return false;
        };
        if let Some(disk_copy) = self.disk_copy.take() {
            let pending_write = self.pending_write.clone();
            let started = self
                .store_request
                .begin_on_disk(disk_copy, streaming.len, pending_write);
            if let Some((sender, unfinished)) = started {
                streaming.write_to_disk(sender, unfinished, parts);
            }
        }
        streaming.is_written_to_disk()
    }
}

impl StoreRequest {
    /// Keeps a streaming object in memory until its body is on disk, if there is a disk cache.
    pub(super) fn hold_in_memory(&self, object: &ObjectArc) -> Option<Arc<PendingWrite>> {
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

/// Whether the response will be usable, without waiting for the origin, for at least [`USEFUL_MIN_MS`].
fn is_useful(lifetime: &StoredExpiry) -> bool {
    let times = lifetime.times();
    let until_ms = times.fresh_until_ms.max(times.swr_until_ms);
    !times.no_cache && until_ms.saturating_sub(clock::now_ms()) >= USEFUL_MIN_MS
}

/// The body of an object in memory; keeps the object alive.
struct PinnedBody(ObjectArc);

impl AsRef<[u8]> for PinnedBody {
    fn as_ref(&self) -> &[u8] {
        let body = self.0.representation().and_then(|representation| {
            let len = usize::try_from(representation.len()).ok()?;
            representation.body(0..len)
        });
        body.unwrap_or_default()
    }
}
