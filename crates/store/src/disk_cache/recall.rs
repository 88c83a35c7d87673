//! Recall: loads objects from disk into memory, the head always and the body if it is short. Runs on helper threads.

use std::sync::Arc;

use lowroad_engine::file::OpenFile;
use lowroad_http::stored_head::EncodedHead;

use super::key::{self, PrimaryKey};
use super::meta::{ClockReading, StoredMeta};
use super::reader::{DiskMatch, DiskReader, DiskResponse, ban};
use super::tier::DiskCache;
use crate::key::HashedKey;
use crate::object::{
    BodyLocation, DiskSegment, ObjectArc, ObjectKind, PlacedResponse, RenewalHandle,
    Representation, StoredObject,
};
use crate::placement::{self, PlacementError};
use crate::purge_epoch::PurgeEpoch;
use crate::purge_rules::BanVerdict;
use crate::shared_store::SharedStore;
use crate::validity::ObjectValidity;

/// The maximum length of a body that is loaded into memory. Longer ones are sent from disk, which needs a helper at
/// each use.
const COPIED_LEN_MAX: u64 = 64 * 1024;

/// An object to recall.
pub struct RecallRequest {
    /// The primary key on disk.
    pub primary: PrimaryKey,
    /// The key in memory.
    pub key: Arc<[u8]>,
    /// The hash of the key in memory.
    pub hash: u64,
    /// The purge epoch before the recall.
    pub purges: PurgeEpoch,
    /// The field lines of the request.
    pub lines: Box<[u8]>,
    /// The resource is known to have variants, so the field lines select the object.
    pub is_for_lines: bool,
}

/// An object in memory, with its key and the key's hash.
#[derive(Clone, Copy)]
pub struct MemoryObject<'o> {
    /// The hash of the key.
    pub hash: u64,
    /// The key in memory.
    pub key: &'o Arc<[u8]>,
    /// The object.
    pub object: &'o ObjectArc,
}

/// The result of a recall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecallOutcome {
    /// The resource has variants, so other requests may get another object.
    pub varies: bool,
}

impl DiskCache {
    /// Recalls an object, unless it was purged or deleted in the meantime. Blocks on the disk.
    pub fn recall(&self, store: &SharedStore, recall: &RecallRequest) -> RecallOutcome {
        let search = DiskReader::new(self, store).find(&recall.primary, &recall.lines);
        if let Some(on_disk) = search.hit
            && let Some(object) = object(store, recall, on_disk)
        {
            let object = ObjectArc::new(object);
            if store.insert_selected(recall.hash, &recall.key, object.clone()) {
                self.eviction_queue.add(recall.hash, &recall.key, &object);
            }
        }
        RecallOutcome {
            varies: search.varies,
        }
    }

    /// The length of the object on disk for a request, for `lowroad explain`. Blocks on the disk.
    pub fn find_len(&self, store: &SharedStore, primary: &PrimaryKey, lines: &[u8]) -> Option<u64> {
        let search = DiskReader::new(self, store).find(primary, lines);
        search.hit.map(|on_disk| on_disk.disk_match.body.len)
    }

    /// After the validation of a response (`memory_object`), writes its updated fields to disk, on a helper. If no
    /// helper is free, nothing is written, and the response is validated again after the next recall.
    pub fn renew(
        self: &Arc<Self>,
        store: &Arc<SharedStore>,
        renewable: &RenewalHandle,
        response: StoredMeta,
        memory_object: MemoryObject<'_>,
    ) {
        let MemoryObject { hash, key, object } = memory_object;
        self.eviction_queue.add(hash, key, object);
        let Some(renewal) = key::renewal(&renewable.key) else {
            return;
        };
        let (tier, store) = (self.clone(), store.clone());
        // Compared on the helper, since the response may be deleted before the helper runs.
        let deletion_count = object
            .validity
            .lifetime()
            .map(|expiry| expiry.deletion_count);
        let _ = self.helpers.submit(move || {
            let now = ClockReading::read();
            let (meta, expires_ms) = (response.encode(now), response.expires_ms(now));
            // Locked until the commit: a deletion waits for the commit and then finds the update.
            let _commit_guard = tier.lock_commits();
            let (since, lifetime) = (response.generation, Some(&response.lifetime));
            let is_wanted = ban(store.store_purges(), since, &renewal, lifetime)
                == BanVerdict::None
                && deletion_count.is_some_and(|since| !store.may_be_deleted(hash, since));
            if is_wanted {
                let started = tier.store.begin(&renewal, &meta, expires_ms, Some(0));
                let _ = started.and_then(|writer| writer.commit()); // counted there
            }
        });
    }
}

fn object(
    store: &SharedStore,
    recall: &RecallRequest,
    on_disk: DiskResponse,
) -> Option<StoredObject> {
    let DiskResponse {
        key,
        disk_match,
        response,
        since,
    } = on_disk;
    let response = *response;
    let renewable = RenewalHandle {
        key,
        id: response.id,
    };
    let lifetime = response.lifetime.with_purge_epoch(PurgeEpoch {
        generation: since,
        ..recall.purges
    });
    let key = HashedKey {
        hash: recall.hash,
        bytes: &recall.key,
    };
    let placed = place_body(store, key, &disk_match, renewable, response.head)?;
    let (len, modified) = (disk_match.body.len, response.modified_s);
    let representation = Representation::new(placed, len, modified, response.selecting);
    Some(StoredObject {
        kind: ObjectKind::Representation(representation),
        validity: ObjectValidity::Lifetime(lifetime),
    })
}

fn place_body(
    store: &SharedStore,
    key: HashedKey<'_>,
    disk_match: &DiskMatch,
    renewable: RenewalHandle,
    mut head: EncodedHead,
) -> Option<PlacedResponse> {
    let body = &disk_match.body;
    head.map.set_length(&mut head.text, body.len);
    // Short bodies are copied into memory, so that the next hits need no helper.
    if body.len <= COPIED_LEN_MAX {
        use std::os::unix::fs::FileExt;
        let read = |buffer: &mut [u8]| {
            let read = body.file.read_exact_at(buffer, body.offset);
            read.map_err(|_| PlacementError::Failed)
        };
        return placement::place_response(store, key, head, body.len as usize, read).ok();
    }
    let file = Arc::new(OpenFile::immutable(body.file.clone()).ok()?);
    let content = BodyLocation::Segment(Arc::new(DiskSegment {
        file,
        offset: body.offset,
        renewable: Arc::new(renewable),
    }));
    placement::place_head(store, key, head, content).ok()
}
