//! Finds on the disk what was not purged.

use lowroad_cache::vary::Selecting;
use lowroad_http::fields::Lines;

use super::key;
use super::meta::{Meta, Now, Response, Varies};
use super::tier::Tier;
use crate::purging::{Ban, Purging};
use crate::shared_store::SharedStore;
use crate::validity::Lifetime;

/// The disk with the rules of purges: finds what was not purged.
#[derive(Clone, Copy)]
pub struct Reader<'t> {
    tier: &'t Tier,
    purging: &'t Purging,
    /// From before any look: a scan may remove something and be over meanwhile.
    scanned: u64,
    now: Now,
}

pub type Found = lowroad_disk::Found<std::fs::File>;

/// A response on the disk.
pub struct OnDisk {
    pub key: Box<[u8]>,
    /// Where its body is.
    pub found: Found,
    pub response: Box<Response>,
    /// It was compared with purges up to this generation.
    pub since: u64,
}

/// What came of a search.
#[derive(Default)]
pub struct Search {
    pub found: Option<OnDisk>,
    /// What is found depends on more than the key.
    pub varies: bool,
}

impl<'t> Reader<'t> {
    pub fn new(tier: &'t Tier, store: &'t SharedStore) -> Reader<'t> {
        Reader {
            tier,
            purging: store.purging(),
            scanned: tier.purges.scanned(),
            now: Now::read(),
        }
    }

    /// An object for a request with these field lines; blocks on the disk.
    pub fn find(&self, primary: &[u8], lines: &[u8]) -> Search {
        let mut search = Search::default();
        let Some((found, meta)) = self.find_one(primary, primary) else {
            return search;
        };
        match meta {
            Meta::Response(response) => {
                search.found = self.latest(primary, found, response);
            }
            Meta::Varies(varies) => {
                search.varies = true;
                let names = varies.names.iter().map(|name| &**name);
                let variant = Selecting::of(names, Lines::of(lines))
                    .and_then(|own| key::variant(primary, varies.family, &own));
                if let Some(variant) = variant
                    && let Some((found, Meta::Response(response))) =
                        self.find_one(primary, &variant)
                {
                    search.found = self.latest(&variant, found, response);
                }
            }
        }
        search
    }

    /// A response with what its origin said of it last; `None` if that was purged.
    fn latest(&self, key: &[u8], found: Found, first: Box<Response>) -> Option<OnDisk> {
        let renewal = key::renewal(key).filter(|renewal| self.tier.may_have(renewal));
        let newer = renewal.and_then(|renewal| {
            let newer = self.tier.store.find(&renewal, self.now.unix_ms)?;
            Some((renewal, Meta::decode(&newer.meta, self.now)?))
        });
        let response = match newer {
            Some((key, newer)) if self.ban(&key, &newer) == Ban::Hard => return None,
            // Else it is of a body that was there before.
            Some((_, Meta::Response(newer))) if newer.id == first.id => newer,
            _ => first,
        };
        Some(OnDisk {
            key: key.into(),
            found,
            since: response.generation.max(self.scanned),
            response,
        })
    }

    /// What is under a key of a resource, if it was not taken away or forgotten.
    fn find_one(&self, primary: &[u8], key: &[u8]) -> Option<(Found, Meta)> {
        // First: what is forgotten is hidden until it is removed, so it is not found once it is hidden no more.
        if self.tier.is_forgotten(primary) {
            return None;
        }
        let found = self.tier.store.find(key, self.now.unix_ms)?;
        let Some(meta) = Meta::decode(&found.meta, self.now) else {
            // Another version wrote it.
            let _ = self.tier.store.remove(key); // counted there
            return None;
        };
        (self.ban(key, &meta) != Ban::Hard).then_some((found, meta))
    }

    /// What purges do to an object, as far as a scan has not done it.
    fn ban(&self, key: &[u8], meta: &Meta) -> Ban {
        let since = meta.generation().max(self.scanned);
        ban(self.purging, since, key, meta.lifetime())
    }

    /// Where the variant for these values is to be written. Blocks on the disk.
    pub fn place_of(
        &self,
        primary: &[u8],
        selecting: &Selecting,
        generation: u64,
    ) -> Option<Box<[u8]>> {
        if selecting.is_empty() {
            return Some(primary.into());
        }
        let names = || selecting.iter().map(|(name, _)| name);
        let known = match self.find_one(primary, primary) {
            Some((_, Meta::Varies(varies))) => Some(varies),
            _ => None,
        };
        let is_same = |varies: &Varies| varies.names.iter().map(|name| &**name).eq(names());
        let family = match known.filter(is_same) {
            Some(varies) => varies.family,
            None => self.put_varies(primary, names().map(Into::into).collect(), generation)?,
        };
        key::variant(primary, family, selecting)
    }

    fn put_varies(&self, primary: &[u8], names: Vec<Box<[u8]>>, generation: u64) -> Option<u64> {
        let varies = Varies {
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
        let is_purged = ban(self.purging, generation, primary, None) != Ban::None;
        (!is_purged && begun.commit().is_ok()).then_some(varies.family)
    }
}

/// What the purges after this generation do to an object.
pub fn ban(purging: &Purging, since: u64, key: &[u8], lifetime: Option<&Lifetime>) -> Ban {
    match key::parts(key) {
        Some(resource) => purging.ban(since, resource, lifetime),
        None => Ban::Hard, // not written here
    }
}
