//! The second tier of the store: responses of origins on a disk, bounded in bytes, and there again after a restart.
//!
//! ```text
//!  storing ─► writing ─► lowroad_disk ─► recalling ─► SharedStore ─► the way of every stored response
//!   as it comes, or whole    segments       head in memory, body where it lies
//! ```
//! Memory is asked first. What it has not, but the disk may have ([`Tier::may_have`], without a wait), is recalled by a
//! helper: the head goes into memory, with a short body, and a long body is sent from the disk. So freshness, validation,
//! ranges and HEAD are decided in one place, by what is in memory. What was recalled with its body on the disk leaves
//! memory after a while, so that the disk learns what is used, and may give up what is not.
//!
//! The disk has what memory has no room for, and a copy of what memory has and will be of use for a while. So eviction
//! from memory writes nothing. It never has something older than memory: what is stored in memory and not here is forgotten here.
//!
//! Knows requests only by their field lines, and of programs nothing.

mod forgetting;
mod key;
mod meta;
mod pump;
mod purges;
mod recalling;
mod saving;
mod unfinished;
mod upkeep;
mod writing;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lowroad_cache::vary::Selecting;
use lowroad_disk::{Counters, Folder, Options, Store};
use lowroad_engine::helpers::Helpers;
use lowroad_http::fields::Lines;

pub use key::{Primary, SiteIdentity, primary, site_identity};
pub use meta::{Now, Response};
pub use purges::give_up;
pub use recalling::{Recall, Recalled};
pub use saving::Told;
pub use unfinished::{LateReaders, Unfinished};
pub use writing::{Held, Source};

use crate::SharedStore;
use crate::purging::{Ban, Purging};
use crate::validity::Lifetime;
use forgetting::Forgotten;
use meta::{Meta, Varies};
use purges::PurgeLog;
use upkeep::Leaving;
use writing::Writings;

/// Threads that write.
const WRITERS: usize = 2;

/// The store on the disk, and what makes it one with that in memory.
pub struct Tier {
    store: Store,
    /// Who removes.
    helpers: Helpers,
    /// Who writes bodies, and nothing else: a slow disk holds up nobody who reads.
    writers: Helpers,
    /// Who reads what is being written.
    late: Arc<LateReaders>,
    purges: PurgeLog,
    /// Wakes who writes down purges.
    saver: Sender<Told>,
    /// What is being written.
    writings: Writings,
    /// Held by who makes something visible, from the last look whether it may. Never locked by workers.
    committing: RwLock<()>,
    /// What is forgotten, until it is removed from the disk.
    forgetting: Mutex<Vec<Forgotten>>,
    /// What leaves memory soon.
    leaving: Leaving,
    /// The next number for a resource that varies, or a body. They begin where no earlier run came to.
    numbers: AtomicU64,
    errors: AtomicU64,
    /// Responses not written: too long, just being written, or too many at a time.
    refused: AtomicU64,
    /// Responses in memory not copied, since they are not of use for long enough.
    skipped: AtomicU64,
}

/// Who waits until purges are kept.
pub struct Unsaved(Receiver<Told>);

impl Tier {
    /// Opens the store in a folder that was taken. Blocks on the disk.
    ///
    /// # Errors
    /// When the folder can't be read or written.
    pub fn open(
        (folder, path): (Folder, &Path),
        len_max: u64,
        helpers: Helpers,
    ) -> io::Result<(Arc<Tier>, Unsaved)> {
        let (saver, unsaved) = channel();
        let tier = Tier {
            store: Store::open(folder, Options::of_capacity(len_max))?,
            helpers,
            writers: Helpers::start_as("disk-cache", WRITERS)?,
            late: LateReaders::start()?,
            purges: PurgeLog::open(path, Now::read())?,
            saver,
            writings: Writings::default(),
            committing: RwLock::default(),
            forgetting: Mutex::default(),
            leaving: Leaving::default(),
            numbers: AtomicU64::new(crate::clock::unix_ns() as u64),
            errors: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        };
        Ok((Arc::new(tier), Unsaved(unsaved)))
    }

    /// Whether there may be something under a key. Does not block: for workers.
    pub fn may_have(&self, primary: &[u8]) -> bool {
        self.store.may_have(primary)
    }

    /// A longer body is not stored.
    pub fn body_len_max(&self) -> u64 {
        self.store.options().body_len_max()
    }

    /// What the disk did and has, and what this has failed at.
    pub fn counters(&self) -> (Counters, u64) {
        (self.store.counters(), self.errors.load(Relaxed))
    }

    /// How many responses were not written: those that were refused, and those in memory that were not worth a copy.
    pub fn unwritten(&self) -> (u64, u64) {
        (self.refused.load(Relaxed), self.skipped.load(Relaxed))
    }

    /// A response is not of use for long enough to be copied.
    pub fn skip(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    /// Who has read a body while it was written, and who was one too many for that.
    pub fn late_readers(&self) -> (u64, u64) {
        let late = &self.late;
        (late.begun.load(Relaxed), late.refused.load(Relaxed))
    }

    /// A number that was never given out.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed)
    }

    fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }
}

/// The disk with the rules of purges: finds what was not purged.
#[derive(Clone, Copy)]
struct Reader<'t> {
    tier: &'t Tier,
    purging: &'t Purging,
    /// From before any look: a scan may remove something and be over meanwhile.
    scanned: u64,
    now: Now,
}

type Found = lowroad_disk::Found<std::fs::File>;

/// A response on the disk.
struct OnDisk {
    key: Box<[u8]>,
    /// Where its body is.
    found: Found,
    response: Box<Response>,
    /// It was compared with purges up to this generation.
    since: u64,
}

/// What came of a search.
#[derive(Default)]
struct Search {
    found: Option<OnDisk>,
    /// What is found depends on more than the key.
    varies: bool,
}

impl<'t> Reader<'t> {
    fn new(tier: &'t Tier, store: &'t SharedStore) -> Reader<'t> {
        Reader {
            tier,
            purging: store.purging(),
            scanned: tier.purges.scanned(),
            now: Now::read(),
        }
    }

    /// An object for a request with these field lines; blocks on the disk.
    fn find(&self, primary: &[u8], lines: &[u8]) -> Search {
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
    fn place_of(
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
fn ban(purging: &Purging, since: u64, key: &[u8], lifetime: Option<&Lifetime>) -> Ban {
    match key::parts(key) {
        Some(resource) => purging.ban(since, resource, lifetime),
        None => Ban::Hard, // not written here
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
