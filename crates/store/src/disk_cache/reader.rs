//! Finds objects on disk that are not purged.

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
    purging: &'t StorePurges,
    /// Read before any look-up: a scan may remove an object and end in between.
    scanned: u64,
    now: ClockReading,
}

pub type DiskMatch = lowroad_disk::DiskObject<std::fs::File>;

/// A response on the disk.
pub struct DiskResponse {
    pub key: Box<[u8]>,
    /// The location of its body.
    pub found: DiskMatch,
    pub response: Box<StoredMeta>,
    /// The purge generation up to which it was compared.
    pub since: u64,
}

/// The result of a search.
#[derive(Default)]
pub struct DiskSearch {
    pub found: Option<DiskResponse>,
    /// The resource varies, so its key alone does not select an object.
    pub varies: bool,
}

impl<'t> DiskReader<'t> {
    pub fn new(tier: &'t DiskCache, store: &'t SharedStore) -> DiskReader<'t> {
        DiskReader {
            tier,
            purging: store.purging(),
            scanned: tier.purges.scanned(),
            now: ClockReading::read(),
        }
    }

    /// Finds an object for a request with these field lines. Blocks on the disk.
    pub fn find(&self, primary: &[u8], lines: &[u8]) -> DiskSearch {
        let mut search = DiskSearch::default();
        let Some((found, meta)) = self.find_one(primary, primary) else {
            return search;
        };
        match meta {
            ObjectMeta::Response(response) => {
                search.found = self.latest(primary, found, response);
            }
            ObjectMeta::Varies(varies) => {
                search.varies = true;
                let names = varies.names.iter().map(|name| &**name);
                let variant = SelectingFields::from_vary(names, FieldLines::new(lines))
                    .and_then(|own| key::variant(primary, varies.family, &own));
                if let Some(variant) = variant
                    && let Some((found, ObjectMeta::Response(response))) =
                        self.find_one(primary, &variant)
                {
                    search.found = self.latest(&variant, found, response);
                }
            }
        }
        search
    }

    /// A response with its last update; `None` if that was purged.
    fn latest(&self, key: &[u8], found: DiskMatch, first: Box<StoredMeta>) -> Option<DiskResponse> {
        let renewal = key::renewal(key).filter(|renewal| self.tier.may_have(renewal));
        let newer = renewal.and_then(|renewal| {
            let newer = self.tier.store.find(&renewal, self.now.unix_ms)?;
            Some((renewal, ObjectMeta::decode(&newer.meta, self.now)?))
        });
        // A validated response is written as a small update of the fields, beside its body.
        let response = match newer {
            Some((key, newer)) if self.ban(&key, &newer) == BanVerdict::Hard => return None,
            // An update with another id belongs to an earlier body.
            Some((_, ObjectMeta::Response(newer))) if newer.id == first.id => newer,
            _ => first,
        };
        Some(DiskResponse {
            key: key.into(),
            found,
            // A scan has compared everything on disk with the rules up to `scanned`.
            since: response.generation.max(self.scanned),
            response,
        })
    }

    /// The object under a key of a resource, unless it is purged or deleted.
    fn find_one(&self, primary: &[u8], key: &[u8]) -> Option<(DiskMatch, ObjectMeta)> {
        // Checked before the look-up: a key stays in this list until its object is removed, so one that has left it is
        // not found.
        if self.tier.is_forgotten(primary) {
            return None;
        }
        let found = self.tier.store.find(key, self.now.unix_ms)?;
        let Some(meta) = ObjectMeta::decode(&found.meta, self.now) else {
            // Another version wrote it.
            let _ = self.tier.store.remove(key); // counted there
            return None;
        };
        (self.ban(key, &meta) != BanVerdict::Hard).then_some((found, meta))
    }

    /// The effect of purges on an object that no scan has removed yet.
    fn ban(&self, key: &[u8], meta: &ObjectMeta) -> BanVerdict {
        let since = meta.generation().max(self.scanned);
        ban(self.purging, since, key, meta.lifetime())
    }

    /// The key at which the variant with these values is written. Blocks on the disk.
    pub fn place_of(
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
        let known = match self.find_one(primary, primary) {
            Some((_, ObjectMeta::Varies(varies))) => Some(varies),
            _ => None,
        };
        // Other selecting fields begin a new family: variants of the old one can't be found any more.
        let is_same = |varies: &VaryMeta| varies.names.iter().map(|name| &**name).eq(names());
        let family = match known.filter(is_same) {
            Some(varies) => varies.family,
            None => self.put_varies(primary, names().map(Into::into).collect(), generation)?,
        };
        key::variant(primary, family, selecting)
    }

    fn put_varies(&self, primary: &[u8], names: Vec<Box<[u8]>>, generation: u64) -> Option<u64> {
        let varies = VaryMeta {
            generation,
            family: self.tier.number(),
            names,
        };
        let begun = self
            .tier
            .store
            .begin(primary, &varies.encode(), u64::MAX, Some(0))
            .ok()?;
        let _committing = self.tier.commits();
        // Under the commit lock: a purge from now on is seen by the readers.
        let is_purged = ban(self.purging, generation, primary, None) != BanVerdict::None;
        (!is_purged && begun.commit().is_ok()).then_some(varies.family)
    }
}

/// The effect of purges after generation `since` on an object.
pub fn ban(
    purging: &StorePurges,
    since: u64,
    key: &[u8],
    lifetime: Option<&StoredExpiry>,
) -> BanVerdict {
    match key::parts(key) {
        Some((authority, target)) => purging.ban(since, authority, target, lifetime),
        None => BanVerdict::Hard, // not written here
    }
}
