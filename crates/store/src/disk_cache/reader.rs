//! Look-ups in the disk cache: finds objects on disk and compares them with the purge rules.

use lowroad_cache::vary::SelectingFields;
use lowroad_http::fields::FieldLines;

use super::key;
use super::meta::{ClockReading, ObjectMeta, StoredMeta, VaryMeta};
use super::tier::DiskCache;
use crate::purge_rules::{BanVerdict, StorePurges};
use crate::shared_store::SharedStore;
use crate::validity::StoredExpiry;

/// The disk store with the purge rules.
#[derive(Clone, Copy)]
pub struct DiskReader<'t> {
    tier: &'t DiskCache,
    store_purges: &'t StorePurges,
    /// The generation of the last scan; read before any look-up, since a scan may end during it.
    scanned: u64,
    now: ClockReading,
}

pub type DiskMatch = lowroad_disk::DiskObject<std::fs::File>;

/// A response that was found on disk.
pub struct DiskResponse {
    pub key: Box<[u8]>,
    /// The location of the response's body.
    pub disk_match: DiskMatch,
    pub response: Box<StoredMeta>,
    /// The purge generation up to which the response was compared with the rules.
    pub since: u64,
}

/// The result of a search.
#[derive(Default)]
pub struct DiskSearch {
    pub hit: Option<DiskResponse>,
    /// The resource has variants (Vary), so its key alone does not select an object.
    pub varies: bool,
}

impl<'t> DiskReader<'t> {
    pub fn new(tier: &'t DiskCache, store: &'t SharedStore) -> DiskReader<'t> {
        DiskReader {
            tier,
            store_purges: store.store_purges(),
            scanned: tier.purges.scanned(),
            now: ClockReading::read(),
        }
    }

    /// Finds an object for a request with these field lines. Blocks on the disk.
    pub fn find(&self, primary: &[u8], lines: &[u8]) -> DiskSearch {
        let mut search = DiskSearch::default();
        let Some((disk_match, meta)) = self.find_one(primary, primary) else {
            return search;
        };
        match meta {
            ObjectMeta::Response(response) => {
                search.hit = self.latest(primary, disk_match, response);
            }
            ObjectMeta::Varies(varies) => {
                search.varies = true;
                let names = varies.names.iter().map(|name| &**name);
                let variant = SelectingFields::from_vary(names, FieldLines::new(lines))
                    .and_then(|selecting| key::variant(primary, varies.family, &selecting));
                if let Some(variant) = variant
                    && let Some((disk_match, ObjectMeta::Response(response))) =
                        self.find_one(primary, &variant)
                {
                    search.hit = self.latest(&variant, disk_match, response);
                }
            }
        }
        search
    }

    /// A response with the last update of its fields; `None` if the update was purged.
    fn latest(
        &self,
        key: &[u8],
        disk_match: DiskMatch,
        original: Box<StoredMeta>,
    ) -> Option<DiskResponse> {
        let renewal = key::renewal(key).filter(|renewal| self.tier.may_contain(renewal));
        let newer = renewal.and_then(|renewal| {
            let newer = self.tier.store.find(&renewal, self.now.unix_ms)?;
            Some((renewal, ObjectMeta::decode(&newer.meta, self.now)?))
        });
        // The fields of a validated response are written as a small update under another key; the body is not
        // rewritten.
        let response = match newer {
            Some((key, newer)) if self.ban(&key, &newer) == BanVerdict::Hard => return None,
            Some((_, ObjectMeta::Response(newer))) if newer.id == original.id => newer,
            // There is no update, or it has another body number and so belongs to an earlier response.
            _ => original,
        };
        Some(DiskResponse {
            key: key.into(),
            disk_match,
            // The last scan has compared all objects on disk with the rules up to `scanned`.
            since: response.generation.max(self.scanned),
            response,
        })
    }

    /// The object under a key of a resource, unless it is purged or deleted.
    fn find_one(&self, primary: &[u8], key: &[u8]) -> Option<(DiskMatch, ObjectMeta)> {
        // Checked before the look-up: a deleted key is listed until its object is removed, so if the key is not listed
        // any more, the look-up will not find the object.
        if self.tier.is_being_deleted(primary) {
            return None;
        }
        let disk_match = self.tier.store.find(key, self.now.unix_ms)?;
        let Some(meta) = ObjectMeta::decode(&disk_match.meta, self.now) else {
            // Another version of the server wrote the metadata.
            let _ = self.tier.store.remove(key); // counted there
            return None;
        };
        (self.ban(key, &meta) != BanVerdict::Hard).then_some((disk_match, meta))
    }

    /// The effect of the purges that are newer than both the object's fetch and the last scan.
    fn ban(&self, key: &[u8], meta: &ObjectMeta) -> BanVerdict {
        let since = meta.generation().max(self.scanned);
        ban(self.store_purges, since, key, meta.lifetime())
    }

    /// The key under which to write the variant with these selecting fields. Blocks on the disk.
    pub fn variant_key(
        &self,
        primary: &[u8],
        selecting: &SelectingFields,
        generation: u64,
    ) -> Option<Box<[u8]>> {
        // Without Vary, the response is directly under the resource's key.
        if selecting.is_empty() {
            return Some(primary.into());
        }
        let names = || selecting.iter().map(|(name, _)| name);
        let existing = match self.find_one(primary, primary) {
            Some((_, ObjectMeta::Varies(varies))) => Some(varies),
            _ => None,
        };
        // If the names in Vary changed, a new marker is written, and the variants of the old one can't be found any
        // more.
        let is_same = |varies: &VaryMeta| varies.names.iter().map(|name| &**name).eq(names());
        let family = match existing.filter(is_same) {
            Some(varies) => varies.family,
            None => {
                self.write_vary_marker(primary, names().map(Into::into).collect(), generation)?
            }
        };
        key::variant(primary, family, selecting)
    }

    fn write_vary_marker(
        &self,
        primary: &[u8],
        names: Vec<Box<[u8]>>,
        generation: u64,
    ) -> Option<u64> {
        let varies = VaryMeta {
            generation,
            family: self.tier.next_number(),
            names,
        };
        let writer = self
            .tier
            .store
            .begin(primary, &varies.encode(), u64::MAX, Some(0))
            .ok()?;
        let _commit_guard = self.tier.lock_commits();
        // Checked under the commit lock: readers apply any later purge.
        let is_purged = ban(self.store_purges, generation, primary, None) != BanVerdict::None;
        (!is_purged && writer.commit().is_ok()).then_some(varies.family)
    }
}

/// The effect of purges after generation `since` on an object.
pub fn ban(
    store_purges: &StorePurges,
    since: u64,
    key: &[u8],
    lifetime: Option<&StoredExpiry>,
) -> BanVerdict {
    match key::parts(key) {
        Some((authority, target)) => store_purges.ban(since, authority, target, lifetime),
        None => BanVerdict::Hard, // not written here
    }
}
